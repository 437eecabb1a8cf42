//! Everything that goes to the server's stdin: what the host writes, and the messages of the other writers.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::relay::inbox::{Fault, HostInbox, Inbox};
use crate::relay::peer;
use crate::relay::run::{Polled, Wanted};
use crate::relay::schedule::{Place, Schedule, Turn};
use crate::relay::words::Words;
use crate::settings::writers::{Use, Writers};
use crate::sys::clock;
use crate::sys::fd::Kind;
use crate::sys::stream::{Ended, Stream};
use crate::sys::{Errno, pid};

/// How many writers that inject there can be at a time: their messages take so many times --max-message of memory.
/// The next one waits until one of them has left.
const INJECTING: usize = 32;
/// The same for writers that cancel, which the others cannot keep waiting.
const CANCELLING: usize = 8;

/// How often to look whether the server takes its last input, since nothing reports that.
const LAST_INPUT_CHECK: Duration = Duration::from_millis(20);
/// When no descriptor was free for a new writer: how long to wait.
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
    /// Until it has ended.
    pub origin: Option<Origin>,
}

#[derive(Debug)]
struct Writer {
    stream: Stream,
    inbox: Inbox,
    /// The last byte that was read is still in the socket.
    kept: bool,
    /// Which one of the inputs it came from.
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

    /// So many bytes were written to the server; whether a message has ended with them.
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
}

/// The server's stdin.
#[derive(Debug)]
enum Sink {
    Open(Stream),
    /// Ended by us. The server may still read what is in it.
    Ending {
        ended: Ended,
        unread: u64,
        /// When the server has last taken something.
        since: Duration,
        check: Duration,
    },
    Gone,
}

/// What the writers of the server's stdin have left, and whose turn it is.
#[derive(Debug)]
pub struct Inputs<'a> {
    settings: &'a Writers,
    /// How long the server may take nothing of its last input, until that is not looked at any more.
    drain: Duration,
    host: Option<Stream>,
    inbox: HostInbox,
    sink: Sink,
    /// The server's stdin is full.
    blocked: bool,
    sources: Vec<Input>,
    writers: Vec<Option<Writer>>,
    schedule: Schedule,
    /// Whose message has begun, or is about to.
    turn: Option<Turn>,
    /// A message that begins a turn was written since the last boundary.
    begun: bool,
    /// A message that cancels has become complete.
    pub cancelled: bool,
    accept_at: Option<Duration>,
    words: Words,
    top: i32,
}

impl<'a> Inputs<'a> {
    pub fn new(
        settings: &'a Writers,
        drain: Duration,
        (host, sink): (Stream, Stream),
        sources: Vec<Input>,
        words: Words,
    ) -> Self {
        let mut all = Self {
            settings,
            drain,
            host: Some(host),
            inbox: HostInbox::new(settings.framing),
            sink: Sink::Open(sink),
            blocked: false,
            sources,
            writers: (0..INJECTING + CANCELLING).map(|_| None).collect(),
            schedule: Schedule::default(),
            turn: None,
            begun: false,
            cancelled: false,
            accept_at: None,
            words,
            top: pid::parent(),
        };
        for at in 0..all.sources.len() {
            if let Some(Origin::Stream(_)) = &all.sources[at].origin
                && let Some(Origin::Stream(stream)) = all.sources[at].origin.take()
            {
                all.add(at, stream);
            }
        }
        all
    }

    /// Whether nothing will be written to the server any more.
    pub const fn is_over(&self) -> bool {
        matches!(self.sink, Sink::Gone)
    }

    /// Whether a turn runs: a message that begins one was written since the last boundary, or is being written. The
    /// server may take nothing of it.
    pub fn turn_runs(&self) -> bool {
        let is_being_written = match self.turn {
            None => false,
            Some(Turn::Host) => true,
            Some(Turn::Writer(place)) => self.writers[place as usize]
                .as_ref()
                .is_some_and(|writer| writer.does == Use::Inject),
        };
        self.begun || is_being_written
    }

