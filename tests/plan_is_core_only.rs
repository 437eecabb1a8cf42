//! The plan needs `core` only. Here it is compiled without std, so any `std::` or `alloc::` path in it (a clock, a
//! lock, an allocation, a message) is an error.
#![no_std]
#![allow(dead_code, reason = "what is under test is that it compiles")]

#[path = "../src/plan/event.rs"]
mod event;
#[path = "../src/plan/machine.rs"]
mod machine;
#[path = "../src/plan/policy.rs"]
mod policy;
#[path = "../src/plan/record.rs"]
mod record;

/// As in the crate.
mod plan {
    pub(crate) use crate::{event, machine, policy};
}

use core::time::Duration;

#[test]
fn the_plan_works_without_std() {
    let asked = policy::Policy {
        drain: Duration::ZERO,
        grace: Duration::ZERO,
        kill_timeout: Duration::ZERO,
        stage: None,
        manager_has_deadline: false,
        at_terminal: false,
        kill_mode: policy::KillMode::Tree,
        until: policy::Until::Server,
    };
    let (plan, actions) = machine::Plan::new(asked).step(
        event::Event::Trigger(event::Trigger::Terminate),
        Duration::ZERO,
    );
    assert!(!plan.is_over());
    assert_eq!(actions.into_iter().flatten().count(), 2);
    let (head, times) = plan.encode();
    assert_eq!(machine::Plan::decode(asked, head, times), Some(plan));
}
