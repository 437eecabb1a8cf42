//! The times of a stop, in seconds, as the manual states them.

#![allow(clippy::panic, reason = "a test")]

use std::time::Duration;

use treaper::plan::event::{Action, Event, Trigger};
use treaper::plan::machine::{Plan, State};
use treaper::plan::policy::{KillMode, Policy, Until};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const POLICY: Policy = Policy {
    drain: ms(5000),
    grace: ms(10_000),
    stage: None,
    kill_timeout: ms(5000),
    kill_mode: KillMode::Staged,
    until: Until::Server,
    manager_has_deadline: false,
    at_terminal: false,
};

const SERVER_GONE: Event = Event::Reaped {
    server_gone: true,
    empty: false,
};

const OVERDUE: Event = Event::Deadline {
    unread: 0,
    hung_up: true,
};

/// A plan, and each action that it has ordered, with its time.
struct Stop {
    plan: Plan,
    now: Duration,
    orders: Vec<(Duration, Action)>,
}

impl Stop {
    fn new(policy: Policy) -> Self {
        Self {
            plan: Plan::new(policy),
            now: Duration::ZERO,
            orders: Vec::new(),
        }
    }

    /// A stop that begins at 0 by `trigger`.
    fn by(trigger: Trigger, policy: Policy) -> Self {
        let mut stop = Self::new(policy);
        stop.on(Duration::ZERO, Event::Trigger(trigger));
        stop
    }

    /// The time passes until `now`, then `event` comes.
    fn on(&mut self, now: Duration, event: Event) {
        self.pass(now);
        self.step(event);
    }

    fn pass(&mut self, until: Duration) {
        let mut steps = 0;
        while let Some(at) = self.plan.deadline().filter(|at| *at <= until) {
            steps += 1;
            assert!(steps < 100_000, "a deadline that changes nothing");
            self.now = self.now.max(at);
            self.step(OVERDUE);
        }
        self.now = until;
    }

    fn step(&mut self, event: Event) {
        let (plan, actions) = self.plan.step(event, self.now);
        self.plan = plan;
        self.orders.extend(
            actions
                .into_iter()
                .flatten()
                .map(|action| (self.now, action)),
        );
    }

    /// When `action` was ordered for the first time within the next hour.
    fn first(&mut self, action: Action) -> Option<Duration> {
        self.pass(self.now + ms(3_600_000));
        let found = self.orders.iter().find(|(_, ordered)| *ordered == action);
        found.map(|(at, _)| *at)
    }
}

#[test]
fn the_rest_gets_the_signal_two_seconds_or_a_quarter_of_the_grace_before_sigkill() {
    for (grace, stage, rest_at) in [
        (4000, None, 3000),
        (8000, None, 6000),
        (10_000, None, 8000),
        (20_000, None, 18_000),
        (60_000, None, 58_000),
        (400, None, 300),
        (10_000, Some(5000), 5000),
        (10_000, Some(1), 9999),
        (10_000, Some(10_000), 0),
        (10_000, Some(60_000), 0),
    ] {
        let policy = Policy {
            grace: ms(grace),
            stage: stage.map(ms),
            ..POLICY
        };
        let mut stop = Stop::by(Trigger::Terminate, policy);
        assert_eq!(stop.first(Action::StopServer), Some(Duration::ZERO));
        assert_eq!(
            stop.first(Action::StopRest),
            Some(ms(rest_at)),
            "{grace} {stage:?}"
        );
        assert_eq!(
            stop.first(Action::KillAll),
            Some(ms(grace)),
            "{grace} {stage:?}"
        );
    }
}

#[test]
fn a_server_that_only_the_kernel_may_have_signalled_is_signalled_at_the_stage() {
    for kill_mode in [KillMode::Staged, KillMode::Tree, KillMode::Mixed] {
        let policy = Policy {
            kill_mode,
            ..POLICY
        };
        let mut stop = Stop::by(Trigger::MonitorKilled, policy);
        assert_eq!(stop.first(Action::EnsureServerStop), Some(ms(8000)));
    }
    let mut stop = Stop::by(Trigger::MonitorKilled, POLICY);
    stop.on(ms(100), SERVER_GONE);
    assert_eq!(stop.first(Action::EnsureServerStop), None);
}

