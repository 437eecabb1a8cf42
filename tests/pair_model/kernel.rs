//! The kernel of the model: processes, signals, waits and the board. One call, one event or one death is one step.

mod streams;

use std::time::Duration;

use treaper::plan::event::Trigger;
use treaper::plan::machine::{Plan, State};
use treaper::plan::record::{self, TIMES};
use treaper::sys::Errno;
use treaper::sys::signal::Signal;
use treaper::sys::wait::Ended;

use crate::actor::{
    CHILD, Cause, Changed, ERR, GRACE, HOST, HUP as HUNG_UP, Info, KILL_TIMEOUT, MONITOR, OUTSIDE,
    Op, POLICY, Reply, SERVER, SHIM, Scene,
};
use crate::pair::board::Board;
use crate::sys::shared::Named;
use crate::sys::wait::{ENDED, RESUMED, SUSPENDED};
use streams::Streams;

/// What can happen from outside, at any instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    HostDies,
    /// SIGTERM to the shim.
    Terminate,
    KillShim,
    KillMonitor,
    /// SIGSTOP.
    SuspendShim,
    SuspendMonitor,
    /// SIGCONT.
    ResumeShim,
    ResumeMonitor,
    /// With status 7.
    ServerExits,
    /// SIGTSTP of the terminal to the job.
    CtrlZ,
    /// SIGCONT of the shell to the job.
    Foreground,
    /// SIGTSTP of another process to the server alone.
    SuspendServer,
    /// SIGSTOP.
    FreezeServer,
    ResumeServer,
    /// Of the process in front of treaper.
    KillRelay,
    /// It reports a cancelled turn that did not end in time.
    TimesOut,
    /// The other end of stdin is closed.
    CloseStdin,
}

pub const EVENTS: usize = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Unborn,
    Alive,
    Zombie(Ended),
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub life: Life,
    pub parent: u8,
    subreaper: bool,
    /// Its parent-death signal.
    at_parents_death: Option<Signal>,
    /// Its end sends SIGCONT to its parent, and not SIGCHLD.
    ends_by_cont: bool,
    /// The signal that has suspended it.
    pub suspended: Option<u8>,
    /// What its parent can learn by `wait`.
    news: Option<Changed>,
    pending: [Option<Info>; WAITING.len()],
    /// SIGKILL was sent, and the process has not ended yet.
    doomed: bool,
    /// How far the new process has come on its way to an exec.
    phase: u8,
    /// Shim and monitor: the answers to its calls, see `actor.rs`.
    pub node: u32,
}

/// Signals that can wait, in the order in which the kernel hands them out.
const WAITING: [u8; 6] = [1, 2, 15, 17, 18, 20];
const HUP: u8 = 1;
const TERM: u8 = 15;
const CHLD: u8 = 17;
const CONT: u8 = 18;
const TSTP: u8 = 20;
const KILL: u8 = 9;
const STOP: u8 = 19;
/// An exec is done.
const RUNS: u8 = 4;

const UNBORN: Process = Process {
    life: Life::Unborn,
    parent: OUTSIDE,
    subreaper: false,
    at_parents_death: None,
    ends_by_cont: false,
    suspended: None,
    news: None,
    pending: [None; WAITING.len()],
    doomed: false,
    phase: 0,
    node: 0,
};

impl Process {
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }

    fn exists(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Zombie(_))
    }

    fn slot(&mut self, signal: u8) -> &mut Option<Info> {
        let at = WAITING.iter().position(|known| *known == signal);
        &mut self.pending[at.expect("a signal of the model")]
    }
}

/// Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    pub processes: [Process; OUTSIDE as usize + 1],
    pub board: [u64; WORDS_IN_ALL],
    pub now: u64,
    events: [u8; EVENTS],
    kills: u8,
    /// The shim has asked for its parent. No process can know of a host that has ended before.
    has_looked: bool,
    /// There is a byte in the bell.
    bell: bool,
    /// The shim has taken a request to stop.
    was_asked: bool,
    /// When the first reason to stop came.
    reason: Option<u64>,
    server_ended: Option<Ended>,
    /// The monitor has taken the status of the server.
    monitor_has_status: bool,
    /// And has written it to the board.
    monitor_told_status: bool,
    /// Another process has resumed the monitor while both were suspended.
    owes_resumption: bool,
    /// How often treaper has sent the stop signal to the server.
    stops_sent: u8,
    /// The server has got it, from treaper or from the kernel.
    was_stopped: bool,
    /// SIGKILL was sent to the tree.
    sigkill: Option<u64>,
    pub killed: [bool; 2],
    /// Another process than treaper has suspended one of these: shim, monitor.
    meddled: [bool; 2],
    pub streams: Streams,
    /// The triggers that have happened, as a set.
    reasons: u16,
    /// Which promise is broken.
    pub broken: Option<&'static str>,
}

