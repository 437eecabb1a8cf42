//! How the monitor reaches the shim.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::arrival::{Arrival, Origin};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, fd, pid, pidfd};

pub enum Link {
    /// The shim is the parent, with this pid (perhaps 1), and a pidfd if the kernel can give one.
    Parent(i32, Option<BorrowedFd<'static>>),
    /// From a PID namespace of its own, the monitor cannot signal what is outside. But the shim
    /// reads this pipe, and each byte sends it SIGCONT, which also resumes it.
    Bell(OwnedFd),
    /// The shim has ended.
    Gone,
}

impl Link {
    /// Makes the shim look at the board. A bell always sends SIGCONT, whatever `signal` is.
    pub fn signal(&self, signal: Signal) {
        match self {
            Self::Parent(_, Some(shim)) => drop(pidfd::send(*shim, signal)),
            Self::Parent(pid, None) => drop(signal::kill_parent(*pid, signal)),
            Self::Bell(bell) => drop(ring(bell, 0)),
            Self::Gone => {}
        }
    }

    /// Whether the shim has ended. A bell is rung for that: it has no reader then.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Parent(pid, _) => *pid != pid::parent(),
            Self::Bell(bell) => ring(bell, 0) == Err(Errno::PIPE),
            Self::Gone => true,
        }
    }
}

/// Makes the shim look at the board. `signal`: what it passes on to the host, if not 0.
pub fn ring(bell: &OwnedFd, signal: u8) -> Result<(), Errno> {
    fd::write_at_once(bell.as_fd(), &[signal]).map(drop)
}

/// Whether the kernel has sent this signal because of the bell, or of the end of the monitor.
pub fn is_from_monitor(arrival: &Arrival) -> bool {
    arrival.signal == Signal::CONT && arrival.origin == Origin::ChildOrDescriptor
}
