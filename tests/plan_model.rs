//! Exhaustive search over the plan: every state that can be reached with a small set of durations,
//! by every event in every order, early, in time and late.
//!
//! The search keeps notes beside the plan (what was signalled, when the drain began, ...). So each promise is checked
//! on every edge against what was seen, and not against what the plan says about itself.
//!
//! Faults seeded by hand into `src/plan/machine.rs`, each caught by the promise behind it:
//! - a later trigger begins `Terminating` again: "the rest gets the stop signal only once"
//! - `kill = now + grace / 2`: "no SIGKILL before the grace is over"
//! - a kill round sets `survivors_at` again, a sweep is not noted as done, a drain goes on for input that
//!   no process reads: "no end in sight"
//! - `Mixed` sweeps as `Staged` does: "mixed: the rest never gets the stop signal"
//! - the server's end does not end a drain: "the end of the server is a trigger, and ends a drain"
//! - an empty tree is overlooked while killing: "done when the tree is empty, and only then"
//! - a later trigger replaces the first, or does not replace that of a drain: "the trigger that stops the server is reported"
//! - a shim that was killed changes no deadline, the stage is counted from the start: "SIGKILL as soon as the
//!   grace is over", "staged: the rest gets the stop signal in time"
//! - Ctrl-C kills before anything was named: "Ctrl-C kills only what was named"
//! - `Killing` begins without a round: "killing begins with SIGKILL, and is the state of it"
#![allow(clippy::panic, reason = "a test")]

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use treaper::plan::event::{Action, Event, Trigger};
use treaper::plan::machine::{NEVER, Plan, State, Steps};
use treaper::plan::policy::{KillMode, Policy, Until};

#[path = "plan_model/promises.rs"]
mod promises;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Events come at once, after a step, at the deadline, and late.
fn step(policy: Policy) -> Duration {
    ms(20).max(policy.grace / 4)
}

const LATE: Duration = ms(3);
/// "Now" in every state. Its times are moved to it, so that equal situations are equal states.
const NOW: Duration = ms(10_000);
/// How often the drain sees that input was read. Without a limit it could be endless.
const MOST_RESTARTS: u8 = 2;

/// What was seen on the way to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each was seen or not, in any combination"
)]
struct Seen {
    trigger: Option<Trigger>,
    /// When the drain began, or when input was last seen to be read in it.
    drain: Option<Duration>,
    /// When the plan began to terminate. Forgotten when it kills.
    terminate: Option<Duration>,
    /// When the first SIGKILL was ordered.
    kill: Option<Duration>,
    /// When SIGKILL is due; [`NEVER`] while the deadline of the manager counts.
    due: Option<Duration>,
    /// When the rest gets the stop signal at the latest, and when the server is certain to have got it.
    stage: Option<Duration>,
    stop_server: bool,
    ensured: bool,
    stop_rest: bool,
    named: bool,
    server_gone: bool,
    /// Bytes that waited in stdin at the last look of the drain.
    unread: Option<u64>,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    plan: Plan,
    seen: Seen,
}

/// One step of the plan, and what was seen before it.
#[derive(Debug)]
struct Edge {
    policy: Policy,
    before: Node,
    event: Event,
    now: Duration,
    plan: Plan,
    actions: Vec<Action>,
}

/// The order of the states of a stop. It never goes back.
fn rank(state: State) -> u8 {
    match state {
        State::Running => 0,
        State::Draining { .. } => 1,
        State::Terminating { .. } => 2,
        State::Killing { .. } => 3,
        State::Done => 4,
        State::Survived => 5,
    }
}

fn events() -> Vec<Event> {
    let mut events: Vec<Event> = Trigger::ALL.into_iter().map(Event::Trigger).collect();
    for server_gone in [false, true] {
        events.extend([false, true].map(|empty| Event::Reaped { server_gone, empty }));
    }
    for hung_up in [true, false] {
        events.extend([0, 1, 2].map(|unread| Event::Deadline { unread, hung_up }));
    }
    events.extend([false, true].map(|progress| Event::Swept { progress }));
    events.push(Event::KillNow);
    events
}

/// The moments at which the next event may come.
fn moments(plan: &Plan, policy: Policy) -> Vec<Duration> {
    let mut moments = vec![NOW, NOW + step(policy)];
    if let Some(deadline) = plan.deadline() {
        let due = deadline.max(NOW);
        moments.retain(|at| *at <= due);
        moments.extend([due, due + LATE]);
    }
    moments.sort_unstable();
    moments.dedup();
    moments
}

