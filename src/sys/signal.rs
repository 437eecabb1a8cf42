//! Signals: their names, the blocked mask, reading them, sending them.
//!
//! Masks go through the raw system calls: the libcs hide the first real-time signals from theirs,
//! and a server has to get exactly the mask that we got.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::pid::Pid;
use super::{Errno, check, fd};

/// A signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(u8);

/// The kernel's first real-time signal that programs may use; the same for every libc's users.
const RTMIN: u8 = 34;
const RTMAX: u8 = 64;

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

const DESCRIPTIONS: [&str; 31] = [
    "Hangup",
    "Interrupt",
    "Quit",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Killed",
    "User defined signal 1",
    "Segmentation fault",
    "User defined signal 2",
    "Broken pipe",
    "Alarm clock",
    "Terminated",
    "Stack fault",
    "Child exited",
    "Continued",
    "Stopped (signal)",
    "Stopped",
    "Stopped (tty input)",
    "Stopped (tty output)",
    "Urgent I/O condition",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "Virtual timer expired",
    "Profiling timer expired",
    "Window changed",
    "I/O possible",
    "Power failure",
    "Bad system call",
];

impl Signal {
    pub const HUP: Self = Self(libc::SIGHUP as u8);
    pub const KILL: Self = Self(libc::SIGKILL as u8);
    pub const PIPE: Self = Self(libc::SIGPIPE as u8);
    pub const XFSZ: Self = Self(libc::SIGXFSZ as u8);
    pub const INT: Self = Self(libc::SIGINT as u8);
    pub const TERM: Self = Self(libc::SIGTERM as u8);
    pub const CHLD: Self = Self(libc::SIGCHLD as u8);
    pub const CONT: Self = Self(libc::SIGCONT as u8);
    pub const STOP: Self = Self(libc::SIGSTOP as u8);
    pub const TSTP: Self = Self(libc::SIGTSTP as u8);

    /// `None` outside of 1 to 64.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        (1..=i32::from(RTMAX))
            .contains(&number)
            .then_some(Self(number as u8))
    }

    /// By number (`15`) or name, in any case, with or without `SIG`: `TERM`, `SIGUSR1`, `RTMIN+3`, `RTMAX-1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(number) = digits(text) {
            return Self::from_number(number.into());
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(at) = NAMES.iter().position(|known| *known == name) {
            return Some(Self(at as u8 + 1));
        }
        match name {
            "CLD" => return Some(Self::CHLD),
            "POLL" => return Some(Self(libc::SIGIO as u8)),
            "IOT" => return Some(Self(libc::SIGABRT as u8)),
            "RTMIN" => return Some(Self(RTMIN)),
            "RTMAX" => return Some(Self(RTMAX)),
            _ => {}
        }
        let number = if let Some(up) = name.strip_prefix("RTMIN+") {
            RTMIN.checked_add(digits(up)?)?
        } else {
            RTMAX.checked_sub(digits(name.strip_prefix("RTMAX-")?)?)?
        };
        (RTMIN..=RTMAX).contains(&number).then_some(Self(number))
    }

    /// 1 to 64.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// In words, as `strsignal(3)` of glibc has them.
    #[must_use]
    pub fn description(self) -> &'static str {
        let at = usize::from(self.0) - 1;
        DESCRIPTIONS.get(at).copied().unwrap_or("Real-time signal")
    }

    /// One of those that are queued, each with its value, and keep their order.
    #[must_use]
    pub const fn is_real_time(self) -> bool {
        self.0 > libc::SIGSYS as u8
    }

    /// A signal that suspends: STOP, TSTP, TTIN or TTOU.
    #[must_use]
    pub const fn suspends(self) -> bool {
        self.0 == Self::STOP.0 || self.is_job_stop()
    }

    /// A stop that job control makes: TSTP, TTIN or TTOU.
    #[must_use]
    pub const fn is_job_stop(self) -> bool {
        matches!(self.0 as i32, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
    }
}

