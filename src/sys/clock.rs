//! The clock of the loop, which shim and monitor share.

use std::ffi::c_long;
use std::time::Duration;

#[cfg(target_pointer_width = "64")]
use libc::SYS_clock_gettime as CLOCK_GETTIME;
use nix::time::ClockId;
use rustix::thread::{Timespec, nanosleep};
/// `clock_gettime64`, which the libc crate lacks for some. It has this number on arm and x86.
#[cfg(target_pointer_width = "32")]
const CLOCK_GETTIME: c_long = 403;

/// The same for all processes of a boot. See `clock_gettime(2)`.
pub fn now() -> Duration {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time since boot, as `proc_pid_stat(5)` has the start of a process: in clock ticks, of which
/// there are 100 a second (`USER_HZ`) on every processor of treaper.
pub fn ticks() -> u64 {
    read(ClockId::CLOCK_BOOTTIME).as_millis() as u64 / 10
}

/// By the system call, unless it is missing (32-bit before Linux 5.1) or refused: a preloaded
/// library (faketime) can replace the function, and a clock that stands still would never SIGKILL.
fn read(clock: ClockId) -> Duration {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes two numbers of 64 bits.
    if unsafe { libc::syscall(CLOCK_GETTIME, clock.as_raw(), &raw mut time) } == 0 {
        return Duration::new(time[0].max(0) as u64, time[1] as u32);
    }
    clock.now().map_or(Duration::ZERO, Duration::from)
}

/// Is shorter if a signal interrupts it, or a filter refuses it. See `nanosleep(2)`.
pub fn pause(time: Duration) {
    let _ = Timespec::try_from(time).map(|time| nanosleep(&time));
}

/// For a call whose name has no `64`, which takes C longs: seconds, at most 34 years, which fits
/// on every architecture, and nanoseconds.
pub(super) fn limit(time: Duration) -> [c_long; 2] {
    let parts = [time.as_secs().min(1 << 30), time.subsec_nanos().into()];
    parts.map(|part| part as c_long)
}
