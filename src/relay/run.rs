//! The relay process: one loop over stdin, the other writers, and the server.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::output::error;
use crate::output::progress::Seconds;
use crate::relay::input::Inputs;
use crate::relay::others::Input;
use crate::relay::output::Way;
use crate::relay::words::Words;
use crate::settings::writers::Writers;
use crate::sys::poll::{self, Events, HANG_UP};
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, clock};

/// The relay gives up if the host reads nothing of the last output of the tree for this long.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// The streams of the relay, and what it shares with the pair.
#[derive(Debug)]
pub struct Ends {
    /// The stdin of treaper, and that of the server.
    pub input: (Stream, Stream),
    /// The stdout of the server, and that of treaper.
    pub output: Option<(Stream, Stream)>,
    pub others: Vec<Input>,
    /// To the pair. It hangs up when neither process of the pair is left, or when they say that the tree is gone.
    pub line: OwnedFd,
    pub words: Words,
}

/// What a polled descriptor is.
#[derive(Clone, Copy, Debug)]
pub enum Polled {
    Line,
    /// The stdin of treaper.
    Host,
    /// That of the server.
    Sink,
    /// The stdout of the server.
    From,
    /// That of treaper.
    To,
    /// A source that listens.
    Input(usize),
    Writer(usize),
}

/// What poll is to wait for.
#[derive(Debug, Default)]
pub struct Wanted {
    what: Vec<Polled>,
    fds: Vec<poll::Polled>,
}

impl Wanted {
    pub fn add(&mut self, what: Polled, fd: i32, events: Events) {
        self.what.push(what);
        self.fds.push(poll::Polled::new(fd, events));
    }
}

/// The time that a cancelled turn has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Off,
    Until(Duration),
    /// The time was over, and that was reported. Or the tree is gone.
    Over,
}

struct Relay<'a> {
    settings: &'a Writers,
    inputs: Inputs<'a>,
    way: Option<Way>,
    clock: Clock,
    /// If the tree is gone: when output was last passed on.
    finishing: Option<Duration>,
    line: OwnedFd,
    words: Words,
}

/// Runs until there is nothing more to do. `drain`: how long the server may take nothing of its last input.
/// False: something has failed.
#[must_use]
pub fn run(ends: Ends, settings: &Writers, drain: Duration) -> bool {
    let words = ends.words;
    let mut relay = Relay {
        settings,
        inputs: Inputs::new(settings, drain, ends.input, ends.others, words),
        way: ends.output.map(|output| Way::new(settings, output, words)),
        clock: Clock::Off,
        finishing: None,
        line: ends.line,
        words,
    };
    let mut wanted = Wanted::default();
    while !relay.is_over() {
        relay.list(&mut wanted);
        let timeout = relay.due().map(|at| at.saturating_sub(clock::now()));
        match poll::poll(&mut wanted.fds, timeout) {
            Ok(_) | Err(Errno::INTR | Errno::NOMEM) => {}
            Err(errno) => {
                log::error!("the relay cannot poll: {}", error::describe(errno));
                return false;
            }
        }
        relay.handle(&wanted);
    }
    words.set_done();
    true
}

impl Relay<'_> {
    fn is_over(&self) -> bool {
        // With both closed, a cancelled turn can still run.
        self.inputs.is_over() && self.way.is_none() && !matches!(self.clock, Clock::Until(_))
    }

    fn list(&self, wanted: &mut Wanted) {
        wanted.what.clear();
        wanted.fds.clear();
        if self.finishing.is_none() {
            wanted.add(Polled::Line, self.line.as_raw_fd(), Events::RDHUP);
        }
        self.inputs.list(wanted);
        if let Some(way) = &self.way {
            way.list(wanted);
        }
    }

    fn due(&self) -> Option<Duration> {
        let clock = match self.clock {
            Clock::Until(at) => Some(at),
            Clock::Off | Clock::Over => None,
        };
        let flush = self.finishing.map(|since| since + FLUSH_PATIENCE);
        [clock, flush, self.inputs.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What poll has reported. The server's output first: a boundary in it is older than a message that arrives now.
    fn handle(&mut self, wanted: &Wanted) {
        let reported = || {
            let all = wanted.what.iter().zip(&wanted.fds);
            all.filter(|(_, fd)| !fd.reported().is_empty())
        };
        for (what, fd) in reported() {
            let hung_up = fd
                .reported()
                .intersects(HANG_UP | Events::ERR | Events::NVAL);
            match what {
                Polled::From => self.read_output(),
                Polled::To => self.write_output(hung_up),
                _ => {}
            }
        }
        let now = clock::now();
        for (what, fd) in reported() {
            let hung_up = fd
                .reported()
                .intersects(HANG_UP | Events::ERR | Events::NVAL);
            match what {
                Polled::Line if hung_up => self.finish(now),
                Polled::Line | Polled::From | Polled::To => {}
                Polled::Host => self.inputs.read_host(),
                Polled::Sink => self.inputs.check_sink(hung_up),
                Polled::Input(at) => self.inputs.accept(*at, now),
                Polled::Writer(place) => self.inputs.read_writer(*place),
            }
        }
        self.begin_clock(now);
        self.inputs.pump();
        // The message behind one that was just written may cancel, too.
        self.begin_clock(now);
        self.inputs.check_times(now);
        self.check_clock(now);
        self.check_finish(now);
        self.way.take_if(|way| way.is_over());
    }

    fn read_output(&mut self) {
        let Some(way) = &mut self.way else { return };
        if way.read() > 0 {
            self.inputs.turn_ended();
            if self.clock != Clock::Over {
                self.clock = Clock::Off;
            }
        }
    }

    fn write_output(&mut self, hung_up: bool) {
        let Some(way) = &mut self.way else { return };
        // While there is something to write, the write says whether the host still reads: an error in the queue of a
        // socket is none.
        if hung_up && way.is_empty() {
            way.leave();
        } else if way.write() && self.finishing.is_some() {
            self.finishing = Some(clock::now());
        }
    }

    /// Starts the clock if a message that cancels has arrived, and a turn runs.
    fn begin_clock(&mut self, now: Duration) {
        let cancelled = self.inputs.take_cancel();
        if cancelled && self.inputs.turn_runs() && self.clock == Clock::Off {
            self.clock = Clock::Until(now + self.settings.cancel_drain);
        }
    }

    fn check_clock(&mut self, now: Duration) {
        if matches!(self.clock, Clock::Until(at) if now >= at) {
            self.clock = Clock::Over;
            self.words.set_timed_out();
            stream::send(self.line.as_fd(), b"!");
        }
    }

    /// The tree is gone. The relay passes on what the tree has written, and waits for nothing else.
    fn finish(&mut self, now: Duration) {
        if self.finishing.is_none() {
            self.finishing = Some(now);
            self.clock = Clock::Over;
            self.inputs.leave("the tree is gone");
            if let Some(way) = &mut self.way {
                way.finish();
            }
        }
    }

    fn check_finish(&mut self, now: Duration) {
        let Some(since) = self.finishing else { return };
        // Everything that the tree has written is there by now.
        while self.way.as_ref().is_some_and(Way::can_read) {
            self.read_output();
        }
        if let Some(way) = &mut self.way
            && now >= since + FLUSH_PATIENCE
            && !way.is_over()
        {
            log::warn!(
                "the end of the server's output is lost: the host has read nothing for {}",
                Seconds(FLUSH_PATIENCE)
            );
            way.leave();
        }
    }
}
