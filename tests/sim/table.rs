//! A simulated process table: the parent of each process, how each reacts to signals, and what happens when.
//!
//! The process under test is pid 1 of it, the subreaper that adopts every orphan. Every other process has [`Habits`].
//! There can be processes that are not of the tree. Process 0 adopts their orphans.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::time::Duration;

use super::rng::Rng;

/// The ancestor of the processes outside of the tree.
pub const OUTSIDE: u32 = 0;
/// The process that is under test.
pub const US: u32 = 1;
/// The first process that it starts.
pub const SERVER: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// Ends after this time.
    Exit(Duration),
    Ignore,
    /// Starts one more process, which ignores the signal, and ends.
    LeaveSuccessor,
    /// Forwards it to its children, and ends after the last of them: a server with workers.
    StopChildren,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Works,
    /// It belongs to another user, so neither the stop signal nor SIGKILL reaches it (EPERM).
    NotPermitted,
    /// Uninterruptible: SIGKILL stays pending.
    Hangs,
}

/// How a process forks: one child each time, `left` times, including the forks of its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forks {
    pub every: Duration,
    pub left: u32,
    /// Ends after the fork: a chain of daemons. Otherwise parent and child both go on.
    pub moves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    pub on_stop: OnStop,
    pub kill: Kill,
    /// Ends by itself after this time.
    pub life: Option<Duration>,
    pub forks: Option<Forks>,
    /// Reaps its children. Otherwise they stay zombies until it ends.
    pub reaps: bool,
    pub stopped: bool,
}

#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, in any combination"
)]
pub struct Process {
    /// The pid of each process that there ever was, in the order of their births.
    pub id: u64,
    pub parent: u32,
    /// Not of the tree: it belongs to another tree, or it is a child from before.
    pub outside: bool,
    pub habits: Habits,
    pub zombie: bool,
    /// SIGKILL has reached it: it runs no more code, but its end takes a while.
    dying: bool,
    stop_pending: bool,
    waits_for_children: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Exit(u32),
    Fork(u32),
}

#[derive(Debug)]
pub struct Table {
    pub now: Duration,
    processes: HashMap<u32, Process>,
    /// The children of each, in order.
    children: HashMap<u32, BTreeSet<u32>>,
    /// Latest first, so that `pop` takes the earliest. The number keeps the order of equal times.
    queue: BinaryHeap<std::cmp::Reverse<(Duration, u64, What)>>,
    next_pid: u32,
    /// The lowest free pid is assigned first.
    pub reuses: bool,
    pub born: u64,
    queued: u64,
    pub rng: Rng,
    /// A child of pid 1 has changed.
    pub sigchld: bool,
    /// When the last process of the tree was reaped.
    pub empty_since: Option<Duration>,
}

