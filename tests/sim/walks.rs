//! The walk over simulated trees: quiet ones, and ones that change with each of its system calls, where pids are
//! recycled at once. The code is the same that walks over real trees.
//!
//! `SIM_SEED` and `SIM_RUNS` as for the whole stop.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use treaper::sys::Errno;
use treaper::tree::kill::STOP_WALKS;
use treaper::tree::walk::{self, Gaps, Search};

use super::kernel::{Features, Simulated};
use super::rng::Rng;
use super::table::{Forks, Habits, Kill, OUTSIDE, OnStop, Table, US};
use super::{ms, number};

const QUIET: Habits = Habits {
    on_stop: OnStop::Ignore,
    kill: Kill::Works,
    life: None,
    forks: None,
    reaps: true,
    stopped: false,
};

/// Calls `run` with many seeds, and names the one that fails.
fn with_seeds(run: impl Fn(&mut Rng)) {
    let base = number("SIM_SEED").unwrap_or_else(|| std::process::id().into());
    for seed in base..base + number("SIM_RUNS").unwrap_or(2000) {
        let run = AssertUnwindSafe(|| run(&mut Rng::new(seed)));
        if let Err(cause) = catch_unwind(run) {
            eprintln!("again with SIM_SEED={seed} SIM_RUNS=1");
            resume_unwind(cause);
        }
    }
}

fn random_features(rng: &mut Rng) -> Features {
    Features {
        lists: rng.percent(70),
        parents: rng.percent(50),
        handles: rng.pick(&[4, 20, 1000]),
        ..Features::ALL
    }
}

/// Processes below `top`, in any shape from a chain to a bush.
fn grow(table: &mut Table, rng: &mut Rng, top: u32, count: u64, habits: fn(&mut Rng) -> Habits) {
    let mut pids = vec![top];
    let deep = rng.percent(40);
    for _ in 0..count {
        let parent = if deep && !rng.percent(10) {
            *pids.last().unwrap()
        } else {
            rng.pick(&pids)
        };
        let habits = habits(rng);
        pids.push(table.start(parent, habits));
    }
}

/// The ids of the processes that a walk visits, in order.
fn walk(kernel: &Simulated, strangers: &[i32]) -> (Vec<u64>, Gaps) {
    let mut visited = Vec::new();
    let gaps = kernel.walk(strangers, &mut |member| {
        // It may be gone by now.
        let pid = kernel.meant(member);
        visited.extend(pid.map(|pid| kernel.table().get(pid).unwrap().id));
    });
    (visited, gaps)
}

#[test]
fn in_a_quiet_tree_each_process_is_visited_once_after_its_parent() {
    with_seeds(|rng| {
        let mut table = Table::new(rng.clone());
        let count = rng.pick(&[0, 1, 10, 100]);
        grow(&mut table, rng, US, count, |_| QUIET);
        let stranger = table.start_stranger(QUIET);
        grow(&mut table, rng, stranger, 3, |_| QUIET);
        grow(&mut table, rng, OUTSIDE, 3, |_| QUIET);
        let parents: HashMap<u64, u64> = {
            let id = |pid| table.get(pid).map_or(0, |above| above.id);
            let inside = table.all().filter(|(_, process)| !process.outside);
            inside.map(|(_, p)| (p.id, id(p.parent))).collect()
        };
        let features = random_features(rng);
        let kernel = Simulated::new(&mut table, features);
        let (visited, gaps) = walk(&kernel, &[stranger as i32]);
        let search = if features.lists {
            Search::Files
        } else {
            Search::Scan
        };
        // With few descriptors the walk ends higher up, and says so.
        let ends_early = gaps.cut_short && features.handles < 1000;
        let expected = Gaps {
            errno: ends_early.then_some(Errno::MFILE),
            search,
            disturbed: false,
            cut_short: ends_early,
        };
        assert_eq!(gaps, expected, "{features:?}");
        let mut met = HashSet::from([0]);
        for id in &visited {
            assert!(
                met.contains(&parents[id]),
                "before its parent: {features:?}"
            );
            assert!(met.insert(*id), "twice: {features:?}");
        }
        let all = visited.len() == parents.len();
        assert!(all || ends_early, "{features:?}");
    });
}

