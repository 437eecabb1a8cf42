//! Signals: names, masks, what they do, sending them. Masks are set by raw system calls, since the
//! libcs hide the first real-time signals, and the server has to get exactly the inherited mask.

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use nix::sys::resource::{Resource, setrlimit};

use super::pid::Pid;
use super::{Errno, arrival, check, pidfd};

/// A signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(u8);

/// The first real-time signal that programs may use. The libcs reserve the two below it.
const RTMIN: u8 = 34;
const RTMAX: u8 = 64;

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

impl Signal {
    pub const HUP: Self = Self(libc::SIGHUP as u8);
    pub const KILL: Self = Self(libc::SIGKILL as u8);
    pub const PIPE: Self = Self(libc::SIGPIPE as u8);
    pub const XFSZ: Self = Self(libc::SIGXFSZ as u8);
    pub const XCPU: Self = Self(libc::SIGXCPU as u8);
    pub const INT: Self = Self(libc::SIGINT as u8);
    pub const TERM: Self = Self(libc::SIGTERM as u8);
    pub const CHLD: Self = Self(libc::SIGCHLD as u8);
    pub const CONT: Self = Self(libc::SIGCONT as u8);
    pub const STOP: Self = Self(libc::SIGSTOP as u8);
    pub const TSTP: Self = Self(libc::SIGTSTP as u8);

    pub fn from_number(number: i32) -> Option<Self> {
        let known = 1..=i32::from(RTMAX);
        known.contains(&number).then_some(Self(number as u8))
    }

    /// By number or name, in any case, with or without `SIG`: `15`, `TERM`, `sigusr1`, `RTMAX-1`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(number) = digits(text) {
            return Self::from_number(number);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            return Some(Self(at as u8 + 1));
        }
        let number = match name {
            "CLD" => return Some(Self::CHLD),
            "POLL" => return Some(Self(libc::SIGIO as u8)),
            "IOT" => return Some(Self(libc::SIGABRT as u8)),
            "RTMIN" => RTMIN,
            "RTMAX" => RTMAX,
            _ => match name.split_at_checked(6)? {
                ("RTMIN+", up) => RTMIN.checked_add(digits(up)?)?,
                ("RTMAX-", down) => RTMAX.checked_sub(digits(down)?)?,
                _ => return None,
            },
        };
        (RTMIN..=RTMAX).contains(&number).then_some(Self(number))
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// In words. See `strsignal(3)`.
    pub fn description(self) -> &'static str {
        if self.is_real_time() {
            return "Real-time signal";
        }
        // SAFETY: takes a number.
        let text = unsafe { libc::strsignal(self.0.into()) };
        // SAFETY: for these signals, a constant string that a NUL ends.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?")
    }

    /// Those are queued in order, each with its value.
    pub const fn is_real_time(self) -> bool {
        self.0 > libc::SIGSYS as u8
    }

    pub const fn suspends_job(self) -> bool {
        matches!(self.0 as i32, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
    }
}

/// A number without a sign, which `str::parse` alone would accept.
pub fn digits<T: FromStr>(text: &str) -> Option<T> {
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| all)
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ 1..=31 => write!(f, "SIG{}", NAMES[usize::from(n) - 1]),
            RTMIN => f.write_str("SIGRTMIN"),
            n if n > RTMIN => write!(f, "SIGRTMIN+{}", n - RTMIN),
            n => write!(f, "signal {n}"),
        }
    }
}

/// A set of signals, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Mask(u64);

impl Mask {
    pub const SIZE: usize = size_of::<Self>();
    /// Every signal. The kernel itself removes KILL and STOP.
    pub const ALL: Self = Self(u64::MAX);

    pub fn of(numbers: &[i32]) -> Self {
        Self(numbers.iter().fold(0, |mask, number| mask | bit(*number)))
    }

    pub fn except(numbers: &[i32]) -> Self {
        Self(!Self::of(numbers).0)
    }
}

/// The kernel has words of the size of a C long, the lowest signals first.
const fn bit(number: i32) -> u64 {
    let is_split = cfg!(all(target_endian = "big", target_pointer_width = "32"));
    1_u64.rotate_left(number as u32 - 1 + if is_split { 32 } else { 0 })
}

