//! The state of the stop on the board. The monitor writes it. If the monitor is killed, the shim goes on with that
//! stop.
#![forbid(unsafe_code)]

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
    #[must_use]
    pub fn trigger(self) -> Option<Trigger> {
        let number = self.trigger.get();
        Trigger::ALL.into_iter().find(|t| *t as u64 == number)
    }

    /// Shim: the monitor was the init of a PID namespace and is ending, so the kernel has sent SIGKILL to all. Returns
    /// until when they have to end: `latest`, or the time that the monitor has set before.
    pub fn set_monitor_ending(self, latest: Duration) -> Duration {
        if self.trigger().is_none() {
            self.trigger.set(Trigger::MonitorKilled as u64);
        }
        if self.survivors_at.get() == 0 {
            self.survivors_at.set(nanos(latest));
        }
        Duration::from_nanos(self.survivors_at.get())
    }

    /// Shim: the plan after the death of the monitor. It keeps the deadlines of the monitor.
    #[must_use]
    pub fn resume(self, policy: Policy, now: Duration) -> Plan {
        let trigger = self.trigger();
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
            // It is unknown which processes the monitor has signalled, so all are signalled again. Most likely the
            // kernel has sent the stop signal to the server.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::event::Event;
    use crate::plan::policy::Until;
    use crate::sys::wait::Ended;

    fn board() -> Board {
        Board::shared().unwrap()
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    const POLICY: Policy = Policy {
        drain: secs(5),
        grace: secs(10),
        stage: Some(secs(3)),
        kill_timeout: secs(5),
        kill_mode: KillMode::Staged,
        until: Until::Server,
        manager_has_deadline: false,
        at_terminal: false,
    };

    /// The state of the plan that the shim makes from the board at `now`.
    fn resumed(board: Board, policy: Policy, now: Duration) -> State {
        board.resume(policy, now).state()
    }

    #[test]
    fn without_a_stop_on_the_board_the_heir_begins_with_a_new_plan() {
        let board = board();
        let mut plan = Plan::new(POLICY);
        board.set_plan(&plan);
        assert_eq!(board.resume(POLICY, secs(1)), plan);
        plan = plan.step(Event::Trigger(Trigger::StdinEof), secs(1)).0;
        board.set_plan(&plan);
        assert_eq!(board.trigger(), Some(Trigger::StdinEof));
        assert_eq!(resumed(board, POLICY, secs(1)), State::Running);
        // Another writer has come, so the drain has ended without a stop.
        let next_writer = Event::Deadline {
            unread: 0,
            hung_up: false,
        };
        plan = plan.step(next_writer, secs(2)).0;
        board.set_plan(&plan);
        assert_eq!(board.trigger(), None);
    }

    #[test]
    fn the_heir_keeps_the_deadlines_of_the_monitor() {
        for trigger in Trigger::ALL.into_iter().filter(|trigger| !trigger.drains()) {
            let board = board();
            let policy = Policy {
                grace: secs(2),
                stage: Some(secs(1)),
                ..POLICY
            };
            let mut plan = Plan::new(policy);
            plan = plan.step(Event::Trigger(trigger), secs(100)).0;
            board.set_plan(&plan);
            let heir = board.resume(policy, secs(101));
            assert_eq!(heir.trigger(), Some(trigger));
            let expected = State::Terminating {
                server_at: Some(secs(101)),
                rest_at: Some(secs(101)),
                name_at: None,
                kill_at: secs(102),
            };
            assert_eq!(heir.state(), expected, "{trigger}");
            let overdue = Event::Deadline {
                unread: 0,
                hung_up: true,
            };
            plan = plan.step(overdue, secs(102)).0;
            board.set_plan(&plan);
            let State::Killing {
                next, survivors_at, ..
            } = resumed(board, policy, secs(103))
            else {
                panic!("{trigger}: no kill");
            };
            assert_eq!((next, survivors_at), (secs(103), secs(107)), "{trigger}");
        }
    }

    /// The board of a stop that began at 100 s.
    fn stopping(policy: Policy) -> Board {
        let board = board();
        let mut plan = Plan::new(policy);
        plan = plan.step(Event::Trigger(Trigger::Terminate), secs(100)).0;
        board.set_plan(&plan);
        board
    }

    #[test]
    fn the_heir_signals_neither_an_ended_server_nor_the_rest_in_mixed_mode() {
        let mixed = Policy {
            kill_mode: KillMode::Mixed,
            ..POLICY
        };
        let board = stopping(mixed);
        let server_and_rest = |board| match resumed(board, mixed, secs(101)) {
            State::Terminating {
                server_at, rest_at, ..
            } => (server_at, rest_at),
            other => panic!("{other:?}"),
        };
        assert_eq!(server_and_rest(board), (Some(secs(107)), None));
        assert!(!board.resume(mixed, secs(101)).server_gone());
        board.set_ended(Ended::Exited(0));
        assert_eq!(server_and_rest(board), (None, None));
        assert!(board.resume(mixed, secs(101)).server_gone());
    }

    #[test]
    fn without_a_deadline_of_the_monitor_the_heir_has_none() {
        let board = stopping(Policy {
            manager_has_deadline: true,
            ..POLICY
        });
        let State::Terminating {
            server_at, kill_at, ..
        } = resumed(board, POLICY, secs(101))
        else {
            panic!("no stop");
        };
        assert_eq!((server_at, kill_at), (Some(NEVER), NEVER));
    }

    #[test]
    fn at_a_terminal_the_heir_lists_what_it_waits_for_unless_the_monitor_has() {
        let name_at = |board, policy| match resumed(board, policy, secs(101)) {
            State::Terminating { name_at, .. } => name_at,
            other => panic!("{other:?}"),
        };
        let at_terminal = Policy {
            at_terminal: true,
            ..POLICY
        };
        let board = stopping(at_terminal);
        assert_eq!(name_at(board, at_terminal), Some(secs(102)));
        assert_eq!(name_at(board, POLICY), None);
        board.named.set(true);
        assert_eq!(name_at(board, at_terminal), None);
    }
}
