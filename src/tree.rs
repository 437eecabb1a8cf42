//! The tree: who descends from us, found so that only what is proven ours is ever touched.
//!
//! A depth-first walk. A child of ours cannot be recycled, since nobody but us reaps it. Deeper
//! ones are opened first; then their parent must still be the process that we came from, and that
//! one must not have been reaped meanwhile. Whoever fails the proof is left for the next walk: if
//! it is ours, it has become our child by then.
//!
//! Children come from `/proc/PID/task/TID/children`; where the kernel has no such files from one
//! scan of `/proc`; without `/proc` by asking wait for every possible pid, which finds our own
//! children only (and their orphans the next time). As the init of a PID namespace there is nothing to
//! find or to prove: every number that `/proc` lists is ours.
#![forbid(unsafe_code)]

mod path;

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, View};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, pidfd, wait};
use path::Path;

/// The numbers of the processes still to be visited. Static: a walk must not need memory.
static PENDING: Mutex<[i32; 64 * 1024]> = Mutex::new([0; 64 * 1024]);
/// One scan of `/proc`: (pid, parent).
static SCANNED: Mutex<[(i32, i32); 64 * 1024]> = Mutex::new([(0, 0); 64 * 1024]);

/// How the children of a process are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `/proc/PID/task/TID/children`
    Files,
    /// One scan of `/proc/*/stat` for a walk.
    Scan,
    /// `waitid` over all pids.
    Wait,
    /// We are the init of a PID namespace: every number in it is that of a process of ours.
    Namespace,
}

/// A process of the tree, safe to be signalled for as long as this value lives.
#[derive(Debug)]
pub struct Member {
    pub pid: Pid,
    /// `None` for a child of ours, and where all are.
    handle: Option<OwnedFd>,
}

impl Member {
    /// Sends `signal` to it.
    ///
    /// # Errors
    /// `ESRCH` it is gone; `EPERM` not allowed.
    pub fn send(&self, signal: Signal) -> Result<(), Errno> {
        match &self.handle {
            None => signal::kill(self.pid, signal),
            Some(handle) => match pidfd::send(handle.as_fd(), signal) {
                // Before Linux 5.1: it was ours a moment ago, and no kernel of that age can do better.
                Err(Errno::NOSYS) => signal::kill(self.pid, signal),
                other => other,
            },
        }
    }

    /// Whether it is dead by now: its children then are somebody else's.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &self.handle {
            None => wait::has_ended(self.pid),
            Some(handle) => pidfd::has_ended(handle.as_fd()),
        }
    }

    /// Whether its pid still is its own.
    fn is_unreaped(&self) -> bool {
        self.handle
            .as_ref()
            .is_none_or(|handle| pidfd::is_unreaped(handle.as_fd()).unwrap_or(true))
    }
}

/// What a walk could not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The last error that hid somebody, other than that it was gone.
    pub errno: Option<Errno>,
    /// How the children were found in the end.
    pub source: Option<Source>,
    /// Somebody died or moved while we walked, so that others may have been handed over behind our back.
    pub disturbed: bool,
}

/// What a walk is to visit.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// Children that we had before we were treaper: neither they nor what is below them.
    pub strangers: &'a [i32],
    /// How the children are to be found.
    pub start: Source,
    /// Otherwise the walk counts as disturbed: for callers that walk again anyway.
    pub watchful: bool,
    /// Neither the members of this process group nor what is below them.
    pub without: Option<i32>,
}

/// Visits every process of the tree, parents first, each right after its children were read.
pub fn walk(scope: Scope<'_>, visit: &mut dyn FnMut(&Member)) -> Gaps {
    let Scope {
        strangers,
        start,
        watchful,
        without,
    } = scope;
    let mut gaps = Gaps {
        errno: None,
        source: Some(start),
        disturbed: false,
    };
    let Ok(mut pending) = PENDING.try_lock() else {
        return gaps;
    };
    // Asked each time: a look that failed once does not make us blind for good.
    let view = proc::view().ok();
    let start = match start {
        _ if view.is_none() => Source::Wait,
        Source::Wait => Source::Files,
        other => other,
    };
    let mut walk = Walk {
        strangers,
        without,
        pending: &mut pending[..],
        len: 0,
        source: start,
        view,
        own: pid::own(),
        scanned: 0,
        errno: None,
        disturbed: !watchful,
    };
    walk.run(visit);
    gaps.errno = walk.errno;
    gaps.disturbed = walk.disturbed;
    gaps.source = Some(walk.source);
    gaps
}

