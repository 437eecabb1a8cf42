//! The one clock: CLOCK_MONOTONIC, which shim and monitor share.

use std::time::Duration;

/// Time since an arbitrary point that is the same for all processes of a boot. See `clock_gettime(2)`.
#[must_use]
pub fn now() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
