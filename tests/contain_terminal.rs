//! `--contain=pidns` on a terminal: job control, interrupts and hang-up are as without it.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::proc::Process;
use common::{Run, Scene, Wrap, sys, until};

const PIDNS: Wrap = Wrap::Treaper(&["--contain=pidns", "--grace", "300ms"]);

fn start(tree: &str) -> (Run, OwnedFd) {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&PIDNS.tree(tree));
    run.log.ready("server");
    (run, master)
}

fn press(master: &OwnedFd, key: u8) {
    let mut keyboard = File::from(master.try_clone().unwrap());
    keyboard.write_all(&[key]).unwrap();
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_server_once() {
    let (mut run, master) = start("server:record");
    press(&master, 3);
    run.log.wait("server", "signal");
    press(&master, 28);
    run.log.wait_for(2, "server", "signal");
    run.log
        .comes_within(Duration::from_millis(100), "server", "never");
    let told = run.log.all("server", "signal");
    let numbers: Vec<_> = told.iter().map(|line| line.number("sig")).collect();
    assert_eq!(numbers, [2, 3], "{told:#?}");
}

#[test]
fn the_job_is_suspended_and_resumed_as_one() {
    let (mut run, master) = start("server");
    let server = run.named("server")[0].pid;
    let main = run.main;
    let state = |pid| Process::read(pid).map_or('-', |p| p.state);
    for _ in 0..2 {
        press(&master, 26);
        until("a suspended job", || {
            state(main) == 'T' && state(server) == 'T'
        });
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until("a resumed job", || {
            state(main) == 'S' && state(server) == 'S'
        });
    }
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn a_server_in_the_foreground_can_read_the_keyboard() {
    let (mut run, master) = start("server:eof=6");
    for key in [b'x', b'\n', 4] {
        press(&master, key);
    }
    assert_eq!(run.wait_clean().code(), Some(6));
    assert_eq!(run.log.wait("server", "eof").number("bytes"), 2);
}

#[test]
fn a_terminal_that_hangs_up_ends_the_tree() {
    let (mut run, master) = start("server:ignore=HUP+TERM[worker:setsid:ignore=HUP+TERM]");
    run.log.ready("worker");
    drop(master);
    run.wait_clean();
}

#[test]
fn a_kill_of_the_whole_job_leaves_nothing() {
    let (mut run, _master) = start("server:ignore=HUP+TERM[worker:setsid:ignore=HUP+TERM]");
    run.log.ready("worker");
    sys::kill_group(run.main, libc::SIGKILL).unwrap();
    run.wait_empty();
}
