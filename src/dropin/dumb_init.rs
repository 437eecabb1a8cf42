//! dumb-init 1.2.

use std::ffi::OsStr;

use super::getopt::{Getopt, Long};
use super::{Answer, Call, OWN_VERSION, Start, leading_number};
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Step, Voice};
use crate::output::stderr;
use crate::sys::signal::Signal;
use crate::sys::startup::Standing;
use crate::sys::wait::Ended;

const VERSION: &str = "dumb-init v1.2.5";
/// The greatest signal number that `--rewrite` takes.
const MAX_SIGNAL: u8 = 31;
const INT: u8 = 2;
const QUIT: u8 = 3;
const KILL: u8 = 9;
const TERM: u8 = 15;
const STOP: u8 = 19;
/// TSTP, TTIN and TTOU. After forwarding one of them, dumb-init suspends itself as well.
const JOB_STOPS: [u8; 3] = [20, 21, 22];

const LONG: &[Long] = &[
    ("help", false, b'h'),
    ("single-child", false, b'c'),
    ("rewrite", true, b'r'),
    ("verbose", false, b'v'),
    ("version", false, b'V'),
];

macro_rules! say {
    ($($text:tt)+) => {
        stderr::bare_line(format_args!("[dumb-init] {}", format_args!($($text)+)))
    };
}

/// Reports in dumb-init's words.
#[derive(Debug)]
struct DumbInit {
    debug: bool,
}

/// For each signal, the signal that replaces it.
type Rewrites = [Option<u8>; MAX_SIGNAL as usize + 1];

pub(super) fn parse(call: &Call<'_>) -> Result<Start, Answer> {
    let name = &call.name;
    let (mut group, mut debug) = (true, false);
    let mut rewrites = Rewrites::default();
    let mut getopt = Getopt::new("hvVcr:", LONG, false, call.words);
    let complain = |complaint| Answer::Stderr(1, format!("{name}: {complaint}\n"));
    while let Some((letter, text)) = getopt.next_option().map_err(complain)? {
        match letter {
            b'h' => return Err(Answer::Stderr(0, help(name))),
            b'V' => return Err(Answer::Stderr(0, format!("{VERSION}\n"))),
            b'c' => group = false,
            b'v' => debug = true,
            _ => {
                let rewrite = rewrite(&text.unwrap_or_default());
                let (from, to) =
                    rewrite.ok_or_else(|| Answer::Stderr(1, REWRITE_USAGE.to_owned()))?;
                rewrites[usize::from(from)] = Some(to);
            }
        }
    }
    let command = getopt.operands;
    if command.is_empty() {
        let text =
            format!("Usage: {name} [option] program [args]\nTry {name} --help for full usage.\n");
        return Err(Answer::Stderr(1, text));
    }
    let is = |name, value: &str| call.variable(name).is_some_and(|text| text == value);
    if is("DUMB_INIT_DEBUG", "1") {
        debug = true;
        say!("Running in debug mode.");
    }
    if is("DUMB_INIT_SETSID", "0") {
        group = false;
        if debug {
            say!("Not running in setsid mode.");
        }
    }
    if group {
        // The kernel ignores TSTP, TTIN and TTOU in an orphaned process group, so SIGSTOP replaces
        // them.
        for signal in JOB_STOPS {
            rewrites[usize::from(signal)].get_or_insert(STOP);
        }
    }
    // What a shell has started in the background ignores these two. dumb-init does not wait for it.
    let is_ignored = [Some(INT), Some(QUIT)].contains(&rewrites[usize::from(TERM)]);
    let has_grace = call.variable("TREAPER_GRACE").is_some();
    let grace = if is_ignored && !has_grace { "1s" } else { "" };
    let set = [
        ("TREAPER_GRACE", grace),
        ("TREAPER_FORWARD_TO", if group { "group" } else { "" }),
        ("TREAPER_REWRITE", &list(&rewrites)),
        ("TREAPER_SIGNAL", &stop_signal(&rewrites)),
    ];
    let mut start = Start::server(command, DumbInit { debug }, &set);
    start.manner.suspends_with_signals = true;
    start.manner.standing = Some(if group {
        Standing::LeadsSession
    } else {
        Standing::LeadsNothing
    });
    Ok(start)
}

