//! Starting processes: a fork, and the server as a child that begins as a copy of its parent.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::exec::Failure;
use super::pid::Pid;
use super::poll::{Events, poll_one};
use super::signal::{self, Signal};
use super::startup::{Inherited, Standing};
use super::wait::Wait;
use super::{Errno, arrival, check, clock};

/// The process in which a fork has returned.
pub enum Fork {
    Parent(Pid),
    Child,
}

/// Forks a child whose end sends SIGCONT to the parent instead of SIGCHLD: that resumes a parent
/// that is suspended. Waiting for such a child takes `__WALL`. See `clone(2)`, "The child
/// termination signal". `in_job`: see [`arrival::share_keys`].
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`.
pub fn fork(in_job: bool) -> Result<Fork, Errno> {
    fork_with(0, in_job)
}

/// Forks a child whose end sends SIGCHLD to the parent, as usual.
pub fn fork_plainly() -> Result<Fork, Errno> {
    any_clone(0, libc::SIGCHLD, &mut -1, None).map(|(fork, _)| fork)
}

/// As [`fork_plainly`], but the child has the descriptors of this process, and no copies of them:
/// what the child closes is closed here as well. See `CLONE_FILES` in `clone(2)`.
pub fn fork_sharing_descriptors() -> Result<Fork, Errno> {
    any_clone(libc::CLONE_FILES, libc::SIGCHLD, &mut -1, None).map(|(fork, _)| fork)
}

/// As [`fork`], but the child is the init of a new PID namespace, with a mount namespace of its
/// own: there `getpid()` is 1 and `getppid()` is 0. `with_user`: inside a new user namespace, which
/// gives the right to make them. Otherwise it needs `CAP_SYS_ADMIN`. See `namespaces(7)`.
///
/// # Errors
/// `EPERM` not allowed; `ENOSPC` too many or too deep; `EINVAL` the kernel has no such namespaces.
pub fn fork_into_namespace(with_user: bool, in_job: bool) -> Result<Fork, Errno> {
    let user = if with_user { libc::CLONE_NEWUSER } else { 0 };
    fork_with(libc::CLONE_NEWPID | libc::CLONE_NEWNS | user, in_job)
}

fn fork_with(flags: c_int, in_job: bool) -> Result<Fork, Errno> {
    let make = |more| any_clone(flags | more, libc::SIGCONT, &mut -1, None);
    arrival::share_keys(in_job, make).map(|(fork, _)| fork)
}

/// As [`clone3`], or by the older call without it. Also returns whether the child was born in the
/// cgroup.
///
/// clone3 came with Linux 5.3, and its cgroups with 5.7. The filters of containers often forbid it.
fn any_clone(
    flags: c_int,
    exit_signal: c_int,
    pidfd: &mut c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(Fork, bool), Errno> {
    match clone3(flags, exit_signal, pidfd, cgroup) {
        Err(Errno::NOSYS | Errno::INVAL | Errno::TOOBIG | Errno::PERM) => {
            clone(flags, exit_signal, pidfd).map(|fork| (fork, false))
        }
        other => other.map(|fork| (fork, true)),
    }
}

/// The kernel's `struct clone_args`. The libc crate does not have it for every architecture.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// As the kernel defines it. It has too many bits for a C int.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// A child that is born in `cgroup`, if there is one. With `CLONE_PIDFD`, `pidfd` gets its
/// descriptor. See `clone3(2)`.
///
/// There is only one thread, so the child may do all that the parent may. But the libc does not
/// know of the fork: functions that use what it stores for each thread (such as `raise`) must not
/// be called.
fn clone3(
    flags: c_int,
    exit_signal: c_int,
    pidfd: &mut c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Fork, Errno> {
    let mut args = CloneArgs {
        flags: flags as u64,
        pidfd: std::ptr::from_mut(pidfd) as u64,
        child_tid: arrival::IS_NEW.as_ptr() as u64,
        exit_signal: exit_signal as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: a live struct, and its size. The child gets a copy of all memory, and the copy is
    // consistent: no lock can be held by a thread that the child lacks.
    returned(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) })
}

/// The older call, which knows no cgroup. See `clone(2)`.
fn clone(flags: c_int, exit_signal: c_int, pidfd: &mut c_int) -> Result<Fork, Errno> {
    let flags = c_long::from(flags | exit_signal);
    // On this architecture the stack comes first. Without one, the child uses its copy of the
    // present one.
    let (first, second) = if cfg!(target_arch = "s390x") {
        (0, flags)
    } else {
        (flags, 0)
    };
    // The last two: where the kernel writes the pid of the child, in either order, and what no flag
    // asks for.
    let (pidfd, child) = (std::ptr::from_mut(pidfd), arrival::IS_NEW.as_ptr());
    // SAFETY: live numbers. The copy of the memory is consistent, as with `clone3`.
    returned(unsafe { libc::syscall(libc::SYS_clone, first, second, pidfd, child, child) })
}

fn returned(result: c_long) -> Result<Fork, Errno> {
    match check(result)? {
        0 => Ok(Fork::Child),
        pid => Pid::new(pid as i32).map(Fork::Parent).ok_or(Errno::CHILD),
    }
}

/// Succeeds if the kernel has clone3 and no filter forbids it. See `clone3(2)`.
///
/// # Errors
/// `ENOSYS` before Linux 5.3, or hidden by a filter; `EPERM` forbidden by one.
pub fn has_clone3() -> Result<(), Errno> {
    let none = std::ptr::null::<CloneArgs>();
    // SAFETY: a size of zero is refused before anything is read.
    match check(unsafe { libc::syscall(libc::SYS_clone3, none, 0_usize) }) {
        Ok(_) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Ends this process at once. Unlike `exit`, it runs no exit handlers: a forked child has none of
/// its own, and in both processes of the pair they would write to pages that only they need. See
/// `_exit(2)`.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

/// How the new process is set up before exec.
#[derive(Debug)]
pub struct Setup<'a> {
    pub inherited: Inherited,
    /// The working directory, if the parent leaves it: as early as it can, since the server may look
    /// where its parent is.
    pub leaves: Option<&'a Path>,
    pub standing: Standing,
    /// The server gets it when its parent ends.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// Shared memory in which the new process writes its pid first of all: its parent may be killed
    /// at any time.
    pub announce: &'static AtomicU64,
    /// Shared memory in which the first leader of its session writes its pid, if that is another
    /// process.
    pub leader: &'static AtomicU64,
    /// Shared memory in which it writes why it could not become the server.
    pub failure: &'static AtomicU64,
}

/// The process that becomes the server.
#[derive(Debug)]
pub struct Spawned {
    pub pid: Pid,
    /// Missing before Linux 5.2.
    pub pidfd: Option<OwnedFd>,
    /// The first leader of its session and group, which is gone, and its pidfd.
    pub leader: Option<(Pid, Option<OwnedFd>)>,
}

/// Makes the process that becomes the server, in `cgroup` if there is one. Returns before its exec,
/// which may never return (a network file system, a scanner): a stop must not wait for it. If the
/// exec fails, the process writes the reason to `setup.failure`, and exits.
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`; `ECHILD` the first leader was killed; any error that a
/// filter gives.
pub fn spawn(
    setup: &Setup<'_>,
    cgroup: Option<BorrowedFd<'_>>,
    execute: impl FnOnce() -> Failure,
) -> Result<Spawned, Errno> {
    let parent = super::pid::own();
    let mut job = Job {
        setup,
        parent,
        cgroup,
        execute: Some(execute),
    };
    let needs_leader = matches!(
        setup.standing,
        Standing::LeadsGroup | Standing::LeadsNothing
    );
    if let Some(Ok((leader, pidfd))) = needs_leader.then(|| clone_leader(&mut job)) {
        setup.leave_directory();
        if let Some(pid) = pid_announced(setup, leader, pidfd.as_ref())? {
            return Ok(Spawned {
                pid,
                // It is a child that was not reaped, so its pid is its own.
                pidfd: super::pidfd::open(pid.get()).ok(),
                leader: Some((leader, pidfd)),
            });
        }
    }
    let in_job = setup.standing == Standing::InJob;
    let make = |flags| clone_with_pidfd(flags, cgroup);
    let (forked, pidfd, in_cgroup) = arrival::share_keys(in_job, make)?;
    match forked {
        Fork::Child => {
            if !in_job {
                let _ = super::prctl::new_session();
            }
            // After a first leader that has failed, the parent has left it.
            if needs_leader {
                super::prctl::weigh_session();
                let _ = setup.leaves.map(rustix::process::chdir);
            }
            job.become_server(in_cgroup)
        }
        Fork::Parent(pid) => {
            setup.leave_directory();
            Ok(Spawned {
                pid,
                pidfd,
                leader: None,
            })
        }
    }
}

