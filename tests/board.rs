//! The board: what shim and monitor know of each other, and the stop that the shim continues from it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use treaper::pair::board::Board;
use treaper::plan::event::{Event, Trigger};
use treaper::plan::machine::{NEVER, Plan, State};
use treaper::plan::policy::{KillMode, Policy, Until};
use treaper::sys::signal::Signal;
use treaper::sys::wait::Ended;

fn board() -> Board {
    Board::shared().unwrap()
}

#[test]
fn every_status_and_every_end_of_the_server_can_be_stored() {
    let board = board();
    for number in 0..=255 {
        board.set_early_status(number);
        assert_eq!(board.early_status(), Some(number));
        board.set_ended(Ended::Exited(number));
        assert_eq!(board.ended(), Some(Ended::Exited(number)));
        board.set_ended(Ended::Killed(number));
        assert_eq!(board.ended(), Some(Ended::Killed(number)));
    }
}

#[test]
fn no_two_orders_to_suspend_are_equal() {
    let board = board();
    let mut orders = vec![board.suspension()];
    for number in [19, 20, 20, 21, 22, 1, 64, 20].repeat(10) {
        board.order_suspension(number);
        let order = board.suspension();
        assert_eq!(order.signal().map(Signal::number), Some(number));
        assert!(!orders.contains(&order), "{orders:?}");
        orders.push(order);
        if number == 20 {
            board.withdraw_suspension();
            let withdrawn = board.suspension();
            assert_eq!(withdrawn.signal(), None);
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
    // The death of the monitor is the trigger then.
    assert_eq!(board.resume(POLICY, secs(1)), Plan::new(POLICY));
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
