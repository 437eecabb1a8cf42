//! Waiting for children, of every kind (`__WALL`).

use super::pid::Pid;
use super::{Errno, check};

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Exited(u8),
    /// The number of the signal that ended it.
    Killed(u8),
    /// The number of the signal that stopped it.
    Stopped(u8),
    Continued,
}

/// What a wait that does not block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Child(i32, Change),
    /// There are children, and nothing new about them.
    Nothing,
    /// ECHILD: nobody is left. The one proof that the tree is empty.
    NoChildren,
}

/// Takes one change of any child, reaping it if it ended. See `wait4(2)`.
pub fn any() -> Found {
    one(-1)
}

/// Takes one change of the child `pid`, reaping it if it ended. As [`any`].
pub fn child(pid: Pid) -> Found {
    one(pid.get())
}

fn one(pid: i32) -> Found {
    let flags = libc::WNOHANG | libc::__WALL | libc::WUNTRACED | libc::WCONTINUED;
    let mut tries = 3;
    loop {
        let mut status = 0;
        // SAFETY: the status is a live int; no rusage is asked for.
        let ret = unsafe { libc::wait4(pid, &raw mut status, flags, std::ptr::null_mut()) };
        match check(ret.into()) {
            Ok(0) => return Found::Nothing,
            Ok(pid) => return Found::Child(pid as i32, decode(status)),
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Found::NoChildren,
            // Only a filter answers so. It must not pass for an empty tree; and since no signal will
            // tell again of a child that has ended, one refusal is not the last word.
            Err(_) if tries > 0 => tries -= 1,
            Err(_) => return Found::Nothing,
        }
    }
}

fn decode(status: i32) -> Change {
    if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status) as u8)
    } else if libc::WIFSIGNALED(status) {
        Change::Killed(libc::WTERMSIG(status) as u8)
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status) as u8)
    } else {
        Change::Continued
    }
}

/// Whether `pid` is a child of ours, dead or alive. Takes nothing. See `waitid(2)`.
#[must_use]
pub fn is_child(pid: Pid) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the siginfo is live.
    let ret = unsafe { libc::waitid(libc::P_PID, pid.get() as u32, &raw mut info, flags) };
    ret == 0
}

/// Whether the child `pid` has ended and waits to be reaped. Takes nothing.
#[must_use]
pub fn has_ended(pid: Pid) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the siginfo is live.
    let ret = unsafe { libc::waitid(libc::P_PID, pid.get() as u32, &raw mut info, flags) };
    // SAFETY: the field is inside of every siginfo; it stays 0 if nothing was found.
    ret == 0 && unsafe { info.si_pid() } == pid.get()
}

/// Whether we have any child at all, dead or alive. Takes nothing.
#[must_use]
pub fn have_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the siginfo is live.
    let ret = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    ret == 0
}

/// Waits until the child `pid` has ended; whether it exited with 0. Only for one that is about to end.
#[must_use]
pub fn for_success(pid: Pid) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: the status is a live int.
        let ret = unsafe { libc::waitpid(pid.get(), &raw mut status, libc::__WALL) };
        match check(ret.into()) {
            Ok(_) => return status == 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Waits until the child `pid` has ended, and takes it. Only for one that is about to end.
pub fn discard(pid: Pid) {
    // SAFETY: takes numbers; no status is asked for.
    while unsafe { libc::waitpid(pid.get(), std::ptr::null_mut(), libc::__WALL) } == -1
        && super::last_errno() == Errno::INTR
    {}
}
