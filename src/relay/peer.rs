//! Which processes may inject: those of the relay's own uid that are not of the tree.
//!
//! A process of the tree descends from the process that started the relay, since that one is a
//! subreaper, and lives as long as the relay takes new writers. So a writer is of the tree if the
//! chain of its parents leads there, except through a child that was there before treaper. The
//! chain is read twice, with the time at which each of its processes was started. If both are the
//! same, and the writer still lives, it was the chain of this writer at one moment in between. A
//! writer that has ended before cannot be looked at, and is refused: it might have been of the
//! tree.

use std::os::fd::{AsFd, BorrowedFd};

use crate::output::error;
use crate::sys::namespace;
use crate::sys::peer::{self, Credentials};
use crate::sys::{Errno, pid, pidfd, proc};

/// How often a chain that changes is read again.
const MAX_LOOKS: usize = 16;
/// Longer than any chain of parents.
const MAX_CHAIN: usize = 10_000;

/// A process, and the time of its start.
type Link = (i32, u64);

/// What is known of the tree.
#[derive(Debug)]
pub struct Family {
    /// The process that started the relay.
    top: i32,
    /// Its children that were there before, which are none of the tree.
    strangers: Vec<Link>,
}

impl Family {
    /// To be called by the process that will start the relay.
    pub fn of_this_process(strangers: &[i32]) -> Self {
        let link = |number: &i32| Some((*number, parent_and_start(*number)?.1));
        Self {
            top: pid::own(),
            strangers: strangers.iter().filter_map(link).collect(),
        }
    }

    /// Whether the process `pid`, which has connected `socket`, is of the tree. `None`: it has
    /// ended, or cannot be looked at.
    fn has(&self, pid: i32, socket: BorrowedFd<'_>) -> Option<bool> {
        let process = match peer::process(socket) {
            Ok(process) => Some(process),
            // An older kernel knows the number alone.
            Err(Errno::NOPROTOOPT) => None,
            Err(_) => return None,
        };
        let mut chain = self.chain(pid)?;
        let is_stable = (0..MAX_LOOKS).any(|_| {
            let again = self.chain(pid);
            again.is_some_and(|again| std::mem::replace(&mut chain, again) == chain)
        });
        let has_ended = process.is_some_and(|process| pidfd::has_ended(process.as_fd()));
        // Without its parent the relay does not know the tree.
        let is_known = is_stable && !has_ended && pid::parent() == self.top;
        is_known.then_some(chain.1)
    }

    /// `pid` and its parents, and whether they are of the tree. `None`: it cannot be read to its
    /// end.
    fn chain(&self, pid: i32) -> Option<(Vec<Link>, bool)> {
        let (mut links, mut current) = (Vec::new(), pid);
        while links.len() < MAX_CHAIN {
            if current == self.top {
                let is_stranger = |link| self.strangers.contains(link);
                let is_of_tree = !links.last().is_some_and(is_stranger);
                return Some((links, is_of_tree));
            }
            if current == 0 {
                return Some((links, false));
            }
            let (parent, started) = parent_and_start(current)?;
            links.push((current, started));
            current = parent;
        }
        None
    }
}

/// Whether the process that has connected `socket` may inject.
///
/// # Errors
/// Why not.
pub fn check(socket: BorrowedFd<'_>, family: &Family) -> Result<(), String> {
    let Credentials { pid, uid } = peer::credentials(socket).map_err(error::describe)?;
    if uid != namespace::own_ids().0 {
        return Err(format!("pid {pid} has another uid, {uid}"));
    }
    if pid == 0 {
        // It is outside of the relay's PID namespace, which no process of the tree can leave.
        return Ok(());
    }
    match family.has(pid, socket) {
        Some(false) => Ok(()),
        Some(true) => Err(format!("pid {pid} is a process of the server's own tree")),
        None => Err(format!(
            "whether pid {pid} is a process of the server's own tree is unknown: it has ended, or cannot be looked at"
        )),
    }
}

/// The parent of a process, and the time of its start. If `/proc` hides the process, its pidfd
/// still shows the parent.
fn parent_and_start(number: i32) -> Option<(i32, u64)> {
    if let Ok(stat) = proc::stat(number) {
        return Some((stat.parent, stat.started));
    }
    let fd = pidfd::open(number).ok()?;
    pidfd::parent(fd.as_fd()).ok().map(|parent| (parent, 0))
}
