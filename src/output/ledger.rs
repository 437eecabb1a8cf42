//! A *ledger* records the facts about a stop for `--report`. It is in memory that shim and monitor share: if one of
//! them is killed, the other one can report the whole stop. Writing to it needs no allocation and cannot fail.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::plan::machine::State;
use crate::sys::pid::Pid;
use crate::sys::proc::{self, Name};
use crate::sys::shared::{Word, Words, shared_words};

/// How many processes a list can hold.
pub const MAX_LISTED: usize = 256;
/// The number of words of a process: one for pid and uid, one for the state, two for the name.
const ENTRY: usize = 4;

/// One of the lists of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Sigkilled,
    Survivors,
}

/// A process of treaper that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Shim = 1,
    Monitor,
    Relay,
}

impl Lost {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shim => "shim",
            Self::Monitor => "monitor",
            Self::Relay => "relay",
        }
    }
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
    #[must_use]
    pub fn read(pid: Pid) -> Option<Self> {
        let mut process = Self {
            pid: pid.get(),
            uid: proc::owner(pid.get()).ok(),
            state: b'?',
            name: Name::default(),
        };
        match proc::stat(pid.get()) {
            Ok(stat) => {
                (process.name, process.state) = (stat.name, stat.state);
                Some(process)
            }
            Err(proc::FOREIGN) => Some(process),
            Err(_) => None,
        }
    }

    fn encode(&self) -> [u64; ENTRY] {
        let mut halves = [0_u64; 2];
        for (byte, at) in self.name.as_bytes().iter().zip(0..) {
            halves[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        let uid = u64::from(self.uid.unwrap_or_default());
        let known = u64::from(self.uid.is_some());
        let ids = uid << 32 | u64::from(self.pid as u32);
        [
            ids,
            known << 8 | u64::from(self.state),
            halves[0],
            halves[1],
        ]
    }

    fn decode(words: [u64; ENTRY]) -> Self {
        let [ids, state, first, second] = words;
        let bytes = [first, second].map(u64::to_le_bytes);
        let name = bytes.as_flattened().split(|byte| *byte == 0).next();
        Self {
            pid: ids as i32,
            uid: (state >> 8 != 0).then_some((ids >> 32) as u32),
            state: state as u8,
            name: Name::new(name.unwrap_or_default()),
        }
    }
}

/// How long each step of a stop took. `None`: it was not reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub drain: Option<Duration>,
    pub terminate: Option<Duration>,
    pub kill: Option<Duration>,
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
        counts: Words<2>,
        /// The entries of each list.
        lists: Words<{ 2 * MAX_LISTED * ENTRY }>,
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
        if self.lost().is_none() {
            self.lost.set(lost as u64);
        }
    }

    #[must_use]
    pub fn lost(self) -> Option<Lost> {
        [Lost::Shim, Lost::Monitor, Lost::Relay]
            .into_iter()
            .find(|lost| *lost as u64 == self.lost.get())
    }

    /// Records that the plan is now in `state`.
    pub fn set_state(self, state: State, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let note = |word: Word| {
            if word.get() == 0 {
                word.set(now);
            }
        };
        match state {
            // The drain has ended without a stop, so it does not count.
            State::Running => self.drained_at.set(0),
            State::Draining { .. } => note(self.drained_at),
            State::Terminating { .. } => note(self.terminated_at),
            State::Killing { .. } => note(self.killed_at),
            State::Done | State::Survived => {}
        }
    }

    /// How long each step has taken, if the stop ends at `now`.
    #[must_use]
    pub fn steps(self, now: Duration) -> Steps {
        let began = [self.drained_at, self.terminated_at, self.killed_at].map(|word| {
            let at = Some(word.get()).filter(|at| *at != 0);
            at.map(Duration::from_nanos)
        });
        let took = |at: usize| {
            let next = began[at + 1..].iter().flatten().next();
            began[at].map(|began| next.unwrap_or(&now).saturating_sub(began))
        };
        Steps {
            drain: took(0),
            terminate: took(1),
            kill: took(2),
        }
    }

    /// Records how many processes were alive when the stop signal was sent.
    pub fn set_signalled(self, count: u64) {
        self.signalled.set(count + 1);
    }

    #[must_use]
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

    /// The processes of a list.
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
            uid: (pid % 2 == 0).then_some(u32::MAX),
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
        assert_eq!(ledger.steps(secs(9)), Steps::default());
        let draining = State::Draining {
            until: secs(3),
            check: None,
            unread: None,
        };
        ledger.set_state(draining, secs(1));
        ledger.set_state(State::Running, secs(2));
        assert_eq!(ledger.steps(secs(9)), Steps::default());
        ledger.set_state(draining, secs(3));
        let killing = State::Killing {
            next: secs(5),
            pause: secs(0),
            survivors_at: secs(9),
        };
        ledger.set_state(killing, secs(5));
        ledger.set_state(killing, secs(6));
        let steps = Steps {
            drain: Some(secs(2)),
            terminate: None,
            kill: Some(secs(4)),
        };
        assert_eq!(ledger.steps(secs(9)), steps);
    }

    #[test]
    fn what_is_noted_is_read_and_the_first_loss_counts() {
        let ledger = Ledger::shared().unwrap();
        assert_eq!((ledger.lost(), ledger.signalled()), (None, None));
        ledger.set_lost(Lost::Monitor);
        ledger.set_lost(Lost::Shim);
        ledger.set_signalled(0);
        assert_eq!(ledger.lost(), Some(Lost::Monitor));
        assert_eq!(ledger.signalled(), Some(0));
        assert!(ledger.take_turn() && !ledger.take_turn());
    }
}