struct Walk<'a> {
    strangers: &'a [i32],
    without: Option<i32>,
    pending: &'a mut [i32],
    len: usize,
    source: Source,
    /// `None` only if the source is [`Source::Wait`].
    view: Option<View>,
    own: i32,
    scanned: usize,
    errno: Option<Errno>,
    disturbed: bool,
}

impl Walk<'_> {
    fn run(&mut self, visit: &mut dyn FnMut(&Member)) {
        if self.source == Source::Namespace {
            if self.visit_all(visit) {
                return;
            }
            self.source = Source::Files;
        }
        let mut path = Path::new();
        self.find_children(self.own, &mut path);
        if self.source == Source::Wait {
            return self.visit_own(visit);
        }
        let mut first = 0;
        loop {
            while self.len == first {
                let Some(outer) = path.pop() else { return };
                first = outer;
            }
            self.len -= 1;
            let number = self.pending[self.len];
            if self.is_left_out(number) {
                continue;
            }
            let above = path.len();
            let proven = path.restore(&mut |path, number, depth| self.prove(number, path, depth));
            // Whoever has lost a parent that is no more has become our child.
            let depth = if proven { above } else { 0 };
            self.disturbed |= !proven;
            let Some(member) = self.prove(number, &mut path, depth) else {
                self.disturbed |= !self.strangers.contains(&number);
                continue;
            };
            let len = self.len;
            self.find_children(member.pid.get(), &mut path);
            self.disturbed = self.disturbed || member.has_ended();
            visit(&member);
            if self.len == len {
                continue;
            }
            if path.push(member, first) {
                first = len;
            } else {
                // Too deep for one walk: forget its children, the next one comes to them.
                self.len = len;
            }
        }
    }

    fn is_left_out(&self, number: i32) -> bool {
        self.without.is_some() && pid::group_of(number).ok() == self.without
    }

    /// The process `number`, found among the children of the one before `depth` on the path (0: of us), if
    /// it is proven to be one.
    fn prove(&mut self, number: i32, path: &mut Path, depth: usize) -> Option<Member> {
        let pid = Pid::new(number).filter(|pid| pid.get() != self.own)?;
        let Some(above) = depth.checked_sub(1) else {
            return self.own_child(pid);
        };
        let (member, parent_now) = loop {
            match self.open(pid) {
                Ok(found) => break found,
                Err(Errno::MFILE | Errno::NFILE) if path.release(above) => {}
                Err(errno) => {
                    self.note(errno);
                    return None;
                }
            }
        };
        if parent_now == self.own {
            // Its parent died meanwhile, and it came to us.
            self.disturbed = true;
            return self.own_child(pid);
        }
        let parent = path.proven(above)?;
        (parent_now == parent.pid.get() && parent.is_unreaped()).then_some(member)
    }

    /// A child of ours, whatever `/proc` says (it may be that of another PID namespace): wait knows.
    fn own_child(&self, pid: Pid) -> Option<Member> {
        let ours = !self.strangers.contains(&pid.get()) && wait::is_child(pid);
        ours.then_some(Member { pid, handle: None })
    }

    /// Appends the children of `pid` to the pending.
    fn find_children(&mut self, pid: i32, path: &mut Path) {
        let own = pid == self.own;
        let len = self.len;
        while self.source == Source::Files {
            let Some(view) = self.view else { return };
            match view.children(pid, &mut |child| push(self.pending, &mut self.len, child)) {
                Ok(()) | Err(Errno::SRCH) => return,
                Err(Errno::MFILE | Errno::NFILE) if path.release(usize::MAX) => {
                    self.len = len;
                    continue;
                }
                Err(Errno::NOENT) if !own => return,
                Err(Errno::NOSYS | Errno::NOENT | Errno::PERM | Errno::ACCESS) => {}
                Err(errno) => {
                    // Out of descriptors or memory: what was read so far is still of use, and our own
                    // children must be found all the same.
                    self.note(errno);
                    if !own {
                        return;
                    }
                }
            }
            self.source = Source::Scan;
            self.len = len;
        }
        if self.source == Source::Scan {
            if self.scanned == 0 {
                self.scan();
            }
            if let Ok(table) = SCANNED.try_lock() {
                let scanned = table[..self.scanned].iter();
                for (child, _) in scanned.filter(|(_, parent)| *parent == pid) {
                    push(self.pending, &mut self.len, *child);
                }
            }
        }
    }

    /// Without any list: each child of ours as soon as it is found, since the search takes so long
    /// that the next one would have taken its place by the end.
    fn visit_own(&self, visit: &mut dyn FnMut(&Member)) {
        let children = wait::children().filter(|pid| !self.strangers.contains(&pid.get()));
        children.for_each(|pid| visit(&Member { pid, handle: None }));
    }

    /// A number that is used again meanwhile is another process of the same namespace, which is ours too.
    /// False if not all numbers could be read.
    fn visit_all(&mut self, visit: &mut dyn FnMut(&Member)) -> bool {
        let (own, Some(view)) = (self.own, self.view) else {
            return false;
        };
        let result = view.processes(&mut |number| {
            if let Some(pid) = Pid::new(number).filter(|pid| pid.get() != own) {
                visit(&Member { pid, handle: None });
            }
        });
        if let Err(errno) = result {
            self.note(errno);
        }
        result.is_ok()
    }

    fn scan(&mut self) {
        let (Ok(mut table), Some(view)) = (SCANNED.try_lock(), self.view) else {
            return;
        };
        let mut len = 0;
        let result = view.processes(&mut |number| {
            if let (Ok(stat), Some(slot)) = (view.stat(number), table.get_mut(len)) {
                *slot = (number, stat.parent);
                len += 1;
            }
        });
        self.scanned = len;
        if let Err(errno) = result {
            self.note(errno);
        }
        // An empty /proc cannot be: it is not there, or hides even ourselves.
        if len == 0 {
            self.source = Source::Wait;
        }
    }

    /// Opens a process, and reads who is its parent so that this cannot be that of a successor with the same
    /// pid.
    fn open(&self, pid: Pid) -> Result<(Member, i32), Errno> {
        let view = self.view.ok_or(proc::FOREIGN)?;
        let handle = match pidfd::of(pid) {
            Err(Errno::NOSYS) => view.open_dir(pid.get()),
            other => other,
        }?;
        let known = if PIDFD_INFO.get() {
            pidfd::parent(handle.as_fd())
        } else {
            Err(Errno::NOTTY)
        };
        let member = Member {
            pid,
            handle: Some(handle),
        };
        match known {
            Ok(parent) => return Ok((member, parent)),
            Err(Errno::SRCH) => return Err(Errno::SRCH),
            Err(_) => PIDFD_INFO.set(false),
        }
        let parent = view.stat(pid.get())?.parent;
        if member.is_unreaped() {
            Ok((member, parent))
        } else {
            Err(Errno::SRCH)
        }
    }

    fn note(&mut self, errno: Errno) {
        if !matches!(errno, Errno::SRCH | Errno::NOENT) {
            self.errno = Some(errno);
        }
    }
}

