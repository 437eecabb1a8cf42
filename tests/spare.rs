//! `--spare`: a daemon that the operator names lives on, with what it has started. Everything else ends, and nothing waits
//! for the daemon.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::family::{gone, number_next, play};
use common::proc::Process;
use common::rng::Rng;
use common::{
    ACTOR, Run, Scene, TREAPER, Wrap, seed, skip, sys, treaper, until, until_it_pauses, until_state,
};
use serde_json::{Value, json};

/// A daemon with a process in its session, and one in another session, which has a child in that one.
const KEEPER: &str = "keeper:setsid:record[helper:record,pane:setsid:record[deep:record]]";
const KEPT: [&str; 4] = ["keeper", "helper", "pane", "deep"];

/// The pids of these processes, which are ready.
fn pids(run: &mut Run, names: &[&str]) -> Vec<i32> {
    names.iter().map(|name| run.log.ready(name)).collect()
}

fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
    pids.sort_unstable();
    pids
}

fn alive(run: &Run) -> Vec<i32> {
    sorted(run.survivors().iter().map(|process| process.pid).collect())
}

/// At the end of treaper just these are left. Returns its exit status.
fn only_left(run: &mut Run, pids: &[i32]) -> Option<i32> {
    let exit = run.wait();
    let (left, stderr) = (sorted(exit.left.clone()), run.stderr());
    assert_eq!(
        left,
        sorted(pids.to_vec()),
        "{:#?}\n{stderr}",
        run.survivors()
    );
    assert_eq!(alive(run), left);
    exit.code()
}

/// Just these are left some time after one process of the pair was killed.
fn soon_only_left(run: &Run, pids: &[i32]) {
    let expected = sorted(pids.to_vec());
    until("all others are gone", || {
        alive(run).iter().all(|pid| expected.contains(pid))
    });
    assert_eq!(alive(run), expected, "{:#?}", run.survivors());
}

fn stop(options: &[&str], tree: &str, ready: &[&str]) -> Run {
    let run = treaper(options, tree, ready);
    run.signal(libc::SIGTERM);
    run
}

fn line_about(pid: i32) -> String {
    format!("treaper: --spare: left running: 1 process (keeper[{pid}])\n")
}

#[test]
fn a_daemon_lives_on_with_what_it_has_started_and_gets_no_signal() {
    for (how, guard) in [
        ("setsid", "--guard"),
        ("daemon:setsid", "--guard"),
        ("setsid", "--no-guard"),
    ] {
        let report = std::env::temp_dir().join(format!("treaper-spare-{}", common::unique()));
        let mut options = vec!["--spare", "keeper", "--grace", "20s", "--report"];
        options.push(report.to_str().unwrap());
        options.extend(Some(guard).filter(|guard| *guard == "--no-guard"));
        let keeper = KEEPER.replacen("setsid", how, 1);
        let tree = format!("server:on=TERM/3[worker:setsid:on=TERM/0,{keeper}]");
        let mut run = treaper(&options, &tree, &["server", "worker"]);
        let kept = pids(&mut run, &KEPT);
        run.signal(libc::SIGTERM);
        assert_eq!(only_left(&mut run, &kept), Some(3), "{how} {guard}");
        assert_eq!(run.stderr(), line_about(kept[0]), "{how} {guard}");
        assert_eq!(run.log.all("worker", "leaving").len(), 1);
        let parents = kept[..3]
            .iter()
            .map(|pid| Process::read(*pid).unwrap().ppid);
        assert_eq!(parents.collect::<Vec<_>>(), [run.arena(), kept[0], kept[0]]);
        for name in KEPT {
            assert!(
                run.received(name).is_empty(),
                "{how} {guard}: {:#?}",
                run.log.lines
            );
        }
        let text = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(&report).unwrap();
        let object: Value = serde_json::from_str(&text).unwrap();
        let uid = sys::euid();
        // On a busy machine it may not rest yet.
        let state = object["spared"][0]["state"].as_str().unwrap();
        assert!(["R", "S"].contains(&state), "{state}");
        let one = json!([{"pid": kept[0], "name": "keeper", "uid": uid, "state": state}]);
        assert_eq!(object["spared"], one);
        assert_eq!(
            (&object["sigkilled"], &object["survivors"]),
            (&json!([]), &json!([]))
        );
    }
}

