//! Trees that multiply faster than a walk can see them: fork bombs, chains of daemons, processes that restart each
//! other. Each has some 300 processes, which ignore SIGTERM. No process is left, at each level of containment.
//!
//! Each bomb has a uid of its own, whose RLIMIT_NPROC bounds it. The times to the first SIGKILL and from there to the
//! end are printed, and not judged: they depend on the machine as much as on treaper.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which says how long each stop took"
)]

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::place::Place;
use common::{Run, Scene, Wrap, skip, sys, until};

const SIZE: usize = 300;

/// One bomb at a time, so that each has the machine for itself.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A uid that no other bomb has.
fn new_uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + std::process::id() % 100_000 * 1000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Name and node of each bomb.
const BOMBS: &[(&str, &str)] = &[
    ("fork bomb", "bomb:LIMIT:ignore=TERM:bomb=1000000000:calm=1"),
    (
        "fork bomb of sessions",
        "bomb:LIMIT:ignore=TERM:bomb=1000000000:calm=1:spread",
    ),
    ("daemon chains", "bomb*300:LIMIT:ignore=TERM:chain=10"),
    ("revivers", "bomb*150:LIMIT:ignore=TERM:revive"),
];

struct Bomb {
    run: Run,
    /// Dropped after the run.
    _place: Option<Place>,
}

/// Starts the bomb, and waits until it has its full size. `None` if this level cannot be used here.
fn start(level: Option<&str>, by_root: bool, bomb: &str) -> Option<Bomb> {
    let uid = new_uid();
    let place = match (level, by_root) {
        (Some("cgroup"), true) => Some(Place::new()?),
        (Some("cgroup"), false) => Some(Place::delegated(uid)?),
        _ => None,
    };
    let scene = place.as_ref().map_or_else(Scene::new, Place::scene);
    let scene = if by_root { scene } else { scene.uid(uid) };
    // Revivers need room for their zombies, too, which count until they are reaped. At the limit they would only use
    // up processor time.
    let room = if bomb.contains("revive") {
        3 * SIZE
    } else {
        50
    };
    let limit = format!("nproc={}", SIZE + room);
    let limit = if by_root {
        format!("uid={uid}:{limit}")
    } else {
        limit
    };
    let tree = format!("server:ignore=TERM[{}]", bomb.replace("LIMIT", &limit));
    let contain = format!("--contain={}", level.unwrap_or("group"));
    let options = [
        contain.as_str(),
        "--grace",
        "100ms",
        "--kill-timeout",
        "60s",
    ];
    let wrap = if level.is_some() {
        Wrap::Treaper(&options)
    } else {
        Wrap::Bare
    };
    let mut run = scene.start(&wrap.tree(&tree));
    run.log.ready("server");
    until("a bomb of full size", || {
        run.named("bomb").len() >= SIZE * 9 / 10
    });
    Some(Bomb { run, _place: place })
}

fn levels() -> Vec<(&'static str, bool)> {
    if !sys::is_root() {
        skip("only root can give a bomb a uid of its own, which bounds it");
        return Vec::new();
    }
    let levels = ["group", "cgroup", "pidns"];
    levels
        .iter()
        .flat_map(|level| [(*level, true), (*level, false)])
        .collect()
}

fn is_stopped_in_every_level(which: usize) {
    let _alone = alone();
    let (name, bomb) = BOMBS[which];
    for (level, by_root) in levels() {
        let Some(mut bomb) = start(Some(level), by_root, bomb) else {
            skip("no cgroup v2 that this user may change");
            continue;
        };
        stop(name, level, by_root, &mut bomb.run);
    }
}

fn stop(name: &str, level: &str, by_root: bool, run: &mut Run) {
    let server = run.named("server")[0].pid;
    let asked = sys::now_ms();
    run.signal(libc::SIGTERM);
    // It ignores everything except SIGKILL, and is among the first to get that.
    assert!(
        sys::wait_gone(server, common::patience()),
        "{name}, {level}"
    );
    let first_kill = sys::now_ms();
    let exit = run.wait_clean();
    let (waited, took) = (first_kill - asked, sys::now_ms() - first_kill);
    let who = if by_root { "root" } else { "a user" };
    eprintln!("{name}, {level}, {who}: killed {waited} ms after SIGTERM, gone {took} ms later");
    assert_eq!(exit.code(), Some(137), "{name}, {level}: {}", run.stderr());
}

#[test]
fn a_fork_bomb_is_stopped_in_every_level() {
    is_stopped_in_every_level(0);
}

#[test]
fn a_fork_bomb_whose_processes_have_their_own_sessions_is_stopped_in_every_level() {
    is_stopped_in_every_level(1);
}

#[test]
fn daemon_chains_are_stopped_in_every_level() {
    is_stopped_in_every_level(2);
}

#[test]
fn a_fork_bomb_that_takes_all_processor_time_is_stopped() {
    let _alone = alone();
    for (level, by_root) in levels().into_iter().filter(|(level, _)| *level == "group") {
        let busy = BOMBS[0].1.replace(":calm=1", "");
        let mut bomb = start(Some(level), by_root, &busy).unwrap();
        stop("busy fork bomb", level, by_root, &mut bomb.run);
    }
}

#[test]
fn revivers_are_stopped_in_every_level() {
    is_stopped_in_every_level(3);
}

#[test]
fn a_bomb_is_stopped_when_one_of_the_pair_is_killed() {
    let _alone = alone();
    for (name, bomb) in [BOMBS[0], BOMBS[3]] {
        for (level, by_root) in levels() {
            for victim in ["shim", "monitor"] {
                // At the other levels the kernel kills the tree. At this one treaper does.
                if level != "group" {
                    continue;
                }
                let mut bomb = start(Some(level), by_root, bomb).unwrap();
                let (shim, monitor) = (bomb.run.main, bomb.run.monitor());
                let pid = if victim == "shim" { shim } else { monitor };
                sys::kill(pid, libc::SIGKILL).unwrap();
                bomb.run.wait_empty();
                assert!(bomb.run.survivors().is_empty(), "{name}, {level}, {victim}");
            }
        }
    }
}

#[test]
fn control_without_treaper_each_bomb_outlives_its_server() {
    let _alone = alone();
    if !sys::is_root() {
        return skip("only root can give a bomb a uid of its own");
    }
    for (name, bomb) in BOMBS {
        let mut bomb = start(None, true, bomb).unwrap();
        bomb.run.signal(libc::SIGTERM);
        assert!(!bomb.run.ends_within(Duration::from_millis(200)), "{name}");
        bomb.run.signal(libc::SIGKILL);
        let left = bomb.run.wait().left.len();
        assert!(left >= SIZE / 2, "{name}: {left}");
    }
}

#[test]
fn control_revivers_outlive_one_kill_of_all_that_were_seen() {
    let _alone = alone();
    if !sys::is_root() {
        return skip("only root can give a bomb a uid of its own");
    }
    let mut bomb = start(None, true, BOMBS[3].1).unwrap();
    bomb.run.signal(libc::SIGKILL);
    bomb.run.wait();
    for process in bomb.run.survivors() {
        process.kill();
        // Time for the other one of its pair to see the end of this one.
        sys::pause_for(Duration::from_millis(1));
    }
    assert!(!bomb.run.survivors().is_empty());
}
