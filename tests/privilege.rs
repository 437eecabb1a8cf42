//! The main scenes as the user who runs the tests, as an unprivileged user, and as PID 1 of a namespace.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{ACTOR, Scene, Wrap, sys};

const QUICK: Wrap = Wrap::Treaper(&["--drain", "100ms", "--grace", "200ms"]);
const STUBBORN: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:stopped:ignore=TERM,\
                        c:chain=2]";

/// As which user the scene runs.
type Mode = (&'static str, fn() -> Scene, bool);

fn modes() -> Vec<Mode> {
    let mut modes: Vec<Mode> = vec![
        ("ourselves", Scene::new, false),
        ("PID 1", || Scene::new().pidns(), true),
    ];
    if sys::is_root() {
        modes.push(("a user", || Scene::new().uid(12345), false));
        modes.push(("a user as PID 1", || Scene::new().pidns().uid(12345), true));
    }
    modes
}

#[test]
fn a_stubborn_tree_is_stopped() {
    for (name, scene, _) in modes() {
        let mut run = scene()
            .start(&QUICK.tree(STUBBORN))
            .ready(&["server", "a", "b", "c"]);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(137), "{name}");
    }
}

#[test]
fn control_a_stubborn_tree_survives_without_treaper() {
    for (name, scene, first) in modes() {
        let mut run = scene()
            .start(&Wrap::Bare.tree(STUBBORN))
            .ready(&["server", "a", "b", "c"]);
        run.signal(libc::SIGTERM);
        // If the server is PID 1, the kernel would end them with it, but no process ends the server.
        assert!(!run.ends_within(Duration::from_millis(200)), "{name}");
        if !first {
            run.signal(libc::SIGKILL);
            assert!(run.wait().left.len() >= 2, "{name}");
        }
    }
}

#[test]
fn a_closed_stdin_ends_the_tree() {
    for (name, scene, _) in modes() {
        let mut run = scene()
            .env("TREAPER_STDIN", "watch")
            .stdin_pipe()
            .start(&QUICK.tree(STUBBORN))
            .ready(&["server", "a", "b", "c"]);
        run.close_stdin();
        assert_eq!(run.wait_clean().code(), Some(137), "{name}");
    }
}

#[test]
fn a_server_that_ends_leaves_nothing() {
    for (name, scene, _) in modes() {
        let tree = "server:exit=7[a:setsid:ignore=TERM,b:daemon:ignore=TERM]";
        let mut run = scene().start(&QUICK.tree(tree)).ready(&["server"]);
        assert_eq!(run.wait_clean().code(), Some(7), "{name}");
    }
}

#[test]
fn a_killed_shim_leaves_nothing() {
    for (name, scene, _) in modes() {
        let mut run = scene()
            .start(&QUICK.tree(STUBBORN))
            .ready(&["server", "a", "b", "c"]);
        run.signal(libc::SIGKILL);
        assert_eq!(run.wait_empty().signal(), Some(libc::SIGKILL), "{name}");
    }
}

#[test]
fn a_killed_monitor_leaves_nothing() {
    for (_, scene, first) in modes() {
        if !first {
            let mut run = scene()
                .start(&QUICK.tree(STUBBORN))
                .ready(&["server", "a", "b", "c"]);
            sys::kill(run.monitor(), libc::SIGKILL).unwrap();
            run.wait_clean();
        }
    }
}

#[test]
fn a_killed_host_leaves_nothing() {
    for (_, scene, first) in modes() {
        if !first {
            let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
            let mut run = scene().start(&[&host[..], &QUICK.tree(STUBBORN)].concat());
            for name in ["server", "a", "b", "c"] {
                run.log.ready(name);
            }
            run.signal(libc::SIGKILL);
            run.wait_empty();
        }
    }
}

#[test]
fn a_host_in_the_same_namespace_leaves_nothing() {
    // A container whose PID 1 is another program, which outlives the host.
    let host = [
        ACTOR, "launch", "--", ACTOR, "host", "--stdin", "null", "--",
    ]
    .map(str::to_owned);
    let mut run = Scene::new()
        .pidns()
        .start(&[&host[..], &QUICK.tree(STUBBORN)].concat());
    for name in ["server", "a", "b", "c"] {
        run.log.ready(name);
    }
    run.log.wait("host", "spawned");
    let host = run.named("host")[0].pid;
    sys::kill(host, libc::SIGKILL).unwrap();
    run.wait_empty();
}

#[test]
fn as_pid_1_the_pair_reaps_whatever_ends() {
    for (name, scene, first) in modes() {
        if first {
            let tree = "server:orphans=1000:on=TERM/6";
            let patient = Wrap::Treaper(&["--grace", "60s"]);
            let mut run = scene().start(&patient.tree(tree)).ready(&["server"]);
            let monitor = run.named("tree-monitor")[0].pid;
            common::until("only these three", || {
                run.survivors().len() == 3 && common::proc::children(monitor).len() == 1
            });
            run.signal(libc::SIGTERM);
            assert_eq!(run.wait_clean().code(), Some(6), "{name}");
            assert_eq!(run.stderr(), "", "{name}");
        }
    }
}

#[test]
fn signals_and_statuses_pass_through() {
    for (name, scene, _) in modes() {
        let mut run = scene()
            .start(&QUICK.tree("server:record:on=USR2/9"))
            .ready(&["server"]);
        for (number, signal) in [libc::SIGUSR1, libc::SIGINT, 40, libc::SIGUSR2]
            .iter()
            .enumerate()
        {
            run.signal(*signal);
            let signalled = run.log.wait_for(number + 1, "server", "signal");
            assert_eq!(
                signalled[number].number("sig"),
                i64::from(*signal),
                "{name}"
            );
        }
        assert_eq!(run.wait_clean().code(), Some(9), "{name}");
    }
}

#[test]
fn a_parent_outside_of_the_namespace_is_no_reason_to_stop() {
    for (name, scene, first) in modes() {
        if first {
            let mut run = scene().start(&QUICK.tree("server")).ready(&["server"]);
            assert!(
                !run.ends_within(Duration::from_millis(200)),
                "{name}: {}",
                run.stderr()
            );
        }
    }
}
