//! tini, tini-static and docker-init (tini 0.19).
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

use super::getopt::{Getopt, Grammar};
use super::{Answer, Asked, OWN_VERSION, Start, Variables, What, leading_number, option, variable};
use crate::output::error::{self, Error};
use crate::output::progress::{Step, Voice};
use crate::output::stderr;
use crate::settings::cli::Args;
use crate::settings::manner::Manner;
use crate::sys::signal::Signal;
use crate::sys::wait::Ended;
use crate::sys::{Errno, pid};

/// The version of tini that has this command line. `docker info` looks for the first words.
const VERSION: &str = "tini version 0.19.0";

/// Reports in tini's words.
#[derive(Debug)]
struct Tini {
    /// The pid that the host knows.
    pid: i32,
    /// 0 fatal, 1 warnings, 2 info, 3 debug, 4 trace.
    verbosity: u32,
    warns_on_reap: bool,
}

/// What was asked for.
struct Options {
    values: Vec<(&'static str, OsString)>,
    parent_signal: Option<Signal>,
    group: bool,
    voice: Tini,
    command: Vec<OsString>,
}

pub(super) fn parse(arguments: &[OsString], variables: &Variables) -> Asked {
    let mut options = match Options::read(arguments, variables) {
        Ok(options) => options,
        Err(answer) => return Asked::Answer(answer),
    };
    if let Some(text) = variable(variables, "TINI_VERBOSITY") {
        // tini puts the int of atoi into an unsigned variable, so a negative number becomes a very large one.
        options.voice.verbosity = leading_number(&text.to_string_lossy()).0.unwrap_or(0) as u32;
    }
    let mut values = options.values;
    if options.group || variable(variables, "TINI_KILL_PROCESS_GROUP").is_some() {
        values.push(option("forward-to", "group"));
    }
    // tini ignores SIGTTIN and SIGTTOU, so it never forwards them.
    values.push(option("rewrite", "TTIN:0"));
    values.push(option("rewrite", "TTOU:0"));
    if options.parent_signal.is_some() {
        values.push(option("no-parent", "0"));
    }
    Asked::Start(Start {
        what: What::Server,
        args: Args {
            values,
            command: options.command,
        },
        manner: Manner {
            parent_signal: options.parent_signal,
            ..Manner::default()
        },
        voice: Box::new(options.voice),
        notes: Vec::new(),
    })
}

impl Options {
    fn read(arguments: &[OsString], variables: &Variables) -> Result<Self, Answer> {
        let (program, words) = arguments
            .split_first()
            .map_or((OsStr::new("tini"), &[][..]), |(n, w)| (n.as_os_str(), w));
        let name = super::base_name(program);
        if matches!(words, [only] if only == "--version") {
            return Err(Answer::stdout(format!("{VERSION} ({OWN_VERSION})\n")));
        }
        let grammar = Grammar {
            short: "p:hvwgle:s",
            long: &[],
            permute: variable(variables, "POSIXLY_CORRECT").is_none(),
        };
        let mut getopt = Getopt::new(grammar, words.to_vec());
        let mut options = Self {
            values: Vec::new(),
            parent_signal: None,
            group: false,
            voice: Tini {
                pid: pid::own(),
                verbosity: 1,
                warns_on_reap: false,
            },
            command: Vec::new(),
        };
        while let Some(given) = getopt.next_option() {
            match given {
                Ok((b'h', _)) => return Err(Answer::stdout(usage(&name))),
                Ok((b'l', _)) => return Err(Answer::stdout(super::LICENSE)),
                Ok((letter, text)) => options.take(letter, text.as_deref())?,
                Err(complaint) => {
                    // getopt writes this line, and calls the program by `argv[0]`.
                    let program = program.display();
                    let text = format!("{program}: {complaint}\n{}", usage(&name));
                    return Err(Answer::stderr(1, text));
                }
            }
        }
        options.command = getopt.operands();
        if options.command.is_empty() {
            return Err(Answer::stderr(1, usage(&name)));
        }
        Ok(options)
    }

