//! How long each part of a stop takes, and in which order the tree is signalled.

use core::time::Duration;

use crate::plan::event::Trigger;

/// Which processes get the stop signal, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KillMode {
    /// The server first. The rest of the tree when the server is gone, at the latest
    /// [`Policy::stage`] before SIGKILL.
    #[default]
    Staged,
    /// All at once.
    Tree,
    /// The server only. The rest of the tree only gets SIGKILL.
    Mixed,
}

/// How long a run lasts if there is no other reason to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Until {
    /// Until the server has ended.
    #[default]
    Server,
    /// Until all of its tree has ended.
    Tree,
}

/// The user's settings for a stop, completed by what was found about the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How long the server has to exit by itself, without a signal.
    pub drain: Duration,
    /// From the first stop signal to SIGKILL.
    pub grace: Duration,
    /// How long before SIGKILL the rest gets the stop signal at the latest; `None`: see
    /// [`Self::stage_of`].
    pub stage: Option<Duration>,
    /// From the first SIGKILL until treaper lists the survivors and gives up.
    pub kill_timeout: Duration,
    pub kill_mode: KillMode,
    pub until: Until,
    /// SIGTERM comes from a manager with a deadline of its own, so treaper sets none, neither for
    /// the server nor for the rest.
    pub manager_has_deadline: bool,
    /// At a terminal, a stop that takes long lists the processes for which it waits, and Ctrl-C
    /// kills them.
    pub at_terminal: bool,
}

impl Policy {
    /// How long before the end of a `grace` the rest gets the stop signal in [`KillMode::Staged`].
    pub fn stage_of(&self, grace: Duration) -> Duration {
        let stage = self.stage.unwrap_or(STAGE.min(grace / 4));
        stage.min(grace)
    }

    /// The grace period of a stop for `trigger`. It is short if the host seems to have killed the
    /// process that it knows (the shim, or the relay in front of it): the host
    /// may start the next server at once, and that one needs the ports and locks of this one.
    pub fn grace_for(&self, trigger: Trigger) -> Duration {
        match trigger {
            Trigger::ShimKilled | Trigger::RelayKilled => self.grace.min(GRACE_AFTER_KILL),
            _ => self.grace,
        }
    }
}

/// The default stage, unless a quarter of the grace period is less. In it the rest can end by the
/// stop signal.
const STAGE: Duration = Duration::from_secs(2);
/// The longest grace period after the process that the host knows was killed.
const GRACE_AFTER_KILL: Duration = Duration::from_secs(2);
