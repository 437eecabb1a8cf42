//! The names of other inits: started under one of them, we take its command line and its variables,
//! speak and exit as it does, and keep our own promise.
//!
//! One way: their arguments become our settings, as if they had been typed. What they decide wins
//! over a `TREAPER_*` variable; what is only our default for such a name gives way to one.
#![forbid(unsafe_code)]

mod catatonit;
mod dumb_init;
pub mod getopt;
pub mod pause;
mod tini;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::cli::Args;
use crate::config::{self, Config};
use crate::error::Error;

/// Whose name we were started under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// And `docker-init`, which is tini.
    Tini,
    DumbInit,
    /// And `podman-init`, which is catatonit.
    Catatonit,
}

/// What their command line asks for.
#[derive(Debug)]
pub enum Asked {
    Run(Box<Config>),
    /// No server: reap until SIGINT or SIGTERM.
    Pause(Box<Config>),
    Say(Answer),
}

/// Help, a version, or a complaint: what is written, and the exit status.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub stdout: String,
    pub stderr: String,
    pub status: u8,
}

impl Answer {
    fn stdout(text: impl Into<String>) -> Self {
        Self {
            stdout: text.into(),
            ..Self::default()
        }
    }

    fn stderr(status: u8, text: impl Into<String>) -> Self {
        Self {
            stderr: text.into(),
            status,
            ..Self::default()
        }
    }

    /// Writes it; returns the exit status.
    #[must_use]
    pub fn give(&self) -> u8 {
        let mut stdout = std::io::stdout();
        let written = stdout.write_all(self.stdout.as_bytes());
        let flushed = stdout.flush();
        // It names what others have named: a control character must not reach the terminal.
        let hide = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
        let stderr: String = self.stderr.chars().map(hide).collect();
        let _ = std::io::stderr().write_all(stderr.as_bytes());
        if written.and(flushed).is_ok() {
            self.status
        } else {
            1
        }
    }
}

/// Their environment variables and ours.
type Variables = Vec<(OsString, OsString)>;

fn variable<'a>(variables: &'a Variables, name: &str) -> Option<&'a OsStr> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, text)| text.as_os_str())
}

/// What a parser of theirs found out, in our words.
#[derive(Debug, Default)]
struct Settings {
    /// Decided by their options.
    values: Vec<(&'static str, OsString)>,
    command: Vec<OsString>,
}

impl Settings {
    fn set(&mut self, option: &'static str, value: impl Into<OsString>) {
        self.values.push((option, value.into()));
    }

    /// Checks it all. Our defaults under every such name: only a signal stops it, and the signal is
    /// the server's to obey. These programs never look at stdin or (unless told to) at their parent,
    /// and their users rely on the patience of whoever stops them: a server that needs a minute
    /// after SIGTERM has that minute. Once it has ended the rest of its tree is stopped with grace.
    fn resolve(self, variables: Variables) -> Result<Config, Error> {
        let defaults = [
            ("stdin", "ignore"),
            ("hup", "forward"),
            ("term", "forward"),
            ("no-parent", "1"),
        ];
        let mut args = Args {
            values: self.values,
            command: self.command,
        };
        for (option, value) in defaults {
            let decided = args.values.iter().any(|(name, _)| *name == option);
            let set = variable(&variables, &config::variable(option));
            if !decided && set.is_none_or(OsStr::is_empty) {
                args.values.push((option, value.into()));
            }
        }
        let mut config = config::resolve(args, variables.into_iter())?;
        config.own_name = false;
        Ok(config)
    }
}

impl Program {
    /// By the last part of `argv[0]`.
    #[must_use]
    pub fn named(name: &OsStr) -> Option<Self> {
        let name = name.as_bytes().rsplit(|byte| *byte == b'/').next()?;
        match name {
            b"tini" | b"tini-static" | b"docker-init" => Some(Self::Tini),
            b"dumb-init" => Some(Self::DumbInit),
            b"catatonit" | b"podman-init" => Some(Self::Catatonit),
            _ => None,
        }
    }

    /// Reads their command line, the program's name first.
    ///
    /// # Errors
    /// Only for what is ours: a `TREAPER_*` variable whose value is wrong.
    pub fn parse(self, arguments: &[OsString], variables: Variables) -> Result<Asked, Error> {
        match self {
            Self::Tini => tini::parse(arguments, variables),
            Self::DumbInit => dumb_init::parse(arguments, variables),
            Self::Catatonit => catatonit::parse(arguments, variables),
        }
    }

    /// Why `command` was not started, in their words and with their exit status.
    #[must_use]
    pub fn failed(self, error: &Error, command: &OsStr) -> Answer {
        match self {
            Self::Tini => tini::failed(error, command),
            Self::DumbInit => dumb_init::failed(error, command),
            Self::Catatonit => catatonit::failed(error),
        }
    }
}

/// Our own version, behind that of the program whose place we take.
const OURS: &str = concat!("treaper ", env!("CARGO_PKG_VERSION"));

/// What `-l` and `-L` print: ours, since the program is.
const LICENSE: &str = include_str!("../LICENSE-MIT");

/// The last part of a path, for messages.
fn base_name(path: &OsStr) -> String {
    let path = path.to_string_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The number that C's `strtol` finds at the start of `text`, and what is left behind it. Out of range
/// it is the nearest one.
#[must_use]
pub fn leading_number(text: &str) -> (Option<i64>, &str) {
    let start = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let sign = usize::from(start.starts_with(['+', '-']));
    let digits = start[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return (None, text);
    }
    let (number, rest) = start.split_at(sign + digits);
    let nearest = if number.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    (Some(number.parse().unwrap_or(nearest)), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_last_part() {
        for (name, program) in [
            ("tini", Some(Program::Tini)),
            ("/usr/bin/tini-static", Some(Program::Tini)),
            ("/sbin/docker-init", Some(Program::Tini)),
            ("./dumb-init", Some(Program::DumbInit)),
            ("/run/podman-init", Some(Program::Catatonit)),
            ("catatonit", Some(Program::Catatonit)),
            ("treaper", None),
            ("tini/", None),
            ("", None),
        ] {
            assert_eq!(Program::named(OsStr::new(name)), program, "{name}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(leading_number(" 12x"), (Some(12), "x"));
        assert_eq!(leading_number("-3"), (Some(-3), ""));
        assert_eq!(leading_number("\t\x0b+7 8"), (Some(7), " 8"));
        assert_eq!(leading_number("99999999999999999999"), (Some(i64::MAX), ""));
        assert_eq!(
            leading_number("-99999999999999999999"),
            (Some(i64::MIN), "")
        );
        assert_eq!(leading_number("-"), (None, "-"));
        assert_eq!(leading_number("x"), (None, "x"));
        assert_eq!(leading_number(""), (None, ""));
    }
}
