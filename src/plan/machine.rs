//! The plan of escalation, a pure state machine, `(state, event, time) -> (state, actions)`, and
//! the loop that carries it out.
//!
//! ```text
//! Running ──trigger──▶ Terminating ──grace over──▶ Killing ──kill-timeout over──▶ Survived
//!    ▲└─stdin-eof,──▶ Draining ──▲                   any state ──tree empty──▶ Done
//!    │  stdout-closed     │
//!    └──next writer───────┘
//! ```
//! Only `core`: no system call, no clock, no allocation. All times are of one monotonic clock.

use core::time::Duration;

use crate::plan::event::{Action, Actions, Event, Trigger};
use crate::plan::policy::{KillMode, Policy, Until};

/// The time of something that has no deadline.
pub const NEVER: Duration = Duration::MAX;
const NOTHING: Actions = [None; 3];

/// At a terminal: how long a stop may take without a message.
const NAME_AFTER: Duration = Duration::from_secs(1);
/// The time between two looks whether the server still reads the input that is left.
const INPUT_CHECK: Duration = Duration::from_millis(50);
/// The pause after a kill round that found a new process. Without it rounds would not kill faster.
pub const ROUND_MIN: Duration = Duration::from_micros(200);
/// The longest pause. It doubles after each round that found no new process.
const ROUND_MAX: Duration = Duration::from_millis(10);

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
    /// The stop signal was sent.
    Terminating(Steps),
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

/// What a plan is carried out on: the kernel, or a simulation of it.
pub trait World {
    fn now(&self) -> Duration;

    /// Waits for the next event. At `deadline` that is [`Event::Deadline`].
    fn next_event(&mut self, deadline: Option<Duration>) -> Event;

    /// Called with every new plan, and the event that has led to it, before its actions are done.
    fn planned(&mut self, event: Event, before: &Plan, after: &Plan);

    /// Does `action` of `plan`. Returns the event that answers it. A failure is only logged.
    fn apply(&mut self, plan: &Plan, action: Action) -> Option<Event>;
}

/// When each step after the stop signal is due, perhaps [`NEVER`]. `None`: done, or not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Steps {
    /// Send the stop signal to the server, unless treaper has sent it.
    pub server: Option<Duration>,
    /// Send it to the rest of the tree.
    pub rest: Option<Duration>,
    /// List the processes for which the stop waits.
    pub name: Option<Duration>,
    /// Send SIGKILL.
    pub kill: Duration,
}