/// The processes of the tree are children of treaper like that helper, and only a scan of `/proc` finds them.
#[test]
fn where_the_kernel_has_no_lists_of_children_nothing_waits_for_it() {
    for options in [
        &["--spare", "keeper"][..],
        &["--spare", "keeper", "--no-guard"],
    ] {
        let before = [ACTOR, "faults", "open~/children=ENOENT", "--"].map(str::to_owned);
        let tree = format!("server:on=TERM/3[worker:setsid:on=TERM/0,{KEEPER}]");
        let words = [&before[..], &Wrap::Treaper(options).tree(&tree)].concat();
        let mut run = Scene::new().start(&words).ready(&["server", "worker"]);
        let kept = pids(&mut run, &KEPT);
        run.signal(libc::SIGTERM);
        let (exit, stderr) = (run.wait(), run.stderr());
        assert_eq!(exit.code(), Some(3), "{options:?}: {stderr}");
        assert!(stderr.contains(&line_about(kept[0])), "{stderr}");
        assert!(kept.iter().all(|pid| exit.left.contains(pid)), "{exit:?}");
        assert!(run.named("worker").is_empty(), "{options:?}");
    }
}

#[test]
fn control_without_the_option_nothing_lives_on() {
    let tree = format!("server:on=TERM/3[{KEEPER}]");
    for options in [
        &["--grace", "2s"][..],
        &["--grace", "2s", "--spare", "keep", "--spare", "server"],
    ] {
        let mut run = treaper(options, &tree, &["server"]);
        pids(&mut run, &KEPT);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
        assert!(!run.stderr().contains("--spare"), "{}", run.stderr());
    }
}

#[test]
fn sigkill_does_not_reach_it() {
    let tree = format!("server:ignore=TERM[worker:setsid:ignore=TERM,{KEEPER}]");
    for mode in ["staged", "tree", "mixed"] {
        let options = ["-k", mode, "--grace", "200ms", "--spare", "keeper"];
        let mut run = treaper(&options, &tree, &["server", "worker"]);
        let kept = pids(&mut run, &KEPT);
        run.signal(libc::SIGTERM);
        assert_eq!(only_left(&mut run, &kept), Some(137), "{mode}");
        assert!(
            run.stderr().contains("had to SIGKILL 2 processes"),
            "{}",
            run.stderr()
        );
    }
}

#[test]
fn a_server_that_ends_by_itself_leaves_it() {
    let tree = format!("server:on=USR1/4[{KEEPER}]");
    let mut run = treaper(&["--spare", "keeper"], &tree, &["server"]);
    let kept = pids(&mut run, &KEPT);
    sys::kill(run.log.ready("server"), libc::SIGUSR1).unwrap();
    assert_eq!(only_left(&mut run, &kept), Some(4));
    assert_eq!(run.stderr(), line_about(kept[0]));
}

/// Their command name is their own, as that of Node 24.
#[test]
fn a_daemon_is_also_known_by_the_file_name_of_its_program() {
    let tree = "server:on=USR1/4[MainThread:setsid:record]";
    for names in ["actor", "MainThread"] {
        let mut run = treaper(&["--spare", names], tree, &["server"]);
        let kept = pids(&mut run, &["MainThread"]);
        sys::kill(run.log.ready("server"), libc::SIGUSR1).unwrap();
        assert_eq!(only_left(&mut run, &kept), Some(4));
        // That name says nothing, so the other one is shown.
        let line = format!("left running: 1 process (actor[{}])\n", kept[0]);
        assert!(run.stderr().ends_with(&line), "{}", run.stderr());
    }
}

/// A server with a daemon whose first argument alone is this, as that of bazel, whose other names are java.
fn titled(title: &str, options: &[&str]) -> (Run, i32) {
    let daemon = format!("exec -a '{title}' sleep 1000");
    let server = "setsid bash -c \"$0\" & exec sleep 1001";
    let words = [&[TREAPER], options, &["bash", "-c", server, &daemon]].concat();
    let run = Scene::new().start(&words);
    let first = format!("{title}\0");
    let words = |process: &Process| std::fs::read(format!("/proc/{}/cmdline", process.pid));
    let is_titled =
        |process: &Process| words(process).is_ok_and(|all| all.starts_with(first.as_bytes()));
    let find = || run.named("sleep").into_iter().find(is_titled);
    until("the daemon and the server", || {
        run.named("sleep").len() == 2 && find().is_some()
    });
    let daemon = find().unwrap().pid;
    (run, daemon)
}

