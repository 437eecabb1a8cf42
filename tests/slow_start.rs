//! A server whose exec does not come back (a hung file system, a scanner, a long search) is supervised from its first
//! instruction: every trigger ends it, in the same time as any server.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use common::held::{Held, slow_path};
use common::place::Place;
use common::proc::{self, state};
use common::{ACTOR, Run, Scene, Wrap, skip, sys, until, until_state};

const LEVELS: [&[&str]; 6] = [
    &[],
    &["--no-guard"],
    &["--contain=cgroup"],
    &["--contain=cgroup", "--no-guard"],
    &["--contain=pidns"],
    &["--contain=pidns", "--no-guard"],
];

/// Each level that can be used here, with a scene for it.
fn levels() -> Vec<(&'static [&'static str], Scene, Option<Place>)> {
    let mut had = Vec::new();
    for options in LEVELS {
        let place = Place::new();
        let here = match options.first() {
            Some(&"--contain=pidns") => sys::is_root(),
            Some(&"--contain=cgroup") => place.is_some(),
            _ => true,
        };
        if here {
            let scene = place.as_ref().map_or_else(Scene::new, Place::scene);
            had.push((options, scene, place));
        } else {
            skip(&format!("{options:?} cannot be used here"));
        }
    }
    had
}

/// The reason to stop: the end of a process, or a signal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reason {
    Terminate,
    ShimKilled,
    MonitorKilled,
    HostKilled,
}

fn give(reason: Reason, run: &Run) {
    let (pid, signal) = match reason {
        Reason::Terminate => (run.shim(), libc::SIGTERM),
        Reason::ShimKilled => (run.shim(), libc::SIGKILL),
        Reason::MonitorKilled => (run.monitor(), libc::SIGKILL),
        Reason::HostKilled => (run.main, libc::SIGKILL),
    };
    sys::kill(pid, signal).unwrap();
}

/// Below a host that only SIGKILL can end.
fn hosted(options: &[&str], server: &[&str]) -> Vec<String> {
    let host = [ACTOR, "host", "--stdin", "null", "--own-group", "--"].map(str::to_owned);
    [&host[..], &Wrap::Treaper(options).command(server)].concat()
}

fn held(scene: &Scene) -> Option<Held> {
    let held = Held::new(scene.directory());
    if held.is_none() {
        skip("only root can hold an exec back");
    }
    held
}

fn every_stop_ends_it(reason: Reason) {
    for (options, scene, place) in levels() {
        let no_pair = options.contains(&"--no-guard") && !options.contains(&"--contain=pidns");
        if no_pair && matches!(reason, Reason::ShimKilled | Reason::MonitorKilled) {
            continue;
        }
        let Some(held) = held(&scene) else { return };
        let options = [&["--grace", "200ms"], options].concat();
        let mut run = scene.start(&hosted(&options, &[held.name(), "tree", "server"]));
        held.wait();
        give(reason, &run);
        run.wait_empty();
        assert!(run.log.all("server", "ready").is_empty(), "{options:?}");
        drop((run, place));
    }
}

#[test]
fn sigterm_ends_a_server_whose_exec_has_not_come_back() {
    every_stop_ends_it(Reason::Terminate);
}

#[test]
fn the_end_of_the_shim_ends_it_too() {
    every_stop_ends_it(Reason::ShimKilled);
}

#[test]
fn the_end_of_the_monitor_ends_it_too() {
    every_stop_ends_it(Reason::MonitorKilled);
}

#[test]
fn the_end_of_the_host_ends_it_too() {
    every_stop_ends_it(Reason::HostKilled);
}

#[test]
fn control_without_treaper_it_outlives_its_host() {
    let scene = Scene::new();
    let Some(held) = held(&scene) else { return };
    let host = [ACTOR, "host", "--stdin", "null", "--", held.name()];
    let mut run = scene.start(&[&host[..], &["tree", "server"]].concat());
    held.wait();
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 1);
}