/// A chain of so many processes, and how many of them a walk visits.
fn visited_of_a_chain(levels: usize, handles: usize) -> (usize, Gaps) {
    let mut table = Table::new(Rng::new(1));
    let mut last = US;
    for _ in 0..levels {
        last = table.start(last, QUIET);
    }
    let features = Features {
        handles,
        ..Features::ALL
    };
    let kernel = Simulated::new(&mut table, features);
    let mut visited = 0;
    let gaps = kernel.walk(&[], &mut |_| visited += 1);
    assert_eq!(kernel.handles(), 0);
    (visited, gaps)
}

#[test]
fn a_walk_ends_256_levels_below_the_children_or_without_a_descriptor() {
    let visited = |levels, handles| {
        let (visited, gaps) = visited_of_a_chain(levels, handles);
        (visited, gaps.cut_short, gaps.errno)
    };
    assert_eq!(visited(257, 1000), (257, false, None));
    assert_eq!(visited(258, 1000), (257, true, None));
    // One is needed to read the list of the children.
    assert_eq!(visited(10, 10), (10, false, None));
    assert_eq!(visited(12, 10), (11, true, Some(Errno::MFILE)));
}

/// The processes for which there is no room are left to the next walk.
#[test]
fn a_walk_without_room_for_all_says_so() {
    for lists in [true, false] {
        let mut table = Table::new(Rng::new(1));
        for _ in 0..5 {
            table.start(US, QUIET);
        }
        let features = Features {
            lists,
            ..Features::ALL
        };
        let kernel = Simulated::new(&mut table, features);
        for (room, full) in [(4, true), (5, false)] {
            let mut visited = 0;
            let gaps = kernel.walk_in(&mut vec![0; room], &[], &mut |_| visited += 1);
            assert_eq!((visited, gaps.cut_short), (room, full), "{lists}");
        }
    }
}

/// Another thread has adopted its children, and the list of that one may have been read before.
#[test]
fn a_thread_that_has_ended_makes_the_walk_disturbed() {
    for threads_end in [true, false] {
        let mut table = Table::new(Rng::new(1));
        let child = table.start(US, QUIET);
        table.start(child, QUIET);
        let features = Features {
            threads_end,
            ..Features::ALL
        };
        let (visited, gaps) = walk(&Simulated::new(&mut table, features), &[]);
        assert_eq!((visited.len(), gaps.disturbed), (2, threads_end));
    }
}

/// Processes end and fork so often that a walk sees many changes.
fn restless(rng: &mut Rng) -> Habits {
    let forks = rng.percent(25).then(|| Forks {
        every: rng.time(ms(1)),
        left: rng.pick(&[1, 3, 20]),
        moves: rng.percent(50),
    });
    Habits {
        life: rng.percent(35).then(|| rng.time(ms(3))),
        forks,
        reaps: rng.percent(70),
        ..QUIET
    }
}

/// The tree changes all the time. Still a walk does not change its source of children, and meets no failure.
fn is_unimpressed(gaps: Gaps, features: Features) {
    let search = if features.lists {
        Search::Files
    } else {
        Search::Scan
    };
    assert_eq!(gaps.search, search, "{features:?}");
    assert!(
        gaps.errno.is_none() || features.handles < 1000,
        "{features:?}"
    );
}

struct Restless {
    table: Table,
    strangers: Vec<i32>,
    features: Features,
}

