//! The server's stdout: passed on to the host as it comes, and searched for the end of a turn.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::origin::place::Place;
use crate::output::{error, progress};
use crate::pair;
use crate::relay::inbox::{Buffer, CHUNK};
use crate::relay::life::{Awaited, Wanted};
use crate::relay::turns::Turns;
use crate::sys::poll::{Events, WatchFlags, Writes, poll_one};
use crate::sys::stream::{self, Stream};
use crate::sys::wait::{Change, Ended};
use crate::sys::{Errno, apart, clock, clone, fd, pid, prctl, signal};

/// How long the host may read nothing of the last output of the tree, after a stop.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// The default is that of a relay that passes no output on.
#[derive(Default)]
pub struct Output {
    /// Until it has ended.
    from: Option<Stream>,
    /// Where it is opened again, if stdout is a FIFO that has no reader.
    place: Option<OwnedFd>,
    /// Of stdout, if it is a FIFO.
    openings: Option<Writes>,
    /// Once the tree is gone: how much of it is to be read.
    left: Option<usize>,
    /// Once the tree is gone: when output was last passed on.
    pub since: Option<Duration>,
    is_limited: bool,
    /// `None`: nothing more can be written, or has to be.
    to: Option<Stream>,
    courier: Option<pid::Pid>,
    buffer: Buffer,
}

impl Output {
    /// `far` gets the stream that is stdout for the server, and its number.
    pub fn start(place: &Place, far: &mut Vec<(OwnedFd, i32)>) -> Result<Self, Errno> {
        // First of all: a courier keeps no end of another stream.
        let (to, courier) = match stream::of_standard(fd::STDOUT)? {
            Some(own) => (own, None),
            None => start_courier(place)?,
        };
        let (from, end) = stream::incoming(fd::kind(fd::STDOUT))?;
        far.push((end, fd::STDOUT));
        let openings = || Writes::watch(to.as_raw_fd(), WatchFlags::OPEN);
        let openings = to.is_fifo().then(openings).and_then(Result::ok);
        Ok(Self {
            from: Some(from),
            to: Some(to),
            openings,
            courier,
            buffer: Buffer::new(),
            ..Self::default()
        })
    }

    pub const fn is_over(&self) -> bool {
        self.to.is_none() && self.courier.is_none()
    }

    pub fn list(&self, wanted: &mut Wanted) {
        if self.place.is_some() {
            return wanted.add(Awaited::Stdout, self.openings.as_ref(), Events::IN);
        }
        if !self.buffer.rest().is_empty() {
            return wanted.add(Awaited::Stdout, self.to.as_ref(), Events::OUT);
        }
        wanted.add(Awaited::ServerStdout, self.from.as_ref(), Events::IN);
        let to = self.to.as_ref().filter(|to| to.reports_reader());
        wanted.add(Awaited::Stdout, to, Events::empty());
    }

    pub fn deadline(&self) -> Option<Duration> {
        Some(self.since.filter(|_| self.is_limited)? + FLUSH_PATIENCE)
    }

    /// The end is wanted, so a host that reads nothing is no longer waited for without a limit.
    pub fn limit(&mut self, now: Duration) {
        self.is_limited = true;
        self.since = self.since.map(|_| now);
    }

    /// The tree is gone, and what it has written is there by now. Only that is passed on: a process
    /// outside of the tree may hold this stream, too, and write to it without end.
    pub fn finish(&mut self, turns: &mut Turns, now: Duration) {
        self.since = Some(now);
        let unread = |from: &Stream| fd::unread(from.as_raw_fd()) as usize;
        self.left = self.from.as_ref().map(unread);
        if self.from.is_none() {
            return self.leave();
        }
        self.read(turns);
    }

    pub fn check_finish(&mut self, now: Duration) {
        if !self.is_over() && self.deadline().is_some_and(|at| now >= at) {
            log::warn!(
                "the end of the server's output is lost: the host has read nothing for {}",
                progress::Seconds(FLUSH_PATIENCE)
            );
            self.leave();
            // It ends with the relay.
            self.courier = None;
        }
    }

