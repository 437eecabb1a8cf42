//! How long each part of a stop takes, and in which order the tree is signalled.

use core::time::Duration;

use crate::plan::event::Trigger;

/// Which processes get the stop signal, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KillMode {
    /// The server first; the rest when it is gone, at the latest [`Policy::stage`] before SIGKILL.
    #[default]
    Staged,
    /// All at once.
    Tree,
    /// The server only. The rest only gets SIGKILL.
    Mixed,
}

/// What has to end before a run ends without another reason to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Until {
    #[default]
    Server,
    Tree,
}

/// The settings for a stop, completed by what was found about the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How long the server has to exit without a signal.
    pub drain: Duration,
    /// From the first stop signal to SIGKILL.
    pub grace: Duration,
    /// How long before SIGKILL, at the latest, the rest is signalled; `None`: [`Self::stage_of`].
    pub stage: Option<Duration>,
    /// From the first SIGKILL until treaper lists the survivors and gives up.
    pub kill_timeout: Duration,
    pub kill_mode: KillMode,
    pub until: Until,
    /// SIGTERM comes from a manager with a deadline of its own, so treaper sets none.
    pub manager_has_deadline: bool,
    /// A stop that takes long lists the processes for which it waits, and Ctrl-C kills them.
    pub at_terminal: bool,
}

impl Policy {
    /// How long before the end of `grace` the rest gets the stop signal at the latest, in
    /// [`KillMode::Staged`]: by default 2 s, or a quarter of `grace` if that is less.
    pub fn stage_of(&self, grace: Duration) -> Duration {
        let default = Duration::from_secs(2).min(grace / 4);
        self.stage.unwrap_or(default).min(grace)
    }

    /// The grace period of a stop for `trigger`. It is short if the host seems to have killed the
    /// process that it knows: the next server, which needs the ports and locks, may come at once.
    pub fn grace_for(&self, trigger: Trigger) -> Duration {
        match trigger {
            Trigger::ShimKilled | Trigger::RelayKilled => self.grace.min(Duration::from_secs(2)),
            _ => self.grace,
        }
    }
}
