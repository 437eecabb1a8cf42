//! What was read and is not yet written to the server, and whose message is next. Pure.

/// How many bytes are read at a time, at most.
pub const CHUNK: usize = 64 * 1024;
/// The longest message of another writer, with its newline, in bytes.
pub const MAX_MESSAGE: usize = 16 << 20;
/// The number of the host among the writers.
pub const HOST: usize = 0;

/// Which of the `writers` comes next, in a circle after `last`, which has had its message. So
/// between two messages of the host, each other writer has one.
pub fn next(last: usize, writers: usize, has_message: impl Fn(usize) -> bool) -> Option<usize> {
    let mut circle = (last + 1..writers).chain(0..=last);
    circle.find(|writer| has_message(*writer))
}

/// The bytes of a stream that is passed on as it comes.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Memory is only asked for here, before the server has started.
    pub fn new() -> Self {
        let mut new = Self::default();
        new.bytes.resize(CHUNK, 0);
        new
    }

    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads at most `most` bytes, when all are written. `read` returns how much it has read.
    pub fn fill<E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let result = read(&mut self.bytes[..most.min(CHUNK)]);
        (self.start, self.end) = (0, *result.as_ref().unwrap_or(&0));
        result
    }

    /// What may be written now: up to the end of a message if another writer waits for that.
    pub fn writable(&self, others_wait: bool) -> &[u8] {
        let rest = self.rest();
        let end = memchr::memchr(b'\n', rest).filter(|_| others_wait);
        end.map_or(rest, |end| &rest[..=end])
    }

    /// Notes that `count` of these bytes were written. Returns how many of those that were read
    /// last are written by now, and whether a message has ended with the last one.
    pub fn written(&mut self, count: usize) -> (usize, bool) {
        self.start += count;
        (self.start, self.bytes[..self.start].ends_with(b"\n"))
    }
}

type Fault = &'static str;
pub const INCOMPLETE: Fault = "the last message is incomplete: it has no newline";

/// The bytes of another writer. A message is written when all of it is there.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// How many of them are written.
    start: usize,
    /// Where the first message ends, with its newline, if all of it is there.
    end: Option<usize>,
    pub ended: bool,
}

impl Inbox {
    /// What is left to be written of the first message, if it is complete.
    pub fn message(&self) -> Option<&[u8]> {
        self.end.map(|end| &self.bytes[self.start..end])
    }

    /// Whether all of it was written, and nothing more will come.
    pub fn is_done(&self) -> bool {
        self.ended && self.bytes.is_empty()
    }

    /// Reads more of an incomplete message. `read` returns how much it has read, 0 at the end.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> Option<usize>) -> Result<(), Fault> {
        let old = self.bytes.len();
        let room = CHUNK.min(MAX_MESSAGE - old);
        let reserved = self.bytes.try_reserve(room);
        reserved.map_err(|_| "there is no memory for the message")?;
        self.bytes.resize(old + room, 0);
        let count = read(&mut self.bytes[old..]);
        self.bytes.truncate(old + count.unwrap_or(0));
        self.ended = count == Some(0);
        self.search(old)
    }

    /// Looks for the end of the first message, from byte `from` on.
    fn search(&mut self, from: usize) -> Result<(), Fault> {
        self.end = memchr::memchr(b'\n', &self.bytes[from..]).map(|end| from + end + 1);
        if self.end.is_some() {
            return Ok(());
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        match self.bytes.len() {
            MAX_MESSAGE => Err("the message is longer than 16 MiB"),
            1.. if self.ended => Err(INCOMPLETE),
            _ => Ok(()),
        }
    }

    /// Notes `count` written bytes. Returns whether that ends the message, or a fault of the next.
    pub fn written(&mut self, count: usize) -> Result<bool, Fault> {
        self.start += count;
        if self.end != Some(self.start) {
            return Ok(false);
        }
        let found = self.search(self.start);
        // A long message leaves no memory behind.
        self.bytes.shrink_to(CHUNK);
        found.map(|()| true)
    }
}