const NAMED_WORDS: usize = Board::NAMES.len();
/// The words in the two halves of the plan's times come after those with a name of their own.
pub const FIRST_TIME: usize = NAMED_WORDS;
const WORDS_IN_ALL: usize = NAMED_WORDS + 2 * TIMES;
/// The bit of the word `plan` that says which half belongs to it.
const HALF: u64 = 1 << 63;

/// The names of all words, in their order.
pub fn name(word: u8) -> &'static str {
    Board::NAMES
        .get(usize::from(word))
        .map_or("a time", |name| name)
}

fn word(of: &str) -> usize {
    let at = (0..NAMED_WORDS).find(|at| name(*at as u8) == of);
    at.unwrap_or_else(|| panic!("there is no word {of}"))
}

thread_local! {
    static WORDS: [usize; 5] = [
        "server",
        "ended",
        "failure",
        "stop_sent",
        "plan",
    ]
    .map(word);
}

fn at(word: usize) -> usize {
    WORDS.with(|words| words[word])
}
const PLAN: usize = 4;
/// Input that the server reads during a drain prolongs it by this.
const INPUT_CHECK: Duration = Duration::from_millis(50);

/// What a step does, for the list of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Call(u8),
    /// The new process on its way to the exec, a stop signal that takes effect, or a process that SIGKILL ends.
    Tree(u8),
    Event(Event),
    /// Nothing can happen before this time.
    Time(u64),
}

impl Kernel {
    pub fn new(scene: &Scene) -> Self {
        let mut processes = [UNBORN; OUTSIDE as usize + 1];
        for there in [HOST, OUTSIDE] {
            processes[there as usize].life = Life::Alive;
        }
        processes[SHIM as usize].life = Life::Alive;
        processes[SHIM as usize].parent = HOST;
        let mut events = [0; EVENTS];
        for (event, count) in scene.events {
            events[*event as usize] = *count;
        }
        Self {
            processes,
            board: [0; WORDS_IN_ALL],
            now: 1_000_000_000,
            events,
            kills: scene.kills,
            has_looked: false,
            bell: false,
            was_asked: false,
            reason: None,
            server_ended: None,
            monitor_has_status: false,
            monitor_told_status: false,
            owes_resumption: false,
            stops_sent: 0,
            was_stopped: false,
            sigkill: None,
            killed: [false; 2],
            meddled: [false; 2],
            streams: Streams::default(),
            reasons: 0,
            broken: None,
        }
    }

    pub fn process(&self, of: u8) -> &Process {
        &self.processes[of as usize]
    }

    fn change(&mut self, of: u8) -> &mut Process {
        &mut self.processes[of as usize]
    }

    fn is_alive(&self, of: u8) -> bool {
        self.process(of).is_alive()
    }

    fn breaks(&mut self, promise: &'static str) {
        self.broken = self.broken.or(Some(promise));
    }

    fn note_reason(&mut self) {
        self.note_reason_at(self.now);
    }

    fn note_reason_at(&mut self, at: u64) {
        self.reason = Some(self.reason.map_or(at, |before| before.min(at)));
    }

    /// A trigger has happened.
    fn happened(&mut self, trigger: Trigger) {
        self.reasons |= 1 << trigger as u16;
    }

    fn has_happened(&self, trigger: Trigger) -> bool {
        self.reasons & 1 << trigger as u16 != 0
    }

