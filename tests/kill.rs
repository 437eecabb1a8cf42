//! Signalling the server, the rest of the tree, and all of it: which process gets which signal how often, and what is
//! logged.
//!
//! Each scene is played in a PID namespace of its own, whose first process is the tree. The others record which
//! signals they get. The logger acts in the middle of a walk, at a message of that walk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::family::{
    Cell, cell, child, end, gone, is_set, kill, live, live_and_reap, number_next, play, play_with,
};
use common::{proc, skip, special, sys, until, until_state};
use treaper::contain::{Containment, Level};
use treaper::sys::clock;
use treaper::sys::clone::Spawned;
use treaper::sys::pid::Pid;
use treaper::sys::prctl;
use treaper::sys::signal::Signal;
use treaper::sys::startup::Standing;
use treaper::sys::wait::Ended;
use treaper::tree::spare::Spare;
use treaper::tree::{Server, StopSent, Tree};

/// The recorded signal that arrives last, if all are pending.
const MARK: i32 = libc::SIGWINCH;
const RECORDED: [i32; 3] = [libc::SIGTERM, libc::SIGCONT, MARK];

/// A process that records which signals it gets.
struct Recorder {
    pid: i32,
    counts: [Cell; 3],
}

impl Recorder {
    /// A child of the calling process, which may itself be a fork of the tree.
    fn start(pid: Cell, counts: [Cell; 3], first: impl FnOnce()) -> i32 {
        sys::mask(libc::SIG_BLOCK, &RECORDED);
        child(Some(pid), || {
            first();
            loop {
                let taken = sys::take_signal(&RECORDED, Duration::from_secs(60));
                let place = RECORDED
                    .iter()
                    .position(|n| taken.is_some_and(|t| t.0 == *n));
                if let Some(place) = place {
                    counts[place].fetch_add(1, SeqCst);
                }
            }
        })
    }

    /// A child of this process, which does this `first`.
    fn new(first: impl FnOnce()) -> Recorder {
        let counts = [(); 3].map(|()| cell());
        let pid = Recorder::start(cell(), counts, first);
        Recorder { pid, counts }
    }

    /// How often the stop signal and SIGCONT came.
    fn got(&self) -> [i64; 2] {
        let marks = self.counts[2].load(SeqCst);
        sys::kill(self.pid, MARK).unwrap();
        until("the mark", || self.counts[2].load(SeqCst) > marks);
        [self.counts[0].load(SeqCst), self.counts[1].load(SeqCst)]
    }
}

/// A recorder that starts a deeper one, which does this `first`.
fn recorder_above(outer_first: impl FnOnce(), inner_first: impl FnOnce()) -> [Recorder; 2] {
    let (pid, counts) = (cell(), [(); 3].map(|()| cell()));
    let outer = Recorder::new(|| {
        outer_first();
        Recorder::start(pid, counts, inner_first);
    });
    let pid = is_set(pid);
    [outer, Recorder { pid, counts }]
}

fn suspend(pid: i32) {
    sys::kill(pid, libc::SIGSTOP).unwrap();
    until_state(&[pid], 'T');
}

fn server(pid: i32, leads_group: bool) -> Server {
    let spawned = Spawned {
        pid: Pid::new(pid).unwrap(),
        pidfd: sys::pidfd(pid).ok(),
        leader: None,
    };
    let standing = if leads_group {
        Standing::LeadsSession
    } else {
        Standing::InJob
    };
    Server::new(spawned, standing)
}

fn tree(server: Option<Server>, containment: Containment) -> Tree {
    Tree::new(server, Vec::new(), containment)
}

fn tree_of(server: Server) -> Tree {
    tree(Some(server), Containment::Group)
}

fn tree_in_namespace(server: Server) -> Tree {
    tree(Some(server), Containment::Pidns)
}

/// One more process of the tree ends, and is reaped.
fn reap_one_more(tree: &mut Tree) {
    let one = child(None, live);
    kill(one);
    until("it is reaped", || {
        let mut reaped = false;
        tree.reap(&mut |pid, _, _| reaped |= pid == one);
        reaped
    });
}

fn tree_without_server() -> Tree {
    tree(None, Containment::Group)
}

