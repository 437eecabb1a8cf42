//! The plan of escalation: a pure state machine, `(state, event, time) -> (state, actions)`.
//!
//! ```text
//! Running ──trigger──▶ Terminating ──grace over──▶ Killing ──kill-timeout over──▶ GivenUp
//!    ▲└─stdin-eof,──▶ Draining ──▲                   any state ──tree empty──▶ Done
//!    │  stdout-closed     │
//!    └──next writer───────┘
//! ```
//! Only `core`: no system call, no clock, no allocation. Times are `Duration`s on one monotonic clock.
#![forbid(unsafe_code)]

use core::time::Duration;

use crate::event::{Action, Actions, Event, Trigger};

/// Who gets the stop signal, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KillMode {
    /// The server first; the rest as soon as it is gone, at the latest after [`Settings::stage`].
    #[default]
    Staged,
    /// All at once.
    Tree,
    /// The server only; the rest is only killed.
    Mixed,
}

/// What the user has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Time in which the server may leave by itself, unsignalled.
    pub drain: Duration,
    /// From the first stop signal to SIGKILL.
    pub grace: Duration,
    /// From the first SIGKILL until what survives is named and left.
    pub kill_timeout: Duration,
    pub kill_mode: KillMode,
    /// Whether the end of the server leaves the rest of its tree running.
    pub until_tree: bool,
}

impl Settings {
    /// How long the server has for itself in [`KillMode::Staged`].
    #[must_use]
    pub fn stage(&self) -> Duration {
        Duration::from_secs(2).min(self.grace / 4)
    }
}

/// While input is left, how often to look whether the server still takes it.
const INPUT_CHECK: Duration = Duration::from_millis(50);
/// The rest after a kill round that found somebody new: rounds without rest are no faster.
pub const ROUND_MIN: Duration = Duration::from_micros(200);
/// The longest rest, reached by doubling after rounds that found nobody new.
const ROUND_MAX: Duration = Duration::from_millis(10);

/// Where the stop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Running,
    /// Nobody is signalled until `until`; `check` is when to look at the unread input again, of
    /// which there were `unread` bytes at the last look.
    Draining {
        until: Duration,
        check: Option<Duration>,
        unread: Option<u64>,
    },
    /// The stop signal is out; the rest of the tree gets it at `sweep_at`, SIGKILL comes at `kill_at`.
    Terminating {
        sweep_at: Option<Duration>,
        kill_at: Duration,
    },
    /// SIGKILL round after round; the next one at `next`, after a rest of `rest`.
    Killing {
        next: Duration,
        rest: Duration,
        give_up_at: Duration,
    },
    /// The tree is empty.
    Done,
    /// What is left cannot be killed.
    GivenUp,
}

/// The state and what does not change with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    settings: Settings,
    state: State,
    server_gone: bool,
    /// The first one; later ones add nothing but haste.
    trigger: Option<Trigger>,
}