/// Replaces the blocked mask and returns the former one. See `rt_sigprocmask(2)`.
pub fn set_mask(mask: Mask) -> Mask {
    let (number, how, mut old) = (libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, Mask(0));
    // SAFETY: both masks are live, and of that size; the call fails only for bad arguments.
    unsafe { libc::syscall(number, how, &raw const mask, &raw mut old, Mask::SIZE) };
    old
}

/// The stop signal of job control that waits to be read. It is younger than each SIGCONT that was
/// read before: the kernel removes it when a SIGCONT comes.
pub fn waiting_job_stop() -> Option<Signal> {
    waiting().find(|signal| signal.suspends_job())
}

/// The signals that wait to be read. See `rt_sigpending(2)`.
pub(super) fn waiting() -> impl Iterator<Item = Signal> {
    let mut waiting = Mask(0);
    // SAFETY: the mask is live, and of that size; the call fails only for bad arguments.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut waiting, Mask::SIZE) };
    let last = if waiting.0 == 0 { 0 } else { RTMAX };
    let all = (1..=last).map(Signal);
    all.filter(move |signal| waiting.0 & bit(signal.0.into()) != 0)
}

/// See `sigaction(2)`.
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: an all-zero sigaction is a valid value to be overwritten.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the disposition into a live struct.
    let ret = unsafe { libc::sigaction(signal.0.into(), std::ptr::null(), &raw mut action) };
    ret == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Sets what the signal does, and returns what it did: `SIG_IGN`, `SIG_DFL`, or a function that
/// takes what `SA_SIGINFO` passes, and that may interrupt any code. See `sigaction(2)`.
pub(super) fn set_action(number: i32, action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: an all-zero sigaction is a valid value, with an empty mask.
    let [mut new, mut old]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (action, libc::SA_SIGINFO);
    // SAFETY: live structs. The handler, if it is one, takes what the flag asks for.
    unsafe { libc::sigaction(number, &raw const new, &raw mut old) };
    old.sa_sigaction
}

/// See `kill(2)`. The caller must know that the pid cannot have been recycled: it is an unreaped
/// child, or its pidfd is held and was checked. `ESRCH`: no such process; `EPERM`: not allowed.
pub fn kill(pid: Pid, signal: Signal) -> Result<(), Errno> {
    send_to(pid.get(), signal)
}

/// Sends `signal` to the parent, which may be PID 1, if that is `parent`. If it ends and is reaped
/// between the two calls, another process can have its pid.
pub fn kill_parent(parent: i32, signal: Signal) -> Result<(), Errno> {
    if parent <= 0 || super::pid::parent() != parent {
        return Err(Errno::SRCH);
    }
    send_to(parent, signal)
}

/// Sends `signal`, with the value of `sigqueue(3)` if there is one. As [`kill`].
pub fn send(pid: Pid, signal: Signal, value: Option<u64>) -> Result<(), Errno> {
    let Some(value) = value else {
        return kill(pid, signal);
    };
    let info = pidfd::queued(signal, libc::SI_QUEUE, super::pid::own(), value);
    arrival::queue(pid.get(), &info)
}

/// As [`kill`], to each member of a process group. Success proves only that one was reached.
pub fn kill_group(leader: Pid, signal: Signal) -> Result<(), Errno> {
    send_to(-leader.get(), signal)
}

/// Ends this process by the default action of `signal`, without a core file. Returns as PID 1, and
/// if the default action does not end a process.
pub fn die_of(signal: Signal) {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // If the core pattern is a pipe, the kernel does not look at the limit.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    kill_self(signal);
    let_pending_act(signal);
}

/// Not by `raise`: the id of the thread that the libc has stored is wrong since a fork.
pub fn kill_self(signal: Signal) {
    let _ = send_to(super::pid::own(), signal);
}

/// A negative target is a group. The types of the crates exclude the real-time signals.
fn send_to(target: i32, signal: Signal) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::kill(target, signal.0.into()) }.into()).map(drop)
}

/// Unblocks `signal` for a moment, so that a pending one has its default effect.
pub fn let_pending_act(signal: Signal) {
    let before = set_action(signal.0.into(), libc::SIG_DFL);
    set_mask(Mask::except(&[signal.0.into()]));
    set_mask(Mask::ALL);
    set_action(signal.0.into(), before);
}
