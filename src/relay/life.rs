//! The loop of the relay: over stdin, the other writers, the server, and treaper itself.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::relay::child::Child;
use crate::relay::input::{Input, NO_READER};
use crate::relay::output::Output;
use crate::relay::turns::Turns;
use crate::streams::{idle, watch::RETRY};
use crate::sys::poll::{self, Events, HANG_UP, Polled};
use crate::sys::{Errno, arrival, clock, stream, wait};

#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    Signals,
    Line,
    Stdin,
    Stdout,
    ServerStdin,
    ServerStdout,
    Listener(usize),
    Connection(usize),
}

/// What poll is to wait for, and what it has reported.
#[derive(Debug, Default)]
pub struct Wanted {
    what: Vec<Awaited>,
    polled: Vec<Polled>,
}

impl Wanted {
    /// Errors and hang-ups are reported also if they are not among the `events`.
    pub fn add(&mut self, what: Awaited, fd: Option<&impl AsRawFd>, events: Events) {
        if let Some(fd) = fd {
            self.what.push(what);
            self.polled.push(Polled::new(fd.as_raw_fd(), events));
        }
    }
}

pub struct Relay {
    pub input: Input,
    pub output: Output,
    pub turns: Turns,
    /// For how long the host may be silent, until its silence was reported, or treaper stops.
    pub idle: Option<Duration>,
    pub signals: OwnedFd,
    pub child: Child,
    /// To treaper, which it tells of triggers. It hangs up when no process of treaper is left.
    pub line: Option<OwnedFd>,
}

impl Relay {
    /// Until treaper has ended and all output was passed on. Returns how treaper has ended.
    pub fn run(&mut self) -> Result<wait::Ended, Errno> {
        let mut wanted = Wanted::default();
        loop {
            if let Some(ended) = self.child.ended {
                self.idle = None;
                // If treaper was killed, its monitor first stops the tree.
                let is_last = matches!(ended, wait::Ended::Exited(_)) || self.line.is_none();
                if is_last && self.output.since.is_none() {
                    self.turns.deadline = None;
                    self.input.leave(NO_READER);
                    self.output.finish(&mut self.turns, clock::now());
                }
                if self.output.since.is_some() && self.output.is_over() {
                    return Ok(ended);
                }
            }
            let now = clock::now();
            self.list(&mut wanted, now);
            let timeout = self.deadline(now).map(|at| at.saturating_sub(now));
            match poll::poll(&mut wanted.polled, timeout) {
                Ok(_) => self.handle(&wanted)?,
                // A limit of memory, or of descriptors (`prlimit`), can be raised again.
                Err(Errno::NOMEM | Errno::INVAL) => self.take_signals(RETRY)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// In the order in which it is handled: a boundary in the server's output is older than a
    /// message that arrives now, and all that was there before the end of the tree is to be seen.
    fn list(&self, wanted: &mut Wanted, now: Duration) {
        wanted.what.clear();
        wanted.polled.clear();
        self.output.list(wanted);
        self.input.list(wanted, now);
        wanted.add(Awaited::Line, self.line.as_ref(), Events::IN);
        wanted.add(Awaited::Signals, Some(&self.signals), Events::IN);
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        let (flush, accept) = (self.output.deadline(), self.input.others.deadline(now));
        let all = [self.turns.deadline, self.idle_at(), flush, accept];
        all.into_iter().flatten().min()
    }

    /// When the host has been silent for too long. While a turn runs its silence means nothing.
    fn idle_at(&self) -> Option<Duration> {
        let idle = self.idle.filter(|_| !self.turns.may_run())?;
        self.input.silent_since()?.checked_add(idle)
    }

    fn handle(&mut self, wanted: &Wanted) -> Result<(), Errno> {
        let now = clock::now();
        for (what, polled) in wanted.what.iter().zip(&wanted.polled) {
            let reported = polled.reported();
            let has_hung_up = reported.intersects(HANG_UP | Events::ERR | Events::NVAL);
            match *what {
                _ if reported.is_empty() => {}
                Awaited::ServerStdout => {
                    // Its end is in this output, if it ends.
                    if self.turns.may_run() {
                        self.input.last = now;
                    }
                    self.output.read(&mut self.turns);
                }
                Awaited::Stdout => self.output.host_reported(has_hung_up, &mut self.turns),
                Awaited::Stdin => self.input.read_host(&mut self.turns),
                Awaited::Connection(place) => self.input.others.read(place, &mut self.turns),
                Awaited::Listener(at) => self.input.others.accept(at, now, self.child.pid),
                Awaited::ServerStdin if has_hung_up => self.input.leave(NO_READER),
                Awaited::ServerStdin => {}
                Awaited::Line => self.read_line(now),
                Awaited::Signals => self.take_signals(Duration::ZERO)?,
            }
        }
        while self.input.write_some(&mut self.turns) {}
        if self.turns.is_over(now) {
            self.report(Trigger::CancelTimeout);
        }
        match self.idle_at() {
            Some(at) if idle::was_paused(at, now) => self.input.last = now,
            Some(at) if at <= now => {
                self.idle = None;
                self.report(Trigger::Idle);
            }
            _ => {}
        }
        self.output.check_finish(now);
        Ok(())
    }

    fn report(&self, trigger: Trigger) {
        if let Some(line) = &self.line {
            stream::send(line.as_fd(), &[trigger as u8]);
        }
    }

    fn read_line(&mut self, now: Duration) {
        let Some(line) = &self.line else { return };
        match stream::receive(line.as_fd()) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(Some(b'.') | None) | Err(_) => self.line = None,
            Ok(Some(_)) => {
                self.idle = None;
                self.output.limit(now);
            }
        }
    }

    /// Takes signals that have arrived, and waits for the first one; some, as they may never end.
    fn take_signals(&mut self, mut time: Duration) -> Result<(), Errno> {
        for _ in 0..100 {
            let arrival = arrival::wait_any(Some(time))?;
            let Some(arrival) = arrival else { break };
            time = Duration::ZERO;
            if self.child.loses_host() {
                self.report(Trigger::ParentExit);
                self.output.limit(clock::now());
            } else if self.child.handle(&arrival) && self.output.since.is_some() {
                self.output.limit(clock::now());
            }
            while let Some((pid, change)) = self.child.look() {
                self.output.courier_changed(pid, change);
            }
        }
        Ok(())
    }
}
