//! `--finally`: a command that is run once, when the tree is gone.
//!
//! The process that has ended the run starts it, and waits for it. If the monitor is killed
//! meanwhile, the command is a child of the shim, which waits for it instead.

use std::ffi::OsStr;
use std::time::Duration;

use crate::command;
use crate::output::{status, stderr};
use crate::pair::context::Context;
use crate::plan::event::Trigger;
use crate::settings::config;
use crate::sys::clone::{self, Fork};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{Change, Ended, Wait};
use crate::sys::{Errno, arrival, clock, prctl};

/// The command has at least this long, also with a grace period of 0.
const LEAST: Duration = Duration::from_secs(1);
/// How long its end is waited for after SIGKILL, which may come late (a file system that hangs).
const DYING: Duration = Duration::from_millis(500);

/// Runs the command, or waits for the one that the other process of treaper has started. Returns
/// its exit status. `None`: there is none, or it is unknown. `trigger` and `status`: why and how the
/// run has ended.
pub fn run(context: &Context<'_>, trigger: Option<Trigger>, status: u8) -> Option<u8> {
    let text = context.config.finally.as_deref()?;
    let board = context.board;
    // What was said about the stop comes before what the command says.
    stderr::write_deferred();
    let until = board.finally_until().unwrap_or_else(|| {
        let until = clock::now() + context.config.policy.grace.max(LEAST);
        board.set_finally_until(until);
        match start(context, text, trigger.map_or("", Trigger::name), status) {
            Ok(pid) => board.set_finally(pid),
            Err(errno) => log::warn!("cannot start the command of --finally: {errno}"),
        }
        until
    });
    let ended = board.finally().and_then(|pid| wait_for(pid, until));
    match ended {
        Some(Ended::Exited(0)) => {}
        Some(ended) => log::warn!("the command of --finally {ended}"),
        None => log::warn!("it is unknown how the command of --finally ended"),
    }
    ended.map(Ended::code)
}

/// Starts the command, as the leader of a group.
fn start(context: &Context<'_>, text: &OsStr, reason: &str, status: u8) -> Result<Pid, Errno> {
    if let Fork::Parent(pid) = clone::fork_plainly()? {
        return Ok(pid);
    }
    // The parent may be killed at any time.
    if let Some(own) = Pid::new(pid::own()) {
        context.board.set_finally(own);
    }
    let _ = prctl::new_group();
    signal::set_mask(context.inherited.mask);
    let variables = [
        ("EXIT_STATUS", &*status.to_string()),
        ("STOP_REASON", reason),
    ];
    // A treaper in it must not run it again.
    let without = config::variable("finally");
    let errno = command::execute_last(text, &context.place.directory, &variables, &without);
    log::warn!("cannot execute /bin/sh for --finally: {errno}");
    clone::exit_child(status::NOT_EXECUTABLE.into())
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
