//! catatonit 0.1 and 0.2, podman's init.

use std::ffi::OsStr;

use super::{Answer, Call, OWN_VERSION, Start, getopt};
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Step, Voice};
use crate::output::stderr;
use crate::sys::pid;
use crate::sys::startup::Standing;
use crate::sys::wait::Ended;

/// catatonit calls itself tini here, since `docker info` looks for that.
const VERSION: &str = "tini version 0.1.7_catatonit";
const USAGE: &str = "usage: catatonit [-ghLPV] [--] <progname> [<arguments>...]\n";

struct Catatonit {
    /// The pid that the host knows.
    pid: i32,
    debug: bool,
}

pub(super) fn parse(call: &Call<'_>) -> Result<Start, Answer> {
    let voice = Catatonit {
        pid: pid::own(),
        debug: call.variable("CATATONIT_DEBUG").is_some(),
    };
    if call.variable("CATATONIT_LOG").is_some() {
        let line = voice.complaint("CATATONIT_LOG is reserved for future use");
        return Err(Answer::Stderr(1, line));
    }
    let (mut group, mut pauses) = (false, false);
    let permutes = call.variable("POSIXLY_CORRECT").is_none();
    let (long, mut options) = (&[("version", false, b'V')], Vec::new());
    let operands = getopt::parse("ghLPV", long, permutes, call.words, &mut options);
    for (letter, _) in options {
        match letter {
            b'g' => group = true,
            b'P' => pauses = true,
            b'h' => return Err(Answer::Stderr(0, help())),
            b'L' => return Err(Answer::Stdout(super::LICENSE.to_owned())),
            _ => return Err(Answer::Stdout(format!("{VERSION} ({OWN_VERSION})\n"))),
        }
    }
    let complain = |mistake| Answer::Stderr(1, format!("{}: {mistake}\n{USAGE}", call.name));
    let mut command = operands.map_err(complain)?;
    if pauses {
        command = vec!["pause".into()];
    } else if command.is_empty() {
        let text = voice.complaint("missing program name") + USAGE;
        return Err(Answer::Stderr(1, text));
    }
    let options = [
        ("TREAPER_FORWARD_TO", if group { "group" } else { "" }),
        // catatonit takes these for the kernel's answer to its own use of the terminal.
        ("TREAPER_REWRITE", "TSTP:0,TTIN:0,TTOU:0"),
    ];
    let start = call.start(command, &options, Standing::LeadsGroup, voice);
    Ok(Start { pauses, ..start })
}

fn help() -> String {
    format!(
        "\
{USAGE}-g: signals are for the process group; -P: pause, without a program, until SIGINT or SIGTERM;
-h: this help; -L: the license; -V, --version: the version.
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
        macro_rules! say {
            ($($text:tt)+) => {
                stderr::bare_line(format_args!("DEBUG (catatonit:{}): {}", self.pid, format_args!($($text)+)))
            };
        }
        match *step {
            Step::Started { name, pid, .. } => {
                say!("pid1 ({pid}) spawned: {}", name.to_string_lossy());
            }
            Step::Forwarding { to: None, .. } => {
                say!("ignoring kernel attempting to stop us: tty has TOSTOP set");
            }
            Step::Reaped { pid, ended, server } if !server => match ended {
                Ended::Exited(code) => say!("child process {pid} exited with code {code}"),
                Ended::Killed(signal) => say!("child process {pid} exited due to signal {signal}"),
            },
            Step::Done { .. } => say!("got ECHILD: no children left to monitor"),
            _ => {}
        }
    }

    fn report_failure(&self, error: &Error, _: &OsStr) -> u8 {
        let text = match error.cause {
            Some(cause) => format!("failed to exec pid1: {}", error::describe(cause)),
            None => error.to_string(),
        };
        super::complain(1, &self.complaint(&text))
    }
}
