//! No signal ever reaches a process outside of the tree, however fast pids are recycled. The PID namespace of these
//! tests has 120 pids, and assigns the lowest free one. (So there are never more processes than that.)
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test, which says how many it has tried"
)]

mod common;

use common::{ACTOR, Scene, Wrap, skip, special, sys};

// Processes that multiply come last, since they can use up all pids, and then no other process can start.
const TREE: &str = "server:ignore=TERM[b*2:daemon:ignore=TERM,\
                    c*2:setsid:ignore=TERM[d*4:setsid:ignore=TERM:breed=1,e*2:chain=1],a*3:chain=0]";
const ROUNDS: &str = "15";
/// How often the control may try.
const WORLDS: u32 = 40;

struct Counts {
    born: i64,
    reused: i64,
    hits: i64,
}

/// `None` if such a namespace is not available.
fn world(command: &[String]) -> Option<Counts> {
    if !sys::is_root() {
        skip("only root can set the next process number");
        return None;
    }
    if special::kernel() < (6, 14) {
        skip("before Linux 6.14 a small space of numbers would be the machine's");
        return None;
    }
    let before = [ACTOR, "recycle", ROUNDS, "--"].map(str::to_owned);
    let mut run = Scene::new().pidns().start(&[&before[..], command].concat());
    let done = run.log.wait("recycle", "done");
    let [born, reused, hits] = ["born", "reused", "hits"].map(|key| done.number(key));
    eprintln!("{born} outsiders, {reused} with a used number, {hits} hit");
    run.wait_empty();
    Some(Counts { born, reused, hits })
}

fn no_process_outside_is_signalled(options: &[&str], faults: &[&str]) {
    let options = [&["--grace", "10ms"], options].concat();
    let mut command = Wrap::Treaper(&options).tree(TREE);
    if !faults.is_empty() {
        let before = [&[ACTOR, "faults"], faults, &["--"]].concat();
        command.splice(0..0, before.iter().map(|&word| word.to_owned()));
    }
    none_is_signalled(&command);
}

fn none_is_signalled(command: &[String]) {
    // On a busy machine the outsiders are slow to be born, and few numbers come again.
    for _ in 0..WORLDS {
        let Some(counts) = world(command) else {
            return;
        };
        assert_eq!(counts.hits, 0, "{command:?}");
        if counts.reused > counts.born / 2 {
            return;
        }
    }
    panic!("few numbers came again");
}

#[test]
fn no_process_outside_is_signalled_with_all_that_this_kernel_offers() {
    no_process_outside_is_signalled(&[], &[]);
    no_process_outside_is_signalled(&["-k", "tree"], &[]);
    no_process_outside_is_signalled(&["--no-guard"], &[]);
}

#[test]
fn no_process_outside_is_signalled_where_the_parent_is_read_in_proc() {
    no_process_outside_is_signalled(&[], &["ioctl=ENOTTY"]);
}

#[test]
fn no_process_outside_is_signalled_without_pidfd_open() {
    no_process_outside_is_signalled(&[], &["pidfd_open=ENOSYS"]);
}

/// Then a walk closes the descriptors of the processes above, and proves these again on its way back.
#[test]
fn no_process_outside_is_signalled_with_few_descriptors() {
    let few = ["sh", "-c", "ulimit -n 10; exec \"$@\"", "sh"].map(str::to_owned);
    let command = Wrap::Treaper(&["--grace", "10ms"]).tree(TREE);
    none_is_signalled(&[&few[..], &command].concat());
}

#[test]
fn no_process_outside_is_signalled_without_lists_of_children() {
    no_process_outside_is_signalled(&[], &["open~/children=ENOENT"]);
}

#[test]
fn no_process_outside_is_signalled_when_a_group_is_killed_one_by_one() {
    if common::place::Place::new().is_none() {
        return skip("no cgroup v2 that this user may change");
    }
    no_process_outside_is_signalled(&["--contain=cgroup"], &["open~cgroup.kill=ENOENT"]);
}

#[test]
fn control_a_killer_that_trusts_numbers_signals_processes_outside() {
    let naive = [ACTOR, "naive", "--"].map(str::to_owned);
    // Only processes that such a killer does not leave behind, round after round.
    let tree = Wrap::Bare.tree("server[d*8:breed=1]");
    // On a busy machine the outsiders that it could hit are slow to be born.
    for _ in 0..WORLDS {
        let Some(counts) = world(&[&naive[..], &tree].concat()) else {
            return;
        };
        if counts.hits > 0 {
            return;
        }
    }
    panic!("the scene shows nothing");
}
