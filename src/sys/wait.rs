//! Waiting for children, of every kind (`__WALL`).

use std::os::fd::AsFd;
use std::time::Duration;

use super::pid::{self, Pid};
use super::{Errno, check, pidfd, proc};

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Exited(u8),
    /// The number of the signal that ended it.
    Killed(u8),
    /// Job control has suspended it, by the signal of this number.
    Suspended(u8),
    /// It is in a tracing stop: it has called `PTRACE_TRACEME`, so any signal suspends it.
    Trapped,
    Resumed,
}

/// What a wait that does not block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Child(i32, Change),
    /// There are children, and nothing new about them.
    Nothing,
    /// ECHILD: no child is left. This is the only proof that the tree is empty.
    NoChildren,
}

/// Takes one change of any child, and reaps the child if it has ended. See `waitid(2)`.
pub fn any() -> Found {
    one(-1)
}

/// As [`any`], for the child `pid`.
pub fn child(pid: Pid) -> Found {
    one(pid.get())
}

fn one(pid: i32) -> Found {
    let flags = libc::WNOHANG | libc::__WALL | libc::WUNTRACED | libc::WCONTINUED;
    let mut tries = 3;
    loop {
        match ask(pid, EVERY_CHANGE | libc::WNOHANG) {
            Ok(Some((pid, change))) => return Found::Child(pid, change),
            Ok(None) => return Found::Nothing,
            Err(Errno::INTR) => continue,
            Err(Errno::CHILD) => return Found::NoChildren,
            // Only a seccomp filter fails this way. The other call does the same, except that it does not
            // distinguish a tracing stop from one of job control.
            Err(_) => {}
        }
        let mut status = 0;
        // SAFETY: the status is a live int; no rusage is asked for.
        let ret = unsafe { libc::wait4(pid, &raw mut status, flags, std::ptr::null_mut()) };
        match check(ret.into()) {
            Ok(0) => return Found::Nothing,
            Ok(pid) => return Found::Child(pid as i32, decode(status)),
            Err(Errno::CHILD) => return Found::NoChildren,
            // This must not be taken for an empty tree. No signal will come again for a child that has
            // ended, so one refusal is not final.
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
        Change::Suspended(libc::WSTOPSIG(status) as u8)
    } else {
        Change::Resumed
    }
}

const EVERY_CHANGE: i32 = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
/// Does not take the change: the next wait finds it again.
const PEEK: i32 = libc::WNOHANG | libc::WNOWAIT;

/// One change of the child `pid` (-1: of any). `None`: it is there, and has not changed. See `waitid(2)`.
///
/// # Errors
/// `ECHILD` it is not a child of this process; `EINTR`; another one if a filter refuses the call.
fn ask(pid: i32, flags: i32) -> Result<Option<(i32, Change)>, Errno> {
    let (kind, id) = if pid == -1 {
        (libc::P_ALL, 0)
    } else {
        (libc::P_PID, pid as libc::id_t)
    };
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the siginfo is live.
    let ret = unsafe { libc::waitid(kind, id, &raw mut info, flags | libc::__WALL) };
    check(ret.into())?;
    // SAFETY: the field is inside of every siginfo; it stays 0 if nothing was found.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let change = match info.si_code {
        libc::CLD_EXITED => Change::Exited(status as u8),
        libc::CLD_KILLED | libc::CLD_DUMPED => Change::Killed(status as u8),
        libc::CLD_CONTINUED => Change::Resumed,
        libc::CLD_TRAPPED => Change::Trapped,
        _ => Change::Suspended(status as u8),
    };
    Ok((pid != 0).then_some((pid, change)))
}

/// Whether `pid` is a child of this process, dead or alive. Reaps nothing. See `waitid(2)`.
#[must_use]
pub fn is_child(pid: Pid) -> bool {
    match ask(pid.get(), libc::WEXITED | PEEK) {
        Ok(_) => true,
        Err(Errno::CHILD) => false,
        // Refused by a filter. Only this process reaps its children, so their pids cannot be recycled meanwhile.
        Err(_) => {
            let parent = pidfd::of(pid).and_then(|fd| pidfd::parent(fd.as_fd()));
            let parent = parent.or_else(|_| proc::stat(pid.get()).map(|stat| stat.parent));
            parent == Ok(pid::own())
        }
    }
}

/// Whether the child `pid` has ended and waits to be reaped. Reaps nothing.
#[must_use]
pub fn has_ended(pid: Pid) -> bool {
    match ask(pid.get(), libc::WEXITED | PEEK) {
        Ok(found) => found.is_some(),
        Err(Errno::CHILD) => false,
        Err(_) => proc::stat(pid.get()).is_ok_and(|stat| matches!(stat.state, b'Z' | b'X')),
    }
}

/// Whether the suspended child `pid` has been resumed, or has ended, since [`any`] last reported on it.
/// Takes nothing.
#[must_use]
pub fn is_resumed(pid: Pid) -> bool {
    matches!(
        ask(pid.get(), libc::WEXITED | libc::WCONTINUED | PEEK),
        Ok(Some(_))
    )
}

/// The last suspension or resumption of the child `pid`, if no wait has taken it. Takes nothing. The kernel
/// reports each of them once, so a caller of [`any`] must remember what it has taken.
#[must_use]
pub fn job_change(pid: Pid) -> Option<Change> {
    let found = ask(pid.get(), libc::WSTOPPED | libc::WCONTINUED | PEEK);
    found.ok().flatten().map(|(_, change)| change)
}

/// Whether this process has any child, dead or alive. Reaps nothing.
#[must_use]
pub fn have_children() -> bool {
    match ask(-1, libc::WEXITED | PEEK) {
        Ok(_) => true,
        Err(Errno::CHILD) => false,
        Err(_) => {
            let mut any = false;
            proc::children(pid::own(), &mut |_| any = true).is_err() || any
        }
    }
}

/// Greater than every pid that a kernel assigns.
const PID_LIMIT: i32 = 4 * 1024 * 1024;

/// Every child of this process, found by trying every possible pid. Needs no `/proc` and no descriptor, but the
/// search takes a large part of a second.
pub fn children() -> impl Iterator<Item = Pid> {
    let all = (2..PID_LIMIT).filter_map(Pid::new);
    all.filter(|pid| is_child(*pid))
}

/// Waits until the child `pid` has ended, and returns whether it exited with 0. Only for a child that is about to end.
#[must_use]
pub fn for_success(pid: Pid) -> bool {
    take_end(pid) == Some(Change::Exited(0))
}

/// What the children that were reaped have used, with their own reaped descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    /// The largest resident memory of a single process, in bytes.
    pub max_rss: u64,
}

/// See `getrusage(2)`, `RUSAGE_CHILDREN`.
#[must_use]
pub fn usage() -> Usage {
    // SAFETY: an all-zero rusage is a valid value to be overwritten.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the rusage is live.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Usage {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        max_rss: usage.ru_maxrss as u64 * 1024,
    }
}

fn take_end(pid: Pid) -> Option<Change> {
    loop {
        let mut status = 0;
        // SAFETY: the status is a live int.
        let ret = unsafe { libc::waitpid(pid.get(), &raw mut status, libc::__WALL) };
        match check(ret.into()) {
            Ok(_) => return Some(decode(status)),
            Err(Errno::INTR) => continue,
            Err(Errno::CHILD) => return None,
            // Refused by a filter.
            Err(_) => {}
        }
        match ask(pid.get(), libc::WEXITED) {
            Ok(found) => return found.map(|(_, change)| change),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
