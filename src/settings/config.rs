//! The options and the variables, as checked and typed settings.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::time::Duration;

use crate::contain::Level;
use crate::output::error::Error;
use crate::output::report::{Facts, To};
use crate::output::status::SuccessSet;
use crate::plan::policy::{KillMode, Policy, Until};
use crate::settings::cli::Args;
use crate::settings::given::Given;
use crate::settings::value;
use crate::settings::writers::{self, Socket, Writers};
use crate::sys::signal::Signal;

/// Whether the hang-up of stdin is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// If stdin is a pipe, FIFO or socket, and except in the first second.
    Auto,
    /// At any time. stdin must be a pipe, FIFO or socket.
    Watch,
    Ignore,
}

impl StdinMode {
    const WORDS: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("watch", Self::Watch),
        ("ignore", Self::Ignore),
    ];
}

/// Whether the loss of stdout's reader is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutMode {
    Watch,
    Ignore,
}

impl StdoutMode {
    const WORDS: [(&'static str, Self); 2] = [("watch", Self::Watch), ("ignore", Self::Ignore)];
}

/// What SIGTERM or SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalUse {
    Stop,
    /// It is forwarded to the server, as other signals are.
    Forward,
}

impl SignalUse {
    const WORDS: [(&'static str, Self); 2] = [("stop", Self::Stop), ("forward", Self::Forward)];
}

/// What SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HupMode {
    /// It stops the server, unless it asks for a reload, or for nothing: see [`crate::origin::place::Place::hup`].
    Auto,
    Stop,
    Forward,
}

impl HupMode {
    const WORDS: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("stop", Self::Stop),
        ("forward", Self::Forward),
    ];
}

/// How `--doctor` prints what it has found.
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

impl ForwardTo {
    const WORDS: [(&'static str, Self); 3] = [
        ("server", Self::Server),
        ("group", Self::Group),
        ("tree", Self::Tree),
    ];
}

/// The value of each option: the one that was set, or the default.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own that users set"
)]
pub struct Config {
    pub drain: Duration,
    pub grace: Duration,
    /// Whether the grace period was set by the user, and is not the default.
    pub grace_is_set: bool,
    pub stage: Option<Duration>,
    pub kill_timeout: Duration,
    pub kill_mode: KillMode,
    pub until: Until,
    /// The stop signal.
    pub signal: Signal,
    pub stdin: StdinMode,
    /// Whether the loss of stdout's reader is a trigger.
    pub stdout: StdoutMode,
    pub hup: HupMode,
    /// What SIGTERM does.
    pub term: SignalUse,
    /// Whether the end of the parent is a trigger.
    pub parent: bool,
    pub watch_pids: Vec<i32>,
    pub watch_ancestors: Vec<OsString>,
    /// For how long the host may write nothing to stdin.
    pub idle: Option<Duration>,
    pub forward_to: ForwardTo,
    pub rewrites: Vec<(Signal, Option<Signal>)>,
    pub success: SuccessSet,
    pub contain: Level,
    /// Whether treaper is two processes, so that one is left if the other is SIGKILLed.
    pub guard: bool,
    pub no_new_privs: bool,
    /// Further writers of the server's stdin.
    pub writers: Writers,
    /// The file to which standard error is appended.
    pub stderr: Option<OsString>,
    pub report: Option<To>,
    /// Whether the report names the arguments of COMMAND.
    pub report_arguments: bool,
    /// 0, 1 or 2.
    pub verbosity: u8,
    /// The filter of `TREAPER_LOG`, in `env_logger`'s form.
    pub log: Option<String>,
    /// Only examine this machine.
    pub doctor: Option<DoctorFormat>,
    /// Variables with the prefix of treaper that belong to no option.
    pub unknown_variables: Vec<String>,
    /// COMMAND and its arguments.
    pub command: Vec<OsString>,
}

const KILL_MODES: [(&str, KillMode); 3] = [
    ("staged", KillMode::Staged),
    ("tree", KillMode::Tree),
    ("mixed", KillMode::Mixed),
];
const UNTIL: [(&str, Until); 2] = [("server", Until::Server), ("tree", Until::Tree)];

/// The format of `--doctor`, if it was given. It replaces COMMAND, so there must be none.
fn doctor(given: &Given, command: &[OsString]) -> Result<Option<DoctorFormat>, Error> {
    let format = given.one("doctor", None, |text| {
        let formats = [("", DoctorFormat::Table), ("json", DoctorFormat::Json)];
        value::word(text, &formats)
            .map(Some)
            .map_err(|_| "expected json".to_owned())
    })?;
    let Some(first) = command.first().filter(|_| format.is_some()) else {
        return Ok(format);
    };
    Err(Error::Misuse(if first == "json" {
        "--doctor: the format follows an equals sign: --doctor=json".to_owned()
    } else {
        format!(
            "--doctor: does not start a COMMAND, but '{}' was given",
            first.display()
        )
    }))
}

