//! The names of other inits. Under one of them, treaper takes the command line and the variables of
//! that init, and reports and exits as that init does. It still leaves no process behind.
//! A parser only translates the arguments into options of treaper. These win over `TREAPER_*`
//! variables, which win over the defaults of such a name.

mod catatonit;
mod dumb_init;
pub mod getopt;
mod tini;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::output::error::Error;
use crate::output::progress::Voice;
use crate::settings::cli::{self, Variables};
use crate::settings::config::{Config, Manner};
use crate::sys::startup::Standing;

/// The parser of the init under whose name treaper was started.
#[derive(Clone, Copy)]
pub struct Program(fn(&Call<'_>) -> Result<Start, Answer>);

/// What has to be run, and in whose words it is reported.
pub struct Start {
    /// There is no server: reap until SIGINT or SIGTERM.
    pub pauses: bool,
    /// An error if a variable of treaper is wrong. Not on the stack, which may be small.
    pub config: Result<Box<Config>, Error>,
    pub command: Vec<OsString>,
    pub manner: Manner,
    pub voice: Box<dyn Voice>,
}

/// What is printed if nothing is run: a help text, a version, or an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Stdout(String),
    /// The exit status, and the text.
    Stderr(u8, String),
}

/// Writes `text`, in which control characters must not reach the terminal, and returns `status`.
pub fn complain(status: u8, text: &str) -> u8 {
    let hide = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    let text: String = text.chars().map(hide).collect();
    let _ = std::io::stderr().write_all(text.as_bytes());
    status
}

/// How another init was called.
struct Call<'a> {
    /// `argv[0]`.
    name: String,
    words: &'a [OsString],
    variables: &'a Variables,
}

/// The defaults under each of these names. These programs never look at stdin, and look at their
/// parent only if an option asks for it. They forward SIGTERM and set no deadline. Once the server
/// has ended, the rest of its tree gets the stop signal and the grace period.
const DEFAULTS: [(&str, &str); 4] = [
    ("TREAPER_STDIN", "ignore"),
    ("TREAPER_HUP", "forward"),
    ("TREAPER_TERM", "forward"),
    ("TREAPER_NO_PARENT", "1"),
];

impl Call<'_> {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.as_os_str())
    }

    /// `options`: those of treaper, each as its variable and its value.
    fn start(
        &self,
        command: Vec<OsString>,
        options: &[(&str, &str)],
        standing: Standing,
        voice: impl Voice + 'static,
    ) -> Start {
        let owned = |(name, text): &(&str, &str)| (name.into(), text.into());
        // If a variable comes twice, the first one counts.
        let mut variables: Vec<_> = options.iter().map(owned).collect();
        variables.extend_from_slice(self.variables);
        variables.extend(DEFAULTS.iter().map(owned));
        Start {
            pauses: false,
            config: cli::from_variables(&variables, &command).map(Box::new),
            command,
            manner: Manner {
                is_other_init: true,
                standing: Some(standing),
                ..Manner::default()
            },
            voice: Box::new(voice),
        }
    }
}

impl Program {
    /// The program that `name`, an `argv[0]`, means. Only the last part of the path counts.
    pub fn named(name: &OsStr) -> Option<Self> {
        match name.as_bytes().rsplit(|byte| *byte == b'/').next()? {
            b"tini" | b"tini-static" | b"docker-init" => Some(Self(tini::parse)),
            b"dumb-init" => Some(Self(dumb_init::parse)),
            b"catatonit" | b"podman-init" => Some(Self(catatonit::parse)),
            _ => None,
        }
    }

    /// Translates `arguments`, which begin with the name of the program.
    pub fn parse(self, arguments: &[OsString], variables: &Variables) -> Result<Start, Answer> {
        let name = arguments.first().map(|name| name.to_string_lossy());
        self.0(&Call {
            name: name.unwrap_or_default().into_owned(),
            words: arguments.get(1..).unwrap_or_default(),
            variables,
        })
    }
}

const OWN_VERSION: &str = concat!("treaper ", env!("CARGO_PKG_VERSION"));
const LICENSE: &str = include_str!("../../LICENSE-MIT");

/// What C's `strtol` finds at the start of `text` (out of range: the nearest number), and the rest.
pub fn leading_number(text: &str) -> (Option<i64>, &str) {
    let start = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let sign = usize::from(start.starts_with(['+', '-']));
    let digits = start[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return (None, text);
    }
    let (number, rest) = start.split_at(sign + digits);
    let is_negative = number.starts_with('-');
    let nearest = if is_negative { i64::MIN } else { i64::MAX };
    (Some(number.parse().unwrap_or(nearest)), rest)
}
