//! What the relay waits for.

use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::sys::Errno;
use crate::sys::poll::{self, Events, HANG_UP};

/// What a polled descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    Signals,
    Line,
    /// The stdin of treaper.
    Host,
    /// The same, if it is a FIFO that has ended.
    Fifo,
    /// That of the server.
    Server,
    /// The stdout of the server.
    Output,
    /// That of treaper.
    HostOutput,
    Listener(usize),
    /// A connection.
    Other(usize),
}

/// What poll is to wait for, and what it has reported.
#[derive(Debug, Default)]
pub struct Wanted {
    what: Vec<Awaited>,
    fds: Vec<poll::Polled>,
}

impl Wanted {
    pub fn clear(&mut self) {
        self.what.clear();
        self.fds.clear();
    }

    /// Errors and hang-ups are reported also if they are not among the `events`.
    pub fn add(&mut self, what: Awaited, fd: &impl AsRawFd, events: Events) {
        self.what.push(what);
        self.fds.push(poll::Polled::new(fd.as_raw_fd(), events));
    }

    /// Waits for one of them, or for this long. See `ppoll(2)`.
    pub fn wait(&mut self, time: Option<Duration>) -> Result<(), Errno> {
        poll::poll(&mut self.fds, time).map(drop)
    }

    /// What poll has reported something of, and whether that is a hang-up or an error.
    pub fn reported(&self) -> impl Iterator<Item = (Awaited, bool)> + '_ {
        let reports = self.fds.iter().map(poll::Polled::reported);
        let all = self.what.iter().copied().zip(reports);
        let end = HANG_UP | Events::ERR | Events::NVAL;
        all.filter(|(_, events)| !events.is_empty())
            .map(move |(what, events)| (what, events.intersects(end)))
    }
}
