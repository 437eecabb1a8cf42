//! The command line and the variables, as clap reads them, and the help.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

use crate::output::error::{Error, Shown};
use crate::settings::config::{self, Config, NO_COMMAND, PREFIX};
use crate::settings::options::{self, GROUPS, Opt};

pub const ABOUT: &str = "run a server, and stop it with everything it ever started";

#[derive(Debug)]
pub enum Parsed {
    Run(Box<Config>),
    /// Print this help or version to stdout, and exit.
    Print(String),
}

/// The name and the value of each.
pub type Variables = [(OsString, OsString)];

pub fn grammar() -> Command {
    grammar_of(options::all(), &[])
        .disable_help_flag(false)
        .version(env!("CARGO_PKG_VERSION"))
        .override_help(help())
}

/// The help, on one screen. That of clap has one line for each option, and costs 52 KiB.
fn help() -> String {
    let mut text = format!("treaper: {ABOUT}\nUsage: treaper [OPTIONS] [--] COMMAND [ARG]...\n");
    for (heading, options) in GROUPS {
        let _ = write!(text, "\n{heading}:\n");
        for option in options.iter().filter(|option| !option.rare) {
            let arg = option.argument();
            let short = option.short.map(|short| format!("-{short},"));
            let name = arg.get_value_names().and_then(|names| names.first());
            let value = match (arg.get_action(), name) {
                (ArgAction::Count, _) => "...".to_owned(),
                (_, None) => String::new(),
                (_, Some(name)) if arg.is_require_equals_set() => format!("[=<{name}>]"),
                (_, Some(name)) => format!(" <{name}>"),
            };
            let words = format!("  {:3} --{}{value}", short.unwrap_or_default(), option.long);
            let _ = writeln!(text, "{words:31}{}", option.help);
        }
    }
    text.push_str("  -h, --help                   Print help\n");
    text.push_str("  -V, --version                Print version\n");
    let mut line = "Rarely needed:".to_owned();
    for option in options::all().filter(|option| option.rare) {
        if line.len() + " --".len() + option.long.len() > 99 {
            let _ = write!(text, "\n{line}");
            " ".clone_into(&mut line);
        }
        let _ = write!(line, " --{}", option.long);
    }
    let _ = writeln!(text, "\n{line}");
    text.push_str(
        "\nVariables: TREAPER_KILL_MODE and so on; the command line wins. TIME: 500ms, 5s, 2m, 1h, 1d.\n\
         Exit status: the server's, or 128+n for signal n; 123 survivors, 124 cancel-timeout,\n\
         125 treaper failed, 126 cannot execute, 127 not found. Manual: treaper(1).\n",
    );
    text
}

/// The grammar of `options` alone, without a help. A variable is the default of its option, so the
/// command line wins. The `env` of clap takes an empty one for set, and splits no list by blanks.
fn grammar_of(options: impl Iterator<Item = &'static Opt>, given: &[(&Opt, &OsStr)]) -> Command {
    let command = Arg::new("COMMAND").num_args(0..).trailing_var_arg(true);
    let grammar = Command::new("treaper")
        .disable_help_flag(true)
        .args_override_self(true)
        .arg(command.value_parser(ValueParser::os_string()));
    options.fold(grammar, |grammar, option| {
        let arg = option.argument();
        let Some((_, text)) = given.iter().find(|(known, _)| known.long == option.long) else {
            return grammar.arg(arg);
        };
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        let ends_item = |byte: &u8| is_list && b", \t\n".contains(byte);
        let items = text.as_bytes().split(ends_item).map(OsStr::from_bytes);
        let items = items.filter(|item| !item.is_empty());
        grammar.arg(arg.default_values(items.map(OsStr::to_owned)))
    })
}

/// The options that have values in `variables`, and the variables of treaper that belong to none
/// (Kubernetes makes TREAPER_SERVICE_HOST). Empty ones do not count, and the first of a name does.
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

/// Reads the arguments (the program first) and the variables. An error names the one or the other.
pub fn parse(arguments: &[OsString], variables: &Variables) -> Result<Parsed, Error> {
    let (given, unknown) = of_treaper(variables);
    // A grammar of all options costs 60 us of a start, and 4 KiB in each process. So the first one
    // is of those that are used. If it fails, the whole one explains why.
    let is_given = |option: &Opt| given.iter().any(|(known, _)| known.long == option.long);
    let used = options::all().filter(|option| mentions(arguments, option) || is_given(option));
    match grammar_of(used, &given).try_get_matches_from(arguments) {
        Ok(matches) => match Config::new(matches, unknown) {
            Err(error) if error.message == NO_COMMAND => {
                Err(explain_swallowed(arguments).map_or(error, Error::new))
            }
            result => result.map(|config| Parsed::Run(Box::new(config))),
        },
        Err(error) => match grammar().try_get_matches_from(arguments) {
            Ok(_) => {
                // A variable has the mistake, and the line begins with the name of its option.
                let line = first_line(&error);
                let (long, rest) = line.split_once(": ").unwrap_or_default();
                Err(Error::new(format!("{}: {rest}", config::variable(long))))
            }
            // A help or version is no error.
            Err(text) if !text.use_stderr() => Ok(Parsed::Print(text.to_string())),
            Err(error) => Err(Error::new(explain(&error))),
        },
    }
}

/// As [`parse`], for `command` without any option.
pub fn from_variables(variables: &Variables, command: &[OsString]) -> Result<Config, Error> {
    let words = [OsString::from("treaper"), OsString::from("--")];
    match parse(&[&words, command].concat(), variables)? {
        Parsed::Run(config) => Ok(*config),
        Parsed::Print(text) => Err(Error::new(text)),
    }
}

/// Explains why there is no COMMAND, if the last option has taken it as its value.
fn explain_swallowed(arguments: &[OsString]) -> Option<String> {
    let [.., option, value] = arguments else {
        return None;
    };
    let name = option.to_str()?.strip_prefix("--")?;
    let known = options::all().find(|known| known.long == name)?.argument();
    let (value, value_name) = (Shown(value), known.get_value_names()?.first()?);
    (!known.is_require_equals_set())
        .then(|| format!("no COMMAND was given: '{value}' is the {value_name} of --{name}"))
}

/// The message of clap, without what it begins with.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn explain(error: &clap::Error) -> String {
    let line = first_line(error);
    if error.kind() == ErrorKind::ValueValidation {
        return format!("--{line}");
    }
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) => format!("{line}; did you mean {similar}?"),
        _ => format!("{line}; see treaper --help"),
    }
}
