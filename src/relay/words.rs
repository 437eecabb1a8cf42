//! What the relay says to the pair: a few words of shared memory.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::sys::{Errno, shared};

#[derive(Clone, Copy)]
enum Word {
    Done,
    Ended,
    Unread,
    TimedOut,
    Messages,
    Discarded,
    Passed,
}

const WORDS: usize = Word::Passed as usize + 1;

/// The words; zero means "not yet", or none.
#[derive(Clone, Copy, Debug)]
pub struct Words(&'static [AtomicU64; WORDS]);

impl Words {
    /// Words that a fork shares.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn shared() -> Result<Self, Errno> {
        shared::words().map(Self)
    }

    fn get(self, word: Word) -> u64 {
        self.0[word as usize].load(SeqCst)
    }

    fn set(self, word: Word, value: u64) {
        self.0[word as usize].store(value, SeqCst);
    }

    fn add(self, word: Word, count: u64) {
        self.0[word as usize].fetch_add(count, SeqCst);
    }

    /// Relay: it ends by itself, since there is nothing more to do.
    pub fn set_done(self) {
        self.set(Word::Done, 1);
    }

    #[must_use]
    pub fn is_done(self) -> bool {
        self.get(Word::Done) != 0
    }

    /// Relay: the server's stdin has ended for good.
    pub fn set_ended(self) {
        self.set(Word::Ended, 1);
    }

    #[must_use]
    pub fn has_ended(self) -> bool {
        self.get(Word::Ended) != 0
    }

    /// Relay: how many bytes of stdin it has taken that the server has not read.
    pub fn set_unread(self, bytes: u64) {
        self.set(Word::Unread, bytes);
    }

    #[must_use]
    pub fn unread(self) -> u64 {
        self.get(Word::Unread)
    }

    /// Relay: a cancelled turn has not ended in time.
    pub fn set_timed_out(self) {
        self.set(Word::TimedOut, 1);
    }

    #[must_use]
    pub fn has_timed_out(self) -> bool {
        self.get(Word::TimedOut) != 0
    }

    /// Relay: a message of another writer was written to the server.
    pub fn add_message(self) {
        self.add(Word::Messages, 1);
    }

    /// Relay: another writer was dropped, or a message of one.
    pub fn add_discarded(self) {
        self.add(Word::Discarded, 1);
    }

    /// How many messages of other writers were written to the server, and how often one was discarded.
    #[must_use]
    pub fn counts(self) -> (u64, u64) {
        (self.get(Word::Messages), self.get(Word::Discarded))
    }

    /// Relay: so many bytes of the server's output were passed on.
    pub fn add_passed(self, bytes: u64) {
        self.add(Word::Passed, bytes);
    }

    #[must_use]
    pub fn passed(self) -> u64 {
        self.get(Word::Passed)
    }
}