    fn take(&mut self, letter: u8, text: Option<&OsStr>) -> Result<(), Answer> {
        match (letter, text) {
            (b'p', Some(text)) => match signal(text) {
                Some(signal) => self.parent_signal = Some(signal),
                None => return Err(self.voice.invalid('p', text)),
            },
            (b'e', Some(text)) => match status(text) {
                Some(code) => self.values.push(option("success", code.to_string())),
                None => return Err(self.voice.invalid('e', text)),
            },
            (b'v', _) => self.voice.verbosity += 1,
            (b'w', _) => self.voice.warns_on_reap = true,
            (b'g', _) => self.group = true,
            // -s: treaper always is a subreaper.
            _ => {}
        }
        Ok(())
    }
}

/// A signal as `-p` takes it: the full name, in capitals, and not a real-time one.
fn signal(text: &OsStr) -> Option<Signal> {
    let text = text.to_str().filter(|text| text.starts_with("SIG"))?;
    let unknown = ["SIGSTKFLT", "SIGIO", "SIGPWR"];
    Signal::parse(text)
        .filter(|signal| signal.number() <= 31 && !unknown.contains(&text))
        .filter(|signal| signal.to_string() == text)
}

/// A status as `-e` takes it: the number that `strtol` makes of the whole text. An empty text is 0.
fn status(text: &OsStr) -> Option<u8> {
    let text = text.to_str()?;
    match leading_number(text) {
        _ if text.is_empty() => Some(0),
        (Some(number), "") => u8::try_from(number).ok(),
        _ => None,
    }
}

fn usage(name: &str) -> String {
    format!(
        "\
{name} ({VERSION}; {OWN_VERSION})
Usage: {name} [OPTIONS] PROGRAM -- [ARGS] | --version

Run PROGRAM, reap orphans, forward signals; nothing that PROGRAM started outlives it.

Command line options:

  --version: Print the version.
  -h: Print this help.
  -s: Nothing to do: {name} is always a subreaper.
  -p SIGNAL: Stop with SIGNAL when the parent process is gone (\"-p SIGTERM\").
  -v: Log more, up to 3 times.
  -w: Warn of each orphan that is reaped.
  -g: Forward signals to the process group of PROGRAM.
  -e EXIT_CODE: Exit with 0 instead of EXIT_CODE (0 to 255; repeatable).
  -l: Print the license.

Environment variables:

  TINI_SUBREAPER: As -s.
  TINI_VERBOSITY: How much is logged (default: 1).
  TINI_KILL_PROCESS_GROUP: As -g.
  TREAPER_*: See treaper(1).

"
    )
}

impl Tini {
    fn invalid(&self, option: char, text: &OsStr) -> Answer {
        let (pid, text) = (self.pid, text.display());
        let line = format!("[FATAL tini ({pid})] Not a valid option for -{option}: {text}\n");
        Answer::stderr(1, line)
    }
}

impl Voice for Tini {
    /// tini writes this to stdout. Under treaper, stdout belongs to PROGRAM, so the text goes to stderr.
    fn report(&self, step: &Step<'_>) {
        let pid_of_ours = self.pid;
        let say = |least: u32, level: &str, text: std::fmt::Arguments<'_>| {
            if self.verbosity >= least {
                stderr::bare_line(format_args!("[{level} tini ({pid_of_ours})] {text}"));
            }
        };
        match *step {
            Step::Started { name, pid, .. } => {
                let name = name.display();
                say(
                    2,
                    "INFO ",
                    format_args!("Spawned child process '{name}' with pid '{pid}'"),
                );
            }
            Step::Forwarding { to: None, .. } | Step::StoppingRest { .. } => {}
            Step::Forwarding { to: Some(to), .. } => {
                say(
                    3,
                    "DEBUG",
                    format_args!("Passing signal: '{}'", to.description()),
                );
            }
            Step::Reaped { pid, ended, server } => {
                say(3, "DEBUG", format_args!("Reaped child with pid: '{pid}'"));
                match ended {
                    Ended::Exited(code) if server => {
                        say(
                            2,
                            "INFO ",
                            format_args!("Main child exited normally (with status '{code}')"),
                        );
                    }
                    Ended::Killed(number) if server => {
                        let signal = Signal::from_number(number.into());
                        let text = signal.map_or("?", Signal::description);
                        say(
                            2,
                            "INFO ",
                            format_args!("Main child exited with signal (with signal '{text}')"),
                        );
                    }
                    _ if self.warns_on_reap => {
                        say(
                            1,
                            "WARN ",
                            format_args!("Reaped zombie process with pid={pid}"),
                        );
                    }
                    _ => {}
                }
            }
            Step::Done { .. } => say(4, "TRACE", format_args!("Exiting: child has exited")),
        }
    }

    fn report_failure(&self, error: &Error, command: &OsStr) -> u8 {
        let pid = self.pid;
        let answer = match error.cause() {
            Some(cause) => {
                let status = match cause {
                    Errno::NOENT => 127,
                    Errno::ACCESS => 126,
                    _ => 1,
                };
                let (name, cause) = (command.display(), error::describe(cause));
                let line = format!("[FATAL tini ({pid})] exec {name} failed: {cause}\n");
                Answer::stderr(status, line)
            }
            None => Answer::stderr(1, format!("[FATAL tini ({pid})] {error}\n")),
        };
        answer.print()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_signals_are_written_in_full() {
        for (text, number) in [
            ("SIGTERM", Some(15)),
            ("SIGKILL", Some(9)),
            ("SIGSYS", Some(31)),
        ] {
            assert_eq!(
                signal(OsStr::new(text)).map(Signal::number),
                number,
                "{text}"
            );
        }
        for bad in ["TERM", "sigterm", "15", "SIGRTMIN", "SIGIO", "SIG15", ""] {
            assert_eq!(signal(OsStr::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn statuses_are_read_as_strtol_reads_them() {
        for (text, code) in [
            ("0", Some(0)),
            ("255", Some(255)),
            (" +7", Some(7)),
            ("", Some(0)),
        ] {
            assert_eq!(status(OsStr::new(text)), code, "{text}");
        }
        for bad in ["256", "-1", "1x", "x", "0x1"] {
            assert_eq!(status(OsStr::new(bad)), None, "{bad}");
        }
    }
}
