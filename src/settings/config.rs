//! The settings that result from options, variables and defaults.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::contain::Level;
use crate::output::error::Error;
use crate::output::report::{Facts, To};
use crate::plan::policy::Policy;
use crate::sys::signal::Signal;
use crate::sys::startup::Standing;

pub const PREFIX: &str = "TREAPER_";

pub fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// Whether the hang-up of stdin is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// If stdin is a pipe, FIFO or socket, but not in the first second.
    Auto,
    /// At any time. stdin must be a pipe, FIFO or socket.
    Watch,
    Ignore,
}

/// What SIGTERM or SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalUse {
    Stop,
    /// The server gets it, as it gets other signals.
    Forward,
}

/// Who gets a signal that is no trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    Server,
    Group,
    Tree,
}

/// Names messages: JSON objects with this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The names of the members, from the top of the object.
    pub path: Vec<String>,
    /// The text of a string, a number as it is written, `true`, `false` or `null`.
    pub value: String,
}

/// What was asked for about several writers of stdin, and about cancelled turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    /// The option or the variable that asks for the relay, for messages.
    pub source: String,
    /// The sockets on which other processes give messages for the server's stdin.
    pub sockets: Vec<PathBuf>,
    pub turns: Vec<Match>,
    pub cancels: Vec<Match>,
    /// From the server: they end a turn. If there are none, the answer of JSON-RPC ends it.
    pub boundaries: Vec<Match>,
    pub cancel_drain: Duration,
}

impl Writers {
    pub fn are_used(&self) -> bool {
        !self.sockets.is_empty() || self.follow_turns()
    }

    /// Whether the relay has to know which turns run. Only then it passes on the server's stdout.
    pub fn follow_turns(&self) -> bool {
        !self.turns.is_empty()
    }
}

/// How treaper behaves apart from its options: under its own name, or that of another init.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The users of another init expect its exit statuses, and choose the deadlines themselves.
    pub is_other_init: bool,
    /// The stop signal after the end of the parent. `None`: the same as after every other trigger.
    pub parent_signal: Option<Signal>,
    /// Whether SIGTSTP, SIGTTIN and SIGTTOU also suspend treaper, after they were forwarded.
    pub suspends_with_signals: bool,
    /// What that init lets the server lead. `None`: what treaper leads.
    pub standing: Option<Standing>,
}

/// The value of each option: the one that was set, or the default.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is its own switch")]
pub struct Config {
    /// [`crate::pair::context::Context::policy`] completes it.
    pub policy: Policy,
    pub grace_is_set: bool,
    pub signal: Signal,
    pub stdin: StdinMode,
    pub stdout: bool,
    /// `None`: SIGHUP stops the server, unless it asks for a reload, or for nothing: see
    /// [`crate::origin::place::Place::hup`].
    pub hup: Option<SignalUse>,
    pub term: SignalUse,
    pub parent: bool,
    pub watch_pids: Vec<i32>,
    pub watch_ancestors: Vec<OsString>,
    pub idle: Option<Duration>,
    pub forward_to: ForwardTo,
    pub rewrites: Vec<(Signal, Option<Signal>)>,
    pub success: Vec<u8>,
    pub contain: Level,
    /// The names of daemons that `--spare` leaves. Never freed.
    pub spare: &'static [OsString],
    /// Whether treaper is two processes: if one is SIGKILLed, the other is left.
    pub guard: bool,
    pub no_new_privs: bool,
    pub writers: Writers,
    pub stderr: Option<OsString>,
    pub report: Option<To>,
    pub report_arguments: bool,
    pub finally: Option<OsString>,
    pub verbosity: u8,
    pub log: Option<String>,
    /// `true`: as JSON.
    pub doctor: Option<bool>,
    pub unknown_variables: Vec<String>,
    pub command: Vec<OsString>,
}

