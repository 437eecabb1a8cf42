//! Attributes of our own process.

use super::signal::Signal;
use super::{Errno, raw};

/// Makes orphans among our descendants our children. See `PR_SET_CHILD_SUBREAPER(2const)`.
///
/// # Errors
/// `EINVAL` before Linux 3.4.
pub fn become_subreaper() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true).map_err(errno)
}

/// Asks for `signal` when the thread that forked us ends. A hint, never a proof: it also comes
/// when only a thread of the parent ends. See `PR_SET_PDEATHSIG(2const)`.
pub fn signal_on_parent_exit(signal: Signal) -> Result<(), Errno> {
    set(libc::PR_SET_PDEATHSIG, signal.number().into())
}

/// Gives up every way to gain rights by `execve`, for us and all descendants. See `PR_SET_NO_NEW_PRIVS(2const)`.
pub fn no_new_privs() -> Result<(), Errno> {
    set(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// For those that are set between clone and exec, too: see [`raw`].
fn set(attribute: i32, value: usize) -> Result<(), Errno> {
    let arguments = [attribute as usize, value, 0, 0, 0];
    // SAFETY: an attribute of our process; no memory is passed.
    unsafe { raw::call(libc::SYS_prctl, arguments) }.map(drop)
}

/// Sets our command name (at most 15 bytes count). See `PR_SET_NAME(2const)`.
pub fn set_name(name: &std::ffi::CStr) {
    let _ = nix::sys::prctl::set_name(name);
}

/// Leaves the session and the controlling terminal. See `setsid(2)`.
///
/// # Errors
/// `EPERM` if we lead a process group.
pub fn new_session() -> Result<(), Errno> {
    rustix::process::setsid().map(drop)
}

/// Puts us into a process group of our own, in the same session. See `setpgid(2)`.
pub fn new_group() -> Result<(), Errno> {
    rustix::process::setpgid(None, None)
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
