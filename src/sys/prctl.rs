//! Attributes of this process.

use std::{ptr, slice, time::Duration};

use libc::{c_int, c_void, dl_phdr_info};
use rustix::fs::CWD;
use rustix::thread::{self, CapabilitySet};

use super::signal::Signal;
use super::{Errno, check, clock, fd};

/// Orphaned descendants become children of this process. See `PR_SET_CHILD_SUBREAPER(2const)`.
/// `EINVAL`: before Linux 3.4.
pub fn become_subreaper() -> Result<(), Errno> {
    // The kernel takes any number but 0 for a yes.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// Asks for `signal` when the thread that forked this process ends. The signal is only a hint: the
/// other threads of the parent may still run. See `PR_SET_PDEATHSIG(2const)`.
pub fn signal_on_parent_exit(signal: Signal) -> Result<(), Errno> {
    let number = libc::c_ulong::from(signal.number());
    // Not by rustix, whose type excludes the real-time signals.
    // SAFETY: an attribute of this process; no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, number) }.into()).map(drop)
}

/// A fork clears it, so this process has asked before its exec. See `PR_GET_PDEATHSIG(2const)`.
pub fn has_parent_death_signal() -> bool {
    let mut number: c_int = 0;
    // SAFETY: the kernel writes one int, which is live.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut number) == 0 && number != 0 }
}

/// Whether a descendant can get a uid that this process may not signal. See `capabilities(7)`.
pub fn uids_out_of_reach() -> bool {
    let held = thread::capabilities(None).map_or(CapabilitySet::empty(), |all| all.effective);
    let setuid_programs = thread::no_new_privs() != Ok(true);
    !held.contains(CapabilitySet::KILL) && (held.contains(CapabilitySet::SETUID) || setuid_programs)
}

/// See `setsid(2)`. `EPERM`: this process leads a process group.
pub fn new_session() -> Result<(), Errno> {
    rustix::process::setsid().map(drop)
}

/// Gives the session the share of the processors that the nice value asks for, which alone has no
/// effect on other sessions. See `sched(7)`, "The autogroup feature".
pub fn weigh_session() {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    if nice != 0 {
        let _ = fd::write_number(CWD, c"/proc/self/autogroup", nice);
    }
}

/// In the same session. See `setpgid(2)`.
pub fn new_group() -> Result<(), Errno> {
    rustix::process::setpgid(None, None)
}

/// When to call [`keep_code`]: in the time that it takes, a short command starts and ends.
pub fn keeps_code_at() -> Option<Duration> {
    Some(clock::now() + Duration::from_millis(5))
}

/// Keeps the code of this process in memory, as far as `RLIMIT_MEMLOCK` allows it: a stop must not
/// wait for a page that a full memory cgroup, or a hung file system, does not give. See `mlock(2)`.
#[inline(never)]
pub fn keep_code() {
    // The stack too, as far down as a signal is handled: the fork has left pages that are shared.
    std::hint::black_box([0_u8; 2048]);
    // SAFETY: the function gets what it expects, and nothing of this program.
    unsafe { libc::dl_iterate_phdr(Some(keep), ptr::null_mut()) };
}

/// Not what is written, which the lock would copy, and no large host. See `dl_iterate_phdr(3)`.
unsafe extern "C" fn keep(object: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library passes a live object.
    let object = unsafe { &*object };
    // SAFETY: these are its headers.
    for header in unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) } {
        let is_code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
        if is_code && header.p_memsz < 8 << 20 {
            let start = (object.dlpi_addr + header.p_vaddr) as *const c_void;
            // SAFETY: changes no byte, and needs no mapping there.
            unsafe { libc::mlock(start, header.p_memsz as usize) };
        }
    }
    0
}
