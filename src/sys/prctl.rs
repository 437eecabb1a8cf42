//! Attributes of this process.

use super::signal::Signal;
use super::{Errno, check};

/// From now on orphaned descendants become children of this process. See `PR_SET_CHILD_SUBREAPER(2const)`.
///
/// # Errors
/// `EINVAL` before Linux 3.4.
pub fn become_subreaper() -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true).map_err(errno)
}

/// Asks for `signal` when the thread that forked this process ends. The signal is only a hint: the other threads of the
/// parent may still run. See `PR_SET_PDEATHSIG(2const)`.
pub fn signal_on_parent_exit(signal: Signal) -> Result<(), Errno> {
    let number = libc::c_ulong::from(signal.number());
    // Not by rustix, whose type excludes the real-time signals.
    // SAFETY: an attribute of this process; no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) }.into()).map(drop)
}

/// Makes sure that no `execve` of this process or of a descendant gains rights. See `PR_SET_NO_NEW_PRIVS(2const)`.
pub fn no_new_privs() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

/// Whether a descendant can get a uid that this process may not signal: `CAP_KILL` is not effective, and the uid can be
/// changed, by `CAP_SETUID` or by a setuid program. See `capabilities(7)`.
#[must_use]
pub fn uids_out_of_reach() -> bool {
    const CAP_KILL: u32 = 5;
    const CAP_SETUID: u32 = 7;
    let capabilities = effective_capabilities();
    let has = |number: u32| capabilities & (1 << number) != 0;
    let setuid_programs = nix::sys::prctl::get_no_new_privs() != Ok(true);
    !has(CAP_KILL) && (has(CAP_SETUID) || setuid_programs)
}

/// The first 32 effective capabilities; none if they cannot be read. See `capget(2)`.
fn effective_capabilities() -> u32 {
    const VERSION_3: u32 = 0x2008_0522;
    // The version and the pid (0: this process); then twice the effective, permitted and inheritable ones.
    let (mut header, mut sets) = ([VERSION_3, 0], [0_u32; 6]);
    // SAFETY: both are live and of the sizes that this version needs.
    let ret = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    if ret == 0 { sets[0] } else { 0 }
}

/// Sets the command name of this process, cut to 15 bytes. See `PR_SET_NAME(2const)`.
pub fn set_name(name: &std::ffi::CStr) {
    let _ = nix::sys::prctl::set_name(name);
}

/// Leaves the session and the controlling terminal. See `setsid(2)`.
///
/// # Errors
/// `EPERM` if this process leads a process group.
pub fn new_session() -> Result<(), Errno> {
    rustix::process::setsid().map(drop)
}

/// Moves this process into a new process group in the same session. See `setpgid(2)`.
pub fn new_group() -> Result<(), Errno> {
    rustix::process::setpgid(None, None)
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
