//! What the plan promises, checked on one edge.

use std::time::Duration;

use treaper::plan::event::{Action, Event, Trigger};
use treaper::plan::machine::State;
use treaper::plan::policy::{KillMode, Until};

use super::{Edge, Seen, rank, resumes};

/// The first promise that `edge` breaks; `seen` is all that was seen, this edge included.
pub fn broken(edge: &Edge, seen: &Seen) -> Option<&'static str> {
    let all = [order(edge, seen), signals(edge, seen), times(edge, seen)];
    let broken = all.concat().into_iter().find(|(broken, _)| *broken);
    broken.map(|(_, promise)| promise)
}

type Checks = Vec<(bool, &'static str)>;

/// The course of a stop, its reason and its end.
fn order(edge: &Edge, seen: &Seen) -> Checks {
    let (from, to) = (edge.before.plan.state, edge.plan.state);
    let was_over = edge.before.plan.is_over();
    let empty = matches!(edge.event, Event::Reaped { empty: true, .. });
    let gives_up = !was_over && to == State::Survived;
    let timed_out = edge
        .before
        .seen
        .kill
        .is_some_and(|kill| edge.now >= kill + edge.policy.kill_timeout);
    let stays = rank(to) < 2;
    let gone_now = seen.server_gone && !edge.before.seen.server_gone;
    let until_tree = edge.policy.until == Until::Tree;
    vec![
        (
            rank(to) < rank(from) && !resumes(edge),
            "a stop never goes back",
        ),
        (
            resumes(edge) != (rank(from) == 1 && to == State::Running),
            "a drain ends without a stop if stdin has a writer again, and only then",
        ),
        (
            was_over && (from != to || !edge.actions.is_empty()),
            "what is over stays over",
        ),
        (
            !was_over && empty != (to == State::Done),
            "done when the tree is empty, and only then",
        ),
        (
            gives_up && !timed_out,
            "no giving up before kill-timeout is over",
        ),
        (
            gives_up != edge.actions.contains(&Action::NameSurvivors),
            "survivors are named when they are given up",
        ),
        (
            edge.plan.trigger != seen.trigger,
            "the trigger that stops the server is reported",
        ),
        (
            seen.trigger.is_none() != (to == State::Running),
            "a trigger and nothing else begins the stop",
        ),
        (
            edge.plan.server_gone != seen.server_gone && !was_over,
            "it is known whether the server is gone",
        ),
        (
            matches!(edge.event, Event::Trigger(trigger) if !trigger.drains()) && stays,
            "every trigger but the two ends a drain",
        ),
        (
            matches!(edge.event, Event::Trigger(trigger) if trigger.drains())
                && rank(from) < 2
                && rank(to) != 1,
            "the two triggers begin a drain, and never end one",
        ),
        (
            gone_now && !until_tree && stays,
            "the end of the server is a trigger, and ends a drain",
        ),
        (
            gone_now && until_tree && rank(from) < 2 && from != to && !empty,
            "until=tree: the end of the server changes nothing",
        ),
    ]
}

/// Which processes get the stop signal, and when.
fn signals(edge: &Edge, seen: &Seen) -> Checks {
    let count = |wanted| {
        edge.actions
            .iter()
            .filter(|action| **action == wanted)
            .count()
    };
    let (server, rest, kill) = (
        count(Action::StopServer),
        count(Action::StopRest),
        count(Action::KillAll),
    );
    let was = &edge.before.seen;
    let (from, to) = (rank(edge.before.plan.state), rank(edge.plan.state));
    let mode = edge.policy.kill_mode;
    let begins = from < 2 && to == 2;
    let staged = mode == KillMode::Staged && !seen.server_gone;
    let had_its_time = seen.stage.is_some_and(|at| edge.now >= at);
    // A process that takes over does not know whether the other one has sent it. The board does.
    let is_new = matches!(edge.event, Event::Trigger(Trigger::MonitorKilled)) && from == 2;
    let (ensured, named) = (count(Action::EnsureServerStop), count(Action::NameWaiting));
    let looked = matches!(edge.event, Event::Deadline { .. }) && from == 2 && to == 2;
    let second = seen.terminate.map(|begun| begun + Duration::from_secs(1));
    let a_second_over = second.is_some_and(|at| edge.now >= at);
    vec![
        (
            to < 2 && !edge.actions.is_empty(),
            "no process is signalled while running or draining",
        ),
        (
            server + usize::from(was.stop_server && !is_new) > 1,
            "the server gets the stop signal only once",
        ),
        (
            rest + usize::from(was.stop_rest) > 1,
            "the rest gets the stop signal only once",
        ),
        (
            server > 0 && seen.server_gone,
            "a server that is gone is not signalled",
        ),
        (
            begins && !seen.server_gone && server == 0,
            "the server gets the stop signal as soon as the stop begins",
        ),
        (
            begins && mode == KillMode::Tree && rest == 0,
            "tree: all get the stop signal at once",
        ),
        (
            mode == KillMode::Mixed && rest > 0,
            "mixed: the rest never gets the stop signal",
        ),
        (
            rest > 0 && staged && !had_its_time,
            "staged: the server has its time",
        ),
        (
            looked && mode == KillMode::Staged && had_its_time && !seen.stop_rest,
            "staged: the rest gets the stop signal in time",
        ),
        (
            ensured + usize::from(was.ensured) > 1 || ensured > 0 && seen.server_gone,
            "a living server is certain to get the stop signal, once",
        ),
        (
            ensured > 0 && (to != 2 || !had_its_time),
            "the certain stop signal to the server comes when it is time",
        ),
        (
            looked && had_its_time && !seen.server_gone && !seen.ensured,
            "a living server is certain to get the stop signal in time",
        ),
        (
            named > 0 && !(looked && edge.policy.at_terminal && a_second_over && !was.named),
            "what the stop waits for is named at a terminal, once, after a second",
        ),
        (
            looked && edge.policy.at_terminal && a_second_over && !seen.named,
            "what the stop waits for is named in time",
        ),
        (
            mode == KillMode::Staged && to == 2 && seen.server_gone && !seen.stop_rest,
            "staged: the rest gets the stop signal when the server is gone",
        ),
        (
            from > 2 && server + rest > 0,
            "no stop signal is sent after SIGKILL",
        ),
        (
            (kill > 0) != (to == 3 && (from == 2 || kill > 0)),
            "killing begins with SIGKILL, and is the state of it",
        ),
    ]
}

/// Deadlines are kept, and no event moves one.
fn times(edge: &Edge, seen: &Seen) -> Checks {
    let set = &edge.policy;
    let was = &edge.before.seen;
    let (from, to) = (edge.before.plan.state, edge.plan.state);
    let from_rank = rank(from);
    let kills = edge.actions.contains(&Action::KillAll);
    let due = was.due;
    let by_key = edge.event == Event::KillNow;
    let moved = match (from, to) {
        (State::Terminating(before), State::Terminating(after)) => {
            after.kill > before.kill || Some(after.kill) != seen.due
        }
        (
            State::Killing {
                survivors_at: a, ..
            },
            State::Killing {
                survivors_at: b, ..
            },
        ) => a != b,
        (State::Draining { until: a, .. }, State::Draining { until: b, .. }) => {
            a != b && seen.restarts == was.restarts
        }
        _ => false,
    };
    let drained = seen.drain.or(was.drain).map(|since| since + set.drain);
    let deadline_came = matches!(edge.event, Event::Deadline { .. });
    let was_due = edge.before.plan.deadline().is_some_and(|at| at <= edge.now);
    let still_due = edge.plan.deadline().is_some_and(|at| at <= edge.now);
    vec![
        (
            moved,
            "no deadline moves, but a drain's by input that was taken, and SIGKILL's to an earlier time",
        ),
        (
            was.kill.is_none() && kills && !by_key && due.is_none_or(|due| edge.now < due),
            "no SIGKILL before the grace is over",
        ),
        (
            by_key && from_rank == 2 && kills != (was.named && set.at_terminal),
            "Ctrl-C kills only what was named, and does so",
        ),
        (by_key && from_rank != 2 && kills, "Ctrl-C begins no stop"),
        (
            kills && matches!(from, State::Killing { next, .. } if edge.now < next),
            "no kill round before the pause is over",
        ),
        (
            deadline_came && rank(from) == 2 && !kills && due.is_some_and(|due| edge.now >= due),
            "SIGKILL as soon as the grace is over",
        ),
        (
            deadline_came
                && rank(from) == 1
                && rank(to) == 2
                && drained.is_none_or(|at| edge.now < at),
            "a drain is not cut short",
        ),
        (
            deadline_came && rank(to) == 1 && drained.is_some_and(|at| edge.now >= at),
            "a drain ends in time",
        ),
        (
            deadline_came && was_due && still_due && rank(from) == rank(to),
            "a deadline that has come changes something: no busy loop",
        ),
    ]
}
