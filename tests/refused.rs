//! A seccomp filter that refuses one of the calls that wait: no signal is lost, no process survives, and treaper takes
//! no processor time while nothing happens.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{ACTOR, Run, Scene, Wrap, sys, until};

const RULES: &[&[&str]] = &[
    &["rt_sigtimedwait=EPERM"],
    &["rt_sigtimedwait=ENOSYS"],
    &["ppoll=EPERM"],
    &["ppoll=ENOSYS"],
    &["wait4=EPERM"],
    &["wait4=ENOSYS", "ppoll=EPERM", "rt_sigtimedwait=EPERM"],
];
const LEVELS: &[&[&str]] = &[&[], &["--no-guard"]];
const OPTIONS: &[&str] = &["--drain=100ms", "--grace=200ms", "--kill-timeout=25s"];
const STUBBORN: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:ignore=TERM[d]]";
const NAMES: &[&str] = &["server", "a", "b", "d"];

fn start(scene: Scene, rules: &[&str], level: &[&str], options: &[&str]) -> Run {
    let options = [options, level].concat();
    let tree = Wrap::Treaper(&options).tree(STUBBORN);
    let before = [&[ACTOR, "faults"], rules, &["--"]].concat();
    let words: Vec<&str> = before
        .into_iter()
        .chain(tree.iter().map(String::as_str))
        .collect();
    scene.start(&words).ready(NAMES)
}

/// The processor time of a process.
fn busy(pid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn sigterm_is_not_lost_and_nothing_survives() {
    for rules in RULES {
        for level in LEVELS {
            let mut run = start(Scene::new(), rules, level, OPTIONS);
            run.signal(libc::SIGTERM);
            let exit = run.wait_clean();
            let printed = run.stderr();
            assert_eq!(exit.code(), Some(137), "{rules:?} {level:?}: {printed}");
            assert!(
                !printed.contains("cannot be seen"),
                "{rules:?} {level:?}: {printed}"
            );
        }
    }
}

#[test]
fn either_of_the_pair_may_be_killed() {
    for rules in RULES {
        for victim in ["shim", "monitor"] {
            let mut run = start(Scene::new(), rules, &[], OPTIONS);
            let pid = match victim {
                "shim" => run.main,
                _ => run.monitor(),
            };
            sys::kill(pid, libc::SIGKILL).unwrap();
            run.wait_empty();
        }
    }
}

#[test]
fn the_end_of_stdin_is_seen_where_the_older_poll_is_left() {
    for rules in [&["ppoll=EPERM"][..], &["ppoll=ENOSYS", "wait4=EPERM"]] {
        for level in LEVELS {
            let options = [OPTIONS, &["--stdin=watch"]].concat();
            let mut run = start(Scene::new().stdin_pipe(), rules, level, &options);
            run.close_stdin();
            assert_eq!(run.wait_clean().code(), Some(137), "{rules:?} {level:?}");
        }
    }
}

#[test]
fn a_second_of_waiting_takes_no_processor_time() {
    for rules in RULES {
        for level in LEVELS {
            let mut run = start(Scene::new(), rules, level, OPTIONS);
            let mut own = vec![run.main];
            if level.is_empty() {
                own.push(run.monitor());
            }
            let before: Duration = own.iter().map(|pid| busy(*pid)).sum();
            sys::pause_for(Duration::from_secs(1));
            let after: Duration = own.iter().map(|pid| busy(*pid)).sum();
            let took = after.saturating_sub(before);
            assert!(
                took < Duration::from_millis(100),
                "{rules:?} {level:?}: {took:?}"
            );
            run.signal(libc::SIGTERM);
            run.wait_clean();
        }
    }
}

/// Then treaper only notices signals, and a message says so. In the second scene no call can wait for signals either.
#[test]
fn without_any_poll_signals_are_still_obeyed() {
    // Not an actor, since it polls as well.
    let script = "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000";
    for rules in [
        &["poll=EPERM", "ppoll=EPERM"][..],
        &["poll=EPERM", "ppoll=EPERM", "rt_sigtimedwait=EPERM"],
    ] {
        for level in LEVELS {
            let options = [OPTIONS, level].concat();
            let server = Wrap::Treaper(&options).command(&["sh", "-c", script]);
            let before = [&[ACTOR, "faults"], rules, &["--"]].concat();
            let words: Vec<&str> = before
                .into_iter()
                .chain(server.iter().map(String::as_str))
                .collect();
            let mut run = Scene::new().start(&words);
            until("a server that is up", || run.stdout().contains("up"));
            until("a message", || run.stderr().contains("cannot poll"));
            let before = busy(run.main);
            sys::pause_for(Duration::from_secs(1));
            let took = busy(run.main).saturating_sub(before);
            assert!(
                took < Duration::from_millis(100),
                "{rules:?} {level:?}: {took:?}"
            );
            run.signal(libc::SIGTERM);
            assert_eq!(run.wait_clean().code(), Some(137), "{rules:?} {level:?}");
            let printed = run.stderr();
            assert_eq!(printed.matches("cannot poll").count(), 1, "{printed}");
        }
    }
}

#[test]
fn control_bare_the_tree_survives() {
    let mut run = Scene::new().start(&Wrap::Bare.tree(STUBBORN));
    for name in NAMES {
        run.log.ready(name);
    }
    run.signal(libc::SIGKILL);
    assert!(run.wait().left.len() >= 2);
}
