//! The loop: next event, pure plan, effects; until the tree is empty.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::plan::event::{Action, Event};
use crate::plan::machine::Plan;

/// What the loop acts on: the kernel, or a simulation of it.
pub trait World {
    /// On one monotonic clock.
    fn now(&self) -> Duration;

    /// Waits for the next event; at the latest at `deadline` it is [`Event::Deadline`].
    fn next_event(&mut self, deadline: Option<Duration>) -> Event;

    /// Is told every new plan before its actions are applied.
    fn planned(&mut self, before: &Plan, after: &Plan);

    /// Does `action` of `plan`; an action may have an answer. A failure is logged, and the stop goes on.
    fn apply(&mut self, plan: &Plan, action: Action) -> Option<Event>;
}

/// Runs `plan` to its end: there is no other way out.
pub fn run(world: &mut impl World, mut plan: Plan) -> Plan {
    let mut answer: Option<Event> = None;
    while !plan.is_over() {
        let event = match answer.take() {
            Some(event) => event,
            None => world.next_event(plan.deadline()),
        };
        let before = plan;
        let actions = plan.advance(event, world.now());
        world.planned(&before, &plan);
        for action in actions.iter() {
            answer = world.apply(&plan, action).or(answer);
        }
    }
    plan
}