impl Config {
    /// The grammar of `matches` had the options that were given. Contradictions are errors.
    pub fn new(matches: ArgMatches, unknown_variables: Vec<String>) -> Result<Self, Error> {
        let mut given = Matches(matches);
        let command = given.all("COMMAND");
        let doctor = given.last("doctor");
        check_command(&command, doctor)?;
        // Before `idle` is taken, for which it looks.
        let writers = given.writers()?;
        let grace = given.last("grace");
        Ok(Self {
            policy: Policy {
                drain: given.last("drain").unwrap_or(Duration::from_secs(5)),
                grace: grace.unwrap_or(Duration::from_secs(10)),
                stage: given.last("stage"),
                kill_timeout: given.last("kill-timeout").unwrap_or(Duration::from_secs(5)),
                kill_mode: given.last("kill-mode").unwrap_or_default(),
                until: given.last("until").unwrap_or_default(),
                manager_has_deadline: false,
                at_terminal: false,
            },
            grace_is_set: grace.is_some(),
            signal: given.last("signal").unwrap_or(Signal::TERM),
            stdin: given.last("stdin").unwrap_or(StdinMode::Auto),
            stdout: given.last("stdout").unwrap_or(false),
            hup: given.last("hup").unwrap_or_default(),
            term: given.last("term").unwrap_or(SignalUse::Stop),
            parent: !given.last("no-parent").unwrap_or(false),
            watch_pids: given.all("watch-pid"),
            watch_ancestors: given.all("watch-ancestor"),
            idle: given.last("idle"),
            forward_to: given.last("forward-to").unwrap_or(ForwardTo::Server),
            rewrites: given.all("rewrite"),
            success: given.all("success"),
            contain: given.last("contain").unwrap_or_default(),
            spare: given.all("spare").leak(),
            guard: !given.last("no-guard").unwrap_or(false),
            no_new_privs: given.last("no-new-privs").unwrap_or(false),
            writers,
            stderr: given.last("stderr"),
            report: given.last("report"),
            report_arguments: given.last("report-arguments").unwrap_or(false),
            finally: given.last("finally"),
            verbosity: given.last("verbose").unwrap_or_default(),
            log: given.last("log"),
            doctor,
            unknown_variables,
            command,
        })
    }

    /// The exit status of treaper for the server's `status`.
    pub fn exit_status(&self, status: u8) -> u8 {
        let is_success = self.success.contains(&status);
        if is_success { 0 } else { status }
    }

    /// For a server that was not started.
    pub fn facts(&self, exit_status: u8) -> Facts<'_> {
        Facts {
            exit_status,
            command: &self.command,
            arguments: self.report_arguments,
            contain: self.contain.name(),
            ..Facts::default()
        }
    }
}

pub const NO_COMMAND: &str = "no COMMAND was given; see treaper --help";

/// Refuses a command line without COMMAND, and one with a COMMAND that `--doctor` replaces.
fn check_command(command: &[OsString], doctor: Option<bool>) -> Result<(), Error> {
    Err(Error::new(match (command.first(), doctor) {
        (None, None) => NO_COMMAND.to_owned(),
        (Some(first), Some(_)) => format!(
            "--doctor: does not start a COMMAND, but '{}' was given",
            first.to_string_lossy()
        ),
        (Some(_), None) | (None, Some(_)) => return Ok(()),
    }))
}

struct Matches(ArgMatches);

impl Matches {
    /// An option that was not given may be missing in the grammar. For clap that is an error.
    fn last<T: Clone + Send + Sync + 'static>(&mut self, long: &str) -> Option<T> {
        self.0.try_remove_one(long).unwrap_or_default()
    }

    fn all<T: Clone + Send + Sync + 'static>(&mut self, long: &str) -> Vec<T> {
        let values = self.0.try_remove_many(long).unwrap_or_default();
        values.into_iter().flatten().collect()
    }

    /// What sets `long`: the option, or its variable.
    fn source(&self, long: &str) -> Option<String> {
        let id = self.0.ids().find(|id| id.as_str() == long)?;
        Some(match self.0.value_source(id.as_str()) {
            Some(ValueSource::DefaultValue) => variable(long),
            _ => format!("--{long}"),
        })
    }

    fn messages(&mut self, long: &str) -> Result<Vec<Match>, Error> {
        let (source, found) = (self.source(long), self.all(long));
        if found.len() > 32 {
            let source = source.unwrap_or_default();
            return Err(Error::new(format!("{source}: more than 32 values")));
        }
        Ok(found)
    }

    fn writers(&mut self) -> Result<Writers, Error> {
        let [inject, cancel, turn] = ["inject", "cancel", "turn"].map(|long| self.source(long));
        let (boundary, drain) = (self.source("boundary"), self.source("cancel-drain"));
        let idle = self.source("idle");
        let source = [&inject, &cancel, &turn].into_iter().flatten().next();
        let writers = Writers {
            source: source.cloned().unwrap_or_default(),
            sockets: self.all("inject"),
            turns: self.messages("turn")?,
            cancels: self.messages("cancel")?,
            boundaries: self.messages("boundary")?,
            cancel_drain: self.last("cancel-drain").unwrap_or(Duration::from_secs(5)),
        };
        Err(Error::new(match (turn, cancel, boundary, drain) {
            (None, Some(cancel), ..) => {
                format!("{cancel}: needs --turn, which names the messages that begin a turn")
            }
            (Some(turn), None, ..) if idle.is_none() => {
                format!("{turn}: has no effect without --cancel or --idle")
            }
            (None, _, Some(boundary), _) => format!("{boundary}: has no effect without --turn"),
            (_, None, _, Some(drain)) => format!("{drain}: has no effect without --cancel"),
            _ => return Ok(writers),
        }))
    }
}
