//! How the monitor reaches the shim.

use std::os::fd::{AsFd, OwnedFd};

use crate::sys::arrival::{Arrival, Origin};
use crate::sys::pid;
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, fd, pidfd};

/// The way from the monitor to the shim.
#[derive(Debug)]
pub enum Link {
    /// The shim is the parent. It may be PID 1.
    Parent {
        pid: i32,
        /// Missing before Linux 5.3, or without a free descriptor.
        pidfd: Option<OwnedFd>,
    },
    /// The monitor is in a PID namespace of its own. From there it cannot signal the shim. It has
    /// the second end of a pipe: a byte in it sends SIGCONT to the shim, which also resumes it.
    Bell(OwnedFd),
    /// The shim has ended.
    Gone,
}

impl Link {
    /// Makes the shim look at the board. By a bell the shim always gets SIGCONT, whatever `signal`
    /// is.
    pub fn signal(&self, signal: Signal) {
        match self {
            Self::Parent {
                pidfd: Some(shim), ..
            } => drop(pidfd::send(shim.as_fd(), signal)),
            Self::Parent { pid, pidfd: None } => drop(signal::kill_parent(*pid, signal)),
            Self::Bell(bell) => fd::write_byte(bell.as_fd()),
            Self::Gone => {}
        }
    }

    /// Whether the shim has ended. A bell is rung for that: it has no reader then.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Parent { pid, .. } => *pid != pid::parent(),
            Self::Bell(bell) => fd::write_at_once(bell.as_fd(), b"!") == Err(Errno::PIPE),
            Self::Gone => true,
        }
    }
}

/// Whether the kernel has sent this signal because of the bell, or of the end of the monitor.
pub fn is_from_monitor(arrival: &Arrival) -> bool {
    arrival.signal == Signal::CONT && arrival.origin == Origin::ChildOrDescriptor
}