/// The same situation, with all times moved so that `now` is [`NOW`].
fn moved(node: Node, now: Duration) -> Node {
    let to = |time: Duration| match time {
        NEVER => NEVER,
        time => (time + NOW).saturating_sub(now),
    };
    let state = match node.plan.state {
        State::Draining {
            until,
            check,
            unread,
        } => State::Draining {
            until: to(until),
            check: check.map(to),
            unread,
        },
        State::Terminating(steps) => State::Terminating(Steps {
            server: steps.server.map(to),
            rest: steps.rest.map(to),
            name: steps.name.map(to),
            kill: to(steps.kill),
        }),
        State::Killing {
            next,
            pause,
            survivors_at,
        } => State::Killing {
            next: to(next),
            pause,
            survivors_at: to(survivors_at),
        },
        other @ (State::Running | State::Done | State::Survived) => other,
    };
    let mut seen = node.seen;
    let times = [
        &mut seen.drain,
        &mut seen.terminate,
        &mut seen.kill,
        &mut seen.due,
        &mut seen.stage,
    ];
    for time in times {
        *time = time.map(to);
    }
    let plan = Plan { state, ..node.plan };
    Node { plan, seen }
}

/// Stdin has a writer again, in a drain that began with its hang-up.
fn resumes(edge: &Edge) -> bool {
    let again = matches!(edge.event, Event::Deadline { hung_up: false, .. });
    let drains = rank(edge.before.plan.state) == 1;
    again && drains && edge.before.seen.trigger == Some(Trigger::StdinEof)
}

/// All that was seen, this edge included.
fn note(edge: &Edge) -> Seen {
    let mut seen = edge.before.seen;
    let (from, to) = (edge.before.plan.state, edge.plan.state);
    if let Event::Reaped { server_gone, .. } = edge.event {
        seen.server_gone |= server_gone;
    }
    if edge.before.plan.is_over() {
        return seen;
    }
    match edge.event {
        // It ends the drain.
        Event::Trigger(trigger) if rank(from) == 1 && !trigger.drains() => {
            seen.trigger = Some(trigger);
        }
        Event::Trigger(trigger) => seen.trigger = seen.trigger.or(Some(trigger)),
        Event::Reaped { .. } if from != to => {
            seen.trigger = seen.trigger.or(Some(Trigger::ServerExit));
        }
        _ if resumes(edge) => (seen.trigger, seen.unread) = (None, None),
        Event::Deadline { unread, .. } if rank(from) == 1 => {
            let last_input = seen.trigger == Some(Trigger::StdinEof);
            if last_input && seen.unread.is_some_and(|before| unread < before) {
                seen.restarts += 1;
                seen.drain = Some(edge.now);
            }
            seen.unread = Some(unread);
        }
        Event::Reaped { .. } | Event::Deadline { .. } | Event::Swept { .. } | Event::KillNow => {}
    }
    if rank(to) == 1 {
        seen.drain = seen.drain.or(Some(edge.now));
    } else {
        (seen.drain, seen.unread, seen.restarts) = (None, None, 0);
    }
    if rank(to) == 2 {
        seen.terminate = seen.terminate.or(Some(edge.now));
        note_deadlines(edge, &mut seen);
    } else {
        (seen.terminate, seen.due, seen.stage) = (None, None, None);
    }
    seen.ensured |= edge.actions.contains(&Action::EnsureServerStop);
    seen.named |= edge.actions.contains(&Action::NameWaiting);
    seen.stop_server |= edge.actions.contains(&Action::StopServer);
    seen.stop_rest |= edge.actions.contains(&Action::StopRest);
    if edge.actions.contains(&Action::KillAll) {
        seen.kill = seen.kill.or(Some(edge.now));
    }
    if edge.plan.is_over() {
        seen.kill = None;
    }
    if rank(to) > 2 {
        (seen.ensured, seen.named) = (false, false);
    }
    seen
}

/// When SIGKILL and the steps before it are due, as the manual says.
fn note_deadlines(edge: &Edge, seen: &mut Seen) {
    let set = &edge.policy;
    let begins = rank(edge.before.plan.state) < 2;
    let grace = match edge.event {
        Event::Trigger(Trigger::ShimKilled | Trigger::RelayKilled) => Some(set.grace.min(ms(2000))),
        Event::Trigger(Trigger::Terminate) if begins => {
            (!set.manager_has_deadline).then_some(set.grace)
        }
        Event::Trigger(Trigger::ParentExit | Trigger::WatchedExit | Trigger::MonitorKilled) => {
            Some(set.grace)
        }
        _ => begins.then_some(set.grace),
    };
    let due = seen.due.unwrap_or(NEVER);
    (seen.due, seen.stage) = (Some(due), Some(seen.stage.unwrap_or(NEVER)));
    if let Some(grace) = grace.filter(|grace| edge.now + *grace < due) {
        let quarter = ms(2000).min(grace / 4);
        let stage = set.stage.unwrap_or(quarter).min(grace);
        seen.due = Some(edge.now + grace);
        seen.stage = seen.stage.min(Some(edge.now + grace.saturating_sub(stage)));
    }
}

