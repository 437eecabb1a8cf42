//! Every descendant is reaped, and nothing wakes treaper while nothing happens.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{Run, Scene, Wrap, hold, proc, sys, until};

const WRAPS: [Wrap; 2] = [Wrap::Treaper(&[]), Wrap::Treaper(&["--no-guard"])];

fn reaper(run: &Run, wrap: Wrap) -> i32 {
    if matches!(wrap, Wrap::Treaper([])) {
        run.monitor()
    } else {
        run.main
    }
}

fn zombies(of: i32) -> usize {
    proc::children(of)
        .iter()
        .filter(|child| !child.is_alive())
        .count()
}

#[test]
fn ten_thousand_orphans_in_bursts_are_reaped() {
    for wrap in WRAPS {
        let mut run = Scene::new().start(&wrap.tree("server:orphans=10000:on=TERM/4"));
        run.log.ready("server");
        let reaper = reaper(&run, wrap);
        until("no zombie", || zombies(reaper) == 0);
        until("only the server", || proc::children(reaper).len() == 1);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(4));
        assert_eq!(run.stderr(), "");
    }
}

#[test]
fn no_zombie_is_left_behind_while_the_server_lives() {
    for wrap in WRAPS {
        let tree = "server[gone*50:daemon:exit=0,gone*10:daemon:die=SEGV]";
        let mut run = Scene::new().start(&wrap.tree(tree));
        run.log.ready("server");
        let reaper = reaper(&run, wrap);
        until("no zombie", || proc::children(reaper).len() == 1);
    }
}

#[test]
fn zombies_of_a_server_that_does_not_wait_are_left_to_it() {
    let mut run = Scene::new().start(&Wrap::Treaper(&[]).tree("server[gone*3:exit=0]"));
    let server = run.log.ready("server");
    run.log.wait_for(3, "gone", "ready");
    until("three zombies of the server's own", || zombies(server) == 3);
}

/// The context switches of treaper's own processes while the window is open.
fn switches(run: &Run, window: Duration) -> u64 {
    let mut own = Vec::new();
    // The first leader of the server's session, a child of the reaper, has its name until it ends.
    until("treaper without a first leader", || {
        let mut found = run.survivors();
        found.retain(|p| p.comm == "treaper" || p.comm == "tree-monitor");
        own = found.iter().map(|p| p.pid).collect();
        let above = |p: &proc::Process| found.iter().find(|other| other.pid == p.ppid);
        let is_leader = |p: &proc::Process| above(p).is_some_and(|above| above.comm == p.comm);
        !own.is_empty() && !found.iter().any(is_leader)
    });
    let count = || own.iter().map(|&pid| proc::switches(pid)).sum::<u64>();
    let mut last = count();
    // The start is over when two looks see the same.
    until("a quiet start", || {
        sys::pause_for(Duration::from_millis(50));
        let now = count();
        let rests = own.iter().all(|&pid| common::is_quiet(pid));
        std::mem::replace(&mut last, now) == now && rests
    });
    let before = count();
    sys::pause_for(window);
    count() - before
}

#[test]
fn nothing_wakes_treaper_while_nothing_happens() {
    for wrap in WRAPS {
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&wrap.tree("server[worker:daemon]"));
        run.log.ready("server");
        run.log.ready("worker");
        assert_eq!(switches(&run, Duration::from_secs(2)), 0, "{wrap:?}");
    }
}

#[test]
fn nothing_wakes_treaper_while_it_waits_for_the_rest_of_the_tree() {
    for options in [&["--until=tree"][..], &["--until=tree", "--no-guard"]] {
        let tree = "server:exit=0[worker:daemon]";
        let mut run = Scene::new().start(&Wrap::Treaper(options).tree(tree));
        let server = run.log.ready("server");
        run.log.ready("worker");
        until("the end of the server", || proc::state(server) == '-');
        let woken = switches(&run, Duration::from_secs(2));
        assert_eq!(woken, 0, "{options:?}");
    }
}

#[test]
fn data_on_stdin_and_work_of_the_server_do_not_wake_treaper() {
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&WRAPS[0].tree("server:reads:echo"));
    run.log.ready("server");
    let mut out = run.take_stdout();
    switches(&run, Duration::ZERO);
    let (main, monitor) = (run.main, run.monitor());
    let before = proc::switches(main) + proc::switches(monitor);
    for _ in 0..200 {
        run.write_stdin(&[b'x'; 1000]);
        until("the echo", || {
            std::io::Read::read(&mut out, &mut [0; 4096]).is_ok_and(|n| n > 0)
        });
    }
    assert_eq!(proc::switches(main) + proc::switches(monitor) - before, 0);
}

#[test]
fn a_hung_up_stdin_does_not_spin_during_the_drain() {
    for wrap in [
        Wrap::Treaper(&["-v", "--stdin=watch", "-d", "20s"]),
        Wrap::Treaper(&["-v", "--stdin=watch", "-d", "20s", "--no-guard"]),
    ] {
        let mut run = Scene::new().stdin_pipe().start(&wrap.tree("server"));
        run.log.ready("server");
        run.close_stdin();
        until("the drain", || run.stderr().contains("stdin-eof"));
        let own = run
            .named("treaper")
            .into_iter()
            .chain(run.named("tree-monitor"));
        let own: Vec<i32> = own.map(|p| p.pid).collect();
        let count = || own.iter().map(|&pid| proc::switches(pid)).sum::<u64>();
        let before = count();
        sys::pause_for(Duration::from_millis(500));
        let woken = count() - before;
        assert!(
            woken < 60,
            "{woken} context switches in half a second of drain"
        );
    }
}

#[test]
fn neither_process_has_a_second_thread() {
    let run = Scene::new().stdin_pipe().start(&WRAPS[0].tree("server"));
    for pid in [run.main, run.monitor()] {
        assert_eq!(proc::status(pid, "Threads").as_deref(), Some("1"));
    }
}

/// More children have ended than one batch, no further SIGCHLD comes, and another signal is waiting.
#[test]
fn a_signal_that_comes_while_many_are_reaped_leaves_no_zombie() {
    let mut run = Scene::new().start(&WRAPS[0].tree("server[burst:daemon:stopped:orphans=1500]"));
    run.log.ready("server");
    let monitor = run.monitor();
    until("a burst that waits", || {
        run.named("burst").iter().any(|p| p.state == 'T')
    });
    let tracer = hold(monitor, libc::SYS_ppoll);
    sys::kill(run.named("burst")[0].pid, libc::SIGCONT).unwrap();
    run.log.wait("burst", "burst");
    until("many zombies", || zombies(monitor) >= 1500);
    sys::kill(monitor, libc::SIGWINCH).unwrap();
    drop(tracer);
    until("no zombie", || zombies(monitor) == 0);
}

#[test]
fn nothing_wakes_a_shim_that_waits_for_the_end_of_the_grace_without_its_monitor() {
    let wrap = Wrap::Treaper(&["--grace", "1h"]);
    let mut run = Scene::new().start(&wrap.tree("server:ignore=TERM"));
    run.log.ready("server");
    let monitor = run.monitor();
    sys::kill(monitor, libc::SIGKILL).unwrap();
    until("a shim alone", || run.named("tree-monitor").is_empty());
    assert_eq!(switches(&run, Duration::from_millis(300)), 0);
}
