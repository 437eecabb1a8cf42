//! Descriptors that refer to a process and never to its successor with the same number.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::pid::Pid;
use super::signal::Signal;
use super::{Errno, check};

/// Opens a pidfd, close-on-exec. See `pidfd_open(2)`.
///
/// # Errors
/// `ESRCH` no such process; `ENOSYS` before Linux 5.3; `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just gave us this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends `signal` to the process behind `fd`: a pidfd, or an open `/proc/PID`. See `pidfd_send_signal(2)`.
///
/// # Errors
/// `ESRCH` it was reaped; `EPERM` not allowed; `ENOSYS` before Linux 5.1.
pub fn send(fd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    send_raw(fd, signal.number().into(), 0)
}

/// Whether the process behind `fd` still owns its pid, that is, has not been reaped; a zombie does.
///
/// # Errors
/// `ENOSYS` before Linux 5.1, where nothing can tell.
pub fn is_unreaped(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    match send_raw(fd, 0, 0) {
        Ok(()) | Err(Errno::PERM) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Whether the process behind a pidfd has ended, reaped or not. See `poll(2)`.
#[must_use]
pub fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let mut one = [libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    matches!(
        super::fd::poll(&mut one, Some(std::time::Duration::ZERO)),
        Ok(1..)
    ) && one[0].revents & libc::POLLIN != 0
}

/// Sends `signal` to the process group that the process behind `fd` leads or, reaped, has led.
///
/// # Errors
/// `ESRCH` nobody is left in it; `EINVAL` before Linux 6.9.
pub fn send_group(leader: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    send_raw(leader, signal.number().into(), PIDFD_SIGNAL_PROCESS_GROUP)
}

fn send_raw(fd: BorrowedFd<'_>, signal: i32, flags: libc::c_uint) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a live descriptor and numbers; a null siginfo asks for the one of kill(2).
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            signal,
            info,
            flags,
        )
    })
    .map(drop)
}

/// `struct pidfd_info` of its first version, which every kernel with the call accepts.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);
/// `_IOWR(0xFF, 11, struct pidfd_info)` of 64 bytes.
const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
const PIDFD_INFO_PID: u64 = 1;

/// The parent of the living process behind a pidfd. See `ioctl_pidfd(2)`, `PIDFD_GET_INFO`.
///
/// # Errors
/// `ESRCH` it was reaped; `ENOTTY` or `EINVAL` before Linux 6.13, and for an open `/proc/PID`.
pub fn parent(fd: BorrowedFd<'_>) -> Result<i32, Errno> {
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_PID,
        ..PidfdInfo::default()
    };
    // SAFETY: the kernel fills 64 bytes of a live struct of that size.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) }.into())?;
    Ok(info.ppid as i32)
}

/// A pidfd for `Pid`; as [`open`].
pub fn of(pid: Pid) -> Result<OwnedFd, Errno> {
    open(pid.get())
}
