//! Starting processes: a fork that shares our code, and the server by a vfork-like clone.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::environment::Environment;
use super::pid::Pid;
use super::signal::{self, Signal};
use super::startup::{self, Inherited};
use super::{Errno, check, last_errno};

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

/// What the server is to be: everything prepared, since between clone and exec nothing may allocate.
pub struct Image {
    /// Where it may be, in the order of trial.
    candidates: Vec<CString>,
    /// `/bin/sh` and a slot for the path, then the arguments, then null: with the first entry left
    /// out a plain argv, with it the call of a script that has no `#!` line.
    argv: Vec<*const c_char>,
    /// Whether `candidates` come from PATH rather than from a path that was given.
    searched: bool,
    /// Unless ours will do.
    environment: Option<Environment>,
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
}

const SHELL: &std::ffi::CStr = c"/bin/sh";

impl Image {
    /// `candidates`: full paths to try (`searched`: made from PATH); `arguments`: argv, the command's name first;
    /// `notify_socket`: where the server finds its manager, if elsewhere than we do.
    #[must_use]
    pub fn new(
        candidates: Vec<CString>,
        searched: bool,
        arguments: Vec<CString>,
        notify_socket: Option<&OsStr>,
    ) -> Self {
        let mut argv = Vec::with_capacity(arguments.len() + 2);
        argv.push(SHELL.as_ptr());
        argv.extend(arguments.iter().map(|text| text.as_ptr()));
        argv.push(std::ptr::null());
        Self {
            candidates,
            searched,
            argv,
            environment: Environment::naming_another(notify_socket),
            _arguments: arguments,
        }
    }
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
pub struct Setup<'a> {
    pub inherited: &'a Inherited,
    pub group: Group,
    /// Sent to the server when we end.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// The directory of the cgroup that the server is born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Where the new process writes its pid before anything else can happen to us: shared memory.
    pub announce: &'a AtomicU64,
    /// Where it writes why it could not become the server: shared memory.
    pub failure: &'a AtomicU64,
}

/// Why no server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process could not be made or set up.
    Clone(Errno),
    /// Nothing of that name.
    NotFound(Errno),
    /// Something of that name, which cannot be executed.
    NotExecutable(Errno),
}

impl Failure {
    /// As a non-zero word.
    fn encode(self) -> u64 {
        let (kind, errno) = match self {
            Self::Clone(errno) => (1, errno),
            Self::NotFound(errno) => (2, errno),
            Self::NotExecutable(errno) => (3, errno),
        };
        kind << 32 | errno.raw_os_error() as u64
    }

    /// The reverse; `None` for zero.
    fn decode(word: u64) -> Option<Self> {
        let kind = match word >> 32 {
            1 => Self::Clone,
            2 => Self::NotFound,
            3 => Self::NotExecutable,
            _ => return None,
        };
        Some(kind(Errno::from_raw_os_error(word as i32)))
    }
}

/// What the child needs.
struct Plan<'a> {
    image: &'a mut Image,
    setup: &'a Setup<'a>,
    parent: c_int,
}

/// Starts `image`; returns when it has been executed, or failed. See `clone(2)`, `CLONE_VFORK`.
///
/// The pidfd is missing on kernels before 5.2.
pub fn spawn(image: &mut Image, setup: &Setup<'_>) -> Result<(Pid, Option<OwnedFd>), Failure> {
    let parent = super::pid::own();
    let mut plan = Plan {
        image,
        setup,
        parent,
    };
    let mut pidfd: c_int = -1;
    let pid = match setup.cgroup {
        None => vfork(&mut plan, &mut pidfd),
        Some(cgroup) => match fork_into_cgroup(&mut plan, cgroup, &mut pidfd) {
            // Before Linux 5.7, or forbidden by a filter: born here, it moves before exec.
            Err(Errno::NOSYS | Errno::INVAL | Errno::TOOBIG | Errno::PERM) => {
                vfork(&mut plan, &mut pidfd)
            }
            other => other,
        },
    }
    .map_err(Failure::Clone)?;
    // SAFETY: the kernel just gave us this descriptor (close-on-exec), nobody else owns it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    match Failure::decode(setup.failure.load(SeqCst)) {
        None => Ok((pid, pidfd)),
        Some(failure) => {
            super::wait::discard(pid);
            Err(failure)
        }
    }
}

/// Of the child until exec, in bytes; it needs less than two pages.
const STACK: usize = 16 * 1024;

