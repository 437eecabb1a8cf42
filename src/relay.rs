//! The server's words to the service manager, passed on by the process that the manager knows.
//!
//! By default systemd hears the main process of a `Type=notify` unit alone. That is us, and it is the
//! server who knows when it is ready. Since 254 we may ask it to hear the others too; before, the
//! server gets a socket of ours. Nobody else's words are passed on.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io;

use crate::sys::notify::{self, Message, Sockets};
use crate::sys::pid::{self, Pid};
use crate::sys::proc;
use crate::sys::signal::{self, Signal};

/// How many messages are passed on before we look at everything else.
const BATCH: usize = 100;
/// How far up from a sender we look for ourselves, at most.
const DEPTH: usize = 1000;

/// What the manager's main process passes on.
#[derive(Debug)]
pub struct Relay {
    sockets: Sockets,
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
            return sockets
                .send(&mut Message::new(b"NOTIFYACCESS=all"))
                .map(|()| None);
        }
        let address = sockets.address()?;
        Ok(Some(Self { sockets, address }))
    }

    /// Passes on what has come, of our tree: to be called at every SIGCHLD. `server`: its pid in our namespace.
    pub fn pass_on(&self, server: Option<Pid>) {
        for _ in 0..BATCH {
            let Some(mut message) = self.sockets.receive() else {
                return;
            };
            let sender = message.sender;
            // The server itself may have ended since.
            if server.is_none_or(|pid| pid.get() != sender) && !is_below_us(sender) {
                log::info!("dropped a notification of pid {sender}, which is not of the tree");
                continue;
            }
            if !message.whole {
                log::warn!("a notification of pid {sender} is too long: passed on in part");
            }
            // Ours stays the main process: its end is the unit's, and its status the server's.
            message.retain_lines(|line| !line.starts_with(b"MAINPID"));
            if message.text().is_empty() {
                continue;
            }
            if let Err(error) = self.sockets.send(&mut message) {
                log::warn!("cannot pass a notification on to the service manager: {error}");
            }
        }
        // There may be more, for which no signal comes any more.
        if let Some(own) = Pid::new(pid::own()) {
            let _ = signal::kill(own, Signal::CHLD);
        }
    }
}

/// Whether we are among the ancestors of `pid`. An orphan gets another parent while we look, once.
fn is_below_us(pid: i32) -> bool {
    climb(pid) || climb(pid)
}

fn climb(mut pid: i32) -> bool {
    for _ in 0..DEPTH {
        if pid == pid::own() {
            return true;
        }
        match proc::stat(pid) {
            Ok(stat) if stat.parent > 0 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}
