//! What is the same for every process of treaper in one run.

use std::os::fd::BorrowedFd;

use super::board::Board;
use crate::origin::{hosts::Hosts, place::Place};
use crate::output::progress::{Step, Voice};
use crate::output::{error::Error, report::Report};
use crate::plan::{event::Trigger, policy::Policy};
use crate::settings::config::{Config, Manner};
use crate::streams::{forward::Rules, watch::Watch};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{prctl, startup::Inherited};
use crate::{command::Command, contain::Containment, tree::spare::Spare};

/// What the user asked for, and the state in which this process was started.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub config: &'a Config,
    pub manner: Manner,
    pub voice: &'a dyn Voice,
    pub inherited: &'a Inherited,
}

/// What the user asked for, what was found at the start, and what the processes share.
pub struct Context<'a> {
    pub config: &'a Config,
    pub manner: Manner,
    pub voice: &'a dyn Voice,
    pub inherited: &'a Inherited,
    pub place: Place,
    pub board: Board,
    pub report: Option<&'a Report>,
    pub front: Option<Front>,
    /// The process that has started treaper.
    pub host: Option<BorrowedFd<'static>>,
    pub spare: Option<Spare>,
}

/// Prepared before any process is made. Freeing it, or allocating beside it, would copy pages.
pub struct Prepared {
    pub hosts: Hosts,
    pub command: Command,
    /// Has room for what the monitor adds.
    pub watch: Watch,
    pub containment: Containment,
}

/// A process of treaper in front of this one: its parent, and the process that the host knows.
pub struct Front {
    /// `None`: it is PID 1, which is never suspended.
    pub pid: Option<Pid>,
    /// Brings triggers, one byte each, and hangs up when that process is gone.
    pub line: BorrowedFd<'static>,
}

impl Front {
    /// Resumes that process, which is suspended with this one.
    pub fn resume(&self) {
        // It is the parent at this moment, so its pid is its own.
        if let Some(front) = self.pid.filter(|front| front.get() == pid::parent()) {
            let _ = signal::kill(front, Signal::CONT);
        }
    }
}

impl<'a> Context<'a> {
    pub const fn new(request: Request<'a>, place: Place, board: Board) -> Self {
        Self {
            config: request.config,
            manner: request.manner,
            voice: request.voice,
            inherited: request.inherited,
            place,
            board,
            report: None,
            front: None,
            host: None,
            spare: None,
        }
    }

    /// Makes this process adopt the orphans among its descendants, as PID 1 does anyway. Under some
    /// emulators that is impossible. Other inits then go on, and so does treaper in their place.
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

    pub fn policy(&self) -> Policy {
        Policy {
            manager_has_deadline: self.place.manager_has_deadline,
            at_terminal: self.place.job_control,
            ..self.config.policy
        }
    }

    pub fn rules(&self) -> Rules<'_> {
        Rules {
            config: self.config,
            hup: self.place.hup,
            job_control: self.place.job_control,
            suspends_with_signals: self.manner.suspends_with_signals,
        }
    }

    /// A signal that arrives as `from` is forwarded as `to`, or is dropped.
    pub fn report_forwarding(&self, from: Signal, to: Option<Signal>) {
        self.voice.report(&Step::Forwarding { from, to });
    }

    /// Notes for the report that a process of treaper was killed, if `trigger` says so.
    pub fn record_loss(&self, trigger: Trigger) {
        if let Some(report) = self.report {
            report.ledger.set_lost(trigger);
        }
    }
}
