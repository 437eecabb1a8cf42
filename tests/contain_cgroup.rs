//! `--contain=cgroup`: the tree is in a control group of its own, which is removed at the end.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::io::Write;
use std::time::Duration;

use common::place::{self, Place};
use common::{
    ACTOR, Run, Scene, TREAPER, Wrap, proc, skip, sys, until, until_it_pauses, until_it_rests,
};

const USER: u32 = 65534;
const OPTIONS: &[&str] = &["--contain=cgroup", "--drain", "100ms", "--grace", "200ms"];
const CGROUP: Wrap = Wrap::Treaper(OPTIONS);
const STUBBORN: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:stopped:ignore=TERM,\
                        c:chain=2]";
const NAMES: &[&str] = &["server", "a", "b", "c"];

/// A place by its name, and how a scene gets there.
type Where = (&'static str, Place, fn(Scene) -> Scene);

/// Root, below the group of the tests, and a user, in a group that was delegated to it.
fn places() -> Vec<Where> {
    let root = Place::new().map(|place| ("root", place, (|scene| scene) as fn(Scene) -> Scene));
    let user = Place::delegated(USER)
        .map(|place| ("a user", place, (|s: Scene| s.uid(USER)) as fn(_) -> _));
    let places: Vec<_> = root.into_iter().chain(user).collect();
    if places.is_empty() {
        skip("no cgroup v2 that this user may change");
    }
    places
}

#[test]
fn the_server_is_born_in_a_group_of_its_own() {
    for (name, place, who) in places() {
        let command = CGROUP.command(&["cat", "/proc/self/cgroup"]);
        let mut run = who(place.scene()).start(&command);
        assert_eq!(run.wait_clean().code(), Some(0), "{name}: {}", run.stderr());
        let own = run.stdout();
        let own = own.lines().find(|line| line.starts_with("0::")).unwrap();
        let (before, group) = own.rsplit_once('/').unwrap();
        let place_name = place.0.file_name().unwrap().to_str().unwrap();
        assert!(before.ends_with(place_name), "{name}: {own}");
        assert!(group.starts_with("treaper-"), "{name}: {own}");
        assert_eq!(run.stderr(), "", "{name}");
        assert!(place.groups().is_empty(), "{name}");
    }
}

#[test]
fn treaper_itself_stays_outside_so_that_a_kill_of_the_group_cannot_take_it() {
    for (name, place, who) in places() {
        let mut run = who(place.scene())
            .start(&CGROUP.tree("server"))
            .ready(&["server"]);
        for pid in [run.main, run.monitor()] {
            assert_eq!(
                place::group_of(&pid.to_string()).as_ref(),
                Some(&place.0),
                "{name}"
            );
        }
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// Stops a tree that ignores SIGTERM. Then no process of it is left, and no group.
fn stop_stubborn(mut run: Run, place: &Place, name: &str) {
    run.signal(libc::SIGTERM);
    let code = run.wait_clean().code();
    assert_eq!(code, Some(137), "{name}: {}", run.stderr());
    assert!(place.groups().is_empty(), "{name}: {}", run.stderr());
}

#[test]
fn a_stubborn_tree_is_stopped_and_its_group_removed() {
    for (name, place, who) in places() {
        let run = who(place.scene())
            .start(&CGROUP.tree(STUBBORN))
            .ready(NAMES);
        stop_stubborn(run, &place, name);
    }
}

/// Its zombie stays in the group while the rest of it ends, and is met again by the walk.
#[test]
fn a_killed_process_whose_main_thread_had_ended_is_named_once() {
    for (name, place, who) in places() {
        let mut run = who(place.scene())
            .start(&CGROUP.tree("server:ignore=TERM:mainless"))
            .ready(&["server"]);
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let said = run.stderr();
        assert!(
            said.contains("had to SIGKILL 1 process ("),
            "{name}: {said}"
        );
    }
}

/// There treaper ends by the signal that has ended the server.
#[test]
fn at_a_terminal_the_group_of_a_server_that_ends_by_a_signal_is_removed() {
    for (name, place, who) in places() {
        for guard in [&["--no-guard"][..], &[]] {
            let (scene, master) = who(place.scene()).terminal();
            let options = [OPTIONS, guard].concat();
            let command = Wrap::Treaper(&options).tree("server");
            let mut run = scene.start(&command).ready(&["server"]);
            assert_eq!(place.groups().len(), 1, "{name} {guard:?}");
            fs::File::from(master.try_clone().unwrap())
                .write_all(&[3])
                .unwrap();
            assert_eq!(run.wait_clean().signal(), Some(libc::SIGINT), "{name}");
            assert!(place.groups().is_empty(), "{name} {guard:?}");
        }
    }
}

#[test]
fn control_without_treaper_the_tree_survives_in_its_group() {
    for (name, place, who) in places() {
        let mut run = who(place.scene())
            .start(&Wrap::Bare.tree(STUBBORN))
            .ready(NAMES);
        run.signal(libc::SIGKILL);
        assert!(run.wait().left.len() >= 2, "{name}");
    }
}

#[test]
fn the_surviving_one_of_the_pair_stops_the_tree_and_removes_the_group() {
    for (name, place, who) in places() {
        for victim in ["shim", "monitor"] {
            let mut run = who(place.scene())
                .start(&CGROUP.tree(STUBBORN))
                .ready(NAMES);
            let pid = if victim == "shim" {
                run.main
            } else {
                run.monitor()
            };
            sys::kill(pid, libc::SIGKILL).unwrap();
            run.wait_empty();
            assert!(
                place.groups().is_empty(),
                "{name}: {victim}: {}",
                run.stderr()
            );
        }
    }
}

#[test]
fn processes_that_left_the_group_are_stopped_too() {
    for (name, place, who) in places() {
        let outside = place.make("outside");
        std::os::unix::fs::chown(&outside, Some(USER), Some(USER)).unwrap();
        std::os::unix::fs::chown(outside.join("cgroup.procs"), Some(USER), Some(USER)).unwrap();
        let outside = outside.to_str().unwrap();
        let tree = format!(
            "server:ignore=TERM[a:enter={outside}:setsid:ignore=TERM,b:enter={outside}:daemon:ignore=TERM]"
        );
        let mut run = who(place.scene())
            .start(&CGROUP.tree(&tree))
            .ready(&["server", "a", "b"]);
        let members = fs::read_to_string(format!("{outside}/cgroup.procs")).unwrap();
        assert_eq!(members.lines().count(), 2, "{name}");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(137), "{name}");
        assert_eq!(place.groups(), ["outside"], "{name}");
    }
}

#[test]
fn groups_that_the_server_made_below_go_with_it() {
    let Some(mount) = place::mount_point() else {
        return skip("no cgroup v2");
    };
    let mount = mount.to_str().unwrap();
    let tree = format!("server:ignore=TERM[a:nest={mount}:ignore=TERM,b:nest={mount}:daemon]");
    for (name, place, who) in places() {
        let mut run = who(place.scene())
            .start(&CGROUP.tree(&tree))
            .ready(&["server", "a", "b"]);
        let a = run.log.ready("a").to_string();
        assert!(place::group_of(&a).unwrap().ends_with("a/inner"), "{name}");
        stop_stubborn(run, &place, name);
    }
}

#[test]
fn empty_groups_of_killed_instances_are_removed_at_the_next_start() {
    for (name, place, who) in places() {
        let scene = who(place.scene());
        // Both processes of the pair are killed at once: only that leaves a group behind.
        let mut dead = scene.start(&CGROUP.tree(STUBBORN)).ready(NAMES);
        let monitor = dead.monitor();
        for pid in [dead.main, monitor] {
            sys::kill(pid, libc::SIGKILL).unwrap();
        }
        dead.wait();
        if place.groups().is_empty() {
            // They were not killed at exactly the same time, and one of the two has done its work.
            continue;
        }
        let populated = !dead.survivors().is_empty();
        drop(dead);
        let left = place.groups();
        place.make("treaper-of-another");
        place.make("other");
        let mut next = who(place.scene())
            .start(&CGROUP.tree("server"))
            .ready(&["server"]);
        for group in left {
            assert!(!place.groups().contains(&group), "{name}, {populated}");
        }
        for group in ["treaper-of-another", "other"] {
            assert!(place.groups().contains(&group.to_owned()), "{name}");
        }
        next.signal(libc::SIGTERM);
        next.wait_clean();
    }
}

#[test]
fn an_old_group_with_members_is_kept_and_so_are_they() {
    for (name, place, who) in places() {
        // Its name is that of an instance that has ended: no process has this pid and start time.
        let left = place.make("treaper-2-1");
        let mut member =
            place
                .scene()
                .start(&[ACTOR, "tree", &format!("member:enter={}", left.display())]);
        member.log.ready("member");
        let mut next = who(place.scene())
            .start(&CGROUP.tree("server"))
            .ready(&["server"]);
        assert!(
            left.exists() && proc::Process::read(member.main).is_some(),
            "{name}"
        );
        next.signal(libc::SIGTERM);
        next.wait_clean();
        assert!(left.exists() && !member.survivors().is_empty(), "{name}");
    }
}

#[test]
fn a_group_in_use_is_never_swept_though_it_is_empty() {
    for (name, place, who) in places() {
        for namespace in [false, true] {
            // The treaper that made it may be in another PID namespace: here its pid means another process.
            let scene = who(place.scene());
            let scene = if namespace { scene.pidns() } else { scene };
            let home = place.make("home");
            std::os::unix::fs::chown(home.join("cgroup.procs"), Some(USER), Some(USER)).unwrap();
            let tree = format!("server:enter={}", home.display());
            let mut used = scene.start(&CGROUP.tree(&tree)).ready(&["server"]);
            let mut before = place.groups();
            assert_eq!(before.len(), 2, "{name}: {before:?}");
            let mut next = who(place.scene())
                .start(&CGROUP.tree("other"))
                .ready(&["other"]);
            next.signal(libc::SIGTERM);
            next.wait_clean();
            let mut after = place.groups();
            before.sort();
            after.sort();
            assert_eq!(before, after, "{name}, in a PID namespace: {namespace}");
            used.signal(libc::SIGKILL);
            used.wait_empty();
        }
    }
}

#[test]
fn where_it_cannot_be_used_nothing_is_started_and_the_error_has_cause_and_remedy() {
    if !sys::is_root() {
        return skip("needs a user without a group of its own");
    }
    let mut run = Scene::new().uid(USER).start(&CGROUP.tree("server"));
    let exit = run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    for word in [
        "--contain=cgroup",
        "Permission denied",
        "root",
        "Delegate=yes",
    ] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    assert!(run.log.all("server", "ready").is_empty());
}

/// Runs its arguments in a cgroup namespace that has only a cgroup v2, as today's containers have.
const PURE: &str =
    "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";

#[test]
fn a_cgroup_namespace_with_v2_alone_is_enough() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let unshare = ["unshare", "-mC", "sh", "-c", PURE, "sh"].map(str::to_owned);
    let tree = format!("{STUBBORN}x").replace("]x", ",d:nest=/sys/fs/cgroup:daemon]");
    let command = [&unshare[..], &CGROUP.tree(&tree)].concat();
    let mut run = place.scene().start(&command).ready(NAMES);
    let server = run.log.ready("server").to_string();
    assert_eq!(place::group_of(&server).unwrap().parent(), Some(&*place.0));
    run.log.ready("d");
    let shim = run.shim();
    sys::kill(shim, libc::SIGTERM).unwrap();
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
    assert!(place.groups().is_empty());
}

#[test]
fn members_of_another_uid_are_killed_without_the_right_to_signal_them() {
    let Some(place) = Place::delegated(USER) else {
        return skip("no cgroup v2 that this user may change");
    };
    let scene = place.scene().uid(USER);
    let setuid = place::setuid_actor(&scene);
    let tree = format!(
        "server:ignore=TERM[rooted:via={setuid}:setuid:daemon:ignore=TERM,other:ignore=TERM]"
    );
    let mut run = scene
        .start(&CGROUP.tree(&tree))
        .ready(&["server", "rooted", "other"]);
    assert_eq!(run.log.wait("rooted", "ready").number("uid"), 0);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
    assert!(place.groups().is_empty());
}

#[test]
fn a_stranger_that_came_into_the_group_is_waited_for_and_killed() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let mut run = place
        .scene()
        .start(&CGROUP.tree("server:ignore=TERM"))
        .ready(&["server"]);
    let group = place.0.join(place.groups().pop().unwrap());
    let tree = format!("guest:ignore=TERM:enter={}", group.display());
    let mut guest = Scene::new().start(&[ACTOR, "tree", &tree]);
    guest.log.ready("guest");
    run.signal(libc::SIGTERM);
    run.wait_clean();
    assert!(place.groups().is_empty(), "{}", run.stderr());
    assert_eq!(guest.wait_clean().signal(), Some(libc::SIGKILL));
}

