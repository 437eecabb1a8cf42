//! The exit status of treaper is that of the server.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::{Command, Stdio};

use treaper::sys::wait::Ended;

use common::{ACTOR, Scene, TREAPER, Wrap, signals, sys};

/// Without an arena: no process is left in these tests, and each status needs a start of its own.
fn code(options: &[&str], command: &[&str]) -> Option<i32> {
    sys::leave_terminal();
    let status = Command::new(TREAPER)
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    status.code()
}

#[test]
fn every_exit_code_is_passed_on() {
    for number in 0..=255 {
        assert_eq!(
            code(&[], &[ACTOR, "exit", &number.to_string()]),
            Some(number)
        );
    }
}

#[test]
fn a_server_ended_by_a_signal_is_128_more_for_every_signal() {
    for signal in signals::ending() {
        let tree = format!("server:die={signal}");
        assert_eq!(
            code(&[], &[ACTOR, "tree", &tree]),
            Some(128 + signal),
            "signal {signal}"
        );
    }
}

#[test]
fn without_a_guard_the_status_is_the_same() {
    for number in [0, 1, 77, 123, 125, 126, 127, 128, 143, 255] {
        assert_eq!(
            code(&["--no-guard"], &[ACTOR, "exit", &number.to_string()]),
            Some(number)
        );
    }
    assert_eq!(
        code(&["--no-guard"], &[ACTOR, "tree", "server:die=34"]),
        Some(128 + 34)
    );
}

#[test]
fn a_status_named_as_success_becomes_0() {
    let exit = |options: &[&str], status: &str| code(options, &[ACTOR, "exit", status]);
    assert_eq!(exit(&["--success", "143"], "143"), Some(0));
    assert_eq!(exit(&["--success", "143"], "142"), Some(142));
    assert_eq!(exit(&["--success", "3", "--success", "4"], "4"), Some(0));
    for name in ["TERM", "SIGTERM", "143"] {
        let die = [ACTOR, "tree", "server:die=TERM"];
        assert_eq!(code(&["--success", name], &die), Some(0), "{name}");
    }
    assert_eq!(
        code(&["--success", "INT"], &[ACTOR, "tree", "server:die=TERM"]),
        Some(143)
    );
}

#[test]
fn after_a_stop_the_status_is_still_the_servers() {
    for (tree, status) in [
        ("server:on=TERM/0", 0),
        ("server:on=TERM/42", 42),
        ("server", 143),
        ("server:ignore=TERM", 137),
    ] {
        let grace = if status == 137 { "150ms" } else { "60s" };
        let mut run = Scene::new().start(&Wrap::Treaper(&["--grace", grace]).tree(tree));
        run.log.ready("server");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(status), "{tree}");
    }
}

#[test]
fn a_stop_whose_status_is_a_success_is_0() {
    let mut run = Scene::new().start(&Wrap::Treaper(&["--success", "TERM"]).tree("server"));
    run.log.ready("server");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
}

#[test]
fn the_status_of_a_server_outlives_a_killed_monitor() {
    // The shim adopts the server, so it can still report how the server ended.
    let wrap = Wrap::Treaper(&["--grace", "20s"]);
    let mut run = Scene::new().start(&wrap.tree("server:on=TERM/42"));
    run.log.ready("server");
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().code(), Some(42));
}

#[test]
fn every_end_is_decoded_as_it_was_encoded() {
    for n in 0..=255 {
        assert_eq!(
            Ended::decode(Ended::Exited(n).encode()),
            Some(Ended::Exited(n))
        );
    }
    for n in 1..=64 {
        assert_eq!(
            Ended::decode(Ended::Killed(n).encode()),
            Some(Ended::Killed(n))
        );
        assert_eq!(Ended::Killed(n).code(), 128 + n);
    }
    assert_eq!(Ended::decode(0), None);
}

#[test]
fn an_end_is_shown_in_words() {
    for (ended, text) in [
        (Ended::Exited(0), "exited with status 0"),
        (Ended::Killed(15), "was ended by SIGTERM"),
        (Ended::Killed(35), "was ended by SIGRTMIN+1"),
    ] {
        assert_eq!(ended.to_string(), text);
    }
}

/// Their child fails, and its status is mapped as any other.
#[test]
fn with_the_name_tini_a_status_of_no_program_is_mapped_too() {
    for (words, status) in [
        (&["-e", "127", "--", "/no/such"][..], 0),
        (&["-e", "126", "--", "/no/such"], 127),
        (&["-e", "126", "--", "/etc/passwd"], 0),
        (&["-e", "1", "--", "/etc/passwd/x"], 0),
        (&["-e", "126", "--", "/etc/passwd/x"], 1),
        (&["--", "."], 126),
    ] {
        let output = std::os::unix::process::CommandExt::arg0(
            &mut std::process::Command::new(TREAPER),
            "tini",
        )
        .args(words)
        .output()
        .unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}
