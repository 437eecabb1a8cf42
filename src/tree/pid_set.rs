//! A set of pids that needs no memory of its own when it grows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sys::pid::Pid;

/// One bit for each possible pid, of which a kernel has at most 4 Mi, in each set. Static, so it
/// needs no allocation. What the sets say about a pid is in one page; untouched pages cost nothing.
static BITS: [[AtomicU64; 4]; 64 * 1024] = [const { [const { AtomicU64::new(0) }; 4] }; 64 * 1024];

/// Each set has a number of its own, below 4.
pub struct PidSet(pub usize);

impl PidSet {
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
        let words = BITS.get(pid.get() as usize / 64);
        (words.map(|words| &words[self.0]), 1 << (pid.get() % 64))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/pid_set.rs"]
mod tests;
