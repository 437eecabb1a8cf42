//! Starting processes: a fork that shares our code, and the server by a vfork-like clone.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::pid::Pid;
use super::signal::{self, Signal};
use super::startup::{self, Inherited};
use super::{Errno, check, last_errno};

/// Which of the two a fork returned in.
pub enum Fork {
    Parent(Pid),
    Child,
}

/// Forks. We have one thread, so the child may do what the parent may. See `fork(2)`.
///
/// # Errors
/// `EAGAIN` a limit of processes; `ENOMEM`.
pub fn fork() -> Result<Fork, Errno> {
    // SAFETY: single-threaded by design: no lock can be held by a thread that the child lacks.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => Ok(Fork::Child),
        Ok(nix::unistd::ForkResult::Parent { child }) => Pid::new(child.as_raw())
            .map(Fork::Parent)
            .ok_or(Errno::CHILD),
        Err(errno) => Err(Errno::from_raw_os_error(errno as i32)),
    }
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
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
}

const SHELL: &std::ffi::CStr = c"/bin/sh";

impl Image {
    /// `candidates`: full paths to try (`searched`: made from PATH); `arguments`: argv, the command's name first.
    #[must_use]
    pub fn new(candidates: Vec<CString>, searched: bool, arguments: Vec<CString>) -> Self {
        let mut argv = Vec::with_capacity(arguments.len() + 2);
        argv.push(SHELL.as_ptr());
        argv.extend(arguments.iter().map(|text| text.as_ptr()));
        argv.push(std::ptr::null());
        Self {
            candidates,
            searched,
            argv,
            _arguments: arguments,
        }
    }
}

/// The process group that the server starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// A new one, that it leads.
    Own,
    /// An existing one of our session (job control wants it there).
    Join(i32),
}

/// How the new process is set up before exec.
pub struct Setup<'a> {
    pub inherited: &'a Inherited,
    pub group: Group,
    /// Sent to the server when we end.
    pub parent_death_signal: Signal,
    pub no_new_privs: bool,
    /// Where the new process writes its pid before anything else can happen to us.
    pub announce: &'a AtomicU64,
}

/// Why no server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The clone itself.
    Clone(Errno),
    /// Nothing of that name.
    NotFound(Errno),
    /// Something of that name, which cannot be executed.
    NotExecutable(Errno),
}

/// What the child finds and leaves in our memory, which it shares until exec.
struct Shared<'a> {
    image: &'a mut Image,
    setup: &'a Setup<'a>,
    parent: c_int,
    failure: Option<Failure>,
}

/// Starts `image`; returns when it has been executed, or failed. See `clone(2)`, `CLONE_VFORK`.
///
/// The pidfd is missing on kernels before 5.2.
pub fn spawn(image: &mut Image, setup: &Setup<'_>) -> Result<(Pid, Option<OwnedFd>), Failure> {
    // The child needs a stack of its own: on ours, its frames would overwrite those that wait here.
    // Reserved, not zeroed: only the pages that the child uses become memory.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let parent = super::pid::own();
    let mut shared = Shared {
        image,
        setup,
        parent,
        failure: None,
    };
    let data = (&raw mut shared).cast::<c_void>();
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: one past the end of a live allocation, which is what a stack that grows down needs.
    let top = unsafe { stack.as_mut_ptr().add(stack.capacity()) }.cast::<c_void>();
    // SAFETY: with CLONE_VFORK we are suspended until the child has executed or exited, so `stack`
    // and `shared` outlive its use of them, and nobody else touches our memory meanwhile.
    let mut pid = unsafe {
        libc::clone(
            run_child,
            top,
            flags | libc::CLONE_PIDFD,
            data,
            &raw mut pidfd,
        )
    };
    if pid == -1 && last_errno() == Errno::INVAL {
        // SAFETY: as above.
        pid = unsafe { libc::clone(run_child, top, flags, data) };
    }
    check(pid.into()).map_err(Failure::Clone)?;
    let failure = shared.failure;
    // SAFETY: the kernel just gave us this descriptor (close-on-exec), nobody else owns it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    match (failure, Pid::new(pid)) {
        (None, Some(pid)) => Ok((pid, pidfd)),
        (failure, pid) => {
            if let Some(pid) = pid {
                super::wait::discard(pid);
            }
            Err(failure.unwrap_or(Failure::Clone(Errno::CHILD)))
        }
    }
}

/// Of the child until exec, in bytes; it needs less than two pages.
const STACK: usize = 32 * 1024;

/// The child: only system calls, on memory prepared before; returns only to end with a failure.
extern "C" fn run_child(data: *mut c_void) -> c_int {
    // SAFETY: the pointer that `spawn` passed; it waits, so this is the only reference in use.
    let shared = unsafe { &mut *data.cast::<Shared<'_>>() };
    let setup = shared.setup;
    setup.announce.store(super::pid::own() as u64, SeqCst);
    match setup.group {
        Group::Own => drop(super::prctl::new_group()),
        Group::Join(group) => {
            // SAFETY: takes numbers. The group may have died with its members; then our own must do.
            if unsafe { libc::setpgid(0, group) } == -1 {
                let _ = super::prctl::new_group();
            }
        }
    }
    let _ = super::prctl::signal_on_parent_exit(setup.parent_death_signal);
    // Armed too late if the parent is gone already. (0: we are the first process of a PID namespace's child.)
    if super::pid::parent() != shared.parent {
        shared.failure = Some(Failure::Clone(Errno::CHILD));
        return 1;
    }
    if setup.no_new_privs
        && let Err(errno) = super::prctl::no_new_privs()
    {
        shared.failure = Some(Failure::Clone(errno));
        return 1;
    }
    if setup.inherited.sigchld_ignored {
        signal::set_ignored(Signal::CHLD, true);
    }
    signal::set_mask(setup.inherited.mask);
    shared.failure = Some(execute(shared.image));
    1
}

/// Tries the candidates as a shell does; returns only what went wrong.
fn execute(image: &mut Image) -> Failure {
    let environment = startup::environment();
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
        } else if !matches!(errno, Errno::NOENT | Errno::NOTDIR) {
            missing = errno;
        }
    }
    match found {
        Some(errno) => Failure::NotExecutable(errno),
        // A directory of PATH that may not be searched hides nothing that we could run.
        None if image.searched || missing == Errno::NOENT => Failure::NotFound(Errno::NOENT),
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
