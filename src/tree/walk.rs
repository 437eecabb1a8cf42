//! A walk of the tree finds the descendants of this process, and proves each before it is visited.
//! The walk goes depth first. The pid of a child cannot be recycled, since only this process reaps
//! it. A deeper process is opened first; then its parent must still be the process under which it
//! was found, and that one must not have been reaped. A process that fails this proof is not
//! visited: if it is of the tree, it is a child of this process by now, and the next walk finds it.
//! Children are read from `/proc/PID/task/TID/children`, or by one scan of `/proc`, or without it
//! by asking wait about every pid. In a PID namespace all is of the tree.

mod kernel;

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::sys::pid::Pid;
use crate::sys::{Errno, proc};
use kernel::Linux;
pub use kernel::{Kernel, Member};

/// The most walks in a row, each for processes that got another parent during the one before.
const MAX_WALKS: u32 = 16;

/// How many levels below the children of this process a walk goes. It holds a descriptor for each,
/// so with a low limit of open files it ends higher up.
const LEVELS: usize = 256;

const ROOM: usize = 64 * 1024;

/// The two parts of [`Room`]. Static, since a walk must not need an allocation.
static MEMORY: Mutex<Memory> = Mutex::new(([0; ROOM], [(0, 0); ROOM]));
type Memory = ([i32; ROOM], [(i32, i32); ROOM]);
/// The path of each walk. Only the first one allocates it.
static PATH: Mutex<Vec<Frame<OwnedFd>>> = Mutex::new(Vec::new());

/// How the children of a process are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// `/proc/PID/task/TID/children`
    #[default]
    Files,
    /// One scan of `/proc/*/stat` for each walk.
    Scan,
    /// `waitid` over all pids.
    Wait,
    /// For the init of a PID namespace: all processes that `/proc` lists are of the tree.
    Namespace,
}

/// What a walk could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// The last error by which a process may have been missed, other than that one is gone.
    pub errno: Option<Errno>,
    pub search: Search,
    /// A process ended or got another parent during the walk, so its children may have been missed.
    pub disturbed: bool,
    /// There was no room or no descriptor for all. What is left is found when others have ended.
    pub cut_short: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only the children of this process. It costs no look into `/proc` for each of them.
    Children,
    Tree,
    /// The tree. Only this one learns whether it was disturbed; the others say that they were.
    WatchedTree,
}

#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Children from before this process executed treaper: they and what is below are not visited.
    pub strangers: &'a [i32],
    /// Whether a process of the tree is spared, and not visited. The flag: its parent is spared.
    pub spares: &'a dyn Fn(Pid, bool) -> bool,
    /// How the children are found at first.
    pub start: Search,
    pub reach: Reach,
}

pub struct Room<'a> {
    pub pending: &'a mut [i32],
    /// One scan of `/proc`: (pid, parent).
    pub scanned: &'a mut [(i32, i32)],
}

/// Visits every process of the tree, parents first, each right after its children were read.
pub fn walk(scope: Scope<'_>, visit: &mut dyn FnMut(&Member)) -> Gaps {
    // They are free: no thread and no walk is beside this one.
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut path = PATH.lock().unwrap_or_else(PoisonError::into_inner);
    let (pending, scanned) = &mut *memory;
    // `/proc` is tried again at each walk, even if it could not be used the last time.
    let kernel = Linux(proc::view());
    let start = match scope.start {
        _ if kernel.0.is_err() => Search::Wait,
        Search::Wait => Search::Files,
        other => other,
    };
    let room = Room { pending, scanned };
    walk_in(&kernel, room, &mut path, Scope { start, ..scope }, visit)
}

/// As [`walk`], in any kernel. `path`: is empty before and after it.
pub fn walk_in<K: Kernel>(
    kernel: &K,
    room: Room<'_>,
    path: &mut Vec<Frame<K::Handle>>,
    scope: Scope<'_>,
    visit: &mut dyn FnMut(&Member<K::Handle>),
) -> Gaps {
    let mut walk = Walk {
        kernel,
        gaps: Gaps {
            errno: None,
            search: scope.start,
            disturbed: scope.reach != Reach::WatchedTree,
            cut_short: false,
        },
        scope,
        room,
        len: 0,
        scanned: 0,
        own: kernel.own(),
    };
    walk.run(path, visit);
    walk.gaps
}

