//! The sources of events, in one poll: signals, processes whose end matters, stdin, stdout.
//!
//! Each event is a verified fact: the process of a pidfd has ended, or a descriptor has hung up. Stdin is never read,
//! and data on it does not wake treaper.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::streams::idle::Idle;
use crate::sys::arrival::{self, Arrival, SignalFd};
use crate::sys::fd::{self, Kind};
use crate::sys::poll::{self, Events, HANG_UP, Polled};
use crate::sys::{Errno, clock};

/// The pause before poll is tried again, if it had no memory.
const RETRY: Duration = Duration::from_millis(10);

/// Why the watch returned.
#[derive(Debug)]
pub enum Woken {
    Signal(Arrival),
    Trigger(Trigger),
    /// The cgroup has lost its last member, or got a first one.
    CgroupChanged,
    TimedOut,
    /// Nothing that concerns the stop. Some of the time has passed.
    Nothing,
}

#[derive(Debug)]
struct Source {
    /// `None` for the events of the cgroup.
    trigger: Option<Trigger>,
    /// Keeps a pidfd open. A standard descriptor is not owned.
    _owned: Option<OwnedFd>,
    standard: Option<Standard>,
}

/// What is known of stdin or stdout. An error on these is no event.
#[derive(Debug)]
struct Standard {
    fd: i32,
    /// The flags of poll that are the event.
    hang_up: Events,
    /// Before this time the end of stdin is that of a complete input.
    complete_until: Option<Duration>,
    /// Polled instead of the descriptor after it has reported something else, which poll would report again at once.
    news: Option<poll::News>,
}

/// What a report of poll means.
enum Meaning {
    Nothing,
    CompleteInput,
    Event,
}

/// An end of input in this time is that of a complete input (`echo x | treaper job`), not that of a host. Otherwise the
/// result would depend on the load of the machine. The time begins when treaper first looks, so an end before that is
/// always within it.
const FIRST_SECOND: Duration = Duration::from_secs(1);

/// Everything that can wake this process. `polled[0]` is for the signals, `polled[n]` belongs to `sources[n - 1]`.
#[derive(Debug)]
pub struct Watch {
    signals: Option<SignalFd>,
    sources: Vec<Source>,
    polled: Vec<Polled>,
    /// Whether it was logged that poll is refused.
    refused: bool,
    /// When stdin was last written to before it hung up; `None` if it has not hung up.
    stdin_ended: Option<(i64, u64)>,
    /// Whether the host has written to stdin lately, if that was asked for.
    idle: Option<Idle>,
}

impl Watch {
    /// Watches only signals. It needs no descriptor, so it cannot fail.
    #[must_use]
    pub fn signals_only() -> Self {
        Self {
            signals: None,
            sources: Vec::new(),
            polled: Vec::new(),
            refused: false,
            stdin_ended: None,
            idle: None,
        }
    }

    /// Watches signals, and what is added later.
    #[must_use]
    pub fn new(signals: SignalFd) -> Self {
        let polled = vec![Polled::new(signals.as_raw_fd(), Events::IN)];
        Self {
            signals: Some(signals),
            sources: Vec::new(),
            polled,
            refused: false,
            stdin_ended: None,
            idle: None,
        }
    }

    /// Makes the end of the process behind a pidfd a `trigger`.
    pub fn add_process(&mut self, pidfd: OwnedFd, trigger: Trigger) {
        let fd = pidfd.as_raw_fd();
        self.add(
            Source {
                trigger: Some(trigger),
                _owned: Some(pidfd),
                standard: None,
            },
            fd,
            Events::IN,
        );
    }

    /// Watches the write end of the bell: it hangs up when the shim, which reads it, is gone. Every kernel can do
    /// this. In a PID namespace of its own, the monitor has no other way to notice that.
    pub fn add_bell(&mut self, bell: BorrowedFd<'_>) {
        let source = Source {
            trigger: Some(Trigger::ShimKilled),
            _owned: None,
            standard: None,
        };
        self.add(source, bell.as_raw_fd(), Events::empty());
    }

    /// This end of the line to the relay, borrowed: it is readable when there is news, and hangs up when the relay has
    /// ended. Which of them it is has to be asked for.
    pub fn add_relay(&mut self, line: BorrowedFd<'_>) {
        let source = Source {
            trigger: Some(Trigger::RelayKilled),
            _owned: None,
            standard: None,
        };
        self.add(source, line.as_raw_fd(), Events::IN);
    }

