//! A process of treaper in the model: the project's own code, run from its start to the call that it makes next.
//!
//! What a process does depends only on the answers to its calls. To learn what it does next, it is run once more from the
//! start, gets the old answers, and is left at the first call that has no answer yet. Two lists of answers after which
//! it has the same memory (`memory.rs`) are one state, and of these only the first list is run again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use treaper::output::progress::Own;
use treaper::settings::cli;
use treaper::settings::config::{Config, Manner};
use treaper::sys::Errno;
use treaper::sys::arrival::{Arrival, Origin};
use treaper::sys::pid::Pid;
use treaper::sys::signal::{Mask, Signal};
use treaper::sys::startup::Inherited;
use treaper::sys::startup::Standing;
use treaper::sys::wait::{Change, Ended};

use crate::memory;
use crate::pair::context::Request;
use crate::plan::policy::{KillMode, Policy, Until};
use crate::start;

/// The processes of the model, by number.
pub const HOST: u8 = 0;
pub const SHIM: u8 = 1;
pub const MONITOR: u8 = 2;
pub const SERVER: u8 = 3;
/// A process that the server has started.
pub const CHILD: u8 = 4;
/// Init, and every other process outside.
pub const OUTSIDE: u8 = 5;

/// Greater than each pid of a real kernel, so that no call by mistake reaches a process.
const FIRST_PID: i32 = 5_000_000;

/// What is the same for a whole search.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub name: &'static str,
    /// It takes most of a minute, or more.
    pub long: bool,
    pub job_control: bool,
    /// Whether the kernel has pidfds.
    pub pidfds: bool,
    pub namespace: bool,
    /// What the server and its child do with the stop signal.
    pub obeys: bool,
    /// The server has disarmed its parent-death signal.
    pub disarmed: bool,
    /// SIGKILL does not end the child.
    pub hopeless: bool,
    /// There is a process in front of treaper.
    pub relay: bool,
    /// The end of stdin is a trigger.
    pub watches_stdin: bool,
    /// How often each event may come, see `kernel::EVENTS`.
    pub events: &'static [(crate::kernel::Event, u8)],
    /// How many of the processes of the pair may be killed.
    pub kills: u8,
}

pub const DRAIN: Duration = Duration::from_millis(100);
pub const GRACE: Duration = Duration::from_millis(1000);
pub const KILL_TIMEOUT: Duration = Duration::from_millis(300);

pub const POLICY: Policy = Policy {
    drain: DRAIN,
    grace: GRACE,
    stage: None,
    kill_timeout: KILL_TIMEOUT,
    kill_mode: KillMode::Staged,
    until: Until::Server,
    manager_has_deadline: false,
    at_terminal: false,
};

/// What a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    Signals,
    Process(u8),
    Bell,
    /// To the process in front of treaper.
    Line,
    Stdin,
}

/// What is asked of a descriptor and reported of it, as bits.
pub const IN: u8 = 1;
pub const OUT: u8 = 2;
pub const ERR: u8 = 4;
pub const HUP: u8 = 8;

/// A call of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Now,
    Pause {
        until: u64,
    },
    TakeSignal {
        until: Option<u64>,
    },
    Poll {
        objects: Vec<(Object, u8)>,
        until: Option<u64>,
    },
    Get {
        word: u8,
    },
    Set {
        word: u8,
        value: u64,
    },
    Swap {
        word: u8,
        value: u64,
    },
    Signal {
        to: u8,
        signal: Signal,
    },
    SignalGroup {
        of: u8,
        signal: Signal,
    },
    Deliver {
        signal: Signal,
    },
    JobStopWaits,
    TakeResumption,
    Ring,
    Silence,
    Wait {
        of: Option<u8>,
        kinds: u8,
        take: bool,
    },
    Walk {
        deep: bool,
        /// The processes that are left out, as a set.
        strangers: u64,
    },
    Children {
        of: u8,
    },
    State {
        of: u8,
    },
    Exists {
        of: u8,
    },
    HasEnded {
        of: u8,
    },
    Parent,
    BecomeSubreaper,
    SignalOnParentExit {
        signal: Signal,
    },
    Fork {
        of: u8,
    },
    Spawn,
    /// A byte on the line.
    Send,
    Receive,
    /// Whether stdin has.
    HasHungUp,
    Exit {
        status: u8,
    },
    Panic(String),
}

