//! Shim, monitor and host are killed at random instants, also during the start: no process is ever left.
//! `KILL_SEED` repeats a run, `KILL_ROUNDS` makes it longer.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::time::Duration;

use common::rng::Rng;
use common::{ACTOR, Run, Scene, Wrap, seed, sys};

const TREE: &str = "server:ignore=TERM[worker:setsid:ignore=TERM,deep:daemon:ignore=TERM]";
const QUICK: Wrap = Wrap::Treaper(&["--grace", "10ms", "--drain", "5ms"]);

/// Instants after the start, in microseconds: a start takes some milliseconds, so most fall into it.
const SPAN: u64 = 12_000;

fn rounds() -> u32 {
    std::env::var("KILL_ROUNDS").map_or(300, |text| text.parse().unwrap())
}

fn pause(random: &mut Rng) -> u64 {
    let time = random.below(SPAN);
    sys::pause_for(Duration::from_micros(time));
    time
}

/// The child of a process, as soon as there is one. `None` if the process is gone first.
fn child_of(parent: i32) -> Option<i32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let deadline = common::patience();
    while std::time::Instant::now() < deadline {
        let text = std::fs::read_to_string(&path).ok()?;
        if let Some(child) = text.split_whitespace().next() {
            return child.parse().ok();
        }
    }
    None
}

fn is_empty_afterwards(mut run: Run, what: &str, round: u32, time: u64) {
    let described = format!("{what} killed {time} us after the start, round {round}");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.wait_empty()));
    assert!(result.is_ok(), "{described}");
}

#[test]
fn nothing_is_left_when_the_shim_is_killed_at_any_instant() {
    let mut random = Rng::new(seed("KILL_SEED") ^ 1);
    for round in 0..rounds() {
        let run = Scene::new().start(&QUICK.tree(TREE));
        let time = pause(&mut random);
        run.signal(libc::SIGKILL);
        is_empty_afterwards(run, "shim", round, time);
    }
}

#[test]
fn nothing_is_left_when_the_monitor_is_killed_at_any_instant() {
    let mut random = Rng::new(seed("KILL_SEED") ^ 2);
    for round in 0..rounds() {
        let mut run = Scene::new().start(&QUICK.tree(TREE));
        let monitor = child_of(run.main);
        let time = pause(&mut random);
        // When the shim reaps the monitor, it exits. So this pid is not that of another process yet.
        if let Some(monitor) = monitor {
            let _ = sys::kill(monitor, libc::SIGKILL);
        }
        let exit = run.wait();
        assert!(exit.left.is_empty(), "round {round}, {time} us: {exit:?}");
        is_empty_afterwards(run, "monitor", round, time);
    }
}

#[test]
fn nothing_is_left_when_the_host_is_killed_at_any_instant() {
    let mut random = Rng::new(seed("KILL_SEED") ^ 3);
    for round in 0..rounds() {
        // If the host is gone before treaper has looked at its parent, the empty pipe and the session show that. The
        // host made both (as a service, a terminal, or an editor's runtime does).
        let host = [ACTOR, "host", "--stdin", "pipe", "--own-session", "--"].map(str::to_owned);
        let mut run = Scene::new().start(&[&host[..], &QUICK.tree(TREE)].concat());
        run.log.wait("host", "spawned");
        let time = pause(&mut random);
        run.signal(libc::SIGKILL);
        is_empty_afterwards(run, "host", round, time);
    }
}

#[test]
fn control_one_process_alone_leaks_at_some_instant() {
    let mut random = Rng::new(seed("KILL_SEED") ^ 4);
    let alone = Wrap::Treaper(&["--grace", "10ms", "--no-guard"]);
    let mut leaked = 0;
    // On a slow machine a start takes longer.
    for span in [1, 8, 40, 200].map(|times| times * SPAN) {
        for _ in 0..40 {
            let mut run = Scene::new().start(&alone.tree(TREE));
            sys::pause_for(Duration::from_micros(random.below(span)));
            run.signal(libc::SIGKILL);
            leaked += usize::from(!run.wait().left.is_empty());
        }
        if leaked > 0 {
            break;
        }
    }
    assert!(leaked > 0, "the scene shows nothing");
}
