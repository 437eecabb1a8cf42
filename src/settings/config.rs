//! What was typed and what the environment says, resolved into typed, checked settings.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::time::Duration;

use crate::contain::Level;
use crate::output::error::Error;
use crate::output::status::SuccessSet;
use crate::plan::machine::{KillMode, Settings, Until};
use crate::settings::cli::{Args, OPTIONS, Opt, Takes};
use crate::settings::value;
use crate::sys::signal::Signal;

/// Whether the hang-up of stdin is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// If it is a pipe, FIFO or socket, and not in the first second.
    Auto,
    /// It must be one of these; its end counts at any time.
    Watch,
    Ignore,
}

/// Whether the loss of stdout's reader is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutMode {
    Watch,
    Ignore,
}

/// What a signal does that can be a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalUse {
    Stop,
    /// It goes to the server, as any other signal.
    Forward,
}

/// What SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HupMode {
    /// It stops, except where it asks for a reload or for nothing: see [`crate::origin::place::Place::hup`].
    Auto,
    Stop,
    Forward,
}

/// How `--doctor` tells what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorFormat {
    Table,
    Json,
}

/// Who gets the signals that are no trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    Server,
    /// The server's process group.
    Group,
    Tree,
}

/// Everything that was set, or its default.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own that users set"
)]
pub struct Config {
    pub plan: Settings,
    /// Whether the grace was asked for; else it is our default.
    pub grace_is_set: bool,
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
    pub forward_to: ForwardTo,
    pub rewrites: Vec<(Signal, Option<Signal>)>,
    pub success: SuccessSet,
    pub contain: Level,
    /// Two processes, so that the SIGKILL of either leaves the other.
    pub guard: bool,
    pub no_new_privs: bool,
    /// The file to which standard error is appended.
    pub stderr: Option<OsString>,
    /// 0, 1 or 2.
    pub verbosity: u8,
    /// The filter of `TREAPER_LOG`, in `env_logger`'s form.
    pub log: Option<String>,
    /// Only look at this machine.
    pub doctor: Option<DoctorFormat>,
    /// Variables with our prefix that no option has.
    pub unknown_variables: Vec<String>,
    /// COMMAND and its arguments.
    pub command: Vec<OsString>,
}

/// What the names of all our variables begin with.
pub const PREFIX: &str = "TREAPER_";
/// Not options: the one variable without an option of its own.
const LOG: &str = "TREAPER_LOG";

/// The environment variable of an option.
#[must_use]
pub fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// One setting as it was given: where, and what.
struct Given {
    source: String,
    text: OsString,
}

impl Given {
    fn parse<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Error> {
        let text = self
            .text
            .to_str()
            .ok_or_else(|| "not valid UTF-8".to_owned());
        text.and_then(parse).map_err(|expected| {
            Error::Misuse(format!(
                "{}: invalid value '{}': {expected}",
                self.source,
                self.text.display()
            ))
        })
    }
}

/// All that was given, by option.
struct Lookup<'a> {
    args: &'a Args,
    variables: Vec<(String, OsString)>,
}

impl Lookup<'_> {
    /// Every value of `long`: the command line's, or else the variable's.
    fn all(&self, long: &str) -> Vec<Given> {
        let typed: Vec<Given> = self
            .args
            .values
            .iter()
            .filter(|(name, _)| *name == long)
            .map(|(_, text)| Given {
                source: format!("--{long}"),
                text: text.clone(),
            })
            .collect();
        if !typed.is_empty() || self.variables.is_empty() {
            return typed;
        }
        let name = variable(long);
        let Some((_, text)) = self.variables.iter().find(|(known, _)| *known == name) else {
            return typed;
        };
        let many = OPTIONS
            .iter()
            .any(|o| o.long == long && matches!(o.takes, Takes::Many(_)));
        let given = |text: OsString| Given {
            source: name.clone(),
            text,
        };
        match text.to_str().filter(|_| many) {
            None => vec![given(text.clone())],
            Some(list) => list
                .split([',', ' '])
                .filter(|item| !item.is_empty())
                .map(|item| given(item.into()))
                .collect(),
        }
    }

    fn one<T>(
        &self,
        long: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        self.all(long)
            .pop()
            .map_or(Ok(default), |given| given.parse(parse))
    }

    fn many<T>(
        &self,
        long: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, Error> {
        self.all(long)
            .iter()
            .map(|given| given.parse(&parse))
            .collect()
    }

    fn log_filter(&self) -> Result<Option<String>, Error> {
        let given = self.variables.iter().find(|(name, _)| name == LOG);
        let given = given.map(|(name, text)| Given {
            source: name.clone(),
            text: text.clone(),
        });
        given
            .map(|given| given.parse(value::log_filter))
            .transpose()
    }

    fn switch(&self, long: &str) -> Result<bool, Error> {
        self.one(long, false, value::switch)
    }
}

