//! A process id that is safe to hand to `kill`.

use std::fmt;
use std::num::NonZeroI32;

use nix::unistd;

/// The id of a process other than init: always greater than 1. So a signal to it can reach neither
/// every process (-1), nor the caller's group (0), nor init.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(NonZeroI32);

impl Pid {
    pub fn new(raw: i32) -> Option<Self> {
        NonZeroI32::new(raw).filter(|_| raw > 1).map(Self)
    }

    pub const fn get(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The pid of this process, which may be 1. See `getpid(2)`.
pub fn own() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The pid of the parent; 0 if the parent is outside of this PID namespace. See `getppid(2)`.
pub fn parent() -> i32 {
    rustix::process::Pid::as_raw(rustix::process::getppid())
}

/// The session of `pid` (0: of this process), or 0 if its leader is outside of this PID namespace,
/// which the types of rustix exclude. See `getsid(2)`.
pub fn session(pid: i32) -> Result<i32, super::Errno> {
    let found = unistd::getsid(Some(unistd::Pid::from_raw(pid)));
    found.map(unistd::Pid::as_raw).map_err(super::errno)
}

/// The process group of `pid` (0: of this process). See `getpgid(2)`.
pub fn group_of(pid: i32) -> Result<i32, super::Errno> {
    let found = unistd::getpgid(Some(unistd::Pid::from_raw(pid)));
    found.map(unistd::Pid::as_raw).map_err(super::errno)
}

/// The process group of this process, or 0 if its leader is outside of this PID namespace.
pub fn group() -> i32 {
    group_of(0).unwrap_or(0)
}
