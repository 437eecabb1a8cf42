//! Which turns run, and the clock of one that was cancelled. Pure.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::Duration;

use crate::relay::lines::Lines;
use crate::relay::members::{self, Members};
use crate::settings::writers::{Match, Writers};

/// How many turns are known at a time if the answer ends them. A message beyond that begins none, so that its cancel
/// stops no server.
pub const MAX_TURNS: usize = 1024;

/// What a message to the server does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    begins: bool,
    /// What its answer has, too.
    id: Option<Box<[u8]>>,
    /// It cancels the turn that runs, and has not done so yet.
    cancels: bool,
}

/// The time that a cancelled turn has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Off,
    Until(Duration),
    /// The time was over, which was reported. Or the tree is gone.
    Over,
}

/// The turns that run: those begun, without those ended.
#[derive(Debug)]
enum Running {
    /// With `--boundary`.
    Count(u64),
    /// The ids of the messages that have begun one.
    Ids(Vec<Box<[u8]>>),
}

/// Follows the messages to the server and from it.
#[derive(Debug)]
pub struct Turns {
    /// Without `--cancel` no message is looked at.
    is_followed: bool,
    /// The members of messages that begin a turn, and of those that cancel one.
    input: Vec<Match>,
    /// Those of the first kind, one bit each.
    begins: u64,
    /// The members of messages that end a turn.
    boundaries: Vec<Match>,
    host: Lines,
    output: Lines,
    /// The messages of stdin that matter, and where each ends in what was read last.
    unwritten: VecDeque<(usize, Message)>,
    running: Running,
    clock: Clock,
    cancel_drain: Duration,
}

impl Turns {
    #[must_use]
    pub fn new(settings: &Writers) -> Self {
        Self {
            is_followed: settings.follow_turns(),
            input: [&settings.turns[..], &settings.cancels].concat(),
            begins: (1 << settings.turns.len()) - 1,
            boundaries: settings.boundaries.clone(),
            host: Lines::default(),
            output: Lines::default(),
            unwritten: VecDeque::new(),
            running: if settings.boundaries.is_empty() {
                Running::Ids(Vec::new())
            } else {
                Running::Count(0)
            },
            clock: Clock::Off,
            cancel_drain: settings.cancel_drain,
        }
    }

    /// How many turns run.
    #[must_use]
    pub fn count(&self) -> u64 {
        match &self.running {
            Running::Count(count) => *count,
            Running::Ids(ids) => ids.len() as u64,
        }
    }

    /// A whole message was read that is to be written to the server.
    fn read(&mut self, line: &[u8], now: Duration) -> Message {
        let Some(Members { found, id, .. }) = members::read(line, &self.input) else {
            return Message::default();
        };
        let mut message = Message {
            begins: found & self.begins != 0,
            id: id.filter(|_| found != 0),
            cancels: found & !self.begins != 0,
        };
        self.cancel(&mut message, now);
        message
    }

    /// These bytes of stdin were read, and all before them are written.
    pub fn host_read(&mut self, bytes: &[u8], now: Duration) {
        self.unwritten.clear();
        if !self.is_followed {
            return;
        }
        let mut lines = std::mem::take(&mut self.host);
        lines.take(bytes, |line, end| {
            let message = self.read(line, now);
            if message.begins || message.cancels {
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

    /// A whole message of another writer was read.
    pub fn other_read(&mut self, bytes: &[u8], now: Duration) -> Message {
        if self.is_followed {
            self.read(bytes, now)
        } else {
            Message::default()
        }
    }

    /// A cancel that is complete starts the clock, also if the server reads nothing. The turn that it cancels may still be
    /// in front of it in the queue: then the clock starts when the cancel is written.
    fn cancel(&mut self, message: &mut Message, now: Duration) {
        if message.cancels && self.count() > 0 {
            message.cancels = false;
            if self.clock == Clock::Off {
                self.clock = Clock::Until(now + self.cancel_drain);
            }
        }
    }

    /// The message is written to the server.
    pub fn written(&mut self, mut message: Message, now: Duration) {
        self.cancel(&mut message, now);
        if !message.begins {
            return;
        }
        match &mut self.running {
            Running::Count(count) => *count += 1,
            Running::Ids(ids) => {
                let id = message.id.filter(|_| ids.len() < MAX_TURNS);
                ids.extend(id);
            }
        }
    }

    /// These bytes of the server's stdout were read.
    pub fn output_read(&mut self, bytes: &[u8]) {
        let mut lines = std::mem::take(&mut self.output);
        lines.take(bytes, |line, _| {
            let message = members::read(line, &self.boundaries);
            if message.is_some_and(|message| self.ends_turn(&message)) && self.clock != Clock::Over
            {
                self.clock = Clock::Off;
            }
        });
        self.output = lines;
    }

    /// Whether this message of the server is the end of a turn, which then runs no more.
    fn ends_turn(&mut self, message: &Members) -> bool {
        match &mut self.running {
            Running::Count(count) if message.found != 0 => {
                *count = count.saturating_sub(1);
                true
            }
            Running::Ids(ids) if message.is_answer => {
                let at = ids.iter().position(|id| Some(id) == message.id.as_ref());
                at.map(|at| ids.swap_remove(at)).is_some()
            }
            Running::Count(_) | Running::Ids(_) => false,
        }
    }

    /// When the time of a cancelled turn is over.
    #[must_use]
    pub const fn deadline(&self) -> Option<Duration> {
        match self.clock {
            Clock::Until(at) => Some(at),
            Clock::Off | Clock::Over => None,
        }
    }

    /// Whether the time of a cancelled turn has run out since the last call.
    pub fn is_over(&mut self, now: Duration) -> bool {
        let is_over = self.deadline().is_some_and(|at| now >= at);
        if is_over {
            self.clock = Clock::Over;
        }
        is_over
    }

    /// The tree is gone: no turn can end too late.
    pub fn stop(&mut self) {
        self.clock = Clock::Over;
    }
}
