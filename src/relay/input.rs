//! The server's stdin: what is written to it, by which writer, and when it ends.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::relay::connections::{Connections, MAX_CONNECTIONS};
use crate::relay::inbox::{self, Buffer, CHUNK, HOST};
use crate::relay::life::{Awaited, Wanted};
use crate::relay::turns::Turns;
use crate::sys::poll::{self, Events, News, WatchFlags, Writes};
use crate::sys::stream::{self, Stream};
use crate::sys::{clock, fd};

pub const NO_READER: &str = "the server is gone or no longer reads stdin";

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub struct Input {
    /// The stdin of treaper, until it has ended.
    host: Option<Stream>,
    /// The same, if it is a FIFO that has ended, until another writer opens it.
    fifo: Option<Stream>,
    /// Of stdin, if it is a FIFO; the writes to it, if inotify refuses.
    openings: Option<Writes>,
    inbox: Buffer,
    /// That of the server, until the relay has ended it, or the server reads no more.
    server: Option<Stream>,
    /// Where it is opened again after the end of a FIFO.
    place: Option<OwnedFd>,
    /// The server's stdin is full.
    is_blocked: bool,
    /// A report about stdin, perhaps a false one, has made room there for all that waits.
    has_room: bool,
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
        let fd = host.as_raw_fd();
        let writes = |_| News::of(fd, Events::IN).map(|news| Writes::Epoll(fd, news));
        let openings = || Writes::watch(fd, WatchFlags::OPEN).or_else(writes);
        let openings = host.is_fifo().then(openings).and_then(Result::ok);
        Self {
            host: Some(host),
            openings,
            server: Some(server),
            others,
            last: clock::now(),
            inbox: Buffer::new(),
            ..Self::default()
        }
    }

    pub fn list(&self, wanted: &mut Wanted, now: Duration) {
        // While more waits for the server, only the end of stdin is looked for, once.
        let is_read = self.inbox.rest().is_empty();
        let host = self.host.as_ref().filter(|_| is_read || !self.has_room);
        let events = if is_read { Events::IN } else { Events::RDHUP };
        wanted.add(Awaited::Stdin, host, events);
        let openings = self.openings.as_ref().filter(|_| self.fifo.is_some());
        wanted.add(Awaited::Stdin, openings, Events::IN);
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
        let end = self.host.as_ref();
        let Some(end) = end else { return self.resume() };
        if !self.inbox.rest().is_empty() {
            self.has_room = true;
            return self.server.iter().for_each(Stream::make_room);
        }
        match self.inbox.fill(CHUNK, |bytes| end.read(bytes)) {
            Ok(1..) => {
                self.last = clock::now();
                turns.host_read(self.inbox.rest(), self.last);
            }
            Err(errno) if stream::is_for_later(errno) => {}
            // An error of the connection is its end.
            Ok(0) | Err(_) => {
                self.is_complete = true;
                let full = self.server.iter().filter(|_| self.is_blocked);
                full.for_each(Stream::make_room);
                self.fifo = self.host.take().filter(|_| self.openings.is_some());
                // The last line counts also without a newline. All of it is written. If a turn
                // begins now, no cancel of another writer can follow it.
                turns.host_read(b"\n", clock::now());
                let deadline = turns.deadline;
                turns.host_written(1, clock::now());
                turns.deadline = deadline;
            }
        }
    }

    /// If a FIFO that had ended has another writer, its bytes go to the same server.
    fn resume(&mut self) {
        let _ = self.openings.as_ref().map(Writes::take);
        let is_back = |fifo: &mut Stream| {
            !poll::has_hung_up(fifo.as_raw_fd()) || fd::unread(fifo.as_raw_fd()) > 0
        };
        let fifo = self.fifo.take_if(is_back);
        let Some(fifo) = fifo else { return };
        if let Some(place) = self.place.take() {
            match Stream::open_again(&place, OFlags::WRONLY) {
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
        (!(self.is_complete || self.server.is_some() && unread)).then_some(self.last)
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
        let has_bytes = |writer: usize| !self.bytes_of(writer).is_empty();
        let others_wait = (HOST + 1..=MAX_CONNECTIONS).any(has_bytes);
        if !self.is_within {
            let next = inbox::next(self.writer, 1 + MAX_CONNECTIONS, has_bytes);
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
        self.is_blocked = result.is_err_and(stream::is_for_later);
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
            Err(_) if self.is_blocked => {}
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
