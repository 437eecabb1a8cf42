//! Which processes there are: a pair, or one process in both roles. Each has a file that is its
//! life from its first step to its last: `serve/monitor.rs`, `serve/shim.rs`, `serve/pause.rs`;
//! that of the only process is [`alone`].

mod finish;
mod monitor;
pub mod pause;
mod prepare;
mod server;
mod shim;

use crate::contain::pidns;
use crate::output::error::Error;
use crate::output::report::{Facts, Report};
use crate::pair::context::{Context, Request};
use crate::pair::link::{self, Link};
use crate::pair::monitor::Role;
use crate::plan::machine::Plan;
use crate::settings::config::Config;
use crate::sys::clone::{self, Fork};
use crate::sys::pid::{self, Pid};
use crate::sys::{fd, pidfd};
use prepare::{Prepared, prepare};

/// Runs the server, and stops everything that it has started. Returns the exit status of this
/// process.
///
/// # Errors
/// The server was not started.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let mut inherited = fd::inherited();
    let report = match &request.config.report {
        Some(to) => Some(Report::prepare(to, &mut inherited)?),
        None => None,
    };
    let result = start(request, report.as_ref(), inherited);
    if let (Err(error), Some(report)) = (&result, &report) {
        report.write(&Facts {
            exit_status: error.status(),
            ..request.config.facts()
        });
    }
    result
}

/// `descriptors`: those that the server inherits.
fn start<'a>(
    request: Request<'a>,
    report: Option<&'a Report>,
    descriptors: Vec<i32>,
) -> Result<u8, Error> {
    let (context, prepared) = prepare(request, report, descriptors)?;
    let Config { guard, .. } = request.config;
    if prepared.containment.is_namespace() || *guard && pid::own() != 1 {
        pair(&context, prepared)
    } else {
        alone(&context, prepared)
    }
}

/// One process in both roles.
fn alone(context: &Context<'_>, prepared: Prepared) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: prepared.hosts.parent,
    };
    let strangers = context.place.strangers.clone();
    let mut monitor = server::start(context, prepared, role, strangers)?;
    let plan = Plan::new(context.place.policy);
    let (_, status) = finish::run_loop(context, &mut monitor, plan, None)?;
    // It removes the control group.
    drop(monitor);
    finish::end_treaper(context, status);
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(context: &Context<'_>, prepared: Prepared) -> Result<u8, Error> {
    let namespace = prepared.containment.is_namespace();
    let (bell, shim, pidfd) = if namespace {
        let (read, write) = link::bell().map_err(|errno| Error::kernel("make a pipe", errno))?;
        (Some(read), Link::Bell(write), None)
    } else {
        let shim = Pid::new(pid::own()).map_or(Link::Gone, Link::Parent);
        // It is opened before the fork, so it cannot be that of another process.
        (None, shim, pidfd::open(pid::own()).ok())
    };
    let in_job = context.place.job_control;
    let forked = if namespace {
        pidns::fork(in_job)?
    } else {
        clone::fork(in_job).map_err(|errno| Error::kernel("start the monitor", errno))?
    };
    match forked {
        Fork::Parent(monitor) => {
            drop((shim, pidfd));
            shim::run(context, prepared, monitor, bell)
        }
        Fork::Child => {
            drop(bell);
            monitor::run(context, prepared, shim, pidfd)
        }
    }
}
