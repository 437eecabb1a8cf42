//! Our own share of the processor.

use super::Errno;

/// Makes this thread, and none that it may fork, run before every ordinary process: a tree that
/// multiplies takes the processor from whoever shall end it. See `sched_setscheduler(2)`.
///
/// # Errors
/// `EPERM`: needs `CAP_SYS_NICE` or `RLIMIT_RTPRIO`.
pub fn run_before_others() -> Result<(), Errno> {
    // All there is in the kernel's `struct sched_param`; libcs add to it.
    let priority: libc::c_int = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // The call itself: musl's function of this name does nothing.
    // SAFETY: a live integer that the kernel reads; 0 is the calling thread.
    let ret =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    super::check(ret).map(drop)
}