/// A process of the tree moves its parent: a stop of the tree is none of treaper.
#[test]
fn treaper_is_not_killed_though_it_was_moved_into_the_group() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    for (shim, below) in [(true, ""), (false, ""), (true, "sub"), (false, "sub")] {
        for (tree, status) in [("server:ignore=TERM", 137), ("server:on=TERM/3", 3)] {
            let grace = if status == 3 {
                "--grace=60s"
            } else {
                "--grace=200ms"
            };
            let options = ["--contain=cgroup", grace];
            let wrap = Wrap::Treaper(&options);
            let mut run = place.scene().start(&wrap.tree(tree)).ready(&["server"]);
            let group = place.0.join(place.groups().pop().unwrap()).join(below);
            fs::create_dir_all(&group).unwrap();
            let pid = if shim { run.shim() } else { run.monitor() };
            fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
            run.signal(libc::SIGTERM);
            let exit = run.wait_clean();
            assert_eq!(exit.code(), Some(status), "{shim} {below} {}", run.stderr());
            assert!(place.groups().is_empty(), "{}", run.stderr());
        }
    }
}

#[test]
fn the_run_ends_with_the_tree_though_treaper_was_moved_into_the_group() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    for is_shim in [true, false] {
        let options = [OPTIONS, &["--until=tree"]].concat();
        let tree = Wrap::Treaper(&options).tree("server:on=USR1/3");
        let mut run = place.scene().start(&tree).ready(&["server"]);
        let group = place.0.join(place.groups().pop().unwrap());
        let pid = if is_shim { run.shim() } else { run.monitor() };
        fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
        sys::kill(run.named("server")[0].pid, libc::SIGUSR1).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
        assert!(place.groups().is_empty(), "{}", run.stderr());
    }
}

