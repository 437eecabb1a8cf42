//! A simulated world for the loop: walks that take time while the tree changes, triggers, unread input, and the death
//! of the monitor at any call. It records what the loop does.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use treaper::pair::board::Board;
use treaper::plan::event::{Action, Event, Trigger};
use treaper::plan::machine::{Plan, State, World};
use treaper::tree::walk::Member;

use super::kernel::{Features, Handle, Simulated};
use super::table::{SERVER, Table};

/// Leaves the loop by unwinding: this process was killed.
pub struct Killed;

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, in any combination"
)]
pub struct Sim {
    pub table: Table,
    /// The triggers to come, the earliest first.
    pub triggers: VecDeque<(Duration, Trigger)>,
    /// When Ctrl-C is pressed.
    pub keys: VecDeque<Duration>,
    /// The server has disarmed its parent-death signal.
    pub disarmed: bool,
    /// The kernel seems to have signalled the server at the monitor's death.
    seems_told: bool,
    /// The server reads this many bytes of stdin at each of these times.
    pub input: VecDeque<(Duration, u64)>,
    pub unread: u64,
    /// When stdin, once it has hung up, gets another writer.
    pub next_writer: Option<Duration>,
    /// When input was read last.
    pub taken_at: Option<Duration>,
    pub board: Board,
    /// The number of the call at which the monitor is killed.
    pub killed_at_call: Option<u64>,
    calls: u64,
    reap_first: bool,
    /// The processes that a round of SIGKILL has met.
    met: BTreeSet<u32>,
    /// The server has been reaped.
    pub server_gone: Option<Duration>,
    /// Every action, with the time at which it was ordered.
    pub done: Vec<(Duration, Action)>,
    /// When the loop has got the first trigger, and the one that stops the server.
    pub triggered: Option<(Duration, Trigger)>,
    /// Triggers that change a grace period, each with its last time.
    pub shim_killed: Option<Duration>,
    /// When Ctrl-C was pressed after the message that offers it, for the first time.
    pub pressed: Option<Duration>,
    pub last_end: Option<Duration>,
    /// The last one that the loop has got.
    pub plan: Option<Plan>,
    /// How long the longest action took: the loop cannot react meanwhile.
    pub busy: Duration,
}

impl Sim {
    pub fn new(table: Table, board: Board) -> Self {
        Self {
            table,
            triggers: VecDeque::new(),
            keys: VecDeque::new(),
            disarmed: false,
            seems_told: false,
            input: VecDeque::new(),
            unread: 0,
            next_writer: None,
            taken_at: None,
            board,
            killed_at_call: None,
            calls: 0,
            reap_first: false,
            met: BTreeSet::new(),
            server_gone: None,
            done: Vec::new(),
            triggered: None,
            shim_killed: None,
            pressed: None,
            last_end: None,
            plan: None,
            busy: Duration::ZERO,
        }
    }

    /// The monitor is gone: the shim adopts the tree. The kernel has sent the server the stop signal, unless that was
    /// disarmed.
    pub fn inherit(&mut self) {
        self.killed_at_call = None;
        self.reap_first = true;
        // The death of the monitor ends a drain as well.
        let last = self.plan.take().map(|plan| plan.state);
        if matches!(last, Some(State::Draining { .. })) {
            self.triggered = Some((self.table.now, Trigger::MonitorKilled));
        }
        self.last_end = Some(self.table.now);
        self.seems_told = !self.board.stop_sent.get();
        if !self.disarmed {
            self.table.stop_signal(SERVER);
        }
    }

    fn overdue(&self) -> Event {
        Event::Deadline {
            unread: self.unread,
            hung_up: self.next_writer.is_none_or(|at| at > self.table.now),
        }
    }

    fn call(&mut self) {
        self.calls += 1;
        if self.killed_at_call == Some(self.calls) {
            std::panic::resume_unwind(Box::new(Killed));
        }
    }

    fn reap(&mut self) -> Event {
        let server_gone = self.table.reap();
        self.table.sigchld = false;
        if server_gone {
            self.server_gone = Some(self.table.now);
            self.board.set_ended(treaper::sys::wait::Ended::Exited(0));
        }
        Event::Reaped {
            server_gone,
            empty: self.table.is_empty(),
        }
    }

    /// Lets time pass up to `time`: the server reads, and the tree changes.
    fn advance(&mut self, time: Duration) {
        while let Some((at, bytes)) = pop_due(&mut self.input, time) {
            self.table.advance(at);
            let reads = self
                .table
                .get(SERVER)
                .is_some_and(|server| !server.zombie && !server.habits.stopped);
            if reads && self.unread > 0 {
                self.unread = self.unread.saturating_sub(bytes);
                self.taken_at = Some(at);
            }
        }
        self.table.advance(time);
    }

