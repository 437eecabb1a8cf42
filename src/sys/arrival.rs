//! Signals that have arrived: read one by one, each with its origin.

use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use libc::{SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};

use super::pid::{self, Pid};
use super::signal::{self, Mask, Signal, kill_self};
use super::{Errno, check, clock, pidfd};

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub signal: Signal,
    pub origin: Origin,
    /// The value, if it was sent with `sigqueue(3)`.
    pub value: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel, for the whole foreground group: Ctrl-C, Ctrl-Z, a resize.
    Terminal,
    /// The kernel: a child of this process has changed, or a descriptor is ready.
    ChildOrDescriptor,
    /// The kernel, for any other reason, such as a limit or a timer.
    Kernel,
    Process(i32),
    /// A process outside of this PID namespace.
    Outside,
}

/// The signals that a terminal sends to its foreground group, besides SIGWINCH.
const KEYS: [i32; 5] = [SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU];

/// The keys that [`note`] has got, a bit for each number: of the terminal, and sent by processes.
static NOTED: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Not 0 in a process that [`share_keys`] has just made: the kernel writes its pid first of all.
pub static IS_NEW: AtomicI32 = AtomicI32::new(0);

/// Readable while any signal is pending, for a poll. [`wait_any`] takes it. See `signalfd(2)`.
pub fn signal_fd() -> Result<OwnedFd, Errno> {
    let (number, all, flags) = (libc::SYS_signalfd4, Mask::ALL, libc::SFD_CLOEXEC);
    // SAFETY: the mask is live, and of that size.
    let fd = check(unsafe { libc::syscall(number, -1, &raw const all, Mask::SIZE, flags) })?;
    // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits for any signal (all are blocked). `None` also if a debugger or the freezer of cgroups has
/// interrupted the wait (`EINTR`). Only a filter of system calls returns an error.
pub fn wait_any(timeout: Option<Duration>) -> Result<Option<Arrival>, Errno> {
    match wait_for(Mask::ALL, timeout) {
        Ok(info) => Ok(arrival(&info)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes a process by `make`, which gets flags for its clone. If it is `in_job`, both get each key
/// of the terminal, even an earlier one, and the caller what processes send. All must be blocked.
/// A child does not inherit pending signals. So keys are unblocked meanwhile: the kernel makes no
/// process before they are handled (`copy_process`), and a signal of the group that comes later is
/// for both. SIGWINCH needs no care, since a server asks for the size at its start.
pub fn share_keys<T>(in_job: bool, make: impl FnOnce(i32) -> T) -> T {
    if !in_job {
        return make(0);
    }
    let actions = KEYS.map(|key| signal::set_action(key, note as *const () as usize));
    signal::set_mask(Mask::except(&KEYS));
    let result = make(libc::CLONE_CHILD_SETTID);
    signal::set_mask(Mask::ALL);
    let is_new = IS_NEW.swap(0, SeqCst) != 0;
    let [by_terminal, by_process] = NOTED.each_ref().map(|word| word.swap(0, SeqCst));
    let by_process = if is_new { 0 } else { by_process };
    for (key, action) in KEYS.into_iter().zip(actions) {
        signal::set_action(key, action);
        for (word, code) in [(by_process, libc::SI_USER), (by_terminal, libc::SI_KERNEL)] {
            let mut info = no_info();
            (info.si_signo, info.si_code) = (key, code);
            if word >> key & 1 == 1 {
                let _ = queue(pid::own(), &info);
            }
        }
    }
    result
}

/// The kernel does not tell a new process who has sent a key while it was made.
extern "C" fn note(number: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a live siginfo.
    let by_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    let by_process = !by_kernel && IS_NEW.load(SeqCst) == 0;
    NOTED[usize::from(by_process)].fetch_or(1 << number, SeqCst);
}

/// Passes a signal on as it came: with its value, its sender, and whether the kernel made it.
pub fn pass_on(arrival: &Arrival, to: Pid) {
    let (code, sender) = match arrival.origin {
        Origin::Terminal | Origin::Kernel => (BY_KERNEL, 0),
        Origin::Process(sender) => (BY_PROCESS, sender),
        Origin::ChildOrDescriptor | Origin::Outside => (BY_PROCESS, 0),
    };
    let code = arrival.value.map_or(code, |_| libc::SI_QUEUE);
    let info = pidfd::queued(arrival.signal, code, sender, arrival.value.unwrap_or(0));
    // A filter refuses the first call, or too many signals wait.
    let sent = queue(to.get(), &info).or_else(|_| signal::send(to, arrival.signal, arrival.value));
    if let Err(errno) = sent {
        log::warn!("cannot pass on {}: {errno}", arrival.signal);
    }
}

/// With them [`pass_on`] sends a signal without a value.
const BY_PROCESS: i32 = libc::SI_ASYNCIO;
const BY_KERNEL: i32 = libc::SI_ASYNCNL;

/// See `rt_sigqueueinfo(2)`. For another process, only negative codes are allowed.
pub(super) fn queue(to: i32, info: &libc::siginfo_t) -> Result<(), Errno> {
    let number = libc::SYS_rt_sigqueueinfo;
    // SAFETY: the siginfo is live, and the kernel only reads it.
    check(unsafe { libc::syscall(number, to, info.si_signo, &raw const *info) }).map(drop)
}

/// Forgets what processes have sent to the whole job before this one left it: its parent got that,
/// too, and decides. But what `stops` is kept: while it waited, the kernel has dropped the same
/// signal of the parent. SIGCHLD replaces SIGCONT, as a reason to look. All must be blocked.
pub fn forget_job(stops: &dyn Fn(&Arrival) -> bool) {
    let mut kept = Vec::new();
    for signal in signal::waiting().filter(|signal| *signal != Signal::CHLD) {
        // Bounded, since a process can send a real-time signal without a pause.
        for info in (0..1000).map_while(|_| take(signal)) {
            let is_kept = info.si_code > 0 || [0, pid::parent()].contains(&sender(&info));
            if signal == Signal::CONT {
                kill_self(Signal::CHLD);
            } else if is_kept || arrival(&info).as_ref().is_some_and(stops) {
                kept.push((signal, info));
            }
        }
    }
    for (signal, info) in kept {
        // Where a filter refuses the call, a reason to stop must not be lost.
        if queue(pid::own(), &info).is_err() {
            kill_self(signal);
        }
    }
}

/// By the system call: the function of musl restarts the whole time after EINTR.
fn wait_for(mask: Mask, timeout: Option<Duration>) -> Result<libc::siginfo_t, Errno> {
    let (limit, mut info) = (timeout.map(clock::limit), no_info());
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let number = libc::SYS_rt_sigtimedwait;
    // SAFETY: the mask is live, and of that size; the siginfo is live; the limit is null or live.
    check(unsafe { libc::syscall(number, &raw const mask, &raw mut info, limit, Mask::SIZE) })?;
    Ok(info)
}

fn take(signal: Signal) -> Option<libc::siginfo_t> {
    wait_for(Mask::of(&[signal.number().into()]), Some(Duration::ZERO)).ok()
}

pub(super) fn no_info() -> libc::siginfo_t {
    // SAFETY: an all-zero siginfo is a valid value, to be overwritten.
    unsafe { std::mem::zeroed() }
}

fn arrival(info: &libc::siginfo_t) -> Option<Arrival> {
    let number = info.si_signo;
    let is_key = number == libc::SIGWINCH || KEYS.contains(&number);
    // SAFETY: the field is inside of every siginfo; used only for SI_QUEUE, where it is set.
    let value = unsafe { info.si_value() }.sival_ptr as u64;
    Some(Arrival {
        signal: Signal::from_number(number)?,
        origin: match info.si_code {
            // Others are for this process alone, such as the hang-up for a session leader.
            libc::SI_KERNEL | BY_KERNEL if is_key => Origin::Terminal,
            libc::SI_KERNEL | BY_KERNEL => Origin::Kernel,
            // `POLL_IN`, `CLD_KILLED` and their like, which no process can send.
            1..=6 => Origin::ChildOrDescriptor,
            _ => match sender(info) {
                0 => Origin::Outside,
                pid => Origin::Process(pid),
            },
        },
        value: (info.si_code == libc::SI_QUEUE).then_some(value),
    })
}

/// Means something only if a process has sent the signal.
fn sender(info: &libc::siginfo_t) -> i32 {
    // SAFETY: the field is inside of every siginfo.
    unsafe { info.si_pid() }
}

/// Removes the pending `signal` that a failed write of this process has just caused. All must be
/// blocked. One from another process waits in another queue, which comes last, and is put back.
pub fn remove_own(signal: Signal) {
    let own = pid::own();
    if let Some(info) = take(signal).filter(|info| sender(info) != own) {
        let _ = queue(own, &info);
    }
}
