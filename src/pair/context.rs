//! What is the same for every process of treaper in one run.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use crate::command::Command;
use crate::contain::Containment;
use crate::origin::hosts::Hosts;
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::output::progress::{Step, Voice};
use crate::output::report::Report;
use crate::pair::board::Board;
use crate::plan::policy::Policy;
use crate::settings::config::Config;
use crate::settings::manner::Manner;
use crate::streams::forward::Rules;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::startup::Inherited;
use crate::sys::writes::Writes;
use crate::sys::{prctl, stream};
use crate::tree::spare::Spare;

/// What the user asked for, and the state in which this process was started.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub config: &'a Config,
    pub manner: Manner,
    pub voice: &'a dyn Voice,
    pub inherited: &'a Inherited,
}

/// What the user asked for, what was found at the start, and what the processes share.
#[derive(Debug)]
pub struct Context<'a> {
    pub config: &'a Config,
    pub manner: Manner,
    pub voice: &'a dyn Voice,
    pub inherited: &'a Inherited,
    pub place: Place,
    pub board: Board,
    pub report: Option<&'a Report>,
    pub front: Option<Front>,
    /// What `--spare` leaves alone.
    pub spare: Option<Spare>,
}

/// What is prepared for the start of the server.
pub struct Prepared {
    pub hosts: Hosts,
    pub command: Command,
    pub containment: Containment,
    /// What is written to the server's stdin, for `--idle`.
    pub writes: Option<Writes>,
}

/// A process of treaper in front of this one: its parent, and the process that the host knows.
#[derive(Debug)]
pub struct Front {
    /// `None`: it is PID 1, which is never suspended.
    pub pid: Option<Pid>,
    /// From there come triggers, one byte each, and it hangs up when that process is gone.
    pub line: OwnedFd,
}

impl Front {
    /// Resumes that process, which is suspended with this one.
    pub fn resume(&self) {
        // It is the parent at this moment, so its pid is its own.
        if let Some(front) = self.pid.filter(|front| front.get() == pid::parent()) {
            let _ = signal::kill(front, Signal::CONT);
        }
    }

    /// The server gets the stop signal, so that process no longer has to wait for the host.
    pub fn announce_stop(&self) {
        stream::send(self.line.as_fd(), b"!");
    }
}

impl Context<'_> {
    /// From now on this process adopts the orphans among its descendants. PID 1 does so anyway.
    /// Where that is impossible, as under some emulators, other inits go on, and so does treaper in
    /// their place.
    ///
    /// # Errors
    /// `EINVAL` the system call is missing; any error that a filter gives.
    pub fn adopt_orphans(&self) -> Result<(), Error> {
        let errno = match prctl::become_subreaper() {
            Err(errno) if pid::own() != 1 => errno,
            _ => return Ok(()),
        };
        let error = Error::kernel("become a subreaper", errno);
        if !self.manner.is_other_init {
            return Err(error);
        }
        log::warn!("{error}, so orphans are not adopted");
        Ok(())
    }

    /// How a stop goes: what was asked for, completed by what was found.
    pub fn policy(&self) -> Policy {
        Policy {
            manager_has_deadline: self.place.manager_has_deadline,
            at_terminal: self.place.job_control,
            ..self.config.policy
        }
    }

    /// The rules for an arriving signal.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            config: self.config,
            hup: self.place.hup,
            job_control: self.place.job_control,
            suspends_with_signals: self.manner.suspends_with_signals,
        }
    }

    /// Whether a signal from inside the tree may go back there: the other inits forward each.
    pub fn returns_signals(&self) -> bool {
        self.manner.is_other_init
    }

    /// The name of COMMAND, as it was given.
    pub fn command(&self) -> &OsStr {
        let name = self.config.command.first();
        name.map_or(OsStr::new(""), |name| name)
    }

    /// A signal that arrives as `from` is forwarded as `to`, or is dropped.
    pub fn report_forwarding(&self, from: Signal, to: Option<Signal>) {
        self.voice.report(&Step::Forwarding { from, to });
    }
}
