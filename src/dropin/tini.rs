//! tini, tini-static and docker-init (tini 0.19).

use std::ffi::OsStr;

use super::{Answer, Call, OWN_VERSION, Start, getopt, leading_number};
use crate::output::error::{self, Error};
use crate::output::progress::{Step, Voice};
use crate::output::stderr;
use crate::sys::signal::Signal;
use crate::sys::startup::Standing;
use crate::sys::wait::Ended;
use crate::sys::{Errno, pid};

/// The version of tini that has this command line. `docker info` looks for the first words.
const VERSION: &str = "tini version 0.19.0";

const LEVELS: [&str; 5] = ["FATAL", "WARN ", "INFO ", "DEBUG", "TRACE"];

struct Tini {
    /// The pid that the host knows.
    pid: i32,
    /// How many of [`LEVELS`] are shown, after the first one.
    verbosity: u32,
    warns_on_reap: bool,
}

pub(super) fn parse(call: &Call<'_>) -> Result<Start, Answer> {
    let name = call.name.rsplit('/').next().unwrap_or_default();
    if matches!(call.words, [only] if only == "--version") {
        return Err(Answer::Stdout(format!("{VERSION} ({OWN_VERSION})\n")));
    }
    let mut group = call.variable("TINI_KILL_PROCESS_GROUP").is_some();
    let (mut options, mut parent_signal, mut success) = (Vec::new(), None, Vec::new());
    let mut voice = Tini {
        pid: pid::own(),
        verbosity: 1,
        warns_on_reap: false,
    };
    let permutes = call.variable("POSIXLY_CORRECT").is_none();
    let operands = getopt::parse("p:hvwgle:s", &[], permutes, call.words, &mut options);
    for (letter, text) in options {
        let text = text.unwrap_or_default();
        let invalid = || {
            let (letter, text) = (char::from(letter), text.to_string_lossy());
            let text = format!("Not a valid option for -{letter}: {text}");
            Answer::Stderr(1, voice.fatal(&text))
        };
        match letter {
            b'h' => return Err(Answer::Stdout(usage(name))),
            b'l' => return Err(Answer::Stdout(super::LICENSE.to_owned())),
            b'p' => parent_signal = Some(signal(&text).ok_or_else(invalid)?),
            b'e' => success.push(status(&text).ok_or_else(invalid)?.to_string()),
            b'v' => voice.verbosity += 1,
            b'w' => voice.warns_on_reap = true,
            b'g' => group = true,
            // -s: treaper becomes a subreaper anyway.
            _ => {}
        }
    }
    // getopt writes this line, and calls the program by `argv[0]`.
    let complain = |mistake| format!("{}: {mistake}\n{}", call.name, usage(name));
    let command = operands.map_err(|mistake| Answer::Stderr(1, complain(mistake)))?;
    if command.is_empty() {
        return Err(Answer::Stderr(1, usage(name)));
    }
    if let Some(text) = call.variable("TINI_VERBOSITY") {
        // tini puts the int of atoi into an unsigned variable: a negative number becomes huge.
        voice.verbosity = leading_number(&text.to_string_lossy()).0.unwrap_or(0) as u32;
    }
    let no_parent = if parent_signal.is_some() { "0" } else { "" };
    let options = [
        // tini ignores SIGTTIN and SIGTTOU, so it never forwards them.
        ("TREAPER_REWRITE", "TTIN:0,TTOU:0"),
        ("TREAPER_SUCCESS", &success.join(",")),
        ("TREAPER_FORWARD_TO", if group { "group" } else { "" }),
        ("TREAPER_NO_PARENT", no_parent),
    ];
    let mut start = call.start(command, &options, Standing::LeadsGroup, voice);
    start.manner.parent_signal = parent_signal;
    Ok(start)
}

/// A signal as `-p` takes it: the full name, in capitals, and not a real-time one.
fn signal(text: &OsStr) -> Option<Signal> {
    let text = text.to_str()?;
    let unknown = ["SIGSTKFLT", "SIGIO", "SIGPWR"];
    let signal = Signal::parse(text).filter(|signal| !signal.is_real_time())?;
    (signal.to_string() == text && !unknown.contains(&text)).then_some(signal)
}

/// A status as `-e` takes it: the number that `strtol` makes of the whole text. An empty text is 0.
fn status(text: &OsStr) -> Option<u8> {
    let (number, rest) = leading_number(text.to_str()?);
    let status = u8::try_from(number.unwrap_or(0)).ok();
    status.filter(|_| rest.is_empty())
}

fn usage(name: &str) -> String {
    format!(
        "\
{name} ({VERSION}; {OWN_VERSION})
Usage: {name} [OPTIONS] PROGRAM -- [ARGS] | --version

Run PROGRAM, reap orphans, forward signals; nothing that PROGRAM started outlives it.
As tini does, it takes -e EXIT_CODE, -g, -h, -l, -p SIGNAL, -s, -v, -w, and the variables
TINI_KILL_PROCESS_GROUP, TINI_SUBREAPER and TINI_VERBOSITY. For TREAPER_* see treaper(1).
"
    )
}

impl Tini {
    fn fatal(&self, text: &str) -> String {
        format!("[FATAL tini ({})] {text}\n", self.pid)
    }
}

impl Voice for Tini {
    /// tini writes this to stdout, which belongs to PROGRAM here, so the text goes to stderr.
    fn report(&self, step: &Step<'_>) {
        macro_rules! say {
            ($level:literal, $($text:tt)+) => {
                if self.verbosity >= $level {
                    stderr::bare_line(format_args!("[{} tini ({})] {}", LEVELS[$level], self.pid, format_args!($($text)+)));
                }
            };
        }
        match *step {
            Step::Started { name, pid, .. } => {
                let name = name.to_string_lossy();
                say!(2, "Spawned child process '{name}' with pid '{pid}'");
            }
            Step::Forwarding { to: Some(to), .. } => {
                say!(3, "Passing signal: '{}'", to.description());
            }
            Step::Forwarding { to: None, .. } | Step::StoppingRest { .. } => {}
            Step::Reaped { pid, ended, server } => {
                say!(3, "Reaped child with pid: '{pid}'");
                match ended {
                    Ended::Exited(code) if server => {
                        say!(2, "Main child exited normally (with status '{code}')");
                    }
                    Ended::Killed(_) if server => {
                        let text = ended.signal().map_or("?", Signal::description);
                        say!(2, "Main child exited with signal (with signal '{text}')");
                    }
                    _ if self.warns_on_reap => say!(1, "Reaped zombie process with pid={pid}"),
                    _ => {}
                }
            }
            Step::Done { .. } => say!(4, "Exiting: child has exited"),
        }
    }

    fn report_failure(&self, error: &Error, command: &OsStr) -> u8 {
        let name = command.to_string_lossy();
        let text = match error.cause {
            Some(cause) => format!("exec {name} failed: {}", error::describe(cause)),
            None => error.to_string(),
        };
        let status = match error.cause {
            Some(Errno::NOENT) => 127,
            Some(Errno::ACCESS) => 126,
            _ => 1,
        };
        super::complain(status, &self.fatal(&text))
    }
}
