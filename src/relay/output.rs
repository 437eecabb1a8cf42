//! The server's stdout: passed on to the host as it comes, and searched for the end of a turn.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::output::progress::Seconds;
use crate::relay::inbox::{Buffer, CHUNK};
use crate::relay::turns::Turns;
use crate::relay::wanted::{Awaited, Wanted};
use crate::sys::fd::Kind;
use crate::sys::pid::Pid;
use crate::sys::poll::Events;
use crate::sys::signal::{self, Signal};
use crate::sys::stream::Stream;
use crate::sys::wait::{Change, Ended};
use crate::sys::{Errno, clock, fd};

/// After a stop, the relay gives up if the host reads nothing of the last output of the tree for
/// this long.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Output {
    /// Until it has ended.
    from: Option<Stream>,
    /// Once the tree is gone: how much of it is to be read.
    left: Option<u64>,
    /// Once the tree is gone: when output was last passed on.
    pub since: Option<Duration>,
    /// The server was stopped, or its host wants the end: so a host that reads nothing is not
    /// waited for without a limit.
    pub is_limited: bool,
    /// `None`: nothing more can be written, or has to be.
    to: Option<Stream>,
    /// The process that copies from there to a stdout that cannot be written without waiting.
    courier: Option<Pid>,
    buffer: Buffer,
}

impl Output {
    pub fn new(from: Stream, to: Stream, courier: Option<Pid>) -> Self {
        Self {
            from: Some(from),
            to: Some(to),
            courier,
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.buffer.rest().is_empty()
    }

    /// Whether everything was passed on.
    pub const fn is_over(&self) -> bool {
        self.to.is_none() && self.courier.is_none()
    }

    pub fn list(&self, wanted: &mut Wanted) {
        if let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) {
            wanted.add(Awaited::Output, from, Events::IN);
        }
        if let Some(to) = &self.to {
            if !self.is_empty() {
                wanted.add(Awaited::HostOutput, to, Events::OUT);
            } else if to.kind() == Kind::Pipe && !to.is_fifo() {
                // A pipe without a reader reports an error. Another reader can open a FIFO.
                wanted.add(Awaited::HostOutput, to, Events::empty());
            }
        }
    }

    /// When to look again though poll reports nothing.
    pub fn deadline(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.is_limited)?;
        Some(since + FLUSH_PATIENCE)
    }

    /// The tree is gone, and what it has written is there by now. Only that is passed on: a process
    /// outside of the tree may hold this stream, too, and write to it without end.
    pub fn finish(&mut self, turns: &mut Turns, now: Duration) {
        self.since = Some(now);
        let from = self.from.as_ref();
        self.left = from.map(|from| fd::unread(from.as_raw_fd()));
        self.read(turns);
    }

    /// Gives up if the host has read nothing of the last output for too long.
    pub fn check_finish(&mut self, now: Duration) {
        if !self.is_over() && self.deadline().is_some_and(|at| now >= at) {
            log::warn!(
                "the end of the server's output is lost: the host has read nothing for {}",
                Seconds(FLUSH_PATIENCE)
            );
            self.leave();
            // It ends with the relay.
            self.courier = None;
        }
    }

    /// Reads what is there, and passes on what fits.
    pub fn read(&mut self, turns: &mut Turns) {
        while let Some(from) = self.from.as_ref().filter(|_| self.is_empty()) {
            let most = self.left.map_or(CHUNK, |left| left as usize);
            let result = self.buffer.fill(most, |bytes| from.read(bytes));
            let count = self.buffer.rest().len() as u64;
            self.left = self.left.map(|left| left - count);
            match result {
                Ok(1..) => {}
                Err(Errno::AGAIN) if self.left.is_none() => return,
                Err(Errno::INTR) => return,
                Ok(0) | Err(_) => {
                    // The last line counts also without a newline.
                    turns.output_read(b"\n");
                    self.from = None;
                    self.end_if_empty();
                    return;
                }
            }
            turns.output_read(self.buffer.rest());
            self.write();
            if self.left.is_none() {
                return;
            }
        }
    }

    /// stdout of treaper has room, or its reader is gone.
    pub fn host_reported(&mut self, has_hung_up: bool, turns: &mut Turns) {
        // While there is something to write, the write says whether the host still reads: an error
        // in the queue of a socket is none.
        if has_hung_up && self.is_empty() {
            return self.leave();
        }
        self.write();
        if self.left.is_some() {
            self.read(turns);
        }
    }

    /// Passes on what fits.
    fn write(&mut self) {
        let Some(to) = self.to.as_ref().filter(|_| !self.is_empty()) else {
            return;
        };
        match to.write(self.buffer.rest()) {
            Ok(count) => {
                self.buffer.written(count);
                self.since = self.since.map(|_| clock::now());
                self.end_if_empty();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.leave(),
        }
    }

    /// If everything was passed on: the end for stdout. A courier ends when it has written
    /// everything.
    fn end_if_empty(&mut self) {
        if self.from.is_none() && self.is_empty() {
            self.to = None;
        }
    }

    /// Something has happened to the child `pid` of the relay.
    pub fn courier_changed(&mut self, pid: i32, change: Change) {
        let Some(courier) = self.courier.filter(|courier| courier.get() == pid) else {
            return;
        };
        match change {
            Change::Suspended(_) => drop(signal::kill(courier, Signal::CONT)),
            Change::Ended(ended) => {
                self.courier = None;
                if matches!(ended, Ended::Killed(_)) {
                    log::warn!("the server's output is lost: the process that writes it {ended}");
                }
                self.leave();
            }
            Change::Trapped | Change::Resumed => {}
        }
    }

    /// The host reads no more. The server's next write fails, as it would without treaper.
    fn leave(&mut self) {
        (self.from, self.to) = (None, None);
        self.buffer.written(self.buffer.rest().len());
    }
}
