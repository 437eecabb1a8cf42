//! The writers other than the host: the sockets, their connections, and the messages that wait.

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::relay::family;
use crate::relay::inbox::{CHUNK, Inbox};
use crate::relay::turns::{Message, Turns};
use crate::relay::wanted::{Awaited, Wanted};
use crate::sys::fd::Kind;
use crate::sys::pid::Pid;
use crate::sys::poll::Events;
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, clock};

/// How many connections there can be at a time. Together they can take so many times the longest
/// message of memory.
pub const MAX_CONNECTIONS: usize = 32;
/// A writer that sends nothing for this long loses its place if all are taken and another writer
/// connects.
const MAX_SILENCE: Duration = Duration::from_secs(10);
const TOO_SILENT: &str = "nothing was sent for 10 s, and another writer needs the place";
/// The pause before the next connection is accepted, after no descriptor was free for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens, under the name that it has in the options.
#[derive(Debug)]
pub struct ListeningSocket {
    pub name: String,
    pub listener: UnixListener,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    inbox: Inbox,
    /// What the message does that is complete.
    message: Message,
    /// When it has connected or sent something, or a message of it was written.
    active: Duration,
    /// It was answered. What it still sends is read and discarded, so that its writer can read the
    /// answer.
    is_answered: bool,
    /// Which one of the sockets it came by.
    source: usize,
}

impl Connection {
    /// Sends one line, which is the last one. The buffer of a socket that was never written to has
    /// room for it.
    fn answer(&mut self, line: fmt::Arguments<'_>) {
        stream::send(self.stream.as_fd(), format!("{line}\n").as_bytes());
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        self.is_answered = true;
        self.inbox = Inbox::default();
    }

    /// From when on another writer can have its place. `None`: a message of it waits to be written.
    fn replaceable_at(&self) -> Option<Duration> {
        if self.is_answered {
            return Some(Duration::ZERO);
        }
        let is_waiting = self.inbox.message().is_some();
        (!is_waiting).then_some(self.active + MAX_SILENCE)
    }
}

#[derive(Debug)]
pub struct Connections {
    sources: Vec<ListeningSocket>,
    places: [Option<Connection>; MAX_CONNECTIONS],
    /// The child of the relay.
    child: Pid,
    /// No connection is accepted before this time. Zero: the last one could be accepted.
    paused_until: Duration,
}

impl Connections {
    pub fn new(sources: Vec<ListeningSocket>, child: Pid) -> Self {
        Self {
            sources,
            places: [const { None }; MAX_CONNECTIONS],
            child,
            paused_until: Duration::ZERO,
        }
    }

    pub fn list(&self, wanted: &mut Wanted, now: Duration) {
        let is_read =
            |writer: &&Connection| writer.inbox.message().is_none() && !writer.inbox.ended;
        for (at, writer) in self.places.iter().enumerate() {
            if let Some(writer) = writer.as_ref().filter(is_read) {
                wanted.add(Awaited::Other(at), &writer.stream, Events::IN);
            }
        }
        // Last: a writer that has just sent something keeps its place.
        if self.next_place().is_some_and(|(at, _)| at <= now) {
            for (at, source) in self.sources.iter().enumerate() {
                wanted.add(Awaited::Listener(at), &source.listener, Events::IN);
            }
        }
    }