#[test]
fn a_server_that_cannot_handle_the_stop_signal_yet_is_killed_after_the_grace() {
    use Reason::{HostKilled, MonitorKilled, ShimKilled, Terminate};
    for reason in [Terminate, ShimKilled, MonitorKilled, HostKilled] {
        let scene = Scene::new().before_exec(|| {
            sys::mask(libc::SIG_BLOCK, &[libc::SIGTERM]);
        });
        let Some(held) = held(&scene) else { return };
        let command = hosted(&["--grace", "200ms"], &[held.name(), "tree", "server"]);
        let mut run = scene.start(&command);
        held.wait();
        give(reason, &run);
        run.wait_empty();
        let stderr = run.stderr();
        let killed = stderr.contains("had to SIGKILL 1 process");
        assert!(killed, "{reason:?}: {stderr}");
    }
}

#[test]
fn a_server_whose_exec_comes_back_late_runs_as_usual() {
    for (options, scene, place) in levels() {
        let Some(held) = held(&scene) else { return };
        let command = Wrap::Treaper(options).command(&[held.name(), "tree", "server:on=TERM/3"]);
        let mut run = scene.start(&command);
        held.wait();
        drop(held);
        run.log.ready("server");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
        drop((run, place));
    }
}

/// The process that becomes the server: a child of the monitor, or of the one process of `--no-guard`.
fn searching(run: &Run, options: &[&str]) -> i32 {
    let parent = if options.contains(&"--no-guard") {
        run.shim()
    } else {
        run.monitor()
    };
    let mut child = None;
    until("a process that searches PATH", || {
        child = proc::children(parent).first().map(|child| child.pid);
        child.is_some()
    });
    child.unwrap()
}

/// A scene in which the search for any command takes minutes. It does not need root.
fn slow() -> Scene {
    let scene = Scene::new();
    let (path, directory) = (slow_path(scene.directory()), scene.directory().to_owned());
    scene.env("PATH", &path).with(|command| {
        command.current_dir(directory);
    })
}

#[test]
fn a_long_search_of_path_ends_by_every_reason_to_stop() {
    use Reason::{HostKilled, MonitorKilled, ShimKilled, Terminate};
    for (options, reasons) in [
        (
            &[][..],
            &[Terminate, ShimKilled, MonitorKilled, HostKilled][..],
        ),
        (&["--no-guard"], &[Terminate, HostKilled]),
    ] {
        for &reason in reasons {
            let mut run = slow().start(&hosted(options, &["no-such-command"]));
            searching(&run, options);
            give(reason, &run);
            run.wait_empty();
            let stderr = run.stderr();
            // The stop has ended it, and not the end of the search.
            assert!(
                !stderr.contains("cannot find"),
                "{options:?} {reason:?}: {stderr}"
            );
        }
    }
}

fn press(master: &OwnedFd, key: u8) {
    let mut master = File::from(master.try_clone().unwrap());
    master.write_all(&[key]).unwrap();
}

#[test]
fn the_keyboard_suspends_and_interrupts_a_long_search_of_path() {
    for options in [&[][..], &["--no-guard"]] {
        let (scene, master) = slow().terminal();
        let command = Wrap::Treaper(options).command(&["no-such-command"]);
        let mut run = scene.start(&command);
        let child = searching(&run, options);
        let main = run.main;
        until("a search that hears the keyboard", || {
            let blocked = proc::status(child, "SigBlk");
            blocked.is_some_and(|mask| mask.bytes().all(|digit| digit == b'0'))
        });
        for _ in 0..3 {
            press(&master, 26);
            until_state(&[main, child], 'T');
            sys::kill_group(main, libc::SIGCONT).unwrap();
            until("a resumed job", || {
                state(main) == 'S' && state(child) == 'R'
            });
        }
        press(&master, 3);
        assert_eq!(run.wait_clean().signal(), Some(libc::SIGINT), "{options:?}");
    }
}
