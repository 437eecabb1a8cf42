//! A walk that sees the whole tree at one instant. The project's own walk is searched in `tests/sim`.
use std::time::Duration;

use crate::actor::{self, Op, call};
use crate::sys::Errno;
use crate::sys::pid::Pid;
use crate::sys::signal::{self, Signal};
use crate::sys::wait::Wait;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    #[default]
    Files,
    Scan,
    Wait,
    Namespace,
}

pub struct Gaps {
    pub errno: Option<Errno>,
    pub search: Search,
    pub disturbed: bool,
    pub cut_short: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Children,
    Tree,
    WatchedTree,
}

pub struct Scope<'a> {
    pub strangers: &'a [i32],
    pub spares: &'a dyn Fn(Pid, bool) -> bool,
    pub start: Search,
    pub reach: Reach,
}

pub struct Member {
    pub pid: Pid,
    pub handle: Option<()>,
}

impl Member {
    pub fn send(&self, signal: Signal) -> Result<(), Errno> {
        signal::kill(self.pid, signal)
    }

    pub fn has_ended(&self) -> bool {
        Wait::child(self.pid).ended().has_come()
    }
}

pub fn walk(scope: Scope<'_>, visit: &mut dyn FnMut(&Member)) -> Gaps {
    let deep = scope.reach != Reach::Children;
    let strangers = scope.strangers.iter();
    let strangers = strangers.fold(0, |set, pid| set | 1 << actor::index(*pid));
    for pid in call(Op::Walk { deep, strangers }).pids() {
        if !scope.strangers.contains(&pid.get()) && !(scope.spares)(pid, false) {
            visit(&Member { pid, handle: None });
        }
    }
    Gaps {
        errno: None,
        search: scope.start,
        disturbed: false,
        cut_short: false,
    }
}

pub fn repeat(_: &dyn Fn() -> Duration, _: Duration, walk: &mut dyn FnMut() -> bool) {
    walk();
}