fn search(policy: Policy) -> (usize, u64) {
    let start = Node {
        plan: Plan::new(policy),
        seen: Seen::default(),
    };
    let (mut known, mut pending, mut edges) = (HashSet::from([start]), vec![start], 0);
    let events = events();
    while let Some(before) = pending.pop() {
        comes_to_an_end(&before, &policy);
        let moments = moments(&before.plan, policy);
        // The loop promises that a deadline that has passed comes before any other event.
        let overdue = before.plan.deadline().is_some_and(|at| at < NOW);
        let possible = |event: &&Event| !overdue || matches!(event, Event::Deadline { .. });
        let all = events.iter().filter(possible);
        for (event, now) in all.flat_map(|event| moments.iter().map(|at| (*event, *at))) {
            let (plan, actions) = before.plan.step(event, now);
            let actions = actions.into_iter().flatten().collect();
            let edge = Edge {
                policy,
                before,
                event,
                now,
                plan,
                actions,
            };
            let seen = note(&edge);
            if seen.restarts > MOST_RESTARTS {
                continue;
            }
            edges += 1;
            if let Some(promise) = promises::broken(&edge, &seen) {
                panic!("broken: {promise}\n{edge:#?}\nnow seen: {seen:#?}");
            }
            let next = moved(Node { plan, seen }, now);
            if known.insert(next) {
                pending.push(next);
            }
        }
    }
    (known.len(), edges)
}

/// From every state the stop ends in time, if no other events than deadlines come.
fn comes_to_an_end(node: &Node, set: &Policy) {
    let (mut plan, mut now, mut steps) = (node.plan, NOW, 0);
    let running = node.plan.state == State::Running;
    let waits = node.seen.due == Some(NEVER);
    let named = !matches!(
        node.plan.state,
        State::Terminating(Steps { name: Some(_), .. })
    );
    assert_eq!(
        plan.deadline().is_none(),
        running || plan.is_over() || waits && named,
        "a deadline, or a process to wait for, or the end: {node:?}"
    );
    if waits {
        // The manager is gone.
        plan = plan.step(Event::Trigger(Trigger::ParentExit), now).0;
    }
    while let Some(deadline) = plan.deadline() {
        now = now.max(deadline);
        let (next, actions) = plan.step(
            Event::Deadline {
                unread: 0,
                hung_up: true,
            },
            now,
        );
        plan = next;
        if actions.contains(&Some(Action::KillAll)) {
            plan = plan.step(Event::Swept { progress: true }, now).0;
        }
        steps += 1;
        assert!(steps < 1000, "no end in sight: {node:?}");
    }
    if !running && !node.plan.is_over() {
        assert_eq!(plan.state, State::Survived, "{node:?}");
        // The drain counts twice: the next look may show that input was taken.
        let longest = set.drain * 2 + set.grace + set.kill_timeout;
        assert!(now <= NOW + longest, "ends too late: {node:?}");
    }
}

/// Drain, grace and kill-timeout, and the stage if it is set.
type Times = ([u64; 3], Option<u64>);

const SHORT: &[Times] = &[
    ([0, 0, 0], None),
    ([30, 0, 2], None),
    ([0, 60, 1], None),
    ([60, 40, 2], Some(10)),
    ([110, 20, 0], Some(100)),
];
/// With a grace period that the end of the shim shortens, and that is long enough to list what the stop waits for.
const LONG: &[Times] = &[([0, 5000, 2], None), ([0, 5000, 2], Some(3000))];

/// `until_tree`, `manager_has_deadline`, `at_terminal`.
const SWITCHES: [([bool; 3], &[Times]); 5] = [
    ([false, false, false], SHORT),
    ([true, false, false], SHORT),
    ([false, false, false], LONG),
    ([true, true, false], LONG),
    ([false, true, true], LONG),
];

#[test]
fn every_promise_holds_in_every_reachable_state() {
    let (mut states, mut edges) = (0, 0);
    for kill_mode in [KillMode::Staged, KillMode::Tree, KillMode::Mixed] {
        for ([until_tree, manager_has_deadline, at_terminal], times) in SWITCHES {
            for ([drain, grace, kill_timeout], stage) in times.iter().copied() {
                let policy = Policy {
                    drain: ms(drain),
                    grace: ms(grace),
                    stage: stage.map(ms),
                    kill_timeout: ms(kill_timeout),
                    kill_mode,
                    until: if until_tree {
                        Until::Tree
                    } else {
                        Until::Server
                    },
                    manager_has_deadline,
                    at_terminal,
                };
                let (more_states, more_edges) = search(policy);
                states += more_states;
                edges += more_edges;
            }
        }
    }
    // Not println!, whose output is hidden when a test passes.
    let _ = writeln!(
        std::io::stderr(),
        "plan model: {states} states, {edges} edges"
    );
}
