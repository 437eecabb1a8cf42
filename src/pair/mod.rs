//! The processes of treaper: a pair of `shim` and `monitor`, or one process in both roles. The loop
//! that stops the tree is `supervisor`, whichever process runs it.

pub mod board;
pub mod bound;
pub mod context;
mod finally;
pub mod link;
mod monitor;
mod shim;
pub mod supervisor;

use crate::contain::pidns;
use crate::origin::place::Place;
use crate::output::{error::Error, stderr};
use crate::plan::{event::Trigger, machine::Plan};
use crate::streams::watch::Source;
use crate::sys::clone::{self, Fork};
use crate::sys::signal;
use crate::sys::{apart, fd, pid, pidfd, tty, wait::Ended};
use context::{Context, Prepared};
use link::Link;
use supervisor::Role;

/// The shim, and in its child the monitor.
pub fn run(context: &Context<'_>, prepared: &mut Prepared) -> Result<u8, Error> {
    let in_job = context.place.job_control;
    // Opened before the fork, so it is not that of another process. A PID namespace can watch it.
    let own = pid::own();
    let shim = pidfd::open(own).ok().map(fd::keep);
    if let Some(shim) = shim {
        let source = Source::Process(shim, Trigger::ShimKilled);
        prepared.watch.add(source);
    }
    let (forked, bell, shim) = if prepared.containment.is_namespace() {
        // The monitor will not see the processes outside.
        prepared.hosts.hold_stdin();
        let pipe = fd::resuming_pipe();
        let (read, write) = pipe.map_err(|errno| Error::kernel("make a pipe", errno))?;
        (pidns::fork(in_job)?, Some(read), Link::Bell(write))
    } else {
        let forked = clone::fork(in_job);
        let forked = forked.map_err(|errno| Error::no_process("start the monitor", errno))?;
        (forked, None, Link::Parent(own, shim))
    };
    match forked {
        Fork::Parent(monitor) => {
            drop(shim);
            shim::run(context, prepared, monitor, bell)
        }
        Fork::Child => {
            drop(bell);
            monitor::run(context, prepared, shim)
        }
    }
}

/// The only process, with `--no-guard` or as PID 1 under the name of another init.
pub fn run_alone(context: &Context<'_>, prepared: &mut Prepared) -> Result<u8, Error> {
    let strangers = context.place.strangers.clone();
    let mut supervisor = monitor::start_server(context, prepared, Role::Alone, strangers)?;
    let (_, status) = supervisor.run(Plan::new(context.policy()), None)?;
    // It removes the control group.
    drop(supervisor);
    end_treaper(context, status);
    Ok(status)
}

/// Closes `streams` and the inherited descriptors, once the server has its own copies: otherwise
/// sockets and pipes would stay open after it has closed them. `helpers`: see [`apart::give_up`].
pub fn release(streams: &[i32], place: &Place, helpers: &mut Vec<i32>) {
    for descriptor in streams.iter().chain(&place.server_descriptors) {
        apart::give_up(*descriptor, helpers);
    }
}

/// Ends treaper as the shell or the manager expects it, in its last process. A shell gets its
/// terminal back, whose foreground group may be a group of the tree that is gone. A job in the
/// background leaves the terminal alone, since the shell may take it at any moment.
/// If a signal has ended the server, the same signal ends treaper: so a shell prints "Terminated"
/// or ends a loop at Ctrl-C, and systemd distinguishes a crash from a stop. `$?` is 128 + n anyway.
fn end_treaper(context: &Context<'_>, status: u8) {
    stderr::write_deferred();
    let (board, place) = (context.board, &context.place);
    if board.in_foreground.get() {
        tty::reclaim_foreground(place.group);
    }
    let dies = |ended: &Ended| place.dies_as_server && ended.code() == status;
    if let Some(signal) = board.ended().filter(dies).and_then(Ended::signal) {
        signal::die_of(signal);
    }
}
