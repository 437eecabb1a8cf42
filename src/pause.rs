//! A process without a server, which only waits and reaps: the pause container of a pod.

use std::time::Duration;

use crate::contain::Containment;
use crate::origin::place::Place;
use crate::output::{error::Error, status};
use crate::pair::board::Board;
use crate::pair::context::{Context, Request};
use crate::pair::supervisor::{Role, Supervisor};
use crate::plan::event::{Event, Trigger};
use crate::plan::machine::{Plan, State};
use crate::streams::watch::Watch;
use crate::sys::{arrival, clock, fd, pid, prctl, signal::Signal};
use crate::tree::{Tree, reap::Left};

/// Reaps until SIGINT or SIGTERM, then stops the orphans that are left. Returns the exit status.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let config = request.config;
    let failed = |what| move |errno| Error::kernel(what, errno);
    let board = Board::shared().map_err(failed("map memory"))?;
    if pid::own() != 1 {
        prctl::become_subreaper().map_err(failed("become a subreaper"))?;
    }
    let place = Place::examine(request.inherited, config, request.manner)?;
    // The pause may last long, and the file system of the working directory may be unmounted.
    fd::leave_directory();
    let mut tree = Tree::new(None, Vec::new(), Containment::Group);
    let mut timeout = None;
    loop {
        let arrival = arrival::wait_any(timeout).map_err(failed("wait for signals"))?;
        if let Some(Signal::TERM | Signal::INT) = arrival.map(|arrival| arrival.signal) {
            break;
        }
        let reaped = tree.reap(&mut |_, _, _| {});
        timeout = (reaped.left == Left::More).then_some(Duration::ZERO);
    }
    let context = Context::new(request, place, board);
    let mut supervisor = Supervisor::new(&context, Role::Heir, None, Watch::default(), tree);
    let plan = Plan::new(context.policy()).inherit(true, false, clock::now());
    let terminate = Event::Trigger(Trigger::Terminate);
    let plan = plan.run(&mut supervisor, Some(terminate));
    let survived = plan.state == State::Survived;
    Ok(if survived { status::SURVIVORS } else { 0 })
}
