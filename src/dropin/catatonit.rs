//! catatonit 0.1 and 0.2, podman's init.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use super::getopt::{Getopt, Grammar, Long};
use super::{Answer, Asked, OURS, Settings, Variables, variable};
use crate::error::{self, Error};
use crate::status::Ended;
use crate::voice::{self, Step};

/// It names itself tini for the sake of `docker info`.
const VERSION: &str = "tini version 0.1.7_catatonit";
const USAGE: &str = "usage: catatonit [-ghLPV] [--] <progname> [<arguments>...]\n";
const LONG: &[Long] = &[("version", false, b'V')];

pub(super) fn parse(arguments: &[OsString], variables: Variables) -> Result<Asked, Error> {
    if variable(&variables, "CATATONIT_LOG").is_some() {
        let line = complaint("CATATONIT_LOG is reserved for future use");
        return Ok(Asked::Say(Answer::stderr(1, line)));
    }
    let (name, words) = arguments
        .split_first()
        .map_or(("catatonit".into(), &[][..]), |(n, w)| {
            (n.to_string_lossy(), w)
        });
    let grammar = Grammar {
        short: "ghLPV",
        long: LONG,
        permute: variable(&variables, "POSIXLY_CORRECT").is_none(),
    };
    let mut getopt = Getopt::new(grammar, words.to_vec());
    let (mut group, mut pause) = (false, false);
    while let Some(given) = getopt.next_option() {
        match given {
            Ok((b'g', _)) => group = true,
            Ok((b'P', _)) => pause = true,
            Ok((b'h', _)) => return Ok(Asked::Say(Answer::stderr(0, help()))),
            Ok((b'L', _)) => return Ok(Asked::Say(Answer::stdout(super::LICENSE))),
            Ok(_) => return Ok(Asked::Say(Answer::stdout(format!("{VERSION} ({OURS})\n")))),
            Err(complaint) => {
                let text = format!("{name}: {complaint}\n{USAGE}");
                return Ok(Asked::Say(Answer::stderr(1, text)));
            }
        }
    }
    let mut settings = Settings {
        command: getopt.operands(),
        ..Settings::default()
    };
    if settings.command.is_empty() && !pause {
        let text = complaint("missing program name") + USAGE;
        return Ok(Asked::Say(Answer::stderr(1, text)));
    }
    if variable(&variables, "CATATONIT_DEBUG").is_some() {
        voice::set(tell);
    }
    if group {
        settings.set("forward-to", "group");
    }
    // It takes these for the kernel's word that its terminal is another's.
    for signal in ["TSTP", "TTIN", "TTOU"] {
        settings.set("rewrite", format!("{signal}:0"));
    }
    let config = Box::new(settings.resolve(variables)?);
    Ok(if pause {
        Asked::Pause(config)
    } else {
        Asked::Run(config)
    })
}

fn complaint(text: &str) -> String {
    format!("ERROR (catatonit:{}): {text}\n", voice::main_pid())
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

This is {OURS}; nothing that the program started outlives it. For TREAPER_* see treaper(1).
"
    )
}

pub(super) fn failed(error: &Error) -> Answer {
    let text = match error.cause() {
        Some(cause) => format!("failed to exec pid1: {}", error::describe(cause)),
        None => error.to_string(),
    };
    Answer::stderr(1, complaint(&text))
}

fn tell(step: &Step<'_>) {
    let main = voice::main_pid();
    let say = |text: std::fmt::Arguments<'_>| {
        voice::line(format_args!("DEBUG (catatonit:{main}): {text}"));
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
        Step::Reaped { server: true, .. } | Step::Forwarding { .. } => {}
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
