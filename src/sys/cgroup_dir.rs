//! Control groups, version 2, by directory descriptors. See `cgroups(7)`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};

use super::Errno;

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

pub fn open(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, READ | OFlags::DIRECTORY, Mode::empty())
}

/// Locks `group` until this descriptor and all of its copies in forked processes are closed. See
/// `flock(2)`.
///
/// # Errors
/// `EEXIST` a process has locked it. (`EAGAIN` of flock is what mkdir says at a limit of groups.)
pub fn hold(group: BorrowedFd<'_>) -> Result<(), Errno> {
    match rustix::fs::flock(group, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Err(Errno::EXIST),
        other => other,
    }
}

/// Removes the empty group `name` below `parent`.
///
/// # Errors
/// `EBUSY` it has members or groups below it.
pub fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes the empty groups right below `group`, until one is not empty: returns the name of that
/// one. Allocates.
///
/// # Errors
/// `EACCES`, `EPERM` not allowed; `ENOENT`, `ENODEV` it has been removed.
pub fn remove_empty(group: BorrowedFd<'_>) -> Result<Option<CString>, Errno> {
    for name in super::fd::directories_in(group)? {
        match remove(group, &name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::BUSY) => return Ok(Some(name)),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// Succeeds if a process may be moved between `group` and the groups below it. clone3 needs the
/// same right.
pub fn may_move(group: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(group, c"cgroup.procs", flags, Mode::empty()).map(drop)
}

/// Moves a process into `group`; 0: the calling one.
pub fn admit(group: BorrowedFd<'_>, pid: i32) -> Result<(), Errno> {
    super::fd::write_number(group, c"cgroup.procs", pid)
}

/// Opens `cgroup.events`, which polls as `POLLPRI` when it changes.
pub fn open_events(group: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(group, c"cgroup.events", READ, Mode::empty())
}

/// The most memory that the group has used, in bytes. `None` without the memory controller, and
/// before Linux 5.19.
pub fn memory_peak(group: BorrowedFd<'_>) -> Option<u64> {
    let file = rustix::fs::openat(group, c"memory.peak", READ, Mode::empty()).ok()?;
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
    let file = rustix::fs::openat(group, c"cgroup.procs", READ, Mode::empty())?;
    super::proc::each_number(file.as_fd(), each)
}