/// Calls `walk` again while it returns that it may have missed a process, within limits. No walk
/// begins after `time`: processes that keep forking could otherwise make the walks endless.
pub fn repeat(now: &dyn Fn() -> Duration, time: Duration, walk: &mut dyn FnMut() -> bool) {
    let end = now() + time;
    for _ in 0..MAX_WALKS {
        if !walk() || now() > end {
            break;
        }
    }
}

/// A process whose children are visited now.
pub struct Frame<H> {
    member: Member<H>,
    spared: bool,
    /// The index among the pending ones at which the children of the process above it begin.
    outer: usize,
}

struct Walk<'a, K> {
    kernel: &'a K,
    scope: Scope<'a>,
    room: Room<'a>,
    /// How many processes are pending.
    len: usize,
    /// How many the scan has found; 0 before it.
    scanned: usize,
    own: i32,
    gaps: Gaps,
}

impl<K: Kernel> Walk<'_, K> {
    fn run(&mut self, path: &mut Vec<Frame<K::Handle>>, visit: &mut dyn FnMut(&Member<K::Handle>)) {
        let is_deep = self.scope.reach != Reach::Children;
        if self.gaps.search == Search::Namespace {
            if is_deep && self.visit_all(visit) {
                return;
            }
            // The init of a namespace has a list of children, too, which is shorter.
            self.gaps.search = Search::Files;
        }
        // Without memory a walk visits only the children of this process. As these end, their
        // orphans become children of this process, so all are visited in the end.
        let _ = path.try_reserve_exact(LEVELS);
        self.find_children(self.own);
        if self.gaps.search == Search::Wait {
            // Each child is visited as soon as it is found: later, it may have been replaced.
            return self.kernel.own_children(&mut |pid| {
                let is_stranger = self.scope.strangers.contains(&pid.get());
                if !is_stranger && !(self.scope.spares)(pid, false) {
                    visit(&Member { pid, handle: None });
                }
            });
        }
        let (children, mut first) = (self.len, 0);
        loop {
            while self.len == first {
                let Some(frame) = path.pop() else {
                    return self.count_again(children);
                };
                first = frame.outer;
            }
            self.len -= 1;
            let (number, parent) = (self.room.pending[self.len], path.last());
            let Some(member) = self.prove(number, parent.map(|parent| &parent.member)) else {
                self.gaps.disturbed |=
                    !self.gaps.cut_short && !self.scope.strangers.contains(&number);
                continue;
            };
            let spared = (self.scope.spares)(member.pid, parent.is_some_and(|above| above.spared));
            let len = self.len;
            if is_deep {
                self.find_children(member.pid.get());
            }
            // The orphans of a child become children of this process, and are counted in the end.
            // Those of a deeper process can become children of a subreaper in between.
            let ended = |handle| self.kernel.has_ended(handle);
            self.gaps.disturbed = self.gaps.disturbed || member.handle.as_ref().is_some_and(ended);
            if !spared {
                visit(&member);
            }
            if self.len > len && path.len() < path.capacity() {
                path.push(Frame {
                    member,
                    spared,
                    outer: first,
                });
                first = len;
            } else if self.len > len {
                // Too deep for one walk.
                self.len = len;
                self.gaps.cut_short = true;
            }
        }
    }

    /// A process can end and be reaped before the walk comes to its parent. Then the only trace is
    /// that this process, which reaps none during a walk, has more children than `before`.
    fn count_again(&mut self, before: usize) {
        if !self.gaps.disturbed {
            self.scanned = 0;
            self.find_children(self.own);
            self.gaps.disturbed = self.len != before;
        }
    }

    /// The process `number`, if it is proven to be a child of `parent` (`None`: of this process).
    fn prove(
        &mut self,
        number: i32,
        parent: Option<&Member<K::Handle>>,
    ) -> Option<Member<K::Handle>> {
        let pid = Pid::new(number).filter(|pid| pid.get() != self.own)?;
        let Some(parent) = parent else {
            return self.own_child(pid);
        };
        let opened = self.open(pid).inspect_err(|errno| self.record_gap(*errno));
        let (handle, parent_now) = opened.ok()?;
        if parent_now == self.own {
            // Its parent has ended meanwhile, and it has become a child of this process.
            self.gaps.disturbed = true;
            return self.own_child(pid);
        }
        // The pid of the parent has to be its own still.
        let is_unreaped = |handle| self.kernel.is_unreaped(handle);
        let is_its_child =
            parent_now == parent.pid.get() && parent.handle.as_ref().is_none_or(is_unreaped);
        let handle = Some(handle);
        is_its_child.then_some(Member { pid, handle })
    }

    /// `pid`, if wait says that it is a child: `/proc` may be that of another PID namespace.
    fn own_child(&self, pid: Pid) -> Option<Member<K::Handle>> {
        let is_member = !self.scope.strangers.contains(&pid.get()) && self.kernel.is_child(pid);
        is_member.then_some(Member { pid, handle: None })
    }

    /// Appends the children of `pid` to the pending ones.
    fn find_children(&mut self, pid: i32) {
        let (kernel, own, len) = (self.kernel, pid == self.own, self.len);
        match self.gaps.search {
            Search::Files => match kernel.children(pid, &mut |child| self.append(child)) {
                listed @ (Ok(()) | Err(Errno::SRCH)) => {
                    self.gaps.disturbed |= listed.is_err();
                    return;
                }
                Err(Errno::NOENT) if !own => return,
                // Only this one is scanned for: a scan finds no hidden process, but a list does.
                Err(Errno::PERM) if !own => {}
                Err(Errno::NOSYS | Errno::NOENT | Errno::PERM | Errno::ACCESS) => {
                    self.gaps.search = Search::Scan;
                }
                Err(errno) => {
                    // Out of descriptors or memory. Children that were read so far are kept, but
                    // those of this process must all be found.
                    self.record_gap(errno);
                    if !own {
                        return;
                    }
                    self.gaps.search = Search::Scan;
                }
            },
            Search::Scan => {}
            Search::Wait | Search::Namespace => return,
        }
        self.len = len;
        if self.scanned == 0 {
            self.scan();
        }
        for at in 0..self.scanned {
            let (child, parent) = self.room.scanned[at];
            if parent == pid {
                self.append(child);
            }
        }
    }

    /// Appends a process to the pending ones. Without room, another walk has to come to it.
    fn append(&mut self, number: i32) {
        if let Some(slot) = self.room.pending.get_mut(self.len) {
            *slot = number;
            self.len += 1;
        } else {
            self.gaps.cut_short = true;
        }
    }

    /// Visits all processes of the namespace: a recycled pid is of the tree as well. Returns false
    /// if the list could not be read to its end.
    fn visit_all(&mut self, visit: &mut dyn FnMut(&Member<K::Handle>)) -> bool {
        let result = self.kernel.processes(&mut |number| {
            if let Some(pid) = Pid::new(number).filter(|pid| pid.get() != self.own) {
                visit(&Member { pid, handle: None });
            }
        });
        result.inspect_err(|errno| self.record_gap(*errno)).is_ok()
    }

    fn scan(&mut self) {
        let result = self.kernel.processes(&mut |number| {
            let slot = self.room.scanned.get_mut(self.scanned);
            if let (Ok(parent), Some(slot)) = (self.kernel.parent(number), slot) {
                *slot = (number, parent);
                self.scanned += 1;
            }
        });
        let _ = result.inspect_err(|errno| self.record_gap(*errno));
        // An empty list cannot be right: `/proc` is not there, or hides even this process. Further
        // down the walk may only be out of descriptors.
        if self.scanned == 0 && self.gaps.search == Search::Scan {
            self.gaps.search = Search::Wait;
        }
    }

    /// Opens a process and reads its parent, which is not that of a later one with the same pid.
    fn open(&self, pid: Pid) -> Result<(K::Handle, i32), Errno> {
        let handle = self.kernel.open(pid)?;
        let mut parent = self.kernel.parent_of(&handle);
        if parent == Err(Errno::NOTTY) {
            parent = self.kernel.parent(pid.get());
            if parent.is_ok() && !self.kernel.is_unreaped(&handle) {
                return Err(Errno::SRCH);
            }
        }
        Ok((handle, parent?))
    }

    fn record_gap(&mut self, errno: Errno) {
        if !matches!(errno, Errno::SRCH | Errno::NOENT) {
            self.gaps.errno = Some(errno);
            self.gaps.cut_short |= matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
        }
    }
}
