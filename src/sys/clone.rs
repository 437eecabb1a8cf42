//! Starting processes: a fork, and the server as a child that shares the memory of its parent until its exec.
//!
//! Sharing saves the copy of the page tables and the page faults after it. Their cost was not measured alone. With the
//! cargo feature `plain` the server begins as a copy instead, see `copy`. With everything that `plain` leaves out, a
//! start of the pair takes 126,000 instructions instead of 95,000, and 79 system calls instead of 76.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::exec::{Failure, Image, Text};
use super::pid::Pid;
use super::signal::{self, Signal};
use super::startup::Inherited;
use super::{Errno, check, last_errno, raw};

/// The process in which a fork has returned.
pub enum Fork {
    Parent(Pid),
    Child,
}

/// Forks a child whose end sends SIGCONT to the parent instead of SIGCHLD: that resumes a parent that is suspended.
/// Waiting for such a child takes `__WALL`. See `clone(2)`, "The child termination signal".
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`.
pub fn fork() -> Result<Fork, Errno> {
    fork_with(0, libc::SIGCONT)
}

/// Forks a child whose end sends SIGCHLD to the parent, as usual.
///
/// # Errors
/// As [`fork`].
pub fn fork_plainly() -> Result<Fork, Errno> {
    fork_with(0, libc::SIGCHLD)
}

/// Which namespaces a process is born into. See `namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// New ones for pids and mounts. They need `CAP_SYS_ADMIN`.
    Privileged,
    /// The same inside a new user namespace, which gives the right to make them.
    WithUser,
}

/// As [`fork`], but the child is the init of a new PID namespace, with a mount namespace of its own:
/// there `getpid()` is 1 and `getppid()` is 0.
///
/// # Errors
/// `EPERM` not allowed; `ENOSPC` too many or too deep; `EINVAL` the kernel has no such namespaces.
pub fn fork_into(namespaces: Namespaces) -> Result<Fork, Errno> {
    let user = match namespaces {
        Namespaces::WithUser => libc::CLONE_NEWUSER,
        Namespaces::Privileged => 0,
    };
    fork_with(libc::CLONE_NEWPID | libc::CLONE_NEWNS | user, libc::SIGCONT)
}

