//! The command-line grammar and every help text. The only file that knows clap.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command, error::ErrorKind};

/// One option: the single source for the parser, the help, the variables and the checks of the documents.
#[derive(Debug)]
pub struct Opt {
    pub long: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub help: &'static str,
}

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: a switch.
    Nothing,
    /// Nothing, and it counts how often it is given.
    Count,
    /// One value; the last one given wins. Named so in the help.
    One(&'static str),
    /// One value each time it is given.
    Many(&'static str),
    /// One value after `=`, or none.
    Maybe(&'static str),
}

const fn opt(long: &'static str, takes: Takes, help: &'static str) -> Opt {
    Opt {
        long,
        short: None,
        takes,
        help,
    }
}

const fn short(short: char, long: &'static str, takes: Takes, help: &'static str) -> Opt {
    Opt {
        long,
        short: Some(short),
        takes,
        help,
    }
}

/// Every option but `--help` and `--version`, in the order of the help.
pub const OPTIONS: &[Opt] = &[
    short('s', "signal", Takes::One("SIGNAL"), "Stop signal [TERM]"),
    short(
        'd',
        "drain",
        Takes::One("TIME"),
        "After end of input, time to leave unsignalled [5s]",
    ),
    short(
        'g',
        "grace",
        Takes::One("TIME"),
        "From the stop signal to SIGKILL [10s]",
    ),
    opt(
        "kill-timeout",
        Takes::One("TIME"),
        "From SIGKILL until survivors are named and left [5s]",
    ),
    short(
        'k',
        "kill-mode",
        Takes::One("MODE"),
        "Stop signal to: staged, tree, mixed [staged]",
    ),
    opt(
        "until",
        Takes::One("WHAT"),
        "Run until the end of: server, tree [server]",
    ),
    opt(
        "stdin",
        Takes::One("MODE"),
        "Hang-up of stdin stops: auto, watch, ignore [auto]",
    ),
    opt(
        "stdout",
        Takes::One("MODE"),
        "Loss of stdout's reader stops: watch, ignore [ignore]",
    ),
    opt(
        "hup",
        Takes::One("MODE"),
        "SIGHUP is to: stop, forward [stop]",
    ),
    opt(
        "term",
        Takes::One("MODE"),
        "SIGTERM is to: stop, forward [stop]",
    ),
    opt(
        "no-parent",
        Takes::Nothing,
        "Do not stop when the parent process is gone",
    ),
    opt(
        "watch-pid",
        Takes::Many("PID"),
        "Stop when process PID is gone",
    ),
    opt(
        "watch-ancestor",
        Takes::Many("NAME"),
        "Stop when the nearest ancestor NAME is gone",
    ),
    opt(
        "forward-to",
        Takes::One("WHOM"),
        "Other signals go to: server, group, tree [server]",
    ),
    opt(
        "rewrite",
        Takes::Many("FROM:TO"),
        "Take signal FROM as TO; TO 0 drops it",
    ),
    opt(
        "success",
        Takes::Many("STATUS"),
        "Exit with 0 instead of STATUS (or signal name)",
    ),
    opt(
        "contain",
        Takes::One("LEVEL"),
        "Hold it by: auto, group, cgroup, pidns [auto]",
    ),
    opt(
        "no-guard",
        Takes::Nothing,
        "One process instead of two; leaks if SIGKILLed",
    ),
    opt(
        "no-new-privs",
        Takes::Nothing,
        "Deny setuid programs to the whole tree",
    ),
    short(
        'v',
        "verbose",
        Takes::Count,
        "Tell each step; -vv: each process",
    ),
    opt(
        "doctor",
        Takes::Maybe("FORMAT"),
        "Tell what this machine offers, and exit; =json",
    ),
];

/// What was typed.
#[derive(Debug, Default)]
pub struct Args {
    /// Options by long name, in the order of [`OPTIONS`]; switches without a value.
    pub values: Vec<(&'static str, OsString)>,
    /// COMMAND and its arguments; empty if an option stands for it.
    pub command: Vec<OsString>,
}

/// What to do with the command line.
#[derive(Debug)]
pub enum Parsed {
    Run(Args),
    /// Help or version: to stdout, and done.
    Print(String),
}

/// The grammar, as clap sees it.
#[must_use]
pub fn grammar() -> Command {
    let mut command = Command::new("treaper")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Run a server; nothing it ever started outlives its reason to run.")
        .override_usage("treaper [OPTIONS] [--] COMMAND [ARG]...")
        .help_template("{about}\n\nUsage: {usage}\n\n{options}{after-help}")
        .after_help(
            "Each option has a variable, such as TREAPER_KILL_MODE; the command line wins. \
             TIME: 500ms, 5s, 2m, or seconds.\n\
             Exit status: the server's, or 128+n for signal n; 123 survivors, 125 treaper failed, \
             126 cannot\nexecute, 127 not found. Manual: treaper(1).",
        )
        .args_override_self(true)
        .arg(
            Arg::new("COMMAND")
                .num_args(1..)
                .trailing_var_arg(true)
                .required_unless_present("doctor")
                .hide(true)
                .value_parser(ValueParser::os_string()),
        );
    for option in OPTIONS {
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
        command = command.arg(arg);
    }
    command
}

/// Parses the arguments, the program's name first.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: Vec<OsString>) -> Result<Parsed, String> {
    let mut matches = match grammar().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                return Ok(Parsed::Print(error.to_string()));
            }
            ErrorKind::MissingRequiredArgument => {
                return Err("no COMMAND was given; see treaper --help".to_owned());
            }
            _ => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                let line = line.strip_prefix("error: ").unwrap_or(line);
                return Err(format!("{line}; see treaper --help"));
            }
        },
    };
    let mut args = Args::default();
    for option in OPTIONS {
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
    Ok(Parsed::Run(args))
}
