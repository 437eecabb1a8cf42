//! dumb-init 1.2.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::getopt::{Getopt, Grammar, Long};
use super::{Answer, Asked, OWN_VERSION, Start, Variables, What, leading_number, option, variable};
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Step, Voice};
use crate::output::stderr;
use crate::settings::cli::Args;
use crate::settings::manner::Manner;
use crate::sys::signal::Signal;
use crate::sys::wait::Ended;

const VERSION: &str = "dumb-init v1.2.5";
/// The greatest signal number that `--rewrite` takes.
const MAX_SIGNAL: u8 = 31;
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

/// Reports in dumb-init's words.
#[derive(Debug)]
struct DumbInit {
    debug: bool,
    /// Whether the command gets a session of its own.
    setsid: bool,
}

/// The settings: those of the command line, changed by the variables.
struct Options {
    group: bool,
    debug: bool,
    /// For each signal, the signal that replaces it.
    rewrites: [Option<u8>; MAX_SIGNAL as usize + 1],
    command: Vec<OsString>,
}

pub(super) fn parse(arguments: &[OsString], variables: &Variables) -> Asked {
    let mut options = match Options::read(arguments) {
        Ok(options) => options,
        Err(answer) => return Asked::Answer(answer),
    };
    let notes = options.read_variables(variables);
    Asked::Start(Start {
        what: What::Server,
        args: Args {
            values: options.values(),
            command: options.command,
        },
        manner: Manner {
            suspends_with_signals: true,
            ..Manner::default()
        },
        voice: Box::new(DumbInit {
            debug: options.debug,
            setsid: options.group,
        }),
        notes,
    })
}

impl Options {
    fn read(arguments: &[OsString]) -> Result<Self, Answer> {
        let first = arguments.first();
        let name = first.map_or_else(
            || "dumb-init".into(),
            |name| name.to_string_lossy().into_owned(),
        );
        let grammar = Grammar {
            short: "hvVcr:",
            long: LONG,
            permute: false,
        };
        let mut getopt = Getopt::new(grammar, arguments.iter().skip(1).cloned().collect());
        let (mut group, mut debug) = (true, false);
        let mut rewrites = [None; MAX_SIGNAL as usize + 1];
        while let Some(given) = getopt.next_option() {
            match given {
                Ok((b'h', _)) => return Err(Answer::stderr(0, help(&name))),
                Ok((b'V', _)) => return Err(Answer::stderr(0, format!("{VERSION}\n"))),
                Ok((b'c', _)) => group = false,
                Ok((b'r', Some(text))) => match rewrite(&text) {
                    Some((from, to)) => rewrites[usize::from(from)] = Some(to),
                    None => return Err(Answer::stderr(1, REWRITE_USAGE)),
                },
                Ok(_) => debug = true,
                Err(complaint) => return Err(Answer::stderr(1, format!("{name}: {complaint}\n"))),
            }
        }
        let command = getopt.operands();
        if command.is_empty() {
            let text = format!(
                "Usage: {name} [option] program [args]\nTry {name} --help for full usage.\n"
            );
            return Err(Answer::stderr(1, text));
        }
        Ok(Self {
            group,
            debug,
            rewrites,
            command,
        })
    }

    /// Applies the variables. Returns the lines that dumb-init writes about them.
    fn read_variables(&mut self, variables: &Variables) -> Vec<String> {
        let is_set =
            |name, value: &str| variable(variables, name).is_some_and(|text| text == value);
        let mut notes = Vec::new();
        if is_set("DUMB_INIT_DEBUG", "1") {
            self.debug = true;
            notes.push("[dumb-init] Running in debug mode.".to_owned());
        }
        if is_set("DUMB_INIT_SETSID", "0") {
            self.group = false;
            if self.debug {
                notes.push("[dumb-init] Not running in setsid mode.".to_owned());
            }
        }
        notes
    }