#[test]
fn a_daemon_is_also_known_by_its_first_argument() {
    for (title, name, is_kept) in [
        ("/x/keeper(folder)", "keeper", true),
        ("/x/keeper(folder)", "keeper(folder)", true),
        ("/x/keeper(folder)", "keep", false),
        ("keeper run", "keeper", true),
        ("/keeper y/in/x", "keeper", false),
        ("x /in/keeper", "keeper", false),
        ("/in the/keeper", "keeper", true),
    ] {
        for guard in [None, Some("--no-guard")] {
            let options = [guard.as_slice(), &["--spare", name]].concat();
            let (mut run, daemon) = titled(title, &options);
            run.signal(libc::SIGTERM);
            let kept = if is_kept { &[daemon][..] } else { &[] };
            let code = only_left(&mut run, kept);
            assert_eq!(code, Some(143), "{title} {name} {guard:?}");
        }
    }
}

/// Ends when it is dropped.
struct Strace(std::process::Child);

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// It is read from the memory of the daemon, which a hung call can keep locked. strace holds the monitor there.
#[test]
fn if_reading_the_first_argument_has_held_the_monitor_the_other_one_does_not_try() {
    if !sys::is_root() || Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace, and root to attach it");
    }
    // The server ends by itself, or by the stop.
    for ends in [libc::SIGINT, libc::SIGTERM] {
        let (mut run, daemon) = titled("/x/keeper", &["--grace=1s", "--spare=keeper"]);
        let monitor = run.named("tree-monitor")[0].pid;
        let strace = Command::new("strace")
            .args(["-qq", "-o", "/dev/null"])
            .args(["-e", "inject=?open,openat:delay_enter=1000s"])
            .args(["-P", &format!("/proc/{daemon}/cmdline")])
            .args(["-p", &monitor.to_string()])
            .spawn()
            .unwrap();
        let strace = Strace(strace);
        let status = || std::fs::read_to_string(format!("/proc/{monitor}/status")).unwrap();
        let tracer = format!("TracerPid:\t{}\n", strace.0.id());
        until("a traced monitor", || status().contains(&tracer));
        run.signal(ends);
        until_state(&[monitor], 't');
        until("a monitor that was killed", || {
            run.stderr().contains("so it was killed")
        });
        // It keeps what it traces also after SIGKILL.
        drop(strace);
        assert_eq!(only_left(&mut run, &[]), Some(128 + ends));
    }
}

#[test]
fn the_server_is_never_spared() {
    // The worker is in the session of the server, and no signal to the group of the server reaches it.
    let options = ["--spare", "server", "--grace", "200ms"];
    let tree = "server:record[worker:pgrp:ignore=TERM]";
    for by_the_heir in [false, true] {
        let mut run = treaper(&options, tree, &["server", "worker"]);
        if by_the_heir {
            sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        } else {
            run.signal(libc::SIGTERM);
        }
        assert_eq!(run.wait_clean().code(), Some(137), "{by_the_heir}");
    }
}

#[test]
fn a_process_without_a_session_of_its_own_is_not_spared() {
    let tree = "server:on=TERM/3[keeper:pgrp:ignore=TERM,worker:setsid[keeper:ignore=TERM]]";
    let mut run = treaper(
        &["--spare", "keeper", "--grace", "2s"],
        tree,
        &["server", "worker"],
    );
    run.log.wait_for(2, "keeper", "ready");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn a_shell_of_this_name_outside_of_the_tree_spares_nothing() {
    let (scene, _terminal) = Scene::new().reaper_named("keeper").terminal();
    let wrap = Wrap::Treaper(&["--spare", "keeper", "--grace", "2s"]);
    let tree = wrap.tree("server:on=TERM/3[worker:ignore=TERM]");
    let mut run = scene.start(&tree).ready(&["server", "worker"]);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn a_daemon_that_has_forked_twice_is_known_by_its_own_name() {
    let tree = "server:on=TERM/3[keeper:daemon:record[helper:record],other:daemon:on=TERM/0]";
    let mut run = treaper(&["--spare", "keeper"], tree, &["server", "other"]);
    let kept = pids(&mut run, &["keeper", "helper"]);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept), Some(3));
    // A process that loses the leader of its session by the stop itself is no daemon.
    let tree = "server:on=TERM/3[worker:setsid:on=TERM/0[keeper:on=TERM/0:slow=300]]";
    let mut run = stop(
        &["--spare", "keeper", "--grace", "20s"],
        tree,
        &["server", "worker", "keeper"],
    );
    assert_eq!(run.wait_clean().code(), Some(3));
    assert_eq!(run.stderr(), "");
}

