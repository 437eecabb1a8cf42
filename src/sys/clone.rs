//! Starting processes: a fork, and the server as a child that begins as a copy of its parent.

use std::ffi::{c_int, c_long, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use super::exec::Failure;
use super::pid::{self, Pid};
use super::poll::{Events, poll_one};
use super::signal::{self, Signal};
use super::startup::{Inherited, Standing};
use super::wait::{Change, Ended, Wait};
use super::{Errno, arrival, cgroup_dir, check, clock, fd, pidfd, prctl};

pub enum Fork {
    Parent(Pid),
    Child,
}

/// Forks a child whose end sends SIGCONT to the parent instead of SIGCHLD, which resumes a parent
/// that is suspended. Waiting for such a child takes `__WALL`. See `clone(2)`; `in_job`: see
/// [`arrival::share_keys`]. `EAGAIN`: a limit of processes.
pub fn fork(in_job: bool) -> Result<Fork, Errno> {
    fork_with(0, in_job)
}

/// Forks a child whose end sends SIGCHLD to the parent, as usual.
pub fn fork_plainly() -> Result<Fork, Errno> {
    clone(libc::SIGCHLD, None).map(|(fork, ..)| fork)
}

/// As [`fork`], but the child is the init of a new PID namespace, with a mount namespace of its
/// own. `with_user`: in a new user namespace, which needs no `CAP_SYS_ADMIN`. See `namespaces(7)`.
/// `EPERM`: not allowed; `ENOSPC`: too many or too deep; `EINVAL`: the kernel has none.
pub fn fork_into_namespace(with_user: bool, in_job: bool) -> Result<Fork, Errno> {
    let user = if with_user { libc::CLONE_NEWUSER } else { 0 };
    fork_with(libc::CLONE_NEWPID | libc::CLONE_NEWNS | user, in_job)
}

fn fork_with(flags: c_int, in_job: bool) -> Result<Fork, Errno> {
    let make = |more| clone(flags | more | libc::SIGCONT, None);
    arrival::share_keys(in_job, make).map(|(fork, ..)| fork)
}

/// Makes a process, by clone3 if possible: that came with Linux 5.3, its cgroups with 5.7, and the
/// filters of containers often forbid it. `flags` has the exit signal in its low byte. Also returns
/// the pidfd, to the parent, with `CLONE_PIDFD`; and whether the child was born in `cgroup`.
pub(super) fn clone(
    flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(Fork, Option<OwnedFd>, bool), Errno> {
    let mut pidfd = -1;
    let newer = clone3(flags, &mut pidfd, cgroup);
    let made = match newer {
        Err(Errno::NOSYS | Errno::INVAL | Errno::TOOBIG | Errno::PERM) => {
            older_clone(flags, &mut pidfd)
        }
        other => other,
    };
    let made = match made {
        // Kernels before 5.2 ignore the flag. Emulators refuse it.
        Err(Errno::INVAL) if flags & libc::CLONE_PIDFD != 0 => {
            older_clone(flags & !libc::CLONE_PIDFD, &mut pidfd)
        }
        other => other,
    };
    let (fork, pidfd) = match made? {
        0 => (Fork::Child, None),
        pid => {
            let pid = Pid::new(pid as i32).ok_or(Errno::CHILD)?;
            (Fork::Parent(pid), just_opened(pidfd))
        }
    };
    Ok((fork, pidfd, newer.is_ok()))
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
    /// `stack`, `stack_size`, `tls`, `set_tid`, `set_tid_size`.
    unused: [u64; 5],
    cgroup: u64,
}

/// See `clone3(2)`. There is only one thread, so the child may do all that the parent may, but call
/// no function that uses what the libc stores for each thread (such as `raise`).
fn clone3(flags: c_int, fd: &mut c_int, cgroup: Option<BorrowedFd<'_>>) -> Result<c_long, Errno> {
    let mut args = CloneArgs {
        flags: (flags & !libc::CSIGNAL) as u64,
        pidfd: std::ptr::from_mut(fd) as u64,
        child_tid: arrival::IS_NEW.as_ptr() as u64,
        exit_signal: (flags & libc::CSIGNAL) as u64,
        ..CloneArgs::default()
    };
    if let Some(cgroup) = cgroup {
        // `CLONE_INTO_CGROUP`, which has too many bits for a C int.
        args.flags |= 1 << 33;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: a live struct, and its size. The child gets a copy of all memory, and the copy is
    // consistent: no lock can be held by a thread that the child lacks.
    check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) })
}