#[test]
fn after_the_end_of_the_shim_there_are_two_seconds_at_most() {
    let long = Policy {
        grace: ms(60_000),
        ..POLICY
    };
    let mut stop = Stop::by(Trigger::ShimKilled, long);
    assert_eq!(stop.first(Action::StopRest), Some(ms(1500)));
    assert_eq!(stop.first(Action::KillAll), Some(ms(2000)));

    let short = Policy {
        grace: ms(700),
        ..POLICY
    };
    let mut stop = Stop::by(Trigger::ShimKilled, short);
    assert_eq!(stop.first(Action::KillAll), Some(ms(700)));

    // In the middle of another stop, and near its end.
    for (at, kill) in [(1000, 3000), (9000, 10_000)] {
        let mut stop = Stop::by(Trigger::Terminate, POLICY);
        stop.on(ms(at), Event::Trigger(Trigger::ShimKilled));
        assert_eq!(stop.first(Action::KillAll), Some(ms(kill)), "{at}");
    }

    // It ends a drain.
    let mut stop = Stop::by(Trigger::StdinEof, POLICY);
    stop.on(ms(1000), Event::Trigger(Trigger::ShimKilled));
    assert_eq!(stop.first(Action::StopServer), Some(ms(1000)));
    assert_eq!(stop.first(Action::KillAll), Some(ms(3000)));
}

#[test]
fn where_a_manager_has_a_deadline_treaper_sets_none() {
    let managed = Policy {
        manager_has_deadline: true,
        ..POLICY
    };
    for (kill_mode, rest) in [
        (KillMode::Staged, Some(600_000)),
        (KillMode::Tree, Some(0)),
        (KillMode::Mixed, None),
    ] {
        let policy = Policy {
            kill_mode,
            ..managed
        };
        let mut stop = Stop::by(Trigger::Terminate, policy);
        assert_eq!(stop.plan.deadline(), None);
        stop.on(ms(600_000), SERVER_GONE);
        assert_eq!(stop.first(Action::StopRest), rest.map(ms), "{kill_mode:?}");
        assert_eq!(stop.first(Action::KillAll), None, "{kill_mode:?}");
    }
    // Also if the server had ended before.
    let mut stop = Stop::new(Policy {
        until: Until::Tree,
        ..managed
    });
    stop.on(ms(1), SERVER_GONE);
    stop.on(ms(2), Event::Trigger(Trigger::Terminate));
    assert_eq!(stop.first(Action::StopRest), Some(ms(2)));
    assert_eq!(stop.first(Action::KillAll), None);
    // Another trigger has treaper's own deadline. During a stop only the end of a process sets one.
    for trigger in Trigger::ALL {
        let asked = trigger == Trigger::Terminate;
        let drains = matches!(trigger, Trigger::StdinEof | Trigger::StdoutClosed);
        let of_relay = trigger == Trigger::CancelTimeout;
        let kill = match trigger {
            Trigger::Terminate => None,
            Trigger::ShimKilled | Trigger::RelayKilled => Some(ms(2000)),
            _ if drains => Some(ms(15_000)),
            _ => Some(ms(10_000)),
        };
        assert_eq!(Stop::by(trigger, managed).first(Action::KillAll), kill);
        let mut stop = Stop::by(Trigger::Terminate, managed);
        stop.on(ms(1000), Event::Trigger(trigger));
        let later = match trigger {
            Trigger::Hangup | Trigger::Idle | Trigger::ServerExit => None,
            _ if asked || drains || of_relay => None,
            _ => kill.map(|kill| kill + ms(1000)),
        };
        assert_eq!(stop.first(Action::KillAll), later, "{trigger}");
    }
    // SIGTERM in a drain counts as well.
    let mut stop = Stop::by(Trigger::StdinEof, managed);
    stop.on(ms(1000), Event::Trigger(Trigger::Terminate));
    assert_eq!(stop.first(Action::KillAll), None);
}

#[test]
fn at_a_terminal_a_stop_of_more_than_a_second_lists_what_it_waits_for_and_ctrl_c_kills_that() {
    let terminal = Policy {
        at_terminal: true,
        ..POLICY
    };
    let mut stop = Stop::by(Trigger::Terminate, terminal);
    stop.on(ms(999), Event::KillNow);
    stop.on(ms(1500), Event::KillNow);
    assert_eq!(stop.first(Action::NameWaiting), Some(ms(1000)));
    assert_eq!(stop.first(Action::KillAll), Some(ms(1500)));

    let mut stop = Stop::by(Trigger::Terminate, POLICY);
    stop.on(ms(1500), Event::KillNow);
    assert_eq!(stop.first(Action::NameWaiting), None);
    assert_eq!(stop.first(Action::KillAll), Some(ms(10_000)));
}

