//! Deep trees: the stop signal reaches 256 levels, and fewer with a low `RLIMIT_NOFILE`. SIGKILL reaches all.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::HashSet;
use std::process::Command;

use common::log::Line;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, sys, until};

const USER: u32 = 65534;

/// A chain of `depth` processes. Each has further children, `leaves`, which were born before the next of the chain.
fn chain(depth: usize, leaves: &str) -> String {
    let levels = vec![format!("n:record[{leaves}"); depth - 1];
    format!("{}n:record{}", levels.concat(), "]".repeat(depth - 1))
}

fn start(uid: Option<u32>, before: &[&str], limit: usize, command: &[String]) -> Run {
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let mut words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
    words.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    words.extend_from_slice(command);
    let scene = uid.map_or_else(Scene::new, |uid| Scene::new().uid(uid));
    scene.start(&words)
}

/// How often processes have logged that SIGTERM came, and how many they are.
fn signalled(run: &mut Run) -> (usize, usize) {
    run.log.drain();
    let is_term = |line: &&Line| line.event == "signal" && line.number("sig") == 15;
    let pids: Vec<i32> = run
        .log
        .lines
        .iter()
        .filter(is_term)
        .map(Line::pid)
        .collect();
    (pids.len(), pids.iter().collect::<HashSet<_>>().len())
}

fn every_level_gets_the_signal(before: &[&str], limit: usize, depth: usize, leaves: &str) {
    let count = if leaves.is_empty() {
        depth
    } else {
        2 * depth - 1
    };
    for uid in [None, sys::is_root().then_some(USER)] {
        // The grace period is so long that no SIGKILL hides a walk that ends too early.
        let wrap = Wrap::Treaper(&["--kill-mode=tree", "--grace=1h"]);
        let mut run = start(uid, before, limit, &wrap.tree(&chain(depth, leaves)));
        // Before that, SIGTERM ends them without a word.
        run.log.wait_for(depth, "n", "ready");
        run.log.wait_for(count - depth, "leaf", "ready");
        let shim = if before.is_empty() {
            run.main
        } else {
            run.shim()
        };
        sys::kill(shim, libc::SIGTERM).unwrap();
        until("a tree in which every process has got the signal", || {
            signalled(&mut run).1 == count
        });
        // No process gets the signal twice.
        assert_eq!(signalled(&mut run).0, count, "{before:?} {limit}");
    }
}

#[test]
fn a_chain_gets_the_signal_to_the_last_of_250_levels() {
    every_level_gets_the_signal(&[], 1024, 250, "");
}

#[test]
fn processes_with_older_siblings_get_the_signal_and_so_do_these() {
    every_level_gets_the_signal(&[], 1024, 100, "leaf:record,");
}

#[test]
fn the_same_holds_where_parents_are_read_in_proc() {
    for rule in ["ioctl=ENOTTY", "pidfd_open=ENOSYS"] {
        let before = [ACTOR, "faults", rule, "--"];
        every_level_gets_the_signal(&before, 1024, 80, "leaf:record,");
    }
}

#[test]
fn a_deep_tree_that_ignores_the_stop_signal_is_killed_whole() {
    let options = ["--grace=100ms"];
    for (limit, depth, leaves) in [
        (20, 100, "leaf:ignore=TERM,"),
        (20, 300, ""),
        (1024, 100, "leaf:ignore=TERM,"),
        (1024, 400, ""),
    ] {
        let tree = chain(depth, leaves).replace(":record", ":ignore=TERM");
        let mut run = start(None, &[], limit, &Wrap::Treaper(&options).tree(&tree));
        run.log.wait_for(depth, "n", "ready");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
    }
}

/// The levels that one walk does not reach end as the ones above them do, without SIGKILL.
#[test]
fn a_tree_that_is_too_deep_for_a_walk_still_gets_the_signal_as_it_ends_from_the_top() {
    for (limit, depth) in [(20, 60), (1024, 300)] {
        let options = ["--grace=1h", "--kill-mode=tree"];
        let tree = chain(depth, "").replace(":record", ":on=TERM/0");
        let mut run = start(None, &[], limit, &Wrap::Treaper(&options).tree(&tree));
        run.log.wait_for(depth, "n", "ready");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    }
}

/// The server ends while its children are looked for, so the walk misses one. A walk that takes 100 ms has used up the time
/// for walks. So does one on a busy machine.
#[test]
fn a_slow_walk_that_has_missed_a_process_is_followed_by_another() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let slow = "inject=waitid:delay_enter=100000";
    let strace = ["strace", "-f", "-qq", "-b", "execve", "-o", "/dev/null"];
    let rule = ["-e", "trace=waitid", "-e", slow];
    let wrap = Wrap::Treaper(&["--grace=1h", "--kill-mode=tree"]);
    let tree = wrap.tree("server:on=TERM/0:slow=150[child:on=TERM/0]");
    let words: Vec<String> = strace
        .iter()
        .chain(&rule)
        .map(|&word| word.to_owned())
        .collect();
    let mut run = Scene::new().start(&[words, tree].concat());
    run.log.ready("child");
    run.log.ready("server");
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
}

/// Of what is walked again, the processes that were born during the stop are left alone.
#[test]
fn a_command_by_which_the_server_cleans_up_is_not_taken_for_one_that_was_missed() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    // Each `sleep 0.05` ends while it is looked at, so each walk may have missed a process. The one in the trap lets the
    // clock tick pass in which the stop begins.
    let script = "trap 'sleep 0.05; sleep 2 && exit 3; exit 4' TERM; echo ready; while :; do sleep 0.05; done";
    let slow = "inject=pidfd_open:delay_enter=100000";
    let strace = ["strace", "-f", "-qq", "-b", "execve", "-o", "/dev/null"];
    let rule = ["-e", "trace=pidfd_open", "-e", slow];
    let treaper = [
        TREAPER,
        "--grace=1h",
        "--kill-mode=tree",
        "sh",
        "-c",
        script,
    ];
    let mut run = Scene::new().start(&[&strace[..], &rule, &treaper].concat());
    until("a server", || run.stdout().contains("ready"));
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
}

#[test]
fn control_bare_a_signal_reaches_one_process_only() {
    let mut run = start(None, &[], 1024, &Wrap::Bare.tree(&chain(50, "")));
    run.log.wait_for(50, "n", "ready");
    run.signal(libc::SIGTERM);
    until("the first one", || signalled(&mut run).1 == 1);
    let more = run
        .log
        .comes_within(std::time::Duration::from_millis(100), "n", "never");
    assert!(!more && signalled(&mut run).1 == 1);
}
