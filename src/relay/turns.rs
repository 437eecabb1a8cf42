//! Which turns run, and the clock of one that was cancelled. Pure.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::Duration;

use crate::relay::scanner::Scanner;
use crate::settings::writers::Writers;

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
    host: Scanner,
    others: Scanner,
    output: Scanner,
    /// How many of the members that the scanners of input look for are of messages that begin a turn.
    begins: u64,
    /// The messages of stdin that matter, and where each ends in what was read last.
    unwritten: VecDeque<(usize, Message)>,
    running: Running,
    clock: Clock,
    cancel_drain: Duration,
}

impl Turns {
    #[must_use]
    pub fn new(settings: &Writers) -> Self {
        let wanted = [&settings.turns[..], &settings.cancels].concat();
        Self {
            is_followed: settings.follow_turns(),
            host: Scanner::new(wanted.clone()),
            others: Scanner::new(wanted),
            output: Scanner::new(settings.boundaries.clone()),
            begins: (1 << settings.turns.len()) - 1,
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

    fn message(scanner: &Scanner, begins: u64) -> Message {
        let found = scanner.found();
        Message {
            begins: found & begins != 0,
            id: scanner.id().filter(|_| found != 0).map(Box::from),
            cancels: found & !begins != 0,
        }
    }

    /// These bytes of stdin were read, and all before them are written.
    pub fn host_read(&mut self, bytes: &[u8], now: Duration) {
        self.unwritten.clear();
        let mut at = 0;
        while self.is_followed && at < bytes.len() {
            let (taken, has_ended) = self.host.take(&bytes[at..]);
            at += taken;
            let mut message = Self::message(&self.host, self.begins);
            if has_ended && message != Message::default() {
                self.cancel(&mut message, now);
                self.unwritten.push_back((at, message));
            }
        }
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
        if !self.is_followed || !self.others.take(bytes).1 {
            // The next message begins at the start of a line in any case: this one ends with a newline.
            return Message::default();
        }
        let mut message = Self::message(&self.others, self.begins);
        self.others.take(b"\n");
        self.cancel(&mut message, now);
        message
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
        let mut at = 0;
        while self.is_followed && at < bytes.len() {
            let (taken, has_ended) = self.output.take(&bytes[at..]);
            at += taken;
            if has_ended && self.ends_turn() && self.clock != Clock::Over {
                self.clock = Clock::Off;
            }
        }
    }

    /// Whether the message of the server that has just ended is the end of a turn, which then runs no more.
    fn ends_turn(&mut self) -> bool {
        match &mut self.running {
            Running::Count(count) if self.output.found() != 0 => {
                *count = count.saturating_sub(1);
                true
            }
            Running::Ids(ids) if self.output.is_answer() => {
                let id = self.output.id();
                let at = ids.iter().position(|known| Some(&known[..]) == id);
                at.map(|at| ids.swap_remove(at)).is_some()
            }
            Running::Count(_) | Running::Ids(_) => false,
        }
    }

    /// When the time of a cancelled turn is over.
    #[must_use]
    pub const fn due(&self) -> Option<Duration> {
        match self.clock {
            Clock::Until(at) => Some(at),
            Clock::Off | Clock::Over => None,
        }
    }

    /// Whether the time of a cancelled turn has run out since the last call.
    pub fn is_over(&mut self, now: Duration) -> bool {
        let is_over = self.due().is_some_and(|at| now >= at);
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