/// A signal that waits: its sender, and whether the kernel made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Info {
    pub signal: u8,
    pub sender: u8,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Process,
    /// A child has changed, or a descriptor.
    Child,
    Terminal,
}

/// A change of a child. As [`Change`], with a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    Ended(Ended),
    Suspended(u8),
    Resumed,
}

impl From<Changed> for Change {
    fn from(changed: Changed) -> Self {
        match changed {
            Changed::Ended(ended) => Self::Ended(ended),
            Changed::Suspended(number) => Self::Suspended(number),
            Changed::Resumed => Self::Resumed,
        }
    }
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Done,
    Number(u64),
    Signal(Option<Info>),
    Change(Option<(u8, Changed)>),
    Failed(Errno),
}

impl Reply {
    pub fn unexpected(self) -> ! {
        panic!("the kernel of the model answers {self:?} to a wrong call")
    }

    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            other => other.unexpected(),
        }
    }

    pub fn result(self) -> Result<u64, Errno> {
        match self {
            Self::Done => Ok(0),
            Self::Number(number) => Ok(number),
            Self::Failed(errno) => Err(errno),
            other => other.unexpected(),
        }
    }

    /// The processes of a set.
    pub fn pids(self) -> impl Iterator<Item = Pid> {
        let set = self.number();
        (0..OUTSIDE).filter(move |of| set & 1 << of != 0).map(pid)
    }
}

/// The process that runs now.
struct Running {
    scene: Scene,
    answers: Vec<(Op, Reply)>,
    at: usize,
    state: State,
    /// The first of the numbers for its descriptors.
    descriptors: RawFd,
    /// How many of its descriptors stay open to the end.
    kept: usize,
    asked: Option<(Op, Memory)>,
}

/// What the model keeps for the process that runs.
#[derive(Hash)]
struct State {
    own: u8,
    objects: BTreeMap<RawFd, Object>,
    /// How many words of shared memory it has.
    words: u8,
    sets: BTreeSet<(usize, i32)>,
}

/// Everything that decides what a process does with the answers to come, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Memory {
    process: u128,
    model: u64,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

#[inline(never)]
fn with<T>(f: impl FnOnce(&mut Running) -> T) -> T {
    memory::apart(|| {
        RUNNING.with_borrow_mut(|running| f(running.as_mut().expect("a process runs")))
    })
}

/// Ends a run at the first call without an answer.
struct Asked;

pub fn call(op: Op) -> Reply {
    if std::thread::panicking() {
        // The run was left. What is dropped meanwhile gets an answer for which it does not wait.
        return match op {
            Op::Wait { .. } => Reply::Failed(Errno::CHILD),
            _ => Reply::Number(1),
        };
    }
    let answer = with(|running| {
        let (before, reply) = running.answers.get(running.at)?;
        running.at += 1;
        assert_eq!(*before, op, "the same answers have led to another call");
        Some(*reply)
    });
    memory::clear();
    answer.unwrap_or_else(|| {
        let process = memory::digest();
        with(|running| {
            let mut hasher = DefaultHasher::new();
            running.state.hash(&mut hasher);
            let model = hasher.finish();
            running.asked = Some((op.clone(), Memory { process, model }));
        });
        resume_unwind(Box::new(Asked))
    })
}

pub fn exit(status: u8) -> ! {
    call(Op::Exit { status });
    unreachable!("a process that has ended does not run")
}

pub fn scene() -> Scene {
    with(|running| running.scene)
}

pub fn own() -> u8 {
    with(|running| running.state.own)
}

pub fn become_process(of: u8) {
    with(|running| running.state.own = of);
}

/// Whether the running process is inside of the PID namespace.
fn is_inside() -> bool {
    with(|running| running.scene.namespace && running.state.own == MONITOR)
}

/// In a namespace of its own the monitor is process 1.
pub fn pid(of: u8) -> Pid {
    let first = if is_inside() {
        1 - i32::from(MONITOR)
    } else {
        FIRST_PID
    };
    Pid::new(first + i32::from(of)).unwrap_or_else(|| Pid::new(FIRST_PID).expect("positive"))
}

