//! The clock of the loop, CLOCK_MONOTONIC, which shim and monitor share, and the time of day for
//! reports.

use std::time::Duration;

#[cfg(target_pointer_width = "64")]
use libc::SYS_clock_gettime as CLOCK_GETTIME;
/// `clock_gettime64`, which the libc crate lacks for some. It has this number on arm and x86.
#[cfg(target_pointer_width = "32")]
const CLOCK_GETTIME: libc::c_long = 403;

/// Time since an arbitrary point that is the same for all processes of a boot. See
/// `clock_gettime(2)`.
pub fn now() -> Duration {
    // SAFETY: all zeros are a valid time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // The function of the libc: that of rustix searches the vDSO first, which costs more than all
    // calls of treaper. SAFETY: a live struct; the call fails only for clocks that do not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of day, since 1970 in UTC. Another process can set it. Zero if a filter refuses the
/// call, and on a 32-bit processor before Linux 5.1. With the libc, the time of a 32-bit processor
/// can end in 2038.
pub fn time() -> Duration {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two numbers of 64 bits.
    unsafe { libc::syscall(CLOCK_GETTIME, libc::CLOCK_REALTIME, &raw mut time) };
    Duration::new(time[0].max(0) as u64, time[1] as u32)
}

/// Waits for so long. If a signal interrupts it, or a filter refuses it, the pause is shorter. See
/// `nanosleep(2)`.
pub fn pause(time: Duration) {
    let time = timespec(time);
    // SAFETY: the time is live; the remaining time is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// `time` as a limit for a call: at most 34 years, which fits on every architecture.
#[allow(
    clippy::cast_lossless,
    reason = "32-bit processors have an i32 here, for which there is no From"
)]
pub(super) fn timespec(time: Duration) -> libc::timespec {
    // Some architectures have padding in this type, so it cannot be written as a literal.
    // SAFETY: all zeros are a valid time.
    let mut limit: libc::timespec = unsafe { std::mem::zeroed() };
    limit.tv_sec = time.as_secs().min(1 << 30) as _;
    limit.tv_nsec = time.subsec_nanos() as _;
    limit
}