/// The host would see the end of the process that it has started.
#[test]
fn the_relay_is_not_killed_though_it_was_moved_into_the_group() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let scene = place.scene().stdin_pipe();
    let socket = format!(
        "--inject=unix:{}",
        scene.directory().join("socket").display()
    );
    let options = [OPTIONS, &[socket.as_str()]].concat();
    let wrap = Wrap::Treaper(&options);
    let mut run = scene
        .start(&wrap.tree("server:ignore=TERM"))
        .ready(&["server"]);
    let group = place.0.join(place.groups().pop().unwrap());
    fs::write(group.join("cgroup.procs"), run.main.to_string()).unwrap();
    run.signal(libc::SIGTERM);
    let exit = run.wait_clean();
    // As the server ended: by a signal.
    assert_eq!(exit.code(), Some(137), "{}", run.stderr());
    assert!(!run.stderr().contains("tree-relay"), "{}", run.stderr());
}

/// Only `cgroup.events` reports it, and no deadline comes in time.
#[test]
fn the_end_of_a_stranger_in_the_group_is_seen() {
    let guarded = Wrap::Treaper(&["--contain=cgroup", "--grace=1h"]);
    let alone = Wrap::Treaper(&["--contain=cgroup", "--grace=1h", "--no-guard"]);
    for (wrap, without_monitor) in [(guarded, true), (guarded, false), (alone, false)] {
        let Some(place) = Place::new() else {
            return skip("no cgroup v2 that this user may change");
        };
        let mut run = place.scene().start(&wrap.tree("server")).ready(&["server"]);
        let group = place.0.join(place.groups().pop().unwrap());
        let tree = format!("guest:enter={}", group.display());
        let mut guest = Scene::new().start(&[ACTOR, "tree", &tree]);
        guest.log.ready("guest");
        if without_monitor {
            sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        } else {
            run.signal(libc::SIGTERM);
        }
        until("the end of the server", || run.named("server").is_empty());
        assert!(
            !run.ends_within(Duration::from_millis(100)),
            "the guest is left"
        );
        if without_monitor {
            // The shim has no descriptor that reports it. So it looks again and again, with pauses.
            until_it_pauses(run.main);
        } else {
            let monitor = run.named("tree-monitor").pop();
            until_it_rests(monitor.map_or(run.main, |monitor| monitor.pid));
        }
        guest.signal(libc::SIGTERM);
        guest.wait_clean();
        run.wait_clean();
        assert!(place.groups().is_empty(), "{}", run.stderr());
    }
}