impl Setup<'_> {
    fn leave_directory(&self) {
        if self.leaves.is_some() {
            super::fd::leave_directory();
        }
    }
}

/// A child with its pidfd. Also returns whether the child was born in `cgroup`.
fn clone_with_pidfd(
    flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(Fork, Option<OwnedFd>, bool), Errno> {
    let mut pidfd = -1;
    let made = any_clone(flags | libc::CLONE_PIDFD, libc::SIGCHLD, &mut pidfd, cgroup);
    let (fork, in_cgroup) = match made {
        // Kernels before 5.2 ignore the flag. Emulators refuse it.
        Err(Errno::INVAL) => clone(flags, libc::SIGCHLD, &mut pidfd).map(|fork| (fork, false)),
        other => other,
    }?;
    // The child has no copy of it.
    let pidfd = match fork {
        Fork::Parent(_) => just_opened(pidfd),
        Fork::Child => None,
    };
    Ok((fork, pidfd, in_cgroup))
}

/// What has to be known to become the server.
struct Job<'a, F> {
    setup: &'a Setup<'a>,
    parent: c_int,
    cgroup: Option<BorrowedFd<'a>>,
    /// Not used up before the exec.
    execute: Option<F>,
}

/// The stack of the first leader, and of the server until its exec.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 64 << 10]>);

