//! The parent, whose end `getppid(2)` shows.

use super::arrival::{Arrival, Origin};
use super::pid;
use super::signal::Signal;

#[derive(Clone, Copy, Debug)]
pub struct Parent {
    pub pid: i32,
    has_ended: bool,
}

impl Parent {
    pub const fn new(pid: i32) -> Self {
        let has_ended = false;
        Self { pid, has_ended }
    }

    pub fn is_gone(self) -> bool {
        pid::parent() != self.pid
    }

    /// Whether it has ended since the last look. Each caller looks after every signal, since one
    /// that suspends removes the parent-death signal, a SIGCONT.
    pub fn ends(&mut self) -> bool {
        let ended_before = self.has_ended;
        self.has_ended = self.is_gone();
        self.has_ended && !ended_before
    }

    /// Whether `arrival` is only the parent-death signal, of which the parent is the sender.
    pub fn has_announced_its_end(self, arrival: &Arrival) -> bool {
        let by_parent = arrival.origin == Origin::Process(self.pid);
        arrival.signal == Signal::CONT && by_parent && self.is_gone()
    }
}
