//! What is the same for every process of treaper in one run.

use std::ffi::OsStr;

use crate::origin::place::Place;
use crate::output::progress::{Step, Voice};
use crate::output::report::Report;
use crate::pair::board::Board;
use crate::plan::policy::Policy;
use crate::relay::RelayHandle;
use crate::settings::config::Config;
use crate::settings::manner::Manner;
use crate::streams::forward::Rules;
use crate::sys::signal::Signal;
use crate::sys::startup::Inherited;
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
    /// The third process, if there are further writers of the server's stdin.
    pub relay: Option<RelayHandle>,
    /// What `--spare` leaves alone.
    pub spare: Option<Spare>,
}

impl Context<'_> {
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
