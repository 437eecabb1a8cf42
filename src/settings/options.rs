//! Every option, and the help. The parser, the variables, the completions and the checks of the documents read this list.
#![forbid(unsafe_code)]

use std::fmt::Write;

/// One option. The parser, the help, the variables and the checks of the documents all use this.
#[derive(Debug)]
pub struct Opt {
    pub long: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub help: &'static str,
    /// The help only lists its name. The manual explains it.
    pub rare: bool,
}

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing: a switch.
    Nothing,
    /// Nothing, and it counts how often it is given.
    Count,
    /// One value, which has this name in the help. If it is given more than once, the last one wins.
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
        rare: false,
    }
}

const fn rare(long: &'static str, takes: Takes, help: &'static str) -> Opt {
    Opt {
        rare: true,
        ..opt(long, takes, help)
    }
}

const fn short(short: char, long: &'static str, takes: Takes, help: &'static str) -> Opt {
    Opt {
        long,
        short: Some(short),
        takes,
        help,
        rare: false,
    }
}

/// Every option except `--help` and `--version`, in the order of the help.
pub const OPTIONS: &[Opt] = &[
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
        "stdin",
        Takes::One("MODE"),
        "Stop when stdin hangs up: auto, watch, ignore [auto]",
    ),
    opt(
        "idle",
        Takes::One("TIME"),
        "Stop when the host writes nothing to stdin for TIME",
    ),
    opt(
        "stdout",
        Takes::One("MODE"),
        "Stop when stdout has no reader: watch, ignore [ignore]",
    ),
    opt(
        "until",
        Takes::One("WHAT"),
        "Run until the end of: server, tree [server]",
    ),
    short('s', "signal", Takes::One("SIGNAL"), "Stop signal [TERM]"),
    short(
        'k',
        "kill-mode",
        Takes::One("MODE"),
        "Order of the stop signals: staged, tree, mixed [staged]",
    ),
    short(
        'd',
        "drain",
        Takes::One("TIME"),
        "Time to exit by itself after the end of input [5s]",
    ),
    short(
        'g',
        "grace",
        Takes::One("TIME"),
        "Time from the stop signal to SIGKILL [10s]",
    ),
    rare(
        "stage",
        Takes::One("TIME"),
        "Signal the rest of the tree this long before SIGKILL [2s]",
    ),
    rare(
        "kill-timeout",
        Takes::One("TIME"),
        "Give up on survivors this long after SIGKILL [5s]",
    ),
    opt(
        "hup",
        Takes::One("MODE"),
        "What SIGHUP does: auto, stop, forward [auto]",
    ),
    rare(
        "term",
        Takes::One("MODE"),
        "What SIGTERM does: stop, forward [stop]",
    ),
    rare(
        "forward-to",
        Takes::One("TARGET"),
        "Forward other signals to: server, group, tree [server]",
    ),
    rare(
        "rewrite",
        Takes::Many("FROM:TO"),
        "Treat signal FROM as TO; TO 0 drops it",
    ),
    opt(
        "contain",
        Takes::One("LEVEL"),
        "Hold the tree by: group, cgroup, pidns [group]",
    ),
    rare(
        "no-guard",
        Takes::Nothing,
        "One process instead of two; leaks if SIGKILLed",
    ),
    rare(
        "no-new-privs",
        Takes::Nothing,
        "Deny setuid programs to the whole tree",
    ),
    opt(
        "inject",
        Takes::Many("unix:PATH"),
        "Other processes write messages to the server by a socket",
    ),
    rare(
        "turn",
        Takes::Many("MATCH"),
        "The messages to the server that begin a turn",
    ),
    rare(
        "cancel",
        Takes::Many("MATCH"),
        "The messages to the server that cancel the turn that runs",
    ),
    rare(
        "boundary",
        Takes::Many("MATCH"),
        "The messages from the server that end a turn",
    ),
    rare(
        "cancel-drain",
        Takes::One("TIME"),
        "Time in which a cancelled turn must end [5s]",
    ),
    opt(
        "stderr",
        Takes::One("FILE"),
        "Append stderr of the server and of treaper to FILE",
    ),
    opt(
        "report",
        Takes::One("FILE"),
        "Append a JSON object about the run to FILE or fd:N",
    ),
    rare(
        "report-arguments",
        Takes::Nothing,
        "Name the arguments of COMMAND in the report",
    ),
    opt(
        "success",
        Takes::Many("STATUS"),
        "Exit with 0 instead of STATUS (or signal name)",
    ),
    short(
        'v',
        "verbose",
        Takes::Count,
        "Log each step; -vv: each process",
    ),
    opt(
        "doctor",
        Takes::Maybe("FORMAT"),
        "Show what this machine offers, and exit; =json",
    ),
];

/// The groups of [`OPTIONS`]: the heading of each, and its first option.
pub const GROUPS: [(&str, &str); 5] = [
    ("When to stop", "no-parent"),
    ("How to stop", "signal"),
    ("Signals", "hup"),
    ("Containment", "contain"),
    ("Input, output and exit status", "inject"),
];

/// What treaper does, in one line.
pub const ABOUT: &str = "run a server, and stop it with everything it ever started";

/// The column of the help in which the texts of the options begin.
const TEXT_COLUMN: usize = 31;

/// The greatest length of a line of names in the help.
const WIDTH: usize = 95;

/// The whole text of `--help`.
#[must_use]
pub fn help() -> String {
    let mut text = format!("treaper: {ABOUT}\nUsage: treaper [OPTIONS] [--] COMMAND [ARG]...\n");
    for option in OPTIONS.iter().filter(|option| !option.rare) {
        if let Some((heading, _)) = GROUPS.iter().find(|(_, first)| *first == option.long) {
            let _ = write!(text, "\n{heading}:\n");
        }
        let short = option.short.map(|short| format!("-{short},"));
        let value = match option.takes {
            Takes::Nothing => String::new(),
            Takes::Count => "...".to_owned(),
            Takes::One(name) | Takes::Many(name) => format!(" <{name}>"),
            Takes::Maybe(name) => format!("[=<{name}>]"),
        };
        let words = format!("  {:3} --{}{value}", short.unwrap_or_default(), option.long);
        let _ = writeln!(text, "{words:TEXT_COLUMN$}{}", option.help);
    }
    for (words, help) in [
        ("  -h, --help", "Print help"),
        ("  -V, --version", "Print version"),
    ] {
        let _ = writeln!(text, "{words:TEXT_COLUMN$}{help}");
    }
    let mut line = "Rarely needed, see treaper(1):".to_owned();
    for option in OPTIONS.iter().filter(|option| option.rare) {
        if line.len() + " --".len() + option.long.len() > WIDTH {
            let _ = write!(text, "\n{line}");
            " ".clone_into(&mut line);
        }
        let _ = write!(line, " --{}", option.long);
    }
    let _ = writeln!(text, "\n{line}");
    text.push_str(
        "\nVariables: TREAPER_KILL_MODE and so on; the command line wins. TIME: 500ms, 5s, 2m or seconds.\n\
         Exit status: the server's, or 128+n for signal n; 123 survivors, 124 cancel-timeout,\n\
         125 treaper failed, 126 cannot execute, 127 not found. Manual: treaper(1).\n",
    );
    text
}