    /// These settings as options of treaper.
    fn values(&self) -> Vec<(&'static str, OsString)> {
        let (mut values, mut rewrites) = (Vec::new(), self.rewrites);
        if self.group {
            values.push(option("forward-to", "group"));
            // The kernel ignores TSTP, TTIN and TTOU in an orphaned process group, so SIGSTOP replaces them.
            for signal in JOB_STOPS {
                rewrites[usize::from(signal)].get_or_insert(STOP);
            }
        }
        for (from, to) in rewrites.iter().enumerate() {
            if let Some(to) = to {
                values.push(option("rewrite", format!("{from}:{to}")));
            }
        }
        // The rest of the tree gets SIGTERM from treaper. It is rewritten as well if the new signal asks for an end.
        let asks_for_end = |to: &u8| (1..TERM).contains(to) && *to != KILL;
        if let Some(to) = rewrites[usize::from(TERM)].filter(asks_for_end) {
            values.push(option("signal", to.to_string()));
        }
        values
    }
}

/// `FROM:TO` as `sscanf("%d:%d")` reads it: numbers only, and the rest of the text is ignored.
fn rewrite(text: &OsStr) -> Option<(u8, u8)> {
    let (from, rest) = leading_number(text.to_str()?);
    let (to, _) = leading_number(rest.strip_prefix(':')?);
    let from = u8::try_from(from?)
        .ok()
        .filter(|n| (1..=MAX_SIGNAL).contains(n))?;
    let to = u8::try_from(to?).ok().filter(|n| *n <= MAX_SIGNAL)?;
    Some((from, to))
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
                print_line(format_args!("Child spawned with PID {pid}."));
                if session && self.setsid {
                    print_line(format_args!("setsid complete."));
                }
            }
            Step::Forwarding { from, to } => {
                let from = from.number();
                print_line(format_args!("Received signal {from}."));
                print_forwarded(from, to.map_or(0, Signal::number));
                if JOB_STOPS.contains(&from) {
                    print_line(format_args!("Suspending self due to TTY signal."));
                }
            }
            Step::Reaped { pid, ended, .. } => {
                print_line(format_args!("Received signal 17."));
                match ended {
                    Ended::Exited(code) => print_line(format_args!(
                        "A child with PID {pid} exited with exit status {code}."
                    )),
                    Ended::Killed(signal) => print_line(format_args!(
                        "A child with PID {pid} was terminated by signal {signal}."
                    )),
                }
            }
            Step::StoppingRest { signal } => print_forwarded(TERM, signal.number()),
            Step::Done { status } => {
                print_line(format_args!("Child exited with status {status}. Goodbye."));
            }
        }
    }

    fn report_failure(&self, error: &Error, command: &OsStr) -> u8 {
        let answer = match error.cause() {
            Some(cause) => {
                let (name, cause) = (command.display(), error::describe(cause));
                Answer::stderr(2, format!("[dumb-init] {name}: {cause}\n"))
            }
            None => Answer::stderr(1, format!("[dumb-init] {error}\n")),
        };
        answer.print()
    }
}

fn print_line(text: fmt::Arguments<'_>) {
    stderr::bare_line(format_args!("[dumb-init] {text}"));
}

fn print_forwarded(from: u8, to: u8) {
    if to != from {
        print_line(format_args!("Translating signal {from} to {to}."));
    }
    if to == 0 {
        print_line(format_args!(
            "Not forwarding signal 0 to children (ignored)."
        ));
    } else {
        print_line(format_args!("Forwarded signal {to} to children."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_are_read_as_sscanf_reads_them() {
        for (text, expected) in [
            ("15:2", (15, 2)),
            ("1:31", (1, 31)),
            ("31:0", (31, 0)),
            (" 1: 2x", (1, 2)),
        ] {
            assert_eq!(rewrite(OsStr::new(text)), Some(expected), "{text}");
        }
        for bad in [
            "", "15", "15:", ":2", "0:1", "32:1", "1:32", "TERM:INT", "1 :2", "-1:2",
        ] {
            assert_eq!(rewrite(OsStr::new(bad)), None, "{bad}");
        }
    }
}