    /// Walks, and walks again if `repeats` and processes got another parent meanwhile. The tree changes during the
    /// walk.
    fn walk(&mut self, repeats: bool, visit: &mut dyn FnMut(&mut Table, u32)) {
        let kernel = Simulated::new(&mut self.table, Features::ALL);
        let visit = &mut |member: &Member<Handle>| {
            if let Some(pid) = kernel.meant(member) {
                visit(&mut kernel.table(), pid);
            }
        };
        if repeats {
            kernel.repeat(&mut || kernel.walk(&[], visit));
        } else {
            kernel.walk(&[], visit);
        }
        self.advance(self.table.now);
    }
}

/// The first of `queue`, if its time has come.
fn pop_due<T: Copy>(queue: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<(Duration, T)> {
    let first = *queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front();
    Some(first)
}

impl World for Sim {
    fn now(&self) -> Duration {
        self.table.now
    }

    fn next_event(&mut self, deadline: Option<Duration>) -> Event {
        self.call();
        if std::mem::take(&mut self.reap_first) {
            return self.reap();
        }
        loop {
            // A deadline that has come is reported before any other event.
            if deadline.is_some_and(|at| at <= self.table.now) {
                return self.overdue();
            }
            if let Some((_, trigger)) = pop_due(&mut self.triggers, self.table.now) {
                let now = self.table.now;
                self.triggered = self.triggered.or(Some((now, trigger)));
                if matches!(trigger, Trigger::ShimKilled | Trigger::RelayKilled) {
                    self.shim_killed = Some(now);
                }
                if trigger.is_end_of_process() {
                    self.last_end = Some(now);
                }
                return Event::Trigger(trigger);
            }
            if self.keys.front().is_some_and(|at| *at <= self.table.now) {
                self.keys.pop_front();
                let offered = self.board.named.get().then_some(self.table.now);
                self.pressed = self.pressed.or(offered);
                return Event::KillNow;
            }
            if self.table.sigchld {
                return self.reap();
            }
            let sources = [
                deadline,
                self.table.next(),
                self.triggers.front().map(|(at, _)| *at),
                self.keys.front().copied(),
                self.input.front().map(|(at, _)| *at),
            ];
            let next = sources.into_iter().flatten().min();
            let Some(next) = next else {
                panic!("it would sleep without an end: {:#?}", self.table);
            };
            // A wake-up without a reason, as after a suspension.
            if deadline.is_some() && self.table.rng.percent(2) {
                return self.overdue();
            }
            self.advance(next);
        }
    }

    fn planned(&mut self, event: Event, before: &Plan, after: &Plan) {
        if let Some(last) = self.plan {
            assert_eq!(last, *before, "a plan was not reported");
        }
        self.plan = Some(*after);
        self.board.set_plan(after);
        if after.trigger.is_none() {
            self.triggered = None;
        }
        // A trigger that ends a drain replaces the one that began it.
        match (before.state, event, &mut self.triggered) {
            (State::Draining { .. }, Event::Trigger(by), Some((_, trigger))) if !by.drains() => {
                *trigger = by;
            }
            _ => {}
        }
        if let (None, Some(trigger)) = (before.trigger, after.trigger) {
            self.triggered = self.triggered.or(Some((self.table.now, trigger)));
        }
        self.call();
    }

    fn apply(&mut self, _: &Plan, action: Action) -> Option<Event> {
        let began = self.table.now;
        let mut answer = None;
        self.done.push((began, action));
        match action {
            Action::StopServer if self.seems_told => {}
            Action::StopServer | Action::EnsureServerStop => {
                if self.server_gone.is_none() && !self.board.stop_sent.get() {
                    self.table.stop_signal(SERVER);
                    self.table.go_on(SERVER);
                    self.board.stop_sent.set(true);
                }
            }
            Action::NameWaiting => self.board.named.set(true),
            Action::StopRest => {
                let mut signalled = BTreeSet::from([SERVER]);
                self.walk(true, &mut |table, pid| {
                    if signalled.insert(pid) {
                        table.stop_signal(pid);
                        table.go_on(pid);
                    }
                });
            }
            Action::KillAll => {
                let met_before = self.met.len();
                let mut met = std::mem::take(&mut self.met);
                self.walk(false, &mut |table, pid| {
                    met.insert(pid);
                    table.kill(pid);
                });
                let progress = met.len() > met_before;
                self.met = met;
                answer = Some(Event::Swept { progress });
                self.reap_first = true;
            }
            Action::NameSurvivors => {}
        }
        self.busy = self.busy.max(self.table.now.saturating_sub(began));
        self.call();
        answer
    }
}
