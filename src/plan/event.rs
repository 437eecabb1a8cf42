//! The vocabulary between the watch, the plan and the effects.
#![forbid(unsafe_code)]

use core::fmt;

/// A verified reason to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Trigger {
    /// The process that started us, or one of the launchers between it and us, is gone.
    ParentExit = 1,
    /// The peer of stdin hung up.
    StdinEof,
    /// SIGHUP, or the terminal is gone.
    Hangup,
    /// SIGTERM.
    Terminate,
    /// A process named by `--watch-pid` or `--watch-ancestor` is gone.
    WatchedExit,
    /// Nobody reads the server's stdout any more.
    StdoutClosed,
    /// The shim of the pair is gone.
    ShimKilled,
    /// The monitor of the pair is gone.
    MonitorKilled,
    /// The server ended by itself.
    ServerExit,
}

impl Trigger {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::ParentExit,
        Self::StdinEof,
        Self::Hangup,
        Self::Terminate,
        Self::WatchedExit,
        Self::StdoutClosed,
        Self::ShimKilled,
        Self::MonitorKilled,
        Self::ServerExit,
    ];

    /// As messages and reports name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ParentExit => "parent-exit",
            Self::StdinEof => "stdin-eof",
            Self::Hangup => "hangup",
            Self::Terminate => "terminate",
            Self::WatchedExit => "watched-exit",
            Self::StdoutClosed => "stdout-closed",
            Self::ShimKilled => "shim-killed",
            Self::MonitorKilled => "monitor-killed",
            Self::ServerExit => "server-exit",
        }
    }

    /// Whether the server first gets time to leave by itself, unsignalled: it sees these two as well.
    #[must_use]
    pub const fn drains(self) -> bool {
        matches!(self, Self::StdinEof | Self::StdoutClosed)
    }

    /// Whether it is the end of a process: of the host, of one that is watched, or of the pair.
    #[must_use]
    pub const fn is_end_of_process(self) -> bool {
        matches!(
            self,
            Self::ParentExit | Self::WatchedExit | Self::ShimKilled | Self::MonitorKilled
        )
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fact that the plan is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Trigger(Trigger),
    /// Children were reaped. `empty`: waiting says that nobody is left.
    Reaped {
        server_gone: bool,
        empty: bool,
    },
    /// The deadline has come. `unread`: bytes of stdin that the server has not taken yet. `hung_up`: no
    /// writer has opened stdin again since it hung up, as the next one may do with a FIFO.
    Deadline {
        unread: u64,
        hung_up: bool,
    },
    /// A kill round is done. `progress`: it signalled somebody that no round before had.
    Swept {
        progress: bool,
    },
    /// What the stop waits for was named at the terminal, and then Ctrl-C was pressed.
    KillNow,
}

/// What the plan wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The stop signal to the server, then SIGCONT if it is suspended. It may be left out if the kernel seems to
    /// have sent it.
    StopServer,
    /// The same to a server that has not got it from us: what the kernel seems to have sent proves nothing.
    EnsureServerStop,
    /// The stop signal to each process of the tree but the server, then SIGCONT to what is stopped.
    StopRest,
    /// Say what the stop waits for, and that Ctrl-C kills it.
    NameWaiting,
    /// One kill round over the whole tree; answered by [`Event::Swept`].
    KillAll,
    /// Look for what is left, and name it.
    NameSurvivors,
}

/// What to do now, in order; never more than three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions(pub [Option<Action>; 3]);

impl Actions {
    pub const NONE: Self = Self([None; 3]);

    #[must_use]
    pub const fn one(first: Action) -> Self {
        Self([Some(first), None, None])
    }

    #[must_use]
    pub const fn two(first: Action, second: Action) -> Self {
        Self([Some(first), Some(second), None])
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        self.0.into_iter().flatten()
    }
}
