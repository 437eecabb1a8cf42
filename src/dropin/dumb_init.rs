//! dumb-init 1.2.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};

use super::getopt::{Getopt, Grammar, Long};
use super::{Answer, Asked, OURS, Settings, Variables, leading_number, variable};
use crate::error::{self, Error};
use crate::status::Ended;
use crate::voice::{self, Step};

const VERSION: &str = "dumb-init v1.2.5";
/// Its rewrites know the signals up to here.
const LAST: u8 = 31;
const STOP: u8 = 19;
/// TSTP, TTIN and TTOU: after them it stops itself as well.
const JOB_STOPS: [u8; 3] = [20, 21, 22];

const LONG: &[Long] = &[
    ("help", false, b'h'),
    ("single-child", false, b'c'),
    ("rewrite", true, b'r'),
    ("verbose", false, b'v'),
    ("version", false, b'V'),
];

pub(super) fn parse(arguments: &[OsString], variables: Variables) -> Result<Asked, Error> {
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
    let mut rewrites = [None; LAST as usize + 1];
    while let Some(given) = getopt.next_option() {
        match given {
            Ok((b'h', _)) => return Ok(Asked::Say(Answer::stderr(0, help(&name)))),
            Ok((b'V', _)) => {
                return Ok(Asked::Say(Answer::stderr(
                    0,
                    format!("{VERSION} ({OURS})\n"),
                )));
            }
            Ok((b'c', _)) => group = false,
            Ok((b'r', Some(text))) => match rewrite(&text) {
                Some((from, to)) => rewrites[usize::from(from)] = Some(to),
                None => return Ok(Asked::Say(Answer::stderr(1, REWRITE_USAGE))),
            },
            Ok(_) => debug = true,
            Err(complaint) => {
                let line = format!("{name}: {complaint}\n");
                return Ok(Asked::Say(Answer::stderr(1, line)));
            }
        }
    }
    let command = getopt.operands();
    if command.is_empty() {
        let text =
            format!("Usage: {name} [option] program [args]\nTry {name} --help for full usage.\n");
        return Ok(Asked::Say(Answer::stderr(1, text)));
    }
    debug |= variable(&variables, "DUMB_INIT_DEBUG").is_some_and(|text| text == "1");
    group &= variable(&variables, "DUMB_INIT_SETSID").is_none_or(|text| text != "0");
    if debug {
        voice::set(tell);
    }
    let mut settings = Settings {
        command,
        ..Settings::default()
    };
    if group {
        settings.set("forward-to", "group");
        // What would only ask the server's group to stop could find it without a shell that cares.
        for signal in JOB_STOPS {
            rewrites[usize::from(signal)].get_or_insert(STOP);
        }
    }
    for (from, to) in rewrites.iter().enumerate() {
        if let Some(to) = to {
            settings.set("rewrite", format!("{from}:{to}"));
        }
    }
    let mut config = settings.resolve(variables)?;
    config.stop_with_signals = true;
    Ok(Asked::Run(Box::new(config)))
}

/// `FROM:TO` as `sscanf("%d:%d")` reads it: numbers only, and whatever follows is not looked at.
fn rewrite(text: &OsStr) -> Option<(u8, u8)> {
    let (from, rest) = leading_number(text.to_str()?);
    let (to, _) = leading_number(rest.strip_prefix(':')?);
    let from = u8::try_from(from?)
        .ok()
        .filter(|n| (1..=LAST).contains(n))?;
    let to = u8::try_from(to?).ok().filter(|n| *n <= LAST)?;
    Some((from, to))
}

const REWRITE_USAGE: &str = "\
Usage: -r takes <signum>:<signum>; each <signum> is between 1 and 31, the second one may be 0.
It may be given several times.
Use --help for full usage.
";

fn help(name: &str) -> String {
    format!(
        "\
{VERSION} ({OURS})
Usage: {name} [option] command [[arg] ...]

Run command and forward signals to it; nothing that it started outlives it.

Optional arguments:
   -c, --single-child   Forward signals to the command alone, not to its process group.
   -r, --rewrite s:r    Forward signal s as signal r; as none if r is 0.
                        This option can be specified multiple times.
   -v, --verbose        Tell each step on stderr.
   -h, --help           Print this help message and exit.
   -V, --version        Print the current version and exit.

DUMB_INIT_DEBUG=1 is -v, DUMB_INIT_SETSID=0 is -c. For TREAPER_* see treaper(1).
"
    )
}

pub(super) fn failed(error: &Error, command: &OsStr) -> Answer {
    match error.cause {
        Some(cause) => {
            let (name, cause) = (command.display(), error::describe(cause));
            Answer::stderr(2, format!("[dumb-init] {name}: {cause}\n"))
        }
        None => Answer::stderr(1, format!("[dumb-init] {error}\n")),
    }
}

fn tell(step: &Step<'_>) {
    let say = |text: std::fmt::Arguments<'_>| voice::line(format_args!("[dumb-init] {text}"));
    match *step {
        Step::Started { pid, .. } => say(format_args!("Child spawned with PID {pid}.")),
        Step::Forwarding { from, to } => {
            let from = from.number();
            say(format_args!("Received signal {from}."));
            match to.map(crate::sys::signal::Signal::number) {
                None => {
                    say(format_args!("Translating signal {from} to 0."));
                    say(format_args!(
                        "Not forwarding signal 0 to children (ignored)."
                    ));
                }
                Some(to) => {
                    if to != from {
                        say(format_args!("Translating signal {from} to {to}."));
                    }
                    say(format_args!("Forwarded signal {to} to children."));
                }
            }
        }
        Step::Reaped { pid, ended, .. } => match ended {
            Ended::Exited(code) => {
                say(format_args!(
                    "A child with PID {pid} exited with exit status {code}."
                ));
            }
            Ended::Killed(signal) => {
                say(format_args!(
                    "A child with PID {pid} was terminated by signal {signal}."
                ));
            }
        },
        Step::Done { status } => say(format_args!("Child exited with status {status}. Goodbye.")),
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
