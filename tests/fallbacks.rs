//! A kernel that lacks a feature, a `/proc` that is missing or hides processes: still no process survives, and a
//! message says what is weaker.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::process::Command;

use common::place::{self, Place};
use common::scene::Directory;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, special, sys};

const STUBBORN: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:stopped:ignore=TERM[d],\
                        c:chain=2]";
const NAMES: &[&str] = &["server", "a", "b", "c", "d"];
/// As another user, where `/proc` hides the processes of all others.
const HIDE: [&str; 6] = [
    "unshare",
    "-m",
    "sh",
    "-c",
    "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"",
    "sh",
];
const OPTIONS: &[&str] = &["-v", "--drain=100ms", "--grace=200ms", "--kill-timeout=60s"];

fn start(scene: Scene, before: &[&str], level: &str) -> Run {
    let options = [OPTIONS, &[level]].concat();
    let mut command: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
    command.extend(Wrap::Treaper(&options).tree(STUBBORN));
    scene.start(&command).ready(NAMES)
}

fn faults<'a>(rules: &[&'a str]) -> Vec<&'a str> {
    [&[ACTOR, "faults"], rules, &["--"]].concat()
}

/// Stops the scene by a signal, by the end of the shim, and by that of the monitor. Returns the messages of all three.
fn nothing_survives(scene: impl Fn() -> Scene, before: &[&str], level: &str) -> String {
    let mut printed = String::new();
    for (reason, signal) in [
        ("signal", libc::SIGTERM),
        ("shim", libc::SIGKILL),
        ("monitor", libc::SIGKILL),
    ] {
        let mut run = start(scene(), before, level);
        let pid = if reason == "monitor" {
            run.monitor()
        } else {
            run.main
        };
        sys::kill(pid, signal).unwrap();
        // No process of it exits by itself.
        run.wait_empty();
        if reason != "shim" {
            let exit = run.wait();
            // The helper that refuses paths outlives the tree.
            let helper = before.iter().any(|word| word.starts_with("open~"));
            assert!(
                helper || exit.left.is_empty(),
                "{before:?} {level} {reason}: {exit:?}"
            );
            assert_eq!(
                exit.code(),
                Some(137),
                "{before:?} {level}: {}",
                run.stderr()
            );
        }
        printed += &run.stderr();
    }
    printed
}

#[test]
fn without_newer_calls_nothing_survives() {
    for rules in [
        &["pidfd_open=ENOSYS"][..],
        &["pidfd_send_signal=ENOSYS"],
        &["ioctl=ENOTTY"],
        &["clone3=ENOSYS"],
        &[
            "pidfd_open=ENOSYS",
            "pidfd_send_signal=ENOSYS",
            "clone3=ENOSYS",
            "ioctl=ENOTTY",
        ],
        &[
            "pidfd_open=EPERM",
            "pidfd_send_signal=EPERM",
            "clone3=EPERM",
        ],
    ] {
        for level in ["--contain=group", "--contain=pidns"] {
            nothing_survives(Scene::new, &faults(rules), level);
        }
    }
}

#[test]
fn without_lists_of_children_nothing_survives_and_a_message_says_so() {
    let printed = nothing_survives(
        Scene::new,
        &faults(&["open~/children=ENOENT"]),
        "--contain=group",
    );
    assert!(printed.contains("scanning all processes"), "{printed}");
}

/// Without it, a descriptor shows the controlling terminal: then treaper ends by the signal that has ended its server.
#[test]
fn without_dev_tty_only_a_real_terminal_counts() {
    let ended = |scene: Scene, rules: &[&str]| {
        let rules = faults(&[&["open~/dev/tty=ENOENT"], rules].concat());
        let mut command: Vec<String> = rules.iter().map(|&word| word.to_owned()).collect();
        command.extend(Wrap::Treaper(&["--grace=100ms"]).tree("server:ignore=TERM"));
        let mut run = scene.start(&command).ready(&["server"]);
        run.signal(libc::SIGTERM);
        let exit = run.wait();
        (exit.code(), exit.signal())
    };
    for rules in [&[][..], &["getsid=EPERM"]] {
        assert_eq!(ended(Scene::new(), rules), (Some(137), None), "{rules:?}");
    }
    let (scene, _terminal) = Scene::new().terminal();
    assert_eq!(ended(scene, &[]), (None, Some(libc::SIGKILL)));
}

