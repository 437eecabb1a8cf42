//! Exhaustive search over the pair: shim and monitor, every order of their steps, and an event from outside at each of
//! them.
//!
//! Both run the project's own code, from its start to its exit. `tests/pair_model/src` is a second `src`: each
//! link in it leads to a file of the project, and each other file stands for one of them. Its `sys` is the small kernel
//! of `kernel.rs`. Each call to it is one step: an access to the board, a signal, a wait, a look at another process. The
//! search goes breadth first, so a failure is printed with a shortest way to it. Two orders of steps after which the
//! processes have the same memory (`memory.rs`) are one state.
//!
//! The relay is another process in front of treaper, whose code is left out: it can report a cancelled turn, and it can be
//! killed. `streams.rs` has its line, and stdin.
//!
//! What holds in every state is in `kernel.rs` (`breaks`):
//! - a stop comes to its end: no process of the tree is left, and shim and monitor are gone. So no process waits for news
//!   that cannot come any more. The exceptions: both were killed, or another process has suspended all of treaper.
//! - treaper exits only when the tree is empty, the shim after the monitor, and with the status of the server
//! - a request to stop is not lost, and without a reason to stop all stay
//! - SIGKILL comes when the grace period of the first reason is over, neither earlier nor later, and after the stop signal
//! - the plan on the board can be read, and none of its deadlines is moved to a later time
//! - the server gets the stop signal once from each process that stops it
//! - the shim is suspended and resumed with the server, and a suspended monitor is resumed
//! - the trigger on the board is one that has happened, and a cancel-timeout during a drain takes its place. Status 124
//!   comes with cancel-timeout, and with nothing else
//! - a relay that was killed is a reason to stop
//!
//! `tests/pair_model/seeded` puts defects into the code, one by one, and checks that each is found.
//!
//! What is left out: `--idle`, `--spare`, `--finally`, messages to a service manager, control groups, `--no-guard`, a host behind
//! launchers, the pids of other processes that are recycled, children from before treaper, calls that fail, `/proc` that
//! cannot be read, a server that reads its last input late, the wake-up that locks treaper's code in memory, what is
//! done with the terminal at the end, and Ctrl-C. A walk sees the whole tree at one instant (`tests/sim` searches the walk), the
//! tree is a server with one child, and a death is one step: the end, the new parent of the children and all signals
//! that follow. Ctrl-Z comes only once the server runs. A process of treaper is as fast as it likes, but time passes only
//! when all of them wait.
//!
//! `PAIR_MODEL=all` also searches the scenes that take most of a minute. `PAIR_MODEL=NAME` searches those whose name
//! contains NAME.
#![allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::struct_excessive_bools,
    clippy::too_many_lines,
    reason = "a test, which uses only a part of the project's files"
)]
#![allow(
    clippy::drop_non_drop,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::unnecessary_wraps,
    clippy::unused_self,
    reason = "what stands for a file of the project has its signatures"
)]

#[path = "pair_model/actor.rs"]
mod actor;
#[path = "pair_model/kernel.rs"]
mod kernel;
#[path = "pair_model/memory.rs"]
mod memory;
#[path = "pair_model/scenes.rs"]
mod scenes;
#[path = "pair_model/search.rs"]
mod search;

// A second `src`.
#[path = "pair_model/src/command.rs"]
mod command;
#[path = "pair_model/src/contain/mod.rs"]
mod contain;
#[path = "pair_model/src/job_control.rs"]
mod job_control;
#[path = "pair_model/src/origin/mod.rs"]
mod origin;
#[path = "pair_model/src/pair/mod.rs"]
mod pair;
#[path = "pair_model/src/relay/mod.rs"]
mod relay;
#[path = "pair_model/src/start.rs"]
mod start;
#[path = "pair_model/src/streams/mod.rs"]
mod streams;
#[path = "pair_model/src/sys.rs"]
mod sys;
#[path = "pair_model/src/tree/mod.rs"]
mod tree;
use treaper::{plan, settings};
mod output {
    pub use treaper::output::{error, ledger, progress, report, status};
    pub mod stderr {
        pub fn defer() {}
        pub fn write_apart() {}
        pub fn write_deferred() {}
    }
}

