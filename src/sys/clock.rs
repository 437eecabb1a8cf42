//! The clock of the loop, CLOCK_MONOTONIC, which shim and monitor share, and the time of day for
//! reports.

use std::time::Duration;

#[cfg(target_pointer_width = "64")]
use libc::SYS_clock_gettime as CLOCK_GETTIME;
use nix::sys::time::TimeSpec;
use nix::time::ClockId;
use rustix::thread::{Timespec, nanosleep};
/// `clock_gettime64`, which the libc crate lacks for some. It has this number on arm and x86.
#[cfg(target_pointer_width = "32")]
const CLOCK_GETTIME: libc::c_long = 403;

/// Time since an arbitrary point that is the same for all processes of a boot. See
/// `clock_gettime(2)`.
pub fn now() -> Duration {
    // By the libc, as nix does it: rustix searches the vDSO first, which costs more than all calls
    // of treaper. The call fails only for clocks that do not exist.
    ClockId::CLOCK_MONOTONIC
        .now()
        .map_or(Duration::ZERO, Duration::from)
}

/// The time since boot in clock ticks, as `proc_pid_stat(5)` has the start of a process: Linux has
/// 100 of them a second (`USER_HZ`) on every processor of treaper.
pub fn ticks() -> u64 {
    ClockId::CLOCK_BOOTTIME.now().map_or(u64::MAX, |time| {
        Duration::from(time).as_millis() as u64 / 10
    })
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
    let _ = Timespec::try_from(time).map(|time| nanosleep(&time));
}

/// `time` as a limit for a call: at most 34 years, which fits on every architecture.
pub(super) fn timespec(time: Duration) -> libc::timespec {
    *TimeSpec::from_duration(time.min(Duration::from_secs(1 << 30))).as_ref()
}
