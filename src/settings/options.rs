//! Every option, as clap knows it. The variables, the help, the completions and the tests of the
//! documents are made of this list as well.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};

use crate::contain::Level;
use crate::plan::policy::{KillMode, Until};
use crate::settings::config::{self, ForwardTo, SignalUse, StdinMode};
use crate::settings::value;

use Value::{Bytes, Text, Word};

pub struct Opt {
    pub long: &'static str,
    pub short: Option<char>,
    /// The help only lists its name.
    pub rare: bool,
    pub help: &'static str,
    /// Adds everything except the names and the help.
    define: fn(Arg) -> Arg,
}

impl Opt {
    pub fn argument(&self) -> Arg {
        let arg = Arg::new(self.long).long(self.long).short(self.short);
        (self.define)(arg.help(self.help))
    }

    const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// The name of its environment variable. `--doctor` has none.
    pub fn variable(&self) -> Option<String> {
        (self.long != "doctor").then(|| config::variable(self.long))
    }
}

const fn opt(long: &'static str, define: fn(Arg) -> Arg) -> Opt {
    Opt {
        long,
        short: None,
        rare: false,
        help: "",
        define,
    }
}

const fn short(short: char, long: &'static str, define: fn(Arg) -> Arg) -> Opt {
    Opt {
        short: Some(short),
        ..opt(long, define)
    }
}

const fn rare(long: &'static str, define: fn(Arg) -> Arg) -> Opt {
    Opt {
        rare: true,
        ..opt(long, define)
    }
}

const ANY_TEXT: ValueParser = ValueParser::os_string();

/// It has a value only in a variable.
fn switch(arg: Arg) -> Arg {
    arg.action(ArgAction::SetTrue)
        .value_parser(Text(value::switch))
}

/// If it is given more than once, the last value wins.
fn one(arg: Arg, name: &'static str, value: impl Into<ValueParser>) -> Arg {
    arg.value_name(name)
        .value_parser(value)
        .allow_hyphen_values(true)
}

fn time(arg: Arg) -> Arg {
    one(arg, "TIME", Text(value::duration))
}

fn many(arg: Arg, name: &'static str, value: impl Into<ValueParser>) -> Arg {
    one(arg, name, value).action(ArgAction::Append)
}

fn messages(arg: Arg) -> Arg {
    many(arg, "MATCH", Text(value::matching))
}

/// The options except `--help` and `--version`, in the order of the help, below their headings.
pub const GROUPS: [(&str, &[Opt]); 5] = [
    ("When to stop", WHEN_TO_STOP),
    ("How to stop", HOW_TO_STOP),
    ("Signals", SIGNALS),
    ("Containment", CONTAINMENT),
    ("Input, output and exit status", STREAMS),
];

const WHEN_TO_STOP: &[Opt] = &[
    opt("no-parent", switch).help("Do not stop when the parent process is gone"),
    opt("watch-pid", |arg| many(arg, "PID", Text(value::pid)))
        .help("Stop when process PID is gone"),
    opt("watch-ancestor", |arg| many(arg, "NAME", ANY_TEXT))
        .help("Stop when the nearest ancestor NAME is gone"),
    opt("stdin", |arg| {
        use StdinMode::{Auto, Ignore, Watch};
        let modes = &[("auto", Auto), ("watch", Watch), ("ignore", Ignore)];
        one(arg, "MODE", Word(modes))
    })
    .help("Stop when stdin closes: auto, watch, ignore [auto]"),
    opt("idle", |arg| one(arg, "TIME", Text(value::timeout)))
        .help("Stop when the host writes nothing to stdin for TIME"),
    opt("stdout", |arg| {
        one(arg, "MODE", Word(&[("watch", true), ("ignore", false)]))
    })
    .help("Stop when stdout has no reader: watch, ignore [ignore]"),
    opt("until", |arg| {
        let ends = &[("server", Until::Server), ("tree", Until::Tree)];
        one(arg, "WHAT", Word(ends))
    })
    .help("Run until the end of: server, tree [server]"),
];

const HOW_TO_STOP: &[Opt] = &[
    short('s', "signal", |arg| one(arg, "SIGNAL", Text(value::signal))).help("Stop signal [TERM]"),
    short('k', "kill-mode", |arg| {
        use KillMode::{Mixed, Staged, Tree};
        let modes = &[("staged", Staged), ("tree", Tree), ("mixed", Mixed)];
        one(arg, "MODE", Word(modes))
    })
    .help("Order of the stop signals: staged, tree, mixed [staged]"),
    short('d', "drain", time).help("Time to exit by itself after the end of input [5s]"),
    short('g', "grace", time).help("Time from the stop signal to SIGKILL [10s]"),
    rare("stage", time).help("Signal the rest of the tree this long before SIGKILL [2s]"),
    rare("kill-timeout", |arg| one(arg, "TIME", Text(value::timeout)))
        .help("Give up on survivors this long after SIGKILL [5s]"),
    rare("finally", |arg| one(arg, "COMMAND", ANY_TEXT))
        .help("Run COMMAND with /bin/sh when the tree is gone"),
];

