//! A process that a walk has proven to be of the tree.

use std::os::fd::{AsFd, OwnedFd};

use crate::sys::pid::Pid;
use crate::sys::signal::{self, Signal};
use crate::sys::wait::Wait;
use crate::sys::{Errno, pidfd};

/// A process of the tree. It can be signalled safely while this value lives.
#[derive(Debug)]
pub struct Member<H = OwnedFd> {
    pub pid: Pid,
    /// `None` for a child of this process, and in a PID namespace of its own.
    pub handle: Option<H>,
}

impl Member {
    /// Sends `signal` to it.
    ///
    /// # Errors
    /// `ESRCH` it is gone; `EPERM` not allowed.
    pub fn send(&self, signal: Signal) -> Result<(), Errno> {
        match &self.handle {
            None => signal::kill(self.pid, signal),
            Some(handle) => match pidfd::send(handle.as_fd(), signal) {
                // Before Linux 5.1 there is no safer call. The process was proven a moment ago.
                Err(Errno::NOSYS) => signal::kill(self.pid, signal),
                other => other,
            },
        }
    }

    /// Whether it has ended: then its children have another parent.
    pub fn has_ended(&self) -> bool {
        match &self.handle {
            None => Wait::child(self.pid).ended().has_come(),
            Some(handle) => pidfd::has_ended(handle.as_fd()),
        }
    }
}
