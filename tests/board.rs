//! The board: what shim and monitor know of each other, and the stop that the shim continues from it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use treaper::pair::board::{self, Board};
use treaper::plan::event::{Action, Event, Trigger};
use treaper::plan::machine::{NEVER, Plan, State, Steps};
use treaper::plan::policy::{KillMode, Policy, Until};
use treaper::plan::record::TIMES;
use treaper::sys::shared::Word;
use treaper::sys::signal::Signal;
use treaper::sys::wait::Ended;

fn board() -> Board {
    Board::shared().unwrap()
}

#[test]
fn each_word_of_the_board_is_its_own() {
    let board = board();
    let words = [board.server, board.leader, board.failure];
    let flags = [board.gave_up, board.stop_sent, board.named, board.kill_now];
    assert!(words.iter().all(|word| word.get() == 0) && !flags.iter().any(|flag| flag.get()));
    for (word, value) in words.iter().zip(1..) {
        word.set(value);
    }
    let plan = plans()[9];
    board.set_plan(&plan);
    board.order_suspension(20);
    assert!(!board.gave_up.take());
    for flag in flags {
        flag.set(true);
    }
    assert_eq!(words.map(|word| word.replace(u64::MAX)), [1, 2, 3]);
    assert_eq!(words.map(Word::get), [u64::MAX; 3]);
    assert_eq!(board.plan(POLICY), plan);
    assert!(!board.host_gone.get() && board.ended().is_none());
    assert!(
        flags
            .iter()
            .all(|flag| flag.get() && flag.take() && !flag.take())
    );
}

#[test]
fn every_end_of_the_server_can_be_stored() {
    let board = board();
    for number in 0..=255 {
        board.set_ended(Ended::Exited(number));
        assert_eq!(board.ended(), Some(Ended::Exited(number)));
        board.set_ended(Ended::Killed(number));
        assert_eq!(board.ended(), Some(Ended::Killed(number)));
    }
}

