//! The clock of the loop, CLOCK_MONOTONIC, which shim and monitor share, and the time of day for reports.

use std::time::{Duration, SystemTime};

/// Time since an arbitrary point that is the same for all processes of a boot. See `clock_gettime(2)`.
#[must_use]
pub fn now() -> Duration {
    // SAFETY: all zeros are a valid time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // The function of the libc: that of rustix searches the vDSO first, which costs more than all calls of treaper.
    // SAFETY: a live struct; the call fails only for clocks that do not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of day, since 1970 in UTC. Another process can set it. std has 64 bits for it on every processor.
#[must_use]
pub fn time() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Waits for so long. If a signal interrupts it, or a filter refuses it, the pause is shorter. See `nanosleep(2)`.
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