#[test]
fn a_command_that_does_not_exist_leaves_no_group() {
    for (name, place, who) in places() {
        let mut words: Vec<&str> = [&[TREAPER], OPTIONS].concat();
        words.push("no-such-command-anywhere");
        let mut run = who(place.scene()).start(&words);
        assert_eq!(run.wait_clean().code(), Some(127), "{name}");
        until("no group", || place.groups().is_empty());
    }
}

#[test]
fn a_removed_group_costs_no_processor_time_and_the_stop_works() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let home = place.make("home");
    let tree = format!("server:ignore=TERM:enter={}", home.display());
    let mut run = place.scene().start(&CGROUP.tree(&tree)).ready(&["server"]);
    let group = place.groups().into_iter().find(|name| name != "home");
    fs::remove_dir(place.0.join(group.unwrap())).unwrap();
    let monitor = run.monitor();
    until_it_rests(monitor);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
}

#[test]
fn a_monitor_that_waits_for_zombies_of_a_tracer_takes_no_processor_time() {
    let Some(place) = Place::new() else {
        return skip("no cgroup v2 that this user may change");
    };
    let options = ["--contain=cgroup", "--grace=100ms", "--kill-timeout=300ms"];
    let tree = "server[stuck:ignore=TERM]";
    let mut run = place
        .scene()
        .start(&Wrap::Treaper(&options).tree(tree))
        .ready(&["server", "stuck"]);
    let (monitor, stuck) = (run.monitor(), run.named("stuck")[0].pid.to_string());
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &stuck]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return skip("tracing a stranger is not allowed here");
    }
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait().code(), Some(123), "{}", run.stderr());
    // Zombies are members of no group, so the shim has removed it.
    until("no group", || place.groups().is_empty());
    until_it_rests(monitor);
    drop(tracer);
    run.wait_empty();
}
