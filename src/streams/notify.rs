//! The server's words to the service manager, passed on by the process that the manager knows.
//!
//! By default systemd hears the main process of a `Type=notify` unit alone. That is us, and it is the
//! server who knows when it is ready. Since 254 we may ask it to hear the others too; before, the
//! server gets a socket of ours. Nobody else's words are passed on.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::sys::notify::{self, Message, Sockets};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, clock};
use crate::tree::walk;

/// How many messages are passed on before we look at everything else.
const BATCH: usize = 8;
/// How many of the last ones, at most: more than the manager's queue takes.
const LAST: usize = 1000;

/// How long to wait for a manager that has not read what came before.
const RETRY: Duration = Duration::from_millis(10);

/// What the manager's main process passes on.
#[derive(Debug)]
pub struct Relay {
    sockets: Sockets,
    /// When to send again what the manager had no room for.
    retry_at: Cell<Option<Duration>>,
    /// The `NOTIFY_SOCKET` of the server.
    pub address: OsString,
}

impl Relay {
    /// `None` if there is nothing to pass on: no manager, or one that hears everybody now.
    ///
    /// # Errors
    /// A socket cannot be had, or not be talked to.
    pub fn open() -> io::Result<Option<Self>> {
        let Some(manager) = notify::manager() else {
            return Ok(None);
        };
        let sockets = Sockets::open(&manager)?;
        if notify::takes_notify_access() {
            match sockets.send(&mut Message::new(b"NOTIFYACCESS=all")) {
                // There is no room for it now, and the server may send READY=1 before there is.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return sent.map(|()| None),
            }
        }
        let address = sockets.address()?;
        Ok(Some(Self {
            sockets,
            retry_at: Cell::new(None),
            address,
        }))
    }

    /// Passes on what has come, of our tree: to be called at every SIGCHLD. `server`: its pid, if it has one here.
    pub fn send_messages(&self, server: Option<Pid>) {
        self.retry_at.set(None);
        for _ in 0..BATCH {
            match self.send_next_message(server) {
                Passed::One => {}
                Passed::Nothing => return,
                Passed::Later => return self.retry_at.set(Some(clock::now() + RETRY)),
            }
        }
        // There may be more, for which no signal comes any more; but first everything else.
        if let Some(own) = Pid::new(pid::own()) {
            let _ = signal::kill(own, Signal::CHLD);
        }
    }

    /// Sends again what the manager had no room for, if it is time. Returns how long to wait until
    /// the next attempt, if there is to be one.
    ///
    /// No timer calls: RLIMIT_SIGPENDING may allow none.
    pub fn retry(&self, server: Option<Pid>) -> Option<Duration> {
        if self.retry_at.get()? <= clock::now() {
            self.send_messages(server);
        }
        Some(self.retry_at.get()?.saturating_sub(clock::now()))
    }

    /// The last words, before we end.
    pub fn finish(&self, server: Option<Pid>) {
        for _ in 0..LAST {
            if self.send_next_message(server) != Passed::One {
                return;
            }
        }
    }

    fn send_next_message(&self, server: Option<Pid>) -> Passed {
        let Some(sender) = self.sockets.peek_sender() else {
            return Passed::Nothing;
        };
        let sent = match walk::is_below_us(sender) {
            Ok(true) => self.send_next(sender),
            Ok(false) => {
                log::info!("dropped a notification of pid {sender}, which is not of the tree");
                Ok(())
            }
            // It has ended since; whose the number was then is known of the server alone.
            Err(Errno::NOENT | Errno::SRCH) if server.is_some_and(|pid| pid.get() == sender) => {
                self.send_next(sender)
            }
            Err(error) => {
                log::warn!(
                    "dropped a notification of pid {sender}: cannot tell whose it is: {error}"
                );
                Ok(())
            }
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Passed::Later,
            Err(error) => {
                log::warn!("cannot pass a notification on to the service manager: {error}");
            }
            Ok(()) => {}
        }
        self.sockets.discard();
        Passed::One
    }

    fn send_next(&self, sender: i32) -> io::Result<()> {
        let Some(mut message) = self.sockets.peek() else {
            return Ok(());
        };
        if !message.whole {
            log::warn!("dropped a notification of pid {sender}: too long, or too many descriptors");
            return Ok(());
        }
        // Ours stays the main process: its end is the unit's, and its status the server's.
        let something_left = message.retain_lines(|line| !names_main_process(line));
        if something_left {
            self.sockets.send(&mut message)
        } else {
            Ok(())
        }
    }
}

/// Whether systemd may take `line` for `MAINPID=` or `MAINPIDFDID=`. Its newer versions remove
/// backslashes, also from the middle of a name.
fn names_main_process(line: &[u8]) -> bool {
    let mut letters = line.iter().filter(|byte| **byte != b'\\');
    b"MAINPID".iter().all(|byte| letters.next() == Some(byte))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passed {
    One,
    Nothing,
    /// The manager has not read what came before.
    Later,
}