    /// Whether it makes no difference to any promise at which instant a call is done, so that it needs no step of its own:
    /// nothing that can still happen changes its answer, and no process that can still look sees what it changes.
    pub fn is_private(&self, scene: &Scene, own: u8, op: &Op) -> bool {
        let comes = |event: Event| self.comes(event);
        let monitor_stays = self.monitor_stays();
        let shim_stays = !comes(Event::KillShim) || self.kills == 0 || !self.is_alive(SHIM);
        let host_stays = !comes(Event::HostDies) || !self.is_alive(HOST);
        let is_word = |word: u8, names: &[&str]| names.contains(&name(word));
        let job = scene.job_control;
        match op {
            Op::Now | Op::BecomeSubreaper | Op::Send | Op::State { of: OUTSIDE } => true,
            Op::HasHungUp => !comes(Event::CloseStdin) && !comes(Event::KillRelay),
            Op::Parent if own == SHIM => self.has_looked && host_stays,
            Op::Parent => shim_stays && !scene.hopeless,
            // No scene has a Ctrl-C, and what is done with the terminal at the end is left out.
            Op::Swap { word, .. } if is_word(*word, &["kill_now"]) => true,
            Op::Set { word, .. } if is_word(*word, &["in_foreground"]) => true,
            Op::Swap { word, .. } if is_word(*word, &["host_gone"]) => {
                self.is_alive(HOST) && host_stays
            }
            Op::Set { word, value } if self.board[*word as usize] == *value => true,
            // No process reads a half that does not belong to the plan.
            Op::Set { word, .. } if usize::from(*word) >= FIRST_TIME => {
                let upper = usize::from(*word) >= FIRST_TIME + TIMES;
                upper != (self.board[at(PLAN)] & HALF != 0)
            }
            // It is written once.
            Op::Get { word } if is_word(*word, &["server"]) => self.board[*word as usize] != 0,
            Op::Get { word } => {
                let by_monitor = [
                    "ended",
                    "plan",
                    "a time",
                    "suspension",
                    "gave_up",
                    "stop_sent",
                    "named",
                    "in_foreground",
                ];
                let by_shim = ["suspending"];
                let own_word = is_word(
                    *word,
                    if own == MONITOR {
                        &by_monitor
                    } else {
                        &by_shim
                    },
                );
                let last = is_word(*word, &by_monitor) && !self.is_alive(MONITOR);
                let unused = !job && is_word(*word, &["suspension"])
                    || !scene.hopeless && is_word(*word, &["gave_up"]);
                own_word || last || unused
            }
            // Only the heir reads these.
            Op::Set { word, .. } if own == MONITOR && monitor_stays => {
                let for_heir = ["ended", "stop_sent", "named"];
                is_word(*word, &for_heir)
            }
            // As an heir it is alone.
            Op::Set { .. } => own == SHIM && !self.is_alive(MONITOR),
            _ => false,
        }
    }

    fn comes(&self, event: Event) -> bool {
        self.events[event as usize] > 0
    }

    /// Whether the monitor is not killed any more.
    fn monitor_stays(&self) -> bool {
        !self.comes(Event::KillMonitor) || self.kills == 0 || !self.is_alive(MONITOR)
    }

    /// Every step that can come next.
    pub fn steps(&self, scene: &Scene, op: &dyn Fn(u32) -> Op) -> Vec<Step> {
        let mut steps = Vec::new();
        for own in ACTORS {
            let process = self.process(own);
            if self.runs(own)
                && self
                    .clone()
                    .perform(scene, own, &op(process.node))
                    .is_some()
            {
                steps.push(Step::Call(own));
            }
        }
        for of in [SERVER, CHILD] {
            if self.clone().live(scene, of) {
                steps.push(Step::Tree(of));
            }
        }
        let waits = steps
            .iter()
            .all(|step| matches!(step, Step::Tree(of) if self.may_be_slow(*of)));
        if waits {
            let limits = ACTORS.map(|own| {
                let process = self.process(own);
                self.runs(own)
                    .then(|| match op(process.node) {
                        Op::TakeSignal { until } | Op::Poll { until, .. } => until,
                        Op::Pause { until } => Some(until),
                        _ => None,
                    })
                    .flatten()
            });
            if let Some(at) = limits.into_iter().flatten().min() {
                steps.push(Step::Time(at));
            }
        }
        for event in ALL {
            if self.events[event as usize] > 0 && self.clone().happens(scene, event) {
                steps.push(Step::Event(event));
            }
        }
        steps
    }

    /// Whether a process of treaper goes on.
    pub fn runs(&self, own: u8) -> bool {
        let process = self.process(own);
        process.is_alive() && process.suspended.is_none()
    }

    /// A server takes any time to obey the stop signal. SIGKILL takes none.
    fn may_be_slow(&self, of: u8) -> bool {
        !self.process(of).doomed && self.process(of).phase == RUNS
    }