use std::io::Write;

use actor::Scene;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

/// The most states of one scene.
const LIMIT: usize = 20_000_000;

fn holds_in(scenes: &[Scene]) {
    let asked = std::env::var("PAIR_MODEL").unwrap_or_default();
    let (mut states, mut broken) = (0, Vec::new());
    for scene in scenes {
        let is_asked = if asked.is_empty() {
            !scene.long
        } else {
            asked == "all" || scene.name.contains(&asked)
        };
        if !is_asked {
            continue;
        }
        match search::search(scene, LIMIT) {
            Ok(count) => {
                states += count.states;
                // Not println!, whose output is hidden when a test passes.
                let _ = writeln!(
                    std::io::stderr(),
                    "pair: {}: {} states, {} steps, depth {}, {} ends, {} of its processes",
                    scene.name,
                    count.states,
                    count.steps,
                    count.depth,
                    count.ends,
                    count.lives
                );
                assert!(count.ends > 0, "{}: nothing comes to an end", scene.name);
            }
            Err(text) => broken.push(text),
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(states > 0 || !asked.is_empty(), "nothing was searched");
}

#[test]
fn the_pair_keeps_its_promises_when_it_stops() {
    holds_in(scenes::STOPS);
}

#[test]
fn the_pair_keeps_its_promises_when_one_of_it_is_killed() {
    holds_in(scenes::KILLS);
}

#[test]
fn the_pair_keeps_its_promises_when_it_is_suspended() {
    holds_in(scenes::SUSPENSIONS);
}

#[test]
fn the_pair_keeps_its_promises_at_a_terminal() {
    holds_in(scenes::TERMINALS);
}

#[test]
fn the_pair_keeps_its_promises_in_a_namespace() {
    holds_in(scenes::NAMESPACES);
}

#[test]
fn the_pair_keeps_its_promises_behind_a_relay() {
    holds_in(scenes::RELAYS);
}

#[test]
fn the_pair_keeps_its_promises_when_stdin_is_closed() {
    holds_in(scenes::DRAINS);
}

/// What a process remembers has to decide what it does: a search that takes each list of answers for a state of its own
/// must reach the same states of the kernel, and no other.
#[test]
fn what_is_taken_for_one_state_is_one() {
    for name in scenes::COMPARED {
        let mut all = scenes::ALL.into_iter().flatten();
        let scene = all.find(|scene| scene.name == name).expect(name);
        let merged = search::kernels(scene, LIMIT, true);
        assert!(merged.len() > 100, "{name}: nothing was searched");
        assert_eq!(merged, search::kernels(scene, LIMIT, false), "{name}");
    }
}

/// The one known gap, see `job_control::suspend_self`: SIGSTOP cannot be blocked. It also shows that the search finds a
/// lost resumption.
#[test]
fn a_server_that_sigstop_suspends_can_be_resumed_too_early() {
    let found = search::search(&scenes::FROZEN, LIMIT).expect_err("the gap is closed: say so");
    assert!(
        found.contains("the shim is resumed with the server"),
        "{found}"
    );
}

/// Without these links another code would be searched.
#[test]
fn the_protocol_is_that_of_the_project() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in [
        "start.rs",
        "pair/mod.rs",
        "pair/shim.rs",
        "pair/monitor.rs",
        "pair/supervisor.rs",
        "pair/supervisor/signals.rs",
        "pair/board.rs",
        "pair/link.rs",
        "job_control.rs",
        "streams/watch.rs",
        "tree/mod.rs",
        "tree/kill.rs",
        "tree/reap.rs",
    ] {
        let here = root.join("tests/pair_model/src").join(file);
        let there = here.canonicalize().expect("the file");
        let is_own = there.starts_with(root.canonicalize().expect("the root").join("src"));
        assert!(is_own, "{} is not a file of src", there.display());
    }
}
