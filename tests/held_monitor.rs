//! A monitor that is held, but not killed: the shim does not wait for it for ever.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::proc::{Process, state};
use common::{Scene, Wrap, skip, special, sys, until};
use treaper::pair::bound::Bound;
use treaper::sys::pid::Pid;

const WRAPS: [Wrap; 2] = [
    Wrap::Treaper(&["--grace=1s"]),
    Wrap::Treaper(&["--contain=pidns", "--grace=1s"]),
];

/// A debugger, or a process of the tree, holds it. It dies by SIGKILL, and its tracer keeps the
/// zombie.
#[test]
fn a_monitor_that_a_tracer_holds_is_killed_and_the_tree_is_stopped() {
    for wrap in WRAPS {
        if matches!(wrap, Wrap::Treaper(["--contain=pidns", ..])) && !sys::is_root() {
            skip("pidns without root depends on the machine");
            continue;
        }
        let tree = "server:ignore=TERM[worker:setsid:ignore=TERM]";
        let mut run = Scene::new()
            .start(&wrap.tree(tree))
            .ready(&["server", "worker"]);
        let monitor = run.monitor();
        special::ptrace_stop(monitor).unwrap();
        until("a monitor that is held", || state(monitor) == 't');
        // It has nothing to do.
        assert!(!run.ends_within(Duration::from_secs(6)), "{wrap:?}");
        run.signal(libc::SIGTERM);
        let exit = run.wait();
        let said = run.stderr();
        assert!(said.contains("was held"), "{wrap:?}: {exit:?} {said}");
        until("the end of the tree", || {
            run.survivors().iter().all(|process| process.pid == monitor)
        });
        sys::wait_for(monitor);
    }
}

/// A busy machine is no reason.
#[test]
fn a_process_that_waits_for_the_processor_is_not_held() {
    for (script, is_held) in [("while :; do :; done", false), ("read line", true)] {
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let number = child.id() as i32;
        let state_now = if is_held { 'S' } else { 'R' };
        until("its state", || {
            Process::read(number).is_some_and(|it| it.comm == "sh" && it.state == state_now)
        });
        let pid = Pid::new(number).unwrap();
        let found = Bound::default().is_held(pid, Duration::ZERO);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, is_held, "{script}");
    }
}