impl Table {
    pub fn new(rng: Rng) -> Self {
        Self {
            now: Duration::ZERO,
            processes: HashMap::new(),
            children: HashMap::new(),
            queue: BinaryHeap::new(),
            next_pid: SERVER,
            reuses: false,
            born: 0,
            queued: 0,
            rng,
            sigchld: false,
            empty_since: None,
        }
    }

    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// Every process, dead or alive.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    pub fn is_empty(&self) -> bool {
        self.all().all(|(_, process)| process.outside)
    }

    /// All of the tree that are not zombies.
    pub fn living(&self) -> impl Iterator<Item = (u32, &Process)> {
        let is_living = |process: &Process| !process.zombie && !process.outside;
        self.all().filter(move |(_, process)| is_living(process))
    }

    pub fn children(&self, parent: u32) -> Vec<u32> {
        let children = self.children.get(&parent).into_iter().flatten();
        children.copied().collect()
    }

    /// A child from before.
    pub fn start_stranger(&mut self, habits: Habits) -> u32 {
        let pid = self.start(US, habits);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.outside = true;
        }
        pid
    }

    pub fn start(&mut self, parent: u32, habits: Habits) -> u32 {
        let lowest = self.next_pid.min(SERVER + 1);
        let free = (lowest..self.next_pid).find(|pid| !self.processes.contains_key(pid));
        let pid = free.filter(|_| self.reuses).unwrap_or(self.next_pid);
        self.next_pid = self.next_pid.max(pid + 1);
        self.born += 1;
        let above = self.processes.get(&parent);
        let process = Process {
            id: self.born,
            parent,
            outside: above.map_or(parent == OUTSIDE, |above| above.outside),
            habits,
            zombie: false,
            dying: false,
            stop_pending: false,
            waits_for_children: false,
        };
        self.processes.insert(pid, process);
        self.children.entry(parent).or_default().insert(pid);
        if let Some(life) = habits.life {
            self.later(life, What::Exit(pid));
        }
        if let Some(forks) = habits.forks {
            self.later(forks.every, What::Fork(pid));
        }
        pid
    }

    fn later(&mut self, after: Duration, what: What) {
        self.queued += 1;
        let entry = (self.now + after, self.queued, what);
        self.queue.push(std::cmp::Reverse(entry));
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Duration> {
        self.queue.peek().map(|entry| entry.0.0)
    }

    /// Lets everything happen up to `time`, in order.
    pub fn advance(&mut self, time: Duration) {
        while let Some(at) = self.next().filter(|at| *at <= time) {
            self.now = self.now.max(at);
            match self.queue.pop().map(|entry| entry.0.2) {
                Some(What::Exit(pid)) => self.exit(pid),
                Some(What::Fork(pid)) => self.fork(pid),
                None => {}
            }
        }
        self.now = self.now.max(time);
    }

    fn exit(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.zombie) else {
            return;
        };
        if process.habits.stopped && !process.dying {
            // It ends when it is resumed.
            process.stop_pending = true;
            process.habits.on_stop = OnStop::Exit(Duration::ZERO);
            return;
        }
        process.zombie = true;
        let (parent, outside) = (process.parent, process.outside);
        let heir = if outside { OUTSIDE } else { US };
        let orphans = self.children.remove(&pid).unwrap_or_default();
        for orphan in &orphans {
            if let Some(process) = self.processes.get_mut(orphan) {
                process.parent = heir;
                self.sigchld |= process.zombie && heir == US;
            }
        }
        self.children.entry(heir).or_default().extend(orphans);
        self.child_ended(parent, pid);
    }

    fn child_ended(&mut self, parent: u32, pid: u32) {
        match parent {
            US => return self.sigchld = true,
            OUTSIDE => return self.remove(pid),
            _ => {}
        }
        let Some(above) = self.processes.get(&parent).cloned() else {
            return;
        };
        if above.habits.reaps && !above.dying && !above.habits.stopped {
            self.remove(pid);
        }
        let has_left = self.children(parent).iter().any(|c| self.is_alive(*c));
        if above.waits_for_children && !has_left {
            self.later(Duration::ZERO, What::Exit(parent));
        }
    }

    fn remove(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        if let Some(siblings) = self.children.get_mut(&process.parent) {
            siblings.remove(&pid);
        }
    }

    fn is_alive(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| !p.zombie)
    }

    fn fork(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.zombie || process.dying || process.habits.stopped {
            return;
        }
        let Some(forks) = process.habits.forks.filter(|forks| forks.left > 0) else {
            return;
        };
        // Each of the two has half of the forks that are left, so a bomb grows as a tree, and has an end.
        let left = forks.left - 1;
        let share = if forks.moves { left } else { left / 2 };
        process.habits.forks = Some(Forks {
            left: left - share,
            ..forks
        });
        let child = Habits {
            forks: Some(Forks {
                left: share,
                ..forks
            }),
            life: None,
            stopped: false,
            ..process.habits
        };
        self.start(pid, child);
        if forks.moves {
            self.exit(pid);
        } else {
            self.later(forks.every, What::Fork(pid));
        }
    }

    /// The stop signal. The process reacts when it is not suspended.
    pub fn stop_signal(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.habits.kill == Kill::NotPermitted || process.zombie || process.dying {
            return;
        }
        if process.habits.stopped || process.habits.kill == Kill::Hangs {
            process.stop_pending = true;
            return;
        }
        match process.habits.on_stop {
            OnStop::Ignore => {}
            OnStop::Exit(after) => self.later(after, What::Exit(pid)),
            OnStop::LeaveSuccessor => {
                let successor = Habits {
                    on_stop: OnStop::Ignore,
                    forks: None,
                    ..process.habits
                };
                self.start(pid, successor);
                self.later(Duration::ZERO, What::Exit(pid));
            }
            OnStop::StopChildren => {
                process.waits_for_children = true;
                let children = self.children(pid);
                if !children.iter().any(|child| self.is_alive(*child)) {
                    self.later(Duration::ZERO, What::Exit(pid));
                }
                for child in children {
                    self.stop_signal(child);
                }
            }
        }
    }

    /// SIGCONT.
    pub fn go_on(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let was_stopped = std::mem::take(&mut process.habits.stopped);
        let forks = process.habits.forks;
        if was_stopped && std::mem::take(&mut process.stop_pending) {
            self.stop_signal(pid);
        }
        if let Some(forks) = forks.filter(|_| was_stopped) {
            self.later(forks.every, What::Fork(pid));
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, pid: u32) {
        let dying_takes = self.rng.time(Duration::from_millis(3));
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.habits.kill == Kill::Works && !process.zombie && !process.dying {
            process.dying = true;
            self.later(dying_takes, What::Exit(pid));
        }
    }

    /// Reaps all children that have ended. Returns whether the server was one of them.
    pub fn reap(&mut self) -> bool {
        let mut server = false;
        for pid in self.children(US) {
            if self.processes.get(&pid).is_some_and(|p| p.zombie) {
                self.remove(pid);
                server |= pid == SERVER;
            }
        }
        if self.is_empty() {
            self.empty_since = self.empty_since.or(Some(self.now));
        }
        server
    }
}
