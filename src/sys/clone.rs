//! Starting processes: a fork, and the server as a child that shares the memory of its parent until it is executed.
//!
//! Sharing saves the copy of the page tables and the faults after it, which were not measured alone. The cargo feature
//! `plain` makes the server by a copy, see `copy`; with all that it does without, a start of the pair takes 126,000
//! instructions instead of 95,000, and 79 system calls instead of 76.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::exec::{Failure, Image, Text};
use super::pid::Pid;
use super::signal::{self, Signal};
use super::startup::Inherited;
use super::{Errno, check, last_errno, raw};

/// Which of the two a fork returned in.
pub enum Fork {
    Parent(Pid),
    Child,
}

/// Forks a child whose end sends us SIGCONT instead of SIGCHLD: that reaches us even if we are
/// stopped. Waiting for it takes `__WALL`. See `clone(2)`, "The child termination signal".
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`.
pub fn fork() -> Result<Fork, Errno> {
    fork_with(0)
}

/// Which namespaces a process is born into. See `namespaces(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Of pids and mounts: needs `CAP_SYS_ADMIN`.
    Privileged,
    /// The same inside of a new user namespace, which gives the right to make them.
    WithUser,
}

/// As [`fork`], but the child is the init of a new PID namespace, with a mount namespace of its own:
/// there `getpid()` is 1 and `getppid()` is 0.
///
/// # Errors
/// `EPERM` not allowed; `ENOSPC` too many or too deep; `EINVAL` the kernel has none.
pub fn fork_into(namespaces: Namespaces) -> Result<Fork, Errno> {
    let user = match namespaces {
        Namespaces::WithUser => libc::CLONE_NEWUSER,
        Namespaces::Privileged => 0,
    };
    fork_with(libc::CLONE_NEWPID | libc::CLONE_NEWNS | user)
}

/// We have one thread, so the child may do what the parent may; but the libc is not told, so nothing
/// may be asked of it that it remembers by thread (such as `raise`).
fn fork_with(flags: c_int) -> Result<Fork, Errno> {
    // SAFETY: an all-zero clone_args asks for nothing.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags as u64;
    args.exit_signal = libc::SIGCONT as u64;
    // SAFETY: a live struct of the size that is told. The child gets a copy of our memory, which is
    // whole: no lock can be held by a thread that the child lacks.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) };
    // Before Linux 5.3, or forbidden by a filter that lets the older call through.
    if pid == -1 && matches!(last_errno(), Errno::NOSYS | Errno::PERM) {
        let (none, flags) = (std::ptr::null::<c_void>(), flags | libc::SIGCONT);
        // SAFETY: as above. The order of the arguments differs between architectures, but all but the flags are null.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    }
    if pid == 0 {
        return Ok(Fork::Child);
    }
    check(pid)?;
    Pid::new(pid as i32).map(Fork::Parent).ok_or(Errno::CHILD)
}

/// Whether the kernel, and a filter that may be before it, let us use clone3. See `clone3(2)`.
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

/// Ends a forked child at once, without running what belongs to the parent. See `_exit(2)`.
pub fn exit_child(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

/// The process group that the server starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A new one, that it leads, in a session of its own: the scheduler shares out processor time by
    /// session (autogroup), and hundreds of busy processes must not keep us from running.
    Own,
    /// The one that we are in ourselves (job control wants it there).
    Inherit,
}

/// How the new process is set up before exec.
#[derive(Debug)]
pub struct Setup {
    pub inherited: Inherited,
    pub group: Group,
    /// Sent to the server when we end.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// Where the new process writes its pid before anything else can happen to us: shared memory.
    pub announce: &'static AtomicU64,
    /// Where it writes why it could not become the server: shared memory.
    pub failure: &'static AtomicU64,
    /// Where it writes which interpreter is missing, if one is: shared memory.
    pub interpreter: Text,
}

/// What the child needs, for as long as its exec takes: until then it shares our memory, and we go on.
struct Start {
    image: Image,
    setup: Setup,
    parent: c_int,
    /// The directory of the cgroup that it has to enter, if it was not born there. The number is also the child's,
    /// whose table of descriptors is a copy of ours.
    enter: Option<c_int>,
}

/// Of the child until exec, in bytes; it needs less than two pages.
const STACK: usize = 16 * 1024;

/// Makes the process that is going to be the server, in `cgroup` if there is one; returns at once. Whether it could
/// be executed is not known then: if not, it writes the reason to `setup.failure`, and exits.
///
/// The pidfd is missing on kernels before 5.2.
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`; what a filter says.
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
    // Neither is ever freed: when the child has done with them, only it knows.
    let start = std::ptr::from_mut(Box::leak(Box::new(start)));
    let stack = Box::leak(Box::new_uninit_slice(STACK / size_of::<u128>()));
    let mut pidfd: c_int = -1;
    let pid = match share(start, stack, cgroup, &mut pidfd) {
        // clone3 came with Linux 5.3, its cgroups with 5.7; filters of containers often forbid it.
        Err(Errno::NOSYS | Errno::INVAL | Errno::TOOBIG | Errno::PERM) => {
            // SAFETY: there is no child yet, so nobody else has a reference.
            unsafe { (*start).enter = cgroup.map(|cgroup| cgroup.as_raw_fd()) };
            copy(start, stack, &mut pidfd)
        }
        other => other,
    }?;
    // SAFETY: the kernel just gave us this descriptor (close-on-exec), nobody else owns it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    Pid::new(pid).map(|pid| (pid, pidfd)).ok_or(Errno::CHILD)
}

/// As the kernel has it; the libc's constant is too narrow.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// A child on our own memory, where it was born in `cgroup`: nothing is copied, not even page tables. Unlike with
/// vfork we go on at once: the exec may take for ever (a network file system, a scanner), and a stop must not wait
/// for it. Until then a core dump of the child (before Linux 5.16) and the OOM killer take us with it: the shim
/// goes on then. See `clone3(2)`, `CLONE_VM`.
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
    // SAFETY: the child has a stack to itself, which is never freed, and neither is `start`, to which we keep no
    // reference. Between us there is only the memory that one of us alone uses, or that is atomic: the child makes
    // system calls, none of them by a function of the libc that can fail.
    unsafe { raw::clone_onto(&mut args, run_child, start.cast()) }
}

/// A child on a copy of our memory, for where [`share`] cannot be used. See `clone(2)`.
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
    // SAFETY: the child gets a copy of all memory, which is whole: no lock can be held by a thread that it lacks.
    let mut pid = unsafe { libc::clone(entry, top, with_pidfd, data, std::ptr::from_mut(pidfd)) };
    if pid == -1 && last_errno() == Errno::INVAL {
        // SAFETY: as above.
        pid = unsafe { libc::clone(entry, top, libc::SIGCHLD, data) };
    }
    check(pid.into()).map(|pid| pid as c_int)
}

/// The child: only system calls, on memory prepared before. It becomes the server, or writes why it could not.
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
        // Never without need: this write waits for an RCU grace period, which takes longer than all the rest.
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
        // Armed too late: the parent is gone already.
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