/// The variables that set something: an empty one is not set. Then the names of those that no option
/// has. These are no error: Kubernetes makes TREAPER_SERVICE_HOST for a service of that name.
fn our_variables(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<(String, OsString)>, Vec<String>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (name, text) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let has = |option: &Opt| {
            variable(option.long) == name && !matches!(option.takes, Takes::Maybe(_))
        };
        if name != LOG && !OPTIONS.iter().any(has) {
            unknown.push(name.to_owned());
        } else if !text.is_empty() {
            known.push((name.to_owned(), text));
        }
    }
    (known, unknown)
}

/// `--doctor` stands for a COMMAND, so there must be none.
fn check_doctor(format: Option<DoctorFormat>, command: &[OsString]) -> Result<(), Error> {
    let Some(first) = command.first().filter(|_| format.is_some()) else {
        return Ok(());
    };
    Err(Error::Misuse(if first == "json" {
        "--doctor: the format follows an equals sign: --doctor=json".to_owned()
    } else {
        format!(
            "--doctor: starts no COMMAND, and '{}' was given",
            first.display()
        )
    }))
}

/// Checks everything that was set. The command line wins over `environment`.
///
/// # Errors
/// Names the option or variable whose value is wrong.
pub fn resolve(
    mut args: Args,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Config, Error> {
    let command = std::mem::take(&mut args.command);
    let (variables, unknown_variables) = our_variables(environment);
    let given = Lookup {
        args: &args,
        variables,
    };
    let doctor = given.one("doctor", None, |text| {
        let formats = [("", DoctorFormat::Table), ("json", DoctorFormat::Json)];
        value::word(text, &formats)
            .map(Some)
            .map_err(|_| "expected json".to_owned())
    })?;
    check_doctor(doctor, &command)?;
    let plan = Settings {
        drain: given.one("drain", Duration::from_secs(5), value::duration)?,
        grace: given.one("grace", Duration::from_secs(10), value::duration)?,
        stage: given.one("stage", None, |text| value::duration(text).map(Some))?,
        kill_timeout: given.one("kill-timeout", Duration::from_secs(5), value::kill_timeout)?,
        kill_mode: given.one("kill-mode", KillMode::Staged, |text| {
            let modes = [
                ("staged", KillMode::Staged),
                ("tree", KillMode::Tree),
                ("mixed", KillMode::Mixed),
            ];
            value::word(text, &modes)
        })?,
        until: given.one("until", Until::Server, |text| {
            value::word(text, &[("server", Until::Server), ("tree", Until::Tree)])
        })?,
        manager_has_deadline: false,
        at_terminal: false,
    };
    let mut success = SuccessSet::default();
    for code in given.many("success", value::status)? {
        success.insert(code);
    }
    Ok(Config {
        plan,
        grace_is_set: !given.all("grace").is_empty(),
        signal: given.one("signal", Signal::TERM, value::signal)?,
        stdin: given.one("stdin", StdinMode::Auto, |text| {
            let modes = [
                ("auto", StdinMode::Auto),
                ("watch", StdinMode::Watch),
                ("ignore", StdinMode::Ignore),
            ];
            value::word(text, &modes)
        })?,
        stdout: given.one("stdout", StdoutMode::Ignore, |text| {
            value::word(
                text,
                &[("watch", StdoutMode::Watch), ("ignore", StdoutMode::Ignore)],
            )
        })?,
        hup: given.one("hup", HupMode::Auto, |text| {
            let modes = [
                ("auto", HupMode::Auto),
                ("stop", HupMode::Stop),
                ("forward", HupMode::Forward),
            ];
            value::word(text, &modes)
        })?,
        term: given.one("term", SignalUse::Stop, |text| {
            value::word(
                text,
                &[("stop", SignalUse::Stop), ("forward", SignalUse::Forward)],
            )
        })?,
        parent: !given.switch("no-parent")?,
        watch_pids: given.many("watch-pid", value::pid)?,
        watch_ancestors: given
            .all("watch-ancestor")
            .into_iter()
            .map(|given| given.text)
            .collect(),
        forward_to: given.one("forward-to", ForwardTo::Server, |text| {
            let whom = [
                ("server", ForwardTo::Server),
                ("group", ForwardTo::Group),
                ("tree", ForwardTo::Tree),
            ];
            value::word(text, &whom)
        })?,
        rewrites: given.many("rewrite", value::rewrite)?,
        success,
        contain: given.one("contain", Level::Auto, |text| {
            value::word(text, &Level::NAMES)
        })?,
        guard: !given.switch("no-guard")?,
        no_new_privs: given.switch("no-new-privs")?,
        stderr: given.all("stderr").pop().map(|given| given.text),
        verbosity: given.one("verbose", 0, |text| match text.parse::<u8>() {
            Ok(count) => Ok(count.min(2)),
            Err(_) => Err("expected 0, 1 or 2".to_owned()),
        })?,
        log: given.log_filter()?,
        doctor,
        unknown_variables,
        command,
    })
}
