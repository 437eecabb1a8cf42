//! What was read and is not yet written to the server: of stdin, and of each other writer. Pure.
#![forbid(unsafe_code)]

use std::fmt;

use crate::relay::framing::{Found, Framing, Kind};

/// How many bytes are read at a time, at most.
pub const CHUNK: usize = 64 * 1024;

/// The bytes of stdin. They are passed on as they come, so none has to be complete.
#[derive(Debug)]
pub struct HostInbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// Follows what was written to the server.
    framing: Framing,
    /// Nothing more will come.
    pub ended: bool,
}

impl HostInbox {
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            bytes: vec![0; CHUNK].into(),
            start: 0,
            end: 0,
            framing: Framing::new(kind),
            ended: false,
        }
    }

    /// Whether all that was read is written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether the last message that has begun is written, as far as it was read.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.framing.is_between()
    }

    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.framing.is_broken()
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Reads more. To be called when all is written. `read` returns how much it has read.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let result = read(&mut self.bytes);
        (self.start, self.end) = (0, *result.as_ref().unwrap_or(&0));
        result
    }

    /// What may be written now: up to the end of a message if another writer waits for that.
    #[must_use]
    pub fn writable(&self, others_wait: bool) -> &[u8] {
        let bytes = &self.bytes[self.start..self.end];
        if others_wait {
            let mut ahead = self.framing;
            if let Found::End(end) = ahead.take(bytes) {
                return &bytes[..end];
            }
        }
        bytes
    }

    /// Notes that `count` of these bytes were written. Returns whether a message has ended with the last one of them.
    pub fn written(&mut self, count: usize) -> bool {
        let mut rest = &self.bytes[self.start..self.start + count];
        while !rest.is_empty() {
            let step = self.framing.step(rest);
            rest = &rest[step.taken..];
        }
        self.start += count;
        self.framing.is_between()
    }
}

/// Why a writer is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    TooLong(usize),
    Broken,
    Incomplete,
    NoMemory,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(max) => {
                write!(
                    f,
                    "its message is longer than {max} bytes (--max-message changes that)"
                )
            }
            Self::Broken => f.write_str("its message is not framed as --framing says"),
            Self::Incomplete => f.write_str("it ended in the middle of a message"),
            Self::NoMemory => f.write_str("there is no memory for its message"),
        }
    }
}

/// The bytes of another writer. A message is written when all of it is there.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// How much of the first message is written.
    written: usize,
    /// How much was searched for its end.
    searched: usize,
    /// How long it is, if all of it is there.
    message: Option<usize>,
    framing: Framing,
    kind: Kind,
    max: usize,
    pub ended: bool,
}

impl Inbox {
    #[must_use]
    pub const fn new(kind: Kind, max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            written: 0,
            searched: 0,
            message: None,
            framing: Framing::new(kind),
            kind,
            max,
            ended: false,
        }
    }

    /// Whether the first message is complete.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.message.is_some()
    }

    /// Whether nothing is left to be written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads more. To be called while the first message is not complete.
    ///
    /// # Errors
    /// That of `read`.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, Fault>, E> {
        let old = self.bytes.len();
        // One byte more than a message may have: with it, a message that is too long is recognized.
        let room = CHUNK
            .min(self.max.saturating_add(1).saturating_sub(old))
            .max(1);
        if self.bytes.try_reserve(room).is_err() {
            return Ok(Err(Fault::NoMemory));
        }
        self.bytes.resize(old + room, 0);
        let result = read(&mut self.bytes[old..]);
        let count = *result.as_ref().unwrap_or(&0);
        self.bytes.truncate(old + count);
        result?;
        self.search();
        if self.framing.is_broken() {
            return Ok(Err(Fault::Broken));
        }
        let longest = self.message.unwrap_or(self.bytes.len());
        if longest > self.max {
            return Ok(Err(Fault::TooLong(self.max)));
        }
        Ok(Ok(count))
    }

    /// Nothing more will come.
    ///
    /// # Errors
    /// The last message is not complete.
    pub fn end(&mut self) -> Result<(), Fault> {
        self.ended = true;
        if self.bytes.is_empty() || self.message.is_some() {
            Ok(())
        } else {
            Err(Fault::Incomplete)
        }
    }

    fn search(&mut self) {
        if self.message.is_some() {
            return;
        }
        match self.framing.take(&self.bytes[self.searched..]) {
            Found::End(end) => self.message = Some(self.searched + end),
            Found::Open | Found::Broken => {}
        }
        self.searched = self.bytes.len();
    }

    /// What is left to be written of the first message, if it is complete.
    #[must_use]
    pub fn writable(&self) -> &[u8] {
        let end = self.message.unwrap_or(self.written);
        &self.bytes[self.written..end]
    }

    /// Notes that `count` of these bytes were written. Returns whether that was the end of the message.
    ///
    /// # Errors
    /// What follows the message is not one.
    pub fn written(&mut self, count: usize) -> Result<bool, Fault> {
        self.written += count;
        if self.message != Some(self.written) {
            return Ok(false);
        }
        self.bytes.drain(..self.written);
        // A long message leaves no memory behind.
        self.bytes.shrink_to(CHUNK);
        (self.written, self.searched, self.message) = (0, 0, None);
        self.framing = Framing::new(self.kind);
        self.search();
        if self.framing.is_broken() {
            return Err(Fault::Broken);
        }
        if self.ended {
            self.end()?;
        }
        Ok(true)
    }
}
