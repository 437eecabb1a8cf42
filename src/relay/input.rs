//! The server's stdin: what is written to it, by which writer, and when it ends.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::relay::connections::{Connections, MAX_CONNECTIONS};
use crate::relay::inbox::{self, Buffer, CHUNK, HOST};
use crate::relay::life::{Awaited, Wanted};
use crate::relay::turns::Turns;
use crate::sys::poll::{Events, News};
use crate::sys::stream::Stream;
use crate::sys::{Errno, clock, fd};

pub const NO_READER: &str = "the server is gone or no longer reads stdin";

#[derive(Debug, Default)]
pub struct Input {
    /// The stdin of treaper, until it has ended.
    host: Option<Stream>,
    /// The same, if it is a FIFO that has ended, until another process writes to it.
    fifo: Option<(News, Stream)>,
    inbox: Buffer,
    /// That of the server, until the relay has ended it, or the server reads no more.
    server: Option<Stream>,
    /// Where it is opened again after the end of a FIFO.
    place: Option<OwnedFd>,
    /// The server's stdin is full.
    is_blocked: bool,
    pub others: Connections,
    /// The writer of the last message, [`HOST`] or one more than a place of `others`.
    writer: usize,
    /// Only a part of this message is written.
    is_within: bool,
    /// When something was read from stdin, or written to the server.
    pub last: Duration,
    /// stdin has ended, and has no other writer yet.
    is_complete: bool,
}

impl Input {
    pub fn new(host: Stream, server: Stream, others: Connections) -> Self {
        Self {
            host: Some(host),
            server: Some(server),
            inbox: Buffer::new(),
            others,
            last: clock::now(),
            ..Self::default()
        }
    }

    pub fn list(&self, wanted: &mut Wanted, now: Duration) {
        let host = self.host.as_ref().filter(|_| self.inbox.rest().is_empty());
        wanted.add(Awaited::Stdin, host, Events::IN);
        let news = self.fifo.as_ref().map(|(news, _)| news);
        wanted.add(Awaited::Fifo, news, Events::IN);
        // Before the server, which may end once it had all messages of a writer that has ended.
        // After the end of stdin no more is read: later messages must not keep the server alive.
        if self.host.is_some() {
            self.others.list(wanted, now);
        }
        let mut room = Events::empty();
        room.set(Events::OUT, self.is_blocked);
        wanted.add(Awaited::ServerStdin, self.server.as_ref(), room);
    }

    pub fn read_host(&mut self, turns: &mut Turns) {
        let Some(host) = &self.host else { return };
        match self.inbox.fill(CHUNK, |bytes| host.read(bytes)) {
            Ok(1..) => {
                self.last = clock::now();
                turns.host_read(self.inbox.rest(), self.last);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // An error of the connection is its end.
            Ok(0) | Err(_) => {
                self.is_complete = true;
                let fifo = self.host.take().filter(Stream::is_fifo);
                let news = |fifo: &Stream| News::of(fifo.as_raw_fd(), Events::IN).ok();
                self.fifo = fifo.and_then(|fifo| Some((news(&fifo)?, fifo)));
                // The last line counts also without a newline. All of it is written. If a turn
                // begins now, no cancel of another writer can follow it.
                turns.host_read(b"\n", clock::now());
                let deadline = turns.deadline;
                turns.host_written(1, clock::now());
                turns.deadline = deadline;
            }
        }
    }

    /// A FIFO that had ended has another writer, whose bytes go to the same server.
    pub fn resume(&mut self) {
        let has_bytes = |(news, fifo): &mut (News, Stream)| {
            news.take();
            fd::unread(fifo.as_raw_fd()) > 0
        };
        let Some((_, fifo)) = self.fifo.take_if(has_bytes) else {
            return;
        };
        if let Some(place) = self.place.take() {
            match Stream::open_again(&place) {
                Ok(server) => self.server = Some(server),
                Err(_) => return self.leave(NO_READER),
            }
        }
        self.host = Some(fifo);
        self.is_complete = false;
        self.last = clock::now();
    }

    /// `None`: stdin has ended, or the host may be waiting for the server to read what there is.
    pub fn silent_since(&self) -> Option<Duration> {
        let unread = self.is_blocked || !self.inbox.rest().is_empty();
        let waits = self.server.is_some() && unread;
        (!self.is_complete && !waits).then_some(self.last)
    }

    fn bytes_of(&self, writer: usize) -> &[u8] {
        match writer.checked_sub(1) {
            None => self.inbox.rest(),
            Some(place) => self.others.message(place).unwrap_or_default(),
        }
    }

    /// Writes once. Returns whether there may be more to write.
    pub fn write_some(&mut self, turns: &mut Turns) -> bool {
        let server = self.server.as_ref();
        let Some(server) = server else { return false };
        let writers = 1 + MAX_CONNECTIONS;
        let has_bytes = |writer: usize| !self.bytes_of(writer).is_empty();
        let others_wait = (HOST + 1..writers).any(has_bytes);
        if !self.is_within {
            let next = inbox::next(self.writer, writers, has_bytes);
            self.writer = next.unwrap_or(self.writer);
        }
        let bytes = match self.writer {
            HOST => self.inbox.writable(others_wait),
            other => self.bytes_of(other),
        };
        if bytes.is_empty() {
            // The rest of a message of stdin has to come, unless stdin has ended.
            if self.host.is_none() {
                match server.place().ok().filter(|_| self.fifo.is_some()) {
                    None => self.leave("stdin has ended"),
                    place => (self.place, self.server) = (place, None),
                }
            }
            return false;
        }
        let result = server.write(bytes);
        self.is_blocked = result == Err(Errno::AGAIN);
        match result {
            Ok(count) => {
                self.last = clock::now();
                let has_ended = if let Some(place) = self.writer.checked_sub(1) {
                    self.others.written(place, count, turns)
                } else {
                    let (written, has_ended) = self.inbox.written(count);
                    turns.host_written(written, self.last);
                    has_ended
                };
                self.is_within = !has_ended;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.leave(NO_READER),
        }
        !self.is_blocked
    }

    /// Nothing more can be written, or has to be. Ends the server's stdin.
    pub fn leave(&mut self, why: &str) {
        if self.server.is_some() || self.place.is_some() {
            log::info!("relay: {why}");
            self.last = clock::now();
            (self.server, self.place) = (None, None);
            (self.host, self.fifo) = (None, None);
            self.others.close(why);
        }
    }
}
