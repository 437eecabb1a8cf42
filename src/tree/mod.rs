//! The tree: how its processes are found, signalled and reaped.
#![forbid(unsafe_code)]

pub mod kill;
pub mod reap;
pub mod survivors;
pub mod walk;

use std::os::fd::OwnedFd;

use crate::contain::cgroup::Cgroup;
use crate::sys::pid::Pid;
use walk::{Member, Scope, Source};

/// The main process.
#[derive(Debug)]
pub struct Server {
    pub pid: Pid,
    /// Missing before Linux 5.2.
    pub pidfd: Option<OwnedFd>,
    /// Whether it leads a process group that we made for it, and that holds nobody but the tree.
    pub leads_group: bool,
    /// Whether its pid may have another owner by now.
    pub reaped: bool,
    /// Whether it is suspended, as far as it was reaped; `None`: another process has reaped that.
    pub suspended: Option<bool>,
    /// Who has sent it the stop signal.
    pub told: Told,
}

/// Who has sent the stop signal to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    No,
    /// The kernel, when the monitor was killed; unless the server has disarmed its parent-death signal, which
    /// leaves no trace.
    PerhapsByKernel,
    ByUs,
}

/// What holds the tree together, apart from descent.
#[derive(Debug)]
pub enum Hold {
    /// Descent alone.
    Descent,
    /// The processes of this group are of the tree as well.
    Cgroup(Cgroup),
    /// This process is the init of a PID namespace: every process in it is of the tree.
    Namespace,
}

/// The server, what it has started, and how these processes are found.
#[derive(Debug)]
pub struct Tree {
    pub server: Option<Server>,
    /// Children that this process had before it was treaper. Neither they nor their descendants are of the tree.
    pub strangers: Vec<i32>,
    hold: Hold,
    /// How the children were found by the last walk.
    source: Source,
}

impl Tree {
    #[must_use]
    pub fn new(server: Option<Server>, strangers: Vec<i32>, hold: Hold) -> Self {
        let source = match hold {
            Hold::Namespace => Source::Namespace,
            Hold::Descent | Hold::Cgroup(_) => Source::Files,
        };
        Self {
            server,
            strangers,
            hold,
            source,
        }
    }

    /// The group that holds the tree, if there is one.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        match &self.hold {
            Hold::Cgroup(cgroup) => Some(cgroup),
            Hold::Descent | Hold::Namespace => None,
        }
    }

    #[must_use]
    pub const fn is_namespace(&self) -> bool {
        matches!(self.hold, Hold::Namespace)
    }

    /// Whether the group has a living process. A group that cannot be read has none.
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.cgroup()
            .is_some_and(|cgroup| cgroup.is_populated() == Ok(true))
    }

    /// The server, unless it was reaped.
    #[must_use]
    pub fn living_server(&self) -> Option<Pid> {
        let server = self.server.as_ref().filter(|server| !server.reaped);
        server.map(|server| server.pid)
    }

    /// Whether the server has got the stop signal from treaper.
    #[must_use]
    pub fn server_is_told(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.told == Told::ByUs)
    }

    /// Visits each process.
    pub fn each(&mut self, visit: &mut dyn FnMut(&Member)) {
        self.walk(false, None, visit);
    }

    /// Visits each process; whether one may have been missed since others ended or moved meanwhile. `without`: see
    /// [`Scope`]. Another walk follows a walk that leaves out a group, so the latter does not look, and the answer is yes.
    pub fn each_closely(&mut self, without: Option<i32>, visit: &mut dyn FnMut(&Member)) -> bool {
        self.walk(without.is_none(), without, visit)
    }

    fn walk(
        &mut self,
        watchful: bool,
        without: Option<i32>,
        visit: &mut dyn FnMut(&Member),
    ) -> bool {
        // If the list of a namespace could not be read, that may have been true only then.
        let start = if self.is_namespace() {
            Source::Namespace
        } else {
            self.source
        };
        let scope = Scope {
            strangers: &self.strangers,
            start,
            watchful,
            without,
        };
        let gaps = walk::walk(scope, visit);
        if gaps.source != self.source {
            self.source = gaps.source;
            match gaps.source {
                Source::Files | Source::Namespace => {}
                Source::Scan => log::info!("no list of children in /proc: scanning all processes"),
                Source::Wait => log::warn!(
                    "/proc cannot be used: only our own children are found, one generation at a time"
                ),
            }
        }
        if let Some(errno) = gaps.errno {
            log::info!("the walk of the tree was not complete: {errno}");
        }
        gaps.disturbed
    }
}
