//! The server's notifications (`sd_notify`), passed on to the service manager by treaper.
//!
//! By default systemd only accepts those of the main process of a `Type=notify` unit. That is
//! treaper, but only the server knows when it is ready. Since version 254 a main process can ask
//! systemd to accept those of the other processes. For older versions the server gets a socket of
//! treaper. Only notifications of the tree are passed on.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::sys::notify::{self, Message, Sockets};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, clock, proc};

/// How many messages are passed on before treaper looks at everything else.
const BATCH: usize = 8;
/// How many messages are passed on at the end: more than the manager's queue can hold.
const MAX_FINAL_MESSAGES: usize = 1000;

/// The pause before another attempt, if the manager's queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// Passes on the notifications. Only in the process that the manager knows.
#[derive(Debug)]
pub struct Notifier {
    sockets: Sockets,
    /// When to try again, if the manager's queue was full.
    retry_at: Cell<Option<Duration>>,
    /// The `NOTIFY_SOCKET` of the server.
    pub address: OsString,
}

impl Notifier {
    /// `None` if there is nothing to pass on: no manager, or one that now accepts the messages of
    /// all processes.
    ///
    /// # Errors
    /// A socket could not be made, or the manager's could not be reached.
    pub fn open() -> io::Result<Option<Self>> {
        let Some(manager) = notify::manager() else {
            return Ok(None);
        };
        let sockets = Sockets::open(&manager)?;
        if notify::takes_notify_access() {
            match sockets.send(&Message::new(b"NOTIFYACCESS=all")) {
                // The queue is full, and the server may send READY=1 before it has room. So treaper
                // passes messages on.
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

    /// Passes on messages of the tree. To be called at every SIGCHLD. `server`: its pid, if it is
    /// in this PID namespace.
    pub fn send_messages(&self, server: Option<Pid>) {
        self.retry_at.set(None);
        for _ in 0..BATCH {
            match self.send_next_message(server) {
                Ok(true) => {}
                Ok(false) => return,
                Err(QueueFull) => return self.retry_at.set(Some(clock::now() + RETRY)),
            }
        }
        // There may be more messages, without another signal. SIGCHLD to this process brings it
        // back here after everything else was looked at.
        if let Some(own) = Pid::new(pid::own()) {
            let _ = signal::kill(own, Signal::CHLD);
        }
    }

    /// When [`Self::send_messages`] is to be called again, if the manager's queue was full. It is
    /// no timer of the kernel, since RLIMIT_SIGPENDING may allow none.
    pub fn retry_at(&self) -> Option<Duration> {
        self.retry_at.get()
    }

    /// Passes on the last messages before this process exits.
    pub fn finish(&self, server: Option<Pid>) {
        for _ in 0..MAX_FINAL_MESSAGES {
            if self.send_next_message(server) != Ok(true) {
                return;
            }
        }
    }

    /// Returns false if there is no message.
    fn send_next_message(&self, server: Option<Pid>) -> Result<bool, QueueFull> {
        let Some(sender) = self.sockets.peek_sender() else {
            return Ok(false);
        };
        let sent = match proc::is_descendant(sender) {
            Ok(true) => self.send_next(sender),
            Ok(false) => {
                log::info!("dropped a notification of pid {sender}, which is not of the tree");
                Ok(())
            }
            // The sender has ended meanwhile. Only the server is known by its pid.
            Err(Errno::NOENT | Errno::SRCH) if server.is_some_and(|pid| pid.get() == sender) => {
                self.send_next(sender)
            }
            Err(error) => {
                log::warn!(
                    "dropped a notification of pid {sender}: cannot find out whether it is of the tree: {error}"
                );
                Ok(())
            }
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(QueueFull),
            Err(error) => {
                log::warn!("cannot pass a notification on to the service manager: {error}");
            }
            Ok(()) => {}
        }
        self.sockets.discard();
        Ok(true)
    }

    fn send_next(&self, sender: i32) -> io::Result<()> {
        let Some(mut message) = self.sockets.peek() else {
            return Ok(());
        };
        if !message.whole {
            log::warn!("dropped a notification of pid {sender}: too long, or too many descriptors");
            return Ok(());
        }
        // treaper stays the main process of the unit: it ends when the tree has ended, with the
        // server's status.
        let something_left = message.retain_lines(|line| !names_main_process(line));
        if something_left {
            self.sockets.send(&message)
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

/// The manager has not read what came before.
#[derive(PartialEq, Eq)]
struct QueueFull;
