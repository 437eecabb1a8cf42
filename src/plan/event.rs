//! What goes into the plan (events), and what comes out of it (actions).

use core::fmt;

/// One list for the enum, its values and their names.
macro_rules! triggers {
    ($($(#[doc = $doc:literal])+ $trigger:ident $(= $number:literal)? => $name:literal,)+) => {
        /// A verified reason to stop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Trigger {
            $($(#[doc = $doc])+ $trigger $(= $number)?,)+
        }

        impl Trigger {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$trigger),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$trigger => $name,)+
                }
            }
        }
    };
}

triggers! {
    /// The host, or one of the launchers between it and treaper, is gone.
    ParentExit = 1 => "parent-exit",
    /// The peer of stdin hung up.
    StdinEof => "stdin-eof",
    /// SIGHUP, or the terminal is gone.
    Hangup => "hangup",
    /// SIGTERM.
    Terminate => "terminate",
    /// A process named by `--watch-pid` or `--watch-ancestor` is gone.
    WatchedExit => "watched-exit",
    /// Nothing was written to the server's stdin for the time of `--idle`.
    Idle => "idle",
    /// The server's stdout has no reader any more.
    StdoutClosed => "stdout-closed",
    /// A cancelled turn did not end in time.
    CancelTimeout => "cancel-timeout",
    /// The process in front of treaper, which passes stdin on, is gone.
    RelayKilled => "relay-killed",
    /// The shim of the pair is gone.
    ShimKilled => "shim-killed",
    /// The monitor of the pair is gone.
    MonitorKilled => "monitor-killed",
    /// The server ended by itself.
    ServerExit => "server-exit",
}

impl Trigger {
    /// The reverse of a cast to a number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|of| *of as u64 == number)
    }

    /// Whether a drain comes before the stop signal, since the server sees the cause and can exit.
    pub const fn drains(self) -> bool {
        matches!(self, Self::StdinEof | Self::StdoutClosed)
    }

    pub const fn is_end_of_process(self) -> bool {
        use Trigger::{MonitorKilled, ParentExit, RelayKilled, ShimKilled, WatchedExit};
        matches!(
            self,
            ParentExit | WatchedExit | RelayKilled | ShimKilled | MonitorKilled
        )
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A verified fact, which may change the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Trigger(Trigger),
    /// Children were reaped. `empty`: `wait` says that no child is left.
    Reaped {
        server_gone: bool,
        empty: bool,
    },
    /// The deadline has come. `unread`: bytes of stdin that the server has not read yet. `hung_up`:
    /// false for a FIFO that another process has opened for writing since its hang-up.
    Deadline {
        unread: u64,
        hung_up: bool,
    },
    /// A kill round is done. `progress`: it has found a process that no earlier round has found.
    Swept {
        progress: bool,
    },
    /// At a terminal, Ctrl-C was pressed after [`Action::NameWaiting`].
    KillNow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the stop signal to the server, unless the kernel seems to have; then SIGCONT if needed.
    StopServer,
    /// The same, unless treaper itself has sent it: whether the kernel has is not certain.
    EnsureServerStop,
    /// Send the stop signal, then SIGCONT, to each process of the tree except the server.
    StopRest,
    /// List the processes for which the stop waits, and say that Ctrl-C kills them.
    NameWaiting,
    /// Send SIGKILL to all processes of the tree, once. [`Event::Swept`] is the answer.
    KillAll,
    NameSurvivors,
}

/// What has to be done now, in this order.
pub type Actions = [Option<Action>; 3];