    /// Watches the `cgroup.events` of the cgroup. The tree owns the descriptor, which must stay open.
    pub fn add_cgroup_events(&mut self, events: BorrowedFd<'_>) {
        let source = Source {
            trigger: None,
            _owned: None,
            standard: None,
        };
        self.add(source, events.as_raw_fd(), Events::PRI);
    }

    /// No longer watches the cgroup: the events of a removed group would make poll return at once again and again.
    pub fn forget_cgroup_events(&mut self) {
        if let Some(at) = self
            .sources
            .iter()
            .position(|source| source.trigger.is_none())
        {
            self.forget(at);
        }
    }

    fn forget(&mut self, at: usize) {
        self.polled.remove(at + 1);
        self.sources.remove(at);
    }

    /// Makes the hang-up of stdin a `trigger`. `lenient`: except in the first second.
    pub fn add_stdin(&mut self, trigger: Trigger, lenient: bool) {
        let lenient = lenient && trigger == Trigger::StdinEof;
        // On a busy machine it may take a second from here to the first poll.
        let ended = lenient && poll::has_hung_up(fd::STDIN);
        let first_second = || clock::now() + FIRST_SECOND;
        let standard = Standard {
            fd: fd::STDIN,
            hang_up: HANG_UP,
            complete_until: lenient.then(|| if ended { Duration::MAX } else { first_second() }),
            news: None,
        };
        // A half-closed socket reports only POLLRDHUP, and only if that is asked for.
        self.add_standard(trigger, standard, Events::RDHUP);
    }

    /// Makes the silence of the host a trigger.
    pub fn add_idle(&mut self, idle: Idle) {
        let source = Source {
            trigger: Some(Trigger::Idle),
            _owned: None,
            standard: None,
        };
        self.add(source, idle.fd(), Events::IN);
        self.idle = Some(idle);
    }

    /// Whether the silence of the host matters: not during a drain or a stop.
    pub fn set_running(&mut self, running: bool) {
        if let Some(idle) = &mut self.idle {
            idle.set_running(running);
        }
    }

    /// The host may be silent from now on.
    fn forget_idle(&mut self) {
        let mut sources = self.sources.iter();
        if let Some(at) = sources.position(|source| source.trigger == Some(Trigger::Idle)) {
            self.forget(at);
        }
        self.idle = None;
    }

    /// Makes the loss of stdout's reader a trigger. A pipe reports it as POLLERR. POLLRDHUP does not count: that peer
    /// no longer writes, but may still read.
    pub fn add_stdout(&mut self) {
        let pipe = fd::describe(fd::STDOUT).0 == Kind::Pipe;
        let standard = Standard {
            fd: fd::STDOUT,
            hang_up: Events::HUP | if pipe { Events::ERR } else { Events::empty() },
            complete_until: None,
            news: None,
        };
        self.add_standard(Trigger::StdoutClosed, standard, Events::empty());
    }

    /// Watches stdout again, if the loss of its reader was reported during a drain that has ended without a stop. The
    /// plan has ignored that report. Allocates nothing: its place was freed then.
    pub fn watch_stdout_again(&mut self) {
        let trigger = Some(Trigger::StdoutClosed);
        if self.sources.iter().all(|source| source.trigger != trigger) {
            self.add_stdout();
        }
    }

    fn add_standard(&mut self, trigger: Trigger, standard: Standard, events: Events) {
        let fd = standard.fd;
        let source = Source {
            trigger: Some(trigger),
            _owned: None,
            standard: Some(standard),
        };
        self.add(source, fd, events);
    }

    /// Whether stdin has had another writer since it hung up, as a FIFO can: one that is still there, or one that has
    /// written something and closed it.
    #[must_use]
    pub fn stdin_is_back(&self) -> bool {
        self.stdin_ended.is_some_and(|written| {
            !poll::has_hung_up(fd::STDIN) || fd::last_write(fd::STDIN) != written
        })
    }

    /// Watches stdin again after its hang-up was reported. Allocates nothing: its place was freed then.
    pub fn watch_stdin_again(&mut self) {
        self.stdin_ended = None;
        self.add_stdin(Trigger::StdinEof, false);
    }

    fn add(&mut self, source: Source, fd: i32, events: Events) {
        self.sources.push(source);
        self.polled.push(Polled::new(fd, events));
    }

