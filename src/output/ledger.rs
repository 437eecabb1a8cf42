//! A *ledger* records the facts about a stop for `--report`. It is in memory that shim and monitor
//! share: if one of them is killed, the other one can report the whole stop. Writing to it needs no
//! allocation and cannot fail.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::plan::machine::State;
use crate::sys::Errno;
use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, Name};
use crate::sys::shared::{Word, Words, shared_words};

/// How many processes a list can hold.
pub const MAX_LISTED: usize = 256;
/// The number of words of a process: one for pid and uid, two for the name and the state.
const ENTRY: usize = 3;
/// No process has this uid: see `setuid(2)`.
const NO_UID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Sigkilled,
    Survivors,
    Spared,
}

/// A process of treaper that was killed.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    Shim = 1,
    Monitor,
}

/// A process, as a report describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub uid: Option<u32>,
    /// The letter of `/proc/PID/stat`, or `?` if that cannot be read.
    pub state: u8,
    pub name: Name,
}

impl Process {
    /// Reads the process from `/proc`. `None`: it is gone.
    pub fn read(pid: Pid) -> Option<Self> {
        let pid = pid.get();
        let uid = proc::view().and_then(|proc| proc.owner(pid)).ok();
        let (name, state) = match proc::stat(pid) {
            Ok(stat) => (proc::shown_name(pid, stat.name), stat.state),
            Err(Errno::NOENT | Errno::SRCH) if pid::session(pid).is_err() => return None,
            Err(_) => (Name::default(), b'?'),
        };
        Some(Self {
            pid,
            uid,
            state,
            name,
        })
    }

    fn encode(&self) -> [u64; ENTRY] {
        let mut text = [[0; 8]; 2];
        let name = self.name.as_bytes().iter().take(15);
        for (place, byte) in text.as_flattened_mut().iter_mut().zip(name) {
            *place = *byte;
        }
        text[1][7] = self.state;
        let [first, second] = text.map(u64::from_le_bytes);
        let uid = u64::from(self.uid.unwrap_or(NO_UID));
        [uid << 32 | u64::from(self.pid as u32), first, second]
    }

    fn decode([ids, first, second]: [u64; ENTRY]) -> Self {
        let text = [first, second].map(u64::to_le_bytes);
        let name = text.as_flattened()[..15].split(|byte| *byte == 0).next();
        Self {
            pid: ids as i32,
            uid: Some((ids >> 32) as u32).filter(|uid| *uid != NO_UID),
            state: text[1][7],
            name: Name::new(name.unwrap_or_default()),
        }
    }
}

shared_words! {
    /// The words. In each, zero means "not yet".
    pub struct Ledger {
        written: Word,
        lost: Word,
        drained_at: Word,
        terminated_at: Word,
        killed_at: Word,
        signalled: Word,
        /// The length of each list.
        counts: Words<3>,
        /// The entries of each list.
        lists: Words<{ 3 * MAX_LISTED * ENTRY }>,
    }
}

impl Ledger {
    /// Returns whether the caller has to write the report. Only the first call returns true.
    #[must_use]
    pub fn take_turn(self) -> bool {
        self.written.replace(1) == 0
    }

    /// Records that a process of treaper was killed. Only the first one is kept.
    pub fn set_lost(self, lost: Lost) {
        if self.lost.get() == 0 {
            self.lost.set(lost as u64);
        }
    }