/// The state of the stop, with what it depends on.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub policy: Policy,
    pub state: State,
    pub server_gone: bool,
    /// The first trigger, or one that has ended its drain. Later ones only make a deadline earlier.
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

    /// The loop, to the end of the plan. There is no other way out. `known`: what has happened.
    pub fn run(mut self, world: &mut impl World, mut known: Option<Event>) -> Self {
        while !self.is_over() {
            let next = known.take();
            let event = next.unwrap_or_else(|| world.next_event(self.deadline()));
            let (after, actions) = self.step(event, world.now());
            world.planned(event, &self, &after);
            self = after;
            for action in actions.into_iter().flatten() {
                known = world.apply(&self, action).or(known);
            }
        }
        self
    }

    /// The plan of a monitor that was killed at an unknown point, for its heir: what was ordered is
    /// ordered again. `server_gone`, `named`: the server has ended, and the waiting processes were
    /// listed, also if the plan does not know it yet.
    pub fn inherit(mut self, server_gone: bool, named: bool, now: Duration) -> Self {
        self.server_gone |= server_gone;
        let gone = self.server_gone;
        match &mut self.state {
            State::Terminating(steps) => {
                steps.server = (!gone).then_some(steps.server.unwrap_or(now));
                let rest = steps.rest.filter(|_| !gone).unwrap_or(now);
                steps.rest = (self.policy.kill_mode != KillMode::Mixed).then_some(rest);
                let unnamed = self.policy.at_terminal && !named;
                steps.name = unnamed.then_some(steps.name.unwrap_or(now));
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

    /// The plan when the monitor, a namespace's init, ends: the kernel has sent SIGKILL to all.
    pub fn end_namespace(self, now: Duration) -> Self {
        let (mut plan, _) = self.step(Event::Trigger(Trigger::MonitorKilled), now);
        if matches!(plan.state, State::Terminating(_)) {
            let _ = plan.kill(now);
        }
        plan
    }

    /// Whether neither a stop nor a drain has begun.
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Survived)
    }

    /// When [`Event::Deadline`] is due; `None`: never.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Running | State::Done | State::Survived => None,
            State::Draining { until, check, .. } => Some(check.unwrap_or(until).min(until)),
            State::Terminating(steps) => {
                let before = [steps.server, steps.rest, steps.name];
                let first = before.into_iter().flatten().fold(steps.kill, Duration::min);
                Some(first).filter(|at| *at != NEVER)
            }
            State::Killing {
                next, survivors_at, ..
            } => Some(next.min(survivors_at)),
        }
    }

    /// The plan after `event` at `now`, and what has to be done.
    pub fn step(mut self, event: Event, now: Duration) -> (Self, Actions) {
        let actions = match event {
            Event::Trigger(trigger) => self.on_trigger(trigger, now),
            Event::Reaped { server_gone, empty } => self.on_reaped(server_gone, empty, now),
            Event::Deadline { unread, hung_up } => self.on_deadline(unread, hung_up, now),
            Event::Swept { progress } => {
                if let State::Killing { next, pause, .. } = &mut self.state {
                    let longer = (*pause * 2).min(ROUND_MAX);
                    *pause = if progress { ROUND_MIN } else { longer };
                    *next = now + *pause;
                }
                NOTHING
            }
            Event::KillNow => match self.state {
                // Only after the message that offers it.
                State::Terminating(steps) if self.policy.at_terminal && steps.name.is_none() => {
                    self.kill(now)
                }
                _ => NOTHING,
            },
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
            }
            // During a drain a second hang-up changes nothing. Every other trigger ends the drain
            // and replaces its trigger: a dying host's pipe may end before the host.
            State::Running | State::Draining { .. } if !trigger.drains() => {
                self.trigger = Some(trigger);
                return self.terminate(trigger, now);
            }
            // A manager that is gone has no deadline any more. Also see `grace_for`.
            State::Terminating(_) if trigger.is_end_of_process() => {
                self.shorten_deadlines(trigger, now);
                // It may have planned the signal to the server, and not sent it.
                if trigger == Trigger::MonitorKilled && !self.server_gone {
                    return [Some(Action::StopServer), None, None];
                }
            }
            _ => {}
        }
        NOTHING
    }

    fn on_reaped(&mut self, server_gone: bool, empty: bool, now: Duration) -> Actions {
        let gone_just_now = server_gone && !self.server_gone;
        self.server_gone |= server_gone;
        if self.is_over() {
            return NOTHING;
        }
        if empty {
            self.trigger = self.trigger.or(Some(Trigger::ServerExit));
            self.state = State::Done;
            return NOTHING;
        }
        match &mut self.state {
            // A drain is for the server alone, so it ends with the server.
            State::Running | State::Draining { .. }
                if gone_just_now && self.policy.until == Until::Server =>
            {
                self.terminate(Trigger::ServerExit, now)
            }
            // Now the rest gets the stop signal, unless it has got it. The deadline stays: where a
            // manager has one, treaper sets none for the rest either.
            State::Terminating(steps) if gone_just_now => {
                steps.server = None;
                [steps.rest.take().map(|_| Action::StopRest), None, None]
            }
            _ => NOTHING,
        }
    }

    fn on_deadline(&mut self, unread: u64, hung_up: bool, now: Duration) -> Actions {
        // With another trigger stdin is open, and its unread bytes mean nothing.
        let stdin_ended = self.trigger == Some(Trigger::StdinEof);
        match &mut self.state {
            // The FIFO has its next writer before any signal was sent: there is no reason to stop.
            State::Draining { .. } if stdin_ended && !hung_up => {
                self.trigger = None;
                self.state = State::Running;
                NOTHING
            }
            State::Draining {
                until,
                check,
                unread: before,
            } => {
                // The drain begins again while the server still reads its last input.
                if stdin_ended && before.is_some_and(|before| unread < before) {
                    *until = now + self.policy.drain;
                }
                *check = (stdin_ended && unread > 0).then_some(now + INPUT_CHECK);
                *before = Some(unread);
                if now < *until {
                    return NOTHING;
                }
                self.terminate(self.trigger.unwrap_or(Trigger::StdinEof), now)
            }
            State::Terminating(steps) if now >= steps.kill => self.kill(now),
            State::Terminating(steps) => {
                let take_due =
                    |at: &mut Option<Duration>, action| at.take_if(|at| now >= *at).map(|_| action);
                [
                    take_due(&mut steps.server, Action::EnsureServerStop),
                    take_due(&mut steps.rest, Action::StopRest),
                    take_due(&mut steps.name, Action::NameWaiting),
                ]
            }
            State::Killing { survivors_at, .. } if now >= *survivors_at => {
                self.state = State::Survived;
                [Some(Action::NameSurvivors), None, None]
            }
            State::Killing { next, pause, .. } if now >= *next => {
                *next = now + *pause;
                [Some(Action::KillAll), None, None]
            }
            State::Running | State::Killing { .. } | State::Done | State::Survived => NOTHING,
        }
    }

    fn kill(&mut self, now: Duration) -> Actions {
        self.state = State::Killing {
            next: now + ROUND_MIN,
            pause: ROUND_MIN,
            survivors_at: now + self.policy.kill_timeout,
        };
        [Some(Action::KillAll), None, None]
    }

    /// Begins the stop. This is the only place that orders the first stop signal.
    fn terminate(&mut self, trigger: Trigger, now: Duration) -> Actions {
        self.trigger = self.trigger.or(Some(trigger));
        let (mode, lives) = (self.policy.kill_mode, !self.server_gone);
        self.state = State::Terminating(Steps {
            server: lives.then_some(NEVER),
            rest: (mode == KillMode::Staged && lives).then_some(NEVER),
            name: self.policy.at_terminal.then(|| now + NAME_AFTER),
            kill: NEVER,
        });
        if !(self.policy.manager_has_deadline && trigger == Trigger::Terminate) {
            self.shorten_deadlines(trigger, now);
        }
        let server = lives.then_some(Action::StopServer);
        let rest = mode == KillMode::Tree || mode == KillMode::Staged && !lives;
        [server, rest.then_some(Action::StopRest), None]
    }

    /// Sets SIGKILL to the end of the grace period for `trigger`, and the steps before it to their
    /// times, unless they are earlier already. So no deadline is ever moved to a later time.
    fn shorten_deadlines(&mut self, trigger: Trigger, now: Duration) {
        let grace = self.policy.grace_for(trigger);
        if let State::Terminating(steps) = &mut self.state {
            if now + grace >= steps.kill {
                return;
            }
            steps.kill = now + grace;
            let last = steps.kill.saturating_sub(self.policy.stage_of(grace));
            for at in [&mut steps.server, &mut steps.rest] {
                *at = at.map(|at| at.min(last));
            }
        }
    }
}
