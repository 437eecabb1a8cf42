//! The server's stdin: what is written to it, in whose turn, and when it ends.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::relay::inbox::HostInbox;
use crate::relay::others::{Input, Others};
use crate::relay::run::{Polled, Wanted};
use crate::relay::schedule::{Schedule, Turn};
use crate::relay::words::Words;
use crate::settings::writers::{Use, Writers};
use crate::sys::poll::Events;
use crate::sys::stream::{Ended, Stream};
use crate::sys::{Errno, clock};

/// How often to look whether the server takes its last input, since nothing reports that.
const LAST_INPUT_CHECK: Duration = Duration::from_millis(20);

/// The server's stdin.
#[derive(Debug)]
enum Sink {
    Open(Stream),
    /// The relay has ended it. The server may still read what is in it.
    Ending {
        ended: Ended,
        unread: u64,
        /// When the server has last taken something.
        since: Duration,
        check: Duration,
    },
    Gone,
}

/// Everything that is to be written to the server's stdin.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The relay no longer waits if the server takes nothing of its last input for this long.
    drain: Duration,
    host: Option<Stream>,
    inbox: HostInbox,
    sink: Sink,
    /// The server's stdin is full.
    blocked: bool,
    others: Others<'a>,
    schedule: Schedule,
    /// The writer of the message that is being written, or is the next one.
    turn: Option<Turn>,
    /// A message that begins a turn was written since the last boundary.
    begun: bool,
    words: Words,
}

impl<'a> Inputs<'a> {
    pub fn new(
        settings: &'a Writers,
        drain: Duration,
        (host, sink): (Stream, Stream),
        sources: Vec<Input>,
        words: Words,
    ) -> Self {
        Self {
            drain,
            host: Some(host),
            inbox: HostInbox::new(settings.framing),
            sink: Sink::Open(sink),
            blocked: false,
            others: Others::new(settings, sources, words),
            schedule: Schedule::default(),
            turn: None,
            begun: false,
            words,
        }
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
            Some(Turn::Writer(place)) => self.others.injects(place),
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
            wanted.add(Polled::Host, host.as_raw_fd(), Events::IN);
        }
        if let Sink::Open(sink) = &self.sink {
            let events = if self.blocked {
                Events::OUT
            } else {
                Events::empty()
            };
            wanted.add(Polled::Sink, sink.as_raw_fd(), events);
        }
        self.others.list(wanted);
    }

    /// When to look again though poll reports nothing.
    pub fn due(&self) -> Option<Duration> {
        let check = match self.sink {
            Sink::Ending { check, .. } => Some(check),
            Sink::Open(_) | Sink::Gone => None,
        };
        [check, self.others.due()].into_iter().flatten().min()
    }

    pub fn check_times(&mut self, now: Duration) {
        self.others.check_times(now);
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

    /// There are bytes on stdin, or its end.
    pub fn read_host(&mut self) {
        let Some(host) = self.host.as_ref().filter(|_| self.inbox.is_empty()) else {
            return;
        };
        // Bytes that are in the relay must not count as read by the server.
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

    /// There are bytes of a writer, or its end.
    pub fn read_writer(&mut self, place: usize) {
        self.others.read(place);
    }

    /// Another process has connected.
    pub fn accept(&mut self, at: usize, now: Duration) {
        self.others.accept(at, now);
    }

    /// Whether a message that cancels has become complete since the last call.
    pub const fn take_cancel(&mut self) -> bool {
        std::mem::replace(&mut self.others.cancelled, false)
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

    /// Writes once. Returns whether there may be more to write.
    fn write_some(&mut self) -> bool {
        let (cancel, inject) = (
            self.others.ready(Use::Cancel),
            self.others.ready(Use::Inject),
        );
        if self.turn.is_none() {
            self.turn = self.schedule.next(!self.inbox.is_empty(), cancel, inject);
        }
        let bytes = match self.turn {
            None => &[],
            Some(Turn::Host) => self.inbox.writable(cancel | inject != 0),
            Some(Turn::Writer(place)) => self.others.writable(place),
        };
        if bytes.is_empty() {
            // If it is the turn of stdin, the rest of its message has to come, unless stdin has ended.
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
            Some(Turn::Writer(place)) => {
                self.begun |= self.others.injects(place);
                if self.others.written(place, count) {
                    self.turn = None;
                }
            }
        }
    }

    /// The framing of stdin is broken, so nothing says where another message could go.
    fn refuse(&mut self) {
        if !self.others.is_empty() {
            log::warn!(
                "stdin is not framed as --framing says: it is passed on, and other writers are refused from now on"
            );
            self.others.drop_all();
        }
    }

    /// Ends the server's stdin: nothing more will come from the host, and all that has come is written.
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
        self.others.drop_all();
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
        self.others.drop_all();
    }
}
