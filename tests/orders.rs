//! The monitor's order to the shim to suspend itself as the server is: an outdated order is not obeyed.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::Write;
use std::os::fd::AsRawFd;

use common::proc::{self, Process, state};
use common::{
    ACTOR, Scene, TREAPER, Wrap, held, is_quiet, special, sys, trace, until, until_state,
};

#[test]
fn an_outdated_order_to_suspend_is_not_obeyed() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server:record"));
    let server = run.log.ready("server");
    let (shim, monitor) = (run.shim(), run.monitor());
    sys::kill(shim, libc::SIGSTOP).unwrap();
    until_state(&[shim], 'T');
    // The shim sees the order only after the server was resumed.
    sys::kill(server, libc::SIGSTOP).unwrap();
    until_state(&[server], 'T');
    until("the order", || is_quiet(monitor));
    sys::kill(server, libc::SIGCONT).unwrap();
    let signalled = run.log.wait("server", "signal");
    assert_eq!(signalled.number("sig"), i64::from(libc::SIGCONT));
    until("the end of the order", || is_quiet(monitor));
    sys::kill(shim, libc::SIGCONT).unwrap();
    until("a shim that waits", || is_quiet(shim));
    // It forwards signals, so it has not been suspended in between.
    run.signal(libc::SIGUSR1);
    until("the signal", || {
        let all = run.log.all("server", "signal");
        all.iter()
            .any(|line| line.number("sig") == i64::from(libc::SIGUSR1))
    });
}

#[test]
fn an_order_to_suspend_is_obeyed_until_the_job_is_resumed() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server:record"));
    let server = run.log.ready("server");
    let shim = run.shim();
    for round in 1..=3 {
        sys::kill(server, libc::SIGSTOP).unwrap();
        until_state(&[server, shim], 'T');
        sys::kill(shim, libc::SIGCONT).unwrap();
        run.log.wait_for(round, "server", "signal");
        until("a resumed job", || is_quiet(shim));
    }
}

/// A shell that resumes the job has moved treaper's group to the foreground. That group stays there, unless the
/// server's own group was there before.
#[test]
fn a_server_with_a_group_of_its_own_gets_no_foreground_that_it_did_not_have() {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server:pgrp:record"));
    let server = run.log.ready("server");
    let shim = run.shim();
    let front = || special::foreground_group(master.as_raw_fd());
    assert_eq!(
        (front(), proc::Process::read(server).unwrap().pgid),
        (shim, server)
    );
    sys::kill(server, libc::SIGSTOP).unwrap();
    until_state(&[server, shim], 'T');
    sys::kill(server, libc::SIGCONT).unwrap();
    sys::kill(shim, libc::SIGCONT).unwrap();
    until("a resumed job", || is_quiet(shim));
    assert_eq!(front(), shim);
}

#[test]
fn alone_it_forgets_a_suspension_after_which_the_server_was_resumed() {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&["--no-guard"]).tree("server:record"));
    let server = run.log.ready("server");
    let main = run.main;
    sys::kill(server, libc::SIGSTOP).unwrap();
    until_state(&[server], 'T');
    until("a treaper that knows it", || is_quiet(main));
    sys::kill(server, libc::SIGCONT).unwrap();
    run.log.wait("server", "signal");
    until("a treaper that knows that, too", || is_quiet(main));
    // The server gets a signal to suspend itself, and does not obey.
    std::fs::File::from(master.try_clone().unwrap())
        .write_all(&[26])
        .unwrap();
    run.log.wait_for(2, "server", "signal");
    run.signal(libc::SIGUSR1);
    let signalled = run.log.wait_for(3, "server", "signal");
    let signalled: Vec<_> = signalled
        .iter()
        .map(|line| line.number("sig") as i32)
        .collect();
    assert_eq!(signalled, [libc::SIGCONT, libc::SIGTSTP, libc::SIGUSR1]);
}

#[test]
fn alone_it_is_suspended_with_a_server_that_another_process_suspends() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&["--no-guard"]).tree("server"));
    let server = run.log.ready("server");
    let main = run.main;
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        sys::kill(server, signal).unwrap();
        until_state(&[server, main], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until_state(&[server, main], 'S');
    }
}

/// The shim has looked at the order, and is about to suspend itself. Its own SIGTSTP removes the SIGCONT that comes in
/// between.
#[test]
fn an_order_to_suspend_that_is_withdrawn_meanwhile_is_not_obeyed() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server"));
    let server = run.log.ready("server");
    let (shim, monitor) = (run.shim(), run.monitor());
    until("a pair that waits", || is_quiet(shim) && is_quiet(monitor));
    let mut tracer = trace(shim, libc::SYS_kill);
    sys::kill(server, libc::SIGTSTP).unwrap();
    held(&mut tracer);
    sys::kill(server, libc::SIGCONT).unwrap();
    until_state(&[server], 'S');
    until("the end of the order", || is_quiet(monitor));
    drop(tracer);
    until("a shim that waits", || is_quiet(shim));
}

#[test]
fn with_the_name_dumb_init_the_shim_is_suspended_after_the_server() {
    let script = "exec -a dumb-init \"$0\" \"$@\"";
    let words = ["bash", "-c", script, TREAPER, ACTOR, "tree", "server"];
    let mut run = Scene::new().start(&words);
    let server = run.log.ready("server");
    let monitor = run.monitor();
    run.signal(libc::SIGTSTP);
    until_state(&[run.main, server], 'T');
    until("a monitor that waits", || is_quiet(monitor));
    run.signal(libc::SIGCONT);
    until_state(&[run.main, server], 'S');
}

/// A shell has suspended the job, and resumes it.
#[test]
fn an_orphan_that_ends_does_not_resume_a_suspended_shim() {
    let mut run = Scene::new().start(&Wrap::Treaper(&[]).tree("server[worker:daemon]"));
    let worker = run.log.ready("worker");
    run.log.ready("server");
    let (shim, monitor) = (run.shim(), run.monitor());
    sys::kill(shim, libc::SIGSTOP).unwrap();
    until_state(&[shim], 'T');
    sys::kill(worker, libc::SIGKILL).unwrap();
    until("an orphan that was reaped", || {
        Process::read(worker).is_none() && is_quiet(monitor)
    });
    assert_eq!(state(shim), 'T');
}
