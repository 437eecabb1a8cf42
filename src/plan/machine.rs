//! The plan of escalation: a pure state machine, `(state, event, time) -> (state, actions)`.
//!
//! ```text
//! Running ──trigger──▶ Terminating ──grace over──▶ Killing ──kill-timeout over──▶ Survived
//!    ▲└─stdin-eof,──▶ Draining ──▲                   any state ──tree empty──▶ Done
//!    │  stdout-closed     │
//!    └──next writer───────┘
//! ```
//! Only `core`: no system call, no clock, no allocation. Times are `Duration`s on one monotonic
//! clock.

use core::time::Duration;

use crate::plan::event::{Action, Actions, Event, Trigger};
use crate::plan::policy::{KillMode, Policy, Until};

/// At a terminal: how long a stop may take without a message.
const NAME_AFTER: Duration = Duration::from_secs(1);
/// The time of something that has no deadline.
pub const NEVER: Duration = Duration::MAX;

/// The time between two looks whether the server still reads the input that is left.
const INPUT_CHECK: Duration = Duration::from_millis(50);
/// The pause after a kill round that found a new process. Without it the rounds would not kill
/// faster.
pub const ROUND_MIN: Duration = Duration::from_micros(200);
/// The longest pause. The pause doubles after each round that found no new process.
const ROUND_MAX: Duration = Duration::from_millis(10);

/// The state of the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    Running,
    /// No signal is sent until `until`. At `check` the unread input is looked at again, of which
    /// there were `unread` bytes at the last look.
    Draining {
        until: Duration,
        check: Option<Duration>,
        unread: Option<u64>,
    },
    /// The stop signal was sent, and SIGKILL comes at `kill_at`. Each step before that has a time,
    /// which may be [`NEVER`]. `None`: it was done, or is not needed.
    Terminating {
        /// Send the stop signal to the server, unless treaper has sent it.
        server_at: Option<Duration>,
        /// Send it to the rest of the tree.
        rest_at: Option<Duration>,
        /// List the processes for which the stop waits.
        name_at: Option<Duration>,
        kill_at: Duration,
    },
    /// SIGKILL, round after round. The next round is at `next`, after a pause of `pause`.
    Killing {
        next: Duration,
        pause: Duration,
        survivors_at: Duration,
    },
    /// The tree is empty.
    Done,
    /// The processes that are left cannot be killed.
    Survived,
}

/// The state of the stop, with what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub policy: Policy,
    pub state: State,
    pub server_gone: bool,
    /// The first trigger, or one after it that has ended its drain. Later ones can only make a
    /// deadline earlier.
    pub trigger: Option<Trigger>,
}