#[test]
fn an_orphan_in_the_session_of_a_daemon_without_a_leader_is_spared_in_any_order() {
    for options in [
        &["--spare", "keeper", "--kill-mode", "tree"][..],
        &["--spare", "keeper"],
    ] {
        let daemon = "keeper:daemon:record[middle:on=TERM/0[worker:on=TERM/0]]";
        let tree = format!("server:on=TERM/3[{daemon},other:daemon:on=TERM/0]");
        let mut run = treaper(options, &tree, &["server", "middle", "other"]);
        let kept = pids(&mut run, &["keeper", "worker"]);
        let middle = run.log.ready("middle");
        sys::kill(middle, libc::SIGTERM).unwrap();
        until("an orphan", || {
            Process::read(kept[1]).unwrap().ppid != middle
        });
        run.signal(libc::SIGTERM);
        assert_eq!(only_left(&mut run, &kept), Some(3), "{options:?}");
    }
}

#[test]
fn a_name_is_cut_as_the_kernel_cuts_it_and_a_variable_has_several() {
    let tree = "server:on=TERM/3[a-keeper-of-fifteen-and-more:setsid:record,second:setsid:record,third:setsid]";
    let names = ["a-keeper-of-fifteen-and-more", "second"];
    let wrap = Wrap::Treaper(&[]).tree(tree);
    let scene = Scene::new().env("TREAPER_SPARE", &names.join(", "));
    let mut run = scene.start(&wrap).ready(&["server", "third"]);
    let kept = pids(&mut run, &names);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept), Some(3));
    assert!(run.stderr().contains("2 processes"), "{}", run.stderr());
}

#[test]
fn the_name_counts_when_treaper_looks_and_is_kept() {
    // Before: the first gets the name, and the second loses it.
    let tree = "server:on=TERM/3[first:becomes=keeper:ignore=TERM,keeper:setsid:becomes=other:ignore=TERM]";
    let mut run = treaper(&["--spare", "keeper", "--grace", "2s"], tree, &["server"]);
    let both = pids(&mut run, &["first", "keeper"]);
    for (pid, name) in both.iter().zip(["first", "keeper"]) {
        sys::kill(*pid, libc::SIGUSR1).unwrap();
        run.log.wait(name, "became");
    }
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &both[..1]), Some(3));
}

/// A tree whose worker gets the stop signal after treaper has seen the daemon, which is younger and so comes first.
fn seen(options: &[&str], keeper: &str, names: &[&str]) -> (Run, Vec<i32>) {
    let tree = format!("server:ignore=TERM[worker:record,{keeper}]");
    let options = [&["--spare", "keeper", "-k", "tree"][..], options].concat();
    let mut run = treaper(&options, &tree, &["server", "worker"]);
    let kept = pids(&mut run, names);
    run.signal(libc::SIGTERM);
    run.log.wait("worker", "signal");
    (run, kept)
}

#[test]
fn a_daemon_that_takes_another_name_during_the_stop_stays_spared() {
    let (keeper, names) = (
        "keeper:setsid:becomes=other[pane:setsid:record]",
        ["keeper", "pane"],
    );
    let (mut run, kept) = seen(&["--grace", "2s"], keeper, &names);
    sys::kill(kept[0], libc::SIGUSR1).unwrap();
    run.log.wait("keeper", "became");
    assert_eq!(only_left(&mut run, &kept), Some(137));
    // The shim as well: it knows what the monitor has seen.
    let (mut run, kept) = seen(&["--grace", "20s"], keeper, &names);
    sys::kill(kept[0], libc::SIGUSR1).unwrap();
    run.log.wait("keeper", "became");
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    sys::kill(run.log.ready("server"), libc::SIGKILL).unwrap();
    sys::kill(run.log.ready("worker"), libc::SIGKILL).unwrap();
    assert_eq!(only_left(&mut run, &kept), Some(137));
}

#[test]
fn what_a_daemon_has_started_outlives_it_if_it_ends_during_the_stop() {
    let keeper = KEEPER.replacen("setsid", "daemon:setsid", 1);
    let (mut run, kept) = seen(&["--grace", "8s"], &keeper, &KEPT);
    sys::kill(kept[0], libc::SIGKILL).unwrap();
    assert_eq!(only_left(&mut run, &kept[1..]), Some(137));
    assert!(run.stderr().contains("2 processes"), "{}", run.stderr());
}

