//! A kernel without pidfds: only the parent-death signal reports the end of the host, and only `getppid()` confirms it.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{ACTOR, Run, Scene, Wrap, sys};

const TREE: &str = "server:ignore=TERM[worker:setsid:ignore=TERM,deep:daemon:ignore=TERM]";
/// With the pair, with one process, and with a monitor in a PID namespace of its own.
const WAYS: [&[&str]; 3] = [&[], &["--no-guard"], &["--contain=pidns"]];
/// Long enough for a false alarm to show.
const A_WHILE: Duration = Duration::from_millis(400);

/// Below a host, with a stdin that does not hang up.
fn hosted(wrap: Wrap, host: &[&str]) -> Run {
    let host = [&[ACTOR, "host", "--stdin", "null"], host, &["--"]].concat();
    let faults = [ACTOR, "faults", "pidfd_open=ENOSYS", "--"];
    let before = [&host[..], &faults].concat();
    let before: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
    let mut run = Scene::new().start(&[before, wrap.tree(TREE)].concat());
    for name in ["server", "worker", "deep"] {
        run.log.ready(name);
    }
    run.log.wait("host", "spawned");
    run
}

fn options<'a>(way: &[&'a str]) -> Vec<&'a str> {
    [&["-v", "--grace=200ms"], way].concat()
}

#[test]
fn nothing_outlives_a_killed_host() {
    for way in WAYS {
        let mut run = hosted(Wrap::Treaper(&options(way)), &[]);
        run.signal(libc::SIGKILL);
        run.wait_empty();
        let stderr = run.stderr();
        assert!(stderr.contains("parent-exit"), "{way:?}: {stderr}");
    }
}

#[test]
fn control_without_treaper_everything_outlives_a_killed_host() {
    let mut run = hosted(Wrap::Bare, &[]);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 3);
}

#[test]
fn nothing_outlives_a_killed_shim_or_monitor() {
    for way in [WAYS[0], WAYS[2]] {
        for kill_shim in [true, false] {
            let mut run = hosted(Wrap::Treaper(&options(way)), &[]);
            let (victim, trigger) = if kill_shim {
                (run.shim(), "shim-killed")
            } else {
                (run.monitor(), "monitor-killed")
            };
            sys::kill(victim, libc::SIGKILL).unwrap();
            run.wait_empty();
            // The kernel has killed a namespace with its init, so no process is left to be stopped.
            let stderr = run.stderr();
            let by_kernel = !kill_shim && way == WAYS[2];
            assert!(by_kernel || stderr.contains(trigger), "{way:?}: {stderr}");
        }
    }
}

#[test]
fn a_host_whose_spawning_thread_ends_keeps_its_server() {
    for way in WAYS {
        let mut run = hosted(Wrap::Treaper(&options(way)), &["--thread"]);
        run.log.wait("host", "thread-ended");
        let monitors = usize::from(!way.contains(&"--no-guard"));
        common::until("no first leader", || {
            run.named("treaper").len() == 1 && run.named("tree-monitor").len() == monitors
        });
        let before = run.survivors().len();
        assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
        assert_eq!(run.survivors().len(), before, "{way:?}: {}", run.stderr());
        // After the false alarm it still notices the real end.
        run.signal(libc::SIGKILL);
        run.wait_empty();
        assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
    }
}
