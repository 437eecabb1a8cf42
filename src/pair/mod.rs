//! The processes of treaper: a pair of shim and monitor, or one process in both roles. `shim` and
//! `monitor` are the lives of the pair, from their first step to their last. The loop that stops
//! the tree is `supervisor`, whichever process runs it.

pub mod board;
pub mod bound;
pub mod context;
pub mod end;
mod finally;
pub mod link;
mod monitor;
mod shim;
pub mod supervisor;

use crate::contain::pidns;
use crate::origin::hosts::Watched;
use crate::output::error::Error;
use crate::plan::event::Trigger;
use crate::plan::machine::Plan;
use crate::sys::clone::{self, Fork};
use crate::sys::signal::Signal;
use crate::sys::{fd, pid, pidfd};
use context::{Context, Prepared};
use link::Link;
use supervisor::Role;

/// The shim, and in its child the monitor.
///
/// # Errors
/// The server was not started.
pub fn run(context: &Context<'_>, mut prepared: Prepared) -> Result<u8, Error> {
    let namespace = prepared.containment.is_namespace();
    let (bell, shim, watched) = if namespace {
        // The monitor will not see the processes outside.
        prepared.hosts.hold_stdin();
        let pipe = fd::signalling_pipe(Signal::CONT);
        let (read, write) = pipe.map_err(|errno| Error::kernel("make a pipe", errno))?;
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
        clone::fork(in_job).map_err(|errno| Error::no_process("start the monitor", errno))?
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

/// The only process, with `--no-guard` or as PID 1 under the name of another init. Returns the exit
/// status of treaper.
///
/// # Errors
/// The server was not started.
pub fn run_alone(context: &Context<'_>, prepared: Prepared) -> Result<u8, Error> {
    let strangers = context.place.strangers.clone();
    let mut supervisor = monitor::start_server(context, prepared, Role::Alone, strangers)?;
    let (_, status) = supervisor.run(Plan::new(context.policy()), None)?;
    // It removes the control group.
    drop(supervisor);
    end::end_treaper(context, status);
    Ok(status)
}