    /// Does a call. `None`: it waits.
    pub fn perform(&mut self, scene: &Scene, own: u8, op: &Op) -> Option<Reply> {
        let result = |done: Result<(), Errno>| done.map_or_else(Reply::Failed, |()| Reply::Done);
        Some(match *op {
            Op::Now => Reply::Number(self.now),
            Op::Pause { until } if self.now < until => return None,
            Op::Pause { .. } => Reply::Done,
            Op::TakeSignal { until } => {
                let found = self
                    .change(own)
                    .pending
                    .iter_mut()
                    .find(|slot| slot.is_some());
                let taken = found.and_then(Option::take);
                if taken.is_none() && until.is_none_or(|until| self.now < until) {
                    return None;
                }
                let asked = taken.is_some_and(|info| matches!(info.signal, HUP | TERM));
                self.was_asked |= own == SHIM && asked;
                Reply::Signal(taken)
            }
            Op::Poll { ref objects, until } => {
                let found = objects.iter().rev().fold(0, |found, (object, asked)| {
                    let reported = self.ready(own, *object) & (asked | ERR | HUNG_UP);
                    found << 4 | u64::from(reported)
                });
                if found == 0 && until.is_none_or(|until| self.now < until) {
                    return None;
                }
                Reply::Number(found)
            }
            Op::Get { word } => Reply::Number(self.board[word as usize]),
            Op::Set { word, value } => {
                self.monitor_told_status |= own == MONITOR && name(word) == "ended";
                self.write(word, value);
                Reply::Done
            }
            Op::Swap { word, value } => {
                let before = self.board[word as usize];
                self.write(word, value);
                Reply::Number(before)
            }
            Op::Signal { to, signal } => result(self.signal(own, to, signal.number())),
            Op::SignalGroup { of, signal } => result(self.signal(own, of, signal.number())),
            Op::Deliver { signal } => {
                let waits = self.change(own).slot(signal.number()).take();
                // In an orphaned process group job control suspends nothing.
                if waits.is_some() && self.is_alive(HOST) {
                    self.suspend(own, signal.number());
                }
                Reply::Done
            }
            Op::JobStopWaits => {
                let waits = self.change(own).slot(TSTP).is_some();
                Reply::Number(if waits { TSTP.into() } else { 0 })
            }
            Op::TakeResumption => {
                Reply::Number(u64::from(self.change(own).slot(CONT).take().is_some()))
            }
            Op::Ring if !self.is_alive(SHIM) => Reply::Failed(Errno::PIPE),
            Op::Ring => {
                if !std::mem::replace(&mut self.bell, true) {
                    self.deliver(SHIM, CONT, OUTSIDE, Cause::Child);
                }
                Reply::Done
            }
            Op::Silence => {
                let was_full = std::mem::take(&mut self.bell);
                Reply::Number(u64::from(!was_full && !self.is_alive(MONITOR)))
            }
            Op::Wait { of, kinds, take } => self.wait(own, of, kinds, take),
            Op::Walk { deep, strangers } => {
                if (0..OUTSIDE).any(|of| strangers & 1 << of != 0 && !self.process(of).exists()) {
                    self.breaks("no process is left out of the tree for its free pid");
                }
                Reply::Number(self.descendants(own, deep))
            }
            Op::Children { of } => Reply::Number(self.descendants(of, false)),
            Op::State { of } => {
                let process = self.process(of);
                let state = match process.life {
                    Life::Alive if process.suspended.is_some() => b'T',
                    Life::Alive => b'S',
                    Life::Zombie(_) => b'Z',
                    Life::Unborn | Life::Gone => return Some(Reply::Failed(Errno::NOENT)),
                };
                Reply::Number(u64::from(state) | u64::from(process.parent) << 8)
            }
            Op::Exists { of } if self.process(of).exists() => Reply::Done,
            Op::Exists { .. } => Reply::Failed(Errno::SRCH),
            Op::HasEnded { of } => Reply::Number(u64::from(!self.is_alive(of))),
            Op::Parent => {
                self.has_looked = true;
                Reply::Number(self.process(own).parent.into())
            }
            Op::BecomeSubreaper => {
                self.change(own).subreaper = true;
                Reply::Done
            }
            Op::SignalOnParentExit { signal } => {
                self.change(own).at_parents_death = Some(signal);
                Reply::Done
            }
            Op::Fork { of } => {
                *self.change(of) = Process {
                    life: Life::Alive,
                    parent: SHIM,
                    ends_by_cont: of == MONITOR,
                    node: self.process(SHIM).node,
                    ..UNBORN
                };
                Reply::Done
            }
            Op::Spawn => {
                *self.change(SERVER) = Process {
                    life: Life::Alive,
                    parent: MONITOR,
                    ..UNBORN
                };
                Reply::Done
            }
            Op::Exit { status } => {
                self.check_exit(scene, own, status);
                self.die(scene, own, Ended::Exited(status));
                Reply::Done
            }
            Op::Send | Op::Receive | Op::HasHungUp => self.do_with_stream(op),
            Op::Panic(_) => {
                self.breaks("no process of treaper panics");
                return None;
            }
        })
    }

    fn write(&mut self, at: u8, value: u64) {
        let before = std::mem::replace(&mut self.board[at as usize], value);
        if usize::from(at) == WORDS.with(|words| words[PLAN]) {
            self.check_plan(before);
        }
    }

    /// The state of the plan whose head is `head`.
    fn state(&mut self, head: u64) -> State {
        let first = FIRST_TIME + if head & HALF == 0 { 0 } else { TIMES };
        let times = std::array::from_fn(|at| self.board[first + at]);
        let plan = Plan::decode(POLICY, head & !HALF, times);
        plan.map_or_else(
            || {
                self.breaks("the plan on the board can be read");
                State::Running
            },
            |plan| plan.state,
        )
    }