const SIGNALS: &[Opt] = &[
    opt("hup", |arg| {
        let uses = &[
            ("auto", None),
            ("stop", Some(SignalUse::Stop)),
            ("forward", Some(SignalUse::Forward)),
        ];
        one(arg, "MODE", Word(uses))
    })
    .help("What SIGHUP does: auto, stop, forward [auto]"),
    rare("term", |arg| {
        let uses = &[("stop", SignalUse::Stop), ("forward", SignalUse::Forward)];
        one(arg, "MODE", Word(uses))
    })
    .help("What SIGTERM does: stop, forward [stop]"),
    rare("forward-to", |arg| {
        use ForwardTo::{Group, Server, Tree};
        let targets = &[("server", Server), ("group", Group), ("tree", Tree)];
        one(arg, "TARGET", Word(targets))
    })
    .help("Forward other signals to: server, group, tree [server]"),
    rare("rewrite", |arg| many(arg, "FROM:TO", Text(value::rewrite)))
        .help("Treat signal FROM as TO; TO 0 drops it"),
];

const CONTAINMENT: &[Opt] = &[
    opt("contain", |arg| one(arg, "LEVEL", Word(&Level::NAMES)))
        .help("Hold the tree by: group, cgroup, pidns [group]"),
    rare("spare", |arg| many(arg, "NAME", Bytes(value::command_name)))
        .help("Keep the daemon NAME of the tree running"),
    rare("no-guard", switch).help("One process instead of two; leaks if SIGKILLed"),
    rare("no-new-privs", switch).help("Deny setuid programs to the whole tree"),
];

const STREAMS: &[Opt] = &[
    opt("inject", |arg| many(arg, "unix:PATH", Bytes(value::socket)))
        .help("Other processes write messages to the server through a socket"),
    rare("turn", messages).help("The messages to the server that begin a turn"),
    rare("cancel", messages).help("The messages to the server that cancel the turn that runs"),
    rare("boundary", messages).help("The messages from the server that end a turn"),
    rare("cancel-drain", time).help("Time in which a cancelled turn must end [5s]"),
    opt("stderr", |arg| one(arg, "FILE", ANY_TEXT))
        .help("Append stderr of the server and of treaper to FILE"),
    opt("report", |arg| one(arg, "FILE", Bytes(value::report)))
        .help("Append a JSON object about the run to FILE or fd:N"),
    rare("report-arguments", switch).help("Name the arguments of COMMAND in the report"),
    opt("success", |arg| many(arg, "STATUS", Text(value::status)))
        .help("Exit with 0 instead of STATUS (or signal name)"),
    rare("log", |arg| one(arg, "FILTER", Text(value::log_filter)))
        .help("Log levels and modules instead of -v, such as debug"),
    short('v', "verbose", |arg| {
        arg.action(ArgAction::Count)
            .value_parser(Text(value::verbosity))
    })
    .help("Log each step; -vv: each process"),
    opt("doctor", |arg| {
        let formats = &[("table", false), ("json", true)];
        one(arg, "FORMAT", Word(formats))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("table")
    })
    .help("Show what this machine offers, and exit; =json"),
];

pub fn all() -> impl Iterator<Item = &'static Opt> + Clone {
    GROUPS.iter().flat_map(|(_, options)| *options)
}

/// How clap reads a value, with errors that name the option also if a value is not UTF-8.
#[derive(Clone, Copy)]
enum Value<T: 'static> {
    Word(&'static [(&'static str, T)]),
    Text(fn(&str) -> Result<T, &'static str>),
    Bytes(fn(&OsStr) -> Result<T, &'static str>),
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Value<T> {
    type Value = T;

    fn parse_ref(&self, _: &Command, arg: Option<&Arg>, given: &OsStr) -> Result<T, clap::Error> {
        let value = match (self, given.to_str()) {
            (Bytes(parse), _) => parse(given).map_err(str::to_owned),
            (_, None) => Err("not valid UTF-8".to_owned()),
            (Text(parse), Some(text)) => parse(text).map_err(str::to_owned),
            (Word(words), Some(text)) => {
                let found = words.iter().find(|(word, _)| *word == text);
                found.map(|(_, value)| value.clone()).ok_or_else(|| {
                    let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                    format!("expected one of {}", all.join(", "))
                })
            }
        };
        value.map_err(|expected| {
            let name = arg.and_then(Arg::get_long).unwrap_or_default();
            let given = given.to_string_lossy();
            let text = format!("{name}: invalid value '{given}': {expected}");
            clap::Error::raw(ErrorKind::ValueValidation, text)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let Word(words) = self else { return None };
        let all = words.iter().map(|(word, _)| PossibleValue::new(*word));
        Some(Box::new(all))
    }
}
