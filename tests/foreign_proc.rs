//! A `/proc` of another PID namespace: `unshare -pf` without `--mount-proc`, bwrap without `--proc`. Every number in it
//! is that of another process, so nothing may be read there by pid.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::io::Write;
use std::process::Command;

use common::proc::{self, Process};
use common::{ACTOR, Run, Scene, TREAPER, skip, sys, until};

const USER: u32 = 65534;
/// PID 1 of the namespace is the shell, so treaper is a pair.
const BELOW_A_SHELL: &str = "\"$@\"; exit $?";
/// This treaper has a child from before its exec.
const WITH_A_HELPER: &str = "sleep 1000 & exec \"$@\"";

/// The command before the shell, and the user who runs it.
type Where = (&'static [&'static str], fn(Scene) -> Scene);

const ROOT: Where = (&["unshare", "-pf"], |scene| scene);
const A_USER: Where = (&["unshare", "-Urpf"], |scene| scene.uid(USER));
const BWRAP: Where = (&["bwrap", "--dev-bind", "/", "/", "--unshare-pid"], |s| s);
const BWRAP_AS_A_USER: Where = (
    &["bwrap", "--dev-bind", "/", "/", "--unshare-pid"],
    |scene| scene.uid(USER),
);

/// Without root, the tests have the uid of the scene.
const ALREADY_A_USER: Where = (A_USER.0, |scene| scene);

/// Those that can be used here.
fn places() -> Vec<Where> {
    let mut places = if sys::is_root() {
        vec![ROOT, A_USER, BWRAP, BWRAP_AS_A_USER]
    } else {
        vec![ALREADY_A_USER, BWRAP]
    };
    places.retain(|(before, who)| {
        if Command::new(before[0]).arg("--version").output().is_err() {
            return false;
        }
        let words = [before, &["true"][..]].concat();
        who(Scene::new()).start(&words).wait_empty().code() == Some(0)
    });
    if places.is_empty() {
        skip("no PID namespace without a /proc of its own");
    }
    places
}

fn start(scene: Scene, place: Where, script: &str, options: &[&str], tree: &str) -> Run {
    let shell = ["sh", "-c", script, "sh", TREAPER];
    let words = [place.0, &shell, options, &["--", ACTOR, "tree", tree]].concat();
    place.1(scene).start(&words).ready(&["server"])
}

/// The shim, below the shell.
fn signal_shim(run: &Run, signal: i32) {
    sys::kill(run.shim(), signal).unwrap();
}

#[test]
fn control_proc_is_foreign_in_these_places() {
    for place in places() {
        let words = [place.0, &[TREAPER, "--doctor=json"]].concat();
        let mut run = place.1(Scene::new()).start(&words);
        run.wait_empty();
        let report: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
        assert_eq!(report["checks"]["/proc"]["ok"], false, "{place:?}");
    }
}

#[test]
fn a_child_from_before_does_not_make_the_tree_look_empty() {
    for place in places() {
        for options in [&["--no-guard"][..], &[]] {
            let mut run = start(
                Scene::new(),
                place,
                WITH_A_HELPER,
                options,
                "server[a:exit=0]",
            );
            run.log.ready("a");
            // After it was reaped, treaper has looked for children that are not of the tree.
            until("a reaped child", || run.named("a").is_empty());
            assert!(
                !run.ends_within(std::time::Duration::from_millis(200)),
                "{place:?} {options:?}: {}",
                run.stderr()
            );
            signal_shim(&run, libc::SIGTERM);
            assert_eq!(run.wait().code(), Some(143), "{place:?} {options:?}");
            // The helper is not of the tree. It ends with the first process of its namespace, but that of bwrap stays.
            if place.0[0] == "bwrap" {
                assert_eq!(run.named("sleep").len(), 1, "{place:?} {options:?}");
            }
        }
    }
}

#[test]
fn a_suspended_server_is_resumed_to_see_the_stop_signal() {
    for place in places() {
        for options in [&["--no-guard"][..], &[]] {
            let tree = "server:stopped:on=TERM/7";
            let mut run = start(Scene::new(), place, BELOW_A_SHELL, options, tree);
            until("a suspended server", || {
                run.named("server").iter().any(|p| p.state == 'T')
            });
            signal_shim(&run, libc::SIGTERM);
            assert_eq!(
                run.wait_empty().code(),
                Some(7),
                "{place:?} {options:?}: {}",
                run.stderr()
            );
        }
    }
}

#[test]
fn no_stranger_is_named_as_a_victim_or_as_a_survivor() {
    for place in places() {
        let options = ["--grace=100ms", "--kill-timeout=100s"];
        let tree = "server:ignore=TERM[a:ignore=TERM,b:daemon:ignore=TERM]";
        let mut run = start(Scene::new(), place, BELOW_A_SHELL, &options, tree);
        run.log.ready("b");
        signal_shim(&run, libc::SIGTERM);
        assert_eq!(run.wait_empty().code(), Some(137), "{place:?}");
        let printed = run.stderr();
        // The number is known, but not the name.
        assert!(printed.contains("(?["), "{place:?}: {printed}");
    }
}

#[test]
fn a_key_suspends_the_whole_job_and_it_goes_on() {
    for place in places() {
        let (scene, master) = Scene::new().terminal();
        let mut run = start(scene, place, BELOW_A_SHELL, &[], "server:on=TERM/7");
        let (shim, server) = (run.shim(), run.named("server")[0].pid);
        let states = |wanted| proc::state(shim) == wanted && proc::state(server) == wanted;
        File::from(master.try_clone().unwrap())
            .write_all(&[26])
            .unwrap();
        until("a suspended job", || states('T'));
        let group = Process::read(shim).unwrap().pgid;
        sys::kill_group(group, libc::SIGCONT).unwrap();
        until("a resumed job", || states('S'));
        signal_shim(&run, libc::SIGTERM);
        assert_eq!(run.wait_empty().code(), Some(7), "{place:?}");
    }
}

/// What is done shortly after a start needs no process but treaper's own.
#[test]
fn a_run_without_a_stop_is_not_delayed_by_a_search_and_says_nothing() {
    for place in places() {
        let script = ["sh", "-c", BELOW_A_SHELL, "sh", TREAPER, "sleep", "0.1"];
        let mut run = place.1(Scene::new()).start(&[place.0, &script].concat());
        assert_eq!(run.wait_empty().code(), Some(0), "{:?}", place.0);
        assert_eq!(run.stderr(), "", "{:?}", place.0);
    }
}
