//! Signals that the caller of the tests ignores: SIGHUP under nohup, SIGINT and SIGQUIT in the background of a script.
//! Every process of every scene would inherit that, and no test expects it.
#![allow(
    unsafe_code,
    reason = "a handler has to be there before the first test"
)]

use libc::c_int;

use super::sys;

extern "C" fn nothing(_: c_int) {}

/// Gives each ignored signal a handler that does nothing. The test program still survives the signal, but the kernel
/// resets handlers at exec, so the processes that it starts get the default action.
extern "C" fn catch_what_is_ignored() {
    for signal in (1..=64).filter(|&signal| sys::is_ignored(signal)) {
        // SAFETY: an all-zero sigaction is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler does nothing, and the old action is not asked for.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

// SAFETY: the loader calls it once, before any other thread is there.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_THE_START: extern "C" fn() = catch_what_is_ignored;
