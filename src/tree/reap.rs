//! Reaping: takes every child that has ended, and tells the server from orphans.

use crate::sys::pid::Pid;
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Change, Ended, Wait};
use crate::sys::{Errno, pid, proc};
use crate::tree::Tree;

#[derive(Clone, Copy, Debug, Default)]
pub struct Reaped {
    pub left: Left,
    /// How the server ended, if it did.
    pub server: Option<Ended>,
    /// Its last suspension or resumption by job control.
    pub server_job: Option<Change>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Left {
    /// No process of the tree is left.
    Empty,
    /// Processes that have not ended.
    Living,
    /// There is more to take. The caller reaps again after it has handled everything else.
    #[default]
    More,
    /// wait has failed in a way that no manual foresees.
    Unknown(Errno),
}

/// The most changes that are taken at once: deadlines and triggers must not wait for a tree that
/// makes orphans as fast as they are reaped.
const BATCH: usize = 1000;

const CTRL_Z: Change = Change::Suspended(Signal::TSTP.number());

impl Tree {
    /// Takes changes of children until there are none, at most [`BATCH`]. Calls `each` for each
    /// child that has ended: its pid, how it ended, and whether it was the server.
    pub fn reap(&mut self, each: &mut dyn FnMut(i32, Ended, bool)) -> Reaped {
        let mut reaped = Reaped::default();
        for _ in 0..BATCH {
            reaped.left = match Wait::any().ended().suspended().resumed().take() {
                Ok(Some((pid, change))) => {
                    let is_main = self.note_change(&mut reaped, pid, change);
                    if let Change::Ended(ended) = change {
                        each(pid, ended, is_main);
                    }
                    continue;
                }
                // To look at daemons may wait, so it is known first that the server has ended.
                Ok(None) if reaped.server.is_some() && self.spare.is_some() => Left::Living,
                Ok(None) if self.only_others_left() => Left::Empty,
                Ok(None) => Left::Living,
                Err(Errno::CHILD) => Left::Empty,
                Err(errno) => Left::Unknown(errno),
            };
            break;
        }
        reaped
    }

    /// Returns whether it is the server that has changed, or the init that stands for it.
    fn note_change(&mut self, reaped: &mut Reaped, pid: i32, change: Change) -> bool {
        let server = self.server.as_mut();
        let server = server.filter(|server| server.pid.get() == pid && !server.reaped);
        let is_server = server.is_some();
        if let Some(server) = server {
            server.suspended = Some(matches!(change, Change::Suspended(_)));
            match change {
                Change::Ended(ended) => {
                    server.reaped = true;
                    // A shim that was suspended with it is resumed.
                    (reaped.server, reaped.server_job) = (Some(ended), Some(Change::Resumed));
                }
                Change::Suspended(_) | Change::Resumed => reaped.server_job = Some(change),
                // No suspension by job control: a shell could not resume the server.
                Change::Trapped => {}
            }
        } else if self.living_server().is_none() && change == CTRL_Z {
            // The rest of the tree: during a stop, no shell would resume it.
            reaped.server_job = Some(change);
        }
        let Change::Ended(ended) = change else {
            return is_server;
        };
        self.reaped += 1;
        let was_monitor = self.ending_init.map(Pid::get) == Some(pid);
        // The kernel lets it end only after all others of its namespace, which it has killed.
        let was_init = was_monitor && self.server.is_none();
        let by_kill = ended == Ended::Killed(Signal::KILL.number()) && was_monitor == was_init;
        if self.sigkill.since.is_some() && by_kill {
            self.sigkill.ended += 1;
        }
        self.strangers.retain(|stranger| *stranger != pid);
        if was_init {
            reaped.server = Some(ended);
        }
        is_server || was_init
    }

    /// Whether the stop waits for none of the children that are left.
    fn only_others_left(&self) -> bool {
        let has_others = !self.strangers.is_empty() || self.spare.is_some();
        if !has_others && self.ending_init.is_none() || self.living_server().is_some() {
            return false;
        }
        // A monitor that was killed stays as long as a tracer does not reap it.
        let is_dead = |child| proc::stat(child).is_ok_and(|stat| proc::is_dead(stat.state));
        let ending = self.ending_init.map(Pid::get);
        let is_other = |child| {
            self.strangers.contains(&child)
                || self.is_spared_child(child)
                || ending == Some(child) && is_dead(child)
        };
        self.note_daemons();
        let mut all = true;
        match proc::children(pid::own(), &mut |child| all = all && is_other(child)) {
            Ok(()) => all,
            Err(proc::FOREIGN) => wait::children().all(|child| is_other(child.get())),
            Err(_) => false,
        }
    }

    /// Asks all children: only the name of a daemon without a leader tells that it is spared.
    pub(super) fn note_daemons(&self) {
        if self.spare.is_some() {
            let _ = proc::children(pid::own(), &mut |child| _ = self.is_spared_child(child));
        }
    }

    pub(super) fn is_spared_child(&self, child: i32) -> bool {
        Pid::new(child).is_some_and(|pid| self.spares(pid, false))
    }
}
