//! What a walk asks the kernel (tests simulate a process table), and the processes it has proven.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sys::pid::{self, Pid};
use crate::sys::proc::View;
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{self, Wait};
use crate::sys::{Errno, pidfd};

/// What a walk needs of a kernel. The type is known at compile time, so each call is direct.
pub trait Kernel {
    /// Refers to one process, and never to its successor with the same number.
    type Handle;

    fn own(&self) -> i32;

    /// Calls `each` with every child of `pid`. Errors: see [`View::children`].
    fn children(&self, pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno>;

    /// Calls `each` with every pid that is in use. Errors: see [`View::processes`].
    fn processes(&self, each: &mut dyn FnMut(i32)) -> Result<(), Errno>;

    /// Calls `each` with every child of this process, found without a list. The search takes long.
    fn own_children(&self, each: &mut dyn FnMut(Pid));

    /// `ESRCH`, `ENOENT` no such process; `EMFILE`, `ENFILE`, `ENOMEM`.
    fn open(&self, pid: Pid) -> Result<Self::Handle, Errno>;

    /// The parent of the process behind a handle. `ESRCH`: reaped; `ENOTTY`: ask [`Self::parent`].
    fn parent_of(&self, handle: &Self::Handle) -> Result<i32, Errno>;

    /// The parent of the process that has this pid now. Errors: see [`View::stat`].
    fn parent(&self, pid: i32) -> Result<i32, Errno>;

    /// Whether the process behind a handle has not been reaped: its pid is still its own.
    fn is_unreaped(&self, handle: &Self::Handle) -> bool;

    /// Whether the process behind a handle has ended, reaped or not.
    fn has_ended(&self, handle: &Self::Handle) -> bool;

    /// Whether `pid` is a child of this process, dead or alive.
    fn is_child(&self, pid: Pid) -> bool;
}

/// Whether this kernel reports the parent through a pidfd (Linux 6.13). Otherwise `/proc` is used.
static PIDFD_INFO: AtomicBool = AtomicBool::new(true);

/// The real kernel, and its `/proc` if that can be used.
pub struct Linux(pub Result<View, Errno>);

impl Kernel for Linux {
    type Handle = OwnedFd;

    fn own(&self) -> i32 {
        pid::own()
    }

    fn children(&self, pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        match self.0?.children(pid, each) {
            // `hidepid=invisible` hides living processes of other users.
            Err(Errno::NOENT) if pid::session(pid).is_ok() => Err(Errno::PERM),
            other => other,
        }
    }

    fn processes(&self, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        self.0?.processes(each)
    }

    fn own_children(&self, each: &mut dyn FnMut(Pid)) {
        wait::children().for_each(each);
    }

    fn open(&self, pid: Pid) -> Result<OwnedFd, Errno> {
        match pidfd::open(pid.get()) {
            Err(Errno::NOSYS) => self.0?.open_dir(pid.get()),
            other => other,
        }
    }

    fn parent_of(&self, handle: &OwnedFd) -> Result<i32, Errno> {
        if PIDFD_INFO.load(Relaxed) {
            let parent = pidfd::parent(handle.as_fd());
            if matches!(parent, Ok(_) | Err(Errno::SRCH)) {
                return parent;
            }
            PIDFD_INFO.store(false, Relaxed);
        }
        Err(Errno::NOTTY)
    }

    fn parent(&self, pid: i32) -> Result<i32, Errno> {
        self.0?.stat(pid).map(|stat| stat.parent)
    }

    fn is_unreaped(&self, handle: &OwnedFd) -> bool {
        // Before Linux 5.1 it is unknown.
        pidfd::is_unreaped(handle.as_fd()).unwrap_or(true)
    }

    fn has_ended(&self, handle: &OwnedFd) -> bool {
        pidfd::has_ended(handle.as_fd())
    }

    fn is_child(&self, pid: Pid) -> bool {
        wait::is_child(pid)
    }
}

/// A process that is proven to be of the tree. It can be signalled safely while this value lives.
pub struct Member<H = OwnedFd> {
    pub pid: Pid,
    /// `None` for a child of this process, and in a PID namespace of its own.
    pub handle: Option<H>,
}

impl Member {
    /// `ESRCH` it is gone; `EPERM` not allowed.
    pub fn send(&self, signal: Signal) -> Result<(), Errno> {
        let handle = self.handle.as_ref();
        match handle.map(|handle| pidfd::send(handle.as_fd(), signal)) {
            // Before Linux 5.1 there is no safer call. The process was proven a moment ago.
            None | Some(Err(Errno::NOSYS)) => signal::kill(self.pid, signal),
            Some(sent) => sent,
        }
    }

    /// Whether it has ended: then its children have another parent.
    pub fn has_ended(&self) -> bool {
        match &self.handle {
            None => Wait::child(self.pid).ended().has_come(),
            Some(handle) => pidfd::has_ended(handle.as_fd()),
        }
    }
}
