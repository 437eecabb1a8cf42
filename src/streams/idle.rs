//! `--idle`: the clock that each write to the server's stdin restarts. treaper reads nothing of it.

use std::time::Duration;

use crate::output::error::Error;
use crate::sys::fd::{self, Kind};
use crate::sys::poll::{self, WatchFlags, Writes};
use crate::sys::{Errno, clock};

pub struct Idle {
    pub writes: Writes,
    /// Without end after a complete input.
    time: Duration,
    /// `None`: no process can write.
    ends_at: Option<Duration>,
    /// Neither a stop nor a drain has begun.
    running: bool,
}

/// Notices writes to stdin. Fails if its kind makes that impossible, or the kernel does.
pub fn start(time: Duration) -> Result<Idle, Error> {
    const OPTION: &str = "--idle or TREAPER_IDLE";
    if fd::kind(fd::STDIN) == Kind::Other {
        let why = "stdin is not a pipe, FIFO, socket or terminal, so treaper cannot notice what is written to it";
        return Err(Error::new(format!("{OPTION}: {why}")));
    }
    let writes = Writes::watch(fd::STDIN, WatchFlags::MODIFY).map_err(|errno| {
        let failed = Error::kernel("notice what is written to stdin", errno);
        let hint = match errno {
            Errno::MFILE => " (or too many instances of inotify: fs.inotify.max_user_instances)",
            Errno::ACCESS => " (another user has made this pipe or terminal)",
            Errno::NOENT => " (is /proc mounted?)",
            _ => "",
        };
        Error::new(format!("{OPTION}: {failed}{hint}"))
    })?;
    Ok(Idle {
        writes,
        time,
        ends_at: Some(clock::now() + time),
        running: true,
    })
}

/// Whether treaper was suspended or frozen at this time and for seconds after it (`docker pause`).
/// The host could not use the server then. A busy machine does not delay a process for so long.
pub fn was_paused(time: Duration, now: Duration) -> bool {
    now.saturating_sub(time) > Duration::from_secs(5)
}

impl Idle {
    pub fn take_writes(&mut self) {
        if self.writes.take() {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.ends_at = clock::now().checked_add(self.time);
    }

    /// The clock stands during a drain and a stop. If a drain ends without a stop, it restarts.
    pub fn set_running(&mut self, running: bool) {
        self.running = running;
        self.ends_at = self.ends_at.map(|_| clock::now() + self.time);
    }

    /// The input is complete. A write that is reported now or later does not start the clock again.
    pub fn stand_still(&mut self) {
        (self.time, self.ends_at) = (Duration::MAX, None);
    }

    /// When the time is over. `None`: the clock stands.
    pub fn ends_at(&self) -> Option<Duration> {
        self.ends_at.filter(|_| self.running)
    }

    /// Whether nothing was written for the whole time.
    pub fn is_over(&mut self) -> bool {
        let is_due = |idle: &Self| idle.ends_at().is_some_and(|at| at <= clock::now());
        if !is_due(self) {
            return false;
        }
        // treaper itself may not have run for a while.
        let was_paused = self.ends_at.is_some_and(|at| was_paused(at, clock::now()));
        if was_paused || self.writes.take() || self.writes.may_be_going_on() {
            self.restart();
        }
        if poll::has_hung_up(fd::STDIN) {
            // Until the next writer of a FIFO writes.
            self.ends_at = None;
        }
        is_due(self)
    }
}
