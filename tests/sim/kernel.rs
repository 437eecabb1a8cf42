//! The simulated kernel of a walk. It reads the process table, which changes with each system call.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

use treaper::sys::Errno;
use treaper::sys::pid::Pid;
use treaper::tree::kill::STOP_WALKS;
use treaper::tree::walk::{self, Gaps, Kernel, Member, Reach, Room, Scope, Search};

use super::table::{Process, Table, US};

/// What the kernel offers.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Lists of children.
    pub lists: bool,
    /// The parent of the process behind a handle.
    pub parents: bool,
    /// How many handles there can be at once.
    pub handles: usize,
    /// In each process a thread ends while the lists of its threads are read.
    pub threads_end: bool,
}

impl Features {
    pub const ALL: Self = Self {
        lists: true,
        parents: true,
        handles: 1000,
        threads_end: false,
    };
}

/// Refers to one process.
pub struct Handle {
    pid: u32,
    id: u64,
    /// Whether that process is not of the tree.
    pub outside: bool,
    open: Rc<Cell<usize>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}

pub struct Simulated<'a> {
    table: RefCell<&'a mut Table>,
    features: Features,
    open: Rc<Cell<usize>>,
}

impl<'a> Simulated<'a> {
    pub fn new(table: &'a mut Table, features: Features) -> Self {
        Self {
            table: RefCell::new(table),
            features,
            open: Rc::new(Cell::new(0)),
        }
    }

    pub fn table(&self) -> RefMut<'_, &'a mut Table> {
        self.table.borrow_mut()
    }

    /// How many handles there are now.
    pub fn handles(&self) -> usize {
        self.open.get()
    }

    /// The index of the process that a signal to `member` reaches, if it is still there.
    pub fn meant(&self, member: &Member<Handle>) -> Option<u32> {
        let table = self.table.borrow();
        match &member.handle {
            Some(handle) => behind(&table, handle).map(|_| handle.pid),
            None => Some(member.pid.get() as u32).filter(|pid| table.get(*pid).is_some()),
        }
    }

    /// One walk.
    pub fn walk(&self, strangers: &[i32], visit: &mut dyn FnMut(&Member<Handle>)) -> Gaps {
        self.walk_in(&mut [0; 4096], strangers, visit)
    }

    /// The same, with room for so many pending processes.
    pub fn walk_in(
        &self,
        pending: &mut [i32],
        strangers: &[i32],
        visit: &mut dyn FnMut(&Member<Handle>),
    ) -> Gaps {
        let room = Room {
            pending,
            scanned: &mut vec![(0, 0); 4096],
        };
        let scope = Scope {
            strangers,
            spares: &|_, _| false,
            start: Search::Files,
            reach: Reach::WatchedTree,
        };
        walk::walk_in(self, room, &mut Vec::new(), scope, visit)
    }

    /// Walks until no process may have been missed.
    pub fn repeat(&self, walk: &mut dyn FnMut() -> Gaps) {
        let now = || self.table.borrow().now;
        walk::repeat(&now, STOP_WALKS, &mut || walk().disturbed);
    }

    /// A system call. The other processes run meanwhile.
    fn call(&self) {
        let mut table = self.table();
        let end = table.now + table.rng.time(Duration::from_micros(10));
        table.advance(end);
    }

    /// A system call that needs a free descriptor.
    fn opening_call(&self) -> Result<(), Errno> {
        self.call();
        if self.open.get() < self.features.handles {
            Ok(())
        } else {
            Err(Errno::MFILE)
        }
    }
}

fn number(pid: u32) -> i32 {
    i32::try_from(pid).unwrap()
}

fn behind<'t>(table: &'t Table, handle: &Handle) -> Option<&'t Process> {
    let process = table.get(handle.pid)?;
    (process.id == handle.id).then_some(process)
}

impl Kernel for Simulated<'_> {
    type Handle = Handle;

    fn own(&self) -> i32 {
        number(US)
    }

    fn children(&self, pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        self.opening_call()?;
        if !self.features.lists {
            return Err(Errno::NOENT);
        }
        let table = self.table.borrow();
        if pid != number(US) && table.get(pid as u32).is_none() {
            return Err(Errno::NOENT);
        }
        table
            .children(pid as u32)
            .into_iter()
            .for_each(|child| each(number(child)));
        let ended = self.features.threads_end && pid != number(US);
        ended.then_some(Errno::SRCH).map_or(Ok(()), Err)
    }

    fn processes(&self, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        self.opening_call()?;
        let mut all: Vec<u32> = self.table.borrow().all().map(|(pid, _)| pid).collect();
        all.push(US);
        all.sort_unstable();
        for pid in all {
            each(number(pid));
        }
        Ok(())
    }

    fn own_children(&self, each: &mut dyn FnMut(Pid)) {
        let children = self.table.borrow().children(US);
        children
            .into_iter()
            .filter_map(|pid| Pid::new(number(pid)))
            .for_each(each);
    }

    fn open(&self, pid: Pid) -> Result<Handle, Errno> {
        self.opening_call()?;
        let pid = pid.get() as u32;
        let table = self.table.borrow();
        let process = table.get(pid).ok_or(Errno::SRCH)?;
        self.open.set(self.open.get() + 1);
        Ok(Handle {
            pid,
            id: process.id,
            outside: process.outside,
            open: self.open.clone(),
        })
    }

    fn parent_of(&self, handle: &Handle) -> Result<i32, Errno> {
        self.call();
        if !self.features.parents {
            return Err(Errno::NOTTY);
        }
        let table = self.table.borrow();
        behind(&table, handle)
            .map(|p| number(p.parent))
            .ok_or(Errno::SRCH)
    }

    fn parent(&self, pid: i32) -> Result<i32, Errno> {
        self.opening_call()?;
        if pid == number(US) {
            return Ok(0);
        }
        let table = self.table.borrow();
        table
            .get(pid as u32)
            .map(|p| number(p.parent))
            .ok_or(Errno::NOENT)
    }

    fn is_unreaped(&self, handle: &Handle) -> bool {
        self.call();
        behind(&self.table.borrow(), handle).is_some()
    }

    fn has_ended(&self, handle: &Handle) -> bool {
        self.call();
        behind(&self.table.borrow(), handle).is_none_or(|process| process.zombie)
    }

    fn is_child(&self, pid: Pid) -> bool {
        self.call();
        let table = self.table.borrow();
        table
            .get(pid.get() as u32)
            .is_some_and(|process| process.parent == US)
    }
}
