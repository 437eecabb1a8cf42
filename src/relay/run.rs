//! The relay process: one loop over stdin, the other writers, and the server.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::output::error;
use crate::output::progress::Seconds;
use crate::relay::connections::Connections;
use crate::relay::courier::HostStream;
use crate::relay::input::{Input, NO_READER};
use crate::relay::output::Output;
use crate::relay::turns::Turns;
use crate::relay::wanted::{Polled, Wanted};
use crate::relay::words::Words;
use crate::settings::writers::Writers;
use crate::sys::poll::Events;
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, clock};

/// The relay gives up if the host reads nothing of the last output of the tree for this long.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at what a courier has passed on of it.
const FLUSH_LOOK: Duration = Duration::from_millis(500);

/// The streams of the relay, and what it shares with the pair.
#[derive(Debug)]
pub struct Ends {
    /// The stdin of treaper, and that of the server.
    pub input: (HostStream, Stream),
    /// The stdout of the server, and that of treaper.
    pub output: Option<(Stream, HostStream)>,
    pub others: Connections,
    /// To the pair. It hangs up when neither process of the pair is left, or when they say that the tree is gone.
    pub line: OwnedFd,
    pub words: Words,
}

impl Ends {
    /// Says which processes are couriers.
    pub fn name_couriers(&self) {
        let hosts = [
            Some(&self.input.0),
            self.output.as_ref().map(|(_, host)| host),
        ];
        for (host, word) in hosts.into_iter().flatten().zip(self.words.couriers.0) {
            let pid = host.courier.as_ref().map_or(0, |courier| courier.0.get());
            word.store(pid as u64, Relaxed);
        }
    }

    /// Their numbers.
    pub fn descriptors(&self) -> Vec<i32> {
        let mut all = self.others.descriptors();
        all.extend([&self.input.0.stream, &self.input.1].map(AsRawFd::as_raw_fd));
        all.push(self.line.as_raw_fd());
        if let Some((from, to)) = &self.output {
            all.extend([from.as_raw_fd(), to.stream.as_raw_fd()]);
        }
        all
    }
}

struct Relay {
    input: Input,
    output: Option<Output>,
    turns: Turns,
    /// If the tree is gone: when output was last passed on.
    finishing: Option<Duration>,
    /// How many bytes of output were passed on at the last look.
    passed: u64,
    line: OwnedFd,
    words: Words,
}

/// Runs until there is nothing more to do. `drain`: how long the server may take nothing of its last input.
/// False: something has failed.
#[must_use]
pub fn run(ends: Ends, settings: &Writers, drain: Duration) -> bool {
    let words = ends.words;
    let mut relay = Relay {
        input: Input::new(drain, ends.input, ends.others, words),
        output: ends.output.map(|output| Output::new(output, words)),
        turns: Turns::new(settings),
        finishing: None,
        passed: 0,
        line: ends.line,
        words,
    };
    let mut wanted = Wanted::default();
    while !relay.is_over() {
        relay.list(&mut wanted);
        let timeout = relay.deadline().map(|at| at.saturating_sub(clock::now()));
        match wanted.wait(timeout) {
            Ok(()) | Err(Errno::INTR | Errno::NOMEM) => {}
            Err(errno) => {
                log::error!("the relay cannot poll: {}", error::describe(errno));
                return false;
            }
        }
        relay.handle(&wanted);
    }
    words.done.set(true);
    true
}

impl Relay {
    fn is_over(&self) -> bool {
        // With both closed, a cancelled turn can still run.
        self.input.is_over() && self.output.is_none() && self.turns.deadline().is_none()
    }

    fn list(&self, wanted: &mut Wanted) {
        wanted.clear();
        self.input.list(wanted);
        if let Some(output) = &self.output {
            output.list(wanted);
        }
        // The last one, since all that was there before the end of the tree is to be seen.
        if self.finishing.is_none() {
            wanted.add(Polled::Line, &self.line, Events::RDHUP);
        }
    }

    fn deadline(&self) -> Option<Duration> {
        // Progress of a courier does not wake the relay.
        let flush = self
            .finishing
            .map(|since| (since + FLUSH_PATIENCE).min(clock::now() + FLUSH_LOOK));
        let all = [self.turns.deadline(), flush, self.input.deadline()];
        all.into_iter().flatten().min()
    }

    /// What poll has reported. The server's output first: a boundary in it is older than a message that arrives now.
    fn handle(&mut self, wanted: &Wanted) {
        for (what, has_hung_up) in wanted.reported() {
            let Some(output) = &mut self.output else {
                break;
            };
            match what {
                Polled::Output => output.read(&mut self.turns),
                Polled::HostOutput => output.host_reported(has_hung_up, &mut self.turns),
                _ => {}
            }
        }
        let now = clock::now();
        for (what, has_hung_up) in wanted.reported() {
            match what {
                Polled::Line if has_hung_up => self.finish(now),
                Polled::Host => self.input.read_host(&mut self.turns),
                Polled::Server if has_hung_up => self.input.leave(NO_READER),
                Polled::Listener(at) => self.input.others.accept(at, now),
                Polled::Other(place) => self.input.others.read(place, &mut self.turns),
                Polled::Line | Polled::Server | Polled::Output | Polled::HostOutput => {}
            }
        }
        self.input.pump(&mut self.turns);
        self.input.check_times(now);
        if self.turns.is_over(now) {
            self.words.timed_out.set(true);
            stream::send(self.line.as_fd(), b"!");
        }
        self.check_finish(now);
        self.output.take_if(|output| output.is_over());
    }

    /// The tree is gone. The relay passes on what the tree has written, and waits for nothing else.
    fn finish(&mut self, now: Duration) {
        self.finishing = Some(now);
        self.turns.stop();
        self.input.leave(NO_READER);
        if let Some(output) = &mut self.output {
            output.finish(&mut self.turns);
        }
    }

    fn check_finish(&mut self, now: Duration) {
        let passed = self.words.passed.get();
        if std::mem::replace(&mut self.passed, passed) != passed {
            self.finishing = self.finishing.map(|_| now);
        }
        let is_late = |since| now >= since + FLUSH_PATIENCE;
        let Some(output) = self.output.as_mut().filter(|output| !output.is_over()) else {
            return;
        };
        if self.finishing.is_some_and(is_late) {
            log::warn!(
                "the end of the server's output is lost: the host has read nothing for {}",
                Seconds(FLUSH_PATIENCE)
            );
            output.leave();
        }
    }
}
