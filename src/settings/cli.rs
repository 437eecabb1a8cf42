//! The command line and the variables, as clap reads them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

use crate::output::error::{Error, Shown};
use crate::settings::config::{Config, NO_COMMAND, PREFIX};
use crate::settings::help;
use crate::settings::options::{self, Opt};

#[derive(Debug)]
pub enum Parsed {
    Run(Box<Config>),
    /// Print this help or version to stdout, and exit.
    Print(String),
}

/// Environment variables: the name and the value of each.
pub type Variables = [(OsString, OsString)];

/// Options that have values in variables, with these values.
type SetVariables<'a> = [(&'static Opt, &'a OsStr)];

pub fn grammar() -> Command {
    grammar_of(options::all(), &[])
        .disable_help_flag(false)
        .version(env!("CARGO_PKG_VERSION"))
        .override_help(help::text())
}

/// The grammar of `options` alone, without a help. A value in a variable is the default of its
/// option, so the command line wins. The `env` of clap takes an empty variable for set, and does
/// not separate a list by blanks.
fn grammar_of(options: impl Iterator<Item = &'static Opt>, given: &SetVariables<'_>) -> Command {
    let command = Command::new("treaper")
        .disable_help_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("COMMAND")
                .num_args(0..)
                .trailing_var_arg(true)
                .value_parser(ValueParser::os_string()),
        );
    options.fold(command, |command, option| {
        let arg = option.argument();
        let Some((_, text)) = given.iter().find(|(known, _)| known.long == option.long) else {
            return command.arg(arg);
        };
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        let items = text
            .as_bytes()
            .split(|byte| is_list && b", \t\n".contains(byte));
        let items = items.filter(|item| !item.is_empty());
        command.arg(arg.default_values(items.map(|item| OsStr::from_bytes(item).to_owned())))
    })
}

/// The options that have values in `variables`, and the variables of treaper that belong to no
/// option. An empty variable is not set. An unknown one is no error: Kubernetes makes
/// TREAPER_SERVICE_HOST for a service of that name. If a variable comes twice, the first one
/// counts.
fn of_treaper(variables: &Variables) -> (Vec<(&'static Opt, &OsStr)>, Vec<String>) {
    let (mut given, mut unknown) = (Vec::new(), Vec::new());
    for (name, text) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        match options::all().find(|option| option.variable().as_deref() == Some(name)) {
            None => unknown.push(name.to_owned()),
            Some(_) if text.is_empty() => {}
            Some(option) => given.push((option, text.as_os_str())),
        }
    }
    (given, unknown)
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

/// Reads the arguments, the program's name first, and the variables. An error is one line, which
/// names the option or the variable.
pub fn parse(arguments: &[OsString], variables: &Variables) -> Result<Parsed, Error> {
    let (given, unknown) = of_treaper(variables);
    // A grammar of all options costs 60 us of a start, and 4 KiB in each process for as long as it
    // runs. So the first one is of those that are used. If that fails, the whole one explains why.
    let is_given = |option: &Opt| given.iter().any(|(known, _)| known.long == option.long);
    let used = options::all().filter(|option| mentions(arguments, option) || is_given(option));
    let error = match grammar_of(used, &given).try_get_matches_from(arguments) {
        Ok(matches) => {
            let error = match Config::new(matches, unknown) {
                Ok(config) => return Ok(Parsed::Run(Box::new(config))),
                Err(error) => error,
            };
            let lacks_command = matches!(&error, Error::Misuse(text) if text == NO_COMMAND);
            let swallowed = explain_swallowed(arguments).filter(|_| lacks_command);
            return Err(swallowed.unwrap_or(error));
        }
        Err(error) => error,
    };
    match grammar().try_get_matches_from(arguments) {
        Ok(_) => Err(Error::Misuse(explain_variable(&error))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Print(error.to_string()))
            }
            _ => Err(Error::Misuse(explain(&error, arguments))),
        },
    }
}

/// As [`parse`], for `command` without any option.
pub fn from_variables(variables: &Variables, command: &[OsString]) -> Result<Config, Error> {
    let words = [OsString::from("treaper"), OsString::from("--")];
    match parse(&[&words, command].concat(), variables)? {
        Parsed::Run(config) => Ok(*config),
        Parsed::Print(text) => Err(Error::Misuse(text)),
    }
}

/// Explains why there is no COMMAND, if the last option has taken it as its value.
fn explain_swallowed(arguments: &[OsString]) -> Option<Error> {
    let [.., option, value] = arguments else {
        return None;
    };
    let name = option.to_str()?.strip_prefix("--")?;
    let known = options::all().find(|known| known.long == name)?.argument();
    let value_name = known.get_value_names()?.first()?;
    let value = Shown(value);
    let text = format!("no COMMAND was given: '{value}' is the {value_name} of --{name}");
    (!known.is_require_equals_set()).then_some(Error::Misuse(text))
}

/// The message of clap in one line, without what it begins with.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn explain_variable(error: &clap::Error) -> String {
    let line = first_line(error);
    let (long, rest) = line.split_once(": ").unwrap_or_default();
    let option = options::all().find(|option| option.long == long);
    let name = option.and_then(Opt::variable).unwrap_or_default();
    format!("{name}: {rest}")
}

fn explain(error: &clap::Error, arguments: &[OsString]) -> String {
    let line = first_line(error);
    if error.kind() == ErrorKind::ValueValidation {
        return format!("--{line}");
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    // For `-v=2`, clap reports only the `=`, as an option of its own.
    let wrong = context(ContextKind::InvalidArg).as_bytes();
    let is_value = |byte: &u8| *byte == b'=' || byte.is_ascii_digit();
    let by_value = wrong.get(1).is_some_and(is_value) || wrong.starts_with(b"--verbose");
    let with_value = |word: &&OsString| {
        let word = word.as_bytes();
        (word.starts_with(b"-v") || word.starts_with(b"--verbose")) && word.iter().any(is_value)
    };
    let word = arguments.iter().find(|word| by_value && with_value(word));
    let word = word.map(|word| word.to_string_lossy());
    let explained = match (word, context(ContextKind::SuggestedArg)) {
        (Some(word), _) => format!("{word}: -v takes no value; -vv logs more"),
        (None, "") => line,
        (None, similar) => return format!("{line}; did you mean {similar}?"),
    };
    format!("{explained}; see treaper --help")
}
