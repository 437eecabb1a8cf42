//! The tree: how its processes are found, signalled and reaped.

pub mod kill;
mod pid_set;
pub mod reap;
pub mod spare;
pub mod survivors;
pub mod walk;

use std::os::fd::OwnedFd;

use crate::contain::Containment;
use crate::contain::cgroup::Cgroup;
use crate::output::{ledger::Ledger, progress::Named};
use crate::sys::clone::Spawned;
use crate::sys::pid::{self, Pid};
use crate::sys::proc;
use crate::sys::startup::Standing;
use kill::{FirstStep, Sigkill, Waits};
use spare::Spare;
use walk::{Member, Reach, Scope, Search};

pub struct Server {
    pub pid: Pid,
    /// Missing before Linux 5.2.
    pub pidfd: Option<OwnedFd>,
    pub standing: Standing,
    /// The first leader of its session and group, which is gone. `None`: there was none.
    pub leader: Option<(Pid, Option<OwnedFd>)>,
    /// Whether it was reaped. Its pid may belong to another process then.
    pub reaped: bool,
    /// By the last change that `wait` has reported; `None`: another process has got that report.
    pub suspended: Option<bool>,
    pub stop_sent: StopSent,
}

impl Server {
    pub fn new(spawned: Spawned, standing: Standing) -> Self {
        Self {
            pid: spawned.pid,
            pidfd: spawned.pidfd,
            standing,
            leader: spawned.leader,
            reaped: false,
            suspended: Some(false),
            stop_sent: StopSent::No,
        }
    }

    /// The group that was made for it: all members are of the tree. `None`: it is in treaper's job.
    pub fn group(&self) -> Option<Pid> {
        match (self.standing, &self.leader) {
            (Standing::InJob, _) => None,
            (Standing::LeadsNothing, Some((leader, _))) => Some(*leader),
            _ => Some(self.pid),
        }
    }

    /// The sessions that were made for it, if any; 0: there is no second one.
    fn sessions(&self) -> [i32; 2] {
        let leader = self.leader.as_ref().map_or(0, |(leader, _)| leader.get());
        [self.pid.get(), leader]
    }

    /// Whether `session` is one that was made for it, or that it has made itself. No other process
    /// can have made one of that number as long as it is the server's.
    fn has_session(&self, session: i32) -> bool {
        session == self.pid.get() && !self.reaped
            || self.sessions().contains(&session) && proc::stat(session).is_err()
    }
}

/// Whether the server has been sent the stop signal, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSent {
    No,
    /// Perhaps, when the monitor was killed: the server may have disarmed its parent-death signal.
    PerhapsByKernel,
    ByTreaper,
}

#[derive(Default)]
pub struct Tree {
    pub server: Option<Server>,
    /// Children from before this process executed treaper: they and theirs are not of the tree.
    pub strangers: Vec<i32>,
    /// The processes of treaper that are known here; 0: none.
    pub treaper: [i32; 3],
    pub spare: Option<Spare>,
    /// A killed monitor that cannot end yet, at any level: what is below it is of the tree.
    pub ending_init: Option<Pid>,
    containment: Containment,
    /// How the children were found by the last walk.
    search: Search,
    pub ledger: Option<Ledger>,
    cut_short: bool,
    /// The pipe that treaper has as stdin.
    pub stdin: Option<u64>,
    /// The stop of the rest that comes after filters.
    waits: Option<Waits>,
    first_step: Option<FirstStep>,
    reaped: u64,
    /// Those that were sent the stop signal and are not named yet; `None`: they need no name.
    pub daemons: Option<Named>,
    pub sigkill: Sigkill,
}

impl Tree {
    pub fn new(server: Option<Server>, strangers: Vec<i32>, containment: Containment) -> Self {
        Self {
            server,
            strangers,
            treaper: [pid::own(), 0, 0],
            containment,
            ..Self::default()
        }
    }

    pub const fn cgroup(&self) -> Option<&Cgroup> {
        self.containment.cgroup()
    }

    /// The server, unless it was reaped.
    pub fn living_server(&self) -> Option<Pid> {
        let server = self.server.as_ref().filter(|server| !server.reaped);
        server.map(|server| server.pid)
    }

    pub fn has_sent_stop(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.stop_sent == StopSent::ByTreaper)
    }

    pub fn each(&mut self, visit: &mut dyn FnMut(&Member)) {
        self.walk(Reach::Tree, visit);
    }

    /// Whether `--spare` leaves the process alone. `below`: the process was started by such a one.
    fn spares(&self, pid: Pid, below: bool) -> bool {
        let server = self.server.as_ref();
        matches!(self.spare, Some(spare) if spare.covers(pid, below, server))
    }

    /// Returns whether some processes may have been missed: always, unless the walk is watched.
    fn walk(&mut self, reach: Reach, visit: &mut dyn FnMut(&Member)) -> bool {
        self.note_daemons();
        // The list of the namespace is tried again, even if it could not be read last time.
        let start = if self.containment.is_namespace() {
            Search::Namespace
        } else {
            self.search
        };
        let scope = Scope {
            strangers: &self.strangers,
            spares: &|pid, below| self.spares(pid, below),
            start,
            reach,
        };
        let ending = self.ending_init;
        let gaps = walk::walk(scope, &mut |member| {
            if ending != Some(member.pid) {
                visit(member);
            }
        });
        self.cut_short = gaps.cut_short;
        match gaps.search {
            Search::Files | Search::Namespace => {}
            search if search == self.search => {}
            Search::Scan => log::info!("no list of children in /proc: scanning all processes"),
            Search::Wait => log::warn!(
                "/proc cannot be used: treaper finds only its own children, one generation at a time"
            ),
        }
        self.search = gaps.search;
        if let Some(errno) = gaps.errno {
            log::info!("the walk of the tree was not complete: {errno}");
        }
        gaps.disturbed
    }
}
