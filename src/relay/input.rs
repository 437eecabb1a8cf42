//! The server's stdin: what is written to it, by which writer, and when it ends.

use std::time::Duration;

use crate::relay::connections::{Connections, MAX_CONNECTIONS};
use crate::relay::courier::HostStream;
use crate::relay::inbox::{Buffer, CHUNK};
use crate::relay::schedule::{self, HOST};
use crate::relay::turns::Turns;
use crate::relay::wanted::{Polled, Wanted};
use crate::relay::words::Words;
use crate::sys::poll::Events;
use crate::sys::stream::{ClosedStream, Stream};
use crate::sys::{Errno, clock};

/// How often to look whether the server takes its last input, since nothing reports that.
const LAST_INPUT_CHECK: Duration = Duration::from_millis(20);

/// Why nothing more can be written.
pub const NO_READER: &str = "the server is gone, or reads no more";

/// The relay's end of the server's stdin.
#[derive(Debug)]
enum Server {
    Open(Stream),
    /// The relay has ended it. The server may still read what is in it, and has last done so at
    /// this time.
    Ending(ClosedStream, Duration),
    Gone,
}

/// Everything that is to be written to the server's stdin.
#[derive(Debug)]
pub struct Input {
    /// The relay no longer waits if the server takes nothing of its last input for this long.
    drain: Duration,
    /// Until it has ended.
    host: Option<HostStream>,
    inbox: Buffer,
    server: Server,
    /// The server's stdin is full.
    is_blocked: bool,
    pub others: Connections,
    /// The writer of the last message, [`HOST`] or one more than a place of `others`.
    writer: usize,
    /// All of this message is written.
    has_ended: bool,
    words: Words,
}

impl Input {
    pub fn new(
        drain: Duration,
        (host, server): (HostStream, Stream),
        others: Connections,
        words: Words,
    ) -> Self {
        Self {
            drain,
            host: Some(host),
            inbox: Buffer::default(),
            server: Server::Open(server),
            is_blocked: false,
            others,
            writer: HOST,
            has_ended: true,
            words,
        }
    }

    /// Whether nothing will be written to the server any more.
    pub const fn is_over(&self) -> bool {
        matches!(self.server, Server::Gone)
    }

    /// What is to be waited for.
    pub fn list(&self, wanted: &mut Wanted, now: Duration) {
        if let Some(host) = self.host.as_ref().filter(|_| self.inbox.rest().is_empty()) {
            wanted.add(Polled::Host, &host.stream, Events::IN);
        }
        // Before the server: the end of a writer is older than that of a server that had all of its
        // messages. After the end of stdin no more is read: what comes later must not keep the
        // server alive.
        if self.host.is_some() {
            self.others.list(wanted, now);
        }
        if let Server::Open(server) = &self.server {
            let room = if self.is_blocked {
                Events::OUT
            } else {
                Events::empty()
            };
            wanted.add(Polled::Server, server, room);
        }
    }

    /// When to look again though poll reports nothing.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        match self.server {
            Server::Ending(..) => Some(now + LAST_INPUT_CHECK),
            Server::Open(_) | Server::Gone => self.others.deadline(now),
        }
    }

    /// Looks whether the server has taken its last input.
    pub fn check_end(&mut self, now: Duration) {
        if let Server::Ending(ended, since) = &mut self.server {
            let unread = ended.unread();
            if self.words.unread.replace(unread) != unread {
                *since = now;
            }
            if unread == 0 || now >= *since + self.drain {
                self.server = Server::Gone;
            }
        }
    }

    /// There are bytes on stdin, or its end.
    pub fn read_host(&mut self, turns: &mut Turns) {
        let Some(host) = self.host.as_ref().filter(|_| self.inbox.rest().is_empty()) else {
            return;
        };
        // Bytes that are in the relay must not count as read by the server.
        self.words.unread.add(host.stream.readable());
        match self.inbox.fill(CHUNK, |bytes| host.stream.read(bytes)) {
            Ok(1..) => turns.host_read(self.inbox.rest(), clock::now()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // An error of the connection is its end.
            Ok(0) | Err(_) => {
                self.host = None;
                // The last line counts also without a newline. All of it is written. If a turn
                // begins now, no cancel of another writer can follow it.
                turns.host_read(b"\n", clock::now());
                let deadline = turns.deadline;
                turns.host_written(1, clock::now());
                turns.deadline = deadline;
            }
        }
    }

    /// Writes what can be written now.
    pub fn pump(&mut self, turns: &mut Turns) {
        while self.write_some(turns) {}
        if let Server::Open(server) = &self.server {
            let unread = self.inbox.rest().len() as u64 + server.unread();
            self.words.unread.set(unread);
        }
    }

    /// What is left of the bytes of a writer that can be written.
    fn bytes_of(&self, writer: usize) -> &[u8] {
        match writer.checked_sub(1) {
            None => self.inbox.rest(),
            Some(place) => self.others.message(place).unwrap_or_default(),
        }
    }

    /// Writes once. Returns whether there may be more to write.
    fn write_some(&mut self, turns: &mut Turns) -> bool {
        let Server::Open(server) = &self.server else {
            return false;
        };
        let writers = 1 + MAX_CONNECTIONS;
        let has_bytes = |writer: usize| !self.bytes_of(writer).is_empty();
        let others_wait = (HOST + 1..writers).any(has_bytes);
        if self.has_ended {
            let next = schedule::next(self.writer, writers, has_bytes);
            self.writer = next.unwrap_or(self.writer);
        }
        let bytes = if self.writer == HOST {
            self.inbox.writable(others_wait)
        } else {
            self.bytes_of(self.writer)
        };
        if bytes.is_empty() {
            // If it is the turn of stdin, the rest of its message has to come, unless stdin has
            // ended.
            if self.host.is_none() {
                self.end_server();
            }
            return false;
        }
        let result = server.write(bytes);
        self.is_blocked = result == Err(Errno::AGAIN);
        match result {
            Ok(count) => {
                if let Some(place) = self.writer.checked_sub(1) {
                    self.has_ended = self.others.written(place, count, turns);
                } else {
                    let (written, has_ended) = self.inbox.written(count);
                    turns.host_written(written, clock::now());
                    self.has_ended = has_ended;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => self.leave(NO_READER),
        }
        true
    }

    /// Ends the server's stdin: nothing more will come from the host, and all that was complete is
    /// written.
    fn end_server(&mut self) {
        if let Server::Open(server) = std::mem::replace(&mut self.server, Server::Gone) {
            self.server = Server::Ending(server.end(), clock::now());
            self.words.ended.set(true);
            self.others.close("stdin has ended");
        }
    }

    /// Nothing more can be written.
    pub fn leave(&mut self, why: &str) {
        if self.is_over() {
            return;
        }
        log::info!("relay: {why}");
        (self.server, self.host) = (Server::Gone, None);
        self.words.ended.set(true);
        self.words.unread.set(0);
        self.others.close(why);
    }
}
