//! Descriptors that refer to a process and never to its successor with the same number.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::PidfdFlags;

use super::arrival::no_info;
use super::poll::{Events, poll_one};
use super::signal::Signal;
use super::{Errno, check};

/// See `pidfd_open(2)`. `ESRCH`: no such process; `ENOSYS`: before Linux 5.3.
pub fn open(pid: i32) -> Result<OwnedFd, Errno> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::INVAL)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

/// `fd`: a pidfd, or an open `/proc/PID`. See `pidfd_send_signal(2)`. `ESRCH`: it was reaped;
/// `EPERM`: not allowed; `ENOSYS`: before Linux 5.1.
pub fn send(fd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    send_info(fd, signal.number().into(), std::ptr::null(), 0)
}

/// As [`send`], with a value as in `sigqueue(3)`. `EAGAIN`: too many signals are queued.
pub fn send_value(fd: BorrowedFd<'_>, signal: Signal, value: Option<u64>) -> Result<(), Errno> {
    let Some(value) = value else {
        return send(fd, signal);
    };
    let info = queued(signal, libc::SI_QUEUE, super::pid::own(), value);
    send_info(fd, signal.number().into(), &raw const info, 0)
}

/// What the kernel reports of a signal with a value.
pub(super) fn queued(signal: Signal, code: i32, sender: i32, value: u64) -> libc::siginfo_t {
    let queued = Queued {
        signo: signal.number().into(),
        errno: 0,
        code,
        sender: Sender {
            pid: sender,
            uid: rustix::process::getuid().as_raw(),
            value: value as *mut libc::c_void,
        },
    };
    let mut info = no_info();
    // SAFETY: what is written is the beginning of a siginfo, and neither larger nor more aligned.
    unsafe { (&raw mut info).cast::<Queued>().write(queued) };
    info
}

/// The beginning of the kernel's siginfo for `SI_QUEUE`.
#[repr(C)]
struct Queued {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    sender: Sender,
}

#[repr(C)]
struct Sender {
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: *mut libc::c_void,
}

const _: () = assert!(size_of::<Queued>() <= size_of::<libc::siginfo_t>());
const _: () = assert!(align_of::<Queued>() <= align_of::<libc::siginfo_t>());

/// Whether it is unreaped, so that its pid is still its own. `ENOSYS`: before Linux 5.1.
pub fn is_unreaped(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    match send_info(fd, 0, std::ptr::null(), 0) {
        Ok(()) | Err(Errno::PERM) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Whether the process behind a pidfd has ended, reaped or not. See `poll(2)`.
pub fn has_ended(fd: BorrowedFd<'_>) -> bool {
    poll_one(fd.as_raw_fd(), Events::IN, Duration::ZERO).contains(Events::IN)
}

/// Sends `signal` to the process group that the process behind `leader` leads, or has led if it was
/// reaped. `ESRCH`: no process is left in it; `EINVAL`: before Linux 6.9.
pub fn send_group(leader: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let (number, flag) = (signal.number().into(), libc::PIDFD_SIGNAL_PROCESS_GROUP);
    send_info(leader, number, std::ptr::null(), flag)
}

fn send_info(
    fd: BorrowedFd<'_>,
    signal: i32,
    info: *const libc::siginfo_t,
    flags: libc::c_uint,
) -> Result<(), Errno> {
    let (number, fd) = (libc::SYS_pidfd_send_signal, fd.as_raw_fd());
    // SAFETY: a live descriptor and numbers; the siginfo is live, or null, as for kill(2).
    check(unsafe { libc::syscall(number, fd, signal, info, flags) }).map(drop)
}

/// The parent of the living process behind a pidfd. See `PIDFD_GET_INFO` in `ioctl_pidfd(2)`.
/// `ESRCH`: it was reaped; `ENOTTY` or `EINVAL`: before Linux 6.13, and for an open `/proc/PID`.
pub fn parent(fd: BorrowedFd<'_>) -> Result<i32, Errno> {
    // SAFETY: an all-zero struct is a valid value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = libc::PIDFD_INFO_PID.into();
    // SAFETY: the request has the size of the struct, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) }.into())?;
    Ok(info.ppid as i32)
}