    /// A boundary has come.
    pub const fn turn_ended(&mut self) {
        self.begun = false;
    }

    /// What is to be waited for.
    pub fn list(&self, wanted: &mut Wanted) {
        if let Some(host) = &self.host
            && self.inbox.is_empty()
        {
            wanted.add(Polled::Host, host.as_raw_fd(), libc::POLLIN);
        }
        if let Sink::Open(sink) = &self.sink {
            let events = if self.blocked { libc::POLLOUT } else { 0 };
            wanted.add(Polled::Sink, sink.as_raw_fd(), events);
        }
        for (at, input) in self.sources.iter().enumerate() {
            if let Some(Origin::Listener(listener)) = &input.origin
                && self.accept_at.is_none()
                && self.free_place(input.does).is_some()
            {
                wanted.add(Polled::Input(at), listener.as_raw_fd(), libc::POLLIN);
            }
        }
        for (at, writer) in self.writers.iter().enumerate() {
            if let Some(writer) = writer
                && !writer.inbox.is_ready()
                && !writer.inbox.ended
            {
                wanted.add(Polled::Writer(at), writer.stream.as_raw_fd(), libc::POLLIN);
            }
        }
    }

    /// When to look again though nothing was reported.
    pub fn due(&self) -> Option<Duration> {
        let check = match self.sink {
            Sink::Ending { check, .. } => Some(check),
            Sink::Open(_) | Sink::Gone => None,
        };
        [check, self.accept_at].into_iter().flatten().min()
    }

    pub fn check_times(&mut self, now: Duration) {
        self.accept_at = self.accept_at.filter(|at| now < *at);
        let Sink::Ending {
            ended,
            unread,
            since,
            check,
        } = &mut self.sink
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
        self.words.set_unread(*unread);
        if *unread == 0 || now >= *since + self.drain {
            self.sink = Sink::Gone;
        }
    }

    /// stdin has something, or its end.
    pub fn read_host(&mut self) {
        let Some(host) = self.host.as_ref().filter(|_| self.inbox.is_empty()) else {
            return;
        };
        // While it is on its way it must not seem to have been read by the server.
        self.words.set_unread(self.words.unread() + host.readable());
        match self.inbox.fill(|bytes| host.read(bytes)) {
            Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
            // An error of the connection is its end.
            Ok(0) | Err(_) => {
                self.inbox.ended = true;
                self.host = None;
            }
        }
    }

    /// The server reads no more, whatever else poll has said.
    pub fn check_sink(&mut self, hung_up: bool) {
        if hung_up {
            self.leave("the server reads no more");
        }
    }

    /// A writer has something, or has ended.
    pub fn read_writer(&mut self, place: usize) {
        let Some(writer) = &mut self.writers[place] else {
            return;
        };
        match writer.read() {
            Ok(true) => {}
            Ok(false) => return,
            Err(fault) => return self.discard(place, fault),
        }
        self.note_cancel(place);
        self.close_if_empty(place);
    }

    fn note_cancel(&mut self, place: usize) {
        self.cancelled |= self.writers[place]
            .as_ref()
            .is_some_and(|writer| writer.does == Use::Cancel && writer.inbox.is_ready());
    }

