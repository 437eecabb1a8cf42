//! The loop: the next event, the pure plan, the effects, until the tree is empty.

use std::time::Duration;

use crate::plan::event::{Action, Event};
use crate::plan::machine::Plan;

/// What the loop acts on: the kernel, or a simulation of it.
pub trait World {
    fn now(&self) -> Duration;

    /// Waits for the next event. At `deadline` that is [`Event::Deadline`].
    fn next_event(&mut self, deadline: Option<Duration>) -> Event;

    /// Called with every new plan, and the event that has led to it, before its actions are done.
    fn planned(&mut self, event: Event, before: &Plan, after: &Plan);

    /// Does `action` of `plan`. Returns the event that answers it. A failure is only logged.
    fn apply(&mut self, plan: &Plan, action: Action) -> Option<Event>;
}

/// Runs `plan` to its end. There is no other way out. `known`: what has happened already.
pub fn run(world: &mut impl World, mut plan: Plan, mut known: Option<Event>) -> Plan {
    while !plan.is_over() {
        let next = known.take();
        let event = next.unwrap_or_else(|| world.next_event(plan.deadline()));
        let (after, actions) = plan.step(event, world.now());
        world.planned(event, &plan, &after);
        plan = after;
        for action in actions.into_iter().flatten() {
            known = world.apply(&plan, action).or(known);
        }
    }
    plan
}
