//! The writers other than the host: their sources, their connections, and the messages that wait for a turn.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::relay::inbox::{Fault, Inbox};
use crate::relay::peer;
use crate::relay::run::{Polled, Wanted};
use crate::relay::schedule::Place;
use crate::relay::words::Words;
use crate::settings::writers::{Use, Writers};
use crate::sys::fd::Kind;
use crate::sys::poll::Events;
use crate::sys::stream::Stream;
use crate::sys::{Errno, pid};

/// How many writers can inject at a time. Together they can take so many times --max-message of memory. The next one
/// waits until one of them has left.
const MAX_INJECTING: usize = 32;
/// The same for writers that cancel. Writers that inject cannot keep them waiting.
const MAX_CANCELLING: usize = 8;

/// How many writers of this use there can be at a time.
#[must_use]
pub const fn most(does: Use) -> usize {
    match does {
        Use::Inject => MAX_INJECTING,
        Use::Cancel => MAX_CANCELLING,
    }
}

/// The pause before the next connection is accepted, after no descriptor was free for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where messages of other writers come from.
#[derive(Debug)]
pub enum Origin {
    /// One writer, until it ends.
    Stream(Stream),
    /// Each connection is a writer.
    Listener(UnixListener),
}

/// A source, under the name that it has in the options.
#[derive(Debug)]
pub struct Input {
    pub name: String,
    pub does: Use,
    /// `None` after it has ended, and if its writer is among the others.
    pub origin: Option<Origin>,
}

#[derive(Debug)]
struct Writer {
    stream: Stream,
    inbox: Inbox,
    /// The last byte that was read is still in the socket.
    kept: bool,
    /// Which one of the sources it came from.
    input: usize,
    does: Use,
}

impl Writer {
    /// Reads what is there. False: there was nothing.
    ///
    /// As long as a complete message is not written to the server, its last byte stays in the socket. If the relay
    /// closes a socket with unread bytes, or is killed, the writer gets `ECONNRESET`. It must not read an end of file:
    /// that is the acknowledgement.
    fn read(&mut self) -> Result<bool, Fault> {
        let (stream, kept) = (&self.stream, &mut self.kept);
        let result = match stream.kind() {
            Kind::Socket => self.inbox.fill(|bytes| {
                let room = bytes.len().min(stream.readable() as usize);
                let (first, last) = bytes.split_at_mut(room.saturating_sub(1));
                let count = if first.is_empty() {
                    0
                } else {
                    stream.read(first)?
                };
                let peeked = stream.peek(&mut last[..1]);
                *kept = peeked == Ok(1);
                // What was read counts, even if nothing follows.
                if count > 0 {
                    return Ok(count + usize::from(*kept));
                }
                peeked
            }),
            Kind::Pipe | Kind::Terminal | Kind::Other => {
                self.inbox.fill(|bytes| stream.read(bytes))
            }
        };
        match result {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Ok(Ok(0)) | Err(_) => self.inbox.end()?,
            Ok(Ok(_)) => self.take_kept(),
            Ok(Err(fault)) => return Err(fault),
        }
        Ok(true)
    }

    /// Notes that `count` bytes were written to the server. Returns whether a message has ended with them.
    fn written(&mut self, count: usize) -> Result<bool, Fault> {
        let ended = self.inbox.written(count)?;
        self.take_kept();
        Ok(ended)
    }

    /// Takes the byte out of the socket, unless there is a complete message.
    fn take_kept(&mut self) {
        if self.kept && !self.inbox.is_ready() {
            self.kept = self.stream.read(&mut [0]).is_err();
        }
    }

    /// Whether it has ended, and all of its messages were written.
    const fn is_done(&self) -> bool {
        self.inbox.ended && self.inbox.is_empty()
    }
}

/// All writers other than the host, and the sources that more of them come from.
#[derive(Debug)]
pub struct Others<'a> {
    settings: &'a Writers,
    sources: Vec<Input>,
    /// Each place belongs to one use: the first ones inject, the last ones cancel.
    writers: Vec<Option<Writer>>,
    /// A message that cancels has become complete.
    pub cancelled: bool,
    /// When connections are accepted again.
    accept_at: Option<Duration>,
    /// The last attempt to accept a connection has failed, which was reported.
    failing: bool,
    /// The uses of which it was reported that all places are taken.
    crowded: Vec<Use>,
    words: Words,
    /// The process that has started the relay.
    top: i32,
}

impl<'a> Others<'a> {
    pub fn new(settings: &'a Writers, sources: Vec<Input>, words: Words) -> Self {
        let mut all = Self {
            settings,
            sources,
            writers: (0..MAX_INJECTING + MAX_CANCELLING).map(|_| None).collect(),
            cancelled: false,
            accept_at: None,
            failing: false,
            crowded: Vec::new(),
            words,
            top: pid::parent(),
        };
        for at in 0..all.sources.len() {
            if let Some(Origin::Stream(stream)) = all.sources[at]
                .origin
                .take_if(|origin| matches!(origin, Origin::Stream(_)))
            {
                all.add(at, stream);
            }
        }
        all
    }

