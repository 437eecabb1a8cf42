//! A process that only holds a place: the pause of a pod.
#![forbid(unsafe_code)]

use crate::board::Board;
use crate::config::Config;
use crate::error::Error;
use crate::event::{Event, Trigger};
use crate::job;
use crate::kill::Killer;
use crate::linux::{Linux, Role};
use crate::plan::{Plan, State};
use crate::status;
use crate::supervise;
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Found};
use crate::sys::{arrival, pid, prctl};
use crate::watch::Watch;

/// Reaps until SIGINT or SIGTERM, then stops what has been left to us; returns the exit status.
///
/// # Errors
/// We are not PID 1, and cannot be a subreaper.
pub fn run(config: &Config) -> Result<u8, Error> {
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    if pid::own() != 1 {
        prctl::become_subreaper().map_err(|errno| Error::kernel("become a subreaper", errno))?;
    }
    // We may be there for long, and hold nobody's directory.
    let _ = std::env::set_current_dir("/");
    loop {
        match arrival::wait_any(None).map(|arrival| arrival.signal) {
            Some(Signal::TERM | Signal::INT) => break,
            _ => while matches!(wait::any(), Found::Child(..)) {},
        }
    }
    if !wait::have_children() {
        return Ok(0);
    }
    let mut linux = Linux {
        config,
        role: Role::Alone { parent: None },
        watch: Watch::signals_only(),
        killer: Killer::new(None, Vec::new(), None),
        board,
        relay: None,
        job_control: false,
        alone: job::Alone::default(),
        manager: None,
        forward_hup: true,
        pending: Some(Event::Trigger(Trigger::Terminate)),
        reap_first: true,
        reap_again: false,
        look_again: false,
        killed: 0,
        hangup_asked: false,
        unasked: None,
        stopping_since: None,
    };
    let plan = Plan::resume(config.plan, State::Running, None, true);
    let plan = supervise::run(&mut linux, plan);
    Ok(match plan.state() {
        State::GivenUp => status::SURVIVORS,
        _ => 0,
    })
}
