//! The kernel seam: small safe wrappers, and the only place with `unsafe`. No policy, no messages,
//! no configuration. Each function is one system call, or one idiom of a few, and names its man
//! page. Without a free descriptor (`EMFILE`, `ENFILE`) or memory (`ENOMEM`) each call that needs
//! one can fail. Nothing allocates unless it says so, since the kill path runs through these calls.
#![allow(
    unsafe_code,
    reason = "the only module with unsafe; every block says why it is sound"
)]

pub mod apart;
pub mod arrival;
pub mod cgroup_dir;
pub mod clock;
pub mod clone;
pub mod exec;
pub mod fd;
pub mod namespace;
pub mod parent;
pub mod peer;
pub mod pid;
pub mod pidfd;
pub mod poll;
pub mod prctl;
pub mod proc;
pub mod shared;
pub mod signal;
pub mod startup;
pub mod stream;
pub mod tty;
pub mod wait;

pub use rustix::io::Errno;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::path::Arg;

/// The return value of a libc call as a `Result`.
fn check(ret: libc::c_long) -> Result<libc::c_long, Errno> {
    if ret == -1 {
        Err(errno(std::io::Error::last_os_error()))
    } else {
        Ok(ret)
    }
}

/// The number of an error of std or of nix.
pub fn errno(error: impl Into<std::io::Error>) -> Errno {
    Errno::from_io_error(&error.into()).unwrap_or(Errno::IO)
}

/// A standard descriptor, or another one that stays open while the caller uses it.
fn std_fd(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: 0, 1 and 2 are always open: `startup` has filled the gaps, and later they are only
    // replaced, never closed. A call on one that is not open only fails.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Opens a file close-on-exec, and to read it unless `flags` say otherwise. See `open(2)`.
fn open(path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// As [`open`], below a directory.
fn open_at(dir: impl AsFd, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty())
}
