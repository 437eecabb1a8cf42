//! What can wake the monitor, in one poll: signals, and the sources of events.
//!
//! Each source verifies what poll has reported, so each event is a fact: the process of a pidfd has
//! ended, or a descriptor has hung up. Stdin is never read, and without `--idle` data on it does
//! not wake treaper.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::streams::idle::Idle;
use crate::sys::arrival::{self, Arrival};
use crate::sys::fd::{self, Kind};
use crate::sys::poll::{self, Events, HANG_UP, News, Polled};
use crate::sys::{Errno, apart, clock, stream};

/// The pause before poll is tried again, if it had no memory.
pub const RETRY: Duration = Duration::from_millis(10);

/// An end of input in this time is that of a complete input (`echo x | treaper job`), not that of a
/// host. Otherwise the result would depend on the load of the machine. The time begins when treaper
/// first looks, so an end before that is always within it.
const FIRST_SECOND: Duration = Duration::from_secs(1);

/// Why the watch returned.
#[derive(Debug)]
pub enum Woken {
    Signal(Arrival),
    Trigger(Trigger),
    /// The cgroup has lost its last member, or got a first one.
    CgroupChanged,
    /// This call has failed in a way that its manual does not foresee.
    Broken(&'static str, Errno),
}

/// What one descriptor of the poll is watched for. A number alone means that the caller keeps that
/// descriptor open.
#[derive(Debug)]
pub enum Source<'a> {
    /// A pidfd, which is readable when its process has ended.
    Process(OwnedFd, Trigger),
    /// The write end of the bell. It hangs up when the shim, which reads it, is gone. Every kernel
    /// can do this. In a PID namespace of its own, the monitor has no other way to notice that.
    Bell(RawFd),
    /// The line to the process in front of treaper. A byte is a trigger, and a hang-up is the end
    /// of that process.
    Front(BorrowedFd<'a>),
    /// The `cgroup.events` of the cgroup.
    Cgroup(RawFd),
    /// Stdin or stdout.
    Stream(StandardStream),
    /// Stdin, for `--idle`.
    Idle(Idle),
}

/// The hang-up of stdin or stdout. An error on these is no event.
#[derive(Debug)]
pub struct StandardStream {
    fd: RawFd,
    trigger: Trigger,
    /// What poll does not report without being asked.
    asked: Events,
    /// The flags of poll that are the event.
    hang_up: Events,
    /// Before this time the end of stdin is that of a complete input.
    complete_until: Option<Duration>,
    /// Polled instead of the descriptor after it has reported something else, which poll would
    /// report again at once.
    news: Option<News>,
    /// When it was last written to before it hung up; `None` if it has not hung up.
    ended: Option<(i64, u32)>,
}

/// What a report of poll means.
enum Meaning {
    Nothing,
    Event(Woken),
    /// The end of stdin is that of a complete input.
    CompleteInput,
}

/// Everything that can wake this process. `polled[0]` is for the signals, `polled[n]` belongs to
/// `sources[n - 1]`.
#[derive(Debug)]
pub struct Watch<'a> {
    signals: Option<OwnedFd>,
    sources: Vec<Source<'a>>,
    polled: Vec<Polled>,
}

/// poll ignores a negative descriptor.
const IGNORED: Polled = Polled::new(-1, Events::empty());

impl<'a> Watch<'a> {
    /// Watches only signals. It needs no descriptor, so it cannot fail.
    pub const fn signals_only() -> Self {
        Self {
            signals: None,
            sources: Vec::new(),
            polled: Vec::new(),
        }
    }

    /// Watches signals, and what is added later. `signals`: see [`arrival::signal_fd`].
    pub fn new(signals: OwnedFd) -> Self {
        Self {
            polled: vec![Polled::new(signals.as_raw_fd(), Events::IN)],
            signals: Some(signals),
            ..Self::signals_only()
        }
    }

    pub fn add(&mut self, source: Source<'a>) {
        self.polled.push(source.polled());
        self.sources.push(source);
    }

