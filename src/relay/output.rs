//! The server's stdout: passed on to the host as it comes, and searched for the end of a turn.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::output::progress::Seconds;
use crate::relay::courier::HostStream;
use crate::relay::inbox::{Buffer, CHUNK};
use crate::relay::turns::Turns;
use crate::relay::wanted::{Polled, Wanted};
use crate::relay::words::Words;
use crate::sys::Errno;
use crate::sys::fd::Kind;
use crate::sys::poll::Events;
use crate::sys::stream::{self, Stream};

/// The relay gives up if the host reads nothing of the last output of the tree for this long.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at what a courier has passed on of it, since its progress does not
/// wake the relay.
const FLUSH_LOOK: Duration = Duration::from_millis(500);

/// The server's stdout on its way to that of treaper.
#[derive(Debug)]
pub struct Output {
    /// Until it has ended.
    from: Option<Stream>,
    /// Once the tree is gone: how much of it is to be read.
    left: Option<u64>,
    /// Once the tree is gone: when output was last passed on.
    since: Option<Duration>,
    /// How many bytes were passed on at the last look.
    passed: u64,
    /// `None`: nothing more can be written, or has to be.
    to: Option<HostStream>,
    buffer: Buffer,
    words: Words,
}

impl Output {
    pub fn new(from: Stream, to: HostStream, words: Words) -> Self {
        Self {
            from: Some(from),
            left: None,
            since: None,
            passed: 0,
            to: Some(to),
            buffer: Buffer::default(),
            words,
        }
    }

    fn is_empty(&self) -> bool {
        self.buffer.rest().is_empty()
    }

    /// Whether everything was passed on.
    pub const fn is_over(&self) -> bool {
        self.to.is_none()
    }

    pub fn list(&self, wanted: &mut Wanted) {
        if let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) {
            wanted.add(Polled::Output, from, Events::IN);
        }
        if let Some(to) = &self.to {
            if !self.is_empty() {
                wanted.add(Polled::HostOutput, &to.stream, Events::OUT);
            } else if to.courier.is_some() || to.stream.kind() == Kind::Pipe {
                // A pipe without a reader reports an error, and so does a courier that has ended.
                wanted.add(Polled::HostOutput, &to.stream, Events::empty());
            }
        }
    }

    /// When to look again though poll reports nothing.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let since = self.since?;
        Some((since + FLUSH_PATIENCE).min(now + FLUSH_LOOK))
    }

    /// The tree is gone, and what it has written is there by now. Only that is passed on: a process
    /// outside of the tree may hold this stream, too, and write to it without end.
    pub fn finish(&mut self, turns: &mut Turns, now: Duration) {
        self.since = Some(now);
        self.left = self.from.as_ref().map(Stream::readable);
        self.read(turns);
    }

    /// Gives up if the host has read nothing of the last output for too long.
    pub fn check_finish(&mut self, now: Duration) {
        let passed = self.words.passed.get();
        if std::mem::replace(&mut self.passed, passed) != passed {
            self.since = self.since.map(|_| now);
        }
        let is_late = |since| now >= since + FLUSH_PATIENCE;
        if !self.is_over() && self.since.is_some_and(is_late) {
            log::warn!(
                "the end of the server's output is lost: the host has read nothing for {}",
                Seconds(FLUSH_PATIENCE)
            );
            self.leave();
        }
    }

    /// Reads what is there, and passes on what fits.
    pub fn read(&mut self, turns: &mut Turns) {
        while let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) {
            let most = self.left.map_or(CHUNK, |left| left as usize);
            let result = self.buffer.fill(most, |bytes| from.read(bytes));
            let count = self.buffer.rest().len() as u64;
            self.left = self.left.map(|left| left - count);
            match result {
                Ok(1..) => {}
                Err(Errno::AGAIN) if self.left.is_none() => return,
                Err(Errno::INTR) => return,
                Ok(0) | Err(_) => {
                    // The last line counts also without a newline.
                    turns.output_read(b"\n");
                    self.from = None;
                    self.end_courier();
                    return;
                }
            }
            turns.output_read(self.buffer.rest());
            self.write();
            if self.left.is_none() {
                return;
            }
        }
    }

    /// stdout of treaper has room, or its reader is gone.
    pub fn host_reported(&mut self, has_hung_up: bool, turns: &mut Turns) {
        // While there is something to write, the write says whether the host still reads: an error
        // in the queue of a socket is none.
        if has_hung_up && self.is_empty() {
            return self.leave();
        }
        self.write();
        if self.left.is_some() {
            self.read(turns);
        }
    }

    /// Passes on what fits.
    fn write(&mut self) {
        let Some(to) = self.to.as_ref().filter(|_| !self.is_empty()) else {
            return;
        };
        match to.stream.write(self.buffer.rest()) {
            Ok(count) => {
                self.buffer.written(count);
                // A courier counts what it has written itself.
                if to.courier.is_none() {
                    self.words.passed.add(count as u64);
                }
                self.end_courier();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.leave(),
        }
    }

    /// If everything was passed on: the end for stdout, and for its courier.
    fn end_courier(&mut self) {
        if self.from.is_some() || !self.is_empty() {
            return;
        }
        match &self.to {
            Some(to) if to.courier.is_some() => {
                // The courier ends when it has written everything. Then this end hangs up.
                stream::hang_up(to.stream.as_fd());
            }
            Some(_) | None => self.to = None,
        }
    }

    /// The host reads no more. The server's next write fails, as it would without treaper.
    fn leave(&mut self) {
        (self.from, self.to) = (None, None);
        self.buffer.written(self.buffer.rest().len());
    }
}
