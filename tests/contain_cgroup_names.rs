//! The groups of `--contain=cgroup`: each start has a name of its own, and no group is left, however deep they are
//! nested.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::place::{self, Place};
use common::{ACTOR, Scene, TREAPER, Wrap, skip, sys};

const USER: u32 = 65534;

fn have(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("-V").output();
    if found.is_err() {
        skip(&format!("needs {program}"));
    }
    found.is_ok()
}

/// As PID 1 of a namespace of its own, two instances that start in the same tick have the same pid and start time.
#[test]
fn starts_with_the_same_number_in_the_same_tick_share_a_parent_group() {
    let Some(place) = Place::new().filter(|_| have("unshare")) else {
        return skip("no cgroup v2 that this user may change");
    };
    let script = "pair() { unshare -pf --mount-proc \"$@\" & a=$!; unshare -pf --mount-proc \"$@\" & b=$!
                  wait $a || echo failed; wait $b || echo failed; }
                  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do pair \"$@\"; done";
    let words = [
        "sh",
        "-c",
        script,
        "sh",
        TREAPER,
        "--contain=cgroup",
        "true",
    ];
    let mut run = place.scene().start(&words);
    run.wait_empty();
    assert_eq!((run.stdout(), run.stderr()), Default::default());
    assert!(place.groups().is_empty());
}

/// What another treaper can do at the wrong moment: it has the name, or its sweep has locked the new group.
#[test]
fn a_name_that_is_taken_or_swept_away_is_followed_by_the_next_one() {
    let Some(place) = Place::new().filter(|_| have("strace")) else {
        return skip("no cgroup v2 that this user may change");
    };
    for rule in [
        "inject=mkdirat:error=EEXIST:when=1",
        "inject=mkdir:error=EEXIST:when=1",
        "inject=flock:error=EAGAIN:when=1",
    ] {
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", rule];
        let words = [&strace[..], &[TREAPER, "--contain=cgroup", "true"]].concat();
        let mut run = place.scene().start(&words);
        let code = run.wait_clean().code();
        assert_eq!(code, Some(0), "{rule}: {}", run.stderr());
        // The group that this start could not lock is removed by its own sweep. The other treaper's sweep would have
        // done that.
        let mut next = place.scene().start(&[TREAPER, "--contain=cgroup", "true"]);
        next.wait_clean();
        assert!(place.groups().is_empty(), "{rule}");
    }
}

const DEEP: usize = 1200;

fn deep_groups(place: &Place, options: &[&str], limits: &str) -> String {
    let mount = place::mount_point().unwrap();
    let tree = format!("server:deep={DEEP}:nest={}:exit=0", mount.display());
    let script = format!("{limits}; exec \"$@\"");
    let mut words = vec!["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()];
    words.extend(match options {
        [] => Wrap::Bare.tree(&tree),
        options => Wrap::Treaper(options).tree(&tree),
    });
    let mut run = place
        .scene()
        .uid(if sys::is_root() { USER } else { 0 })
        .start(&words);
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    run.stderr()
}

#[test]
fn groups_nested_deeper_than_descriptors_and_stack_reach_are_removed() {
    let Some(place) = Place::delegated(USER) else {
        return skip("no cgroup v2 that this user may change");
    };
    for options in [
        &["--contain=cgroup"][..],
        &["--contain=cgroup", "--no-guard"],
    ] {
        for limits in ["ulimit -n 64", "ulimit -s 128"] {
            let printed = deep_groups(&place, options, limits);
            assert_eq!(printed, "", "{options:?} {limits}");
            assert!(place.groups().is_empty(), "{options:?} {limits}");
        }
    }
}

#[test]
fn control_bare_the_groups_stay() {
    let Some(place) = Place::delegated(USER) else {
        return skip("no cgroup v2 that this user may change");
    };
    deep_groups(&place, &[], "ulimit -n 64");
    assert!(!place.groups().is_empty());
}

#[test]
fn an_old_group_with_members_deep_below_it_is_kept() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    // Its name is that of an instance that has ended: no process has this pid and start time.
    let deep = place.make("treaper-2-1-0/a/b/c");
    let words = [ACTOR, "tree", &format!("member:enter={}", deep.display())];
    let mut member = Scene::new().start(&words);
    member.log.ready("member");
    let mut next = place.scene().start(&[TREAPER, "--contain=cgroup", "true"]);
    assert_eq!(next.wait_clean().code(), Some(0));
    assert!(deep.exists() && !member.survivors().is_empty());
    drop(member);
    let mut next = place.scene().start(&[TREAPER, "--contain=cgroup", "true"]);
    assert_eq!(next.wait_clean().code(), Some(0));
    assert!(place.groups().is_empty());
}