    /// When connections are accepted again. `None`: they are accepted now, or only when a writer
    /// has left.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let (at, _) = self.next_place()?;
        (at > now && !self.sources.is_empty()).then_some(at)
    }

    /// The place for the next writer, and when it can have it: a free one, or that of the most
    /// silent writer.
    fn next_place(&self) -> Option<(Duration, usize)> {
        let available = |place: usize| match &self.places[place] {
            None => Some((false, self.paused_until, place)),
            Some(writer) => Some((true, writer.replaceable_at()?.max(self.paused_until), place)),
        };
        let first = (0..MAX_CONNECTIONS).filter_map(available).min();
        first.map(|(_, at, place)| (at, place))
    }

    /// There are bytes of a writer, or its end.
    pub fn read(&mut self, place: usize, turns: &mut Turns) {
        let Some(connection) = &mut self.places[place] else {
            return;
        };
        let stream = &connection.stream;
        if connection.is_answered {
            match stream.read(&mut [0; CHUNK / 16]) {
                Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(0) | Err(_) => self.places[place] = None,
            }
            return;
        }
        connection.active = clock::now();
        let result = connection.inbox.fill(|bytes| match stream.read(bytes) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            // An error of the connection is its end.
            result => Some(result.unwrap_or(0)),
        });
        self.go_on(place, result, turns);
    }

    /// Looks at the next message, if it is complete. A writer that is done is answered, and so is
    /// one with a fault.
    fn go_on(&mut self, place: usize, result: Result<(), &str>, turns: &mut Turns) {
        if let Err(fault) = result {
            return self.refuse(place, fault);
        }
        let Some(connection) = &mut self.places[place] else {
            return;
        };
        if let Some(message) = connection.inbox.message() {
            connection.message = turns.read(message, connection.active);
        } else if connection.inbox.is_done() {
            connection.answer(format_args!("ok"));
            self.places[place] = None;
        }
    }

    /// Says so to the writer, which keeps its place until it has read that or another one needs the
    /// place.
    fn refuse(&mut self, place: usize, why: impl fmt::Display) {
        let writer = self.places[place].as_mut();
        if let Some(connection) = writer.filter(|writer| !writer.is_answered) {
            let name = &self.sources[connection.source].name;
            log::warn!("refused a writer of {name}: {why}");
            connection.answer(format_args!("error: {why}"));
        }
    }

    /// Another process has connected.
    pub fn accept(&mut self, source: usize, now: Duration) {
        let next = self.next_place().filter(|(at, _)| *at <= now);
        let (Some((_, place)), Some(socket)) = (next, self.sources.get(source)) else {
            return;
        };
        let stream = match socket.listener.accept() {
            Ok((stream, _)) => Stream::new(OwnedFd::from(stream), Kind::Socket),
            Err(error) => {
                use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                if matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
                    return;
                }
                if self.paused_until.is_zero() {
                    let name = &socket.name;
                    log::warn!("cannot accept a writer of {name} (will try again): {error}");
                }
                self.paused_until = now + ACCEPT_PAUSE;
                return;
            }
        };
        self.paused_until = Duration::ZERO;
        let refusal = family::check(stream.as_fd(), self.child).err();
        self.refuse(place, TOO_SILENT);
        self.places[place] = Some(Connection {
            stream,
            inbox: Inbox::default(),
            message: Message::default(),
            active: now,
            is_answered: false,
            source,
        });
        if let Some(refusal) = refusal {
            self.refuse(place, refusal);
        }
    }

    /// What is left to be written of the complete message of this writer.
    pub fn message(&self, place: usize) -> Option<&[u8]> {
        self.places[place].as_ref()?.inbox.message()
    }

    /// Notes that `count` bytes of this writer were written to the server. Returns whether its
    /// message has ended.
    pub fn written(&mut self, place: usize, count: usize, turns: &mut Turns) -> bool {
        let Some(connection) = &mut self.places[place] else {
            return true;
        };
        let result = connection.inbox.written(count);
        if result == Ok(false) {
            return false;
        }
        connection.active = clock::now();
        turns.written(std::mem::take(&mut connection.message), connection.active);
        self.go_on(place, result.map(drop), turns);
        true
    }

    /// Takes no more writers, and answers those that are there, also those that were not accepted
    /// yet.
    pub fn close(&mut self, why: &str) {
        let mut left = 0;
        for mut connection in self.places.iter_mut().filter_map(Option::take) {
            left += u32::from(connection.inbox.message().is_some());
            if connection.is_answered {
                continue;
            }
            // All of it may be written, and only its end is not read.
            let stream = &connection.stream;
            if connection.inbox.message().is_none() {
                let _ = connection.inbox.fill(|bytes| stream.read(bytes).ok());
            }
            if connection.inbox.is_done() {
                connection.answer(format_args!("ok"));
            } else {
                connection.answer(format_args!("error: {why}"));
            }
        }
        for source in self.sources.drain(..) {
            while let Ok((stream, _)) = source.listener.accept() {
                stream::send(stream.as_fd(), format!("error: {why}\n").as_bytes());
            }
        }
        if left > 0 {
            log::warn!("undelivered messages of other writers: {left}, because {why}");
        }
    }
}