#[test]
fn a_daemon_that_has_ended_before_the_stop_spares_nothing() {
    let keeper = KEEPER.replacen("setsid", "daemon:setsid", 1);
    let tree = format!("server:on=TERM/3[{keeper}]");
    let mut run = treaper(&["--spare", "keeper", "--grace", "2s"], &tree, &["server"]);
    let kept = pids(&mut run, &KEPT);
    sys::kill(kept[0], libc::SIGKILL).unwrap();
    until("its children have another parent", || {
        Process::read(kept[1]).unwrap().ppid != kept[0]
    });
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn it_stays_suspended_and_a_traced_one_stays_traced() {
    let mut run = treaper(
        &["--spare", "keeper"],
        &format!("server[{KEEPER}]"),
        &["server"],
    );
    let kept = pids(&mut run, &KEPT);
    sys::kill(kept[0], libc::SIGSTOP).unwrap();
    until_state(&kept[..1], 'T');
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept), Some(143));
    until_state(&kept[..1], 'T');

    let mut run = treaper(
        &["--spare", "keeper"],
        &format!("server[{KEEPER}]"),
        &["server"],
    );
    let kept = pids(&mut run, &KEPT);
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &kept[0].to_string()]);
    common::held(&mut tracer);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept), Some(143));
    // On a busy machine it may have begun to stop only.
    until_state(&kept[..1], 't');
}

#[test]
fn a_daemon_that_adopts_gets_only_what_it_has_started() {
    let keeper = "keeper:setsid:adopts:record[leaf:daemon:setsid:record]";
    let tree = format!("server:adopts[worker[orphan:daemon:on=TERM/0],{keeper}]");
    let mut run = treaper(
        &["--spare", "keeper"],
        &tree,
        &["server", "worker", "orphan"],
    );
    let kept = pids(&mut run, &["keeper", "leaf"]);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept), Some(143));
    assert_eq!(Process::read(kept[1]).unwrap().ppid, kept[0]);
    assert_eq!(run.log.all("orphan", "leaving").len(), 1);
}

#[test]
fn until_tree_waits_for_all_others_and_not_for_it() {
    let tree = format!("server:on=USR1/4[worker:setsid:on=USR1/0,{KEEPER}]");
    let options = ["--until", "tree", "--spare", "keeper"];
    let mut run = treaper(&options, &tree, &["server", "worker"]);
    let kept = pids(&mut run, &KEPT);
    sys::kill(run.log.ready("server"), libc::SIGUSR1).unwrap();
    assert!(!run.ends_within(Duration::from_millis(300)));
    sys::kill(run.log.ready("worker"), libc::SIGUSR1).unwrap();
    assert_eq!(only_left(&mut run, &kept), Some(4));
    assert_eq!(run.stderr(), line_about(kept[0]));
}

#[test]
fn until_tree_ends_when_the_last_process_becomes_a_daemon() {
    let tree = "server:on=USR1/4[late:becomes=keeper]";
    let mut run = treaper(&["--until", "tree", "--spare", "keeper"], tree, &["server"]);
    let (late, server) = (run.log.ready("late"), run.log.ready("server"));
    sys::kill(server, libc::SIGUSR1).unwrap();
    assert!(!run.ends_within(Duration::from_millis(300)));
    gone(server);
    // It looks again and again, with pauses.
    until_it_pauses(run.monitor());
    // No process ends by this, so no signal reports it.
    sys::kill(late, libc::SIGUSR1).unwrap();
    assert_eq!(only_left(&mut run, &[late]), Some(4));
}

#[test]
fn a_signal_for_the_tree_does_not_reach_it() {
    let tree = format!("server:record[worker:setsid:record,{KEEPER}]");
    let options = [
        "--forward-to",
        "tree",
        "--spare",
        "keeper",
        "--grace",
        "200ms",
    ];
    let mut run = treaper(&options, &tree, &["server", "worker"]);
    let kept = pids(&mut run, &KEPT);
    run.signal(libc::SIGUSR2);
    run.log.wait("worker", "signal");
    run.signal(libc::SIGTERM);
    only_left(&mut run, &kept);
    for name in KEPT {
        assert!(run.received(name).is_empty(), "{:#?}", run.log.lines);
    }
}