/// A number of digits alone, without the sign that `str::parse` takes.
fn digits(text: &str) -> Option<u8> {
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

/// A set of signals, as the kernel keeps it: bit n-1 for signal n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u64);

impl Mask {
    /// Every signal; the kernel itself leaves KILL and STOP out.
    pub const ALL: Self = Self(u64::MAX);
}

/// Replaces the blocked mask and returns the former one. See `rt_sigprocmask(2)`.
pub fn set_mask(mask: Mask) -> Mask {
    let mut old = 0_u64;
    // SAFETY: both pointers are to live u64, the size the kernel is told; the call fails only for bad arguments.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask.0,
            &raw mut old,
            8_usize,
        );
    }
    Mask(old)
}

/// Whether `signal` is ignored now. See `sigaction(2)`.
#[must_use]
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: an all-zero sigaction is a valid value to be overwritten.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the disposition into a live struct.
    let ret = unsafe { libc::sigaction(signal.0.into(), std::ptr::null(), &raw mut action) };
    ret == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Sets `signal` to be ignored, or to its default. See `sigaction(2)`.
pub fn set_ignored(signal: Signal, ignored: bool) {
    // SAFETY: an all-zero sigaction is SIG_DFL with no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if ignored {
        action.sa_sigaction = libc::SIG_IGN;
    }
    // SAFETY: no handler is installed, only the two predefined dispositions.
    unsafe { libc::sigaction(signal.0.into(), &raw const action, std::ptr::null_mut()) };
}

/// A signal that arrived, with its sender as the kernel tells it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub signal: Signal,
    /// The sender's pid; 0 if it is outside of our PID namespace or if the kernel sent it.
    pub sender: i32,
    /// Made by the kernel for the whole foreground group (Ctrl-C, Ctrl-Z, a resize).
    pub from_terminal: bool,
    /// Made by the kernel, for whatever reason: no process has asked for it.
    pub by_kernel: bool,
    /// Made by the kernel for a descriptor or a child of ours: the monitor has ended, or has rung.
    pub from_monitor: bool,
    /// The value of `sigqueue(3)`, if it was sent so.
    pub value: Option<u64>,
}

/// The signals that a terminal sends to its foreground group.
const KEYS: [i32; 6] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
];

/// Of what the kernel sends by itself: a timer that was set before our exec, say, is for us alone, and
/// so is the hang-up that a session leader gets.
fn is_from_terminal(number: i32, code: i32) -> bool {
    code == libc::SI_KERNEL && KEYS.contains(&number)
}

/// `POLL_IN` (the bell) and `CLD_KILLED` (the end of the monitor, see [`super::clone::fork`]) and
/// their like are small positive codes; no process can send those.
fn is_from_monitor(number: i32, code: i32) -> bool {
    number == libc::SIGCONT && (1..=6).contains(&code)
}

/// A descriptor that becomes readable when a blocked signal is pending. See `signalfd(2)`.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Reads every signal; non-blocking, close-on-exec.
    pub fn new() -> Result<Self, Errno> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let all = Mask::ALL;
        // SAFETY: the mask is a live u64 of the size that is told.
        let fd = check(unsafe {
            libc::syscall(libc::SYS_signalfd4, -1, &raw const all.0, 8_usize, flags)
        })?;
        // SAFETY: the kernel just gave us this descriptor, nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// The next pending signal; `None` if there is none.
    #[must_use]
    pub fn read(&self) -> Option<Arrival> {
        // If it cannot be read, a signal that stays there would wake us for ever.
        self.take()
            .unwrap_or_else(|_| wait_any(Some(Duration::ZERO)))
    }

    /// # Errors
    /// `EAGAIN` there is none; others if it cannot be read.
    fn take(&self) -> Result<Option<Arrival>, Errno> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let len = rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut info))?;
        if len != info.len() {
            return Err(Errno::IO);
        }
        // SAFETY: a whole signalfd_siginfo was read; it is plain data and valid for every bit pattern.
        let info: libc::signalfd_siginfo =
            unsafe { std::ptr::read_unaligned(info.as_ptr().cast()) };
        Ok(
            Signal::from_number(info.ssi_signo as i32).map(|signal| Arrival {
                signal,
                sender: info.ssi_pid as i32,
                from_terminal: is_from_terminal(info.ssi_signo as i32, info.ssi_code),
                by_kernel: info.ssi_code == libc::SI_KERNEL,
                from_monitor: is_from_monitor(info.ssi_signo as i32, info.ssi_code),
                value: (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_ptr),
            }),
        )
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for SignalFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Waits for any signal (all are blocked), at most for `timeout` (`None`: for ever). Needs no
/// descriptor. `None` if none came, or after a stop and continue. See `rt_sigtimedwait(2)`.
#[must_use]
pub fn wait_any(timeout: Option<Duration>) -> Option<Arrival> {
    match wait_for(Mask::ALL, timeout) {
        Ok(arrival) => Some(arrival),
        Err(Errno::AGAIN | Errno::INTR) => None,
        // Only a seccomp filter fails this way.
        Err(_) => wait_by_descriptor(timeout),
    }
}