// SAFETY: only one process runs on it at a time, see `clone_leader`.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; 64 << 10]));

/// Makes the first leader. It has the memory of this process, since to copy that would take longer
/// than all that it does. And it has the descriptors: with copies of them its end would wait for a
/// file system that hangs. See `clone(2)`.
///
/// # Errors
/// As [`spawn`].
fn clone_leader<F: FnOnce() -> Failure>(
    job: &mut Job<'_, F>,
) -> Result<(Pid, Option<OwnedFd>), Errno> {
    match clone_with(job, libc::CLONE_VM | libc::CLONE_PIDFD) {
        // Emulators know neither of the two flags.
        Err(Errno::INVAL) => clone_with(job, 0),
        other => other,
    }
}

fn clone_with<F: FnOnce() -> Failure>(
    job: &mut Job<'_, F>,
    flags: c_int,
) -> Result<(Pid, Option<OwnedFd>), Errno> {
    let top = STACK.0.get().wrapping_add(1).cast();
    // SIGCHLD: the server inherits this signal of its end, and keeps it until its exec.
    let flags = libc::CLONE_FILES | libc::SIGCHLD | flags;
    let job = std::ptr::from_mut(job).cast();
    let mut pidfd = -1;
    // SAFETY: no other process with this memory is on `STACK`. The caller keeps the job, and does
    // not use it, until the leader has ended. Besides it both write only `errno`. If both calls
    // fail at once, a wrong one decides at most that the server gets a session without a leader's
    // help.
    let pid = unsafe { libc::clone(lead::<F>, top, flags, job, &raw mut pidfd) };
    let pid = Pid::new(check(pid.into())? as i32).ok_or(Errno::CHILD)?;
    Ok((pid, just_opened(pidfd)))
}