#[test]
fn the_other_one_of_the_pair_spares_it_when_one_is_killed_at_any_instant() {
    let rounds = std::env::var("KILL_ROUNDS").map_or(60, |text| text.parse().unwrap());
    let mut random = Rng::new(seed("KILL_SEED"));
    let tree =
        format!("server:ignore=TERM[worker:setsid:ignore=TERM,{KEEPER},deep:daemon:ignore=TERM]");
    for round in 0..rounds {
        let options = ["--spare", "keeper", "--grace", "10ms"];
        let mut run = treaper(&options, &tree, &["server", "worker"]);
        run.log.wait_for(2, "deep", "ready");
        let keeper = run.log.ready("keeper");
        let below = |p: &Process| p.pid == keeper || p.sid == keeper || p.comm == "pane";
        let mut kept = pids(&mut run, &["keeper", "helper", "pane"]);
        let pane = kept[2];
        kept.extend(
            run.named("deep")
                .iter()
                .filter(|p| p.sid == pane)
                .map(|p| p.pid),
        );
        assert!(kept.len() == 4 && run.survivors().iter().filter(|p| below(p)).count() == 3);
        let victim = if round % 2 == 0 {
            run.main
        } else {
            run.monitor()
        };
        let time = random.below(20_000);
        // In every third round, the kill is the reason to stop.
        if round % 3 > 0 {
            run.signal(libc::SIGTERM);
            sys::pause_for(Duration::from_micros(time));
        }
        // If the monitor is gone before, treaper has ended and the number is not that of another process yet.
        let _ = sys::kill(victim, libc::SIGKILL);
        run.wait();
        soon_only_left(&run, &kept);
    }
}

#[test]
fn a_bomb_beside_it_is_ended() {
    for bomb in ["bomb=200", "bomb=200:spread", "bomb=200:daemon"] {
        let tree = format!("server:ignore=TERM[a:{bomb},{KEEPER},b:chain=0]");
        let options = ["--spare", "keeper", "--grace", "150ms"];
        let mut run = treaper(&options, &tree, &["server", "a", "b"]);
        let kept = pids(&mut run, &KEPT);
        run.signal(libc::SIGTERM);
        assert_eq!(only_left(&mut run, &kept), Some(137), "{bomb}");
    }
}

/// A stop that is held in its first round of SIGKILL: `victim` has got it, and the others have not. In that moment,
/// `starter` has started these children.
fn started_in_a_kill_round(children: &str, names: &[&str]) -> (Run, Vec<i32>) {
    let tree = format!(
        "server:on=TERM/3[worker:setsid:record,starter:setsid:ignore=TERM:late[{children}],\
         next:setsid:ignore=TERM,victim:setsid:ignore=TERM]"
    );
    let options = ["--spare", "keeper", "--grace", "60s"];
    let ready = ["server", "worker", "next"];
    let mut run = treaper(&options, &tree, &ready);
    let [starter, victim] = ["starter", "victim"].map(|name| run.log.ready(name));
    run.signal(libc::SIGTERM);
    // The oldest child is visited last, and this is the second signal that it gets.
    run.log.wait_for(2, "worker", "signal");
    let (monitor, call) = (run.monitor().to_string(), libc::SYS_kill.to_string());
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &monitor, &call, "2"]);
    until("a tracer", || {
        common::proc::status(run.monitor(), "TracerPid").is_some_and(|by| by != "0")
    });
    // Without the shim, SIGKILL is due after 2 s.
    run.signal(libc::SIGKILL);
    common::held(&mut tracer);
    until_state(&[victim], 'Z');
    sys::kill(starter, libc::SIGUSR1).unwrap();
    let pids = pids(&mut run, names);
    (run, pids)
}

#[test]
fn a_daemon_that_was_started_between_the_kills_is_spared() {
    for how in ["daemon", "daemon:setsid"] {
        let children =
            format!("keeper:{how}:record[helper:record],other:{how}:record[below:record]");
        let names = ["keeper", "helper", "other", "below"];
        let (mut run, kept) = started_in_a_kill_round(&children, &names);
        soon_only_left(&run, &kept[..2]);
        until("a line", || run.stderr().contains(&line_about(kept[0])));
        assert!(run.received("keeper").is_empty(), "{:#?}", run.log.lines);
    }
}

#[test]
fn a_name_alone_spares_no_process_that_was_started_between_the_kills() {
    for children in [
        "keeper:record",
        "keeper:pgrp:record",
        "lead:setsid:record[keeper:record]",
    ] {
        let (mut run, _) = started_in_a_kill_round(children, &["keeper"]);
        soon_only_left(&run, &[]);
        assert!(!run.stderr().contains("--spare"), "{}", run.stderr());
    }
}