    /// Waits for the next event, at most for `timeout` (`None`: without a limit).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        if self.signals.is_none() {
            return arrival::wait_any(timeout).map_or(Woken::TimedOut, Woken::Signal);
        }
        loop {
            if self.idle.as_mut().is_some_and(Idle::is_over) {
                self.forget_idle();
                return Woken::Trigger(Trigger::Idle);
            }
            let left = self.idle.as_ref().and_then(Idle::left);
            let left = left.filter(|left| timeout.is_none_or(|timeout| *left < timeout));
            let timed_out = || left.map_or(Woken::TimedOut, |_| Woken::Nothing);
            let timeout = left.or(timeout);
            match poll::poll(&mut self.polled, timeout) {
                Ok(0) => return timed_out(),
                Err(errno) => {
                    // While poll cannot be used, treaper can only wait for signals.
                    let patience = match errno {
                        Errno::INTR => Some(Duration::ZERO),
                        Errno::NOMEM => Some(timeout.unwrap_or(RETRY).min(RETRY)),
                        _ => {
                            if !std::mem::replace(&mut self.refused, true) {
                                log::warn!(
                                    "cannot poll: {errno}; treaper notices only signals now"
                                );
                            }
                            timeout
                        }
                    };
                    if let Some(arrival) = arrival::wait_any(patience) {
                        return Woken::Signal(arrival);
                    }
                    if timeout.is_some() {
                        return timed_out();
                    }
                    continue;
                }
                Ok(_) => {}
            }
            // Sources first: if the host is gone, that counts more than a signal that it may have sent before.
            if let Some(woken) = self.look_at_sources() {
                return woken;
            }
            if let Some(arrival) = self.signals.as_ref().and_then(SignalFd::read) {
                return Woken::Signal(arrival);
            }
            if self.idle.is_some() {
                return Woken::Nothing;
            }
        }
    }

    /// The first event that the last poll has reported.
    fn look_at_sources(&mut self) -> Option<Woken> {
        for at in 0..self.sources.len() {
            let polled = &mut self.polled[at + 1];
            if polled.reported().is_empty() {
                continue;
            }
            let source = &mut self.sources[at];
            let meaning = source
                .standard
                .as_mut()
                .map_or(Meaning::Event, |standard| standard.examine(polled));
            match (meaning, source.trigger) {
                (Meaning::Nothing, _) => {}
                (Meaning::Event, None) => return Some(Woken::CgroupChanged),
                (Meaning::Event, Some(Trigger::Idle)) => {
                    if let Some(idle) = &mut self.idle {
                        idle.look();
                    }
                }
                (Meaning::Event, Some(trigger)) => {
                    if trigger == Trigger::StdinEof {
                        self.stdin_ended = Some(fd::last_write(fd::STDIN));
                    }
                    // It is reported once. The hang-up stays, and would make poll return at once again and again.
                    self.forget(at);
                    return Some(Woken::Trigger(trigger));
                }
                (Meaning::CompleteInput, _) => {
                    log::info!(
                        "stdin ended in the first second, so it is a complete input, and no trigger"
                    );
                    self.forget(at);
                    // No process of the host is left that could write.
                    self.forget_idle();
                    fd::replace_by_stderr(fd::STDIN);
                    return None;
                }
            }
        }
        None
    }
}

impl Standard {
    /// What the report in `polled` means. A report that means nothing does not come again.
    fn examine(&mut self, polled: &mut Polled) -> Meaning {
        let reported = self
            .news
            .as_ref()
            .map_or(polled.reported(), poll::News::take);
        let is_input = self.fd == fd::STDIN;
        let only_half = is_input && !reported.contains(Events::HUP);
        if reported.intersects(self.hang_up | Events::NVAL)
            && !(only_half && poll::peer_can_send(self.fd))
        {
            let early = self
                .complete_until
                .is_some_and(|until| clock::now() < until);
            return if early {
                Meaning::CompleteInput
            } else {
                Meaning::Event
            };
        }
        if self.news.is_none() {
            match poll::News::of(self.fd) {
                Ok(news) => {
                    *polled = Polled::new(news.as_raw_fd(), Events::IN);
                    self.news = Some(news);
                }
                Err(errno) => {
                    let name = if is_input { "stdin" } else { "stdout" };
                    log::warn!("cannot watch {name} any more: {errno}");
                    // poll ignores a negative descriptor.
                    *polled = Polled::new(-1, Events::empty());
                }
            }
        }
        Meaning::Nothing
    }
}