pub fn index(pid: i32) -> u8 {
    let first = if is_inside() {
        1 - i32::from(MONITOR)
    } else {
        FIRST_PID
    };
    let known = 0..i32::from(OUTSIDE);
    let of = pid - first;
    if known.contains(&of) {
        of as u8
    } else {
        OUTSIDE
    }
}

/// The pid of a process that a reply names.
pub fn number(of: u64) -> i32 {
    let of = of as u8;
    if is_inside() && of < MONITOR || of == OUTSIDE {
        return i32::from(of == OUTSIDE && !is_inside());
    }
    pid(of).get()
}

pub fn group(of: u8) -> i32 {
    let job = scene().job_control && ![MONITOR, CHILD].contains(&of);
    FIRST_PID + i32::from(if job { SHIM } else { of })
}

pub fn open(object: Object) -> OwnedFd {
    // A real descriptor, so that the code can own it and close it. Its number is the same each time.
    with(|running| {
        let file = File::open("/dev/null").expect("open /dev/null");
        let fd = rustix::io::fcntl_dupfd_cloexec(&file, running.descriptors).expect("a descriptor");
        running.state.objects.insert(fd.as_raw_fd(), object);
        fd
    })
}

/// Nothing closes these, so all runs have the same real ones.
pub fn keep(fd: OwnedFd) -> BorrowedFd<'static> {
    static KEPT: [OnceLock<File>; 4] = [const { OnceLock::new() }; 4];
    let object = object(fd.as_raw_fd());
    with(|running| {
        let file = KEPT[running.kept].get_or_init(|| File::open("/dev/null").expect("/dev/null"));
        running.kept += 1;
        running.state.objects.insert(file.as_raw_fd(), object);
        file.as_fd()
    })
}

pub fn object(fd: RawFd) -> Object {
    with(|running| match fd {
        0 => Object::Stdin,
        _ => running.state.objects[&fd],
    })
}

/// Maps so many words of shared memory. Returns the number of the first one.
pub fn map(count: usize) -> u8 {
    with(|running| {
        let first = running.state.words;
        running.state.words += count as u8;
        first
    })
}

pub fn contains(set: usize, pid: i32) -> bool {
    with(|running| running.state.sets.contains(&(set, pid)))
}

pub fn insert(set: usize, pid: i32) -> bool {
    with(|running| running.state.sets.insert((set, pid)))
}

pub fn arrival(info: Info) -> Arrival {
    let outside = info.sender == OUTSIDE || is_inside() && info.sender < MONITOR;
    Arrival {
        signal: Signal::from_number(info.signal.into()).expect("a signal"),
        origin: match info.cause {
            // A key, or what the kernel sends when the terminal is gone.
            Cause::Terminal if info.signal == Signal::TSTP.number() => Origin::Terminal,
            Cause::Terminal => Origin::Kernel,
            Cause::Child => Origin::ChildOrDescriptor,
            Cause::Process if outside => Origin::Outside,
            Cause::Process => Origin::Process(pid(info.sender).get()),
        },
        value: None,
    }
}

fn config(scene: &Scene) -> &'static Config {
    static CONFIGS: [OnceLock<Config>; 4] = [const { OnceLock::new() }; 4];
    let place = 2 * usize::from(scene.relay) + usize::from(scene.namespace);
    CONFIGS[place].get_or_init(|| {
        let level = if scene.namespace { "pidns" } else { "group" };
        let ms = |time: Duration| format!("{}ms", time.as_millis()).into();
        let mut variables = vec![
            ("TREAPER_CONTAIN".into(), level.into()),
            // Otherwise the end of stdin would be no trigger in the first second.
            ("TREAPER_STDIN".into(), "watch".into()),
            ("TREAPER_DRAIN".into(), ms(DRAIN)),
            ("TREAPER_GRACE".into(), ms(GRACE)),
            ("TREAPER_KILL_TIMEOUT".into(), ms(KILL_TIMEOUT)),
        ];
        if scene.relay {
            variables.push(("TREAPER_INJECT".into(), "unix:/socket".into()));
        }
        cli::from_variables(&variables, &["server".into()]).expect("a configuration")
    })
}