/// `helper & exec treaper ...` makes the helper a child of treaper.
#[test]
fn without_lists_of_children_a_helper_from_before_lives_on() {
    for guard in [&[][..], &["--no-guard"]] {
        let mut words = faults(&["open~/children=ENOENT"]);
        words.extend(["sh", "-c", "sleep 77 & exec \"$@\"", "sh", TREAPER]);
        words.extend([OPTIONS, guard, &["--", ACTOR, "tree", STUBBORN]].concat());
        let mut run = Scene::new().start(&words).ready(NAMES);
        if guard.is_empty() {
            sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        } else {
            run.signal(libc::SIGTERM);
        }
        assert_eq!(run.wait().code(), Some(137), "{guard:?}: {}", run.stderr());
        assert_eq!(run.named("sleep").len(), 1, "{guard:?}: {}", run.stderr());
        for name in NAMES {
            assert!(run.named(name).is_empty(), "{guard:?}: {name} is left");
        }
    }
}

#[test]
fn with_an_older_cgroup_nothing_survives() {
    for rules in [
        &["clone3=ENOSYS"][..],
        &["clone3=EPERM", "pidfd_open=ENOSYS"],
        &["open~cgroup.kill=ENOENT"],
        &[
            "open~cgroup.kill=ENOENT",
            "open~cgroup.freeze=ENOENT",
            "clone3=ENOSYS",
        ],
    ] {
        let Some(place) = Place::new() else {
            return skip("no cgroup v2 that this user may change");
        };
        nothing_survives(|| place.scene(), &faults(rules), "--contain=cgroup");
        assert!(place.groups().is_empty(), "{rules:?}");
    }
}

/// It is no descendant, so treaper finds it only in the list of the group.
#[test]
fn with_an_older_cgroup_a_stranger_in_the_group_is_killed_and_none_beside_it() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let rules = faults(&["open~cgroup.kill=ENOENT"]).into_iter();
    let mut command: Vec<String> = rules.map(str::to_owned).collect();
    let options = ["--contain=cgroup", "--grace=100ms"];
    command.extend(Wrap::Treaper(&options).tree("server:ignore=TERM"));
    let mut run = place.scene().start(&command).ready(&["server"]);
    let group = place.0.join(place.groups().pop().unwrap());
    let stranger = |group: &std::path::Path| {
        let tree = format!("stranger:ignore=TERM:enter={}", group.display());
        let run = Scene::new().start(&[ACTOR, "tree", &tree]);
        run.ready(&["stranger"])
    };
    let (mut inside, beside) = (stranger(&group), stranger(&place.0));
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_empty().code(), Some(137), "{}", run.stderr());
    assert_eq!(inside.wait_clean().signal(), Some(libc::SIGKILL));
    assert_eq!(beside.named("stranger").len(), 1);
    assert!(place.groups().is_empty(), "{}", run.stderr());
}

/// Each such write waits for an RCU grace period, which takes longer than the rest of a start.
#[test]
fn only_a_server_that_was_not_born_in_its_group_is_written_into_it() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    for (fault, expected) in [("trace=write", 0), ("inject=clone3:error=ENOSYS", 1)] {
        let Some(place) = Place::new() else {
            return skip("no cgroup v2 that this user may change");
        };
        let scene = place.scene();
        let trace = scene.directory().join("trace");
        let strace = ["strace", "-f", "-y", "-qq", "-b", "execve", "-e", fault];
        let output = ["-e", "trace=write,clone3", "-o", trace.to_str().unwrap()];
        let command = [
            TREAPER,
            "--contain=cgroup",
            "--",
            "cat",
            "/proc/self/cgroup",
        ];
        let mut run = scene.start(&[&strace[..], &output, &command].concat());
        run.wait_clean();
        assert!(run.stdout().contains("/treaper-"), "{}", run.stdout());
        let trace = fs::read_to_string(trace).unwrap();
        let writes = trace.lines().filter(|line| line.contains("cgroup.procs"));
        assert_eq!(writes.count(), expected, "{fault}: {trace}");
    }
}

#[test]
fn without_proc_nothing_survives_and_a_message_says_so() {
    if !sys::is_root() {
        return skip("only root can cover /proc");
    }
    let cover = [
        "unshare",
        "-m",
        "sh",
        "-c",
        "mount -t tmpfs none /proc && exec \"$@\"",
        "sh",
    ];
    let printed = nothing_survives(Scene::new, &cover, "--contain=group");
    assert!(printed.contains("/proc cannot be used"), "{printed}");
}

