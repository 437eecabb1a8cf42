//! Which turns run, and the clock of one that was cancelled. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::relay::members::{self, Lines, Members};
use crate::settings::config::{Match, Writers};
use crate::streams::idle::was_paused;

/// How many turns are known at a time if the answer ends them. Further ones are not followed.
pub const MAX_TURNS: usize = 1024;

/// What a message to the server does.
#[derive(Debug, Default)]
pub struct Message {
    begins: bool,
    /// What its answer has, too.
    id: Option<Box<[u8]>>,
    /// It cancels, and no turn ran when it was read.
    cancels: bool,
    /// The id of a request that gets no answer any more.
    unanswered: Option<Box<[u8]>>,
}

/// Follows the messages to the server and from it. Without `--turn` no message is looked at.
#[derive(Debug, Default)]
pub struct Turns {
    /// The members of messages that begin a turn, and of those that cancel one.
    input: Vec<Match>,
    /// Those of the first kind, one bit each.
    begins: u64,
    /// The members of messages that end a turn. If there are none, its answer ends it.
    boundaries: Vec<Match>,
    cancel_drain: Duration,
    host: Lines,
    output: Lines,
    /// The messages of stdin that matter, and where each ends in what was read last.
    unwritten: VecDeque<(usize, Message)>,
    /// How many messages of all writers have [`Message::cancels`] set, and are not written yet.
    cancels: u64,
    /// The turns that run and that a boundary ends.
    count: u64,
    /// The ids of those that an answer ends.
    ids: Vec<Box<[u8]>>,
    /// A turn may run that could not be followed: its message was too long, or too many run.
    unknown: bool,
    /// When the time of a cancelled turn is over.
    pub deadline: Option<Duration>,
}

impl Turns {
    pub fn new(settings: &Writers) -> Self {
        Self {
            input: [&settings.turns[..], &settings.cancels].concat(),
            begins: (1 << settings.turns.len()) - 1,
            boundaries: settings.boundaries.clone(),
            cancel_drain: settings.cancel_drain,
            ..Self::default()
        }
    }

    pub fn count(&self) -> u64 {
        self.count + self.ids.len() as u64
    }

    pub fn may_run(&self) -> bool {
        self.count() > 0 || self.unknown
    }

    pub fn read(&mut self, line: &[u8], now: Duration) -> Message {
        if self.input.is_empty() {
            return Message::default();
        }
        let Members { found, id, .. } = members::read(line, &self.input).unwrap_or_default();
        let (cancels, runs) = (found & !self.begins != 0, self.count() > 0);
        // The clock starts as soon as the cancel is complete, also if the server reads nothing.
        if cancels && runs {
            self.deadline.get_or_insert(now + self.cancel_drain);
        }
        self.cancels += u64::from(cancels && !runs);
        Message {
            begins: found & self.begins != 0,
            id: id.filter(|_| found != 0),
            cancels: cancels && !runs,
            unanswered: members::unanswered(line).filter(|_| self.boundaries.is_empty()),
        }
    }

    /// These bytes of stdin were read, and all before them are written.
    pub fn host_read(&mut self, bytes: &[u8], now: Duration) {
        self.host_written(usize::MAX, now);
        if self.input.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.host);
        self.unknown |= lines.take(bytes, |line, end| {
            let message = self.read(line, now);
            if message.begins || message.cancels || message.unanswered.is_some() {
                self.unwritten.push_back((end, message));
            }
        });
        self.host = lines;
    }

    /// So many of them are written to the server.
    pub fn host_written(&mut self, count: usize, now: Duration) {
        while self.unwritten.front().is_some_and(|(end, _)| *end <= count) {
            if let Some((_, message)) = self.unwritten.pop_front() {
                self.written(message, now);
            }
        }
    }

    pub fn written(&mut self, message: Message, now: Duration) {
        let running = self.count();
        self.cancels -= u64::from(message.cancels);
        if let Some(cancelled) = message.unanswered {
            self.ids.retain(|id| *id != cancelled);
        }
        if message.begins && self.boundaries.is_empty() {
            self.unknown |= self.ids.len() >= MAX_TURNS;
            let id = message.id.filter(|_| self.ids.len() < MAX_TURNS);
            self.ids.extend(id);
        } else if message.begins {
            self.count += 1;
        }
        // A cancel that waits comes after the turn that has just begun.
        let waits = self.cancels > 0 && self.count() > running;
        if waits || message.cancels && running > 0 {
            self.deadline.get_or_insert(now + self.cancel_drain);
        }
    }

    pub fn output_read(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.output);
        let has_skipped = lines.take(bytes, |line, _| {
            let message = members::read(line, &self.boundaries).unwrap_or_default();
            let is_boundary = message.found != 0;
            self.count = self.count.saturating_sub(is_boundary.into());
            let is_its = |id| message.is_answer && Some(id) == message.id.as_ref();
            let answered = self.ids.iter().position(is_its);
            let ends = is_boundary || answered.is_some();
            if let Some(at) = answered {
                self.ids.swap_remove(at);
            }
            self.deadline = self.deadline.filter(|_| !ends);
            self.unknown &= !is_boundary && (ends || !message.is_answer);
        });
        if has_skipped {
            // It may have been the answer.
            self.unknown = false;
            if self.ids.len() == 1 {
                self.ids.clear();
            }
        }
        self.output = lines;
    }

    /// Whether the time of a cancelled turn has run out since the last call. If treaper could not
    /// run then, neither could the server, so the time begins again.
    pub fn is_over(&mut self, now: Duration) -> bool {
        if self.deadline.is_some_and(|at| was_paused(at, now)) {
            self.deadline = Some(now + self.cancel_drain);
        }
        self.deadline.take_if(|at| now >= *at).is_some()
    }
}
