//! A process without a server, which only waits and reaps: the pause container of a pod.

use std::time::Duration;

use crate::contain::Containment;
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::output::status;
use crate::pair::board::Board;
use crate::pair::context::{Context, Request};
use crate::pair::supervisor::{Role, Supervisor};
use crate::plan::event::{Event, Trigger};
use crate::plan::machine::{Plan, State};
use crate::plan::supervise;
use crate::streams::watch::Watch;
use crate::sys::signal::Signal;
use crate::sys::wait::Wait;
use crate::sys::{Errno, arrival, clock, fd, pid, prctl};
use crate::tree::Tree;
use crate::tree::reap::Left;

/// Reaps until SIGINT or SIGTERM, then stops the orphans that this process has adopted. Returns the
/// exit status.
///
/// # Errors
/// This process is not PID 1, and cannot become a subreaper.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    if pid::own() != 1 {
        prctl::become_subreaper().map_err(|errno| Error::kernel("become a subreaper", errno))?;
    }
    let place = Place::examine(
        request.inherited,
        request.config,
        request.manner,
        Vec::new(),
    )?;
    // The pause may last long. Meanwhile the file system of the working directory can be unmounted.
    fd::leave_directory();
    let mut tree = Tree::new(None, Vec::new(), Containment::Group, None);
    let mut timeout = None;
    loop {
        let arrival =
            arrival::wait_any(timeout).map_err(|errno| Error::kernel("wait for signals", errno))?;
        if let Some(Signal::TERM | Signal::INT) = arrival.map(|arrival| arrival.signal) {
            break;
        }
        let reaped = tree.reap(&mut |_, _, _| {});
        timeout = (reaped.left == Left::More).then_some(Duration::ZERO);
    }
    if Wait::any().ended().peek() == Err(Errno::CHILD) {
        return Ok(0);
    }
    let context = Context {
        config: request.config,
        manner: request.manner,
        voice: request.voice,
        inherited: request.inherited,
        place,
        board,
        report: None,
        front: None,
        spare: None,
    };
    let mut supervisor = Supervisor::new(&context, Role::Heir, None, Watch::signals_only(), tree);
    let plan = Plan::new(context.policy()).inherit(true, false, clock::now());
    let plan = supervise::run(
        &mut supervisor,
        plan,
        Some(Event::Trigger(Trigger::Terminate)),
    );
    Ok(match plan.state {
        State::Survived => status::SURVIVORS,
        _ => 0,
    })
}
