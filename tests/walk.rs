//! The walk over the tree while the tree changes under its hands: only what is proven ours is visited.
//!
//! Each scene is played in a PID namespace of its own, whose first process walks. What changes does so while the walk
//! waits in its visit of the process above: after the children of that one were read, before they are proven.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use common::{special, sys, until};
use treaper::tree::{self, Gaps, Scope, Source};

const SOURCES: [Source; 2] = [Source::Files, Source::Scan];

/// Runs one of the ignored tests below as the first process of a PID namespace.
fn play(test: &str) {
    let as_user: &[&str] = if sys::is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let out = Command::new("unshare")
        .args(as_user)
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
}

/// A number that forks share; 0 until it is set.
type Cell = &'static AtomicI64;

fn cell() -> Cell {
    special::shared_counter(0)
}

fn is_set(cell: Cell) -> i32 {
    while cell.load(SeqCst) == 0 {
        sys::pause_for(Duration::from_millis(1));
    }
    cell.load(SeqCst) as i32
}

/// A child that does this; its number goes into the cell, if there is one.
fn child(into: Option<Cell>, act: impl FnOnce()) -> i32 {
    let pid = sys::fork();
    if pid == 0 {
        act();
        sys::exit(0);
    }
    if let Some(cell) = into {
        cell.store(pid.into(), SeqCst);
    }
    pid
}

/// Lives until it is killed.
fn live() {
    loop {
        sys::pause_for(Duration::from_secs(60));
    }
}

/// Lives, and takes what ends below it.
fn live_and_reap() {
    loop {
        if matches!(sys::wait(0), sys::Waited::NoChildren) {
            sys::pause_for(Duration::from_millis(1));
        }
    }
}

/// A child of ours with a child and a grandchild; their numbers.
fn three() -> [i32; 3] {
    let (near, far) = (cell(), cell());
    let top = child(None, || {
        child(Some(near), || {
            child(Some(far), live);
            live();
        });
        live_and_reap();
    });
    [top, is_set(near), is_set(far)]
}

fn kill(pid: i32) {
    sys::kill(pid, libc::SIGKILL).unwrap();
}

fn gone(pid: i32) {
    until("its number is free", || sys::kill(pid, 0).is_err());
}

/// The numbers that a walk visits, in order; `act` does something while one of them is visited.
fn walk(strangers: &[i32], source: Source, mut act: impl FnMut(i32)) -> (Vec<i32>, Gaps) {
    let mut visited = Vec::new();
    let scope = Scope {
        strangers,
        start: source,
        watchful: true,
        without: None,
    };
    let gaps = tree::walk(scope, &mut |member| {
        visited.push(member.pid.get());
        act(member.pid.get());
    });
    (visited, gaps)
}

fn end(children: &[i32]) {
    for &pid in children {
        kill(pid);
        sys::wait_for(pid);
    }
    // What they leave is ours, as that of the first process.
    while !matches!(sys::wait(libc::WNOHANG), sys::Waited::NoChildren) {
        for process in common::proc::children(sys::getpid()) {
            process.kill();
        }
    }
}

#[test]
fn everything_is_visited_once_parents_first_and_nothing_has_disturbed() {
    play("scene_everything");
}

#[test]
#[ignore = "a scene"]
fn scene_everything() {
    for source in SOURCES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], source, |_| {});
        assert_eq!(visited, [top, near, far], "{source:?}");
        assert_eq!((gaps.disturbed, gaps.source), (false, source));
        end(&[top]);
    }
}

#[test]
fn strangers_and_what_is_below_them_are_not_visited() {
    play("scene_strangers");
}

#[test]
#[ignore = "a scene"]
fn scene_strangers() {
    for source in SOURCES {
        let ([top, near, far], [stranger, ..]) = (three(), three());
        let (visited, gaps) = walk(&[stranger], source, |_| {});
        assert_eq!(visited, [top, near, far], "{source:?}");
        assert!(!gaps.disturbed, "{source:?}");
        end(&[top, stranger]);
    }
}

#[test]
fn a_child_of_ours_that_was_reaped_meanwhile_is_not_visited() {
    play("scene_reaped_child");
}