    /// The plan `before` was replaced.
    fn check_plan(&mut self, before: u64) {
        let after = self.board[at(PLAN)];
        let deadline = |state| match state {
            State::Terminating(steps) => Some((2, steps.kill)),
            State::Killing { survivors_at, .. } => Some((3, survivors_at)),
            _ => None,
        };
        let both = deadline(self.state(before)).zip(deadline(self.state(after)));
        let is_later = both.is_some_and(|((of, a), (now_of, b))| of == now_of && b > a);
        if is_later {
            self.breaks("no deadline on the board is moved to a later time");
        }
        // No process reads the other half any more.
        let unused = FIRST_TIME + if after & HALF == 0 { TIMES } else { 0 };
        self.board[unused..unused + TIMES].fill(0);
    }

    fn wait(&mut self, own: u8, of: Option<u8>, kinds: u8, take: bool) -> Reply {
        let mut found = Reply::Failed(Errno::CHILD);
        for child in (0..OUTSIDE).filter(|child| of.is_none_or(|of| of == *child)) {
            let process = self.change(child);
            if process.parent != own || !process.exists() {
                continue;
            }
            found = Reply::Change(None);
            let (kind, change) = match (process.life, process.news) {
                (Life::Zombie(ended), _) => (ENDED, Changed::Ended(ended)),
                (_, Some(change @ Changed::Suspended(_))) => (SUSPENDED, change),
                (_, Some(change)) => (RESUMED, change),
                (_, None) => continue,
            };
            if kind & kinds == 0 {
                continue;
            }
            if take {
                process.news = None;
                if kind == ENDED {
                    process.life = Life::Gone;
                    self.monitor_has_status |= own == MONITOR && child == SERVER;
                }
            }
            return Reply::Change(Some((child, change)));
        }
        found
    }

    /// The children of `own`, and if `deep` all that descend from it, as a set.
    fn descendants(&self, own: u8, deep: bool) -> u64 {
        let mut set = 0_u64;
        for _ in 0..OUTSIDE {
            for of in 0..OUTSIDE {
                let parent = self.process(of).parent;
                let is_in = parent == own || deep && parent < OUTSIDE && set & 1 << parent != 0;
                if self.process(of).exists() && is_in {
                    set |= 1 << of;
                }
            }
        }
        set
    }

    /// A signal that treaper sends.
    fn signal(&mut self, own: u8, to: u8, signal: u8) -> Result<(), Errno> {
        if !self.process(to).exists() {
            return Err(Errno::SRCH);
        }
        if matches!(to, HOST | OUTSIDE) {
            self.breaks("treaper signals only what is its own");
        }
        if to == MONITOR && matches!(signal, HUP | TERM) {
            self.note_reason();
        }
        let is_tree = matches!(to, SERVER | CHILD);
        if is_tree && signal == KILL && self.is_alive(to) {
            self.check_sigkill();
        }
        // One that still waits is merged with the next one.
        let merged = to == SERVER && self.change(SERVER).slot(TERM).is_some();
        if to == SERVER && signal == TERM && self.is_alive(SERVER) && !merged {
            let by_monitor = self.board[WORDS.with(|words| words[3])] != 0;
            self.stops_sent += 1;
            if own == SHIM && by_monitor || self.stops_sent > 1 + u8::from(self.killed[1]) {
                self.breaks("the server gets the stop signal once from each process that stops it");
            }
        }
        self.deliver(to, signal, own, Cause::Process);
        Ok(())
    }

    fn check_sigkill(&mut self) {
        let due = self.reason.map(|at| at + GRACE.as_nanos() as u64);
        let last_input = |due| {
            self.has_happened(Trigger::StdinEof) && due + INPUT_CHECK.as_nanos() as u64 == self.now
        };
        let is_due = due.is_some_and(|due| due == self.now || last_input(due));
        if self.sigkill.is_none() {
            self.sigkill = Some(self.now);
            if !is_due {
                self.breaks("SIGKILL comes when the grace period of the first reason is over");
            }
            if self.is_alive(SERVER) && !self.was_stopped {
                self.breaks("the server gets the stop signal before SIGKILL");
            }
        }
    }