/// A child on our own memory: nothing is copied, not even page tables.
#[inline(never)]
fn vfork(plan: &mut Plan<'_>, pidfd: &mut c_int) -> Result<Pid, Errno> {
    // It needs a stack of its own: on ours, its frames would overwrite those that wait here. A part of
    // ours that it has to itself will do, and has been paged in by what we did before.
    let mut stack = [MaybeUninit::<u128>::uninit(); STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let data = std::ptr::from_mut(plan).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let with_pidfd = flags | libc::CLONE_PIDFD;
    // SAFETY: with CLONE_VFORK we are suspended until the child has executed or exited, so `stack`
    // and `plan` outlive its use of them, and nobody else touches our memory meanwhile.
    let mut pid =
        unsafe { libc::clone(run_child, top, with_pidfd, data, std::ptr::from_mut(pidfd)) };
    if pid == -1 && last_errno() == Errno::INVAL {
        // SAFETY: as above.
        pid = unsafe { libc::clone(run_child, top, flags, data) };
    }
    check(pid.into())?;
    Pid::new(pid).ok_or(Errno::CHILD)
}

/// As the kernel has it; the libc's constant is too narrow.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// A child that is born in a cgroup, on a copy of our memory (with a stack of its own, clone3 could
/// only be called by hand-written assembly). See `clone3(2)`, `CLONE_INTO_CGROUP`.
fn fork_into_cgroup(
    plan: &mut Plan<'_>,
    cgroup: BorrowedFd<'_>,
    pidfd: &mut c_int,
) -> Result<Pid, Errno> {
    // SAFETY: an all-zero clone_args asks for nothing.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.pidfd = std::ptr::from_mut(pidfd) as u64;
    args.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: a live struct of the size that is told. The child goes on here with a copy of our
    // memory; we have one thread, so that copy is whole.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) };
    if pid == 0 {
        let status = run_child(std::ptr::from_mut(plan).cast());
        exit_child(status);
    }
    check(pid)?;
    Pid::new(pid as i32).ok_or(Errno::CHILD)
}

/// The child: only system calls, on memory prepared before; returns only to end with a failure.
extern "C" fn run_child(data: *mut c_void) -> c_int {
    // SAFETY: the pointer that was passed to clone; we wait, so this is the only reference in use.
    let plan = unsafe { &mut *data.cast::<Plan<'_>>() };
    plan.setup.announce.store(super::pid::own() as u64, SeqCst);
    let failure = match set_up(plan.setup, plan.parent) {
        Ok(()) => execute(plan.image),
        Err(errno) => Failure::Clone(errno),
    };
    plan.setup.failure.store(failure.encode(), SeqCst);
    1
}

fn set_up(setup: &Setup<'_>, parent: c_int) -> Result<(), Errno> {
    if let Some(cgroup) = setup.cgroup {
        // Already a member if it was born there; then this changes nothing.
        super::cgroup::enter(cgroup)?;
    }
    match setup.group {
        Group::Own => drop(super::prctl::new_session()),
        Group::Inherit => {}
    }
    let _ = super::prctl::signal_on_parent_exit(setup.parent_death_signal);
    if super::pid::parent() != parent {
        // Armed too late: the parent is gone already.
        return Err(Errno::CHILD);
    }
    if setup.no_new_privs {
        super::prctl::no_new_privs()?;
    }
    if setup.inherited.sigchld_ignored {
        signal::set_ignored(Signal::CHLD, true);
    }
    signal::set_mask(setup.inherited.mask);
    Ok(())
}

/// Tries the candidates as a shell does; returns only what went wrong.
fn execute(image: &mut Image) -> Failure {
    if let Some(environment) = &mut image.environment {
        environment.fill_in(super::pid::own());
    }
    let environment = match &image.environment {
        Some(environment) => environment.as_ptr(),
        None => startup::environment(),
    };
    let (mut found, mut missing) = (None, Errno::NOENT);
    for at in 0..image.candidates.len() {
        let path = image.candidates[at].as_ptr();
        // SAFETY: NUL-terminated strings in null-terminated arrays, owned by `image` and by the C runtime.
        unsafe { libc::execve(path, image.argv[1..].as_ptr(), environment) };
        let errno = last_errno();
        if errno == Errno::NOEXEC {
            let name = std::mem::replace(&mut image.argv[1], path);
            // SAFETY: as above.
            unsafe { libc::execve(SHELL.as_ptr(), image.argv.as_ptr(), environment) };
            image.argv[1] = name;
        }
        // A directory of the command's name in PATH is no command.
        if exists(&image.candidates[at], image.searched) {
            found = found.or(Some(errno));
        } else if errno != Errno::NOENT {
            missing = errno;
        }
    }
    match found {
        Some(errno) => Failure::NotExecutable(errno),
        // A directory of PATH that may not be searched hides nothing that we could run.
        None if image.searched => Failure::NotFound(Errno::NOENT),
        None if matches!(missing, Errno::NOENT | Errno::NOTDIR) => Failure::NotFound(missing),
        None => Failure::NotExecutable(missing),
    }
}

fn exists(path: &CString, but_no_directory: bool) -> bool {
    // SAFETY: an all-zero stat is a valid value to be overwritten.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated string and a live struct.
    let found = unsafe { libc::stat(path.as_ptr(), &raw mut stat) } == 0;
    found && !(but_no_directory && stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}