impl Plan {
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::Running,
            server_gone: false,
            trigger: None,
        }
    }

    /// The plan of a monitor that was killed at an unknown point, for its heir. What was ordered
    /// last may not be done, and it is unknown which processes have got the stop signal from the
    /// monitor, so what was ordered is ordered again. `server_gone`, `named`: the server has ended,
    /// and the waiting processes were listed, also if the plan does not know it yet.
    #[must_use]
    pub fn inherit(mut self, server_gone: bool, named: bool, now: Duration) -> Self {
        self.server_gone |= server_gone;
        let gone = self.server_gone;
        match &mut self.state {
            State::Terminating {
                server_at,
                rest_at,
                name_at,
                ..
            } => {
                *server_at = (!gone).then_some(server_at.unwrap_or(now));
                let rest = rest_at.filter(|_| !gone).unwrap_or(now);
                *rest_at = (self.policy.kill_mode != KillMode::Mixed).then_some(rest);
                let unnamed = self.policy.at_terminal && !named;
                *name_at = unnamed.then_some(name_at.unwrap_or(now));
            }
            // The heir finds out at once whether any are left, and names them.
            State::Done | State::Survived => {
                self.state = State::Killing {
                    next: now,
                    pause: ROUND_MIN,
                    survivors_at: now,
                }
            }
            State::Killing { next, .. } => *next = now,
            State::Running | State::Draining { .. } => {}
        }
        self
    }

    /// The plan when the monitor was the init of a PID namespace and is ending: the kernel has sent
    /// SIGKILL to all.
    #[must_use]
    pub fn end_namespace(self, now: Duration) -> Self {
        let (mut plan, _) = self.step(Event::Trigger(Trigger::MonitorKilled), now);
        if matches!(plan.state, State::Terminating { .. }) {
            let _ = plan.kill(now);
        }
        plan
    }

    /// Whether neither a stop nor a drain has begun.
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// Whether there is nothing more to do.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Survived)
    }

    /// Whether it is time for SIGKILL to the rest of the tree.
    pub fn kills(&self, now: Duration) -> bool {
        match self.state {
            State::Terminating { kill_at, .. } => kill_at <= now,
            State::Killing { .. } => true,
            _ => false,
        }
    }

    /// When [`Event::Deadline`] is due; `None`: never.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Running | State::Done | State::Survived => None,
            State::Draining { until, check, .. } => {
                Some(check.map_or(until, |check| check.min(until)))
            }
            State::Terminating {
                server_at,
                rest_at,
                name_at,
                kill_at,
            } => {
                let before = [server_at, rest_at, name_at].into_iter().flatten();
                Some(before.fold(kill_at, Duration::min)).filter(|at| *at != NEVER)
            }
            State::Killing {
                next, survivors_at, ..
            } => Some(next.min(survivors_at)),
        }
    }

    /// The plan after `event` at `now`, and what has to be done.
    #[must_use]
    pub fn step(mut self, event: Event, now: Duration) -> (Self, Actions) {
        let actions = match event {
            Event::Trigger(trigger) => self.on_trigger(trigger, now),
            Event::Reaped { server_gone, empty } => self.on_reaped(server_gone, empty, now),
            Event::Deadline { unread, hung_up } => self.on_deadline(unread, hung_up, now),
            Event::Swept { progress } => self.on_swept(progress, now),
            Event::KillNow => self.on_kill_now(now),
        };
        (self, actions)
    }

    fn on_trigger(&mut self, trigger: Trigger, now: Duration) -> Actions {
        match self.state {
            State::Running if trigger.drains() => {
                self.trigger = Some(trigger);
                self.state = State::Draining {
                    until: now + self.policy.drain,
                    // Whether input is left is only known after a look.
                    check: Some(now),
                    unread: None,
                };
                Actions::NONE
            }
            State::Running => self.terminate(trigger, now),
            // During a drain a second hang-up changes nothing. Every other trigger ends the drain
            // and replaces its trigger: when a host dies, either the end of its pipe or the end of
            // its process may be seen first.
            State::Draining { .. } if !trigger.drains() => {
                self.trigger = Some(trigger);
                self.terminate(trigger, now)
            }
            // A manager that is gone has no deadline any more. Also see `grace_for`.
            State::Terminating { .. } if trigger.is_end_of_process() => {
                self.shorten_deadlines(self.policy.grace_for(trigger), now);
                // It may have planned the signal to the server, and not sent it.
                if trigger == Trigger::MonitorKilled && !self.server_gone {
                    return Actions::only(Action::StopServer);
                }
                Actions::NONE
            }
            State::Draining { .. }
            | State::Terminating { .. }
            | State::Killing { .. }
            | State::Done
            | State::Survived => Actions::NONE,
        }
    }

    fn on_reaped(&mut self, server_gone: bool, empty: bool, now: Duration) -> Actions {
        let gone_just_now = server_gone && !self.server_gone;
        self.server_gone |= server_gone;
        if self.is_over() {
            return Actions::NONE;
        }
        if empty {
            self.trigger = self.trigger.or(Some(Trigger::ServerExit));
            self.state = State::Done;
            return Actions::NONE;
        }
        if !gone_just_now {
            return Actions::NONE;
        }
        match &mut self.state {
            State::Running | State::Draining { .. } if self.policy.until == Until::Tree => {
                Actions::NONE
            }
            // A drain is for the server alone, so it ends with the server.
            State::Running | State::Draining { .. } => self.terminate(Trigger::ServerExit, now),
            // Now the rest gets the stop signal, unless it has got it. The deadline stays: where a
            // manager has one, treaper sets none for the rest either.
            State::Terminating {
                server_at, rest_at, ..
            } => {
                *server_at = None;
                Actions([rest_at.take().map(|_| Action::StopRest), None, None])
            }
            State::Killing { .. } | State::Done | State::Survived => Actions::NONE,
        }
    }

    fn on_deadline(&mut self, unread: u64, hung_up: bool, now: Duration) -> Actions {
        match &mut self.state {
            // The FIFO has its next writer before any signal was sent: there is no reason to stop.
            State::Draining { .. } if !hung_up && self.trigger == Some(Trigger::StdinEof) => {
                self.trigger = None;
                self.state = State::Running;
                Actions::NONE
            }
            State::Draining {
                until,
                check,
                unread: before,
            } => {
                // The drain begins again while the server still reads its last input. With another
                // trigger stdin is open, and its unread bytes mean nothing.
                let last_input = self.trigger == Some(Trigger::StdinEof);
                if last_input && before.is_some_and(|before| unread < before) {
                    *until = now + self.policy.drain;
                }
                *check = (last_input && unread > 0).then_some(now + INPUT_CHECK);
                *before = Some(unread);
                if now < *until {
                    return Actions::NONE;
                }
                self.terminate(self.trigger.unwrap_or(Trigger::StdinEof), now)
            }
            State::Terminating { kill_at, .. } if now >= *kill_at => self.kill(now),
            State::Terminating {
                server_at,
                rest_at,
                name_at,
                ..
            } => {
                let take_due =
                    |at: &mut Option<Duration>, action| at.take_if(|at| now >= *at).map(|_| action);
                Actions([
                    take_due(server_at, Action::EnsureServerStop),
                    take_due(rest_at, Action::StopRest),
                    take_due(name_at, Action::NameWaiting),
                ])
            }
            State::Killing { survivors_at, .. } if now >= *survivors_at => {
                self.state = State::Survived;
                Actions::only(Action::NameSurvivors)
            }
            State::Killing { next, pause, .. } if now >= *next => {
                *next = now + *pause;
                Actions::only(Action::KillAll)
            }
            State::Running | State::Killing { .. } | State::Done | State::Survived => Actions::NONE,
        }
    }

    fn on_kill_now(&mut self, now: Duration) -> Actions {
        match self.state {
            // Only after the message that offers it.
            State::Terminating { name_at: None, .. } if self.policy.at_terminal => self.kill(now),
            _ => Actions::NONE,
        }
    }

    fn kill(&mut self, now: Duration) -> Actions {
        self.state = State::Killing {
            next: now + ROUND_MIN,
            pause: ROUND_MIN,
            survivors_at: now + self.policy.kill_timeout,
        };
        Actions::only(Action::KillAll)
    }

    fn on_swept(&mut self, progress: bool, now: Duration) -> Actions {
        if let State::Killing { next, pause, .. } = &mut self.state {
            *pause = if progress {
                ROUND_MIN
            } else {
                (*pause * 2).min(ROUND_MAX)
            };
            *next = now + *pause;
        }
        Actions::NONE
    }

    /// Begins the stop. This is the only place that orders the first stop signal.
    fn terminate(&mut self, trigger: Trigger, now: Duration) -> Actions {
        self.trigger = self.trigger.or(Some(trigger));
        let (mode, lives) = (self.policy.kill_mode, !self.server_gone);
        self.state = State::Terminating {
            server_at: lives.then_some(NEVER),
            rest_at: (mode == KillMode::Staged && lives).then_some(NEVER),
            name_at: self.policy.at_terminal.then(|| now + NAME_AFTER),
            kill_at: NEVER,
        };
        let asked = trigger == Trigger::Terminate;
        if !(self.policy.manager_has_deadline && asked) {
            self.shorten_deadlines(self.policy.grace_for(trigger), now);
        }
        let rest = match mode {
            KillMode::Staged => !lives,
            KillMode::Tree => true,
            KillMode::Mixed => false,
        };
        let server = lives.then_some(Action::StopServer);
        Actions([server, rest.then_some(Action::StopRest), None])
    }

    /// Sets SIGKILL to `now + grace`, and the steps before it to their times, unless they are
    /// earlier already. So no deadline is ever moved to a later time.
    fn shorten_deadlines(&mut self, grace: Duration, now: Duration) {
        let stage = self.policy.stage_of(grace);
        if let State::Terminating {
            server_at,
            rest_at,
            kill_at,
            ..
        } = &mut self.state
        {
            if now + grace >= *kill_at {
                return;
            }
            *kill_at = now + grace;
            for at in [server_at, rest_at].into_iter().flatten() {
                *at = (*at).min(kill_at.saturating_sub(stage));
            }
        }
    }
}