    /// What the kernel does with a signal.
    fn deliver(&mut self, to: u8, signal: u8, sender: u8, cause: Cause) {
        let is_ours = matches!(to, SHIM | MONITOR);
        if !self.is_alive(to) {
            return;
        }
        match signal {
            KILL => self.change(to).doomed = true,
            STOP => {
                *self.change(to).slot(CONT) = None;
                self.suspend(to, STOP);
            }
            TSTP => *self.change(to).slot(CONT) = None,
            CONT => {
                *self.change(to).slot(TSTP) = None;
                if self.change(to).suspended.take().is_some() {
                    self.change(to).news = Some(Changed::Resumed);
                    self.notify_parent(to, CHLD);
                }
            }
            TERM if to == SERVER => self.was_stopped = true,
            _ => {}
        }
        if is_ours && !matches!(signal, KILL | STOP) || signal == TERM {
            let info = Info {
                signal,
                sender,
                cause,
            };
            let slot = self.change(to).slot(signal);
            // A second one is merged with the first.
            *slot = slot.or(Some(info));
        } else if signal == TSTP && self.is_alive(HOST) {
            self.suspend(to, TSTP);
        }
    }

    fn suspend(&mut self, of: u8, signal: u8) {
        if self.process(of).suspended.is_none() {
            self.change(of).suspended = Some(signal);
            self.change(of).news = Some(Changed::Suspended(signal));
            self.notify_parent(of, CHLD);
        }
    }

    fn notify_parent(&mut self, of: u8, signal: u8) {
        let parent = self.process(of).parent;
        if parent < OUTSIDE {
            self.deliver(parent, signal, of, Cause::Child);
        }
    }

    /// A process ends: its children get another parent and their parent-death signal, then its parent is notified.
    fn die(&mut self, scene: &Scene, of: u8, ended: Ended) {
        if of == MONITOR && scene.namespace {
            // The kernel ends the namespace before its init.
            for inside in [SERVER, CHILD] {
                if self.process(inside).exists() {
                    self.change(inside).life = Life::Gone;
                }
            }
            self.deliver(SHIM, CONT, OUTSIDE, Cause::Child);
        }
        if of == SERVER {
            self.server_ended = Some(ended);
            self.note_reason();
            if !self.was_stopped && !self.process(SERVER).doomed {
                self.happened(Trigger::ServerExit);
            }
        }
        self.change(of).suspended = None;
        self.change(of).life = Life::Zombie(ended);
        let mut heir = self.process(of).parent;
        while heir < OUTSIDE && !(self.process(heir).subreaper && self.is_alive(heir)) {
            heir = self.process(heir).parent;
        }
        for child in 0..OUTSIDE {
            if self.process(child).parent != of || !self.process(child).exists() {
                continue;
            }
            self.change(child).parent = heir;
            self.change(child).ends_by_cont = false;
            if let Some(signal) = self.process(child).at_parents_death {
                self.deliver(child, signal.number(), of, Cause::Process);
            }
            if matches!(self.process(child).life, Life::Zombie(_)) {
                if heir < OUTSIDE {
                    self.notify_parent(child, CHLD);
                } else {
                    self.change(child).life = Life::Gone;
                }
            }
        }
        let signal = if self.process(of).ends_by_cont {
            CONT
        } else {
            CHLD
        };
        self.notify_parent(of, signal);
        if self.process(of).parent >= OUTSIDE || self.process(of).parent == HOST {
            self.change(of).life = Life::Gone;
        }
    }

    /// A step of a process of the tree. Returns whether there was one.
    pub fn live(&mut self, scene: &Scene, of: u8) -> bool {
        if !self.is_alive(of) {
            return false;
        }
        let process = *self.process(of);
        if process.doomed {
            let dies = !(of == CHILD && scene.hopeless);
            if dies {
                self.die(scene, of, Ended::Killed(KILL));
            }
            return dies;
        }
        if process.suspended.is_some() {
            return false;
        }
        if process.phase < RUNS {
            self.become_server(scene, of);
            return true;
        }
        let got = self.change(of).slot(TERM).take().is_some();
        if got && scene.obeys {
            self.die(scene, of, Ended::Killed(TERM));
        }
        got
    }

    /// As `sys::clone::become_server` does it.
    fn become_server(&mut self, scene: &Scene, of: u8) {
        let [server, _, failure, ..] = WORDS.with(|words| *words);
        match self.process(of).phase {
            0 if scene.namespace => self.board[server] = 2,
            0 => self.board[server] = 5_000_000 + u64::from(SERVER),
            1 => self.change(of).at_parents_death = Some(Signal::TERM),
            2 if self.process(of).parent != MONITOR => {
                self.board[failure] = treaper::sys::exec::Failure::Orphaned.encode();
                self.die(scene, of, Ended::Exited(1));
                return;
            }
            2 => {}
            _ => {
                if scene.disarmed {
                    self.change(of).at_parents_death = None;
                }
                *self.change(CHILD) = Process {
                    life: Life::Alive,
                    parent: SERVER,
                    phase: RUNS,
                    ..UNBORN
                };
            }
        }
        self.change(of).phase += 1;
    }

