//! The walk over a tree that changes meanwhile: only processes that are proven to be of the tree are visited.
//!
//! Each scene is played in a PID namespace of its own, whose first process walks. The tree changes while the walk
//! visits the process above: after the children of that one were read, and before they are proven.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::sync::atomic::Ordering::SeqCst;

use common::family::{
    cell, child, end, gone, is_set, kill, live, live_and_reap, number_next, play,
};
use common::{sys, until};
use treaper::sys::proc::child_above;
use treaper::tree::walk::{self, Gaps, Reach, Scope, Search};

const SEARCHES: [Search; 2] = [Search::Files, Search::Scan];

/// A child of this process with a child and a grandchild. Returns the pids of the three.
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

/// The pids that a walk visits, in order. `act` is called during each visit.
fn walk(strangers: &[i32], search: Search, mut act: impl FnMut(i32)) -> (Vec<i32>, Gaps) {
    let mut visited = Vec::new();
    let scope = Scope {
        strangers,
        spares: &|_, _| false,
        start: search,
        reach: Reach::WatchedTree,
    };
    let gaps = walk::walk(scope, &mut |member| {
        visited.push(member.pid.get());
        act(member.pid.get());
    });
    (visited, gaps)
}

#[test]
fn each_process_is_visited_once_parents_first_without_disturbance() {
    play("scene_everything");
}

#[test]
#[ignore = "a scene"]
fn scene_everything() {
    for search in SEARCHES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], search, |_| {});
        assert_eq!(visited, [top, near, far], "{search:?}");
        assert_eq!((gaps.disturbed, gaps.search), (false, search));
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
    for search in SEARCHES {
        let ([top, near, far], [stranger, ..]) = (three(), three());
        let (visited, gaps) = walk(&[stranger], search, |_| {});
        assert_eq!(visited, [top, near, far], "{search:?}");
        assert!(!gaps.disturbed, "{search:?}");
        end(&[top, stranger]);
    }
}

#[test]
fn a_child_that_was_reaped_meanwhile_is_not_visited() {
    play("scene_reaped_child");
}

#[test]
#[ignore = "a scene"]
fn scene_reaped_child() {
    for search in SEARCHES {
        let pair = [child(None, live), child(None, live)];
        let mut left = 0;
        let (visited, gaps) = walk(&[], search, |pid| {
            let other = pair[usize::from(pid == pair[0])];
            kill(other);
            sys::wait_for(other);
            left = pid;
        });
        assert_eq!(visited, [left], "{search:?}");
        assert!(gaps.disturbed, "{search:?}");
        end(&[left]);
    }
}

#[test]
fn an_orphan_that_was_adopted_meanwhile_is_visited_as_a_child() {
    play("scene_orphan");
}

#[test]
#[ignore = "a scene"]
fn scene_orphan() {
    for search in SEARCHES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], search, |pid| {
            if pid == near {
                kill(near);
                gone(near);
            }
        });
        assert_eq!(visited, [top, near, far], "{search:?}");
        assert!(gaps.disturbed, "{search:?}");
        end(&[top]);
    }
}

#[test]
fn an_orphan_that_was_adopted_unseen_makes_the_walk_disturbed() {
    play("scene_unseen_orphan");
}

#[test]
#[ignore = "a scene"]
fn scene_unseen_orphan() {
    for search in SEARCHES {
        let [top, near, far] = three();
        let (visited, gaps) = walk(&[], search, |_| {});
        assert_eq!((visited.len(), gaps.disturbed), (3, false), "{search:?}");
        let other = child(None, live);
        // The younger one is visited first. The end of `near` cannot be seen at `top`.
        let (visited, gaps) = walk(&[], search, |pid| {
            if pid == other {
                kill(near);
                gone(near);
            }
        });
        assert_eq!(visited, [other, top], "{search:?}");
        assert!(gaps.disturbed, "{search:?}");
        let (visited, _) = walk(&[], search, |_| {});
        assert!(visited.contains(&far), "{search:?}");
        end(&[top, other]);
    }
}