    /// Adds what poll has to wait for.
    pub fn list(&self, wanted: &mut Wanted) {
        for (at, input) in self.sources.iter().enumerate() {
            if let Some(Origin::Listener(listener)) = &input.origin
                && self.accept_at.is_none()
                && self.free_place(input.does).is_some()
            {
                wanted.add(Polled::Input(at), listener.as_raw_fd(), Events::IN);
            }
        }
        for (at, writer) in self.writers.iter().enumerate() {
            if let Some(writer) = writer
                && !writer.inbox.is_ready()
                && !writer.inbox.ended
            {
                wanted.add(Polled::Writer(at), writer.stream.as_raw_fd(), Events::IN);
            }
        }
    }

    /// When to look again though poll reports nothing.
    pub const fn due(&self) -> Option<Duration> {
        self.accept_at
    }

    pub fn check_times(&mut self, now: Duration) {
        self.accept_at = self.accept_at.filter(|at| now < *at);
    }

    /// Whether there is no writer, and no source of one.
    pub fn is_empty(&self) -> bool {
        self.sources.iter().all(|input| input.origin.is_none())
            && self.writers.iter().all(Option::is_none)
    }

    /// There are bytes of a writer, or its end.
    pub fn read(&mut self, place: usize) {
        let Some(writer) = &mut self.writers[place] else {
            return;
        };
        match writer.read() {
            Ok(true) => self.look_at(place),
            Ok(false) => {}
            Err(fault) => self.discard(place, fault),
        }
    }

    /// Notes a message that cancels, and closes the connection of a writer that is done.
    fn look_at(&mut self, place: usize) {
        self.cancelled |= self.writers[place]
            .as_ref()
            .is_some_and(|writer| writer.does == Use::Cancel && writer.inbox.is_ready());
        self.writers[place].take_if(|writer| writer.is_done());
    }

    fn discard(&mut self, place: usize, fault: Fault) {
        let Some(writer) = self.writers[place].take() else {
            return;
        };
        self.words.add_discarded();
        let name = &self.sources[writer.input].name;
        log::warn!("dropped a writer of {name}: {fault}");
    }

    /// Another process has connected.
    pub fn accept(&mut self, at: usize, now: Duration) {
        let Some(Origin::Listener(listener)) = &self.sources[at].origin else {
            return;
        };
        let name = &self.sources[at].name;
        match listener.accept() {
            Ok((connection, _)) => {
                self.failing = false;
                match peer::check(connection.as_fd(), self.top) {
                    Ok(()) => self.add(at, Stream::new(OwnedFd::from(connection), Kind::Socket)),
                    Err(refusal) => {
                        self.words.add_discarded();
                        log::warn!("refused a writer of {name}: {refusal}");
                    }
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    log::warn!("cannot take a writer of {name}, and tries again: {error}");
                }
                self.accept_at = Some(now + ACCEPT_PAUSE);
            }
        }
    }

    fn free_place(&self, does: Use) -> Option<usize> {
        let places = match does {
            Use::Inject => 0..MAX_INJECTING,
            Use::Cancel => MAX_INJECTING..MAX_INJECTING + MAX_CANCELLING,
        };
        places.into_iter().find(|at| self.writers[*at].is_none())
    }

    fn add(&mut self, input: usize, stream: Stream) {
        let does = self.sources[input].does;
        if let Some(place) = self.free_place(does) {
            self.writers[place] = Some(Writer {
                stream,
                inbox: Inbox::new(self.settings.framing, self.settings.max_message),
                kept: false,
                input,
                does,
            });
        }
        if self.free_place(does).is_none() && !self.crowded.contains(&does) {
            self.crowded.push(does);
            let (option, most) = (does.option(), most(does));
            log::warn!(
                "{option} has {most} writers, as many as it can have: the next one waits until one of them has left"
            );
        }
    }

    /// The writers of this use that have a complete message: one bit for each place.
    pub fn ready(&self, does: Use) -> u64 {
        let is_ready = |writer: &Option<Writer>| {
            writer
                .as_ref()
                .is_some_and(|writer| writer.does == does && writer.inbox.is_ready())
        };
        let bits = self.writers.iter().zip(0..);
        bits.fold(0, |bits, (writer, at)| {
            bits | u64::from(is_ready(writer)) << at
        })
    }

    /// Whether the messages of this writer begin turns.
    pub fn injects(&self, place: Place) -> bool {
        self.writers[place as usize]
            .as_ref()
            .is_some_and(|writer| writer.does == Use::Inject)
    }

    /// What is left to be written of the complete message of this writer.
    pub fn writable(&self, place: Place) -> &[u8] {
        self.writers[place as usize]
            .as_ref()
            .map_or(&[], |writer| writer.inbox.writable())
    }

    /// Notes that `count` bytes of this writer were written to the server. Returns whether its turn is over.
    pub fn written(&mut self, place: Place, count: usize) -> bool {
        let at = place as usize;
        let Some(writer) = &mut self.writers[at] else {
            return true;
        };
        let result = writer.written(count);
        if result == Ok(false) {
            return false;
        }
        self.words.add_message();
        match result {
            Ok(_) => self.look_at(at),
            Err(fault) => self.discard(at, fault),
        }
        true
    }

    /// Takes no more writers, and drops those that are there.
    pub fn drop_all(&mut self) {
        for input in &mut self.sources {
            input.origin = None;
        }
        let mut left = 0;
        for writer in self.writers.iter_mut().filter_map(Option::take) {
            if !writer.inbox.is_empty() {
                left += 1;
                self.words.add_discarded();
            }
        }
        if left > 0 {
            log::warn!("dropped writers with a message that was not written to the server: {left}");
        }
    }
}