/// Takes over the pidfd that the kernel has just opened (close-on-exec), if it has.
fn just_opened(pidfd: c_int) -> Option<OwnedFd> {
    // SAFETY: nothing else owns it.
    (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// The first leader: it makes a session and a group, and in these the server, as another child of
/// its own parent. Then it ends, so that the session and the group have no leader.
extern "C" fn lead<F: FnOnce() -> Failure>(job: *mut c_void) -> c_int {
    // SAFETY: `clone_leader` passes a live job, which its caller does not use meanwhile.
    let job = unsafe { &mut *job.cast::<Job<'_, F>>() };
    let setup = job.setup;
    let _ = super::prctl::new_session();
    super::prctl::weigh_session();
    setup.leader.store(super::pid::own() as u64, SeqCst);
    match any_clone(libc::CLONE_PARENT, 0, &mut -1, job.cgroup) {
        Ok((Fork::Child, in_cgroup)) => {
            if setup.standing == Standing::LeadsGroup {
                let _ = super::prctl::new_group();
            }
            job.become_server(in_cgroup);
        }
        // The server may not have run yet.
        Ok((Fork::Parent(server), _)) => setup.announce.store(server.get() as u64, SeqCst),
        Err(_) => setup.leader.store(0, SeqCst),
    }
    exit_now(0)
}

/// How long the first leader may take, which needs a tenth of a millisecond. One that is held (by a
/// debugger, in a frozen group) must not keep its parent from its work.
const LEADER_TIME: Duration = Duration::from_secs(5);

/// The server that the first leader has made, once that one has ended. `None`: an emulator, or a
/// filter of system calls, does not let it make another child of its parent.
fn pid_announced(
    setup: &Setup<'_>,
    leader: Pid,
    pidfd: Option<&OwnedFd>,
) -> Result<Option<Pid>, Errno> {
    let end = clock::now() + LEADER_TIME;
    let is_held = |fd: &OwnedFd| poll_one(fd.as_raw_fd(), Events::IN, LEADER_TIME).is_empty();
    if pidfd.is_some_and(is_held) {
        let _ = signal::kill(leader, Signal::KILL);
    }
    let _ = Wait::child(leader).ended().block();
    loop {
        let announced = Pid::new(setup.announce.load(SeqCst) as i32);
        if announced.is_some() || setup.leader.load(SeqCst) == 0 {
            return Ok(announced);
        }
        // It was killed. The server announces itself, if there is one.
        if clock::now() > end || Wait::any().ended().peek().is_err() {
            return Err(Errno::CHILD);
        }
        clock::pause(Duration::from_millis(1));
    }
}

impl<F: FnOnce() -> Failure> Job<'_, F> {
    /// The child: it becomes the server, or writes why it could not. `in_cgroup`: it was born there.
    fn become_server(&mut self, in_cgroup: bool) -> ! {
        let setup = self.setup;
        setup.announce.store(super::pid::own() as u64, SeqCst);
        let enter = self.cgroup.filter(|_| !in_cgroup);
        let failure = match (set_up(setup, self.parent, enter), self.execute.take()) {
            (Ok(()), Some(execute)) => execute(),
            (Ok(()), None) => Failure::Orphaned,
            (Err(failure), _) => failure,
        };
        setup.failure.store(failure.encode(), SeqCst);
        exit_now(1)
    }
}

fn set_up(setup: &Setup<'_>, parent: c_int, enter: Option<BorrowedFd<'_>>) -> Result<(), Failure> {
    if let Some(cgroup) = enter {
        // Only where it is needed: this write waits for an RCU grace period, which takes longer
        // than the rest of a start.
        super::cgroup_dir::admit(cgroup, 0).map_err(Failure::Clone)?;
    }
    let _ = super::prctl::signal_on_parent_exit(setup.parent_death_signal);
    if super::pid::parent() != parent {
        // The parent ended before the signal was set, so the signal will not come.
        return Err(Failure::Orphaned);
    }
    if setup.no_new_privs {
        rustix::thread::set_no_new_privs(true).map_err(Failure::Clone)?;
    }
    if setup.inherited.sigchld_ignored {
        signal::set_action(libc::SIGCHLD, libc::SIG_IGN);
    }
    signal::set_mask(setup.inherited.mask);
    Ok(())
}