/// Sends us again what the keyboard has sent to our group until now, before there was a server in it: sent by a
/// process, it will be forwarded. To be called right before the server is made, with all signals blocked.
pub fn keep_early_keys() {
    let keys = Mask(KEYS.iter().fold(0, |mask, key| mask | 1 << (key - 1)));
    let mut early = [None; KEYS.len()];
    for slot in &mut early {
        let Ok(arrival) = wait_for(keys, Some(Duration::ZERO)) else {
            break;
        };
        *slot = Some(arrival);
    }
    for arrival in early.into_iter().flatten() {
        // SAFETY: takes numbers only; the target is ourselves.
        unsafe { libc::kill(super::pid::own(), arrival.signal.0.into()) };
    }
}

/// The next pending signal of `mask`; as [`wait_any`].
fn wait_for(mask: Mask, timeout: Option<Duration>) -> Result<Arrival, Errno> {
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(1 << 30) as _,
        tv_nsec: t.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: mask and siginfo are live and of the sizes the kernel expects; the limit is null or live.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const mask.0,
            &raw mut info,
            limit,
            8_usize,
        )
    };
    let number = check(ret)?;
    // SI_SIGIO: of a descriptor that has become readable.
    let by_kernel = matches!(info.si_code, libc::SI_KERNEL | libc::SI_SIGIO);
    // SAFETY: the field is inside of every siginfo; whom it names is used only where a process sent it.
    let sender = unsafe { info.si_pid() };
    // SAFETY: as above; used only for SI_QUEUE, where the kernel sets it.
    let value = unsafe { info.si_value() }.sival_ptr as u64;
    Ok(Arrival {
        signal: Signal::from_number(number as i32).ok_or(Errno::INVAL)?,
        sender: if by_kernel { 0 } else { sender },
        from_terminal: is_from_terminal(number as i32, info.si_code),
        by_kernel: info.si_code == libc::SI_KERNEL,
        from_monitor: is_from_monitor(number as i32, info.si_code),
        value: (info.si_code == libc::SI_QUEUE).then_some(value),
    })
}

/// Removes the pending `signal` that a failed write of ours has just made: it concerns no other
/// process. All signals must be blocked. See `rt_sigtimedwait(2)`.
///
/// The kernel sends it to the thread and names this process as the sender. A signal that another
/// process had sent before waits in the queue of the process, which is looked at last; if it is
/// found all the same, it is put back.
pub fn remove_own(signal: Signal) {
    let (mask, now) = (
        Mask(1 << (signal.0 - 1)),
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: an all-zero siginfo is a valid value to be overwritten.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: mask, siginfo and limit are live and of the sizes the kernel expects.
    let found = unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const mask.0,
            &raw mut info,
            &raw const now,
            8_usize,
        )
    };
    // SAFETY: the field is inside of every siginfo.
    let sender = unsafe { info.si_pid() };
    if found > 0 && sender != super::pid::own() {
        let (own, number) = (super::pid::own(), libc::c_int::from(signal.0));
        // SAFETY: the siginfo is live, and is the one that the kernel gave us.
        unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, own, number, &raw const info) };
    }
}

/// How long nothing is looked at where a filter refuses every call that waits. Without a rest we would
/// use up a processor.
const REST: Duration = Duration::from_millis(10);

