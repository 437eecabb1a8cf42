//! Attributes of our own process.

use super::signal::Signal;
use super::{Errno, check};

/// Makes orphans among our descendants our children. See `PR_SET_CHILD_SUBREAPER(2const)`.
///
/// # Errors
/// `EINVAL` before Linux 3.4.
pub fn become_subreaper() -> Result<(), Errno> {
    // SAFETY: an attribute of our process; no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }.into()).map(drop)
}

/// Asks for `signal` when the thread that forked us ends. A hint, never a proof: it also comes
/// when only a thread of the parent ends. See `PR_SET_PDEATHSIG(2const)`.
pub fn signal_on_parent_exit(signal: Signal) -> Result<(), Errno> {
    let number = libc::c_ulong::from(signal.number());
    // SAFETY: an attribute of our process; no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number, 0, 0, 0) }.into()).map(drop)
}

/// Gives up every way to gain rights by `execve`, for us and all descendants. See `PR_SET_NO_NEW_PRIVS(2const)`.
pub fn no_new_privs() -> Result<(), Errno> {
    // SAFETY: an attribute of our process; no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into()).map(drop)
}

/// Sets our command name (at most 15 bytes count). See `PR_SET_NAME(2const)`.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: `name` is a NUL-terminated string that outlives the call; the kernel copies 16 bytes at most.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Puts us into a process group of our own, in the same session. See `setpgid(2)`.
pub fn new_group() -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::setpgid(0, 0) }.into()).map(drop)
}