/// By this the monitor decides when to wake the shim, and when to watch stdin again.
#[test]
fn it_is_running_until_a_stop_or_a_drain_begins_and_again_when_stdin_has_a_writer() {
    let mut stop = Stop::new(POLICY);
    assert!(stop.plan.is_running());
    stop.step(Event::Trigger(Trigger::StdinEof));
    assert!(!stop.plan.is_running());
    stop.step(Event::Deadline {
        unread: 0,
        hung_up: false,
    });
    assert!(stop.plan.is_running());
    stop.step(Event::Trigger(Trigger::Terminate));
    assert!(!stop.plan.is_running());
}

#[test]
fn a_drain_looks_at_its_input_at_once_and_every_50_ms_while_some_is_left() {
    let look = |trigger, unread| {
        let mut stop = Stop::by(trigger, POLICY);
        assert_eq!(stop.plan.deadline(), Some(Duration::ZERO));
        stop.step(Event::Deadline {
            unread,
            hung_up: true,
        });
        stop.plan.deadline()
    };
    assert_eq!(look(Trigger::StdinEof, 1), Some(ms(50)));
    assert_eq!(look(Trigger::StdinEof, 0), Some(ms(5000)));
    // The input of an open stdin means nothing.
    assert_eq!(look(Trigger::StdoutClosed, 1), Some(ms(5000)));
}

/// How long the plan pauses after a kill round with this `progress`.
fn pause_after(plan: Plan, progress: bool, now: Duration) -> (Plan, Duration) {
    let (plan, _) = plan.step(Event::Swept { progress }, now);
    let State::Killing { next, .. } = plan.state else {
        panic!("{plan:?}");
    };
    (plan, next.saturating_sub(now))
}

#[test]
fn kill_rounds_pause_for_200_us_that_double_up_to_10_ms_until_one_meets_a_new_process() {
    let mut stop = Stop::by(Trigger::Terminate, POLICY);
    stop.pass(ms(10_000));
    let (mut plan, mut now) = (stop.plan, ms(10_000));
    assert_eq!(stop.orders.pop(), Some((now, Action::KillAll)));
    assert!(
        stop.orders
            .iter()
            .all(|(_, action)| *action != Action::KillAll)
    );
    assert_eq!(plan.deadline(), Some(now + us(200)));
    let pauses = [400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000];
    for (round, expected) in pauses.into_iter().enumerate() {
        let pause;
        (plan, pause) = pause_after(plan, false, now);
        assert_eq!(pause, us(expected), "round {round}");
        assert_eq!(plan.deadline(), Some(now + pause));
        now += pause;
        let (next, actions) = plan.step(OVERDUE, now);
        assert_eq!(
            actions,
            [Some(Action::KillAll), None, None],
            "round {round}"
        );
        plan = next;
    }
    for expected in [200, 200] {
        let (next, pause) = pause_after(plan, true, now);
        assert_eq!(pause, us(expected));
        plan = next;
    }
    let (_, pause) = pause_after(plan, false, now);
    assert_eq!(pause, us(400));
}

#[test]
fn a_cancel_timeout_is_the_reason_of_the_stop_also_if_a_drain_has_begun() {
    for first in Trigger::ALL {
        let mut stop = Stop::by(first, POLICY);
        let drains = matches!(stop.plan.state, State::Draining { .. });
        stop.on(ms(1000), Event::Trigger(Trigger::CancelTimeout));
        let reported = if drains {
            Trigger::CancelTimeout
        } else {
            first
        };
        assert_eq!(stop.plan.trigger, Some(reported));
        assert!(!drains || matches!(stop.plan.state, State::Terminating { .. }));
    }
}

/// The monitor was killed between the plan and the signal, and the server has disarmed that of the kernel.
#[test]
fn an_heir_orders_the_stop_signal_at_once_and_not_only_before_sigkill() {
    let killed = Event::Trigger(Trigger::MonitorKilled);
    for (gone, expected) in [(false, true), (true, false)] {
        let (plan, _) = Plan::new(POLICY).step(Event::Trigger(Trigger::Idle), ms(0));
        let (plan, actions) = plan.inherit(gone, false, ms(1)).step(killed, ms(1));
        let ordered = actions.contains(&Some(Action::StopServer));
        assert_eq!(ordered, expected, "the server is gone: {gone}");
        assert_eq!(plan.trigger, Some(Trigger::Idle));
    }
}