/// There is only one thread, so the child may do all that the parent may. But the libc does not know of the fork:
/// functions that use what it stores for each thread (such as `raise`) must not be called.
fn fork_with(flags: c_int, exit_signal: c_int) -> Result<Fork, Errno> {
    // SAFETY: an all-zero clone_args asks for nothing.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags as u64;
    args.exit_signal = exit_signal as u64;
    // SAFETY: a live struct, and its size. The child gets a copy of all memory, and the copy is consistent: no lock
    // can be held by a thread that the child lacks.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) };
    // Before Linux 5.3, or where a filter forbids it and allows the older call.
    if pid == -1 && matches!(last_errno(), Errno::NOSYS | Errno::PERM) {
        let (none, flags) = (std::ptr::null::<c_void>(), flags | exit_signal);
        // SAFETY: as above. The order of the arguments differs between architectures; all except the flags are null.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    }
    if pid == 0 {
        return Ok(Fork::Child);
    }
    check(pid)?;
    Pid::new(pid as i32).map(Fork::Parent).ok_or(Errno::CHILD)
}

/// Succeeds if the kernel has clone3 and no filter forbids it. See `clone3(2)`.
///
/// # Errors
/// `ENOSYS` before Linux 5.3, or hidden by a filter; `EPERM` forbidden by one.
pub fn has_clone3() -> Result<(), Errno> {
    let none = std::ptr::null::<c_void>();
    // SAFETY: a size of zero is refused before anything is read.
    match check(unsafe { libc::syscall(libc::SYS_clone3, none, 0_usize) }) {
        Ok(_) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Ends a forked child at once. Unlike `exit`, it runs no exit handlers, which belong to the parent. See `_exit(2)`.
pub fn exit_child(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

/// The process group that the server starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A new one that it leads, in a session of its own. The scheduler divides processor time between sessions
    /// (autogroup), and hundreds of busy processes must not keep treaper from running.
    Own,
    /// That of its parent: job control needs it there.
    Inherit,
}

/// How the new process is set up before exec.
#[derive(Debug)]
pub struct Setup {
    pub inherited: Inherited,
    pub group: Group,
    /// The server gets it when its parent ends.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// Shared memory in which the new process writes its pid first of all: its parent may be killed at any time.
    pub announce: &'static AtomicU64,
    /// Shared memory in which it writes why it could not become the server.
    pub failure: &'static AtomicU64,
    /// Shared memory in which it writes the name of an interpreter that is missing.
    pub interpreter: Text,
}

/// What the child needs until its exec is done. Until then it shares the memory of the parent, which goes on.
struct Start {
    image: Image,
    setup: Setup,
    parent: c_int,
    /// The directory of the cgroup that it has to enter, if it was not born there. The number is valid in the child,
    /// whose table of descriptors is a copy of the parent's.
    enter: Option<c_int>,
}

/// The size of the child's stack until exec, in bytes. It needs less than two pages.
const STACK: usize = 16 * 1024;

/// Makes the process that becomes the server, in `cgroup` if there is one. Returns before its exec: if that fails, the
/// process writes the reason to `setup.failure`, and exits.
///
/// The pidfd is missing on kernels before 5.2.
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`; any error that a filter gives.
pub fn spawn(
    image: Image,
    setup: Setup,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(Pid, Option<OwnedFd>), Errno> {
    let parent = super::pid::own();
    let start = Start {
        image,
        setup,
        parent,
        enter: None,
    };
    // Neither is ever freed: only the child knows when it no longer uses them.
    let start = std::ptr::from_mut(Box::leak(Box::new(start)));
    let stack = Box::leak(Box::new_uninit_slice(STACK / size_of::<u128>()));
    let mut pidfd: c_int = -1;
    let pid = match share(start, stack, cgroup, &mut pidfd) {
        // clone3 came with Linux 5.3, and its cgroups with 5.7. The filters of containers often forbid it.
        Err(Errno::NOSYS | Errno::INVAL | Errno::TOOBIG | Errno::PERM) => {
            // SAFETY: there is no child yet, so there is no other reference.
            unsafe { (*start).enter = cgroup.map(|cgroup| cgroup.as_raw_fd()) };
            copy(start, stack, &mut pidfd)
        }
        other => other,
    }?;
    // SAFETY: the kernel has just opened this descriptor (close-on-exec), and nothing else owns it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    Pid::new(pid).map(|pid| (pid, pidfd)).ok_or(Errno::CHILD)
}

/// As the kernel defines it; the libc's constant has too few bits.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// A child that shares the memory of its parent, and is born in `cgroup`: nothing is copied, not even page tables.
/// Unlike with vfork, the parent goes on at once: the exec may never return (a network file system, a scanner), and a
/// stop must not wait for it. Until then the OOM killer, and a core dump of the child before Linux 5.16, end the
/// parent as well. Then the shim goes on. See `clone3(2)`, `CLONE_VM`.
fn share(
    start: *mut Start,
    stack: &mut [MaybeUninit<u128>],
    cgroup: Option<BorrowedFd<'_>>,
    pidfd: &mut c_int,
) -> Result<c_int, Errno> {
    if cfg!(feature = "plain") {
        return Err(Errno::NOSYS);
    }
    // SAFETY: an all-zero clone_args asks for nothing.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_PIDFD) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.pidfd = std::ptr::from_mut(pidfd) as u64;
    args.stack = stack.as_mut_ptr() as u64;
    args.stack_size = size_of_val(stack) as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the child has a stack of its own. That stack and `start` are never freed, and the parent keeps no
    // reference to `start`. All other memory is used by only one of the two, or is atomic: the child only makes
    // system calls, none of them by a function of the libc that can fail.
    unsafe { raw::clone_onto(&mut args, run_child, start.cast()) }
}

/// A child with a copy of its parent's memory, for where [`share`] cannot be used. See `clone(2)`.
fn copy(
    start: *mut Start,
    stack: &mut [MaybeUninit<u128>],
    pidfd: &mut c_int,
) -> Result<c_int, Errno> {
    extern "C" fn entry(start: *mut c_void) -> c_int {
        run_child(start)
    }
    let (top, data) = (stack.as_mut_ptr_range().end.cast(), start.cast());
    let with_pidfd = libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child gets a consistent copy of all memory: no lock can be held by a thread that it lacks.
    let mut pid = unsafe { libc::clone(entry, top, with_pidfd, data, std::ptr::from_mut(pidfd)) };
    if pid == -1 && last_errno() == Errno::INVAL {
        // SAFETY: as above.
        pid = unsafe { libc::clone(entry, top, libc::SIGCHLD, data) };
    }
    check(pid.into()).map(|pid| pid as c_int)
}

/// The child: it only makes system calls, on memory that was prepared. It becomes the server, or writes why it could
/// not.
extern "C" fn run_child(start: *mut c_void) -> ! {
    // SAFETY: the pointer that was passed to clone; the parent keeps no reference, and never frees it.
    let start = unsafe { &mut *start.cast::<Start>() };
    start.setup.announce.store(super::pid::own() as u64, SeqCst);
    let failure = match set_up(start) {
        Ok(()) => start.image.execute(start.setup.interpreter),
        Err(failure) => failure,
    };
    start.setup.failure.store(failure.encode(), SeqCst);
    exit_child(1)
}

fn set_up(start: &Start) -> Result<(), Failure> {
    let setup = &start.setup;
    if let Some(cgroup) = start.enter {
        // Only where it is needed: this write waits for an RCU grace period, which takes longer than the rest of a
        // start.
        // SAFETY: this process has a table of descriptors of its own, where this one is never closed.
        let cgroup = unsafe { BorrowedFd::borrow_raw(cgroup) };
        super::cgroup::enter(cgroup).map_err(Failure::Clone)?;
    }
    match setup.group {
        Group::Own => drop(super::prctl::new_session()),
        Group::Inherit => {}
    }
    let _ = super::prctl::signal_on_parent_exit(setup.parent_death_signal);
    if super::pid::parent() != start.parent {
        // The parent ended before the signal was set, so the signal will not come.
        return Err(Failure::Orphaned);
    }
    if setup.no_new_privs {
        super::prctl::no_new_privs().map_err(Failure::Clone)?;
    }
    if setup.inherited.sigchld_ignored {
        signal::set_ignored(Signal::CHLD, true);
    }
    signal::set_mask(setup.inherited.mask);
    Ok(())
}
