//! The place in which treaper runs: terminal, stdin, process group, and what it has inherited.

use std::path::PathBuf;

use crate::origin::unit;
use crate::output::error::Error;
use crate::plan::event::Trigger;
use crate::settings::config::{Config, Manner, SignalUse, StdinMode};
use crate::sys::fd::{self, Kind};
use crate::sys::startup::{Inherited, Standing};
use crate::sys::{Errno, pid, proc, tty, wait};

pub struct Place {
    /// The server is in the host's process group, where the terminal's job control reaches both.
    pub job_control: bool,
    pub standing: Standing,
    /// SIGTERM comes from a manager with a deadline of its own. Options that set one count more.
    pub manager_has_deadline: bool,
    /// Without an option SIGHUP is forwarded where a manager uses it to ask for a reload, and under
    /// `nohup`, where it is no reason to stop.
    pub hup: SignalUse,
    /// The service manager, if this process is the main process of a unit.
    pub manager: Option<i32>,
    /// Whether treaper ends by the signal that has ended the server, for a shell or the manager.
    pub dies_as_server: bool,
    /// The process group that the host has chosen for treaper.
    pub group: i32,
    pub stdin: Option<Trigger>,
    /// The working directory at the start; empty if that is gone.
    pub directory: PathBuf,
    /// Children that this process had before it executed treaper.
    pub strangers: Vec<i32>,
    /// Inherited descriptors that only the server uses.
    pub server_descriptors: Vec<i32>,
}

impl Place {
    /// Fails as [`stdin_trigger`] does, and if the kernel does not say whether there are children.
    pub fn examine(inherited: &Inherited, config: &Config, manner: Manner) -> Result<Self, Error> {
        let mut strangers = Vec::new();
        match wait::Wait::any().ended().peek() {
            Err(Errno::CHILD) => {}
            Err(errno) => return Err(Error::kernel("wait for children", errno)),
            Ok(_) => {
                let listed = proc::children(pid::own(), &mut |child| strangers.push(child));
                if listed == Err(proc::FOREIGN) {
                    strangers.extend(wait::children().map(pid::Pid::get));
                }
            }
        }
        let (job_control, group) = (tty::have_controlling_terminal(), pid::group());
        let is_unit = unit::names_this_process("SYSTEMD_EXEC_PID");
        let is_managed = is_unit || pid::own() == 1;
        Ok(Self {
            job_control,
            standing: match manner.standing {
                _ if job_control => Standing::InJob,
                chosen => chosen.unwrap_or(inherited.standing),
            },
            manager_has_deadline: is_managed && !manner.is_other_init && !config.grace_is_set,
            hup: match config.hup {
                None if is_managed || inherited.sighup_ignored => SignalUse::Forward,
                None => SignalUse::Stop,
                Some(chosen) => chosen,
            },
            manager: is_unit.then(pid::parent),
            dies_as_server: job_control || is_unit && !manner.is_other_init,
            group,
            stdin: stdin_trigger(inherited, config)?,
            directory: std::env::current_dir().unwrap_or_default(),
            strangers,
            server_descriptors: Vec::new(),
        })
    }
}

/// The trigger that an end of stdin is, if it is watched. Fails if an option demands that in vain.
pub fn stdin_trigger(inherited: &Inherited, config: &Config) -> Result<Option<Trigger>, Error> {
    Ok(match (config.stdin, fd::kind(fd::STDIN)) {
        (StdinMode::Ignore, _) | (StdinMode::Auto, Kind::Other) => None,
        (_, Kind::Terminal) if config.hup == Some(SignalUse::Forward) => None,
        (_, Kind::Terminal) if config.hup.is_none() && inherited.sighup_ignored => None,
        (_, Kind::Terminal) => Some(Trigger::Hangup),
        (StdinMode::Auto | StdinMode::Watch, Kind::Pipe | Kind::Socket) => Some(Trigger::StdinEof),
        (StdinMode::Watch, Kind::Other) => {
            return Err(Error::new(
                "--stdin or TREAPER_STDIN: stdin is not a pipe, FIFO or socket, so it cannot be watched",
            ));
        }
    })
}
