//! The settings: what the options and the variables say, or the defaults.

use std::ffi::OsString;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::contain::Level;
use crate::output::error::Error;
use crate::output::report::{Facts, To};
use crate::plan::policy::Policy;
use crate::settings::writers::{MAX_MATCHES, Match, Writers};
use crate::sys::signal::Signal;

/// The names of all variables of treaper begin with this.
pub const PREFIX: &str = "TREAPER_";

/// The environment variable of the option `--long`.
pub fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// Whether the hang-up of stdin is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// If stdin is a pipe, FIFO or socket, and except in the first second.
    Auto,
    /// At any time. stdin must be a pipe, FIFO or socket.
    Watch,
    Ignore,
}

/// What SIGTERM or SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalUse {
    Stop,
    /// It is forwarded to the server, as other signals are.
    Forward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorFormat {
    Table,
    Json,
}

/// Which processes get the signals that are no trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    Server,
    /// The server's process group.
    Group,
    Tree,
}

/// The value of each option: the one that was set, or the default.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own that users set"
)]
pub struct Config {
    /// How a stop goes. [`crate::pair::context::Context::policy`] completes it.
    pub policy: Policy,
    /// Whether the grace period was set by the user, and is not the default.
    pub grace_is_set: bool,
    /// The stop signal.
    pub signal: Signal,
    pub stdin: StdinMode,
    /// Whether the loss of stdout's reader is a trigger.
    pub stdout: bool,
    /// What SIGHUP does. `None`: it stops the server, unless it asks for a reload, or for nothing:
    /// see [`crate::origin::place::Place::hup`].
    pub hup: Option<SignalUse>,
    pub term: SignalUse,
    /// Whether the end of the parent is a trigger.
    pub parent: bool,
    pub watch_pids: Vec<i32>,
    pub watch_ancestors: Vec<OsString>,
    /// For how long the host may write nothing to stdin.
    pub idle: Option<Duration>,
    pub forward_to: ForwardTo,
    pub rewrites: Vec<(Signal, Option<Signal>)>,
    /// The statuses that become 0.
    pub success: Vec<u8>,
    pub contain: Level,
    /// The names of daemons that live on. They are never freed.
    pub spare: &'static [OsString],
    /// Whether treaper is two processes, so that one is left if the other is SIGKILLed.
    pub guard: bool,
    pub no_new_privs: bool,
    pub writers: Writers,
    /// The file to which standard error is appended.
    pub stderr: Option<OsString>,
    pub report: Option<To>,
    /// Whether the report names the arguments of COMMAND.
    pub report_arguments: bool,
    /// What `/bin/sh -c` runs when the tree is gone.
    pub finally: Option<OsString>,
    /// 0, 1 or 2.
    pub verbosity: u8,
    /// The filter of `--log`, in `env_logger`'s form.
    pub log: Option<String>,
    /// Only examine this machine.
    pub doctor: Option<DoctorFormat>,
    /// Variables with the prefix of treaper that belong to no option.
    pub unknown_variables: Vec<String>,
    /// COMMAND and its arguments.
    pub command: Vec<OsString>,
}

impl Config {
    /// The settings in `matches`, which came from a grammar of at least the options that were
    /// given. It is an error if they contradict each other.
    pub fn new(matches: ArgMatches, unknown_variables: Vec<String>) -> Result<Self, Error> {
        let mut given = Matches(matches);
        let command = given.all("COMMAND");
        let doctor = given.last("doctor");
        check_command(&command, doctor)?;
        // It looks whether there is an idle time, which is taken below.
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
            stdout: given.switch("stdout"),
            hup: given.last("hup").unwrap_or_default(),
            term: given.last("term").unwrap_or(SignalUse::Stop),
            parent: !given.switch("no-parent"),
            watch_pids: given.all("watch-pid"),
            watch_ancestors: given.all("watch-ancestor"),
            idle: given.last("idle"),
            forward_to: given.last("forward-to").unwrap_or(ForwardTo::Server),
            rewrites: given.all("rewrite"),
            success: given.all("success"),
            contain: given.last("contain").unwrap_or_default(),
            spare: given.all("spare").leak(),
            guard: !given.switch("no-guard"),
            no_new_privs: given.switch("no-new-privs"),
            writers,
            stderr: given.last("stderr"),
            report: given.last("report"),
            report_arguments: given.switch("report-arguments"),
            finally: given.last("finally"),
            verbosity: given.last("verbose").unwrap_or(0),
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

    /// What a report says of a server that was not started.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            command: &self.command,
            arguments: self.report_arguments,
            contain: self.contain.name(),
            ..Facts::default()
        }
    }
}

pub const NO_COMMAND: &str = "no COMMAND was given; see treaper --help";

/// Refuses a command line without COMMAND, and one with a COMMAND that `--doctor` replaces.
fn check_command(command: &[OsString], doctor: Option<DoctorFormat>) -> Result<(), Error> {
    let text = match (command.first(), doctor) {
        (None, None) => NO_COMMAND.to_owned(),
        (Some(first), Some(_)) if first == "json" => {
            "--doctor: the format follows an equals sign: --doctor=json".to_owned()
        }
        (Some(first), Some(_)) => format!(
            "--doctor: does not start a COMMAND, but '{}' was given",
            first.to_string_lossy()
        ),
        (Some(_), None) | (None, Some(_)) => return Ok(()),
    };
    Err(Error::Misuse(text))
}

/// The values that were given.
struct Matches(ArgMatches);

impl Matches {
    /// An option that was not given may be missing in the grammar. For clap that is an error.
    fn last<T: Clone + Send + Sync + 'static>(&mut self, long: &str) -> Option<T> {
        self.0.try_remove_one(long).unwrap_or_default()
    }

    fn switch(&mut self, long: &str) -> bool {
        self.last(long).unwrap_or(false)
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
        let source = self.source(long).unwrap_or_default();
        let found = self.all(long);
        if found.len() > MAX_MATCHES {
            let text = format!("{source}: more than {MAX_MATCHES} values");
            return Err(Error::Misuse(text));
        }
        Ok(found)
    }

    fn writers(&mut self) -> Result<Writers, Error> {
        let (turn, cancel) = (self.source("turn"), self.source("cancel"));
        let (boundary, cancel_drain) = (self.source("boundary"), self.source("cancel-drain"));
        let idle = self.source("idle");
        let source = self.source("inject").or_else(|| cancel.clone());
        let source = source.or_else(|| turn.clone());
        let writers = Writers {
            source: source.unwrap_or_default(),
            sockets: self.all("inject"),
            turns: self.messages("turn")?,
            cancels: self.messages("cancel")?,
            boundaries: self.messages("boundary")?,
            cancel_drain: self.last("cancel-drain").unwrap_or(Duration::from_secs(5)),
        };
        let text = match (turn, cancel, boundary, cancel_drain) {
            (None, Some(cancel), ..) => {
                format!("{cancel}: needs --turn, which names the messages that begin a turn")
            }
            (Some(turn), None, ..) if idle.is_none() => {
                format!("{turn}: has no effect without --cancel or --idle")
            }
            (None, _, Some(boundary), _) => format!("{boundary}: has no effect without --turn"),
            (_, None, _, Some(drain)) => format!("{drain}: has no effect without --cancel"),
            _ => return Ok(writers),
        };
        Err(Error::Misuse(text))
    }
}
