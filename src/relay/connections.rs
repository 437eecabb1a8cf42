//! The writers other than the host: the sockets, their connections, and the messages that wait.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::relay::inbox::{CHUNK, Inbox};
use crate::relay::peer::{self, Family};
use crate::relay::turns::{Message, Turns};
use crate::relay::wanted::{Polled, Wanted};
use crate::relay::words::Words;
use crate::sys::fd::Kind;
use crate::sys::poll::Events;
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, clock};

/// How many connections there can be at a time. Together they can take so many times the longest message of memory. The
/// next one waits until one of them has left.
const MAX_CONNECTIONS: usize = 32;
/// The pause before the next connection is accepted, after no descriptor was free for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens, under the name that it has in the options.
#[derive(Debug)]
pub struct ListeningSocket {
    pub name: String,
    pub listener: UnixListener,
}

/// One writer.
#[derive(Debug)]
struct Connection {
    stream: Stream,
    inbox: Inbox,
    /// What the message does that is complete.
    message: Message,
    /// It was answered. What it still sends is read and discarded, so that its writer can read the answer.
    is_answered: bool,
    /// Which one of the sockets it came by.
    source: usize,
}

impl Connection {
    /// Sends one line, which is the last one. The buffer of a socket that was never written to has room for it.
    fn answer(&mut self, line: fmt::Arguments<'_>) {
        stream::send(self.stream.as_fd(), format!("{line}\n").as_bytes());
        stream::hang_up(self.stream.as_fd());
        self.is_answered = true;
        self.inbox = Inbox::default();
    }
}

/// All writers other than the host.
#[derive(Debug)]
pub struct Connections {
    sources: Vec<ListeningSocket>,
    places: Vec<Option<Connection>>,
    family: Family,
    /// When connections are accepted again.
    pub accept_at: Option<Duration>,
    /// The last attempt to accept a connection has failed, which was reported.
    is_failing: bool,
    /// It was reported that all places are taken.
    was_crowded: bool,
    words: Words,
}

impl Connections {
    pub fn new(sources: Vec<ListeningSocket>, family: Family, words: Words) -> Self {
        Self {
            sources,
            places: (0..MAX_CONNECTIONS).map(|_| None).collect(),
            family,
            accept_at: None,
            is_failing: false,
            was_crowded: false,
            words,
        }
    }

    /// The sockets that listen.
    pub fn descriptors(&self) -> Vec<i32> {
        let sources = self.sources.iter();
        sources.map(|source| source.listener.as_raw_fd()).collect()
    }

    /// Adds what poll has to wait for.
    pub fn list(&self, wanted: &mut Wanted) {
        if self.accept_at.is_none() && self.free_place().is_some() {
            for (at, source) in self.sources.iter().enumerate() {
                wanted.add(Polled::Listener(at), &source.listener, Events::IN);
            }
        }
        for (at, connection) in self.places.iter().enumerate() {
            let wants = |connection: &&Connection| {
                connection.inbox.message().is_none() && !connection.inbox.ended
            };
            if let Some(connection) = connection.as_ref().filter(wants) {
                wanted.add(Polled::Other(at), &connection.stream, Events::IN);
            }
        }
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
        let result = connection.inbox.fill(|bytes| match stream.read(bytes) {
            // An error of the connection is its end.
            Err(errno) if !matches!(errno, Errno::AGAIN | Errno::INTR) => Ok(0),
            other => other,
        });
        match result {
            Ok(Ok(())) => self.after_message(place, turns),
            Ok(Err(fault)) => self.refuse(place, fault),
            Err(_) => {}
        }
    }

    /// Looks at the next message, if it is complete. A writer that is done is answered.
    fn after_message(&mut self, place: usize, turns: &mut Turns) {
        let Some(connection) = &mut self.places[place] else {
            return;
        };
        if let Some(message) = connection.inbox.message() {
            connection.message = turns.other_read(message, clock::now());
        } else if connection.inbox.is_done() {
            connection.answer(format_args!("ok"));
            self.places[place] = None;
        }
    }

    fn refuse(&mut self, place: usize, why: impl fmt::Display) {
        if let Some(connection) = &mut self.places[place] {
            self.words.discarded.add(1);
            let name = &self.sources[connection.source].name;
            log::warn!("refused a message of a writer of {name}: {why}");
            connection.answer(format_args!("error: {why}"));
        }
    }

    /// Another process has connected.
    pub fn accept(&mut self, source: usize, now: Duration) {
        let (Some(ListeningSocket { name, listener }), Some(place)) =
            (self.sources.get(source), self.free_place())
        else {
            return;
        };
        let stream = match listener.accept() {
            Ok((stream, _)) => Stream::new(OwnedFd::from(stream), Kind::Socket),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                return;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    log::warn!("cannot take a writer of {name}, and tries again: {error}");
                }
                self.accept_at = Some(now + ACCEPT_PAUSE);
                return;
            }
        };
        self.is_failing = false;
        let mut connection = Connection {
            stream,
            inbox: Inbox::default(),
            message: Message::default(),
            is_answered: false,
            source,
        };
        if let Err(refusal) = peer::check(connection.stream.as_fd(), &self.family) {
            self.words.discarded.add(1);
            log::warn!("refused a writer of {name}: {refusal}");
            connection.answer(format_args!("error: {refusal}"));
            return;
        }
        self.places[place] = Some(connection);
        if self.free_place().is_none() && !std::mem::replace(&mut self.was_crowded, true) {
            log::warn!(
                "--inject has {MAX_CONNECTIONS} writers, as many as it can have: the next one waits until one of them has left"
            );
        }
    }

    fn free_place(&self) -> Option<usize> {
        self.places.iter().position(Option::is_none)
    }

    /// The writers that have a complete message: one bit for each place.
    pub fn ready(&self) -> u64 {
        let is_ready = |place: &usize| self.message(*place).is_some();
        let places = (0..MAX_CONNECTIONS).filter(is_ready);
        places.fold(0, |bits, place| bits | 1 << place)
    }

    /// What is left to be written of the complete message of this writer.
    pub fn message(&self, place: usize) -> Option<&[u8]> {
        self.places[place].as_ref()?.inbox.message()
    }

    /// Notes that `count` bytes of this writer were written to the server. Returns whether its message has ended.
    pub fn written(&mut self, place: usize, count: usize, turns: &mut Turns) -> bool {
        let Some(connection) = &mut self.places[place] else {
            return true;
        };
        let now = clock::now();
        self.words.injected.set(now.as_nanos() as u64);
        let result = connection.inbox.written(count);
        if result == Ok(false) {
            return false;
        }
        self.words.messages.add(1);
        turns.written(std::mem::take(&mut connection.message), now);
        match result {
            Ok(_) => self.after_message(place, turns),
            Err(fault) => self.refuse(place, fault),
        }
        true
    }

    /// Takes no more writers, and answers those that are there, also those that were not accepted yet.
    pub fn close(&mut self, why: &str) {
        let mut left = 0;
        for mut connection in self.places.iter_mut().filter_map(Option::take) {
            left += u64::from(connection.inbox.message().is_some());
            if !connection.is_answered {
                connection.answer(format_args!("error: {why}"));
            }
        }
        for source in self.sources.drain(..) {
            while let Ok((stream, _)) = source.listener.accept() {
                stream::send(stream.as_fd(), format!("error: {why}\n").as_bytes());
            }
        }
        self.words.discarded.add(left);
        if left > 0 {
            log::warn!("messages of other writers that were not written, since {why}: {left}");
        }
    }
}