/// The rewrites as treaper takes them: none of a signal that no process can take.
fn list(rewrites: &Rewrites) -> String {
    let list = rewrites.iter().enumerate();
    let list = list.filter(|(from, _)| !matches!(*from as u8, KILL | STOP));
    let list = list.filter_map(|(from, to)| to.map(|to| format!("{from}:{to},")));
    list.collect()
}

/// The signal for the rest of the tree, which gets SIGTERM from treaper: that is rewritten as well,
/// if the new signal asks for an end. Otherwise empty.
fn stop_signal(rewrites: &Rewrites) -> String {
    let asks_for_end = |to: &u8| (1..TERM).contains(to) && *to != KILL;
    let signal = rewrites[usize::from(TERM)].filter(asks_for_end);
    signal.map_or_else(String::new, |signal| signal.to_string())
}

/// `FROM:TO` as `sscanf("%d:%d")` reads it: numbers only, and the rest of the text is ignored.
fn rewrite(text: &OsStr) -> Option<(u8, u8)> {
    let (from, rest) = leading_number(text.to_str()?);
    let (to, _) = leading_number(rest.strip_prefix(':')?);
    let (from, to) = (from?, to?);
    let signals = 1..=i64::from(MAX_SIGNAL);
    let are_valid = signals.contains(&from) && (to == 0 || signals.contains(&to));
    are_valid.then_some((from as u8, to as u8))
}

const REWRITE_USAGE: &str = "\
Usage: -r option takes <signum>:<signum>, where <signum> is between 1 and 31.
This option can be specified multiple times.
Use --help for full usage.
";

fn help(name: &str) -> String {
    format!(
        "\
{VERSION} ({OWN_VERSION})
Usage: {name} [option] command [[arg] ...]

Run command and forward signals to it; nothing that it started outlives it.

Optional arguments:
   -c, --single-child   Forward signals to the command alone, not to its process group.
   -r, --rewrite s:r    Forward signal s as signal r; as none if r is 0.
                        This option can be specified multiple times.
   -v, --verbose        Write each step to stderr.
   -h, --help           Print this help message and exit.
   -V, --version        Print the current version and exit.

DUMB_INIT_DEBUG=1 is -v, DUMB_INIT_SETSID=0 is -c. For TREAPER_* see treaper(1).
"
    )
}

impl Voice for DumbInit {
    fn report(&self, step: &Step<'_>) {
        if !self.debug {
            return Own.report(step);
        }
        match *step {
            Step::Started { pid, session, .. } => {
                say!("Child spawned with PID {pid}.");
                if session {
                    say!("setsid complete.");
                }
            }
            Step::Forwarding { from, to } => {
                let from = from.number();
                say!("Received signal {from}.");
                print_forwarded(from, to.map_or(0, Signal::number));
                if JOB_STOPS.contains(&from) {
                    say!("Suspending self due to TTY signal.");
                }
            }
            Step::Reaped { pid, ended, .. } => {
                say!("Received signal 17.");
                match ended {
                    Ended::Exited(code) => {
                        say!("A child with PID {pid} exited with exit status {code}.");
                    }
                    Ended::Killed(signal) => {
                        say!("A child with PID {pid} was terminated by signal {signal}.");
                    }
                }
            }
            Step::StoppingRest { signal } => print_forwarded(TERM, signal.number()),
            Step::Done { status } => say!("Child exited with status {status}. Goodbye."),
        }
    }

    fn report_failure(&self, error: &Error, command: &OsStr) -> u8 {
        let answer = match error.cause() {
            Some(cause) => {
                let (name, cause) = (command.to_string_lossy(), error::describe(cause));
                Answer::Stderr(2, format!("[dumb-init] {name}: {cause}\n"))
            }
            None => Answer::Stderr(1, format!("[dumb-init] {error}\n")),
        };
        answer.print()
    }
}

fn print_forwarded(from: u8, to: u8) {
    if to != from {
        say!("Translating signal {from} to {to}.");
    }
    if to == 0 {
        say!("Not forwarding signal 0 to children (ignored).");
    } else {
        say!("Forwarded signal {to} to children.");
    }
}
