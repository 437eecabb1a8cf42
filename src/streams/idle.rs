//! `--idle`: whether the host has lately written something to stdin. treaper notices each write, and reads nothing.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::output::error::Error;
use crate::sys::fd::{self, Kind};
use crate::sys::poll::{HANG_UP, News};
use crate::sys::{Errno, clock};

/// The clock of `--idle`. Each write of the host restarts it.
#[derive(Debug)]
pub struct Idle {
    writes: News,
    time: Duration,
    /// When the time is over. `None`: the other end has hung up, so no process can write.
    due: Option<Duration>,
    /// Whether no stop has begun, and no drain.
    running: bool,
}

/// Prepares to notice writes to stdin.
///
/// # Errors
/// It is impossible for this kind of stdin.
pub fn open() -> Result<News, Error> {
    if fd::describe(fd::STDIN).0 == Kind::Other {
        return Err(Error::Misuse(
            "--idle or TREAPER_IDLE: stdin is not a pipe, FIFO, socket or terminal, so treaper cannot see what the host writes"
                .to_owned(),
        ));
    }
    let failed = |errno: Errno| Error::kernel("watch what is written to stdin", errno);
    News::and_data_of(fd::STDIN).map_err(failed)
}

impl Idle {
    /// Starts the clock.
    #[must_use]
    pub fn start(writes: News, time: Duration) -> Self {
        Self {
            writes,
            time,
            due: Some(clock::now() + time),
            running: true,
        }
    }

    /// The descriptor that can be read when something is new.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.writes.as_raw_fd()
    }

    /// Takes what is new on stdin. A write, or a new writer of a FIFO, restarts the clock. A hang-up stops it.
    pub fn look(&mut self) {
        let new = self.writes.take();
        if !new.is_empty() {
            self.due = (!new.intersects(HANG_UP)).then(|| clock::now() + self.time);
        }
    }

    /// The clock stands during a drain and a stop. If a drain ends without a stop, it restarts.
    pub fn set_running(&mut self, running: bool) {
        self.running = running;
        self.due = self.due.map(|_| clock::now() + self.time);
    }

    /// How long the host may still be silent. `None`: the clock stands.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let due = self.due.filter(|_| self.running)?;
        Some(due.saturating_sub(clock::now()))
    }

    /// Whether the host has written nothing for the whole time. If the pipe may be full, the host may be waiting to
    /// write, so the clock restarts.
    pub fn is_over(&mut self) -> bool {
        if self.left() != Some(Duration::ZERO) {
            return false;
        }
        // treaper itself may not have run for a while, as after a suspension of the machine.
        self.look();
        if self.left() != Some(Duration::ZERO) {
            return false;
        }
        if fd::may_be_full(fd::STDIN) {
            self.due = Some(clock::now() + self.time);
            return false;
        }
        true
    }
}