#[test]
fn without_a_free_descriptor_nothing_survives() {
    let mut run = start(Scene::new(), &[], "--contain=group");
    let (shim, monitor) = (run.main, run.monitor());
    for pid in [shim, monitor] {
        // Open descriptors stay open, and no other can be opened.
        special::limit_of(pid, libc::RLIMIT_NOFILE, 3);
    }
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
    // A message says what is weaker.
    assert!(
        run.stderr().contains("/proc cannot be used"),
        "{}",
        run.stderr()
    );
}

#[test]
fn with_a_proc_that_hides_other_users_nothing_survives() {
    if !sys::is_root() {
        return skip("only root can mount /proc");
    }
    for level in ["--contain=group", "--contain=pidns"] {
        nothing_survives(Scene::new, &HIDE, level);
    }
}

/// `/proc` shows nothing of the helper, except that it is a child of the server.
#[test]
fn a_process_below_one_that_proc_hides_is_killed_and_the_hidden_one_is_named() {
    if !sys::is_root() {
        return skip("only root can mount /proc");
    }
    let scene = Scene::new();
    let setuid = place::setuid_actor(&scene);
    // A new program, since `/proc` also hides a process that has changed its user.
    let script = format!(
        "#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups {ACTOR} \"$@\"\n"
    );
    let directory = Directory::new();
    let script = directory.program("user", script.as_bytes());
    let tree = format!(
        "server:on=TERM/3[helper:via={setuid}:setuid:setsid:ignore=TERM[leaf:via={script}:setsid:ignore=TERM]]"
    );
    let options = ["--grace=100ms", "--kill-timeout=1s"];
    let hide: Vec<String> = HIDE.map(str::to_owned).to_vec();
    let mut run = scene.start(&[hide, Wrap::Treaper(&options).tree(&tree)].concat());
    let (leaf, helper) = (run.log.ready("leaf"), run.log.wait("helper", "ready"));
    if helper.number("uid") != 0 {
        return skip("the directory for temporary files has no setuid programs");
    }
    run.log.ready("server");
    run.signal(libc::SIGTERM);
    let (exit, stderr) = (run.wait(), run.stderr());
    assert!(!exit.left.contains(&leaf), "{exit:?}: {stderr}");
    assert!(exit.left.contains(&helper.pid()), "{exit:?}: {stderr}");
    let named = format!("survivor: pid {} ", helper.pid());
    assert!(stderr.contains(&named), "{stderr}");
    assert_eq!(exit.code(), Some(123), "{stderr}");
    sys::kill(helper.pid(), libc::SIGKILL).unwrap();
    run.wait_empty();
}

/// The process above the host, which belongs to root, is hidden.
#[test]
fn with_a_proc_that_hides_other_users_an_ancestor_is_found() {
    if !sys::is_root() {
        return skip("only root can mount /proc");
    }
    let host = [ACTOR, "host", "--stdin", "null", "--"];
    let before = [&HIDE[..], &host].concat();
    let level = "--watch-ancestor=host";
    let mut run = start(Scene::new(), &before, level);
    run.log.wait("host", "spawned");
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("watched-exit"), "{}", run.stderr());
}

#[test]
fn without_a_subreaper_nothing_is_started() {
    let mut command = faults(&["prctl:0=36=EINVAL"]);
    let wrap = Wrap::Treaper(&[]).tree("server");
    command.extend(wrap.iter().map(String::as_str));
    let mut run = Scene::new().start(&command);
    assert_eq!(run.wait_clean().code(), Some(125));
    assert!(run.stderr().contains("subreaper"), "{}", run.stderr());
    assert!(run.log.all("server", "ready").is_empty());
}

#[test]
fn control_the_faults_are_felt() {
    let mut words = faults(&["pidfd_open=ENOSYS", "open~/children=EACCES"]);
    words.extend([common::TREAPER, "--doctor=json"]);
    let mut run = Scene::new().start(&words);
    run.wait_empty();
    let report: serde_json::Value = serde_json::from_str(&run.stdout()).unwrap();
    assert_eq!(report["checks"]["pidfd_open"]["ok"], false);
    let mut words = faults(&["open~/children=EACCES"]);
    words.extend([common::TREAPER, "-v", "sh", "-c", "sleep 300 & exit 0"]);
    let mut run = Scene::new().start(&words);
    run.wait_empty();
    let said = run.stderr();
    assert!(said.contains("no list of children in /proc"), "{said}");
}
