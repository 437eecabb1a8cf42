//! Signals that have arrived: read one by one, each with its sender.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::poll::{Events, Polled, poll};
use super::signal::{Mask, Signal};
use super::{Errno, check};

/// A signal that arrived, with its sender as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub signal: Signal,
    /// The sender's pid; 0 if the sender is outside of this PID namespace, or is the kernel.
    pub sender: i32,
    /// Made by the kernel for the whole foreground group (Ctrl-C, Ctrl-Z, a resize).
    pub from_terminal: bool,
    /// Made by the kernel, for any reason: no process has sent it.
    pub by_kernel: bool,
    /// Made by the kernel for a descriptor or a child of this process.
    pub of_child_or_descriptor: bool,
    /// The value, if it was sent with `sigqueue(3)`.
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

/// The kernel also sends signals to this process alone: of a timer that was set before the exec, for example, and the
/// hang-up for a session leader. Those are not keys.
fn is_from_terminal(number: i32, code: i32) -> bool {
    code == libc::SI_KERNEL && KEYS.contains(&number)
}

/// `POLL_IN`, `CLD_KILLED` and their like are small positive codes, which no process can send.
fn is_of_child_or_descriptor(code: i32) -> bool {
    (1..=6).contains(&code)
}

/// A descriptor that becomes readable when a blocked signal is pending. See `signalfd(2)`.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Reads every signal; non-blocking, close-on-exec.
    pub fn new() -> Result<Self, Errno> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let all = Mask::ALL;
        // SAFETY: the mask is a live u64, and 8 is its size.
        let fd = check(unsafe {
            libc::syscall(libc::SYS_signalfd4, -1, &raw const all.0, 8_usize, flags)
        })?;
        // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// The next pending signal; `None` if there is none.
    #[must_use]
    pub fn read(&self) -> Option<Arrival> {
        // A signal that cannot be read here stays pending, and each poll would return at once.
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
                of_child_or_descriptor: is_of_child_or_descriptor(info.ssi_code),
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

/// Waits for any signal (all are blocked), at most for `timeout` (`None`: without a limit). Needs no
/// descriptor. `None` if none came, or if this process was suspended and resumed. See `rt_sigtimedwait(2)`.
#[must_use]
pub fn wait_any(timeout: Option<Duration>) -> Option<Arrival> {
    match wait_for(Mask::ALL, timeout) {
        Ok(arrival) => Some(arrival),
        Err(Errno::AGAIN | Errno::INTR) => None,
        // Only a seccomp filter fails this way.
        Err(_) => wait_by_descriptor(timeout),
    }
}

/// Sends this process again what the keyboard has sent to its group before the server was in the group. A signal that
/// a process has sent is forwarded later. To be called right before the server is made, with all signals blocked.
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
        // SAFETY: takes numbers only; the target is this process.
        unsafe { libc::kill(super::pid::own(), arrival.signal.number().into()) };
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
    // SI_SIGIO: the kernel reports that a descriptor has become readable.
    let by_kernel = matches!(info.si_code, libc::SI_KERNEL | libc::SI_SIGIO);
    // SAFETY: the field is inside of every siginfo; the sender is used only where a process sent it.
    let sender = unsafe { info.si_pid() };
    // SAFETY: as above; used only for SI_QUEUE, where the kernel sets it.
    let value = unsafe { info.si_value() }.sival_ptr as u64;
    Ok(Arrival {
        signal: Signal::from_number(number as i32).ok_or(Errno::INVAL)?,
        sender: if by_kernel { 0 } else { sender },
        from_terminal: is_from_terminal(number as i32, info.si_code),
        by_kernel: info.si_code == libc::SI_KERNEL,
        of_child_or_descriptor: is_of_child_or_descriptor(info.si_code),
        value: (info.si_code == libc::SI_QUEUE).then_some(value),
    })
}

/// Removes the pending `signal` that a failed write of this process has just caused: it concerns no other
/// process. All signals must be blocked. See `rt_sigtimedwait(2)`.
///
/// The kernel sends it to the thread and names this process as the sender. The same signal from another process waits
/// in the queue of the process, which the kernel looks at last. If that one is found, it is put back.
pub fn remove_own(signal: Signal) {
    let (mask, now) = (
        Mask(1 << (signal.number() - 1)),
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
        let (own, number) = (super::pid::own(), libc::c_int::from(signal.number()));
        // SAFETY: the siginfo is live, and the kernel has filled it.
        unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, own, number, &raw const info) };
    }
}

/// The pause between two looks where a filter refuses every call that waits. Without it, treaper would keep a
/// processor busy.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// As [`wait_any`], with a signalfd that is opened for this one call.
fn wait_by_descriptor(timeout: Option<Duration>) -> Option<Arrival> {
    let signals = SignalFd::new().ok();
    let fd = signals.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut one = [Polled::new(fd, Events::IN)];
    let waited = signals.as_ref().map(|_| poll(&mut one, timeout));
    if !matches!(waited, Some(Ok(_) | Err(Errno::INTR))) {
        let rest = libc::timespec {
            tv_sec: 0,
            tv_nsec: timeout
                .unwrap_or(REFUSED_PAUSE)
                .min(REFUSED_PAUSE)
                .subsec_nanos()
                .into(),
        };
        // SAFETY: the time is live; the remaining time is not asked for.
        unsafe { libc::nanosleep(&raw const rest, std::ptr::null_mut()) };
    }
    signals?.take().ok().flatten()
}