#[test]
fn a_process_that_becomes_a_daemon_after_the_stop_signal_gets_no_sigkill() {
    let tree = "server:ignore=TERM[worker:record,late:becomes=keeper:record,other:record]";
    let options = ["--spare", "keeper", "-k", "tree", "--grace", "60s"];
    let mut run = treaper(&options, tree, &["server", "worker", "other"]);
    let late = run.log.ready("late");
    run.signal(libc::SIGTERM);
    run.log.wait_for(2, "worker", "signal");
    sys::kill(late, libc::SIGUSR1).unwrap();
    run.log.wait("late", "became");
    run.signal(libc::SIGKILL);
    soon_only_left(&run, &[late]);
    let signals = [libc::SIGUSR1, libc::SIGTERM, libc::SIGCONT];
    assert_eq!(sorted(run.received("late")), signals);
}

/// A treaper that looks at its tree at each SIGUSR2, and a process `starter` that starts `children` at SIGUSR1.
fn looking(options: &[&str], server: &str, others: &str, children: &str) -> Run {
    let tree = format!(
        "server:{server}[worker:setsid:record,\
         starter:setsid:ignore=TERM+CHLD+USR2:late[{children}]{others}]"
    );
    let options = [&["--spare", "keeper", "--forward-to", "tree"][..], options].concat();
    treaper(&options, &tree, &["server", "worker", "starter"])
}

/// treaper looks at each process. The worker, as the oldest child, comes last.
fn look(run: &mut Run, count: usize) {
    run.signal(libc::SIGUSR2);
    run.log.wait_for(count, "worker", "signal");
}

/// `name` gets the number of a process that has ended.
fn reuse(run: &mut Run, number: i32, name: &str) {
    gone(number);
    // Processes are distinguished by the time at which they were started, in hundredths of a second.
    let now = sys::now_ms();
    until("the next hundredth", || sys::now_ms() > now + 20);
    let (before, starter) = (run.log.all(name, "ready").len(), run.log.ready("starter"));
    number_next(number);
    sys::kill(starter, libc::SIGUSR1).unwrap();
    let ready = run.log.wait_for(before + 1, name, "ready");
    assert_eq!(ready[before].pid(), number);
}

/// Plays a scene in which numbers of processes are chosen.
fn play_with_numbers(scene: &str) {
    if sys::is_root() {
        play(scene);
    } else {
        skip("only root can set the next process number");
    }
}

#[test]
fn a_new_session_with_the_number_of_a_known_daemon_is_not_that_daemon() {
    play_with_numbers("scene_number_of_a_daemon");
}

#[test]
#[ignore = "a scene"]
fn scene_number_of_a_daemon() {
    let daemon = ",keeper:daemon:setsid:record";
    for (new, kept) in [("new:setsid", 0), ("keeper:setsid", 1)] {
        let child = format!("{new}:record");
        let mut run = looking(&["--grace", "2s"], "record:on=TERM/3", daemon, &child);
        let keeper = run.log.ready("keeper");
        look(&mut run, 1);
        sys::kill(keeper, libc::SIGKILL).unwrap();
        reuse(&mut run, keeper, new.split(':').next().unwrap());
        run.signal(libc::SIGTERM);
        assert_eq!(only_left(&mut run, &[keeper][..kept]), Some(3), "{new}");
    }
    // The new session was seen, and then loses its leader.
    let child = "new:setsid:record[leaf:record]";
    let mut run = looking(&["--grace", "2s"], "record:on=TERM/3", daemon, child);
    let keeper = run.log.ready("keeper");
    look(&mut run, 1);
    sys::kill(keeper, libc::SIGKILL).unwrap();
    reuse(&mut run, keeper, "new");
    look(&mut run, 2);
    run.log.ready("leaf");
    sys::kill(keeper, libc::SIGKILL).unwrap();
    gone(keeper);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &[]), Some(3));
}

#[test]
fn a_daemon_with_the_number_of_a_process_that_was_stopped_is_spared() {
    play_with_numbers("scene_number_of_a_stopped_process");
}

#[test]
#[ignore = "a scene"]
fn scene_number_of_a_stopped_process() {
    let children = "keeper:setsid:record[helper:record],other:setsid:record";
    let old = ",old:daemon:setsid:on=TERM/0";
    let mut run = looking(&["--grace", "60s"], "on=TERM/3", old, children);
    let old = run.log.ready("old");
    run.signal(libc::SIGTERM);
    run.log.wait_for(2, "worker", "signal");
    reuse(&mut run, old, "keeper");
    let kept = pids(&mut run, &["keeper", "helper", "other"]);
    run.signal(libc::SIGKILL);
    soon_only_left(&run, &kept[..2]);
}