    /// Reads what is there, and passes on what fits.
    pub fn read(&mut self, turns: &mut Turns) {
        while let Some(from) = self.from.as_ref().filter(|_| self.buffer.rest().is_empty()) {
            let most = self.left.unwrap_or(CHUNK);
            match self.buffer.fill(most, |bytes| from.read(bytes)) {
                Ok(count @ 1..) => {
                    self.left = self.left.map(|left| left - count);
                    turns.output_read(self.buffer.rest());
                    self.write();
                }
                Err(Errno::AGAIN) if self.left.is_none() => {}
                Err(Errno::INTR) => return,
                Ok(0) | Err(_) => {
                    // The last line counts also without a newline.
                    turns.output_read(b"\n");
                    self.leave();
                }
            }
            if self.left.is_none() {
                return;
            }
        }
    }

    pub fn host_reported(&mut self, has_hung_up: bool, turns: &mut Turns) {
        if self.place.is_some() {
            return self.resume();
        }
        // Otherwise the write says whether the host reads: an error in a socket's queue is none.
        if has_hung_up && self.buffer.rest().is_empty() {
            return self.lose_reader();
        }
        self.write();
        if self.left.is_some() {
            self.read(turns);
        }
    }

    fn write(&mut self) {
        let Some(to) = &self.to else { return };
        match to.write(self.buffer.rest()) {
            Ok(count) => {
                self.buffer.written(count);
                self.since = self.since.map(|_| clock::now());
            }
            Err(errno) if stream::is_for_later(errno) => {}
            Err(_) => self.lose_reader(),
        }
    }

    /// The server's next write fails, as it would without treaper, until a FIFO has a reader again.
    fn lose_reader(&mut self) {
        let may_wait = self.openings.is_some() && self.since.is_none();
        let from = self.from.take().filter(|_| may_wait);
        match from.map(|from| from.place()) {
            Some(Ok(place)) => self.place = Some(place),
            _ => self.leave(),
        }
    }

    fn resume(&mut self) {
        let _ = self.openings.as_ref().map(Writes::take);
        let to = self.to.as_ref().map_or(-1, Stream::as_raw_fd);
        let is_alone = poll_one(to, Events::OUT, Duration::ZERO).contains(Events::ERR);
        if let Some(place) = self.place.take_if(|_| !is_alone) {
            match Stream::open_again(&place, OFlags::RDONLY) {
                Ok(from) => self.from = Some(from),
                Err(_) => self.leave(),
            }
        }
    }

    pub fn courier_changed(&mut self, pid: i32, change: Change) {
        let courier = self.courier.filter(|courier| courier.get() == pid);
        let Some(courier) = courier else { return };
        match change {
            Change::Suspended(_) => drop(signal::kill(courier, signal::Signal::CONT)),
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

    /// There is nothing more to pass on. A courier ends when it has written everything.
    fn leave(&mut self) {
        (self.from, self.place, self.to) = (None, None, None);
        self.buffer.written(self.buffer.rest().len());
    }
}

/// Starts a courier, which copies the stream to a stdout that cannot be written without waiting. It
/// ends with the stream or the relay.
fn start_courier(place: &Place) -> Result<(Stream, Option<pid::Pid>), Errno> {
    let standard = stream::copy_of(fd::STDOUT)?;
    let (near, far) = stream::outgoing(fd::Kind::Pipe)?;
    let relay = pid::own();
    if let clone::Fork::Parent(pid) = clone::fork_plainly()? {
        return Ok((near, Some(pid)));
    }
    let _ = prctl::new_session();
    let _ = rustix::thread::set_name(c"tree-courier");
    let _ = prctl::signal_on_parent_exit(signal::Signal::KILL);
    if pid::parent() == relay {
        let helpers = &mut Vec::new();
        drop(near);
        pair::release(&[fd::STDIN, fd::STDOUT], place, helpers);
        if let Err(errno) = copy(&far, &standard) {
            let why = error::describe(errno);
            log::warn!("the server's output is lost, since stdout cannot be written: {why}");
        }
        apart::wait_for(helpers);
    }
    clone::exit_now(0);
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let mut left = match rustix::io::retry_on_intr(|| rustix::io::read(from, &mut bytes))? {
            0 => return Ok(()),
            count => &bytes[..count],
        };
        while !left.is_empty() {
            match rustix::io::write(to, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => {}
                // A process that shares the stream has set `O_NONBLOCK` on it.
                Err(Errno::AGAIN) => drop(poll_one(to.as_raw_fd(), Events::OUT, Duration::MAX)),
                Err(errno) => return Err(errno),
            }
        }
    }
}
