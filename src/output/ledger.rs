//! The facts about a stop, for `--report`. Shim and monitor share this memory: if one of them is
//! killed, the other one can report the whole stop. Writing needs no allocation and cannot fail.

use std::time::Duration;

use crate::plan::event::Trigger;
use crate::plan::{machine::State, record};
use crate::sys::Errno;
use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, Name};
use crate::sys::shared::{Word, Words, shared_words};

const MAX_LISTED: usize = 256;
/// The words of a process: one for pid and uid, two for name and state.
const ENTRY: usize = 3;
/// No process has this uid: see `setuid(2)`.
const NO_UID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Sigkilled,
    Survivors,
    Spared,
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
    /// From `/proc`. `None`: it is gone.
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
        let (mut text, name) = ([0; 16], self.name.as_bytes());
        text[..name.len()].copy_from_slice(name);
        text[15] = self.state;
        let text = u128::from_le_bytes(text);
        let uid = u64::from(self.uid.unwrap_or(NO_UID));
        let ids = uid << 32 | u64::from(self.pid as u32);
        [ids, text as u64, (text >> 64) as u64]
    }

    fn decode([ids, low, high]: [u64; ENTRY]) -> Self {
        let text = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        let name = text[..15].split(|byte| *byte == 0).next();
        Self {
            pid: ids as i32,
            uid: Some((ids >> 32) as u32).filter(|uid| *uid != NO_UID),
            state: text[15],
            name: Name::new(name.unwrap_or_default()),
        }
    }
}

shared_words! {
    /// In each word, zero means "not yet".
    pub struct Ledger {
        /// Set by the process of treaper that writes the report.
        pub written: Word,
        lost: Word,
        drained_at: Word,
        terminated_at: Word,
        killed_at: Word,
        ended_at: Word,
        signalled: Word,
        /// How many processes each list has.
        counts: Words<3>,
        lists: Words<{ 3 * MAX_LISTED * ENTRY }>,
    }
}

impl Ledger {
    /// Records which process of treaper was killed, if `trigger` says so. The first one counts.
    pub fn set_lost(self, trigger: Trigger) {
        let is_loss = matches!(trigger, Trigger::ShimKilled | Trigger::MonitorKilled);
        if is_loss && self.lost.get() == 0 {
            self.lost.set(trigger as u64);
        }
    }

    pub fn lost(self) -> Option<&'static str> {
        match Trigger::from_number(self.lost.get())? {
            Trigger::ShimKilled => Some("shim"),
            _ => Some("monitor"),
        }
    }

    pub fn set_state(self, state: State, now: Duration) {
        let word = match state {
            // The drain has ended without a stop, so it does not count.
            State::Running => return self.drained_at.set(0),
            State::Draining { .. } => self.drained_at,
            State::Terminating { .. } => self.terminated_at,
            State::Killing { .. } => self.killed_at,
            State::Done | State::Survived => self.ended_at,
        };
        if word.get() == 0 {
            word.set(record::word(Some(now)));
        }
    }

    /// How long drain, terminate and kill took, until `now` if not over. `None`: not reached.
    pub fn steps(self, now: Duration) -> [Option<Duration>; 3] {
        let mut next = record::time(self.ended_at.get()).unwrap_or(now);
        let mut took = [self.killed_at, self.terminated_at, self.drained_at].map(|word| {
            let began = record::time(word.get())?;
            Some(std::mem::replace(&mut next, began).saturating_sub(began))
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
        let at = self.counts.get(list as usize);
        let known = self.list(list).any(|known| known.pid == process.pid);
        if at >= MAX_LISTED as u64 || known {
            return;
        }
        for (word, value) in process.encode().into_iter().enumerate() {
            self.lists.set(first_word(list, at as usize) + word, value);
        }
        // The entry is written before the length: this process may be killed in between.
        self.counts.set(list as usize, at + 1);
    }

    pub fn list(self, list: List) -> impl Iterator<Item = Process> {
        let count = self.counts.get(list as usize) as usize;
        (0..count.min(MAX_LISTED)).map(move |at| {
            let first = first_word(list, at);
            Process::decode(std::array::from_fn(|word| self.lists.get(first + word)))
        })
    }
}

const fn first_word(list: List, at: usize) -> usize {
    (list as usize * MAX_LISTED + at) * ENTRY
}