/// See `clone(2)`.
fn older_clone(flags: c_int, pidfd: &mut c_int) -> Result<c_long, Errno> {
    let flags = c_long::from(flags);
    // s390x: the stack comes first. Without one, the child uses its copy of the present one.
    let is_swapped = cfg!(target_arch = "s390x");
    let (first, second) = if is_swapped { (0, flags) } else { (flags, 0) };
    // The last two, in either order: where the child's pid is written, and what no flag asks for.
    let (pidfd, child) = (std::ptr::from_mut(pidfd), arrival::IS_NEW.as_ptr());
    // SAFETY: live numbers. The copy of the memory is consistent, as with `clone3`.
    check(unsafe { libc::syscall(libc::SYS_clone, first, second, pidfd, child, child) })
}

/// Ends this process without exit handlers: a forked child has none of its own, and in both
/// processes of the pair they would write to pages that only they need. See `_exit(2)`.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(status) }
}

/// How the new process is set up before exec. The three words are in shared memory.
pub struct Setup<'a> {
    pub inherited: Inherited,
    /// The working directory, if the parent leaves it: the server may look where its parent is.
    pub leaves: Option<&'a Path>,
    pub standing: Standing,
    /// The server gets it when its parent ends.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// Its pid, written first of all: its parent may be killed at any time.
    pub announce: &'static AtomicU64,
    /// The pid of the first leader of its session, if that is another process.
    pub leader: &'static AtomicU64,
    /// Why it could not become the server.
    pub failure: &'static AtomicU64,
}

pub struct Spawned {
    pub pid: Pid,
    /// Missing before Linux 5.2.
    pub pidfd: Option<OwnedFd>,
    /// The first leader of its session and group, which is gone, and its pidfd.
    pub leader: Option<(Pid, Option<OwnedFd>)>,
}

/// Makes the process that becomes the server, in `cgroup` if there is one. Returns before its exec,
/// which may never return (a network file system, a scanner): a stop must not wait for it. If the
/// exec fails, the process writes the reason to `setup.failure`, and exits. `EAGAIN`: a limit of
/// processes; `ECHILD`: the first leader was killed; any error that a filter gives.
pub fn spawn(
    setup: &Setup<'_>,
    cgroup: Option<BorrowedFd<'_>>,
    mut execute: impl FnMut() -> Failure,
) -> Result<Spawned, Errno> {
    let mut job = Job {
        setup,
        parent: pid::own(),
        cgroup,
        execute: &mut execute,
    };
    let standing = setup.standing;
    let needs_leader = matches!(standing, Standing::LeadsGroup | Standing::LeadsNothing);
    if let Some(Ok((leader, pidfd))) = needs_leader.then(|| clone_leader(&mut job)) {
        if setup.leaves.is_some() {
            fd::leave_directory();
        }
        if let Some(pid) = announced(setup, leader, pidfd.as_ref())? {
            // It is a child that was not reaped, so its pid is its own.
            let (leader, pidfd) = (Some((leader, pidfd)), pidfd::open(pid.get()).ok());
            return Ok(Spawned { pid, pidfd, leader });
        }
    }
    let in_job = standing == Standing::InJob;
    let make = |flags| clone(flags | libc::CLONE_PIDFD | libc::SIGCHLD, cgroup);
    let (forked, pidfd, in_cgroup) = arrival::share_keys(in_job, make)?;
    let Fork::Parent(pid) = forked else {
        if !in_job {
            let _ = prctl::new_session();
        }
        // After a first leader that has failed, the parent has left the directory.
        if needs_leader {
            prctl::weigh_session();
            let _ = setup.leaves.map(rustix::process::chdir);
        }
        job.become_server(in_cgroup)
    };
    if setup.leaves.is_some() {
        fd::leave_directory();
    }
    let leader = None;
    Ok(Spawned { pid, pidfd, leader })
}

struct Job<'a> {
    setup: &'a Setup<'a>,
    parent: c_int,
    cgroup: Option<BorrowedFd<'a>>,
    execute: &'a mut dyn FnMut() -> Failure,
}

/// The stack of the first leader, and of the server until its exec.
#[repr(C, align(16))]
struct Stack([u8; 64 << 10]);

static mut STACK: Stack = Stack([0; 64 << 10]);

