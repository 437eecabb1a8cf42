//! Which processes may inject: those of the relay's own uid that are not of the tree.
//! A writer is of the tree if the chain of its parents leads to the child of the relay, which is a
//! subreaper. The chain is read twice, with the time at which each process was started. If both are
//! the same, and the writer still lives, it was the chain of this writer at one moment in between.
//! A writer that has ended might have been of the tree, and is refused.

use std::os::fd::{AsFd, BorrowedFd};

use crate::output::error;
use crate::sys::pid::Pid;
use crate::sys::{Errno, namespace, peer, pidfd, proc, wait};

/// How often a chain that changes is read again.
const MAX_LOOKS: usize = 16;
/// Longer than any chain of parents.
const MAX_CHAIN: usize = 10_000;

/// Whether the peer of `socket` may inject, or why not. `top`: the child of the relay.
pub fn check(socket: BorrowedFd<'_>, top: Pid) -> Result<(), String> {
    let found = peer::credentials(socket).map_err(error::describe)?;
    let (pid, uid) = (found.pid(), found.uid());
    if uid != namespace::own_ids().0 {
        return Err(format!("pid {pid} has another uid, {uid}"));
    }
    if pid == 0 {
        // It is outside of the relay's PID namespace, which no process of the tree can leave.
        return Ok(());
    }
    match is_of_tree(pid, socket, top) {
        Some(false) => Ok(()),
        Some(true) => Err(format!("pid {pid} is a process of the server's own tree")),
        None => Err(format!(
            "whether pid {pid} is a process of the server's own tree is unknown: it has ended, or cannot be looked at"
        )),
    }
}

/// `None`: the process `pid`, which is the peer of `socket`, has ended or cannot be looked at.
fn is_of_tree(pid: i32, socket: BorrowedFd<'_>, top: Pid) -> Option<bool> {
    let process = match peer::process(socket) {
        Ok(process) => Some(process),
        // An older kernel knows the number alone.
        Err(Errno::NOPROTOOPT) => None,
        Err(_) => return None,
    };
    let mut seen = chain(pid, top)?;
    let is_stable = (0..MAX_LOOKS).any(|_| {
        let again = chain(pid, top);
        again.is_some_and(|again| std::mem::replace(&mut seen, again) == seen)
    });
    let has_ended = process.is_some_and(|process| pidfd::has_ended(process.as_fd()));
    // Without its child the relay does not know the tree.
    let lives = wait::is_child(top) && !wait::Wait::child(top).ended().has_come();
    (is_stable && !has_ended && lives).then_some(seen.1)
}

/// `pid` and its parents with the times of their starts, and whether they lead to `top`.
fn chain(pid: i32, top: Pid) -> Option<(Vec<(i32, u64)>, bool)> {
    let (mut links, mut current) = (Vec::new(), pid);
    while links.len() < MAX_CHAIN {
        if [top.get(), 0].contains(&current) {
            return Some((links, current != 0));
        }
        let (parent, started) = match proc::stat(current) {
            Ok(stat) => (stat.parent, stat.started),
            // If `/proc` hides the process, its pidfd still shows the parent.
            Err(_) => (pidfd::parent(pidfd::open(current).ok()?.as_fd()).ok()?, 0),
        };
        links.push((current, started));
        current = parent;
    }
    None
}
