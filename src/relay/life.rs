//! The relay process: one loop over stdin, the other writers, the server, and treaper itself.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::relay::child::{Child, ChildNews};
use crate::relay::input::{Input, NO_READER};
use crate::relay::output::Output;
use crate::relay::turns::Turns;
use crate::relay::wanted::{Awaited, Wanted};
use crate::streams::watch::RETRY;
use crate::sys::arrival;
use crate::sys::poll::Events;
use crate::sys::wait::Ended;
use crate::sys::{Errno, clock, stream};

pub struct Relay {
    pub input: Input,
    pub output: Option<Output>,
    pub turns: Turns,
    /// For how long the host may be silent, until its silence was reported, or treaper stops.
    pub idle: Option<Duration>,
    pub signals: OwnedFd,
    pub child: Child,
    /// To treaper, which it tells of triggers. It hangs up when no process of treaper is left.
    pub line: Option<OwnedFd>,
    /// The tree is gone.
    pub is_finishing: bool,
}

impl Relay {
    /// Runs until treaper has ended, and what the server has written last was passed on. Returns
    /// how treaper has ended.
    pub fn run(&mut self) -> Result<Ended, Errno> {
        let mut wanted = Wanted::default();
        loop {
            if let Some(ended) = self.child.ended {
                self.idle = None;
                self.finish(ended);
                if self.is_finishing && self.output.as_ref().is_none_or(Output::is_over) {
                    return Ok(ended);
                }
            }
            let now = clock::now();
            self.list(&mut wanted, now);
            let timeout = self.deadline(now).map(|at| at.saturating_sub(now));
            match wanted.wait(timeout) {
                Ok(()) => self.handle(&wanted)?,
                // A limit of memory, or of descriptors (`prlimit`), can be raised again.
                Err(Errno::NOMEM | Errno::INVAL) => self.take_signals(RETRY)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// What to wait for, in the order in which it is handled: a boundary in the server's output is
    /// older than a message that arrives now, and all that was there before the end of the tree is
    /// to be seen.
    fn list(&self, wanted: &mut Wanted, now: Duration) {
        wanted.clear();
        if let Some(output) = &self.output {
            output.list(wanted);
        }
        self.input.list(wanted, now);
        if let Some(line) = &self.line {
            wanted.add(Awaited::Line, line, Events::IN);
        }
        wanted.add(Awaited::Signals, &self.signals, Events::IN);
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        let flush = self.output.as_ref().and_then(Output::deadline);
        let all = [
            self.turns.deadline,
            flush,
            self.input.deadline(now),
            self.idle_at(),
        ];
        all.into_iter().flatten().min()
    }

    /// When the host has been silent for too long. `None`: its silence means nothing now, as while
    /// a turn runs.
    fn idle_at(&self) -> Option<Duration> {
        let silent = self
            .input
            .silent_since()
            .filter(|_| !self.turns.may_run())?;
        silent.checked_add(self.idle?)
    }

    fn handle(&mut self, wanted: &Wanted) -> Result<(), Errno> {
        let now = clock::now();
        for (what, has_hung_up) in wanted.reported() {
            match (what, &mut self.output) {
                (Awaited::Output, Some(output)) => {
                    // Its end is in this output, if it ends.
                    if self.turns.may_run() {
                        self.input.last = now;
                    }
                    output.read(&mut self.turns);
                }
                (Awaited::HostOutput, Some(output)) => {
                    output.host_reported(has_hung_up, &mut self.turns);
                }
                (Awaited::Host, _) => self.input.read_host(&mut self.turns),
                (Awaited::Fifo, _) => self.input.resume(),
                (Awaited::Other(place), _) => self.input.others.read(place, &mut self.turns),
                (Awaited::Listener(at), _) => self.input.others.accept(at, now),
                (Awaited::Server, _) if has_hung_up => self.input.leave(NO_READER),
                (Awaited::Line, _) => self.read_line(now),
                (Awaited::Signals, _) => self.take_signals(Duration::ZERO)?,
                _ => {}
            }
        }
        while self.input.write_some(&mut self.turns) {}
        if self.turns.is_over(now) {
            self.report(Trigger::CancelTimeout);
        }
        if self.idle_at().is_some_and(|at| at <= now) {
            self.idle = None;
            self.report(Trigger::Idle);
        }
        if let Some(output) = &mut self.output {
            output.check_finish(now);
        }
        Ok(())
    }

    fn report(&self, trigger: Trigger) {
        if let Some(line) = &self.line {
            stream::send(line.as_fd(), &[trigger as u8]);
        }
    }

    /// A byte says that treaper stops the server.
    fn read_line(&mut self, now: Duration) {
        let line = self.line.as_ref().map(OwnedFd::as_fd);
        match line.map(stream::receive) {
            Some(Ok(Some(_))) => {
                self.idle = None;
                self.limit_output(now);
            }
            Some(Err(Errno::AGAIN | Errno::INTR)) => {}
            _ => self.line = None,
        }
    }

    /// From now on the relay no longer waits for a host that reads nothing.
    fn limit_output(&mut self, now: Duration) {
        if let Some(output) = &mut self.output {
            output.is_limited = true;
            output.since = output.since.map(|_| now);
        }
    }

    /// Takes all signals that have arrived, and waits for the first one.
    fn take_signals(&mut self, mut time: Duration) -> Result<(), Errno> {
        while let Some(arrival) = arrival::wait_any(Some(time))? {
            time = Duration::ZERO;
            match self.child.handle(&arrival) {
                Some(ChildNews::HostGone) => self.report(Trigger::ParentExit),
                Some(ChildNews::EndAsked) if self.is_finishing => self.limit_output(clock::now()),
                _ => {}
            }
            while let Some((pid, change)) = self.child.look() {
                if let Some(output) = &mut self.output {
                    output.courier_changed(pid, change);
                }
            }
        }
        Ok(())
    }

    /// Treaper has ended. If it was killed, its monitor first stops the tree.
    fn finish(&mut self, ended: Ended) {
        let is_last = matches!(ended, Ended::Exited(_)) || self.line.is_none();
        if !is_last || std::mem::replace(&mut self.is_finishing, true) {
            return;
        }
        self.turns.deadline = None;
        self.input.leave(NO_READER);
        if let Some(output) = &mut self.output {
            output.finish(&mut self.turns, clock::now());
        }
    }
}
