//! The place that we run in: terminal, stdin, what we were given and did not make.
#![forbid(unsafe_code)]

use crate::output::error::Error;
use crate::output::status::Ended;
use crate::plan::event::Trigger;
use crate::plan::machine::Settings;
use crate::settings::config::{Config, HupMode, SignalUse, StdinMode};
use crate::settings::manner::Name;
use crate::sys::clone::Group;
use crate::sys::fd::{self, Kind};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::startup::Inherited;
use crate::sys::{arrival, environment, proc, tty, wait};

/// What was found out about the place that we run in.
#[derive(Debug)]
pub struct Place {
    /// The server is in the host's process group, where the terminal's job control reaches both.
    pub job_control: bool,
    /// What the user has set for the plan, and what the place says.
    pub settings: Settings,
    /// What SIGHUP does. It goes to the server where a manager sends it to ask for a reload, and under `nohup` it asks for nothing.
    pub hup: SignalUse,
    /// The service manager, if we are the main process of a unit.
    pub manager: Option<i32>,
    /// It is to see how the server ended.
    dies_as_server: bool,
    /// The process group that the host made for us.
    pub group: i32,
    /// Whether, and for which trigger, stdin is polled.
    pub stdin: Option<Trigger>,
    /// Children that this process had before it was treaper.
    pub strangers: Vec<i32>,
    /// Descriptors that are the server's alone.
    pub server_descriptors: Vec<i32>,
}

impl Place {
    /// Looks around, before the monitor is made.
    ///
    /// # Errors
    /// stdin cannot be watched as was asked for.
    pub fn look(
        inherited: &Inherited,
        config: &Config,
        name: Name,
        server_descriptors: Vec<i32>,
    ) -> Result<Self, Error> {
        let mut strangers = Vec::new();
        if wait::have_children() {
            let listed = proc::children(pid::own(), &mut |child| strangers.push(child));
            if listed == Err(proc::FOREIGN) {
                strangers.extend(wait::children().map(Pid::get));
            }
        }
        let (job_control, group) = (tty::have_controlling_terminal(), pid::group());
        let is_unit = environment::names_us("SYSTEMD_EXEC_PID");
        let is_managed = is_unit || pid::own() == 1;
        let settings = Settings {
            // Of these two each kills what is left at a deadline of its own, and only it knows when.
            manager_has_deadline: is_managed && name == Name::Own && !config.grace_is_set,
            at_terminal: job_control,
            ..config.plan
        };
        let in_pipeline = job_control && is_of_a_sibling(group);
        Ok(Self {
            job_control,
            settings,
            hup: match config.hup {
                HupMode::Auto if is_managed || inherited.sighup_ignored => SignalUse::Forward,
                HupMode::Auto | HupMode::Stop => SignalUse::Stop,
                HupMode::Forward => SignalUse::Forward,
            },
            manager: is_unit.then(pid::parent),
            dies_as_server: job_control || is_unit && name == Name::Own,
            group,
            stdin: stdin_trigger(inherited, config, in_pipeline)?,
            strangers,
            server_descriptors,
        })
    }

    /// A place without a terminal, a manager or a host, where SIGHUP asks for nothing.
    #[must_use]
    pub fn nowhere(settings: Settings) -> Self {
        Self {
            job_control: false,
            settings,
            hup: SignalUse::Forward,
            manager: None,
            dies_as_server: false,
            group: pid::group(),
            stdin: None,
            strangers: Vec::new(),
            server_descriptors: Vec::new(),
        }
    }

    /// The process group for the server: the host's where a terminal's job control needs it there.
    pub fn server_group(&self) -> Group {
        if self.job_control {
            Group::Inherit
        } else {
            Group::Own
        }
    }

    /// A key that was pressed before the server is in the job reaches it all the same. To be called right before
    /// each process is made that stands between the terminal's group and the server.
    pub fn keep_early_keys(&self) {
        if self.job_control {
            arrival::keep_early_keys();
        }
    }

    /// What the server has now is its own: our copies would keep its sockets bound and its pipes
    /// open after it has closed them, and its directory from being unmounted.
    pub fn release_inherited(&self) {
        fd::close_inherited(&self.server_descriptors);
        let _ = std::env::set_current_dir("/");
    }

    /// What a shell at the terminal expects of our end: its terminal back, which may belong to a group of
    /// the tree that is no more. And what it and systemd expect: the death of the signal that ended the
    /// server (the one says "Terminated", or stops a loop on Ctrl-C; the other tells a crash from a stop).
    /// `$?` is 128 + n either way.
    pub fn end_as_server(&self, ended: Option<Ended>, status: u8) {
        if self.job_control {
            tty::reclaim_foreground(self.group);
        }
        if self.dies_as_server
            && let Some(ended @ Ended::Killed(number)) = ended
            && ended.code() == status
            && let Some(signal) = Signal::from_number(number.into())
        {
            signal::die_of(signal);
        }
    }
}

/// Whether our process group was made for another child of our parent, as a shell with job control does it
/// for a pipeline of which we are not the first part. A host gives its child the group that it has itself,
/// or one of its own; and who has only got us (init) is of another session.
fn is_of_a_sibling(group: i32) -> bool {
    let parent = pid::parent();
    group != pid::own()
        && pid::group_of(parent).is_ok_and(|parents| parents != group)
        && pid::session(parent) == pid::session(0)
}

fn stdin_trigger(
    inherited: &Inherited,
    config: &Config,
    in_pipeline: bool,
) -> Result<Option<Trigger>, Error> {
    let (kind, _) = fd::describe(fd::STDIN);
    Ok(match (config.stdin, kind) {
        (StdinMode::Ignore, _) | (StdinMode::Auto, Kind::Other) => None,
        (_, Kind::Terminal) if config.hup == HupMode::Forward => None,
        (_, Kind::Terminal) if config.hup == HupMode::Auto && inherited.sighup_ignored => None,
        (_, Kind::Terminal) => Some(Trigger::Hangup),
        // Its end is that of the input, not of the host.
        (StdinMode::Auto, Kind::Pipe) if in_pipeline => None,
        (StdinMode::Auto | StdinMode::Watch, Kind::Pipe | Kind::Socket) => Some(Trigger::StdinEof),
        (StdinMode::Watch, Kind::Other) => {
            return Err(Error::Misuse(
                "--stdin or TREAPER_STDIN: stdin is not a pipe, FIFO or socket, so it cannot be watched".to_owned(),
            ));
        }
    })
}
