//! The relay process: one loop over stdin, the other writers, and the server.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::relay::input::{Input, NO_READER};
use crate::relay::output::Output;
use crate::relay::turns::Turns;
use crate::relay::wanted::{Polled, Wanted};
use crate::relay::words::Words;
use crate::sys::poll::Events;
use crate::sys::{Errno, clock, stream};

pub struct Relay {
    pub input: Input,
    pub output: Option<Output>,
    pub turns: Turns,
    /// To the pair. It hangs up when neither process of the pair is left, or when they say that the
    /// tree is gone.
    pub line: OwnedFd,
    /// The tree is gone.
    pub is_finishing: bool,
    pub words: Words,
}

impl Relay {
    /// Runs until there is nothing more to do.
    pub fn run(&mut self) -> Result<(), Errno> {
        let mut wanted = Wanted::default();
        while !self.is_over() {
            let now = clock::now();
            self.list(&mut wanted, now);
            let timeout = self.deadline(now).map(|at| at.saturating_sub(now));
            match wanted.wait(timeout) {
                Ok(()) | Err(Errno::INTR | Errno::NOMEM) => {}
                failed => return failed,
            }
            self.handle(&wanted);
        }
        self.words.done.set(true);
        Ok(())
    }

    fn is_over(&self) -> bool {
        // With both closed, a cancelled turn can still run.
        self.input.is_over() && self.output.is_none() && self.turns.deadline.is_none()
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
        if !self.is_finishing {
            wanted.add(Polled::Line, &self.line, Events::RDHUP);
        }
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        let flush = self.output.as_ref().and_then(|output| output.deadline(now));
        let all = [self.turns.deadline, flush, self.input.deadline(now)];
        all.into_iter().flatten().min()
    }

    /// What poll has reported.
    fn handle(&mut self, wanted: &Wanted) {
        let now = clock::now();
        for (what, has_hung_up) in wanted.reported() {
            match (what, &mut self.output) {
                (Polled::Output, Some(output)) => output.read(&mut self.turns),
                (Polled::HostOutput, Some(output)) => {
                    output.host_reported(has_hung_up, &mut self.turns);
                }
                (Polled::Host, _) => self.input.read_host(&mut self.turns),
                (Polled::Other(place), _) => self.input.others.read(place, &mut self.turns),
                (Polled::Listener(at), _) => self.input.others.accept(at, now),
                (Polled::Server, _) if has_hung_up => self.input.leave(NO_READER),
                (Polled::Line, _) if has_hung_up => self.finish(now),
                _ => {}
            }
        }
        self.input.pump(&mut self.turns);
        self.input.check_end(now);
        if self.turns.is_over(now) {
            self.words.timed_out.set(true);
            stream::send(self.line.as_fd(), b"!");
        }
        if let Some(output) = &mut self.output {
            output.check_finish(now);
        }
        self.output.take_if(|output| output.is_over());
    }

    /// The tree is gone. The relay passes on what the tree has written, and waits for nothing else.
    fn finish(&mut self, now: Duration) {
        self.is_finishing = true;
        self.turns.deadline = None;
        self.input.leave(NO_READER);
        if let Some(output) = &mut self.output {
            output.finish(&mut self.turns, now);
        }
    }
}