    /// The parent of treaper, if its end is a trigger.
    pub fn host(&self) -> Option<BorrowedFd<'_>> {
        self.sources.iter().find_map(|source| match source {
            Source::Process(pidfd, Trigger::ParentExit) => Some(pidfd.as_fd()),
            _ => None,
        })
    }

    /// Makes the hang-up of stdin a `trigger`. `lenient`: except in the first second.
    pub fn add_stdin(&mut self, trigger: Trigger, lenient: bool) {
        let complete_until = match lenient && trigger == Trigger::StdinEof {
            false => None,
            // On a busy machine it may take a second from here to the first poll.
            true if poll::has_hung_up(fd::STDIN) => Some(Duration::MAX),
            true => Some(clock::now() + FIRST_SECOND),
        };
        self.add(Source::Stream(StandardStream {
            fd: fd::STDIN,
            trigger,
            // A half-closed socket reports only POLLRDHUP, and only if that is asked for.
            asked: Events::RDHUP,
            hang_up: HANG_UP,
            complete_until,
            news: None,
            ended: None,
        }));
    }

    /// Makes the loss of stdout's reader a trigger. A pipe reports it as POLLERR. POLLRDHUP does
    /// not count: that peer no longer writes, but may still read.
    pub fn add_stdout(&mut self) {
        let hang_up = match fd::kind(fd::STDOUT) {
            Kind::Pipe => Events::HUP | Events::ERR,
            _ => Events::HUP,
        };
        self.add(Source::Stream(StandardStream {
            fd: fd::STDOUT,
            trigger: Trigger::StdoutClosed,
            asked: Events::empty(),
            hang_up,
            complete_until: None,
            news: None,
            ended: None,
        }));
    }

    fn idle(&mut self) -> Option<&mut Idle> {
        self.sources.iter_mut().find_map(|source| match source {
            Source::Idle(idle) => Some(idle),
            _ => None,
        })
    }

    /// Whether neither a drain nor a stop has begun. If a drain has ended without a stop, streams
    /// are watched again whose hang-up was reported.
    pub fn set_running(&mut self, running: bool) {
        for (source, polled) in self.sources.iter_mut().zip(self.polled.iter_mut().skip(1)) {
            match source {
                Source::Idle(idle) => idle.set_running(running),
                Source::Stream(stream) if running && stream.ended.is_some() => {
                    (stream.ended, stream.complete_until, stream.news) = (None, None, None);
                    *polled = source.polled();
                }
                _ => {}
            }
        }
    }

    /// Whether stdin has had another writer since it hung up, as a FIFO can: one that is still
    /// there, or one that has written something and closed it.
    pub fn stdin_is_back(&self) -> bool {
        let is_new =
            |written| !poll::has_hung_up(fd::STDIN) || fd::last_write(fd::STDIN) != written;
        self.sources.iter().any(|source| match source {
            Source::Stream(stream) if stream.fd == fd::STDIN => stream.ended.is_some_and(is_new),
            _ => false,
        })
    }

    /// No longer watches the cgroup: the events of a removed group would make poll return at once
    /// again and again.
    pub fn forget_cgroup_events(&mut self) {
        for (source, polled) in self.sources.iter().zip(self.polled.iter_mut().skip(1)) {
            if matches!(source, Source::Cgroup(_)) {
                *polled = IGNORED;
            }
        }
    }

    /// Waits for the next event, at most until `until` (`None`: without a limit). May return
    /// earlier without an event.
    pub fn wait(&mut self, mut until: Option<Duration>) -> Option<Woken> {
        if let Some(idle) = self.idle() {
            if idle.is_over() {
                return Some(Woken::Trigger(Trigger::Idle));
            }
            until = until.into_iter().chain(idle.ends_at()).min();
        }
        let timeout = until.map(|at| at.saturating_sub(clock::now()));
        if self.signals.is_none() {
            return woken_by(arrival::wait_any(timeout));
        }
        match poll::poll(&mut self.polled, timeout) {
            Ok(0) => return None,
            Ok(_) => {}
            // Until poll has memory again, treaper can only wait for signals.
            Err(errno) => {
                let pause = match errno {
                    Errno::INTR => Duration::ZERO,
                    // A limit of memory, or of descriptors (`prlimit`), can be raised again.
                    Errno::NOMEM | Errno::INVAL => {
                        timeout.map_or(RETRY, |timeout| timeout.min(RETRY))
                    }
                    _ => return Some(Woken::Broken("poll", errno)),
                };
                return woken_by(arrival::wait_any(Some(pause)));
            }
        }
        // Sources first: if the host is gone, that counts more than a signal that it may have sent
        // before.
        for at in 0..self.sources.len() {
            match self.sources[at].verify(&mut self.polled[at + 1]) {
                Meaning::Nothing => {}
                Meaning::Event(woken) => return Some(woken),
                Meaning::CompleteInput => {
                    log::info!(
                        "stdin ended within the first second, so it is complete input and not a trigger"
                    );
                    // No process of the host is left that could write.
                    if let Some(idle) = self.idle() {
                        idle.stand_still();
                    }
                    // A pipe or socket, for which no helper is needed.
                    apart::give_up(fd::STDIN, &mut Vec::new());
                }
            }
        }
        woken_by(arrival::wait_any(Some(Duration::ZERO)))
    }
}

