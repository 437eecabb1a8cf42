//! What only `src/output/ledger.rs` itself can see of its work.

use super::*;

fn process(pid: i32) -> Process {
    Process {
        pid,
        uid: (pid % 2 == 0).then_some(u32::MAX - 1),
        state: b'S',
        name: Name::new(b"fifteen bytes x"),
    }
}

#[test]
fn each_list_keeps_its_processes_once_and_as_many_as_it_holds() {
    let ledger = Ledger::shared().unwrap();
    let most = 4 * 1024 * 1024;
    for pid in most - MAX_LISTED as i32..most {
        ledger.add(List::Sigkilled, &process(pid));
        ledger.add(List::Sigkilled, &process(pid));
    }
    ledger.add(List::Sigkilled, &process(7));
    ledger.add(List::Survivors, &process(9));
    let kept: Vec<Process> = ledger.list(List::Sigkilled).collect();
    let expected = (most - MAX_LISTED as i32..most).map(process);
    assert_eq!(kept, expected.collect::<Vec<_>>());
    assert_eq!(
        ledger.list(List::Survivors).collect::<Vec<_>>(),
        [process(9)]
    );
}

#[test]
fn a_step_lasts_until_the_next_one_that_was_reached() {
    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }
    let ledger = Ledger::shared().unwrap();
    assert_eq!(ledger.steps(secs(9)), [None; 3]);
    let draining = State::Draining {
        until: secs(3),
        check: None,
        unread: None,
    };
    ledger.set_state(draining, secs(1));
    ledger.set_state(State::Running, secs(2));
    assert_eq!(ledger.steps(secs(9)), [None; 3]);
    ledger.set_state(draining, secs(3));
    let killing = State::Killing {
        next: secs(5),
        pause: secs(0),
        survivors_at: secs(9),
    };
    ledger.set_state(killing, secs(5));
    ledger.set_state(killing, secs(6));
    let steps = [Some(secs(2)), None, Some(secs(4))];
    assert_eq!(ledger.steps(secs(9)), steps);
}
