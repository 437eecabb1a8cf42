//! Which processes there are: a pair, or one process in both roles. Each has a file that is its
//! life from its first step to its last: `serve/monitor.rs`, `serve/shim.rs`, `serve/pause.rs`;
//! that of the only process is `alone`.

mod finish;
mod monitor;
pub mod pause;
mod prepare;
mod server;
mod shim;

use crate::contain::pidns;
use crate::origin::hosts::Watched;
use crate::output::error::Error;
use crate::output::report::{Facts, Report};
use crate::pair::context::{Context, Request};
use crate::pair::link::{self, Link};
use crate::pair::monitor::Role;
use crate::plan::event::Trigger;
use crate::plan::machine::Plan;
use crate::relay;
use crate::settings::config::Config;
use crate::settings::manner::Name;
use crate::sys::clone::{self, Fork};
use crate::sys::pid;
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
    let (mut context, mut prepared) = prepare(request, report, descriptors)?;
    // With further writers this process goes on as the child of the one that the host has started.
    if request.config.writers.are_used() {
        // From then on stdin is that of the relay.
        prepared.hosts.hold_stdin();
    }
    let relay = relay::start(request.config, &context.place, prepared.hosts.parent)?;
    let (front, _sockets) = relay.unzip();
    prepared.settle(&mut context, front)?;
    let Config { guard, .. } = request.config;
    // The users of another init expect one process there.
    let is_alone = !*guard || pid::own() == 1 && context.manner.name == Name::OtherInit;
    if prepared.containment.is_namespace() || !is_alone {
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
    let plan = Plan::new(context.policy());
    let (_, status) = finish::run_loop(context, &mut monitor, plan, None)?;
    // It removes the control group.
    drop(monitor);
    finish::end_treaper(context, status);
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(context: &Context<'_>, mut prepared: Prepared) -> Result<u8, Error> {
    let namespace = prepared.containment.is_namespace();
    if namespace {
        // The monitor will not see the processes outside.
        prepared.hosts.hold_stdin();
    }
    let (bell, shim, watched) = if namespace {
        let (read, write) = link::bell().map_err(|errno| Error::kernel("make a pipe", errno))?;
        (Some(read), Link::Bell(write), None)
    } else {
        let (pid, trigger) = (pid::own(), Trigger::ShimKilled);
        // Both are opened before the fork, so they cannot be those of another process.
        let pidfd = pidfd::open(pid).ok();
        let watched = pidfd::open(pid).map(|fd| Watched { pid, fd, trigger });
        (None, Link::Parent { pid, pidfd }, watched.ok())
    };
    let in_job = context.place.job_control;
    let forked = if namespace {
        pidns::fork(in_job)?
    } else {
        clone::fork(in_job).map_err(|errno| Error::kernel("start the monitor", errno))?
    };
    match forked {
        Fork::Parent(monitor) => {
            drop((shim, watched));
            shim::run(context, prepared, monitor, bell)
        }
        Fork::Child => {
            drop(bell);
            prepared.hosts.watched.extend(watched);
            monitor::run(context, prepared, shim)
        }
    }
}