/// The whole life of a process, from the start of the shim. A fork makes two of it.
fn live(config: &Config) -> u8 {
    let inherited = Inherited {
        mask: Mask::of(&[]),
        sigchld_ignored: false,
        sighup_ignored: false,
        standing: Standing::LeadsSession,
    };
    let request = Request {
        config,
        manner: Manner::default(),
        voice: &Own,
        inherited: &inherited,
    };
    start::run(request).unwrap_or_else(|error| error.status)
}

/// What a process does after these answers.
fn next_call(config: &Config) -> (Op, Memory) {
    let outcome = memory::run(|| catch_unwind(AssertUnwindSafe(|| live(config))));
    let running = RUNNING.take().expect("the process that ran");
    // It has no memory any more.
    let ended = Memory {
        process: 0,
        model: 0,
    };
    match outcome {
        Ok(status) => (Op::Exit { status }, ended),
        Err(cause) if cause.is::<Asked>() => running.asked.expect("the call"),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().cloned();
            (Op::Panic(text.unwrap_or_default()), ended)
        }
    }
}

/// Runs processes of a scene on a thread of its own, whose stack is at the same place each time.
struct Runner {
    answers: SyncSender<Vec<(Op, Reply)>>,
    outcome: Receiver<(Op, Memory)>,
}

impl Runner {
    fn start(scene: Scene) -> Self {
        static RUNNERS: AtomicI32 = AtomicI32::new(0);
        let (answers, for_next) = sync_channel(1);
        let (found, outcome) = sync_channel(1);
        let descriptors = 200 + 16 * (RUNNERS.fetch_add(1, Ordering::Relaxed) % 40);
        // It ends with the channel.
        std::thread::spawn(move || {
            let config = config(&scene);
            while let Ok(answers) = for_next.recv() {
                RUNNING.set(Some(Running {
                    scene,
                    answers,
                    at: 0,
                    state: State {
                        own: SHIM,
                        objects: BTreeMap::new(),
                        words: 0,
                        sets: BTreeSet::new(),
                    },
                    descriptors,
                    kept: 0,
                    asked: None,
                }));
                let _ = found.send(next_call(config));
            }
        });
        Self { answers, outcome }
    }

    fn next_call(&self, answers: Vec<(Op, Reply)>) -> (Op, Memory) {
        self.answers.send(answers).expect("the runner lives");
        self.outcome.recv().expect("the runner lives")
    }
}

/// Every state of a process that was seen, with the answers that lead to it, as a tree. A process is a number of a node.
pub struct Lives {
    runner: Runner,
    nodes: Vec<Node>,
    known: HashMap<(Op, Memory), u32>,
    next: HashMap<(u32, Reply), u32>,
    merges: bool,
}

struct Node {
    before: u32,
    answer: Reply,
    op: Op,
}

impl Lives {
    /// Without `merges`, each list of answers is a state of its own.
    pub fn new(scene: &Scene, merges: bool) -> Self {
        let mut lives = Self {
            runner: Runner::start(*scene),
            nodes: Vec::new(),
            known: HashMap::new(),
            next: HashMap::new(),
            merges,
        };
        lives.run(Vec::new(), 0, Reply::Done);
        lives
    }

    pub fn op(&self, node: u32) -> &Op {
        &self.nodes[node as usize].op
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node after `answer` to the call at `node`.
    pub fn after(&mut self, node: u32, answer: Reply) -> u32 {
        if let Some(known) = self.next.get(&(node, answer)) {
            return *known;
        }
        let mut answers = vec![(self.op(node).clone(), answer)];
        let mut at = node;
        while at != 0 {
            let Node { before, answer, .. } = self.nodes[at as usize];
            answers.push((self.op(before).clone(), answer));
            at = before;
        }
        answers.reverse();
        let new = self.run(answers, node, answer);
        self.next.insert((node, answer), new);
        new
    }

    fn run(&mut self, answers: Vec<(Op, Reply)>, before: u32, answer: Reply) -> u32 {
        let (op, mut memory) = self.runner.next_call(answers);
        let new = self.nodes.len() as u32;
        if !self.merges {
            memory.model = new.into();
        }
        *self.known.entry((op.clone(), memory)).or_insert_with(|| {
            self.nodes.push(Node { before, answer, op });
            new
        })
    }
}
