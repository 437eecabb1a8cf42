//! The state of the stop on the board. The monitor writes it. If the monitor is killed, the shim
//! goes on with that stop.

use std::time::Duration;

use super::Board;
use crate::plan::event::Trigger;
use crate::plan::machine::{NAME_AFTER, NEVER, Plan, ROUND_MIN, State};
use crate::plan::policy::{KillMode, Policy};

impl Board {
    /// Monitor: the state of the stop. To be called before its actions are done.
    pub fn set_plan(self, plan: &Plan) {
        // A drain can end without a stop. Then there is no trigger any more.
        let trigger = plan.trigger().map_or(0, |trigger| trigger as u64);
        self.trigger.set(trigger);
        match plan.state() {
            State::Terminating { kill_at, .. } => self.kill_at.set(nanos(kill_at)),
            State::Killing { survivors_at, .. } => self.survivors_at.set(nanos(survivors_at)),
            State::Running | State::Draining { .. } | State::Done | State::Survived => {}
        }
    }

    /// Why the tree is being stopped, if it is.
    pub fn trigger(self) -> Option<Trigger> {
        let number = self.trigger.get();
        Trigger::ALL.into_iter().find(|t| *t as u64 == number)
    }

    /// The trigger of a stop. A drain is none: the death of the monitor ends it, and is the trigger
    /// then.
    pub fn stop_trigger(self) -> Option<Trigger> {
        let stops = self.kill_at.get() > 0 || self.survivors_at.get() > 0;
        self.trigger().filter(|trigger| stops || !trigger.drains())
    }

    /// Shim: the monitor was the init of a PID namespace and is ending, so the kernel has sent
    /// SIGKILL to all. Returns until when they have to end: `latest`, or the time that the monitor
    /// has set before.
    pub fn set_monitor_ending(self, latest: Duration) -> Duration {
        if self.stop_trigger().is_none() {
            self.trigger.set(Trigger::MonitorKilled as u64);
        }
        if self.survivors_at.get() == 0 {
            self.survivors_at.set(nanos(latest));
        }
        Duration::from_nanos(self.survivors_at.get())
    }

    /// Shim: the plan after the death of the monitor. It keeps the deadlines of the monitor.
    pub fn resume(self, policy: Policy, now: Duration) -> Plan {
        let trigger = self.stop_trigger();
        let kill_at = match self.kill_at.get() {
            u64::MAX => NEVER,
            nanos => Duration::from_nanos(nanos),
        };
        let survivors_at = Duration::from_nanos(self.survivors_at.get());
        let state = if !survivors_at.is_zero() {
            State::Killing {
                next: now,
                pause: ROUND_MIN,
                survivors_at,
            }
        } else if !kill_at.is_zero() {
            // It is unknown which processes the monitor has signalled, so all are signalled again.
            // Most likely the kernel has sent the stop signal to the server.
            let stage = policy.stage_of(policy.grace);
            State::Terminating {
                server_at: self.ended().is_none().then(|| match kill_at {
                    NEVER => NEVER,
                    at => at.saturating_sub(stage),
                }),
                rest_at: (policy.kill_mode != KillMode::Mixed).then_some(now),
                name_at: (policy.at_terminal && !self.named.get()).then_some(now + NAME_AFTER),
                kill_at,
            }
        } else {
            State::Running
        };
        Plan::resume(policy, state, trigger, self.ended().is_some())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
