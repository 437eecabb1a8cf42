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

mod kernel;
mod path;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use crate::sys::pid::{self, Pid};
use crate::sys::proc::{self, View};
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, pidfd, wait};
pub use kernel::Kernel;
use kernel::Linux;
use path::Path;

/// How often the tree is walked at most to reach the processes that were handed over during the last walk.
const WALKS: u32 = 16;
/// No new walk begins after this time: processes that keep forking could keep us walking for ever.
const WALKS_TIME: Duration = Duration::from_millis(50);

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
pub struct Member<H = OwnedFd> {
    pub pid: Pid,
    /// `None` for a child of ours, and where all are.
    pub handle: Option<H>,
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
}

/// What a walk could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// The last error that hid somebody, other than that it was gone.
    pub errno: Option<Errno>,
    /// How the children were found in the end.
    pub source: Source,
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

/// The memory of a walk.
#[derive(Debug)]
pub struct Room<'a> {
    /// For the numbers of the processes still to be visited.
    pub pending: &'a mut [i32],
    /// For one scan of `/proc`: (pid, parent).
    pub scanned: &'a mut [(i32, i32)],
}

/// Visits every process of the tree, parents first, each right after its children were read.
pub fn walk(scope: Scope<'_>, visit: &mut dyn FnMut(&Member)) -> Gaps {
    let (Ok(mut pending), Ok(mut scanned)) = (PENDING.try_lock(), SCANNED.try_lock()) else {
        return Gaps {
            errno: None,
            source: scope.start,
            disturbed: false,
        };
    };
    // Asked each time: a look that failed once does not make us blind for good.
    let kernel = Linux::new();
    let start = match scope.start {
        _ if !kernel.has_proc() => Source::Wait,
        Source::Wait => Source::Files,
        other => other,
    };
    let room = Room {
        pending: &mut pending[..],
        scanned: &mut scanned[..],
    };
    walk_in(&kernel, room, Scope { start, ..scope }, visit)
}

/// As [`walk`], in any kernel.
pub fn walk_in<K: Kernel>(
    kernel: &K,
    room: Room<'_>,
    scope: Scope<'_>,
    visit: &mut dyn FnMut(&Member<K::Handle>),
) -> Gaps {
    let Room { pending, scanned } = room;
    let mut walk = Walk {
        kernel,
        strangers: scope.strangers,
        without: scope.without,
        pending,
        len: 0,
        table: scanned,
        scanned: 0,
        source: scope.start,
        own: kernel.own(),
        errno: None,
        disturbed: !scope.watchful,
    };
    walk.run(visit);
    Gaps {
        errno: walk.errno,
        source: walk.source,
        disturbed: walk.disturbed,
    }
}

/// Walks, and again for as long as `walk` says that it may have missed a process, within limits.
pub fn repeat(now: &dyn Fn() -> Duration, walk: &mut dyn FnMut() -> bool) {
    let end = now() + WALKS_TIME;
    for _ in 0..WALKS {
        if !walk() || now() > end {
            break;
        }
    }
}

struct Walk<'a, K> {
    kernel: &'a K,
    strangers: &'a [i32],
    without: Option<i32>,
    pending: &'a mut [i32],
    len: usize,
    /// The scan, and how much of it is filled; 0 before.
    table: &'a mut [(i32, i32)],
    scanned: usize,
    source: Source,
    own: i32,
    errno: Option<Errno>,
    disturbed: bool,
}

impl<K: Kernel> Walk<'_, K> {
    fn run(&mut self, visit: &mut dyn FnMut(&Member<K::Handle>)) {
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
        let children = self.len;
        let mut first = 0;
        loop {
            while self.len == first {
                let Some(outer) = path.pop() else {
                    return self.count_again(children, &mut path);
                };
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
            // The orphans of a child of ours come to us, and are counted in the end. Those of a deeper process may
            // go to a subreaper in between.
            let ended = |handle| self.kernel.has_ended(handle);
            self.disturbed = self.disturbed || member.handle.as_ref().is_some_and(ended);
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

    /// A process can end and be reaped before the walk comes to its parent. Nothing of it is seen then, except that its
    /// children have become ours: there were `before` of these, and nothing reaps them during a walk.
    fn count_again(&mut self, before: usize, path: &mut Path<K::Handle>) {
        if !self.disturbed {
            self.scanned = 0;
            self.find_children(self.own, path);
            self.disturbed = self.len != before;
        }
    }

    fn is_left_out(&self, number: i32) -> bool {
        self.without.is_some() && self.kernel.group_of(number) == self.without
    }

    /// The process `number`, found among the children of the one before `depth` on the path (0: of us), if
    /// it is proven to be one.
    fn prove(
        &mut self,
        number: i32,
        path: &mut Path<K::Handle>,
        depth: usize,
    ) -> Option<Member<K::Handle>> {
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
        (parent_now == parent.pid.get() && self.is_unreaped(parent)).then_some(member)
    }

    /// A child of ours, whatever `/proc` says (it may be that of another PID namespace): wait knows.
    fn own_child(&self, pid: Pid) -> Option<Member<K::Handle>> {
        let ours = !self.strangers.contains(&pid.get()) && self.kernel.is_child(pid);
        ours.then_some(Member { pid, handle: None })
    }

    /// Appends the children of `pid` to the pending.
    fn find_children(&mut self, pid: i32, path: &mut Path<K::Handle>) {
        let own = pid == self.own;
        let len = self.len;
        while self.source == Source::Files {
            let each = &mut |child| push(self.pending, &mut self.len, child);
            match self.kernel.children(pid, each) {
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
            let scanned = self.table[..self.scanned].iter();
            for (child, _) in scanned.filter(|(_, parent)| *parent == pid) {
                push(self.pending, &mut self.len, *child);
            }
        }
    }

    /// Without any list: each child of ours as soon as it is found, since the search takes so long
    /// that the next one would have taken its place by the end.
    fn visit_own(&self, visit: &mut dyn FnMut(&Member<K::Handle>)) {
        self.kernel.own_children(&mut |pid| {
            if !self.strangers.contains(&pid.get()) {
                visit(&Member { pid, handle: None });
            }
        });
    }

    /// A number that is used again meanwhile is another process of the same namespace, which is ours too.
    /// False if not all numbers could be read.
    fn visit_all(&mut self, visit: &mut dyn FnMut(&Member<K::Handle>)) -> bool {
        let own = self.own;
        let result = self.kernel.processes(&mut |number| {
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
        let mut len = 0;
        let result = self.kernel.processes(&mut |number| {
            if let (Ok(parent), Some(slot)) = (self.kernel.parent(number), self.table.get_mut(len))
            {
                *slot = (number, parent);
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
    fn open(&self, pid: Pid) -> Result<(Member<K::Handle>, i32), Errno> {
        let member = Member {
            pid,
            handle: Some(self.kernel.open(pid)?),
        };
        let known = member
            .handle
            .as_ref()
            .map(|handle| self.kernel.parent_of(handle));
        match known {
            Some(Err(Errno::NOTTY)) | None => {}
            Some(parent) => return Ok((member, parent?)),
        }
        let parent = self.kernel.parent(pid.get())?;
        if self.is_unreaped(&member) {
            Ok((member, parent))
        } else {
            Err(Errno::SRCH)
        }
    }

    /// Whether its pid still is its own.
    fn is_unreaped(&self, member: &Member<K::Handle>) -> bool {
        let handle = member.handle.as_ref();
        handle.is_none_or(|handle| self.kernel.is_unreaped(handle))
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