impl Plan {
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Running,
            server_gone: false,
            trigger: None,
        }
    }

    /// Takes over a stop that another process had begun for `trigger`, at its deadlines.
    #[must_use]
    pub const fn resume(
        settings: Settings,
        state: State,
        trigger: Option<Trigger>,
        server_gone: bool,
    ) -> Self {
        Self {
            settings,
            state,
            server_gone,
            trigger,
        }
    }

    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    #[must_use]
    pub const fn trigger(&self) -> Option<Trigger> {
        self.trigger
    }

    #[must_use]
    pub const fn server_gone(&self) -> bool {
        self.server_gone
    }

    /// Whether there is nothing more to do.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::GivenUp)
    }

    /// When [`Event::Deadline`] is due; `None`: never.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Running | State::Done | State::GivenUp => None,
            State::Draining { until, check, .. } => {
                Some(check.map_or(until, |check| check.min(until)))
            }
            State::Terminating { sweep_at, kill_at } => {
                Some(sweep_at.map_or(kill_at, |sweep| sweep.min(kill_at)))
            }
            State::Killing {
                next, give_up_at, ..
            } => Some(next.min(give_up_at)),
        }
    }

    /// What `event` at `now` changes, and what is to be done for it.
    #[must_use]
    pub fn step(mut self, event: Event, now: Duration) -> (Self, Actions) {
        let actions = match event {
            Event::Trigger(trigger) => self.on_trigger(trigger, now),
            Event::Reaped { server_gone, empty } => self.on_reaped(server_gone, empty, now),
            Event::Deadline { unread, hung_up } => self.on_deadline(unread, hung_up, now),
            Event::Swept { progress } => self.on_swept(progress, now),
        };
        (self, actions)
    }

    fn on_trigger(&mut self, trigger: Trigger, now: Duration) -> Actions {
        match self.state {
            State::Running if trigger.drains() => {
                self.trigger = Some(trigger);
                // Whether there is input left is only known at the first look, so that comes at once.
                let until = now + self.settings.drain;
                self.state = State::Draining {
                    until,
                    check: Some(now),
                    unread: None,
                };
                Actions::NONE
            }
            State::Running => self.terminate(trigger, now),
            // The peer of stdin says nothing new during a drain; every other reason ends it.
            State::Draining { .. } if !trigger.drains() => self.terminate(trigger, now),
            State::Draining { .. }
            | State::Terminating { .. }
            | State::Killing { .. }
            | State::Done
            | State::GivenUp => Actions::NONE,
        }
    }

    fn on_reaped(&mut self, server_gone: bool, empty: bool, now: Duration) -> Actions {
        let gone_just_now = server_gone && !self.server_gone;
        self.server_gone |= server_gone;
        if self.is_over() {
            return Actions::NONE;
        }
        if empty {
            if self.trigger.is_none() {
                self.trigger = Some(Trigger::ServerExit);
            }
            self.state = State::Done;
            return Actions::NONE;
        }
        if !gone_just_now {
            return Actions::NONE;
        }
        match self.state {
            State::Running | State::Draining { .. } if self.settings.until_tree => Actions::NONE,
            // With the server gone nobody is left who could use the rest of a drain.
            State::Running | State::Draining { .. } => self.terminate(Trigger::ServerExit, now),
            State::Terminating {
                sweep_at: Some(_),
                kill_at,
            } => {
                self.state = State::Terminating {
                    sweep_at: None,
                    kill_at,
                };
                Actions::one(Action::StopRest)
            }
            State::Terminating { sweep_at: None, .. }
            | State::Killing { .. }
            | State::Done
            | State::GivenUp => Actions::NONE,
        }
    }

    fn on_deadline(&mut self, unread: u64, hung_up: bool, now: Duration) -> Actions {
        match self.state {
            // The next writer of a FIFO came before anything was signalled: there was no reason to stop.
            State::Draining { .. } if !hung_up && self.trigger == Some(Trigger::StdinEof) => {
                self.trigger = None;
                self.state = State::Running;
                Actions::NONE
            }
            State::Draining {
                until,
                unread: before,
                ..
            } => {
                // The clock of the drain starts anew while the server still takes its last input. With
                // another trigger stdin is open, and what comes and goes there says nothing.
                let last_input = self.trigger == Some(Trigger::StdinEof);
                let taken = last_input && before.is_some_and(|before| unread < before);
                let until = if taken {
                    now + self.settings.drain
                } else {
                    until
                };
                if now >= until {
                    let trigger = self.trigger.unwrap_or(Trigger::StdinEof);
                    return self.terminate(trigger, now);
                }
                let check = (last_input && unread > 0).then_some(now + INPUT_CHECK);
                self.state = State::Draining {
                    until,
                    check,
                    unread: Some(unread),
                };
                Actions::NONE
            }
            State::Terminating { kill_at, .. } if now >= kill_at => {
                let give_up_at = now + self.settings.kill_timeout;
                self.state = State::Killing {
                    next: now + ROUND_MIN,
                    rest: ROUND_MIN,
                    give_up_at,
                };
                Actions::one(Action::KillAll)
            }
            State::Terminating {
                sweep_at: Some(at),
                kill_at,
            } if now >= at => {
                self.state = State::Terminating {
                    sweep_at: None,
                    kill_at,
                };
                Actions::one(Action::StopRest)
            }
            State::Killing { give_up_at, .. } if now >= give_up_at => {
                self.state = State::GivenUp;
                Actions::one(Action::NameSurvivors)
            }
            State::Killing {
                next,
                rest,
                give_up_at,
            } if now >= next => {
                self.state = State::Killing {
                    next: now + rest,
                    rest,
                    give_up_at,
                };
                Actions::one(Action::KillAll)
            }
            State::Running
            | State::Terminating { .. }
            | State::Killing { .. }
            | State::Done
            | State::GivenUp => Actions::NONE,
        }
    }

    fn on_swept(&mut self, progress: bool, now: Duration) -> Actions {
        if let State::Killing {
            rest, give_up_at, ..
        } = self.state
        {
            let rest = if progress {
                ROUND_MIN
            } else {
                (rest * 2).min(ROUND_MAX)
            };
            self.state = State::Killing {
                next: now + rest,
                rest,
                give_up_at,
            };
        }
        Actions::NONE
    }

    /// Begins the stop: the only place where the stop signal is ordered for the first time.
    fn terminate(&mut self, trigger: Trigger, now: Duration) -> Actions {
        self.trigger = self.trigger.or(Some(trigger));
        let kill_at = now + self.settings.grace;
        let staged = self.settings.kill_mode == KillMode::Staged && !self.server_gone;
        let sweep_at = staged.then(|| now + self.settings.stage());
        self.state = State::Terminating { sweep_at, kill_at };
        match (self.settings.kill_mode, self.server_gone) {
            (KillMode::Staged | KillMode::Mixed, false) => Actions::one(Action::StopServer),
            (KillMode::Staged | KillMode::Tree, true) => Actions::one(Action::StopRest),
            (KillMode::Tree, false) => Actions::two(Action::StopServer, Action::StopRest),
            (KillMode::Mixed, true) => Actions::NONE,
        }
    }
}