    /// The name of that process.
    pub fn lost(self) -> Option<&'static str> {
        match self.lost.get() {
            0 => None,
            lost if lost == Lost::Shim as u64 => Some("shim"),
            _ => Some("monitor"),
        }
    }

    /// Records that the plan is now in `state`.
    pub fn set_state(self, state: State, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let set_once = |word: Word| {
            if word.get() == 0 {
                word.set(now);
            }
        };
        match state {
            // The drain has ended without a stop, so it does not count.
            State::Running => self.drained_at.set(0),
            State::Draining { .. } => set_once(self.drained_at),
            State::Terminating { .. } => set_once(self.terminated_at),
            State::Killing { .. } => set_once(self.killed_at),
            State::Done | State::Survived => {}
        }
    }

    /// How long drain, terminate and kill have taken, if the stop ends at `now`. `None`: that step
    /// was not reached.
    pub fn steps(self, now: Duration) -> [Option<Duration>; 3] {
        let mut next = now;
        let mut took = [self.killed_at, self.terminated_at, self.drained_at].map(|word| {
            let began = Some(word.get()).filter(|at| *at != 0);
            began.map(|at| {
                let began = Duration::from_nanos(at);
                std::mem::replace(&mut next, began).saturating_sub(began)
            })
        });
        took.reverse();
        took
    }

    /// Records how many processes were alive when the stop signal was sent.
    pub fn set_signalled(self, count: u64) {
        self.signalled.set(count + 1);
    }

    pub fn signalled(self) -> Option<u64> {
        self.signalled.get().checked_sub(1)
    }

    /// Adds a process, if there is room and it is not in the list.
    pub fn add(self, list: List, process: &Process) {
        let count = &self.counts.0[list as usize];
        let at = count.load(SeqCst) as usize;
        let known = self.list(list).any(|known| known.pid == process.pid);
        if at >= MAX_LISTED || known {
            return;
        }
        for (word, value) in self.entry(list, at).iter().zip(process.encode()) {
            word.store(value, SeqCst);
        }
        // The entry is written before the length: this process may be killed in between.
        count.store(at as u64 + 1, SeqCst);
    }

    pub fn list(self, list: List) -> impl Iterator<Item = Process> {
        let count = self.counts.0[list as usize].load(SeqCst) as usize;
        (0..count.min(MAX_LISTED)).map(move |at| {
            let entry = self.entry(list, at);
            Process::decode(std::array::from_fn(|word| entry[word].load(SeqCst)))
        })
    }

    /// The words of the process at index `at`.
    fn entry(self, list: List, at: usize) -> &'static [AtomicU64] {
        let first = (list as usize * MAX_LISTED + at) * ENTRY;
        &self.lists.0[first..first + ENTRY]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32) -> Process {
        Process {
            pid,
            uid: (pid % 2 == 0).then_some(u32::MAX - 1),
            state: b'S',
            name: Name::new(b"fifteen bytes x"),
        }
    }

    #[test]
    fn each_list_keeps_its_processes_once_and_as_many_as_it_holds() {
        let ledger = Ledger::shared().unwrap();
        let most = 4 * 1024 * 1024;
        for pid in most - MAX_LISTED as i32..most {
            ledger.add(List::Sigkilled, &process(pid));
            ledger.add(List::Sigkilled, &process(pid));
        }
        ledger.add(List::Sigkilled, &process(7));
        ledger.add(List::Survivors, &process(9));
        let kept: Vec<Process> = ledger.list(List::Sigkilled).collect();
        let expected = (most - MAX_LISTED as i32..most).map(process);
        assert_eq!(kept, expected.collect::<Vec<_>>());
        assert_eq!(
            ledger.list(List::Survivors).collect::<Vec<_>>(),
            [process(9)]
        );
    }

    #[test]
    fn a_step_lasts_until_the_next_one_that_was_reached() {
        const fn secs(secs: u64) -> Duration {
            Duration::from_secs(secs)
        }
        let ledger = Ledger::shared().unwrap();
        assert_eq!(ledger.steps(secs(9)), [None; 3]);
        let draining = State::Draining {
            until: secs(3),
            check: None,
            unread: None,
        };
        ledger.set_state(draining, secs(1));
        ledger.set_state(State::Running, secs(2));
        assert_eq!(ledger.steps(secs(9)), [None; 3]);
        ledger.set_state(draining, secs(3));
        let killing = State::Killing {
            next: secs(5),
            pause: secs(0),
            survivors_at: secs(9),
        };
        ledger.set_state(killing, secs(5));
        ledger.set_state(killing, secs(6));
        let steps = [Some(secs(2)), None, Some(secs(4))];
        assert_eq!(ledger.steps(secs(9)), steps);
    }
}
