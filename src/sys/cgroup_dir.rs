//! Control groups, version 2, by directory descriptors. See `cgroups(7)`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, OFlags};

use super::{Errno, fd, open_at, proc};

pub fn open(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    super::open(path, OFlags::DIRECTORY)
}

/// Locks `group` until this descriptor and all of its copies in forked processes are closed. If a
/// process has locked it: `EEXIST`, since `EAGAIN` of `flock(2)` is what mkdir says at a limit.
pub fn hold(group: BorrowedFd<'_>) -> Result<(), Errno> {
    match rustix::fs::flock(group, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Err(Errno::EXIST),
        other => other,
    }
}

/// `EBUSY`: it has members or groups below it.
pub fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the empty groups below `group` up to one that is not, and returns that one. `EACCES`,
/// `EPERM`: not allowed; `ENOENT`, `ENODEV`: it has been removed. Allocates.
pub fn remove_empty(group: BorrowedFd<'_>) -> Result<Option<CString>, Errno> {
    for name in fd::directories_in(group)? {
        match remove(group, &name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::BUSY) => return Ok(Some(name)),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// Whether processes may be moved between `group` and those below. clone3 needs the same right.
pub fn may_move(group: BorrowedFd<'_>) -> Result<(), Errno> {
    open_at(group, c"cgroup.procs", OFlags::WRONLY).map(drop)
}

/// Moves a process into `group`; 0: the calling one.
pub fn admit(group: BorrowedFd<'_>, pid: i32) -> Result<(), Errno> {
    fd::write_number(group, c"cgroup.procs", pid)
}

/// A file that polls as `POLLPRI` when it changes.
pub fn open_events(group: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    open_at(group, c"cgroup.events", OFlags::RDONLY)
}

/// In bytes. `None` without the memory controller, and before Linux 5.19.
pub fn memory_peak(group: BorrowedFd<'_>) -> Option<u64> {
    let file = open_at(group, c"memory.peak", OFlags::RDONLY).ok()?;
    let mut text = [0_u8; 32];
    let len = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// Whether the group of `events`, or one below it, has a living member.
pub fn is_populated(events: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut text = [0_u8; 128];
    let len = rustix::io::retry_on_intr(|| rustix::io::pread(events, &mut text, 0))?;
    Ok(!text[..len].windows(11).any(|line| line == b"populated 0"))
}

/// Calls `each` with the pid of every member of `group`, not of those below it.
pub fn members(group: BorrowedFd<'_>, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let file = open_at(group, c"cgroup.procs", OFlags::RDONLY)?;
    proc::each_number(file.as_fd(), each)
}