type Hook = Option<Box<dyn FnMut(&str) + Send>>;

/// Keeps what is logged, and calls the hook with each line.
struct Said {
    lines: Mutex<Vec<String>>,
    hook: Mutex<Hook>,
}

static SAID: Said = Said {
    lines: Mutex::new(Vec::new()),
    hook: Mutex::new(None),
};

impl log::Log for Said {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        let line = format!("{} {}", record.level(), record.args());
        if let Some(hook) = self.hook.lock().unwrap().as_mut() {
            hook(&line);
        }
        self.lines.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

fn listen() {
    log::set_logger(&SAID).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
}

/// The lines that were logged since the last call.
fn logged() -> Vec<String> {
    std::mem::take(&mut *SAID.lines.lock().unwrap())
}

/// How many of the lines contain this.
fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

/// Calls `act` at the first message with `text`.
fn at_message(text: String, mut act: impl FnMut() + Send + 'static) {
    let mut done = false;
    *SAID.hook.lock().unwrap() = Some(Box::new(move |line| {
        if !done && line.contains(&text) {
            done = true;
            act();
        }
    }));
}

/// Plays a scene that has to start another uid.
fn play_as_root(scene: &str) {
    if sys::is_root() {
        play(scene);
    } else {
        skip("only root can start another uid");
    }
}

#[test]
fn the_server_is_signalled_while_it_is_there_and_gets_the_stop_signal_once() {
    play("scene_server");
}

#[test]
#[ignore = "a scene"]
fn scene_server() {
    let it = Recorder::new(|| {});
    let mut tree = tree_of(server(it.pid, false));
    tree.signal_server(Signal::CONT, None);
    assert_eq!(it.got(), [0, 1]);
    assert_eq!(tree.living_server(), Pid::new(it.pid));
    assert!(!tree.has_sent_stop());
    for _ in 0..2 {
        assert!(tree.stop_server(Signal::TERM));
        assert!(tree.ensure_server_stop(Signal::TERM));
        assert!(tree.has_sent_stop());
        // SIGCONT only if it is suspended.
        assert_eq!(it.got(), [1, 1]);
    }
    // Its number may be that of another process now.
    let mut gone = server(it.pid, false);
    gone.reaped = true;
    let mut tree = tree_of(gone);
    tree.signal_server(Signal::CONT, None);
    assert!(!tree.stop_server(Signal::TERM));
    assert!(!tree.ensure_server_stop(Signal::TERM));
    assert!(!tree.has_sent_stop());
    assert_eq!(tree.living_server(), None);
    assert_eq!(it.got(), [1, 1]);
}

#[test]
fn a_signal_of_the_kernel_counts_unless_the_server_cannot_have_handled_it() {
    play("scene_signalled_by_the_kernel");
}

/// What a server gets that the kernel seems to have signalled at the end of the monitor.
fn signalled_by_the_kernel(it: &Recorder, suspended: Option<bool>) -> [i64; 2] {
    let mut server = server(it.pid, false);
    server.stop_sent = StopSent::PerhapsByKernel;
    server.suspended = suspended;
    let before = it.got();
    let mut tree = tree_of(server);
    assert!(tree.stop_server(Signal::TERM));
    let after = it.got();
    let got = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(tree.has_sent_stop(), got[0] == 1);
    // Asked for it in any case.
    assert!(tree.ensure_server_stop(Signal::TERM));
    assert_eq!(it.got()[0], before[0] + 1);
    got
}

#[test]
#[ignore = "a scene"]
fn scene_signalled_by_the_kernel() {
    let it = Recorder::new(|| {});
    assert_eq!(signalled_by_the_kernel(&it, Some(false)), [0, 0]);
    assert_eq!(signalled_by_the_kernel(&it, None), [0, 0]);
    assert_eq!(
        signalled_by_the_kernel(&it, Some(true)),
        [1, 1],
        "remembered"
    );

    for taken in [false, true] {
        let it = Recorder::new(|| {});
        it.got();
        suspend(it.pid);
        if taken {
            assert!(matches!(
                sys::wait(libc::WUNTRACED),
                sys::Waited::Status(..)
            ));
        }
        let mut server = server(it.pid, false);
        server.stop_sent = StopSent::PerhapsByKernel;
        server.suspended = if taken { None } else { Some(false) };
        assert!(tree_of(server).stop_server(Signal::TERM));
        assert_eq!(it.got(), [1, 1], "{taken}");
    }
}

#[test]
fn a_server_of_another_owner_has_no_signal_of_the_kernel() {
    play_as_root("scene_other_owner");
}

#[test]
#[ignore = "a scene"]
fn scene_other_owner() {
    let it = Recorder::new(|| special::become_uid(65534).unwrap());
    it.got();
    assert_eq!(signalled_by_the_kernel(&it, Some(false)), [1, 0]);
}

#[test]
fn the_rest_gets_the_stop_signal_once_and_the_server_and_strangers_do_not() {
    play("scene_rest");
}

#[test]
#[ignore = "a scene"]
fn scene_rest() {
    listen();
    let main = Recorder::new(sys::setpgid);
    main.got();
    let [near, far] = recorder_above(|| {}, || {});
    let [stranger, below] = recorder_above(|| {}, || {});
    // In the group of the server, which is alive, and would get the signal a second time.
    let mut tree = tree_of(server(main.pid, true));
    tree.strangers = vec![stranger.pid];
    tree.stop_rest(Signal::TERM);
    assert_eq!(tree.continues_at(), None);
    let lines = logged();
    assert_eq!(
        count(&lines, "to the rest of the tree: 2 processes"),
        1,
        "{lines:#?}"
    );
    let each = format!("DEBUG SIGTERM to pid {}: done", near.pid);
    assert_eq!(count(&lines, &each), 1, "{lines:#?}");
    let later = Recorder::new(|| {});
    tree.stop_rest(Signal::TERM);
    let lines = logged();
    assert!(
        lines.iter().any(|line| line.ends_with("tree: 1 process")),
        "{lines:#?}"
    );
    tree.stop_rest(Signal::TERM);
    assert_eq!(count(&logged(), "tree: 0 processes"), 1);
    for process in [&near, &far, &later] {
        assert_eq!(process.got(), [1, 1]);
    }
    for other in [&main, &stranger, &below] {
        assert_eq!(other.got(), [0, 0]);
    }
    // No process has to be resumed.
    tree.continue_stop();
    assert_eq!(count(&logged(), "rest of the tree"), 0);
}

/// A server that is gone, with a member of its group, a process below that one outside of the group, and another one.
struct Group {
    tree: Tree,
    member: Recorder,
    deep: Recorder,
    outside: Recorder,
}

fn group() -> Group {
    let cells = || (cell(), [(); 3].map(|()| cell()));
    let ((pid, counts), (deep_pid, deep_counts)) = (cells(), cells());
    let leader = child(None, || {
        sys::setpgid();
        Recorder::start(pid, counts, || {
            Recorder::start(deep_pid, deep_counts, sys::setsid);
        });
        live();
    });
    let member = Recorder {
        pid: is_set(pid),
        counts,
    };
    let deep = Recorder {
        pid: is_set(deep_pid),
        counts: deep_counts,
    };
    let outside = Recorder::new(sys::setpgid);
    for each in [&member, &deep, &outside] {
        assert_eq!(each.got(), [0, 0]);
    }
    let mut server = server(leader, true);
    kill(leader);
    sys::wait_for(leader);
    server.reaped = true;
    Group {
        tree: tree_of(server),
        member,
        deep,
        outside,
    }
}

#[test]
fn one_call_signals_the_group_of_a_server_that_is_gone_and_others_get_it_later() {
    if special::kernel() < (6, 9) {
        return skip("before Linux 6.9 the group of a process that is gone cannot be signalled");
    }
    play("scene_group");
}

const QUIET: Duration = Duration::from_millis(2);
const FIRST_STEP: Duration = Duration::from_millis(75);

#[test]
#[ignore = "a scene"]
fn scene_group() {
    listen();
    // The first step lasts for 75 ms at most. A machine may be too slow to see that at once.
    loop {
        let Group {
            mut tree,
            member,
            deep,
            outside,
        } = group();
        let before = clock::now();
        tree.stop_rest(Signal::TERM);
        assert!(tree.continues_at().unwrap() >= before + QUIET);
        for process in [&member, &outside] {
            assert_eq!(process.got(), [1, 1]);
        }
        assert_eq!(deep.got(), [0, 0], "not yet");
        let lines = logged();
        assert_eq!(
            count(&lines, "sent SIGTERM to the server's process group"),
            1
        );
        assert_eq!(
            count(&lines, "rest of the tree: 1 process"),
            1,
            "{lines:#?}"
        );
        // More have ended since, so there is no walk yet.
        reap_one_more(&mut tree);
        let again = clock::now();
        tree.continue_stop();
        let in_time = clock::now() < before + FIRST_STEP;
        let next = tree.continues_at();
        // None has ended since.
        tree.continue_stop();
        assert_eq!(tree.continues_at(), None);
        assert_eq!(deep.got(), [1, 1]);
        for process in [&member, &outside] {
            assert_eq!(process.got(), [1, 1], "once");
        }
        if in_time {
            assert!(next.unwrap() >= again + QUIET);
            break;
        }
    }
    // The walk comes soon.
    let Group {
        mut tree,
        member,
        deep,
        ..
    } = group();
    tree.stop_rest(Signal::TERM);
    let end = clock::now() + FIRST_STEP;
    until("the end of the first step", || clock::now() > end);
    reap_one_more(&mut tree);
    tree.continue_stop();
    assert_eq!(tree.continues_at(), None);
    assert_eq!((member.got(), deep.got()), ([1, 1], [1, 1]));
    // SIGKILL makes the second step needless.
    let Group { mut tree, .. } = group();
    tree.stop_rest(Signal::TERM);
    assert!(tree.continues_at().is_some());
    tree.kill_round();
    assert_eq!(tree.continues_at(), None);
}

#[test]
fn a_group_with_the_recycled_number_of_the_server_is_not_signalled() {
    play("scene_reused_group");
}

#[test]
#[ignore = "a scene"]
fn scene_reused_group() {
    let leader = child(None, live);
    let mut gone = server(leader, true);
    kill(leader);
    sys::wait_for(leader);
    gone.reaped = true;
    number_next(leader);
    let stranger = Recorder::new(sys::setpgid);
    assert_eq!((stranger.pid, stranger.got()), (leader, [0, 0]));
    for pidfd in [gone.pidfd.take(), None] {
        let mut tree = tree_of(Server {
            pidfd,
            ..server(leader, true)
        });
        tree.strangers = vec![stranger.pid];
        tree.server.as_mut().unwrap().reaped = true;
        tree.stop_rest(Signal::TERM);
        tree.signal_group(Signal::TERM);
        tree.kill_round();
        assert_eq!(stranger.got(), [0, 0]);
    }
}

#[test]
fn a_signal_goes_to_members_of_the_servers_group_in_the_tree_or_to_the_whole_tree() {
    play("scene_group_and_tree");
}

#[test]
#[ignore = "a scene"]
fn scene_group_and_tree() {
    // This process is in the group as well, and so is a stranger.
    let [main, near] = recorder_above(|| {}, || {});
    let (other, stranger) = (Recorder::new(sys::setpgid), Recorder::new(|| {}));
    let all = [&main, &near, &other, &stranger];
    assert_eq!(all.map(Recorder::got), [[0, 0]; 4]);
    let mut tree = tree_of(server(main.pid, false));
    tree.strangers = vec![stranger.pid];
    tree.signal_group(Signal::CONT);
    assert_eq!(all.map(Recorder::got), [[0, 1], [0, 1], [0, 0], [0, 0]]);
    tree.signal_tree(Signal::TERM);
    assert_eq!(all.map(Recorder::got), [[1, 1], [1, 1], [1, 0], [0, 0]]);
    end(&[main.pid, other.pid, stranger.pid]);

    for pidfd in [true, false] {
        let [main, near] = recorder_above(sys::setpgid, || {});
        let far = Recorder::new(|| {});
        assert_eq!([&main, &near, &far].map(Recorder::got), [[0, 0]; 3]);
        let mut server = server(main.pid, true);
        server.pidfd = server.pidfd.filter(|_| pidfd);
        let mut tree = tree_of(server);
        tree.signal_group(Signal::TERM);
        assert_eq!(
            [&main, &near, &far].map(Recorder::got),
            [[1, 0], [1, 0], [0, 0]]
        );
        end(&[main.pid, far.pid]);
    }
}

#[test]
fn a_round_of_sigkill_meets_each_process_and_says_whether_one_was_new() {
    play("scene_kill_round");
}

#[test]
#[ignore = "a scene"]
fn scene_kill_round() {
    listen();
    let pids = [(); 5].map(|()| child(None, live));
    let stranger = child(None, live);
    let mut tree = tree_without_server();
    tree.strangers = vec![stranger];
    assert!(tree.kill_round());
    assert!(tree.sigkill.since.is_some());
    // As many as a message lists, and no stranger.
    let victims: Vec<i32> = tree
        .sigkill
        .victims
        .first
        .iter()
        .map(|victim| victim.unwrap().0.get())
        .collect();
    assert!(victims.iter().all(|pid| pids.contains(pid)), "{victims:?}");
    let lines = logged();
    for pid in pids {
        until("its end", || !proc::Process::read(pid).unwrap().is_alive());
        let each = format!("DEBUG SIGKILL to pid {pid}: done");
        assert_eq!(count(&lines, &each), 1, "{lines:#?}");
    }
    assert!(!tree.kill_round(), "no process is new");
    assert_eq!(count(&logged(), "SIGKILL to pid"), 0);
    assert!(proc::Process::read(stranger).unwrap().is_alive());
    let later = child(None, live);
    assert!(tree.kill_round());
    assert_eq!(
        count(&logged(), &format!("SIGKILL to pid {later}: done")),
        1
    );
}

#[test]
fn living_processes_are_counted_and_listed_and_dead_ones_only_if_none_lives() {
    play("scene_living");
}

#[test]
#[ignore = "a scene"]
fn scene_living() {
    listen();
    let pids = [(); 6].map(|()| child(None, live));
    let dead = child(None, || {});
    until("its end", || !proc::Process::read(dead).unwrap().is_alive());
    let mut tree = tree_without_server();
    for left in [6, 3] {
        let living = tree.living();
        assert_eq!(living.count, left);
        let named = living.first.iter().flatten();
        let named: Vec<i32> = named.map(|(pid, _)| pid.get()).collect();
        assert_eq!(named.len(), left.min(4));
        assert!(named.iter().all(|pid| pids.contains(pid)));
        logged();
        tree.name_survivors();
        let lines = logged();
        assert_eq!(count_all(&lines), (left, left), "{lines:#?}");
        for &pid in &pids[..3] {
            kill(pid);
            until("its end", || !proc::Process::read(pid).unwrap().is_alive());
        }
    }
    for &pid in &pids {
        kill(pid);
        until("its end", || !proc::Process::read(pid).unwrap().is_alive());
    }
    assert_eq!(tree.living().count, 0);
    tree.name_survivors();
    let lines = logged();
    assert_eq!(
        (count_all(&lines).0, count(&lines, "state Z, uid ")),
        (7, 7),
        "{lines:#?}"
    );
    while !matches!(sys::wait(libc::WNOHANG), sys::Waited::NoChildren) {}
    tree.name_survivors();
    assert_eq!(
        logged(),
        ["ERROR some processes could not be killed; treaper cannot see which"]
    );
}

/// How many are listed as survivors, and how many of them live.
fn count_all(lines: &[String]) -> (usize, usize) {
    let living = lines.iter().filter(|line| !line.contains("state Z"));
    let living = living.filter(|line| line.contains("ERROR survivor: pid "));
    (count(lines, "ERROR survivor: pid "), living.count())
}

#[test]
fn where_proc_is_foreign_survivors_have_no_names_but_are_counted() {
    play_with("scene_foreign", &[]);
}

#[test]
#[ignore = "a scene"]
fn scene_foreign() {
    listen();
    let [alive, dead] = [child(None, live), child(None, || {})];
    let pidfd = sys::pidfd(dead).unwrap();
    let deadline = Some(common::patience());
    sys::poll(&[(pidfd.as_raw_fd(), libc::POLLIN)], deadline);
    let mut tree = tree_without_server();
    // It is not looked up which of them are dead.
    assert_eq!(tree.living().count, 2);
    let lines = logged();
    assert_eq!(count(&lines, "WARN /proc cannot be used"), 1, "{lines:#?}");
    tree.name_survivors();
    assert_eq!(
        logged(),
        [format!("ERROR survivor: pid {alive} '?', state ?, uid ?")]
    );
}

#[test]
fn a_signal_that_is_not_permitted_is_logged_once_for_each_except_sigkill() {
    play_as_root("scene_not_permitted");
}

#[test]
#[ignore = "a scene"]
fn scene_not_permitted() {
    listen();
    let pid = child(None, live);
    special::become_uid(65534).unwrap();
    let mut tree = tree_without_server();
    tree.stop_rest(Signal::TERM);
    let lines = logged();
    let text = format!("WARN cannot send SIGTERM to pid {pid}: not permitted");
    assert_eq!(count(&lines, &text), 1, "{lines:#?}");
    tree.kill_round();
    let lines = logged();
    let text = format!("DEBUG SIGKILL to pid {pid}: not permitted");
    assert_eq!(
        (count(&lines, &text), count(&lines, "WARN")),
        (1, 0),
        "{lines:#?}"
    );
}

#[test]
fn an_orphan_that_a_walk_has_missed_gets_the_stop_signal_by_the_next_one() {
    play("scene_handed_over");
}

#[test]
#[ignore = "a scene"]
fn scene_handed_over() {
    listen();
    let (near, far, counts) = (cell(), cell(), [(); 3].map(|()| cell()));
    child(None, || {
        child(Some(near), || {
            Recorder::start(far, counts, || {});
            live();
        });
        live_and_reap();
    });
    let (near, far) = (
        is_set(near),
        Recorder {
            pid: is_set(far),
            counts,
        },
    );
    assert_eq!(far.got(), [0, 0]);
    let main = child(None, live);
    // The youngest child is visited first.
    let other = child(None, live);
    at_message(format!("SIGCONT to pid {other}"), move || {
        kill(near);
        gone(near);
    });
    tree_of(server(main, false)).stop_rest(Signal::TERM);
    assert_eq!(far.got(), [1, 1]);
}

#[test]
fn where_proc_is_foreign_a_member_of_the_group_gets_the_stop_signal_once_as_well() {
    if special::kernel() < (6, 9) {
        return skip("before Linux 6.9 the group of a process that is gone cannot be signalled");
    }
    play_with("scene_foreign_group", &[]);
}

#[test]
#[ignore = "a scene"]
fn scene_foreign_group() {
    listen();
    let Group {
        mut tree,
        member,
        outside,
        ..
    } = group();
    tree.stop_rest(Signal::TERM);
    for each in [&member, &outside] {
        assert_eq!(each.got(), [1, 1]);
    }
    tree.continue_stop();
    for each in [&member, &outside] {
        assert_eq!(each.got(), [1, 1], "once");
    }
    tree.kill_round();
}

#[test]
fn without_a_group_the_children_of_treaper_get_the_stop_signal_first_and_the_others_after_them() {
    play("scene_first_step");
}

#[test]
#[ignore = "a scene"]
fn scene_first_step() {
    listen();
    for namespace in [false, true] {
        let [near, far] = recorder_above(|| {}, || {});
        let others = [(); 20].map(|()| child(None, live));
        let leader = child(None, live);
        let mut tree = if namespace {
            tree_in_namespace(server(leader, false))
        } else {
            tree_of(server(leader, false))
        };
        kill(leader);
        sys::wait_for(leader);
        tree.server.as_mut().unwrap().reaped = true;
        let mut cost = |act: fn(&mut Tree)| {
            let before = reads();
            act(&mut tree);
            reads() - before
        };
        let walk = cost(|tree| {
            let _ = tree.living();
        });
        let first_step = cost(|tree| tree.stop_rest(Signal::TERM));
        // It reads the list of the children, and nothing of each of them.
        assert!(first_step < walk / 2, "{first_step} and {walk} reads");
        assert_eq!((near.got(), far.got()), ([1, 1], [0, 0]));
        tree.continue_stop();
        assert_eq!(tree.continues_at(), None);
        assert_eq!((near.got(), far.got()), ([1, 1], [1, 1]));
        tree.kill_round();
        end(&others);
    }
}

#[test]
fn in_a_namespace_a_process_born_during_the_walk_gets_the_stop_signal_too() {
    play("scene_namespace");
}

#[test]
#[ignore = "a scene"]
fn scene_namespace() {
    static BORN: AtomicBool = AtomicBool::new(false);
    listen();
    let (pid, counts) = (cell(), [(); 3].map(|()| cell()));
    let main = child(None, live);
    let hole = child(None, live);
    let other = child(None, live);
    kill(hole);
    sys::wait_for(hole);
    // It gets a pid that the walk of the list has passed already.
    at_message(format!("SIGCONT to pid {other}"), move || {
        number_next(hole);
        assert_eq!(Recorder::start(pid, counts, || {}), hole);
        BORN.store(true, SeqCst);
    });
    let mut tree = tree_in_namespace(server(main, false));
    tree.stop_rest(Signal::TERM);
    assert!(BORN.load(SeqCst));
    let later = Recorder {
        pid: is_set(pid),
        counts,
    };
    assert_eq!(later.got(), [1, 1]);
}

#[test]
fn a_quiet_tree_is_walked_once() {
    play("scene_quiet");
}

/// How many reads this process has made by now.
fn reads() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counts.lines().find(|line| line.starts_with("syscr:"));
    line.unwrap()[6..].trim().parse().unwrap()
}