fn success(given: &Given) -> Result<SuccessSet, Error> {
    let mut success = SuccessSet::default();
    for code in given.many("success", value::status)? {
        success.insert(code);
    }
    Ok(success)
}

/// Several writers of the server's stdin, and cancelled turns.
fn writers(given: &Given) -> Result<Writers, Error> {
    let matches = |long| -> Result<_, Error> {
        let found = given.many(long, writers::matching)?;
        if found.len() > writers::MAX_MATCHES {
            let most = writers::MAX_MATCHES;
            return Err(Error::Misuse(format!(
                "--{long}: can be given {most} times at most"
            )));
        }
        Ok(found)
    };
    let source = given.source("inject");
    let sockets = given.many("inject", writers::socket)?.into_iter();
    let sockets = sockets.map(|path| Socket {
        path,
        source: source.clone(),
    });
    let writers = Writers {
        sockets: sockets.collect(),
        turns: matches("turn")?,
        cancels: matches("cancel")?,
        boundaries: matches("boundary")?,
        cancel_drain: given.one("cancel-drain", Duration::from_secs(5), value::duration)?,
    };
    if writers.follow_turns() {
        if writers.turns.is_empty() {
            return Err(Error::Misuse(format!(
                "{}: needs --turn, which names the messages that begin a turn",
                given.source("cancel")
            )));
        }
        return Ok(writers);
    }
    for long in ["turn", "boundary", "cancel-drain"] {
        if given.has(long) {
            return Err(Error::Misuse(format!(
                "{}: has no effect without --cancel",
                given.source(long)
            )));
        }
    }
    Ok(writers)
}

fn verbosity(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(count) => Ok(count.min(2)),
        Err(_) => Err("expected 0, 1 or 2".to_owned()),
    }
}

impl Config {
    /// How a stop goes. The two are facts about the place, see [`Policy`].
    #[must_use]
    pub const fn policy(&self, manager_has_deadline: bool, at_terminal: bool) -> Policy {
        Policy {
            drain: self.drain,
            grace: self.grace,
            stage: self.stage,
            kill_timeout: self.kill_timeout,
            kill_mode: self.kill_mode,
            until: self.until,
            manager_has_deadline,
            at_terminal,
        }
    }

    /// What a report says of a server that was not started.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            trigger: None,
            server_pid: None,
            server_ended: None,
            exit_status: 0,
            command: &self.command,
            arguments: self.report_arguments,
            contain: self.contain.name(),
            memory_peak: None,
            relay: None,
        }
    }
}

/// Checks everything that was set. The command line wins over `environment`.
///
/// # Errors
/// A value is wrong. The message names its option or variable.
pub fn resolve(
    mut args: Args,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Config, Error> {
    let command = std::mem::take(&mut args.command);
    let (given, unknown_variables) = Given::new(&args, environment);
    let doctor = doctor(&given, &command)?;
    Ok(Config {
        drain: given.one("drain", Duration::from_secs(5), value::duration)?,
        grace: given.one("grace", Duration::from_secs(10), value::duration)?,
        grace_is_set: given.has("grace"),
        stage: given.one("stage", None, |text| value::duration(text).map(Some))?,
        kill_timeout: given.one("kill-timeout", Duration::from_secs(5), value::kill_timeout)?,
        kill_mode: given.word("kill-mode", KillMode::Staged, &KILL_MODES)?,
        until: given.word("until", Until::Server, &UNTIL)?,
        success: success(&given)?,
        signal: given.one("signal", Signal::TERM, value::signal)?,
        stdin: given.word("stdin", StdinMode::Auto, &StdinMode::WORDS)?,
        stdout: given.word("stdout", StdoutMode::Ignore, &StdoutMode::WORDS)?,
        hup: given.word("hup", HupMode::Auto, &HupMode::WORDS)?,
        term: given.word("term", SignalUse::Stop, &SignalUse::WORDS)?,
        parent: !given.switch("no-parent")?,
        watch_pids: given.many("watch-pid", value::pid)?,
        watch_ancestors: given.texts("watch-ancestor"),
        idle: given.one("idle", None, |text| value::idle(text).map(Some))?,
        forward_to: given.word("forward-to", ForwardTo::Server, &ForwardTo::WORDS)?,
        rewrites: given.many("rewrite", value::rewrite)?,
        contain: given.word("contain", Level::Group, &Level::NAMES)?,
        guard: !given.switch("no-guard")?,
        no_new_privs: given.switch("no-new-privs")?,
        writers: writers(&given)?,
        stderr: given.text("stderr"),
        report: given.path("report", value::report)?,
        report_arguments: given.switch("report-arguments")?,
        verbosity: given.one("verbose", 0, verbosity)?,
        log: given.log_filter()?,
        doctor,
        unknown_variables,
        command,
    })
}
