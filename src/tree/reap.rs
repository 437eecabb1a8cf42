//! Reaping: takes every child that has ended, and finds out whether it is the server or an orphan.
#![forbid(unsafe_code)]

use crate::output::status::Ended;
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Change, Found};
use crate::sys::{pid, proc};
use crate::tree::Tree;

/// What one drain found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaped {
    /// How the server ended, if it did.
    pub server: Option<Ended>,
    /// The last suspension or resumption of the server.
    pub server_job: Option<JobChange>,
    /// How many children have ended.
    pub ended: u64,
    /// How many ended by SIGKILL.
    pub killed: u32,
}

/// What job control did to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// Suspended by this signal.
    Suspended(Signal),
    Resumed,
}

/// What is left after a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No process of the tree.
    Empty,
    /// Processes that have not ended.
    Living,
    /// There is more to take. The caller drains again after it has handled everything else.
    More,
}

/// The most changes that one drain takes. A tree can make orphans as fast as they are reaped, and
/// deadlines and triggers must not wait until it no longer does.
const BATCH: usize = 1000;

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub pid: i32,
    pub ended: Ended,
    pub is_server: bool,
}

/// Takes changes until there are none, at most [`BATCH`]. Calls `each` for each child that has ended.
pub fn drain(tree: &mut Tree, reaped: &mut Reaped, each: &mut dyn FnMut(End)) -> Left {
    for _ in 0..BATCH {
        match wait::any() {
            Found::NoChildren => return Left::Empty,
            Found::Nothing if only_strangers_left(tree) => return Left::Empty,
            Found::Nothing => return Left::Living,
            Found::Child(pid, change) => take(tree, reaped, (pid, change), each),
        }
    }
    Left::More
}

fn take(
    tree: &mut Tree,
    reaped: &mut Reaped,
    (pid, change): (i32, Change),
    each: &mut dyn FnMut(End),
) {
    let ended = match change {
        Change::Exited(code) => Some(Ended::Exited(code)),
        Change::Killed(signal) => Some(Ended::Killed(signal)),
        Change::Suspended(_) | Change::Trapped | Change::Resumed => None,
    };
    reaped.ended += u64::from(ended.is_some());
    tree.strangers
        .retain(|stranger| ended.is_none() || *stranger != pid);
    if let Some(server) = tree
        .server
        .as_mut()
        .filter(|server| server.pid.get() == pid && !server.reaped)
    {
        reaped.server_job = match change {
            Change::Suspended(number) => {
                Signal::from_number(number.into()).map(JobChange::Suspended)
            }
            Change::Resumed => Some(JobChange::Resumed),
            // A tracing stop is no suspension by job control: a shell could not resume the server.
            Change::Trapped => reaped.server_job,
            Change::Exited(_) | Change::Killed(_) => None,
        };
        server.suspended = Some(matches!(change, Change::Suspended(_)));
        if let Some(ended) = ended {
            server.reaped = true;
            reaped.server = Some(ended);
            let is_server = true;
            each(End {
                pid,
                ended,
                is_server,
            });
        }
    } else if let Some(ended) = ended {
        let is_server = false;
        each(End {
            pid,
            ended,
            is_server,
        });
    }
    if ended == Some(Ended::Killed(Signal::KILL.number())) {
        reaped.killed += 1;
    }
}

/// Whether only children are left that this process had before it executed treaper. They are not of the tree, so the
/// tree is empty then.
fn only_strangers_left(tree: &Tree) -> bool {
    let strangers = &tree.strangers;
    if strangers.is_empty() || tree.living_server().is_some() {
        return false;
    }
    let mut all = true;
    match proc::children(pid::own(), &mut |child| all &= strangers.contains(&child)) {
        Ok(()) => all,
        Err(proc::FOREIGN) => wait::children().all(|child| strangers.contains(&child.get())),
        Err(_) => false,
    }
}