    /// Closes the connection of a writer that has ended, when all of its messages were written.
    fn close_if_empty(&mut self, place: usize) {
        self.writers[place].take_if(|writer| writer.inbox.ended && writer.inbox.is_empty());
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
            Ok((connection, _)) => match peer::check(connection.as_fd(), self.top) {
                Ok(()) => {
                    let stream = Stream::new(OwnedFd::from(connection), Kind::Socket);
                    self.add(at, stream);
                }
                Err(refusal) => {
                    self.words.add_discarded();
                    log::warn!("refused a writer of {name}: {refusal}");
                }
            },
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => {
                log::warn!("cannot take a writer of {name}: {error}");
                self.accept_at = Some(now + ACCEPT_PAUSE);
            }
        }
    }

    fn free_place(&self, does: Use) -> Option<usize> {
        let places = match does {
            Use::Inject => 0..INJECTING,
            Use::Cancel => INJECTING..INJECTING + CANCELLING,
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
    }

    /// Who of those that do this has a complete message: one bit each.
    fn ready(&self, does: Use) -> u64 {
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

    /// Writes what can be written now.
    pub fn pump(&mut self) {
        self.blocked = false;
        while matches!(self.sink, Sink::Open(_)) && self.write_some() {}
        if let Sink::Open(sink) = &self.sink {
            let unread = self.inbox.len() as u64 + sink.unread();
            self.words.set_unread(unread);
        }
    }

    /// Writes once; whether there may be more to write.
    fn write_some(&mut self) -> bool {
        let (cancel, inject) = (self.ready(Use::Cancel), self.ready(Use::Inject));
        if self.turn.is_none() {
            self.turn = self.schedule.next(!self.inbox.is_empty(), cancel, inject);
        }
        let bytes = match self.turn {
            None => &[],
            Some(Turn::Host) => self.inbox.writable(cancel | inject != 0),
            Some(Turn::Writer(place)) => match &self.writers[place as usize] {
                Some(writer) => writer.inbox.writable(),
                None => &[],
            },
        };
        if bytes.is_empty() {
            // Of stdin: more of a message has to come, unless that has ended.
            if self.inbox.ended {
                self.end_sink();
            }
            return false;
        }
        let Sink::Open(sink) = &self.sink else {
            return false;
        };
        match sink.write(bytes) {
            Ok(count) => self.written(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                self.blocked = true;
                return false;
            }
            Err(_) => {
                self.leave("the server reads no more");
                return false;
            }
        }
        true
    }

    fn written(&mut self, count: usize) {
        match self.turn {
            None => {}
            Some(Turn::Host) => {
                self.begun = true;
                if self.inbox.written(count) {
                    self.turn = None;
                } else if self.inbox.is_broken() {
                    self.refuse();
                }
            }
            Some(Turn::Writer(place)) => self.written_of(place, count),
        }
    }

    fn written_of(&mut self, place: Place, count: usize) {
        let at = place as usize;
        let Some(writer) = &mut self.writers[at] else {
            return;
        };
        self.begun |= writer.does == Use::Inject;
        let result = writer.written(count);
        if result == Ok(false) {
            return;
        }
        self.turn = None;
        self.words.add_message();
        match result {
            Ok(_) => {
                self.note_cancel(at);
                self.close_if_empty(at);
            }
            Err(fault) => self.discard(at, fault),
        }
    }

    /// The framing of stdin is broken, so nothing says where another message could go.
    fn refuse(&mut self) {
        let has = |writer: &Option<Writer>| writer.is_some();
        let others =
            self.sources.iter().any(|input| input.origin.is_some()) || self.writers.iter().any(has);
        if others {
            log::warn!(
                "stdin is not framed as --framing says: it is passed on, and other writers are refused from now on"
            );
            self.drop_writers();
        }
    }

    fn drop_writers(&mut self) {
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
            log::warn!("dropped {left} writers whose messages were not written to the server yet");
        }
    }

    /// Nothing more will come from stdin, and what has come is written.
    fn end_sink(&mut self) {
        let Sink::Open(sink) = std::mem::replace(&mut self.sink, Sink::Gone) else {
            return;
        };
        let now = clock::now();
        let ended = sink.end();
        self.sink = Sink::Ending {
            unread: ended.unread(),
            ended,
            since: now,
            check: now,
        };
        self.words.set_ended();
        self.drop_writers();
    }

    /// Nothing more can be written.
    pub fn leave(&mut self, why: &str) {
        if self.is_over() {
            return;
        }
        log::info!("relay: {why}");
        (self.sink, self.host) = (Sink::Gone, None);
        self.words.set_ended();
        self.words.set_unread(0);
        self.drop_writers();
    }
}