    /// An event from outside. Returns whether it can happen now.
    pub fn happens(&mut self, scene: &Scene, event: Event) -> bool {
        self.events[event as usize] = self.events[event as usize].saturating_sub(1);
        let runs = |of: u8| self.is_alive(of) && self.process(of).phase == RUNS;
        match event {
            Event::HostDies if self.has_looked => {
                self.note_reason();
                self.happened(Trigger::ParentExit);
                self.close_stdin(scene);
                self.die(scene, HOST, Ended::Killed(KILL));
                self.orphan_the_job(scene);
            }
            Event::Terminate if self.is_alive(SHIM) => {
                self.happened(Trigger::Terminate);
                self.deliver(SHIM, TERM, OUTSIDE, Cause::Process);
            }
            Event::KillShim if self.is_alive(SHIM) && self.kills > 0 => self.kill(scene, SHIM),
            Event::KillMonitor if self.is_alive(MONITOR) && self.kills > 0 => {
                self.kill(scene, MONITOR);
            }
            Event::SuspendShim if self.is_alive(SHIM) => {
                self.meddled[0] = true;
                self.owes_resumption = false;
                self.deliver(SHIM, STOP, OUTSIDE, Cause::Process);
            }
            Event::SuspendMonitor if self.is_alive(MONITOR) => {
                self.meddled[1] = true;
                self.deliver(MONITOR, STOP, OUTSIDE, Cause::Process);
            }
            Event::ResumeShim if self.is_alive(SHIM) => {
                self.meddled[0] = false;
                self.deliver(SHIM, CONT, OUTSIDE, Cause::Process);
            }
            Event::ResumeMonitor if self.is_alive(MONITOR) => {
                self.meddled[1] = false;
                let [shim, monitor] =
                    [SHIM, MONITOR].map(|of| self.process(of).suspended.is_some());
                self.owes_resumption |= shim && monitor;
                self.deliver(MONITOR, CONT, OUTSIDE, Cause::Process);
            }
            Event::ServerExits if runs(SERVER) && self.process(SERVER).suspended.is_none() => {
                self.die(scene, SERVER, Ended::Exited(7));
            }
            Event::CtrlZ if self.process(SERVER).phase == RUNS && self.is_alive(HOST) => {
                self.deliver(SHIM, TSTP, OUTSIDE, Cause::Terminal);
                self.deliver(SERVER, TSTP, OUTSIDE, Cause::Terminal);
            }
            Event::Foreground if runs(SERVER) && self.is_alive(HOST) => {
                self.deliver(SHIM, CONT, HOST, Cause::Process);
                self.deliver(SERVER, CONT, HOST, Cause::Process);
            }
            Event::SuspendServer if runs(SERVER) => {
                self.deliver(SERVER, TSTP, OUTSIDE, Cause::Process);
            }
            Event::FreezeServer if runs(SERVER) => {
                self.deliver(SERVER, STOP, OUTSIDE, Cause::Process);
            }
            Event::ResumeServer if runs(SERVER) => {
                self.deliver(SERVER, CONT, OUTSIDE, Cause::Process);
            }
            other => return self.happens_to_stream(scene, other),
        }
        true
    }

    fn kill(&mut self, scene: &Scene, of: u8) {
        self.kills -= 1;
        self.happened(if of == SHIM {
            Trigger::ShimKilled
        } else {
            Trigger::MonitorKilled
        });
        self.killed[usize::from(of - SHIM)] = true;
        self.note_reason();
        self.die(scene, of, Ended::Killed(KILL));
    }

    /// The kernel hangs up a process group that has lost its shell, if one of it is suspended.
    fn orphan_the_job(&mut self, scene: &Scene) {
        let members = [SHIM, SERVER].map(|of| (of, *self.process(of)));
        let suspended = |(_, process): &(u8, Process)| process.suspended.is_some();
        if !scene.job_control || !members.iter().any(suspended) {
            return;
        }
        for (of, _) in members
            .into_iter()
            .filter(|(_, process)| process.is_alive())
        {
            if of == SHIM {
                self.happened(Trigger::Hangup);
                self.deliver(of, HUP, OUTSIDE, Cause::Terminal);
            }
            self.deliver(of, CONT, OUTSIDE, Cause::Terminal);
        }
    }

    fn is_all_suspended(&self) -> bool {
        let rests = |of: u8| !self.is_alive(of) || self.process(of).suspended.is_some();
        let lives = self.is_alive(SHIM) || self.is_alive(MONITOR);
        self.meddled.contains(&true) && lives && rests(SHIM) && rests(MONITOR)
    }

    fn is_tree_empty(&self) -> bool {
        ![SERVER, CHILD].into_iter().any(|of| self.is_alive(of))
    }

