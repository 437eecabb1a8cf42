//! What can wake the monitor, in one poll: signals, and the sources of events.
//! Each source verifies what poll has reported, so each event is a fact. Stdin is never read, and
//! without `--idle` data on it does not wake treaper.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::streams::idle::Idle;
use crate::sys::poll::{self, Events, HANG_UP, News, Polled};
use crate::sys::{Errno, apart, arrival, clock, fd, stream};

/// The pause before poll is tried again, if it had no memory.
pub const RETRY: Duration = Duration::from_millis(10);

/// An end of input in this time is that of a complete input (`echo x | treaper job`). The time
/// begins when treaper first looks, so an earlier end counts, whatever the load of the machine is.
const FIRST_SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum Woken {
    Signal(arrival::Arrival),
    Trigger(Trigger),
    /// The cgroup has lost its last member, or got a first one.
    CgroupChanged,
    /// This call has failed in a way that its manual does not foresee.
    Broken(&'static str, Errno),
}

/// What a descriptor is watched for. If it is only a number here, the caller keeps it open.
pub enum Source {
    /// See [`arrival::signal_fd`]. Signals are read when no other source has an event.
    Signals(OwnedFd),
    /// A pidfd is readable when its process has ended.
    Process(BorrowedFd<'static>, Trigger),
    /// The write end of the bell, which hangs up when the shim is gone, also without pidfds.
    Bell(RawFd),
    /// The line to the process in front of treaper: a byte is a trigger, a hang-up its end.
    Front(BorrowedFd<'static>),
    /// The `cgroup.events` of the cgroup.
    Cgroup(RawFd),
    Stream(StandardStream),
    /// Is readable after a write to stdin, see [`Watch::add_idle`].
    Writes(RawFd),
}

/// The hang-up of stdin or stdout. An error on these is no event.
pub struct StandardStream {
    fd: RawFd,
    trigger: Trigger,
    /// The flags of poll that are the event.
    hang_up: Events,
    /// Before this time the end of stdin is that of a complete input, see [`FIRST_SECOND`].
    complete_until: Option<Duration>,
    /// Polled instead of the descriptor once that has reported something that poll would repeat.
    news: Option<News>,
    /// When it was last written to before it hung up; `None` if it has not hung up.
    ended: Option<(i64, u32)>,
}

/// Everything that can wake this process. With signals alone it needs no descriptor, nor can fail.
#[derive(Default)]
pub struct Watch {
    sources: Vec<Source>,
    /// One for each source.
    polled: Vec<Polled>,
    idle: Option<Idle>,
}

/// poll ignores a negative descriptor.
const IGNORED: Polled = Polled::new(-1, Events::empty());

impl Watch {
    pub fn add(&mut self, source: Source) {
        // For all that there usually are. To allocate later would copy pages.
        if self.sources.is_empty() {
            self.sources.reserve(10);
            self.polled.reserve(10);
        }
        self.polled.push(source.polled());
        self.sources.push(source);
    }

    /// Makes the hang-up of stdin a `trigger`. `lenient`: except in the first second.
    pub fn add_stdin(&mut self, trigger: Trigger, lenient: bool) {
        let complete_until = match lenient && trigger == Trigger::StdinEof {
            false => None,
            // On a busy machine it may take a second from here to the first poll.
            true if poll::has_hung_up(fd::STDIN) => Some(Duration::MAX),
            true => Some(clock::now() + FIRST_SECOND),
        };
        self.add_stream(fd::STDIN, trigger, HANG_UP, complete_until);
    }

    /// Makes the loss of stdout's reader a trigger. A pipe reports it as POLLERR. POLLRDHUP does
    /// not count: that peer no longer writes, but may still read.
    pub fn add_stdout(&mut self) {
        let hang_up = match fd::kind(fd::STDOUT) {
            fd::Kind::Pipe => Events::HUP | Events::ERR,
            _ => Events::HUP,
        };
        self.add_stream(fd::STDOUT, Trigger::StdoutClosed, hang_up, None);
    }

    fn add_stream(&mut self, fd: i32, trigger: Trigger, hang_up: Events, until: Option<Duration>) {
        self.add(Source::Stream(StandardStream {
            fd,
            trigger,
            hang_up,
            complete_until: until,
            news: None,
            ended: None,
        }));
    }

    pub fn add_idle(&mut self, idle: Idle) {
        self.add(Source::Writes(idle.writes.as_raw_fd()));
        self.idle = Some(idle);
    }

    /// Whether neither a drain nor a stop has begun. If a drain has ended without a stop, streams
    /// are watched again whose hang-up was reported.
    pub fn set_running(&mut self, running: bool) {
        if let Some(idle) = &mut self.idle {
            idle.set_running(running);
        }
        for (source, polled) in self.sources.iter_mut().zip(&mut self.polled) {
            let Source::Stream(stream) = source else {
                continue;
            };
            if running && stream.ended.is_some() {
                (stream.ended, stream.complete_until, stream.news) = (None, None, None);
                *polled = source.polled();
            }
        }
    }

    /// Whether stdin has had another writer since it hung up, as a FIFO can: one that is still
    /// there, or one that has written something and closed it.
    pub fn stdin_is_back(&self) -> bool {
        let stdin = self.sources.iter().find_map(|source| match source {
            Source::Stream(stream) if stream.fd == fd::STDIN => stream.ended,
            _ => None,
        });
        stdin.is_some_and(|written| {
            !poll::has_hung_up(fd::STDIN) || fd::last_write(fd::STDIN) != written
        })
    }

    /// No longer watches the cgroup: when it is removed, poll would always return at once.
    pub fn forget_cgroup_events(&mut self) {
        let is_cgroup = |source: &Source| matches!(source, Source::Cgroup(_));
        if let Some(at) = self.sources.iter().position(is_cgroup) {
            self.polled[at] = IGNORED;
        }
    }

    /// Waits for the next event, at most until `until`. May return earlier without an event.
    pub fn wait(&mut self, mut until: Option<Duration>) -> Option<Woken> {
        if let Some(idle) = &mut self.idle {
            if idle.is_over() {
                return Some(Woken::Trigger(Trigger::Idle));
            }
            until = until.into_iter().chain(idle.ends_at()).min();
        }
        let mut timeout = until.map(|at| at.saturating_sub(clock::now()));
        if !self.sources.is_empty() {
            timeout = Some(match poll::poll(&mut self.polled, timeout) {
                Ok(0) => return None,
                Ok(_) => {
                    // Sources first: the end of a host counts more than a signal it sent before.
                    for (source, polled) in self.sources.iter_mut().zip(&mut self.polled) {
                        let woken = source.verify(polled, self.idle.as_mut());
                        if woken.is_some() {
                            return woken;
                        }
                    }
                    Duration::ZERO
                }
                Err(Errno::INTR) => Duration::ZERO,
                // A limit of memory or descriptors can be raised. Until then only signals count.
                Err(Errno::NOMEM | Errno::INVAL) => timeout.unwrap_or(RETRY).min(RETRY),
                Err(errno) => return Some(Woken::Broken("poll", errno)),
            });
        }
        match arrival::wait_any(timeout) {
            Ok(arrival) => arrival.map(Woken::Signal),
            Err(errno) => Some(Woken::Broken("wait for signals", errno)),
        }
    }
}

impl Source {
    fn polled(&self) -> Polled {
        let (fd, events) = match self {
            Self::Signals(fd) => (fd.as_raw_fd(), Events::IN),
            Self::Process(fd, _) => (fd.as_raw_fd(), Events::IN),
            Self::Bell(bell) => (*bell, Events::empty()),
            Self::Front(line) => (line.as_raw_fd(), Events::IN),
            Self::Cgroup(events) => (*events, Events::PRI),
            // A half-closed socket reports only POLLRDHUP, and only if that is asked for.
            Self::Stream(stream) if stream.fd == fd::STDIN => (stream.fd, Events::RDHUP),
            Self::Stream(stream) => (stream.fd, Events::empty()),
            Self::Writes(writes) => (*writes, Events::IN),
        };
        Polled::new(fd, events)
    }

    /// What the report in `polled` means. One that would come again at once is the last one.
    fn verify(&mut self, polled: &mut Polled, idle: Option<&mut Idle>) -> Option<Woken> {
        if polled.reported().is_empty() {
            return None;
        }
        let trigger = match self {
            Self::Signals(_) => return None,
            Self::Process(_, trigger) => *trigger,
            Self::Bell(_) => Trigger::ShimKilled,
            Self::Front(line) => match stream::receive(*line) {
                Ok(Some(byte)) => return Trigger::from_number(byte.into()).map(Woken::Trigger),
                Err(Errno::AGAIN | Errno::INTR) => return None,
                Ok(None) | Err(_) => Trigger::RelayKilled,
            },
            Self::Cgroup(_) => return Some(Woken::CgroupChanged),
            Self::Stream(stream) => return stream.verify(polled, idle),
            Self::Writes(_) => {
                idle?.take_writes();
                return None;
            }
        };
        *polled = IGNORED;
        Some(Woken::Trigger(trigger))
    }
}

impl StandardStream {
    fn verify(&mut self, polled: &mut Polled, idle: Option<&mut Idle>) -> Option<Woken> {
        let news = self.news.as_ref();
        let reported = news.map_or(polled.reported(), News::take);
        let is_input = self.fd == fd::STDIN;
        let only_half = is_input && !reported.contains(Events::HUP);
        if reported.intersects(self.hang_up) && !(only_half && poll::peer_can_send(self.fd)) {
            *polled = IGNORED;
            let until = self.complete_until;
            if until.is_some_and(|until| clock::now() < until) {
                log::info!("stdin ended in the first second: it is complete input");
                // No process of the host is left that could write.
                if let Some(idle) = idle {
                    idle.stand_still();
                }
                // A pipe or socket, for which no helper is needed.
                apart::give_up(fd::STDIN, &mut Vec::new());
                return None;
            }
            self.ended = Some(fd::last_write(self.fd));
            return Some(Woken::Trigger(self.trigger));
        }
        if self.news.is_none() {
            *polled = IGNORED;
            match News::of(self.fd, Events::RDHUP) {
                Ok(news) => {
                    *polled = Polled::new(news.as_raw_fd(), Events::IN);
                    self.news = Some(news);
                }
                Err(errno) => {
                    let name = if is_input { "stdin" } else { "stdout" };
                    log::warn!("cannot watch {name} any more: {errno}");
                }
            }
        }
        None
    }
}
