//! A set of pids that needs no memory of its own when it grows.

use std::sync::Mutex;

use crate::sys::pid::Pid;

/// One bit for each possible pid. To be static, since it must not need an allocation. Pages that
/// are never touched cost no memory.
pub struct PidSet(Mutex<[u64; PidSet::WORDS]>);

impl PidSet {
    /// For 4 Mi pids, the most that a kernel assigns.
    const WORDS: usize = 64 * 1024;

    /// An empty set, for a static.
    #[allow(clippy::large_stack_arrays, reason = "made at compile time")]
    pub const fn new() -> Self {
        Self(Mutex::new([0; Self::WORDS]))
    }

    /// Whether `pid` is in the set.
    pub fn contains(&self, pid: Pid) -> bool {
        let (word, bit) = (pid.get() as usize / 64, 1 << (pid.get() % 64));
        let words = self.0.try_lock();
        words.is_ok_and(|words| words.get(word).is_some_and(|word| word & bit != 0))
    }

    /// Adds `pid`. Returns whether it was not in the set before.
    pub fn insert(&self, pid: Pid) -> bool {
        let (word, bit) = (pid.get() as usize / 64, 1 << (pid.get() % 64));
        let Ok(mut words) = self.0.try_lock() else {
            return true;
        };
        let Some(word) = words.get_mut(word) else {
            return true;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_is_new_in_the_set_only_once() {
        static SET: PidSet = PidSet::new();
        let highest = 4 * 1024 * 1024 - 1;
        let pids = (2..300).chain([70_000, 1_000_000, highest]);
        let pids: Vec<Pid> = pids.filter_map(Pid::new).collect();
        for before in [false, true] {
            for pid in &pids {
                assert_eq!(
                    (SET.contains(*pid), SET.insert(*pid)),
                    (before, !before),
                    "{pid}"
                );
            }
        }
        // There is no such pid.
        let beyond = Pid::new(highest + 1).unwrap();
        assert!(SET.insert(beyond) && SET.insert(beyond));
    }
}