/// What does not fit waits for the next walk.
fn push(pending: &mut [i32], len: &mut usize, number: i32) {
    if let Some(slot) = pending.get_mut(*len) {
        *slot = number;
        *len += 1;
    }
}

thread_local! {
    /// Whether this kernel tells the parent through a pidfd (Linux 6.13); else `/proc` does.
    static PIDFD_INFO: Cell<bool> = const { Cell::new(true) };
}

/// How far up from a process we look for ourselves, at most.
const ABOVE: usize = 1000;

/// Whether we are among the ancestors of `pid`. An orphan gets another parent while we look, once.
///
/// # Errors
/// `ENOENT`, `ESRCH`: it has ended; others of reading `/proc`.
pub fn is_below_us(pid: i32) -> Result<bool, Errno> {
    let view = proc::view()?;
    climb(view, pid).or_else(|_| climb(view, pid))
}

fn climb(view: View, mut pid: i32) -> Result<bool, Errno> {
    for _ in 0..ABOVE {
        if pid == pid::own() {
            return Ok(true);
        }
        if pid == 1 {
            return Ok(false);
        }
        pid = match view.stat(pid)?.parent {
            // Of one that is being reaped; or of one from another PID namespace.
            0 => return Err(Errno::SRCH),
            parent => parent,
        };
    }
    // Too far to tell.
    Err(Errno::LOOP)
}
