//! How the monitor reaches the shim.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::arrival::Arrival;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, fd};

/// The way from the monitor to the shim.
#[derive(Debug)]
pub enum Link {
    /// The shim is the parent, and has this pid.
    Parent(Pid),
    /// The monitor is in a PID namespace of its own, from which no signal reaches the shim.
    Bell(OwnedFd),
    Gone,
}

impl Link {
    /// Makes the shim look at the board. A bell always rings as SIGCONT.
    pub fn signal(&self, signal: Signal) {
        match self {
            // Proven by being our parent at this moment.
            Self::Parent(shim) if shim.get() == pid::parent() => {
                let _ = signal::kill(*shim, signal);
            }
            Self::Bell(bell) => fd::write_byte(bell.as_fd()),
            Self::Parent(_) | Self::Gone => {}
        }
    }
}

/// A *bell* is a pipe. What is written to the second end resumes the process that has the first one, and wakes it, by
/// SIGCONT.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn bell() -> Result<(OwnedFd, OwnedFd), Errno> {
    fd::signalling_pipe(Signal::CONT)
}

/// Takes what was written, so that the bell can ring again.
pub fn silence(bell: BorrowedFd<'_>) {
    fd::empty(bell);
}

/// Whether the kernel has made this signal for the bell, or for the end of the monitor.
#[must_use]
pub fn is_from_monitor(arrival: &Arrival) -> bool {
    arrival.signal == Signal::CONT && arrival.of_child_or_descriptor
}
