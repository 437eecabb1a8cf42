//! Waiting for children, of every kind (`__WALL`).

use std::fmt;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::arrival::no_info;
use super::pid::Pid;
use super::signal::Signal;
use super::{Errno, check};

/// How long the end of a process is waited for that the kernel may not let end.
pub const DYING: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    Exited(u8),
    /// The number of the signal.
    Killed(u8),
}

impl Ended {
    /// As in a shell's `$?`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
        }
    }

    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Exited(_) => None,
            Self::Killed(number) => Signal::from_number(number.into()),
        }
    }

    /// As one non-zero number, for shared memory.
    pub const fn encode(self) -> u32 {
        match self {
            Self::Exited(code) => 0x100 | code as u32,
            Self::Killed(signal) => 0x200 | signal as u32,
        }
    }

    pub const fn decode(number: u32) -> Option<Self> {
        match number >> 8 {
            1 => Some(Self::Exited(number as u8)),
            2 => Some(Self::Killed(number as u8)),
            _ => None,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.signal()) {
            (Self::Exited(code), _) => write!(f, "exited with status {code}"),
            (Self::Killed(_), Some(signal)) => write!(f, "was ended by {signal}"),
            (Self::Killed(number), None) => write!(f, "was ended by signal {number}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Ended(Ended),
    /// Job control has suspended it, by the signal of this number.
    Suspended(u8),
    /// It is in a tracing stop: it has called `PTRACE_TRACEME`, so any signal suspends it.
    Trapped,
    Resumed,
}

/// Which children, and which of their changes. See `waitid(2)`. `None`: nothing new about them.
/// `ECHILD`: no such child can change in this way any more; for the end of any child, the only
/// proof that the tree is empty. Other errors are of filters, and say nothing.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Wait {
    child: Option<Pid>,
    flags: i32,
}

impl Wait {
    pub fn any() -> Self {
        Self::default()
    }

    pub fn child(pid: Pid) -> Self {
        let (child, flags) = (Some(pid), 0);
        Self { child, flags }
    }

    pub const fn ended(self) -> Self {
        self.with(libc::WEXITED)
    }

    /// Also a tracing stop. The kernel reports each of these and each resumption once, so the
    /// process that takes one must remember it.
    pub const fn suspended(self) -> Self {
        self.with(libc::WSTOPPED)
    }

    pub const fn resumed(self) -> Self {
        self.with(libc::WCONTINUED)
    }

    const fn with(mut self, more: i32) -> Self {
        self.flags |= more;
        self
    }

    /// Takes one change that there is, and reaps the child if it has ended.
    pub fn take(self) -> Result<Option<(i32, Change)>, Errno> {
        self.with(libc::WNOHANG).block()
    }

    /// Takes nothing: the next wait finds the change again.
    pub fn peek(self) -> Result<Option<(i32, Change)>, Errno> {
        self.with(libc::WNOHANG | libc::WNOWAIT).block()
    }

    pub fn has_come(self) -> bool {
        matches!(self.peek(), Ok(Some(_)))
    }

    pub fn block(self) -> Result<Option<(i32, Change)>, Errno> {
        let kind = self.child.map_or(libc::P_ALL, |_| libc::P_PID);
        let id = self.child.map_or(0, Pid::get) as libc::id_t;
        let (flags, mut info) = (self.flags | libc::__WALL, no_info());
        rustix::io::retry_on_intr(|| {
            // SAFETY: the siginfo is live.
            check(unsafe { libc::waitid(kind, id, &raw mut info, flags) }.into())
        })?;
        // SAFETY: the field is inside of every siginfo; it stays 0 if nothing was found.
        let pid = unsafe { info.si_pid() };
        // SAFETY: as above.
        let status = unsafe { info.si_status() } as u8;
        let change = match info.si_code {
            libc::CLD_EXITED => Change::Ended(Ended::Exited(status)),
            libc::CLD_KILLED | libc::CLD_DUMPED => Change::Ended(Ended::Killed(status)),
            libc::CLD_CONTINUED => Change::Resumed,
            libc::CLD_TRAPPED => Change::Trapped,
            _ => Change::Suspended(status),
        };
        Ok((pid != 0).then_some((pid, change)))
    }
}

/// Dead or alive. Reaps nothing.
pub fn is_child(pid: Pid) -> bool {
    match Wait::child(pid).ended().peek() {
        Ok(_) => true,
        Err(Errno::CHILD) => false,
        // A filter refuses the call. A child keeps its pid until it is reaped.
        Err(_) => super::proc::stat(pid.get()).is_ok_and(|stat| stat.parent == super::pid::own()),
    }
}

/// Tries every possible pid: needs no `/proc` and no descriptor, but a large part of a second.
pub fn children() -> impl Iterator<Item = Pid> {
    // No kernel assigns a greater pid.
    let all = (2..4 * 1024 * 1024).filter_map(Pid::new);
    all.filter(|pid| is_child(*pid))
}

/// What the reaped children and their own reaped descendants have used: the time of user and
/// system, and the largest resident memory of one process, in bytes. See `RUSAGE_CHILDREN`.
pub fn usage() -> ([Duration; 2], u64) {
    let time = |time: TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    let found = getrusage(UsageWho::RUSAGE_CHILDREN).map(|usage| {
        let times = [usage.user_time(), usage.system_time()].map(time);
        (times, usage.max_rss() as u64 * 1024)
    });
    found.unwrap_or_default()
}
