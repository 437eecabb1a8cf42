//! What every process does last: the loop, and the way in which treaper ends.

use crate::command;
use crate::output::error::Error;
use crate::output::stderr;
use crate::pair::context::Context;
use crate::pair::monitor::Monitor;
use crate::plan::event::Event;
use crate::plan::machine::{Plan, State};
use crate::plan::supervise;
use crate::sys::exec::Failure;

/// Runs the loop until the tree is empty, or treaper gives up, and reports that. `first`: an event
/// from before the loop. Returns the last plan, and the exit status.
///
/// # Errors
/// The exec of the server has failed. Then the status of the new process means nothing.
pub fn run_loop(
    context: &Context<'_>,
    monitor: &mut Monitor<'_>,
    plan: Plan,
    first: Option<Event>,
) -> Result<(Plan, u8), Error> {
    let plan = supervise::run(monitor, plan, first);
    let is_missing = context.board.server().is_none();
    let failure = context.board.failure();
    let failure = failure.or(is_missing.then_some(Failure::Orphaned));
    if let Some(failure) = failure.filter(|_| plan.state() == State::Done) {
        let directory = &context.place.directory;
        return Err(command::error(failure, context.command(), directory));
    }
    let status = monitor.finish(&plan);
    monitor.write_report(plan.trigger(), status);
    Ok((plan, status))
}

/// In the last process of treaper: ends as the server has.
pub fn end_treaper(context: &Context<'_>, status: u8) {
    stderr::write_deferred();
    let board = context.board;
    let in_foreground = board.in_foreground.get();
    context
        .place
        .end_as_server(board.ended(), in_foreground, status);
}
