//! `--finally`: a command that is run once, when the tree is gone.
//! The process that has ended the run starts it, and waits for it. If the monitor is killed
//! meanwhile, the command is a child of the shim, which waits for it instead.

use std::{ffi::OsStr, time::Duration};

use super::context::Context;
use crate::sys::clone::{self, Fork};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{Change, DYING, Ended, Wait};
use crate::sys::{Errno, arrival, clock, prctl};
use crate::{command, output::status, plan::event::Trigger};

/// The least time that the command has, also with a grace period of 0.
const LEAST: Duration = Duration::from_secs(1);

/// Runs the command, or waits for the one that the other process of treaper has started. Returns
/// its exit status, if there is one and it is known. `trigger`, `status`: how the run has ended.
pub fn run(context: &Context<'_>, trigger: Option<Trigger>, status: u8) -> Option<u8> {
    let text = context.config.finally.as_deref()?;
    let board = context.board;
    if let Some(known) = board.finally_ended() {
        return Some(known.code());
    }
    let until = clock::now() + context.config.policy.grace.max(LEAST);
    let (pid, until) = if let Some(until) = board.finally_until() {
        (Pid::new(board.finally.get() as i32), until)
    } else {
        board.set_finally_until(until);
        let started = start(context, text, trigger.map_or("", Trigger::name), status)
            .inspect_err(|errno| log::warn!("cannot start the command of --finally: {errno}"));
        (started.ok(), until)
    };
    let Some(ended) = pid.and_then(|pid| wait_for(pid, until)) else {
        log::warn!("it is unknown how the command of --finally ended");
        return None;
    };
    if ended != Ended::Exited(0) {
        log::warn!("the command of --finally {ended}");
    }
    board.set_finally_ended(ended);
    Some(ended.code())
}

/// Starts the command, as the leader of a session, which no terminal suspends.
fn start(context: &Context<'_>, text: &OsStr, reason: &str, status: u8) -> Result<Pid, Errno> {
    let claim = context.board.finally.get();
    if let Fork::Parent(pid) = clone::fork_plainly()? {
        return Ok(pid);
    }
    // If the parent was killed, the other process of treaper may have taken the command over.
    if !context.board.claim_finally(claim, pid::own()) {
        clone::exit_now(status::OWN_FAILURE.into());
    }
    let _ = prctl::new_session();
    signal::set_mask(context.inherited.mask);
    let status = status.to_string();
    let variables = [("EXIT_STATUS", &*status), ("STOP_REASON", reason)];
    let errno = command::execute_last(text, &context.place.directory, &variables);
    log::warn!("cannot execute /bin/sh for --finally: {errno}");
    clone::exit_now(status::NOT_EXECUTABLE.into())
}

/// Waits for the end of `pid`. Its group gets SIGKILL at `until`.
fn wait_for(pid: Pid, until: Duration) -> Option<Ended> {
    loop {
        let (change, now) = (Wait::child(pid).ended().peek().ok()?, clock::now());
        if let Some((_, Change::Ended(ended))) = change {
            // What it has started ends with it. Until it is reaped, no other group has its number.
            let _ = signal::kill_group(pid, Signal::KILL);
            let _ = Wait::child(pid).ended().take();
            return Some(ended);
        }
        if now >= until {
            let _ = signal::kill_group(pid, Signal::KILL);
        }
        if now >= until + DYING {
            return None;
        }
        let next = if now < until { until } else { until + DYING };
        // A signal to treaper changes nothing any more.
        if arrival::wait_any(Some(next.saturating_sub(now))).is_err() {
            clock::pause(Duration::from_millis(10));
        }
    }
}