/// As [`wait_any`], by a signalfd of the moment.
fn wait_by_descriptor(timeout: Option<Duration>) -> Option<Arrival> {
    let signals = SignalFd::new().ok();
    let mut one = [libc::pollfd {
        fd: signals.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        events: libc::POLLIN,
        revents: 0,
    }];
    let waited = signals.as_ref().map(|_| fd::poll(&mut one, timeout));
    if !matches!(waited, Some(Ok(_) | Err(Errno::INTR))) {
        let rest = libc::timespec {
            tv_sec: 0,
            tv_nsec: timeout.unwrap_or(REST).min(REST).subsec_nanos().into(),
        };
        // SAFETY: the time is live; what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const rest, std::ptr::null_mut()) };
    }
    signals?.take().ok().flatten()
}

/// Sends `signal` to one process. See `kill(2)`.
///
/// # Errors
/// `ESRCH` no such process, `EPERM` not allowed. The caller must know that the pid cannot have
/// been recycled: it is an unreaped child, or its pidfd is held and was checked.
pub fn kill(pid: Pid, signal: Signal) -> Result<(), Errno> {
    // SAFETY: takes numbers only; `Pid` excludes the special targets.
    check(unsafe { libc::kill(pid.get(), signal.0.into()) }.into()).map(drop)
}

/// Sends `signal`, with the value of `sigqueue(3)` if there is one. As [`kill`].
pub fn send(pid: Pid, signal: Signal, value: Option<u64>) -> Result<(), Errno> {
    let Some(value) = value else {
        return kill(pid, signal);
    };
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: takes numbers and a value that the kernel only copies.
    check(unsafe { libc::sigqueue(pid.get(), signal.0.into(), value) }.into()).map(drop)
}

/// Sends `signal` to each member of a process group. As [`kill`]; success proves only that one member was reached.
pub fn kill_group(leader: Pid, signal: Signal) -> Result<(), Errno> {
    // SAFETY: takes numbers only; `Pid` makes 0 and -1 impossible.
    check(unsafe { libc::kill(-leader.get(), signal.0.into()) }.into()).map(drop)
}

/// Suspends this process by `signal`, if that is a stop signal and `still` says that the reason stands. Returns
/// when the process is resumed, or at once where job control suspends nothing (an orphaned process group).
///
/// Whatever takes the reason away has to send SIGCONT, which removes a pending stop signal. So `still` is asked
/// again while the stop signal is pending: nothing is lost between that question and the suspension. SIGSTOP
/// cannot be blocked; there, what happens within that moment is lost.
pub fn suspend_self(signal: Signal, still: &dyn Fn() -> bool) {
    if !signal.suspends() || !still() {
        return;
    }
    kill_self(signal);
    if signal != Signal::STOP {
        // The stop signal has removed a pending SIGCONT, if there was one, and the news that it brought.
        if still() {
            let_through(signal);
        } else {
            // Removes the stop signal again. It arrives as well, so that everything is looked at once more.
            kill_self(Signal::CONT);
        }
    }
}

/// Ends us as `signal` at its default action would, without a core file of ours; returns where it
/// cannot (as PID 1, or a signal that ends nobody).
pub fn die_of(signal: Signal) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // A core pattern that is a pipe does not ask for the limit.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    set_ignored(signal, false);
    kill_self(signal);
    let_through(signal);
}

fn kill_self(signal: Signal) {
    // SAFETY: takes numbers only; the target is ourselves. (`raise` would ask the libc for the
    // thread, which does not know that it was forked.)
    unsafe { libc::kill(super::pid::own(), signal.0.into()) };
}

/// Lets a pending `signal` act: blocked, it would only wait.
fn let_through(signal: Signal) {
    set_mask(Mask(Mask::ALL.0 & !(1 << (signal.0 - 1))));
    set_mask(Mask::ALL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for number in 1..=64 {
            let signal = Signal::from_number(number).unwrap();
            let text = signal.to_string();
            if !text.contains(' ') {
                assert_eq!(Signal::parse(&text), Some(signal), "{text}");
            }
            assert_eq!(Signal::parse(&number.to_string()), Some(signal));
        }
        assert_eq!(Signal::parse("sigterm"), Some(Signal::TERM));
        assert_eq!(Signal::parse("rtmax-1").map(Signal::number), Some(63));
        for bad in [
            "", "0", "65", "-1", "+1", "RTMIN++1", "SIG", "TERMX", "RTMIN+31", "RTMAX-31",
            "RTMIN-1",
        ] {
            assert_eq!(Signal::parse(bad), None, "{bad}");
        }
    }
}
