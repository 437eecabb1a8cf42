//! dumb-init 1.2.

use std::ffi::OsStr;

use super::{Answer, Call, OWN_VERSION, Start, getopt, leading_number};
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Step, Voice};
use crate::output::stderr;
use crate::sys::signal::Signal;
use crate::sys::startup::Standing;
use crate::sys::wait::Ended;

const VERSION: &str = "dumb-init v1.2.5";
const KILL: u8 = Signal::KILL.number();
const TERM: u8 = Signal::TERM.number();
const STOP: u8 = Signal::STOP.number();

macro_rules! say {
    ($($text:tt)+) => {
        stderr::bare_line(format_args!("[dumb-init] {}", format_args!($($text)+)))
    };
}

struct DumbInit {
    debug: bool,
}

pub(super) fn parse(call: &Call<'_>) -> Result<Start, Answer> {
    let name = &call.name;
    let (mut group, mut debug) = (true, false);
    // For each signal that `--rewrite` takes, the signal that replaces it.
    let mut rewrites = [None; 32];
    let long = &[
        ("help", false, b'h'),
        ("single-child", false, b'c'),
        ("rewrite", true, b'r'),
        ("verbose", false, b'v'),
        ("version", false, b'V'),
    ];
    let mut options = Vec::new();
    let operands = getopt::parse("hvVcr:", long, false, call.words, &mut options);
    for (letter, text) in options {
        match letter {
            b'h' => return Err(Answer::Stderr(0, help(name))),
            b'V' => return Err(Answer::Stderr(0, format!("{VERSION}\n"))),
            b'c' => group = false,
            b'v' => debug = true,
            _ => {
                let rewrite = rewrite(&text.unwrap_or_default());
                let usage = || Answer::Stderr(1, REWRITE_USAGE.to_owned());
                let (from, to) = rewrite.ok_or_else(usage)?;
                rewrites[from] = Some(to);
            }
        }
    }
    let complain = |mistake| Answer::Stderr(1, format!("{name}: {mistake}\n"));
    let command = operands.map_err(complain)?;
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
    let (forward_to, standing) = if group {
        // The kernel ignores TSTP, TTIN and TTOU in an orphaned process group.
        for rewrite in &mut rewrites[20..=22] {
            rewrite.get_or_insert(STOP);
        }
        ("group", Standing::LeadsSession)
    } else {
        ("", Standing::LeadsNothing)
    };
    let term = rewrites[usize::from(TERM)];
    // The rest of the tree gets SIGTERM from treaper, or its replacement if that asks for an end.
    let replaced = term.filter(|to| (1..TERM).contains(to) && *to != KILL);
    let stop_signal = replaced.map_or_else(String::new, |signal| signal.to_string());
    // The rest may ignore that one, as INT in the background of a shell. dumb-init does not wait.
    let is_short = replaced.is_some() && call.variable("TREAPER_GRACE").is_none();
    // treaper takes no rewrite of a signal that no process can take.
    let all = (0..).zip(rewrites);
    let rewrites = all.filter(|(from, _)| !matches!(*from, KILL | STOP));
    let rewrites = rewrites.filter_map(|(from, to)| Some(format!("{from}:{},", to?)));
    let options = [
        ("TREAPER_GRACE", if is_short { "1s" } else { "" }),
        ("TREAPER_FORWARD_TO", forward_to),
        ("TREAPER_REWRITE", &rewrites.collect::<String>()),
        ("TREAPER_SIGNAL", &stop_signal),
    ];
    let mut start = call.start(command, &options, standing, DumbInit { debug });
    start.manner.suspends_with_signals = true;
    Ok(start)
}

/// `FROM:TO` as `sscanf("%d:%d")` reads it: numbers only, and the rest of the text is ignored.
fn rewrite(text: &OsStr) -> Option<(usize, u8)> {
    let (from, rest) = leading_number(text.to_str()?);
    let (to, _) = leading_number(rest.strip_prefix(':')?);
    let (from, to) = (from?, to?);
    let are_valid = (1..=31).contains(&from) && (0..=31).contains(&to);
    are_valid.then_some((from as usize, to as u8))
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
-c, --single-child: signals are not for its process group. -r, --rewrite s:r: signal s as signal r.
-v, --verbose; -h, --help; -V, --version. DUMB_INIT_DEBUG=1 is -v, DUMB_INIT_SETSID=0 is -c.
For TREAPER_* see treaper(1).
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
                say!("Received signal {}.", from.number());
                print_forwarded(from.number(), to.map_or(0, Signal::number));
                if from.suspends_job() {
                    say!("Suspending self due to TTY signal.");
                }
            }
            Step::Reaped { pid, ended, .. } => {
                say!("Received signal 17.");
                let (how, number) = match ended {
                    Ended::Exited(code) => ("exited with exit status", code),
                    Ended::Killed(signal) => ("was terminated by signal", signal),
                };
                say!("A child with PID {pid} {how} {number}.");
            }
            Step::StoppingRest { signal } => print_forwarded(TERM, signal.number()),
            Step::Done { status } => say!("Child exited with status {status}. Goodbye."),
        }
    }

    fn report_failure(&self, error: &Error, command: &OsStr) -> u8 {
        let name = command.to_string_lossy();
        let (status, text) = match error.cause {
            Some(cause) => (2, format!("{name}: {}", error::describe(cause))),
            None => (1, error.to_string()),
        };
        super::complain(status, &format!("[dumb-init] {text}\n"))
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