#[test]
#[ignore = "a scene"]
fn scene_quiet() {
    let pids = [(); 5].map(|()| child(None, live));
    let server = || server(pids[0], false);
    for mut tree in [tree_of(server()), tree_in_namespace(server())] {
        let mut cost = |act: fn(&mut Tree)| {
            let before = reads();
            act(&mut tree);
            reads() - before
        };
        // One walk, and one more look at the children.
        let once = cost(|tree| tree.signal_tree(Signal::CONT));
        let stop = cost(|tree| tree.stop_rest(Signal::TERM));
        let again = cost(|tree| tree.stop_rest(Signal::TERM));
        assert!(
            stop.max(again) <= 2 * once,
            "{once} reads, then {stop} and {again}"
        );
    }
    end(&pids);
}

/// A monitor that was held and killed, but cannot end yet, is no process that `--spare` leaves.
#[test]
fn what_is_below_an_ending_monitor_is_not_spared() {
    play("scene_below_an_ending_monitor");
}

#[test]
#[ignore = "a scene"]
fn scene_below_an_ending_monitor() {
    let (above, below) = (cell(), cell());
    // Not as PID 1, which can spare nothing.
    child(None, || {
        prctl::become_subreaper().unwrap();
        let [monitor, leader] = recorder_above(|| {}, sys::setsid);
        let mut tree = tree_without_server();
        tree.ending_init = Pid::new(monitor.pid);
        let names = Box::leak(Box::new([OsString::from("a-daemon")]));
        tree.spare = Spare::prepare(names, Level::Group).unwrap();
        tree.signal_tree(Signal::TERM);
        above.store(1 + monitor.got()[0], SeqCst);
        below.store(1 + leader.got()[0], SeqCst);
        live();
    });
    assert_eq!((is_set(above), is_set(below)), (1, 2));
}

#[test]
fn the_end_of_an_ending_init_is_the_end_of_its_server() {
    play("scene_ending_init");
}

/// The kernel has killed the server with the rest of the namespace, and its own status is known to that init alone.
#[test]
#[ignore = "a scene"]
fn scene_ending_init() {
    let init = child(None, live);
    let mut tree = tree_without_server();
    tree.ending_init = Pid::new(init);
    kill(init);
    let (mut server, mut told) = (None, None);
    until("the init is reaped", || {
        let mut each = |_, ended, is_server| told = told.or(Some(ended).filter(|_| is_server));
        server = tree.reap(&mut each).server;
        server.is_some()
    });
    let killed = Some(Ended::Killed(Signal::KILL.number()));
    assert_eq!((server, told), (killed, killed));
}
