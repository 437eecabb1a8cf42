//! What is played: the stages, and the events that come while a process of treaper is held.

use super::common::{place, sys};

/// A step of the script that a stage plays from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Waits until these processes of the tree are ready.
    Ready(&'static [&'static str]),
    /// SIGKILL to this process of the tree.
    Kill(&'static str),
    /// A signal to the shim.
    Signal(i32),
    /// The host closes its end of stdin.
    CloseStdin,
    /// Ctrl-Z, and waits until the job is suspended.
    Suspend,
    /// As `fg` does, and waits until the job runs.
    Resume,
    /// Another writer gives a message.
    Write,
}

/// Where treaper is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By a host, with a pipe as stdin.
    Host,
    /// By a host, with a pipe as stdin and a file as stdout.
    HostWithFile,
    /// As the foreground job of a terminal.
    Terminal,
}

#[derive(Debug)]
pub struct Stage {
    pub name: &'static str,
    pub by: By,
    pub options: &'static [&'static str],
    pub tree: &'static str,
    pub script: &'static [Step],
    /// The exit status after SIGTERM, and when the server ends by itself.
    pub stopped: i32,
    pub ended: i32,
}

const TIMES: [&str; 3] = ["--grace=40ms", "--stdin=watch", "--drain=30ms"];
const OBSTINATE: &str = "server:ignore=TERM:on=USR1/7[a:ignore=TERM[x:ignore=TERM],b:daemon:ignore=TERM,\
    d:ignore=TERM[z:ignore=TERM],c:ignore=CHLD+TERM[y]]";
const OBEDIENT: &str = "server:on=TERM+USR1/3[a[x],b:daemon,d:setsid[z],c:ignore=CHLD[y]]";
const ALL: &[&str] = &["server", "x", "b", "z", "y"];
const OBSTINATE_SCRIPT: &[Step] = &[
    Step::Ready(ALL),
    Step::Signal(libc::SIGWINCH),
    Step::Kill("a"),
    Step::Signal(libc::SIGTERM),
];
const TURNS: [&str; 6] = [
    "--inject=unix:SOCKET",
    "--turn=method=p",
    "--cancel=method=c",
    TIMES[0],
    TIMES[1],
    TIMES[2],
];