#[test]
fn an_orphan_that_a_subreaper_between_adopted_makes_the_walk_disturbed() {
    play("scene_subreaper");
}

#[test]
#[ignore = "a scene"]
fn scene_subreaper() {
    for (search, reaps) in SEARCHES
        .into_iter()
        .zip([true, false])
        .chain(SEARCHES.into_iter().zip([false, true]))
    {
        let older = child(None, live);
        let (near, far) = (cell(), cell());
        let top = child(None, || {
            sys::subreaper();
            child(Some(near), || {
                child(Some(far), live);
                live();
            });
            if reaps {
                live_and_reap();
            }
            live();
        });
        let (near, far) = (is_set(near), is_set(far));
        // This process adopts nothing of it, and the visits after it change nothing.
        let (visited, gaps) = walk(&[], search, |pid| {
            if pid == top {
                kill(near);
                until("its end", || {
                    let process = common::proc::Process::read(near);
                    process.is_none_or(|p| !reaps && !p.is_alive())
                });
            }
        });
        let rest: &[i32] = if reaps { &[older] } else { &[near, older] };
        assert_eq!(visited, [&[top], rest].concat(), "{search:?} {reaps}");
        assert!(gaps.disturbed, "{search:?} {reaps}");
        let (visited, _) = walk(&[], search, |_| {});
        assert!(visited.contains(&far), "{search:?} {reaps}");
        end(&[top, older]);
    }
}

#[test]
fn as_the_init_of_a_namespace_each_number_except_its_own_is_visited() {
    play("scene_namespace");
}

#[test]
#[ignore = "a scene"]
fn scene_namespace() {
    let all = three();
    let (mut visited, gaps) = walk(&[], Search::Namespace, |_| {});
    visited.sort_unstable();
    assert_eq!(visited, all);
    assert_eq!((gaps.search, gaps.disturbed), (Search::Namespace, false));
    end(&all[..1]);
}

#[test]
fn a_proc_that_could_not_be_used_once_is_used_again() {
    play("scene_proc_again");
}

#[test]
#[ignore = "a scene"]
fn scene_proc_again() {
    let all = three();
    let (visited, gaps) = walk(&[], Search::Wait, |_| {});
    assert_eq!((&visited[..], gaps.search), (&all[..], Search::Files));
    end(&all[..1]);
}

#[test]
fn a_descendant_is_known_by_its_ancestors() {
    let (deeper, is_bound) = (cell(), cell());
    // None of them outlives the test, also if it fails.
    let top = child(None, || {
        sys::pdeathsig(libc::SIGKILL);
        child(Some(deeper), || {
            sys::pdeathsig(libc::SIGKILL);
            is_bound.store(1, SeqCst);
            live();
        });
        live();
    });
    let deeper = is_set(deeper);
    // Otherwise it could outlive its parent, with the output of the tests open.
    is_set(is_bound);
    for (pid, child) in [(sys::getpid(), 0), (top, top), (deeper, top)] {
        assert_eq!(child_above(pid), Ok(Some(child)));
    }
    for pid in [1, sys::getppid()] {
        assert_eq!(child_above(pid), Ok(None));
    }
    kill(top);
    sys::wait_for(top);
    assert!(child_above(top).is_err());
}

#[test]
fn strangers_that_got_the_numbers_of_a_dead_parent_and_its_child_are_not_visited() {
    play("scene_recycled");
}

#[test]
#[ignore = "a scene"]
fn scene_recycled() {
    for search in SEARCHES {
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
        let (visited, gaps) = walk(&[stranger], search, |pid| {
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
        assert_eq!(visited, [top, near], "{search:?}");
        assert!(gaps.disturbed, "{search:?}");
        end(&[top, stranger]);
    }
}
