//! The relay, as shim and monitor see it: its news, its sockets, and how it is waited for at the
//! end.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::plan::event::Trigger;
use crate::relay::socket_file::SocketFile;
use crate::relay::words::Words;
use crate::sys::pid::{self, Pid};
use crate::sys::poll::{Events, poll_one};
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Change, Wait};
use crate::sys::{clock, pidfd, proc, stream};

/// A relay that passes nothing on for this long after the end of the tree is killed. It gives up by
/// itself a little earlier.
const PATIENCE: Duration = Duration::from_secs(7);
/// The pause between two looks at the relay.
const PAUSE: Duration = Duration::from_millis(500);

/// The relay, as shim and monitor know it.
#[derive(Debug)]
pub struct RelayHandle {
    pub pid: Pid,
    /// The process that has started it, until that has waited for it.
    top: Cell<i32>,
    pidfd: Option<OwnedFd>,
    /// Is readable when there is news, and hangs up when the relay has ended.
    pub line: OwnedFd,
    pub words: Words,
    files: Vec<SocketFile>,
}

impl RelayHandle {
    /// The child that was just made.
    pub fn new(pid: Pid, line: OwnedFd, words: Words, files: Vec<SocketFile>) -> Self {
        Self {
            pid,
            top: Cell::new(pid::own()),
            // The child is not reaped yet, so its pid is its own.
            pidfd: pidfd::open(pid.get()).ok(),
            line,
            words,
            files,
        }
    }

    /// What the news is, if it is a reason to stop.
    pub fn news(&self) -> Option<Trigger> {
        if self.words.timed_out.get() {
            Some(Trigger::CancelTimeout)
        } else if self.words.done.get() {
            None
        } else {
            Some(Trigger::RelayKilled)
        }
    }

    /// Resumes the relay if it is suspended, since a suspended relay passes nothing on. To be
    /// called by the process that has started it. That process may have taken the notification of
    /// the suspension when it looked at its children, so `/proc` is read as well.
    pub fn keep_awake(&self) {
        let shown = proc::stat(self.pid.get()).is_ok_and(|stat| matches!(stat.state, b'T' | b't'));
        let reported = || {
            matches!(
                Wait::child(self.pid).suspended().resumed().peek(),
                Ok(Some((_, Change::Suspended(_))))
            )
        };
        if let Some(pidfd) = &self.pidfd {
            if shown || reported() {
                let _ = pidfd::send(pidfd.as_fd(), Signal::CONT);
            }
        }
    }

    /// The tree is gone. The relay passes on what is left of its output, and ends.
    pub fn hang_up(&self) {
        stream::hang_up(self.line.as_fd());
    }

    /// After the end of the tree: waits until the relay has passed on what is left of the output,
    /// and removes the sockets. Only the process that has started the relay waits, and once.
    pub fn finish(&self) {
        self.hang_up();
        if pid::own() == self.top.replace(0) {
            self.wait();
        }
        self.files.iter().for_each(SocketFile::remove);
    }

    fn wait(&self) {
        let (mut passed, mut since) = (self.words.passed.get(), clock::now());
        // Without a pidfd, the line is watched. It hangs up a moment before the relay is gone.
        let (fd, events) = match &self.pidfd {
            Some(pidfd) => (pidfd.as_raw_fd(), Events::IN),
            None => (self.line.as_raw_fd(), Events::empty()),
        };
        while !poll_one(fd, events, PAUSE).intersects(Events::IN | Events::HUP) {
            if self.words.passed.get() != passed {
                (passed, since) = (self.words.passed.get(), clock::now());
            }
            // SIGKILL does not end a process that waits for a file system.
            if clock::now() > since + 2 * PATIENCE {
                return;
            }
            let is_late = clock::now() > since + PATIENCE;
            // It may have been suspended.
            let signal = if is_late { Signal::KILL } else { Signal::CONT };
            if let Some(pidfd) = &self.pidfd {
                let _ = pidfd::send(pidfd.as_fd(), signal);
            } else if is_late {
                return;
            }
        }
        // If it was reaped before, this reaps nothing.
        let _ = Wait::child(self.pid).ended().suspended().resumed().take();
        // If the relay was killed, its couriers end with it, and this process has adopted them.
        for courier in [self.words.stdin_courier, self.words.stdout_courier] {
            let number = courier.get() as i32;
            let Some(courier) = Pid::new(number).filter(|courier| wait::is_child(*courier)) else {
                continue;
            };
            if let Ok(pidfd) = pidfd::open(number) {
                let _ = poll_one(pidfd.as_raw_fd(), Events::IN, PAUSE);
                let _ = Wait::child(courier).ended().suspended().resumed().take();
            }
        }
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.finish();
    }
}
