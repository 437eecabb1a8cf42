//! The writers other than the host: the sockets, their connections, and the messages that wait.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::relay::family;
use crate::relay::inbox::{CHUNK, Inbox};
use crate::relay::life::{Awaited, Wanted};
use crate::relay::turns::{Message, Turns};
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, clock, fd, pid, poll};

/// How many connections there can be at a time, each with memory for the longest message.
pub const MAX_CONNECTIONS: usize = 32;
/// After this silence a writer loses its place if all are taken and another writer connects.
const MAX_SILENCE: Duration = Duration::from_secs(10);
const TOO_SILENT: &str = "nothing was sent for 10 s, and another writer needs the place";
/// The pause after no descriptor was free for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Connection {
    stream: Stream,
    inbox: Inbox,
    message: Message,
    /// When it has connected or sent something, or a message of it was written.
    active: Duration,
    /// What it still sends is read and discarded, so that its writer can read the answer.
    is_answered: bool,
    source: usize,
}

impl Connection {
    /// Sends the only line. The buffer of a socket that was never written to has room for it.
    fn answer(&mut self, line: &str) {
        stream::send(self.stream.as_fd(), line.as_bytes());
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        self.is_answered = true;
        self.inbox = Inbox::default();
    }
}

#[derive(Default)]
pub struct Connections {
    /// The sockets that listen, under the names that they have in the options.
    pub sources: Vec<(String, UnixListener)>,
    places: [Option<Connection>; MAX_CONNECTIONS],
    /// No connection is accepted before this time. Zero: the last one could be accepted.
    paused_until: Duration,
}

impl Connections {
    pub fn list(&self, wanted: &mut Wanted, now: Duration) {
        let is_read =
            |writer: &&Connection| writer.inbox.message().is_none() && !writer.inbox.ended;
        for (at, writer) in self.places.iter().enumerate() {
            let stream = writer.as_ref().filter(is_read).map(|writer| &writer.stream);
            wanted.add(Awaited::Connection(at), stream, poll::Events::IN);
        }
        // Last: a writer that has just sent something keeps its place.
        if self.next_place().is_some_and(|(at, _)| at <= now) {
            for (at, (_, listener)) in self.sources.iter().enumerate() {
                wanted.add(Awaited::Listener(at), Some(listener), poll::Events::IN);
            }
        }
    }

    /// When connections are accepted again. `None`: now, or only when a writer has left.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let (at, _) = self.next_place()?;
        (at > now && !self.sources.is_empty()).then_some(at)
    }

    /// A free place, or that of the most silent writer, and from when on it can be taken.
    fn next_place(&self) -> Option<(Duration, usize)> {
        let available = |place: usize| {
            let (is_taken, at) = match &self.places[place] {
                None => (false, Duration::ZERO),
                Some(writer) if writer.is_answered => (true, Duration::ZERO),
                // A message of it waits to be written.
                Some(writer) if writer.inbox.message().is_some() => return None,
                Some(writer) => (true, writer.active + MAX_SILENCE),
            };
            Some((is_taken, at.max(self.paused_until), place))
        };
        let first = (0..MAX_CONNECTIONS).filter_map(available).min();
        first.map(|(_, at, place)| (at, place))
    }

    pub fn read(&mut self, place: usize, turns: &mut Turns) {
        let connection = self.places[place].as_mut();
        let Some(connection) = connection else { return };
        let stream = &connection.stream;
        if connection.is_answered {
            return match stream.read(&mut [0; CHUNK / 16]) {
                Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(0) | Err(_) => self.places[place] = None,
            };
        }
        connection.active = clock::now();
        let result = connection.inbox.fill(|bytes| match stream.read(bytes) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            // An error of the connection is its end.
            result => Some(result.unwrap_or(0)),
        });
        self.go_on(place, result, turns);
    }

    /// Looks at the next message, if it is complete. Answers a writer that is done or has a fault.
    fn go_on(&mut self, place: usize, result: Result<(), &str>, turns: &mut Turns) {
        if let Err(fault) = result {
            return self.refuse(place, fault);
        }
        let connection = self.places[place].as_mut();
        let Some(connection) = connection else { return };
        if let Some(message) = connection.inbox.message() {
            connection.message = turns.read(message, connection.active);
        } else if connection.inbox.is_done() {
            connection.answer("ok\n");
            self.places[place] = None;
        }
    }

    /// The writer keeps its place until it has read that or another one needs the place.
    fn refuse(&mut self, place: usize, why: &str) {
        let writer = self.places[place].as_mut();
        if let Some(connection) = writer.filter(|writer| !writer.is_answered) {
            let (name, _) = &self.sources[connection.source];
            log::warn!("refused a writer of {name}: {why}");
            connection.answer(&format!("error: {why}\n"));
        }
    }

    pub fn accept(&mut self, source: usize, now: Duration, child: pid::Pid) {
        let next = self.next_place().filter(|(at, _)| *at <= now);
        let (Some((_, place)), Some((name, listener))) = (next, self.sources.get(source)) else {
            return;
        };
        let stream = match rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC) {
            Ok(socket) => Stream::new(socket, fd::Kind::Socket),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                if self.paused_until.is_zero() {
                    log::warn!("cannot accept a writer of {name} (will try again): {errno}");
                }
                self.paused_until = now + ACCEPT_PAUSE;
                return;
            }
        };
        self.paused_until = Duration::ZERO;
        let refusal = family::check(stream.as_fd(), child).err();
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
            self.refuse(place, &refusal);
        }
    }

    pub fn message(&self, place: usize) -> Option<&[u8]> {
        self.places[place].as_ref()?.inbox.message()
    }

    /// So many bytes of this writer were written. Returns whether its message has ended.
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

    /// Answers all writers, also those that were not accepted yet, and takes no more.
    pub fn close(&mut self, why: &str) {
        let (mut left, error) = (0, format!("error: {why}\n"));
        let writers = self.places.iter_mut().filter_map(Option::take);
        for mut connection in writers.filter(|writer| !writer.is_answered) {
            left += u32::from(connection.inbox.message().is_some());
            // All of it may be written, and only its end is not read.
            if connection.inbox.message().is_none() {
                let read = |bytes: &mut [u8]| connection.stream.read(bytes).ok();
                let _ = connection.inbox.fill(read);
            }
            let is_done = connection.inbox.is_done();
            connection.answer(if is_done { "ok\n" } else { &error });
        }
        for (_, listener) in self.sources.drain(..) {
            for (stream, _) in (0..1000).map_while(|_| listener.accept().ok()) {
                stream::send(stream.as_fd(), error.as_bytes());
            }
        }
        if left > 0 {
            log::warn!("undelivered messages of other writers: {left}, because {why}");
        }
    }
}
