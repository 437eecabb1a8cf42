//! The life of the monitor: a child of the shim that starts the server, and runs the loop.

use crate::origin::hosts;
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::output::ledger::Lost;
use crate::output::stderr;
use crate::pair::context::Context;
use crate::pair::link::Link;
use crate::pair::monitor::Role;
use crate::plan::machine::{Plan, State};
use crate::serve::finish;
use crate::serve::prepare::Prepared;
use crate::serve::server;
use crate::sys::signal::Signal;
use crate::sys::{prctl, startup};

/// Starts the server, and stops everything that it has started. `shim` is from before the fork.
/// Returns the exit status of the monitor.
///
/// # Errors
/// The server was not started.
pub fn run(context: &Context<'_>, prepared: Prepared, shim: Link) -> Result<u8, Error> {
    separate_from_shim(&context.place)?;
    // A shim that ended before the parent-death signal was set causes no signal, so its pid is
    // compared.
    if !matches!(shim, Link::Bell(_)) && shim.is_gone() {
        if let Some(report) = context.report {
            report.ledger.set_lost(Lost::Shim);
        }
        return Err(Error::Gone("the shim is gone, so COMMAND was not started"));
    }
    // Other children of the shim are not children of the monitor, so it has no strangers.
    let mut monitor = server::start(context, prepared, Role::Monitor { shim }, Vec::new())?;
    let plan = Plan::new(context.policy());
    let (plan, status) = finish::run_loop(context, &mut monitor, plan, None)?;
    let stays = plan.state() == State::Survived && monitor.release_shim(status);
    stderr::write_deferred();
    if stays {
        monitor.reap_to_the_end();
    }
    Ok(status)
}

/// Signals to the shim's group or by its name do not reach the monitor.
fn separate_from_shim(place: &Place) -> Result<(), Error> {
    // A process group of its own, but no session: the scheduler divides processor time between
    // sessions (autogroup), so a new one would wait behind every busy one. With job control the
    // monitor leaves the session later, after it has started the server.
    if !place.job_control {
        let _ = prctl::new_group();
    }
    prctl::become_subreaper().map_err(|errno| Error::kernel("become a subreaper", errno))?;
    let _ = prctl::signal_on_parent_exit(Signal::CONT);
    startup::set_names(hosts::MONITOR);
    Ok(())
}