#[test]
fn no_two_orders_to_suspend_are_equal() {
    let board = board();
    let mut orders = vec![board.suspension.get()];
    for number in [19, 20, 20, 21, 22, 1, 64, 20].repeat(10) {
        board.order_suspension(number);
        let order = board.suspension.get();
        let signal = board::suspending_signal(order);
        assert_eq!(signal.map(Signal::number), Some(number));
        assert!(!orders.contains(&order), "{orders:?}");
        orders.push(order);
        if number == 20 {
            board.withdraw_suspension();
            let withdrawn = board.suspension.get();
            assert_eq!(board::suspending_signal(withdrawn), None);
            assert!(!orders.contains(&withdrawn), "{orders:?}");
            orders.push(withdrawn);
        }
    }
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

/// Every kind of plan, with times that no clock has shown, and with all that can be missing.
fn plans() -> Vec<Plan> {
    let times = [None, Some(Duration::ZERO), Some(secs(7)), Some(NEVER)];
    let mut states = vec![State::Running, State::Done, State::Survived];
    for first in times {
        for second in times {
            let until = first.unwrap_or(secs(9));
            states.push(State::Draining {
                until,
                check: second,
                unread: first.map(|time| time.as_secs().min(7)),
            });
            states.push(State::Terminating(Steps {
                server: first,
                rest: second,
                name: None,
                kill: until,
            }));
            states.push(State::Terminating(Steps {
                server: None,
                rest: first,
                name: second,
                kill: until,
            }));
            states.push(State::Killing {
                next: until,
                pause: second.unwrap_or_default(),
                survivors_at: until,
            });
        }
    }
    let triggers = || Trigger::ALL.into_iter().map(Some).chain([None]);
    let of = |state| triggers().map(move |trigger| (state, trigger));
    let all = states.into_iter().flat_map(of);
    all.flat_map(|(state, trigger)| {
        [false, true].map(|server_gone| Plan {
            policy: POLICY,
            state,
            server_gone,
            trigger,
        })
    })
    .collect()
}

#[test]
fn every_plan_is_read_as_it_was_written_and_replaces_the_one_before() {
    let board = board();
    assert_eq!(board.plan(POLICY), Plan::new(POLICY));
    for plan in plans() {
        board.set_plan(&plan);
        assert_eq!(board.plan(POLICY), plan);
        assert_eq!(board.trigger(), plan.trigger);
    }
}

#[test]
fn words_that_are_no_plan_are_none() {
    let (head, times) = Plan::new(POLICY).encode();
    assert_eq!((head, times), (0, [0; TIMES]));
    for plan in plans() {
        let (head, times) = plan.encode();
        assert_eq!(Plan::decode(POLICY, head, times), Some(plan));
        for bit in [11, 12, 15, 17, 40, 62] {
            assert_eq!(Plan::decode(POLICY, head | 1 << bit, times), None, "{bit}");
        }
        let needed = match plan.state {
            State::Draining { .. } => 0,
            State::Terminating { .. } => 3,
            State::Killing { .. } => 2,
            State::Running | State::Done | State::Survived => continue,
        };
        let mut missing = times;
        missing[needed] = 0;
        assert_eq!(Plan::decode(POLICY, head, missing), None, "{plan:?}");
    }
}

/// The plan with which the shim goes on after the monitor has planned `plan` and was killed.
fn resumed(board: Board, plan: Plan, now: Duration) -> Plan {
    board.set_plan(&plan);
    board.resume(POLICY, now)
}

#[test]
fn the_heir_keeps_a_drain_and_the_death_of_the_monitor_ends_it() {
    let drain = Plan::new(POLICY).step(Event::Trigger(Trigger::StdinEof), secs(1));
    let heir = resumed(board(), drain.0, secs(2));
    assert_eq!(heir, drain.0);
    let killed = Event::Trigger(Trigger::MonitorKilled);
    let stop = heir.step(killed, secs(2)).0;
    assert_eq!(stop.trigger, Some(Trigger::MonitorKilled));
    // Another writer has come, so there is nothing to go on with.
    let next_writer = Event::Deadline {
        unread: 0,
        hung_up: false,
    };
    let running = drain.0.step(next_writer, secs(2)).0;
    let heir = resumed(board(), running, secs(3));
    assert_eq!((heir, heir.trigger), (Plan::new(POLICY), None));
}

/// A stop that began at 100 s. The rest is due at 107 s, SIGKILL at 110 s.
fn stop(policy: Policy) -> Plan {
    let trigger = Event::Trigger(Trigger::Terminate);
    Plan::new(policy).step(trigger, secs(100)).0
}

fn terminating(plan: Plan) -> [Option<Duration>; 4] {
    match plan.state {
        State::Terminating(at) => [at.server, at.rest, at.name, Some(at.kill)],
        other => panic!("{other:?}"),
    }
}

const OVERDUE: Event = Event::Deadline {
    unread: 0,
    hung_up: true,
};

#[test]
fn the_heir_keeps_the_times_of_the_monitor_and_does_again_what_may_not_be_done() {
    let planned = stop(POLICY);
    let heir = resumed(board(), planned, secs(101));
    assert_eq!(heir, planned);
    // The rest was ordered to be signalled, and the server once more.
    let ordered = planned.step(OVERDUE, secs(107)).0;
    let again = [Some(secs(108)), Some(secs(108)), None, Some(secs(110))];
    assert_eq!(terminating(ordered), [None, None, None, Some(secs(110))]);
    assert_eq!(terminating(resumed(board(), ordered, secs(108))), again);
    // A round of SIGKILL was ordered.
    let killing = ordered.step(OVERDUE, secs(110)).0;
    let State::Killing { survivors_at, .. } = killing.state else {
        panic!("no kill");
    };
    let heir = resumed(board(), killing, secs(111));
    let State::Killing {
        next,
        survivors_at: kept,
        ..
    } = heir.state
    else {
        panic!("no kill");
    };
    assert_eq!((next, kept), (secs(111), survivors_at));
    // What was over is looked at again, and gets no more time.
    let gone = Event::Reaped {
        server_gone: true,
        empty: true,
    };
    let done = planned.step(gone, secs(101)).0;
    let heir = resumed(board(), done, secs(102));
    assert_eq!(heir.deadline(), Some(secs(102)));
    let (over, actions) = heir.step(OVERDUE, secs(102));
    assert_eq!(actions, [Some(Action::NameSurvivors), None, None]);
    assert_eq!(over.state, State::Survived);
    assert_eq!(heir.trigger, Some(Trigger::Terminate));
}

#[test]
fn the_heir_signals_the_rest_at_once_if_the_server_has_ended_meanwhile() {
    let board = board();
    board.set_ended(Ended::Exited(0));
    let heir = resumed(board, stop(POLICY), secs(101));
    assert!(heir.server_gone);
    let expected = [None, Some(secs(101)), None, Some(secs(110))];
    assert_eq!(terminating(heir), expected);
}

#[test]
fn the_heir_never_signals_the_rest_in_mixed_mode() {
    let mixed = Policy {
        kill_mode: KillMode::Mixed,
        ..POLICY
    };
    let board = board();
    board.set_plan(&stop(mixed));
    let expected = [Some(secs(107)), None, None, Some(secs(110))];
    assert_eq!(terminating(board.resume(mixed, secs(101))), expected);
    board.set_ended(Ended::Exited(0));
    let expected = [None, None, None, Some(secs(110))];
    assert_eq!(terminating(board.resume(mixed, secs(101))), expected);
}

#[test]
fn without_a_deadline_of_the_monitor_the_heir_has_none() {
    let managed = Policy {
        manager_has_deadline: true,
        ..POLICY
    };
    let heir = resumed(board(), stop(managed), secs(101));
    assert_eq!(
        terminating(heir),
        [Some(NEVER), Some(NEVER), None, Some(NEVER)]
    );
}

#[test]
fn at_a_terminal_the_heir_lists_what_it_waits_for_unless_the_monitor_has() {
    let at_terminal = Policy {
        at_terminal: true,
        ..POLICY
    };
    let planned = stop(at_terminal);
    let name_at = |board: Board, plan, now| {
        board.set_plan(&plan);
        terminating(board.resume(at_terminal, now))[2]
    };
    assert_eq!(name_at(board(), planned, secs(100)), Some(secs(101)));
    let ordered = planned.step(OVERDUE, secs(101)).0;
    assert_eq!(name_at(board(), ordered, secs(102)), Some(secs(102)));
    let named = board();
    named.named.set(true);
    assert_eq!(name_at(named, ordered, secs(102)), None);
}

#[test]
fn the_end_of_a_namespace_keeps_the_time_of_an_earlier_sigkill_and_the_trigger() {
    let planned = [Plan::new(POLICY), stop(POLICY)];
    for (plan, trigger) in planned
        .into_iter()
        .zip([Trigger::MonitorKilled, Trigger::Terminate])
    {
        let board = board();
        board.set_plan(&plan);
        assert_eq!(board.set_monitor_ending(POLICY, secs(103)), secs(108));
        assert_eq!(board.set_monitor_ending(POLICY, secs(104)), secs(108));
        assert_eq!(board.trigger(), Some(trigger));
    }
}