fn woken_by(signal: Result<Option<Arrival>, Errno>) -> Option<Woken> {
    match signal {
        Ok(arrival) => arrival.map(Woken::Signal),
        Err(errno) => Some(Woken::Broken("wait for signals", errno)),
    }
}

impl Source<'_> {
    /// How it is polled at first.
    fn polled(&self) -> Polled {
        let (fd, events) = match self {
            Self::Process(pidfd, _) => (pidfd.as_raw_fd(), Events::IN),
            Self::Bell(bell) => (*bell, Events::empty()),
            Self::Front(line) => (line.as_raw_fd(), Events::IN),
            Self::Cgroup(events) => (*events, Events::PRI),
            Self::Stream(stream) => (stream.fd, stream.asked),
            Self::Idle(idle) => (idle.fd(), Events::IN),
        };
        Polled::new(fd, events)
    }

    /// What the report in `polled` means. A report that would come again at once and again is the
    /// last one.
    fn verify(&mut self, polled: &mut Polled) -> Meaning {
        if polled.reported().is_empty() {
            return Meaning::Nothing;
        }
        let trigger = match self {
            Self::Process(_, trigger) => *trigger,
            Self::Bell(_) => Trigger::ShimKilled,
            Self::Front(line) => match stream::receive(*line) {
                Ok(Some(byte)) => {
                    let trigger = Trigger::from_number(byte.into());
                    let event = |trigger| Meaning::Event(Woken::Trigger(trigger));
                    return trigger.map_or(Meaning::Nothing, event);
                }
                Err(Errno::AGAIN | Errno::INTR) => return Meaning::Nothing,
                Ok(None) | Err(_) => Trigger::RelayKilled,
            },
            Self::Cgroup(_) => return Meaning::Event(Woken::CgroupChanged),
            Self::Stream(stream) => return stream.verify(polled),
            Self::Idle(idle) => {
                idle.take_writes();
                return Meaning::Nothing;
            }
        };
        *polled = IGNORED;
        Meaning::Event(Woken::Trigger(trigger))
    }
}

impl StandardStream {
    fn verify(&mut self, polled: &mut Polled) -> Meaning {
        let news = self.news.as_ref();
        let reported = news.map_or(polled.reported(), News::take);
        let is_input = self.fd == fd::STDIN;
        let only_half = is_input && !reported.contains(Events::HUP);
        if reported.intersects(self.hang_up) && !(only_half && poll::peer_can_send(self.fd)) {
            *polled = IGNORED;
            let in_time = |until| clock::now() < until;
            if self.complete_until.is_some_and(in_time) {
                return Meaning::CompleteInput;
            }
            self.ended = Some(fd::last_write(self.fd));
            return Meaning::Event(Woken::Trigger(self.trigger));
        }
        if self.news.is_some() {
            return Meaning::Nothing;
        }
        match News::of(self.fd, Events::RDHUP) {
            Ok(news) => {
                *polled = Polled::new(news.as_raw_fd(), Events::IN);
                self.news = Some(news);
            }
            Err(errno) => {
                let name = if is_input { "stdin" } else { "stdout" };
                log::warn!("cannot watch {name} any more: {errno}");
                *polled = IGNORED;
            }
        }
        Meaning::Nothing
    }
}
