//! catatonit 0.1 and 0.2, podman's init.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::getopt::{Getopt, Grammar, Long};
use super::{Answer, Asked, OWN_VERSION, Start, Variables, What, option, variable};
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Step, Voice};
use crate::output::stderr;
use crate::settings::cli::Args;
use crate::settings::manner::Manner;
use crate::sys::pid;
use crate::sys::wait::Ended;

/// catatonit calls itself tini here, since `docker info` looks for that.
const VERSION: &str = "tini version 0.1.7_catatonit";
const USAGE: &str = "usage: catatonit [-ghLPV] [--] <progname> [<arguments>...]\n";
const LONG: &[Long] = &[("version", false, b'V')];

/// Reports in catatonit's words.
#[derive(Debug)]
struct Catatonit {
    /// The pid that the host knows.
    pid: i32,
    debug: bool,
}

pub(super) fn parse(arguments: &[OsString], variables: &Variables) -> Asked {
    let voice = Catatonit {
        pid: pid::own(),
        debug: variable(variables, "CATATONIT_DEBUG").is_some(),
    };
    if variable(variables, "CATATONIT_LOG").is_some() {
        let line = voice.complaint("CATATONIT_LOG is reserved for future use");
        return Asked::Answer(Answer::stderr(1, line));
    }
    let (name, words) = arguments
        .split_first()
        .map_or(("catatonit".into(), &[][..]), |(n, w)| {
            (n.to_string_lossy(), w)
        });
    let grammar = Grammar {
        short: "ghLPV",
        long: LONG,
        permute: variable(variables, "POSIXLY_CORRECT").is_none(),
    };
    let mut getopt = Getopt::new(grammar, words.to_vec());
    let (mut group, mut pause) = (false, false);
    while let Some(given) = getopt.next_option() {
        match given {
            Ok((b'g', _)) => group = true,
            Ok((b'P', _)) => pause = true,
            Ok((b'h', _)) => return Asked::Answer(Answer::stderr(0, help())),
            Ok((b'L', _)) => return Asked::Answer(Answer::stdout(super::LICENSE)),
            Ok(_) => return Asked::Answer(Answer::stdout(format!("{VERSION} ({OWN_VERSION})\n"))),
            Err(complaint) => {
                let text = format!("{name}: {complaint}\n{USAGE}");
                return Asked::Answer(Answer::stderr(1, text));
            }
        }
    }
    let mut args = Args {
        values: Vec::new(),
        command: getopt.operands(),
    };
    if args.command.is_empty() && !pause {
        let text = voice.complaint("missing program name") + USAGE;
        return Asked::Answer(Answer::stderr(1, text));
    }
    if group {
        args.values.push(option("forward-to", "group"));
    }
    // catatonit does not forward these: it takes them for the kernel's answer to its own use of the terminal.
    for signal in ["TSTP", "TTIN", "TTOU"] {
        args.values.push(option("rewrite", format!("{signal}:0")));
    }
    Asked::Start(Start {
        what: if pause { What::Pause } else { What::Server },
        args,
        manner: Manner::default(),
        voice: Box::new(voice),
        notes: Vec::new(),
    })
}

fn help() -> String {
    format!(
        "\
{USAGE}
options:
  -g              Forward signals to the process group of the program.
  -h              Print this help page.
  -L              Print license information.
  -P              Pause: run no program, reap until SIGINT or SIGTERM.
  -V, --version   Print version information.

This is {OWN_VERSION}; nothing that the program started outlives it. For TREAPER_* see treaper(1).
"
    )
}

impl Catatonit {
    fn complaint(&self, text: &str) -> String {
        format!("ERROR (catatonit:{}): {text}\n", self.pid)
    }
}

impl Voice for Catatonit {
    fn report(&self, step: &Step<'_>) {
        if !self.debug {
            return Own.report(step);
        }
        let pid_of_ours = self.pid;
        let say = |text: fmt::Arguments<'_>| {
            stderr::bare_line(format_args!("DEBUG (catatonit:{pid_of_ours}): {text}"));
        };
        match *step {
            Step::Started { name, pid, .. } => {
                say(format_args!("pid1 ({pid}) spawned: {}", name.display()));
            }
            Step::Forwarding { to: None, .. } => {
                say(format_args!(
                    "ignoring kernel attempting to stop us: tty has TOSTOP set"
                ));
            }
            Step::Reaped { server: true, .. }
            | Step::Forwarding { .. }
            | Step::StoppingRest { .. } => {}
            Step::Reaped { pid, ended, .. } => match ended {
                Ended::Exited(code) => {
                    say(format_args!("child process {pid} exited with code {code}"));
                }
                Ended::Killed(signal) => {
                    say(format_args!(
                        "child process {pid} exited due to signal {signal}"
                    ));
                }
            },
            Step::Done { .. } => say(format_args!("got ECHILD: no children left to monitor")),
        }
    }

    fn report_failure(&self, error: &Error, _: &OsStr) -> u8 {
        let text = match error.cause() {
            Some(cause) => format!("failed to exec pid1: {}", error::describe(cause)),
            None => error.to_string(),
        };
        Answer::stderr(1, self.complaint(&text)).print()
    }
}
