//! The clock of the loop, CLOCK_MONOTONIC, which shim and monitor share, and the time of day for reports.

use std::time::Duration;

/// Time since an arbitrary point that is the same for all processes of a boot. See `clock_gettime(2)`.
#[must_use]
pub fn now() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// The time of day, since 1970 in UTC. Another process can set it. See `clock_gettime(2)`.
#[must_use]
pub fn time() -> Duration {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The function of the libc: that of rustix searches the vDSO first, which costs more than all calls of treaper.
    // SAFETY: a live struct; the call fails only for clocks that do not exist.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
