//! A set of pids that needs no memory of its own when it grows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys::pid::Pid;

/// One bit for each possible pid. Static, so it needs no allocation; untouched pages cost nothing.
pub struct PidSet([AtomicU64; PidSet::WORDS]);

impl PidSet {
    /// For 4 Mi pids, the most that a kernel assigns.
    const WORDS: usize = 64 * 1024;

    #[allow(clippy::large_stack_arrays, reason = "made at compile time")]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Self::WORDS])
    }

    pub fn contains(&self, pid: Pid) -> bool {
        let (word, bit) = self.place(pid);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0)
    }

    /// Returns whether `pid` was not in the set before.
    pub fn insert(&self, pid: Pid) -> bool {
        let (word, bit) = self.place(pid);
        word.is_none_or(|word| word.fetch_or(bit, Relaxed) & bit == 0)
    }

    fn place(&self, pid: Pid) -> (Option<&AtomicU64>, u64) {
        let word = self.0.get(pid.get() as usize / 64);
        (word, 1 << (pid.get() % 64))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/pid_set.rs"]
mod tests;
