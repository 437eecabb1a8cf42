//! The monitor's order to the shim to be suspended as the server is: one that is out of date is not obeyed.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::proc::{self, Process};
use common::{Scene, Wrap, sys, until};

fn state(pid: i32) -> char {
    Process::read(pid).map_or('X', |process| process.state)
}

/// Whether it has taken every signal, and waits for the next one.
fn is_quiet(pid: i32) -> bool {
    proc::status(pid, "ShdPnd").as_deref() == Some("0000000000000000") && state(pid) == 'S'
}

#[test]
fn an_order_to_be_suspended_that_is_out_of_date_is_not_obeyed() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server:record"));
    let server = run.log.ready("server");
    let (shim, monitor) = (run.shim(), run.monitor());
    sys::kill(shim, libc::SIGSTOP).unwrap();
    until("a suspended shim", || state(shim) == 'T');
    // The shim does not see the order before the server has gone on.
    sys::kill(server, libc::SIGSTOP).unwrap();
    until("a suspended server", || state(server) == 'T');
    until("the order", || is_quiet(monitor));
    sys::kill(server, libc::SIGCONT).unwrap();
    let told = run.log.wait("server", "signal");
    assert_eq!(told.number("sig"), i64::from(libc::SIGCONT));
    until("the end of the order", || is_quiet(monitor));
    sys::kill(shim, libc::SIGCONT).unwrap();
    until("a shim that waits", || is_quiet(shim));
    // It hands signals on, so it has not been suspended in between.
    run.signal(libc::SIGUSR1);
    until("the signal", || {
        let all = run.log.all("server", "signal");
        all.iter()
            .any(|line| line.number("sig") == i64::from(libc::SIGUSR1))
    });
}

#[test]
fn an_order_to_be_suspended_that_stands_is_obeyed_and_taken_back_with_the_job() {
    let (scene, _master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(&[]).tree("server:record"));
    let server = run.log.ready("server");
    let shim = run.shim();
    for round in 1..=3 {
        sys::kill(server, libc::SIGSTOP).unwrap();
        until("a job that is suspended", || {
            state(server) == 'T' && state(shim) == 'T'
        });
        sys::kill(shim, libc::SIGCONT).unwrap();
        run.log.wait_for(round, "server", "signal");
        until("a job that goes on", || is_quiet(shim));
    }
}
