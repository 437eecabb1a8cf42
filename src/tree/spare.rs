//! `--spare`: daemons of the tree that keep running.
//! A process is spared if the leader of its session has one of the names, and so is all that is
//! below it. Only what a daemon has started can be in its session, which so shows whose an orphan
//! is. A daemon that has forked twice has a session without a leader: its own name counts. Sessions
//! that were seen are remembered, for when the daemon has ended or is renamed, and for the heir.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::contain::Level;
use crate::output::error::Error;
use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, Name, Stat};
use crate::sys::shared::{Flag, Words, shared_words};
use crate::tree::{Server, kill};

/// How many sessions are remembered. A daemon that is not remembered is still known by its name.
const MAX_KNOWN: usize = 255;

shared_words! {
    /// The sessions that were seen. Zero means "no session".
    pub struct Known {
        leaders: Words<MAX_KNOWN>,
        /// When each leader, or that process without one, was started: the pid can be recycled.
        started: Words<MAX_KNOWN>,
        /// Set while a name is compared. An heir that finds it set does not try what may wait.
        reading: Flag,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Spare {
    names: &'static [OsString],
    /// The session of treaper, whose leader is not of the tree. A server at a terminal is in it.
    own: i32,
    known: Known,
}

impl Spare {
    /// To be called before there is a monitor. `None`: no name was given.
    pub fn prepare(names: &'static [OsString], level: Level) -> Result<Option<Self>, Error> {
        let why = match level {
            _ if names.is_empty() => return Ok(None),
            Level::Cgroup | Level::Pidns => "only possible with --contain=group",
            Level::Group if pid::own() == 1 => "not possible as PID 1, whose exit kills all",
            Level::Group if proc::view().is_err() => "not possible without the /proc of this place",
            Level::Group => {
                let own = pid::session(0).unwrap_or(0);
                let known = Known::shared().map_err(|errno| Error::kernel("map memory", errno))?;
                // The page is made here, as a full memory cgroup would give none to a stop.
                known.reading.set(false);
                return Ok(Some(Self { names, own, known }));
            }
        };
        Err(Error::new(format!("--spare or TREAPER_SPARE: {why}")))
    }

    /// Whether a process of the tree is spared. `below`: a spared process has started it. The
    /// session of the `server` is not that of a daemon.
    pub fn covers(self, pid: Pid, below: bool, server: Option<&Server>) -> bool {
        let session = pid::session(pid.get()).unwrap_or(0);
        let is_of_server = server.is_some_and(|server| server.has_session(session));
        if [0, self.own].contains(&session) || is_of_server {
            return below;
        }
        let leader = proc::stat(session).ok();
        if let Some(at) = self.place(session) {
            let started = self.known.started.get(at);
            // The number of a session that has members is not used again, also without its leader.
            if leader.is_none_or(|leader| leader.started == started) {
                return true;
            }
            self.known.leaders.set(at, 0);
        }
        // A session that has lost its leader by this stop is not that of a daemon.
        let is_stopped = Pid::new(session).is_some_and(kill::has_signalled);
        let itself = || proc::stat(pid.get()).ok().filter(|_| !is_stopped);
        let number = leader.map_or(pid.get(), |_| session);
        let is_daemon =
            |stat: &Stat| below && session == pid.get() || self.is_named(number, stat.name);
        let daemon = leader.or_else(itself).filter(is_daemon);
        let Some(daemon) = daemon else { return below };
        if let Some(at) = self.place(0) {
            self.known.started.set(at, daemon.started);
            self.known.leaders.set(at, session as u64);
        }
        true
    }

    fn place(self, session: i32) -> Option<usize> {
        (0..MAX_KNOWN).find(|at| self.known.leaders.get(*at) == session as u64)
    }

    fn is_named(self, pid: i32, command: Name) -> bool {
        let Ok(proc) = proc::view() else { return false };
        let reads = !self.known.reading.get();
        self.known.reading.set(true);
        let mut names = self.names.iter().map(|name| name.as_bytes());
        let is_named = names.any(|name| proc.has_name(pid, command, name, reads));
        self.known.reading.set(!reads);
        is_named
    }
}
