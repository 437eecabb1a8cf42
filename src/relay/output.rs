//! The server's stdout: passed on to the host as it comes, and searched for boundaries.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;

use crate::relay::boundary::Output;
use crate::relay::inbox::CHUNK;
use crate::relay::run::{Polled, Wanted};
use crate::relay::words::Words;
use crate::settings::writers::Writers;
use crate::sys::Errno;
use crate::sys::fd::Kind;
use crate::sys::poll::Events;
use crate::sys::stream::Stream;

/// The server's stdout on its way to that of treaper.
#[derive(Debug)]
pub struct Way {
    /// Until it has ended.
    from: Option<Stream>,
    /// How much of it is to be read, once the tree is gone.
    left: Option<u64>,
    to: Stream,
    bytes: Box<[u8]>,
    /// How many of them are passed on.
    start: usize,
    end: usize,
    scan: Output,
    /// It was reported that no boundary can be found any more.
    warned: bool,
    words: Words,
}

impl Way {
    pub fn new(settings: &Writers, (from, to): (Stream, Stream), words: Words) -> Self {
        Self {
            from: Some(from),
            left: None,
            to,
            bytes: vec![0; CHUNK].into(),
            start: 0,
            end: 0,
            scan: Output::new(settings.framing, &settings.boundaries),
            warned: false,
            words,
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether everything was passed on.
    pub const fn is_over(&self) -> bool {
        self.from.is_none() && self.is_empty()
    }

    /// Whether more could be read.
    pub const fn can_read(&self) -> bool {
        self.from.is_some() && self.is_empty()
    }

    pub fn list(&self, wanted: &mut Wanted) {
        if let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) {
            wanted.add(Polled::From, from.as_raw_fd(), Events::IN);
        }
        if !self.is_empty() {
            wanted.add(Polled::To, self.to.as_raw_fd(), Events::OUT);
        } else if self.to.kind() == Kind::Pipe {
            // A pipe without a reader reports an error.
            wanted.add(Polled::To, self.to.as_raw_fd(), Events::empty());
        }
    }

    /// The tree is gone, and what it has written is there by now. Only that is passed on: a process outside of the tree
    /// may hold this stream, too, and write to it without end.
    pub fn finish(&mut self) {
        self.left = self.from.as_ref().map(Stream::readable);
    }

    /// Reads what is there, and passes on what fits. Returns how many boundaries it had.
    pub fn read(&mut self) -> usize {
        let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) else {
            return 0;
        };
        let room = self.left.map_or(CHUNK, |left| CHUNK.min(left as usize));
        let result = from.read(&mut self.bytes[..room]);
        (self.start, self.end) = (0, *result.as_ref().unwrap_or(&0));
        self.left = self.left.map(|left| left - self.end as u64);
        let at_end = self.left.is_some();
        match result {
            Ok(1..) => {}
            Err(Errno::AGAIN | Errno::INTR) if !at_end => return 0,
            Err(Errno::INTR) => return 0,
            Ok(0) | Err(_) => {
                self.from = None;
                return 0;
            }
        }
        let found = self.scan.take(&self.bytes[..self.end]);
        if self.scan.is_broken() && !self.warned {
            self.warned = true;
            log::warn!(
                "stdout of the server is not framed as --framing says: no boundary is found from now on"
            );
        }
        self.write();
        found
    }

    /// Passes on what fits; whether something did.
    pub fn write(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        match self.to.write(&self.bytes[self.start..self.end]) {
            Ok(count) => {
                self.start += count;
                self.words.add_passed(count as u64);
                count > 0
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                self.leave();
                false
            }
        }
    }

    /// The host reads no more. The server's next write fails, as it would without treaper.
    pub fn leave(&mut self) {
        self.from = None;
        (self.start, self.end) = (0, 0);
    }
}
