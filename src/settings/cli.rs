//! The command-line grammar. The only file that knows clap.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::settings::options::{self, OPTIONS, Opt, Takes};

/// The options and the command of a command line.
#[derive(Debug, Default)]
pub struct Args {
    /// Each option that was given, by its long name, with its value. A switch has the value 1.
    pub values: Vec<(&'static str, OsString)>,
    /// COMMAND and its arguments. Empty if an option replaces it.
    pub command: Vec<OsString>,
}

/// What to do with the command line.
#[derive(Debug)]
pub enum Parsed {
    Run(Args),
    /// Print this help or version to stdout, and exit.
    Print(String),
}

/// The whole grammar, for clap.
#[must_use]
pub fn grammar() -> Command {
    grammar_of(OPTIONS.iter())
        .disable_help_flag(false)
        .version(env!("CARGO_PKG_VERSION"))
        .override_help(options::help())
}

/// The grammar of `options` alone, without their help.
fn grammar_of<'a>(options: impl Iterator<Item = &'a Opt>) -> Command {
    let command = Command::new("treaper")
        .disable_help_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("COMMAND")
                .num_args(1..)
                .trailing_var_arg(true)
                .required(true)
                .hide(true)
                .value_parser(ValueParser::os_string()),
        );
    options.fold(command, |command, option| {
        let command = command.arg(argument(option));
        if matches!(option.takes, Takes::Maybe(_)) {
            // It replaces COMMAND.
            command.mut_arg("COMMAND", |arg| {
                arg.required(false).required_unless_present(option.long)
            })
        } else {
            command
        }
    })
}

fn argument(option: &Opt) -> Arg {
    let mut arg = Arg::new(option.long).long(option.long).help(option.help);
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    arg = match option.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Count => arg.action(ArgAction::Count),
        Takes::One(name) => arg.action(ArgAction::Set).value_name(name),
        Takes::Many(name) => arg.action(ArgAction::Append).value_name(name),
        Takes::Maybe(name) => arg
            .value_name(name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
    };
    if !matches!(option.takes, Takes::Nothing | Takes::Count) {
        arg = arg
            .value_parser(ValueParser::os_string())
            .allow_hyphen_values(true);
    }
    arg
}

/// Whether one of `arguments` can mean `option`. Wrong answers are only ever yes, never no.
fn mentions(arguments: &[OsString], option: &Opt) -> bool {
    let (long, short) = (option.long.as_bytes(), option.short);
    arguments.iter().any(|argument| match argument.as_bytes() {
        [b'-', b'-', name @ ..] => name.starts_with(long),
        [b'-', letters @ ..] => short.is_some_and(|short| letters.contains(&(short as u8))),
        _ => false,
    })
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// The error, in one line.
pub fn parse(arguments: &[OsString]) -> Result<Parsed, String> {
    // Building the whole grammar takes longer than everything else before the server runs. So the first try is a small
    // one of the options that are mentioned. If that fails, the whole one explains why.
    let mentioned = || OPTIONS.iter().filter(|option| mentions(arguments, option));
    if let Ok(matches) = grammar_of(mentioned()).try_get_matches_from(arguments) {
        return Ok(Parsed::Run(collect(matches, mentioned())));
    }
    match grammar().try_get_matches_from(arguments) {
        Ok(matches) => Ok(Parsed::Run(collect(matches, OPTIONS.iter()))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Print(error.to_string()))
            }
            _ => Err(format!(
                "{}; see treaper --help",
                explain(&error, arguments)
            )),
        },
    }
}