fn restless_tree(rng: &mut Rng) -> Restless {
    let mut table = Table::new(rng.clone());
    table.reuses = rng.percent(80);
    let stranger = table.start_stranger(QUIET);
    grow(&mut table, rng, stranger, 3, |_| QUIET);
    let count = rng.pick(&[3, 10, 40]);
    grow(&mut table, rng, US, count, restless);
    grow(&mut table, rng, OUTSIDE, count, restless);
    Restless {
        table,
        strangers: vec![stranger as i32],
        features: Features {
            handles: rng.pick(&[1, 4, 20, 1000]),
            ..random_features(rng)
        },
    }
}

#[test]
fn a_walk_over_a_changing_tree_visits_only_processes_of_the_tree() {
    with_seeds(|rng| {
        let mut scene = restless_tree(rng);
        let kernel = Simulated::new(&mut scene.table, scene.features);
        for _ in 0..4 {
            let gaps = kernel.walk(&scene.strangers, &mut |member| {
                let outside = if let Some(handle) = &member.handle {
                    handle.outside
                } else {
                    let table = kernel.table();
                    let process = table.get(member.pid.get() as u32).unwrap();
                    assert_eq!(process.parent, US, "no child of treaper");
                    process.outside
                };
                assert!(!outside, "none of the tree: {:?}", scene.features);
            });
            is_unimpressed(gaps, scene.features);
        }
    });
}

#[test]
fn without_any_descriptor_the_children_are_visited() {
    let mut table = Table::new(Rng::new(1));
    let children = [(); 3].map(|()| table.start(US, QUIET));
    table.start(children[0], QUIET);
    let stranger = table.start_stranger(QUIET);
    let features = Features {
        handles: 0,
        ..Features::ALL
    };
    let kernel = Simulated::new(&mut table, features);
    let mut visited = Vec::new();
    let gaps = kernel.walk(&[stranger as i32], &mut |member| {
        visited.push(member.pid.get() as u32);
    });
    assert_eq!(visited, children);
    assert_eq!(
        (gaps.search, gaps.errno),
        (Search::Wait, Some(Errno::MFILE))
    );
}

#[test]
fn processes_adopted_during_a_walk_are_reached_by_the_next_one() {
    let (calm, again) = (Cell::new(0), Cell::new(0));
    with_seeds(|rng| {
        let mut scene = restless_tree(rng);
        let kernel = Simulated::new(&mut scene.table, scene.features);
        let mut reached = HashSet::new();
        let (mut born_before, mut walks, mut disturbed) = (0, 0, false);
        kernel.repeat(&mut || {
            born_before = kernel.table().born;
            let (visited, gaps) = walk(&kernel, &scene.strangers);
            reached.extend(visited);
            walks += 1;
            disturbed = gaps.disturbed || gaps.cut_short;
            gaps
        });
        if disturbed {
            return;
        }
        calm.set(calm.get() + 1);
        again.set(again.get() + u32::from(walks > 1));
        let table = kernel.table();
        for (pid, process) in table.living().filter(|(_, p)| p.id <= born_before) {
            let reached = reached.contains(&process.id);
            assert!(reached, "missed {pid}: {process:?}, {:?}", scene.features);
        }
    });
    let (calm, again) = (calm.get(), again.get());
    let all = number("SIM_RUNS").is_none();
    assert!(
        !all || calm > 500 && again > 100,
        "{calm} calm, {again} in several walks"
    );
}

#[test]
fn a_walk_is_repeated_while_it_misses_something_within_limits() {
    // How many walks there are if each takes this long, and the first few are disturbed.
    let count = |each: u64, disturbed: u32| {
        let (time, walks) = (Cell::new(ms(7)), Cell::new(0));
        walk::repeat(&|| time.get(), STOP_WALKS, &mut || {
            time.set(time.get() + ms(each));
            walks.set(walks.get() + 1);
            walks.get() <= disturbed
        });
        walks.get()
    };
    assert_eq!([0, 1, 3].map(|disturbed| count(1, disturbed)), [1, 2, 4]);
    assert_eq!(count(0, 1000), 16);
    // None begins after 50 ms.
    assert_eq!([25, 26, 60].map(|each| count(each, 1000)), [3, 2, 1]);
}
