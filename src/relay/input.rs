//! The server's stdin: what is written to it, by which writer, and when it ends.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::relay::connections::Connections;
use crate::relay::courier::HostStream;
use crate::relay::inbox::{Buffer, CHUNK};
use crate::relay::schedule::{Next, Schedule};
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
    /// The relay has ended it. The server may still read what is in it.
    Ending {
        ended: ClosedStream,
        unread: u64,
        /// When the server has last taken something.
        since: Duration,
        check: Duration,
    },
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
    schedule: Schedule,
    /// The writer of the message that is being written, or is the next one.
    turn: Option<Next>,
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
            schedule: Schedule::default(),
            turn: None,
            words,
        }
    }

    /// Whether nothing will be written to the server any more.
    pub const fn is_over(&self) -> bool {
        matches!(self.server, Server::Gone)
    }

    /// What is to be waited for.
    pub fn list(&self, wanted: &mut Wanted) {
        if let Some(host) = self.host.as_ref().filter(|_| self.inbox.rest().is_empty()) {
            wanted.add(Polled::Host, &host.stream, Events::IN);
        }
        // Before the server: the end of a writer is older than that of a server that had all of its messages.
        self.others.list(wanted);
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
    pub fn deadline(&self) -> Option<Duration> {
        let check = match &self.server {
            Server::Ending { check, .. } => Some(*check),
            Server::Open(_) | Server::Gone => None,
        };
        [check, self.others.accept_at].into_iter().flatten().min()
    }

    pub fn check_times(&mut self, now: Duration) {
        self.others.accept_at = self.others.accept_at.filter(|at| now < *at);
        let Server::Ending {
            ended,
            unread,
            since,
            check,
        } = &mut self.server
        else {
            return;
        };
        if now < *check {
            return;
        }
        let before = std::mem::replace(unread, ended.unread());
        if *unread != before {
            *since = now;
        }
        *check = now + LAST_INPUT_CHECK;
        self.words.unread.set(*unread);
        if *unread == 0 || now >= *since + self.drain {
            self.server = Server::Gone;
        }
    }

    /// There are bytes on stdin, or its end.
    pub fn read_host(&mut self, turns: &mut Turns) {
        let Some(host) = self.host.as_ref().filter(|_| self.inbox.rest().is_empty()) else {
            return;
        };
        // Bytes that are in the relay must not count as read by the server.
        self.words
            .unread
            .set(self.words.unread.get() + host.stream.readable());
        match self.inbox.fill(CHUNK, |bytes| host.stream.read(bytes)) {
            Ok(1..) => turns.host_read(self.inbox.rest(), clock::now()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // An error of the connection is its end.
            Ok(0) | Err(_) => self.host = None,
        }
    }

    /// Writes what can be written now.
    pub fn pump(&mut self, turns: &mut Turns) {
        self.is_blocked = false;
        while matches!(self.server, Server::Open(_)) && self.write_some(turns) {}
        if let Server::Open(server) = &self.server {
            let unread = self.inbox.rest().len() as u64 + server.unread();
            self.words.unread.set(unread);
        }
    }

    /// Writes once. Returns whether there may be more to write.
    fn write_some(&mut self, turns: &mut Turns) -> bool {
        let others = self.others.ready();
        if self.turn.is_none() {
            self.turn = self.schedule.next(!self.inbox.rest().is_empty(), others);
        }
        let bytes = match self.turn {
            None => &[],
            Some(Next::Host) => self.inbox.writable(others != 0),
            Some(Next::Other(place)) => self.others.message(place).unwrap_or_default(),
        };
        if bytes.is_empty() {
            // If it is the turn of stdin, the rest of its message has to come, unless stdin has ended.
            if self.host.is_none() {
                self.end_server();
            }
            return false;
        }
        let Server::Open(server) = &self.server else {
            return false;
        };
        match server.write(bytes) {
            Ok(count) => {
                let has_ended = match self.turn {
                    Some(Next::Other(place)) => self.others.written(place, count, turns),
                    Some(Next::Host) | None => {
                        let (written, has_ended) = self.inbox.written(count);
                        turns.host_written(written, clock::now());
                        has_ended
                    }
                };
                self.turn = self.turn.filter(|_| !has_ended);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                self.is_blocked = true;
                return false;
            }
            Err(_) => {
                self.leave(NO_READER);
                return false;
            }
        }
        true
    }

    /// Ends the server's stdin: nothing more will come from the host, and all that was complete is written.
    fn end_server(&mut self) {
        let Server::Open(server) = std::mem::replace(&mut self.server, Server::Gone) else {
            return;
        };
        let now = clock::now();
        let ended = server.end();
        self.server = Server::Ending {
            unread: ended.unread(),
            ended,
            since: now,
            check: now,
        };
        self.words.ended.set(true);
        self.others.close("stdin has ended");
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