#[test]
fn a_daemon_with_the_number_of_the_server_is_spared() {
    play_with_numbers("scene_number_of_the_server");
}

#[test]
#[ignore = "a scene"]
fn scene_number_of_the_server() {
    let children = "keeper:setsid:record[helper:record],other:setsid:record";
    let options = ["--grace", "200ms", "--until", "tree"];
    let mut run = looking(&options, "on=USR1/4", "", children);
    let server = run.log.ready("server");
    sys::kill(server, libc::SIGUSR1).unwrap();
    reuse(&mut run, server, "keeper");
    let kept = pids(&mut run, &["keeper", "helper", "other"]);
    run.signal(libc::SIGTERM);
    assert_eq!(only_left(&mut run, &kept[..2]), Some(4));
}

/// Runs treaper with these arguments as a process of its own. Returns its exit status and standard error.
fn refused(mut command: Command) -> (Option<i32>, String) {
    let out = command.output().unwrap();
    assert!(out.stdout.is_empty(), "the server was started");
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn where_nothing_can_be_spared_the_option_is_an_error_before_the_start() {
    let source = "--spare or TREAPER_SPARE: ";
    for level in ["--contain=cgroup", "--contain=pidns"] {
        let mut command = Command::new(TREAPER);
        command.args([level, "--spare", "keeper", "echo", "started"]);
        let text = format!("treaper: {source}only possible with --contain=group\n");
        assert_eq!(refused(command), (Some(125), text));
    }
    for wrong in ["", "/usr/bin/tmux"] {
        let mut command = Command::new(TREAPER);
        command.args(["--spare", wrong, "echo", "started"]);
        let text = "expected the name of a command, without its path";
        let text = format!("treaper: --spare: invalid value '{wrong}': {text}\n");
        assert_eq!(refused(command), (Some(125), text));
    }
    let tree = Wrap::Treaper(&["--spare", "keeper"]).command(&["echo", "started"]);
    if !sys::is_root() {
        return skip("only root can make a PID namespace with a /proc of its own");
    }
    let mut run = Scene::new().pidns().start(&tree);
    assert_eq!(run.wait_clean().code(), Some(125));
    let text = format!("treaper: {source}not possible as PID 1, whose exit kills all\n");
    assert_eq!((run.stdout(), run.stderr()), (String::new(), text));
}

/// A real daemon that `script` starts, and whose pid it writes into the file `pid` of the directory.
fn real(program: &str, spared: &str, script: &str) {
    if !Path::new("/usr/bin").join(program).exists() {
        return skip(&format!("{program} is not installed"));
    }
    for spares in [true, false] {
        let scene = Scene::new();
        let directory = scene.directory().to_owned();
        let scene = scene.with(|command| {
            command
                .current_dir(&directory)
                .env("TMUX_TMPDIR", &directory)
                // That of a builder's user is often nologin, and the pane would end at once.
                .env("SHELL", "/bin/sh");
            command
                .env_remove("TMUX")
                .env_remove("SSH_AUTH_SOCK")
                .env("TMPDIR", &directory);
        });
        let name = if spares { spared } else { "another" };
        let script = format!("{script}; sleep 100 & exit 3");
        let wrap = Wrap::Treaper(&["--spare", name]).command(&["sh", "-c", &script]);
        let mut run = scene.start(&wrap);
        if !spares {
            assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
            continue;
        }
        assert_eq!(run.wait().code(), Some(3), "{}", run.stderr());
        let text = std::fs::read_to_string(directory.join("pid")).unwrap();
        let pid = text.trim().parse().unwrap();
        let daemon = run
            .survivors()
            .into_iter()
            .find(|process| process.pid == pid);
        let daemon = daemon.unwrap_or_else(|| panic!("{program}: {}", run.stderr()));
        assert_eq!((daemon.ppid, daemon.sid), (run.arena(), pid));
        assert!(daemon.comm.starts_with(spared), "{daemon:?}");
        assert!(run.named("sleep").iter().all(|sleep| sleep.ppid == pid));
    }
}

#[test]
fn a_real_tmux_server_lives_on_with_its_panes() {
    let start = "tmux -f /dev/null new-session -d 'exec sleep 1000'";
    real(
        "tmux",
        "tmux",
        &format!("{start} && tmux display -p '#{{pid}}' >pid"),
    );
}

#[test]
fn a_real_ssh_agent_lives_on() {
    real(
        "ssh-agent",
        "ssh-agent",
        "eval $(ssh-agent) && echo $SSH_AGENT_PID >pid",
    );
}