/// Explains the error in `arguments`, in one line.
fn explain(error: &clap::Error, arguments: &[OsString]) -> String {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return "no COMMAND was given".to_owned();
    }
    // For `-v=2`, clap reports only the `=`, as an option of its own.
    let given = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) => given.as_bytes(),
        _ => &[],
    };
    let by_value = matches!(given, [b'-', b'=' | b'0'..=b'9']) || given.starts_with(b"--verbose");
    let mut words = arguments.iter().filter(|_| by_value);
    if let Some(word) = words.find(|word| gives_verbose_a_value(word)) {
        return format!("{}: -v takes no value; -vv logs more", word.display());
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Whether `word` is `-v=2`, `-v2` or `--verbose=2`.
fn gives_verbose_a_value(word: &OsStr) -> bool {
    let word = word.as_bytes();
    let is_value = |rest: &[u8]| {
        let first = rest.iter().find(|byte| **byte != b'v');
        first.is_some_and(|byte| *byte == b'=' || byte.is_ascii_digit())
    };
    word.starts_with(b"--verbose=") || word.strip_prefix(b"-v").is_some_and(is_value)
}

/// The values of `options`, which are those of the grammar.
fn collect<'a>(mut matches: ArgMatches, options: impl Iterator<Item = &'a Opt>) -> Args {
    let mut args = Args::default();
    for option in options {
        let mut add = |value: OsString| args.values.push((option.long, value));
        match option.takes {
            Takes::Nothing if matches.get_flag(option.long) => add(OsString::from("1")),
            Takes::Nothing => {}
            Takes::Count => {
                let count = matches.get_count(option.long);
                if count > 0 {
                    add(OsString::from(count.to_string()));
                }
            }
            Takes::One(_) | Takes::Many(_) | Takes::Maybe(_) => {
                matches
                    .remove_many::<OsString>(option.long)
                    .into_iter()
                    .flatten()
                    .for_each(add);
            }
        }
    }
    args.command = matches
        .remove_many("COMMAND")
        .into_iter()
        .flatten()
        .collect();
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_grammar_parses_as_the_whole_one_does() {
        for line in [
            "cmd",
            "-- cmd",
            "cmd -s KILL --drain 1 -h --help --version",
            "-- -s --signal",
            "-sKILL cmd",
            "-s KILL -g 1s cmd -v",
            "-vvs KILL -- cmd -v",
            "--signal=KILL --signal TERM --watch-pid 1 --watch-pid=2 cmd",
            "--signal --help cmd",
            "--signal -- -- cmd",
            "--no-guard --no-parent -v -v cmd --no-guard",
            "-d -g -k -- cmd",
            "--stdin auto --stdout=watch x --until tree",
        ] {
            let words = ["treaper"].into_iter().chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let Ok(Parsed::Run(args)) = parse(&words) else {
                panic!("{line}");
            };
            let whole = grammar().try_get_matches_from(&words).unwrap();
            let whole = collect(whole, OPTIONS.iter());
            assert_eq!(
                (args.values, args.command),
                (whole.values, whole.command),
                "{line}"
            );
            let small: Vec<_> = OPTIONS.iter().filter(|o| mentions(&words, o)).collect();
            assert!(
                grammar_of(small.into_iter())
                    .try_get_matches_from(&words)
                    .is_ok(),
                "{line}"
            );
        }
    }

    #[test]
    fn the_whole_grammar_explains_each_error() {
        for (line, text) in [
            ("--sginal TERM cmd", "--sginal"),
            ("-x cmd", "-x"),
            ("--signal", "--signal <SIGNAL>"),
            ("-v=2 cmd", "-v=2: -v takes no value"),
            ("-vv3 cmd", "-vv3: -v takes no value"),
            ("--verbose=2 cmd", "--verbose=2: -v takes no value"),
            ("-vx cmd -v=2", "-x"),
            ("-v", "no COMMAND"),
        ] {
            let words = ["treaper"].into_iter().chain(line.split(' '));
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let error = parse(&words).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        }
        for line in ["--help", "-h", "-vh", "--version", "-V"] {
            let words = ["treaper", line].map(OsString::from);
            assert!(matches!(parse(&words), Ok(Parsed::Print(_))), "{line}");
        }
    }
}
