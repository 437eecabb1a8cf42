//! Which processes may inject: those of the relay's own uid that are not of the tree.
//!
//! A process of the tree descends from the process that started the relay, since that one is a subreaper, and lives as
//! long as the relay takes new writers. So a writer is of the tree if the chain of its parents leads there, except
//! through a child that was there before treaper. The chain is read twice, with the time at which each of its processes
//! was started. If both are the same, and the writer still lives, it was the chain of this writer at one moment in
//! between. A writer that has ended before cannot be looked at, and is refused: it might have been of the tree.
#![forbid(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::namespace;
use crate::sys::peer::{self, Credentials};
use crate::sys::{Errno, pid, pidfd, proc};

/// Why a writer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    OtherUser {
        pid: i32,
        uid: u32,
    },
    OfTheTree {
        pid: i32,
    },
    /// It has ended, or cannot be looked at.
    Unknown {
        pid: i32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherUser { pid, uid } => write!(f, "pid {pid} has another uid, {uid}"),
            Self::OfTheTree { pid } => write!(f, "pid {pid} is a process of the server's own tree"),
            Self::Unknown { pid } => write!(
                f,
                "whether pid {pid} is a process of the server's own tree is unknown: it has ended, or cannot be looked at"
            ),
        }
    }
}

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
    #[must_use]
    pub fn of_this_process(strangers: &[i32]) -> Self {
        Self {
            top: pid::own(),
            strangers: strangers
                .iter()
                .filter_map(|number| Some((*number, parent_and_start(*number)?.1)))
                .collect(),
        }
    }
}

/// Whether the process that has connected `socket` may inject.
///
/// # Errors
/// Why not.
pub fn check(socket: BorrowedFd<'_>, family: &Family) -> Result<(), Refusal> {
    let top = family.top;
    let Ok(Credentials { pid, uid }) = peer::credentials(socket) else {
        return Err(Refusal::Unknown { pid: 0 });
    };
    if uid != namespace::own_ids().0 {
        return Err(Refusal::OtherUser { pid, uid });
    }
    if pid == 0 {
        // It is outside of the relay's PID namespace, which no process of the tree can leave.
        return Ok(());
    }
    let unknown = Refusal::Unknown { pid };
    let process = match peer::process(socket) {
        Ok(process) => Some(process),
        // An older kernel knows the number alone.
        Err(Errno::NOPROTOOPT) => None,
        Err(_) => return Err(unknown),
    };
    let mut found = chain(pid, family);
    let is_same_again = (0..MAX_LOOKS).any(|_| {
        let before = std::mem::replace(&mut found, chain(pid, family));
        before == found
    });
    let lives = process.is_none_or(|process| !pidfd::has_ended(process.as_fd()));
    match found {
        // Without its parent the relay does not know the tree.
        _ if !lives || pid::parent() != top => Err(unknown),
        Some((_, true)) => Err(Refusal::OfTheTree { pid }),
        Some(_) if is_same_again => Ok(()),
        _ => Err(unknown),
    }
}

/// `pid` and its parents, and whether they are of the tree. `None`: it cannot be read to its end.
fn chain(pid: i32, family: &Family) -> Option<(Vec<Link>, bool)> {
    let mut links = Vec::new();
    let mut current = pid;
    while links.len() < MAX_CHAIN {
        let is_top = current == family.top;
        if is_top || current == 0 {
            let last = links.last();
            let is_of_tree = is_top && last.is_none_or(|link| !family.strangers.contains(link));
            return Some((links, is_of_tree));
        }
        let (parent, started) = parent_and_start(current)?;
        links.push((current, started));
        current = parent;
    }
    None
}

/// The parent of a process, and the time of its start. If `/proc` hides the process, its pidfd still shows the parent.
fn parent_and_start(number: i32) -> Option<(i32, u64)> {
    if let Ok(stat) = proc::stat(number) {
        return Some((stat.parent, stat.started));
    }
    let fd = pidfd::open(number).ok()?;
    pidfd::parent(fd.as_fd()).ok().map(|parent| (parent, 0))
}
