//! The sources of events, in one poll: signals, processes whose end matters, stdin, stdout.
//!
//! Verified facts only: a pidfd is readable when its process has ended, a descriptor has hung up or
//! it has not. Stdin is never read, and data on it does not wake us.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::event::Trigger;
use crate::sys::Errno;
use crate::sys::fd::{self, HANG_UP};
use crate::sys::signal::{self, Arrival, SignalFd};

/// When poll is tried again after it had no memory.
const RETRY: Duration = Duration::from_millis(10);

/// Why the watch returned.
#[derive(Debug)]
pub enum Woken {
    Signal(Arrival),
    Trigger(Trigger),
    /// The last member of the cgroup is gone, or a first one is there.
    CgroupChanged,
    TimedOut,
}

#[derive(Debug)]
struct Source {
    /// `None` for the events of the cgroup.
    trigger: Option<Trigger>,
    /// Keeps a pidfd open; a standard descriptor is not ours to close.
    _owned: Option<OwnedFd>,
}

/// Everything that can wake us. `polled[0]` is the signals, `polled[n]` belongs to `sources[n - 1]`.
#[derive(Debug)]
pub struct Watch {
    signals: Option<SignalFd>,
    sources: Vec<Source>,
    polled: Vec<libc::pollfd>,
    /// Whether the user was told that poll is refused.
    refused: bool,
    /// When stdin was last written to before it hung up; `None` while it has not.
    stdin_ended: Option<(i64, u64)>,
}

impl Watch {
    /// Signals only, without a descriptor: cannot fail.
    #[must_use]
    pub fn signals_only() -> Self {
        Self {
            signals: None,
            sources: Vec::new(),
            polled: Vec::new(),
            refused: false,
            stdin_ended: None,
        }
    }

    /// Signals, and what is added.
    #[must_use]
    pub fn new(signals: SignalFd) -> Self {
        let polled = vec![libc::pollfd {
            fd: signals.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        Self {
            signals: Some(signals),
            sources: Vec::new(),
            polled,
            refused: false,
            stdin_ended: None,
        }
    }

    /// The end of the process behind a pidfd is `trigger`.
    pub fn add_process(&mut self, pidfd: OwnedFd, trigger: Trigger) {
        let fd = pidfd.as_raw_fd();
        self.add(
            Source {
                trigger: Some(trigger),
                _owned: Some(pidfd),
            },
            fd,
            libc::POLLIN,
        );
    }

    /// The write end of the bell, borrowed: it hangs up when the shim, who reads it, is gone. No
    /// kernel lacks this, and in a PID namespace nothing else tells without a pidfd.
    pub fn add_bell(&mut self, bell: BorrowedFd<'_>) {
        let source = Source {
            trigger: Some(Trigger::ShimKilled),
            _owned: None,
        };
        self.add(source, bell.as_raw_fd(), 0);
    }

    /// The cgroup's `cgroup.events`, borrowed: it outlives us in the killer.
    pub fn add_cgroup_events(&mut self, events: BorrowedFd<'_>) {
        let source = Source {
            trigger: None,
            _owned: None,
        };
        self.add(source, events.as_raw_fd(), libc::POLLPRI);
    }

    /// Of a group that somebody has removed: its events would wake us for ever.
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

    /// The hang-up of a standard descriptor is `trigger`.
    pub fn add_standard(&mut self, fd: i32, trigger: Trigger) {
        // A half-closed socket shows as POLLRDHUP only, and only if it is asked for. For stdout that is
        // no loss: the peer writes no more, but it reads.
        let events = if fd == fd::STDIN { libc::POLLRDHUP } else { 0 };
        self.add(
            Source {
                trigger: Some(trigger),
                _owned: None,
            },
            fd,
            events,
        );
    }

    /// Whether stdin, which had hung up, has got another writer since, as a FIFO can: one that is still
    /// there, or one that has written something and left again.
    #[must_use]
    pub fn stdin_is_back(&self) -> bool {
        self.stdin_ended.is_some_and(|written| {
            !fd::has_hung_up(fd::STDIN) || fd::last_write(fd::STDIN) != written
        })
    }

    /// Watches stdin again, whose hang-up was reported. Allocates nothing: its place was freed then.
    pub fn watch_stdin_again(&mut self) {
        self.stdin_ended = None;
        self.add_standard(fd::STDIN, Trigger::StdinEof);
    }

    fn add(&mut self, source: Source, fd: i32, events: i16) {
        self.sources.push(source);
        self.polled.push(libc::pollfd {
            fd,
            events,
            revents: 0,
        });
    }

    /// Waits for the next event, at most for `timeout` (`None`: for ever).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Woken {
        let Some(signals) = &self.signals else {
            return signal::wait_any(timeout).map_or(Woken::TimedOut, Woken::Signal);
        };
        loop {
            match fd::poll(&mut self.polled, timeout) {
                Ok(0) => return Woken::TimedOut,
                Err(errno) => {
                    // Until poll can be had again, signals are all that can be waited for.
                    let patience = match errno {
                        Errno::INTR => Some(Duration::ZERO),
                        Errno::NOMEM => Some(timeout.unwrap_or(RETRY).min(RETRY)),
                        _ => {
                            if !std::mem::replace(&mut self.refused, true) {
                                log::warn!("cannot poll: {errno}: only signals are noticed");
                            }
                            timeout
                        }
                    };
                    if let Some(arrival) = signal::wait_any(patience) {
                        return Woken::Signal(arrival);
                    }
                    if timeout.is_some() {
                        return Woken::TimedOut;
                    }
                    continue;
                }
                Ok(_) => {}
            }
            let ready = |polled: &libc::pollfd| {
                polled.revents & (HANG_UP | libc::POLLIN | libc::POLLPRI | libc::POLLNVAL) != 0
            };
            // Sources first: that the host is gone outweighs what it may have signalled before.
            if let Some(at) = self.polled[1..].iter().position(ready) {
                let Some(trigger) = self.sources[at].trigger else {
                    return Woken::CgroupChanged;
                };
                if trigger == Trigger::StdinEof {
                    self.stdin_ended = Some(fd::last_write(fd::STDIN));
                }
                // Once is enough: a hang-up stays, and would wake us for ever.
                self.forget(at);
                return Woken::Trigger(trigger);
            }
            if let Some(arrival) = signals.read() {
                return Woken::Signal(arrival);
            }
        }
    }
}