#[test]
#[ignore = "a scene"]
fn scene_reaped_child() {
    for source in SOURCES {
        let pair = [child(None, live), child(None, live)];
        let mut left = 0;
        let (visited, gaps) = walk(&[], source, |pid| {
            let other = pair[usize::from(pid == pair[0])];
            kill(other);
            sys::wait_for(other);
            left = pid;
        });
        assert_eq!(visited, [left], "{source:?}");
        assert!(gaps.disturbed, "{source:?}");
        end(&[left]);
    }
}

#[test]
fn an_orphan_that_came_to_us_meanwhile_is_visited_as_our_child() {
    play("scene_orphan");
}

#[test]
#[ignore = "a scene"]
fn scene_orphan() {
    for source in SOURCES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], source, |pid| {
            if pid == near {
                kill(near);
                gone(near);
            }
        });
        assert_eq!(visited, [top, near, far], "{source:?}");
        assert!(gaps.disturbed, "{source:?}");
        end(&[top]);
    }
}

#[test]
fn an_orphan_that_came_to_us_unseen_makes_the_walk_a_disturbed_one() {
    play("scene_unseen_orphan");
}

#[test]
#[ignore = "a scene"]
fn scene_unseen_orphan() {
    for source in SOURCES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], source, |_| {});
        assert_eq!((visited.len(), gaps.disturbed), (3, false), "{source:?}");
        let other = child(None, live);
        // The younger one is visited first. The end of `near` leaves no trace at `top`.
        let (visited, gaps) = walk(&[], source, |pid| {
            if pid == other {
                kill(near);
                gone(near);
            }
        });
        assert_eq!(visited, [other, top], "{source:?}");
        assert!(gaps.disturbed, "{source:?}");
        let (visited, _) = walk(&[], source, |_| {});
        assert!(visited.contains(&far), "{source:?}");
        end(&[top, other]);
    }
}

#[test]
fn an_orphan_that_went_to_a_subreaper_between_makes_the_walk_a_disturbed_one() {
    play("scene_subreaper");
}

#[test]
#[ignore = "a scene"]
fn scene_subreaper() {
    for source in SOURCES {
        let (near, far) = (cell(), cell());
        let top = child(None, || {
            sys::subreaper();
            child(Some(near), || {
                child(Some(far), live);
                live();
            });
            live();
        });
        let (near, far) = (is_set(near), is_set(far));
        // Nothing of it comes to us, and it keeps its number.
        let (visited, gaps) = walk(&[], source, |pid| {
            if pid == top {
                kill(near);
                until("its end", || {
                    common::proc::Process::read(near).is_some_and(|p| p.state == 'Z')
                });
            }
        });
        assert_eq!(visited, [top, near], "{source:?}");
        assert!(gaps.disturbed, "{source:?}");
        let (visited, _) = walk(&[], source, |_| {});
        assert!(visited.contains(&far), "{source:?}");
        end(&[top]);
    }
}

/// The next process gets this number.
fn number_next(pid: i32) {
    let mut text = [0; 16];
    let room = text.len();
    let mut rest = &mut text[..];
    write!(rest, "{}", pid - 1).unwrap();
    let used = room - rest.len();
    sys::write_to(c"/proc/sys/kernel/ns_last_pid", &text[..used]);
}

#[test]
fn strangers_that_got_the_numbers_of_a_dead_parent_and_its_child_are_not_visited() {
    play("scene_recycled");
}

#[test]
#[ignore = "a scene"]
fn scene_recycled() {
    for source in SOURCES {
        let [wanted_near, wanted_far, new_near, new_far] = [(); 4].map(|()| cell());
        let stranger = child(None, || {
            is_set(wanted_far);
            number_next(is_set(wanted_near));
            child(Some(new_near), || {
                number_next(is_set(wanted_far));
                child(Some(new_far), live);
                live();
            });
            live();
        });
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[stranger], source, |pid| {
            if pid == near {
                kill(near);
                gone(near);
                kill(far);
                sys::wait_for(far);
                wanted_near.store(near.into(), SeqCst);
                wanted_far.store(far.into(), SeqCst);
                assert_eq!((is_set(new_near), is_set(new_far)), (near, far));
            }
        });
        assert_eq!(visited, [top, near], "{source:?}");
        assert!(gaps.disturbed, "{source:?}");
        end(&[top, stranger]);
    }
}
