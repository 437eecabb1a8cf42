//! The groups of `--contain=cgroup`: each start has a name of its own, and no group is left, however deep they are
//! nested. Where no group can be made, the message has the cause. The tree of a treaper knows what is in its group.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use common::place::{self, Place};
use common::scene::Directory;
use common::{ACTOR, Scene, TREAPER, Wrap, proc, skip, sys, until};
use treaper::contain::Containment;
use treaper::contain::cgroup::{self, Cgroup};
use treaper::tree::Tree;

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

/// Runs treaper in the group `place`, where it cannot make a group: returns its message. `before` is put in front of it.
fn refused(place: &Place, scene: Scene, before: &[&str]) -> String {
    let words = [before, &[TREAPER, "--contain=cgroup", "true"]].concat();
    let mut run = scene.start(&words);
    let (code, printed) = (run.wait_clean().code(), run.stderr());
    assert_eq!(code, Some(125), "{before:?}: {printed}");
    assert_eq!(printed.lines().count(), 1, "{before:?}: {printed}");
    assert!(place.groups().is_empty(), "{before:?}: {printed}");
    printed
}

/// It is no error that another name would avoid.
#[test]
fn a_user_that_may_move_processes_and_make_no_group_gets_the_reason() {
    let Some(place) = Place::new().filter(|_| sys::is_root()) else {
        return skip("no cgroup v2 that this user may change");
    };
    std::os::unix::fs::chown(place.0.join("cgroup.procs"), Some(USER), Some(USER)).unwrap();
    let printed = refused(&place, place.scene().uid(USER), &[]);
    for word in ["Permission denied", "Delegate=yes"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
}

/// mkdir fails with EAGAIN there, as a lock does that is taken. No other name would help.
#[test]
fn at_a_limit_of_groups_the_reason_is_the_limit() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    std::fs::write(place.0.join("cgroup.max.descendants"), "0").unwrap();
    let printed = refused(&place, place.scene(), &[]);
    assert!(printed.contains("cgroup.max.descendants"), "{printed}");
}

#[test]
fn a_group_that_cannot_be_locked_is_removed() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let before = [ACTOR, "faults", "flock=ENOMEM", "--"];
    let printed = refused(&place, place.scene(), &before);
    let no_memory = common::describe(libc::ENOMEM);
    assert!(printed.contains(&no_memory), "{printed}");
}

#[test]
fn where_the_groups_are_mounted_read_only_the_remedy_is_another_mount() {
    let Some(place) = Place::new().filter(|_| sys::is_root()) else {
        return skip("no cgroup v2 that this user may change");
    };
    let mount = place::mount_point().unwrap();
    let script = "mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", script, mount.to_str().unwrap()];
    let printed = refused(&place, place.scene(), &before);
    assert!(printed.contains("mount it writable"), "{printed}");
}

#[test]
fn a_line_of_mountinfo_that_is_cut_off_is_no_mount() {
    for line in [
        "- cgroup2",
        "30 23 - cgroup2",
        "30 23 0:26 / /sys/fs/cgroup -",
    ] {
        let error = cgroup::find(line.as_bytes(), b"0::/\n").unwrap_err();
        assert!(
            error.contains("no cgroup v2 file system"),
            "{line}: {error}"
        );
    }
}

/// Ends with the test, also if the test fails.
struct Member(Child);

impl Member {
    fn start(group: &Cgroup) -> Member {
        let mut command = Command::new("cat");
        let member = Member(command.stdin(Stdio::piped()).spawn().unwrap());
        enter(group, &member);
        member
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of a file of the group.
fn file_of(group: &Cgroup, name: &str) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}/{name}", group.dir.as_raw_fd())
}

fn enter(group: &Cgroup, member: &Member) {
    std::fs::write(file_of(group, "cgroup.procs"), member.pid().to_string()).unwrap();
}

#[test]
fn a_tree_knows_the_members_of_its_group_and_none_beside_it() {
    let Ok(group) = Cgroup::make() else {
        return skip("no cgroup v2 that this user may change");
    };
    let Ok(other) = Cgroup::make() else {
        return skip("no cgroup v2 that this user may change");
    };
    let beside = Member::start(&other);
    let tree = Tree::new(None, Vec::new(), Containment::Cgroup(group));
    let group = tree.cgroup().unwrap();
    let members = || {
        let mut pids = Vec::new();
        group.members(&mut |pid| pids.push(pid.get()));
        pids
    };
    assert_eq!(group.is_populated(), Ok(false));
    assert_eq!(members(), [0; 0]);
    let mut inside = Member::start(group);
    assert_eq!(group.is_populated(), Ok(true));
    assert_eq!(members(), [inside.pid()]);
    group.kill();
    assert_eq!(inside.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    until("an empty group", || group.is_populated() == Ok(false));
    assert!(!matches!(proc::state(beside.pid()), 'Z' | 'X'));
}

/// The first one gets it by a call for its process group, the second one by the walk.
#[test]
fn a_member_that_is_a_descendant_gets_the_stop_signal_once() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let wrap = Wrap::Treaper(&["--contain=cgroup", "--grace=1h"]);
    let tree = "server:on=TERM/0[near:record,far:setsid:record]";
    let names = ["server", "near", "far"];
    let mut run = place.scene().start(&wrap.tree(tree)).ready(&names);
    let pids = ["near", "far"].map(|name| run.log.ready(name));
    run.signal(libc::SIGTERM);
    for name in ["near", "far"] {
        run.log.wait(name, "signal");
    }
    // Time for a second one.
    assert!(!run.ends_within(std::time::Duration::from_millis(300)));
    for pid in pids {
        sys::kill(pid, libc::SIGKILL).unwrap();
    }
    run.wait_clean();
    for name in ["near", "far"] {
        let signals = run.log.all(name, "signal");
        let stops = signals.iter().filter(|line| line.number("sig") == 15);
        assert_eq!(stops.count(), 1, "{name}: {}", run.stderr());
    }
}

/// The kernel counts it only where the memory controller is on. So the file is also read where the test has written it.
#[test]
fn the_most_memory_of_a_tree_is_what_the_kernel_has_counted() {
    let Ok(mut group) = Cgroup::make() else {
        return skip("no cgroup v2 that this user may change");
    };
    let member = Member::start(&group);
    let is_counted = std::fs::exists(file_of(&group, "memory.peak")).unwrap();
    assert_eq!(group.memory_peak().is_some(), is_counted);
    assert!(group.memory_peak().is_none_or(|bytes| bytes > 4096));
    drop(member);
    let directory = Directory::new();
    std::fs::write(directory.0.join("memory.peak"), "41943040\n").unwrap();
    group.dir = std::fs::File::open(&directory.0).unwrap().into();
    let tree = Tree::new(None, Vec::new(), Containment::Cgroup(group));
    assert_eq!(tree.cgroup().and_then(Cgroup::memory_peak), Some(40 << 20));
    let tree = Tree::new(None, Vec::new(), Containment::Group);
    assert_eq!(tree.cgroup().and_then(Cgroup::memory_peak), None);
}