pub const STAGES: &[Stage] = &[
    Stage {
        name: "obstinate",
        by: By::Host,
        options: &TIMES,
        tree: OBSTINATE,
        script: OBSTINATE_SCRIPT,
        stopped: 137,
        ended: 7,
    },
    Stage {
        name: "obedient",
        by: By::Host,
        options: &TIMES,
        tree: OBEDIENT,
        script: &[
            Step::Ready(ALL),
            Step::Signal(libc::SIGWINCH),
            Step::Kill("a"),
            Step::CloseStdin,
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "terminal",
        by: By::Terminal,
        options: &[TIMES[0]],
        tree: OBEDIENT,
        script: &[
            Step::Ready(ALL),
            Step::Suspend,
            Step::Resume,
            Step::Kill("a"),
            Step::Signal(libc::SIGTERM),
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "alone",
        by: By::Host,
        options: &[TIMES[0], TIMES[1], TIMES[2], "--no-guard"],
        tree: OBSTINATE,
        script: OBSTINATE_SCRIPT,
        stopped: 137,
        ended: 7,
    },
    Stage {
        name: "alone-terminal",
        by: By::Terminal,
        options: &[TIMES[0], "--no-guard"],
        tree: OBEDIENT,
        script: &[
            Step::Ready(ALL),
            Step::Suspend,
            Step::Resume,
            Step::Signal(libc::SIGTERM),
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "relay",
        by: By::Host,
        options: &TURNS,
        tree: "server:echo:eof=5:on=TERM+USR1/3[a[x],d[z],c:ignore=CHLD[y]]",
        script: &[
            Step::Ready(&["server", "x", "z", "y"]),
            Step::Write,
            Step::Kill("a"),
            Step::Signal(libc::SIGTERM),
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "courier",
        by: By::HostWithFile,
        options: &TURNS,
        tree: "server:echo:reads:on=TERM+USR1/3[d[z]]",
        script: &[
            Step::Ready(&["server", "z"]),
            Step::Write,
            Step::Signal(libc::SIGTERM),
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "pidns",
        by: By::Host,
        options: &[TIMES[0], TIMES[1], TIMES[2], "--contain=pidns"],
        tree: OBSTINATE,
        script: OBSTINATE_SCRIPT,
        stopped: 137,
        ended: 7,
    },
    Stage {
        name: "pidns-terminal",
        by: By::Terminal,
        options: &[TIMES[0], "--contain=pidns"],
        tree: OBEDIENT,
        script: &[
            Step::Ready(ALL),
            Step::Suspend,
            Step::Resume,
            Step::Signal(libc::SIGTERM),
        ],
        stopped: 3,
        ended: 3,
    },
    Stage {
        name: "cgroup",
        by: By::Host,
        options: &[TIMES[0], TIMES[1], TIMES[2], "--contain=cgroup"],
        tree: OBSTINATE,
        script: OBSTINATE_SCRIPT,
        stopped: 137,
        ended: 7,
    },
];

impl Stage {
    pub fn has(&self, word: &str) -> bool {
        self.options.iter().any(|option| option.contains(word))
    }

    /// Why it cannot be played here.
    pub fn missing(&self) -> Option<&'static str> {
        if self.has("pidns") && !sys::is_root() {
            return Some("--contain=pidns needs root");
        }
        (self.has("cgroup") && place::Place::new().is_none()).then_some("no cgroup can be made")
    }

    pub fn is_terminal(&self) -> bool {
        self.by == By::Terminal
    }
}

/// What comes while a process is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// SIGKILL to this process.
    HostDies,
    ShimDies,
    MonitorDies,
    ServerDies,
    RelayDies,
    /// SIGTERM to the shim.
    Terminate,
    EndOfInput,
    /// The server exits by itself.
    ServerExits,
    /// A process of the tree dies, and its child comes to the monitor.
    Orphan,
    /// Numbers of processes of the tree that are free become those of bystanders.
    NumbersReused,
    /// Ctrl-Z. It must suspend the job.
    Suspend,
    /// Ctrl-Z, and `fg` before the process is released. The job must run.
    SuspendResume,
    /// Ctrl-Z, `fg` and Ctrl-Z. The job must be suspended.
    SuspendTwice,
    /// `fg`, and Ctrl-Z after it.
    ResumeSuspend,
    /// The terminal is gone.
    HangUp,
    /// SIGSTOP to this process alone. The other one of the pair must resume it.
    MonitorSuspended,
    RelaySuspended,
    /// SIGSTOP to both, and SIGCONT to the monitor.
    PairSuspended,
    /// Another writer gives a message.
    Writer,
}

pub const EVENTS: [Event; 19] = [
    Event::HostDies,
    Event::ShimDies,
    Event::MonitorDies,
    Event::ServerDies,
    Event::RelayDies,
    Event::Terminate,
    Event::EndOfInput,
    Event::ServerExits,
    Event::Orphan,
    Event::NumbersReused,
    Event::Suspend,
    Event::SuspendResume,
    Event::SuspendTwice,
    Event::ResumeSuspend,
    Event::HangUp,
    Event::MonitorSuspended,
    Event::RelaySuspended,
    Event::PairSuspended,
    Event::Writer,
];

impl Event {
    /// Whether this event can come on this stage.
    pub fn fits(self, stage: &Stage) -> bool {
        let (guarded, relay) = (!stage.has("no-guard"), stage.has("inject"));
        match self {
            Self::HostDies => !stage.is_terminal(),
            // Without a monitor nothing is promised after that.
            Self::ShimDies | Self::MonitorDies | Self::MonitorSuspended => guarded,
            // At a terminal that SIGCONT is also for the server, so a job that is suspended runs afterwards.
            Self::PairSuspended => guarded && !stage.has("pidns") && !stage.is_terminal(),
            Self::RelayDies | Self::RelaySuspended | Self::Writer => relay,
            Self::EndOfInput => !stage.is_terminal(),
            // Numbers inside of another namespace are out of reach.
            Self::NumbersReused => !stage.has("pidns"),
            Self::Suspend
            | Self::SuspendResume
            | Self::SuspendTwice
            | Self::ResumeSuspend
            | Self::HangUp => stage.is_terminal(),
            Self::Terminate | Self::ServerDies | Self::ServerExits | Self::Orphan => true,
        }
    }

    /// Whether the tree ends because of it, without another step of the script.
    pub fn ends(self) -> bool {
        matches!(
            self,
            Self::HostDies
                | Self::ShimDies
                | Self::MonitorDies
                | Self::ServerDies
                | Self::RelayDies
                | Self::Terminate
                | Self::EndOfInput
                | Self::ServerExits
                | Self::HangUp
        )
    }

    pub fn is_key(self) -> bool {
        matches!(
            self,
            Self::Suspend | Self::SuspendResume | Self::SuspendTwice | Self::ResumeSuspend
        )
    }
}
