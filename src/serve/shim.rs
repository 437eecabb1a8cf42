//! The life of the shim: it guards the monitor, and if that is killed, it stops the tree itself.

use std::os::fd::OwnedFd;

use crate::contain::Containment;
use crate::output::error::Error;
use crate::output::progress;
use crate::pair::context::Context;
use crate::pair::monitor::Monitor;
use crate::pair::shim::Shim;
use crate::plan::event::{Event, Trigger};
use crate::serve::finish;
use crate::serve::prepare::Prepared;
use crate::sys::pid::Pid;
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Ended};
use crate::sys::{Errno, clock, fd};
use crate::tree::{Server, StopSent, Tree};

/// Guards `monitor`. `bell`: if the monitor is in a PID namespace of its own. Returns the exit
/// status of treaper.
///
/// # Errors
/// The server was not started.
pub fn run(
    context: &Context<'_>,
    prepared: Prepared,
    monitor: Pid,
    bell: Option<OwnedFd>,
) -> Result<u8, Error> {
    // The shim keeps no pidfd of the host, and starts nothing.
    let (parent, containment) = (prepared.hosts.parent, prepared.containment);
    drop((prepared.hosts.watched, prepared.command, prepared.writes));
    fd::raise_limit(fd::Resource::RLIMIT_CPU);
    let mut shim = Shim::new(context, monitor, parent, bell);
    fd::give_up(fd::STDIN);
    fd::give_up(fd::STDOUT);
    context.place.release_inherited();
    // Terminals open the next pane where the leader of the foreground job is.
    if !context.place.job_control {
        context.place.release_directory();
    }
    let status = match shim.run() {
        Ok(Ended::Exited(status)) => status,
        Ok(Ended::Killed(_)) => take_over(shim, context, containment, None)?,
        Err(broken) => take_over(shim, context, containment, Some(broken))?,
    };
    finish::end_treaper(context, status);
    Ok(status)
}

/// The monitor was killed, so the shim becomes the *heir*, and stops the tree. `broken`: why the
/// shim cannot wait.
fn take_over(
    shim: Shim<'_>,
    context: &Context<'_>,
    level: Containment,
    broken: Option<(&str, Errno)>,
) -> Result<u8, Error> {
    let (board, policy) = (context.board, context.policy());
    let killed = Event::Trigger(Trigger::MonitorKilled);
    let namespace = level.is_namespace();
    let ending = shim.ending_init();
    if namespace && board.ended().is_none() {
        // The monitor was the init of a namespace. With it the kernel kills all processes in it.
        let trigger = board.plan(policy).step(killed, clock::now()).0.trigger();
        let by = (trigger, broken, board.server());
        if let (Some(Trigger::MonitorKilled), None, Some(_)) = by {
            progress::stopped_unasked(Trigger::MonitorKilled, Signal::KILL);
        }
        if ending.is_none() {
            board.set_ended(Ended::Killed(Signal::KILL.number()));
        }
    }
    let strangers = shim.into_strangers();
    // In a namespace, its pid means nothing here. If it is not a child of this process by now, its
    // pid may belong to another process.
    let server = board.server().filter(|_| !namespace).map(|pid| Server {
        pid,
        pidfd: None,
        standing: context.place.standing,
        leader: board.leader().map(|leader| (leader, None)),
        reaped: board.ended().is_some() || !wait::is_child(pid) || strangers.contains(&pid.get()),
        suspended: None,
        stop_sent: if board.stop_sent.get() {
            StopSent::ByTreaper
        } else {
            StopSent::PerhapsByKernel
        },
    });
    let containment = if namespace { Containment::Group } else { level };
    let ledger = context.report.map(|report| report.ledger);
    let mut tree = Tree::new(server, strangers, containment, ledger);
    tree.ending_init = ending;
    let mut monitor = Monitor::heir(context, tree);
    if let Some((what, errno)) = broken {
        monitor.give_up(what, errno);
    }
    let plan = board.resume(policy, clock::now());
    finish::run_loop(context, &mut monitor, plan, Some(killed)).map(|(_, status)| status)
}
