//! What the relay says to the pair: a few words of shared memory.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::sys::pid::Pid;
use crate::sys::shared::{Word, shared_words};

shared_words! {
    /// The words; zero means "not yet", or none.
    pub struct Words {
        done: Word,
        ended: Word,
        unread: Word,
        timed_out: Word,
        messages: Word,
        discarded: Word,
        passed: Word,
        injected: Word,
        input_courier: Word,
        output_courier: Word,
    }
}

impl Words {
    /// Relay: it ends by itself, since there is nothing more to do.
    pub fn set_done(self) {
        self.done.set(1);
    }

    #[must_use]
    pub fn is_done(self) -> bool {
        self.done.get() != 0
    }

    /// Relay: the server's stdin has ended for good.
    pub fn set_ended(self) {
        self.ended.set(1);
    }

    #[must_use]
    pub fn has_ended(self) -> bool {
        self.ended.get() != 0
    }

    /// Relay: how many bytes of stdin it has taken that the server has not read.
    pub fn set_unread(self, bytes: u64) {
        self.unread.set(bytes);
    }

    #[must_use]
    pub fn unread(self) -> u64 {
        self.unread.get()
    }

    /// Relay: a cancelled turn has not ended in time.
    pub fn set_timed_out(self) {
        self.timed_out.set(1);
    }

    #[must_use]
    pub fn has_timed_out(self) -> bool {
        self.timed_out.get() != 0
    }

    /// Relay: a message of another writer was written to the server.
    pub fn add_message(self) {
        self.messages.add(1);
    }

    /// Relay: another writer was dropped, or a message of one.
    pub fn add_discarded(self) {
        self.discarded.add(1);
    }

    /// How many messages of other writers were written to the server, and how often one was discarded.
    #[must_use]
    pub fn counts(self) -> (u64, u64) {
        (self.messages.get(), self.discarded.get())
    }

    /// Relay: so many bytes of the server's output were passed on.
    pub fn add_passed(self, bytes: u64) {
        self.passed.add(bytes);
    }

    #[must_use]
    pub fn passed(self) -> u64 {
        self.passed.get()
    }

    /// Relay: at this time of the clock, bytes of another writer were last written to the server.
    pub fn set_injected(self, now: Duration) {
        self.injected.set(now.as_nanos() as u64);
    }

    /// The pair: when that was, for `--idle`. Zero: never.
    #[must_use]
    pub fn injected(self) -> Duration {
        Duration::from_nanos(self.injected.get())
    }

    /// Relay: the pids of its couriers.
    pub fn set_couriers(self, input: Option<Pid>, output: Option<Pid>) {
        let number = |pid: Option<Pid>| pid.map_or(0, |pid| pid.get() as u64);
        self.input_courier.set(number(input));
        self.output_courier.set(number(output));
    }

    #[must_use]
    pub fn couriers(self) -> [Option<Pid>; 2] {
        [self.input_courier, self.output_courier].map(|word| Pid::new(word.get() as i32))
    }
}