    /// A process of treaper exits.
    fn check_exit(&mut self, scene: &Scene, own: u8, status: u8) {
        if !self.is_tree_empty() && !scene.hopeless {
            self.breaks("treaper exits only when the tree is empty");
        }
        self.check_trigger();
        if own != SHIM {
            return;
        }
        if self.is_alive(MONITOR) && !scene.hopeless {
            self.breaks("the shim exits after the monitor");
        }
        let is_right = match self.server_ended {
            None if scene.namespace => true,
            // It was not started.
            None => self.process(SERVER).life == Life::Unborn,
            Some(_) if self.board[WORDS.with(|words| words[2])] != 0 => true,
            Some(_) if record::trigger(self.board[at(PLAN)]) == Some(Trigger::CancelTimeout) => {
                status == 124 || scene.hopeless && status == 123
            }
            Some(server) => {
                // The monitor was killed before it told the status. Its heir can wait for the server, unless the
                // monitor has done so, or the kernel, with the namespace.
                let unknown = self.killed[1] && !self.monitor_told_status;
                status == server.code()
                    || unknown && scene.namespace && status == 137
                    || unknown && self.monitor_has_status && status == 125
                    || scene.hopeless && status == 123
            }
        };
        if !is_right {
            self.breaks("the status is that of the server");
        }
    }

    /// The trigger on the board is one that has happened.
    fn check_trigger(&mut self) {
        let number = record::trigger(self.board[at(PLAN)]).map_or(0, |trigger| trigger as u64);
        let timed_out_in_drain = 1 << Trigger::StdinEof as u16 | 1 << Trigger::CancelTimeout as u16;
        let is_right = if self.reasons == timed_out_in_drain && self.streams.was_in_time {
            number == Trigger::CancelTimeout as u64
        } else {
            self.reasons & 1 << number != 0
        };
        // Zero: the server was not started.
        if number != 0 && !is_right {
            self.breaks("the trigger is what has happened");
        }
    }

    /// Nothing can happen any more, unless an event comes from outside.
    pub fn check_rest(&mut self, scene: &Scene) {
        let [shim, monitor] = [SHIM, MONITOR].map(|of| self.is_alive(of));
        let empty = self.is_tree_empty();
        if self.killed == [true, true] {
            if !empty && !scene.disarmed && !self.was_stopped {
                self.breaks("if both are killed, the server gets the stop signal from the kernel");
            }
        } else if self.is_all_suspended() {
            // Another process has suspended all of treaper, and only another process can resume it.
        } else if self.reason.is_some() {
            if shim || !scene.hopeless && (monitor || !empty) {
                self.breaks("a stop comes to its end: nothing is left, and no process waits");
            }
            let limit = GRACE
                + INPUT_CHECK * u32::from(self.has_happened(Trigger::StdinEof))
                + if scene.hopeless {
                    KILL_TIMEOUT
                } else {
                    GRACE / 100
                };
            let latest = self.reason.unwrap_or(0) + limit.as_nanos() as u64;
            if self.now > latest {
                self.breaks("the deadline of the first reason counts");
            }
        } else {
            if self.was_asked && self.process(SHIM).suspended.is_none() {
                self.breaks("a request to stop is not lost");
            }
            let starts = self.process(SHIM).suspended.is_some() && !self.is_alive(SERVER);
            let all = shim && monitor && self.is_alive(SERVER);
            if !(starts || all) {
                self.breaks("without a reason to stop all processes are there");
            }
            let [shim, monitor, server] =
                [SHIM, MONITOR, SERVER].map(|of| self.process(of).suspended.is_some());
            if self.owes_resumption && shim {
                self.breaks("a monitor that is resumed resumes the shim");
            }
            if monitor && !shim {
                self.breaks("a shim that runs resumes a suspended monitor");
            }
            if scene.job_control && server && !shim {
                self.breaks("a suspension of the server reaches the shim");
            }
            if scene.job_control && shim && !server && !self.meddled[0] {
                self.breaks("the shim is resumed with the server");
            }
        }
    }
}

pub const ALL: [Event; EVENTS] = [
    Event::HostDies,
    Event::Terminate,
    Event::KillShim,
    Event::KillMonitor,
    Event::SuspendShim,
    Event::SuspendMonitor,
    Event::ResumeShim,
    Event::ResumeMonitor,
    Event::ServerExits,
    Event::CtrlZ,
    Event::Foreground,
    Event::SuspendServer,
    Event::FreezeServer,
    Event::ResumeServer,
    Event::KillRelay,
    Event::TimesOut,
    Event::CloseStdin,
];

/// The two processes of treaper.
pub const ACTORS: [u8; 2] = [SHIM, MONITOR];