/// Makes the first leader. It shares the memory of this process, since a copy would take longer
/// than all that it does, and the descriptors, since the end of a copy can wait for a file system.
fn clone_leader(job: &mut Job<'_>) -> Result<(Pid, Option<OwnedFd>), Errno> {
    let top = (&raw mut STACK).wrapping_add(1).cast();
    let job = std::ptr::from_mut(job).cast();
    let clone_with = |more| {
        // SIGCHLD: the server inherits this signal of its end, and keeps it until its exec.
        let flags = libc::CLONE_FILES | libc::SIGCHLD | more;
        let mut pidfd = -1;
        // SAFETY: no other process with this memory is on `STACK`. The caller keeps the job, and
        // does not use it, until the leader has ended. Besides it both write only `errno`: if both
        // calls fail at once, a wrong one decides at most that the server gets no leader.
        let pid = unsafe { libc::clone(lead, top, flags, job, &raw mut pidfd) };
        let pid = Pid::new(check(pid.into())? as i32).ok_or(Errno::CHILD)?;
        Ok((pid, just_opened(pidfd)))
    };
    match clone_with(libc::CLONE_VM | libc::CLONE_PIDFD) {
        // Emulators know neither of the two flags.
        Err(Errno::INVAL) => clone_with(0),
        other => other,
    }
}

/// Takes over the pidfd that the kernel has just opened (close-on-exec), if it has.
fn just_opened(pidfd: c_int) -> Option<OwnedFd> {
    // SAFETY: nothing else owns it.
    (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// The first leader: it makes a session and a group, and in these the server, as another child of
/// its own parent. Then it ends, so that the session and the group have no leader.
extern "C" fn lead(job: *mut c_void) -> c_int {
    // SAFETY: `clone_leader` passes a live job, which its caller does not use meanwhile.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    let setup = job.setup;
    let _ = prctl::new_session();
    prctl::weigh_session();
    setup.leader.store(pid::own() as u64, SeqCst);
    match clone(libc::CLONE_PARENT, job.cgroup) {
        Ok((Fork::Child, _, in_cgroup)) => {
            if setup.standing == Standing::LeadsGroup {
                let _ = prctl::new_group();
            }
            job.become_server(in_cgroup);
        }
        // The server may not have run yet.
        Ok((Fork::Parent(server), ..)) => setup.announce.store(server.get() as u64, SeqCst),
        Err(Errno::AGAIN) => exit_now(libc::EAGAIN),
        Err(_) => setup.leader.store(0, SeqCst),
    }
    exit_now(0)
}

/// The first leader needs a tenth of a millisecond. One that is held (by a debugger, in a frozen
/// group) must not keep its parent from its work.
const LEADER_TIME: Duration = Duration::from_secs(5);

/// The server that the first leader has made, once that one has ended. `None`: an emulator, or a
/// filter of system calls, does not let it make another child of its parent.
fn announced(setup: &Setup<'_>, leader: Pid, fd: Option<&OwnedFd>) -> Result<Option<Pid>, Errno> {
    let end = clock::now() + LEADER_TIME;
    let is_held = |fd: &OwnedFd| poll_one(fd.as_raw_fd(), Events::IN, LEADER_TIME).is_empty();
    if fd.is_some_and(is_held) && clock::now() >= end {
        let _ = signal::kill(leader, Signal::KILL);
    }
    // No room beside the leader: made without it, the server would lead the session.
    let no_room = Change::Ended(Ended::Exited(libc::EAGAIN as u8));
    if Wait::child(leader).ended().block() == Ok(Some((leader.get(), no_room))) {
        return Err(Errno::AGAIN);
    }
    loop {
        let server = Pid::new(setup.announce.load(SeqCst) as i32);
        if server.is_some() || setup.leader.load(SeqCst) == 0 {
            return Ok(server);
        }
        // It was killed. The server announces itself, if there is one.
        if clock::now() > end || Wait::any().ended().peek().is_err() {
            return Err(Errno::CHILD);
        }
        clock::pause(Duration::from_millis(1));
    }
}

impl Job<'_> {
    /// In the child: becomes the server, or writes why it could not.
    fn become_server(&mut self, in_cgroup: bool) -> ! {
        self.setup.announce.store(pid::own() as u64, SeqCst);
        let failure = match self.set_up(in_cgroup) {
            Ok(()) => (self.execute)(),
            Err(failure) => failure,
        };
        self.setup.failure.store(failure.encode(), SeqCst);
        exit_now(1)
    }

    fn set_up(&self, in_cgroup: bool) -> Result<(), Failure> {
        if let Some(cgroup) = self.cgroup.filter(|_| !in_cgroup) {
            // This write waits for an RCU grace period, longer than the rest of a start takes.
            cgroup_dir::admit(cgroup, 0).map_err(Failure::Clone)?;
        }
        let _ = prctl::signal_on_parent_exit(self.setup.parent_death_signal);
        if pid::parent() != self.parent {
            return Err(Failure::Orphaned);
        }
        if self.setup.no_new_privs {
            rustix::thread::set_no_new_privs(true).map_err(Failure::Clone)?;
        }
        if self.setup.inherited.sigchld_ignored {
            signal::set_action(libc::SIGCHLD, libc::SIG_IGN);
        }
        signal::set_mask(self.setup.inherited.mask);
        Ok(())
    }
}
