//! `--cancel`: a turn that was cancelled ends at its boundary, or the server is stopped, with status 124.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use common::{PATIENCE, Run, Scene, Wrap, sys, until};

/// Answers `end` with a boundary, `nested` with texts that are none, and any other line with itself.
const ANSWERS: &str = "while read -r line; do case $line in \
    end) echo '{\"type\":\"result\"}' ;; \
    nested) echo '{\"x\":{\"type\":\"result\"}}'; echo '{\"x\":\"\\\"type\\\":\\\"result\\\"\"}'; echo 'type=result' ;; \
    *) echo \"got $line\" ;; esac; done";
const A_WHILE: Duration = Duration::from_millis(700);
/// Time enough for a boundary on a busy machine, and longer than that.
const LONG: &str = "4s";
const LONGER: Duration = Duration::from_millis(4500);

struct Talk {
    run: Run,
    cancel: PathBuf,
    inject: PathBuf,
}

/// `drain`: how long a cancelled turn may take.
fn start(drain: &str, more: &[&str], script: &str) -> Talk {
    let scene = Scene::new().stdin_pipe();
    let (cancel, inject) = (
        scene.directory().join("cancel"),
        scene.directory().join("inject"),
    );
    let sources = [&cancel, &inject].map(|path| format!("unix:{}", path.display()));
    let options = [
        "--cancel",
        &sources[0],
        "--inject",
        &sources[1],
        "--boundary",
        "type=result",
        "--cancel-drain",
        drain,
        "--grace",
        "300ms",
    ];
    let options = [&options, more].concat();
    let run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
    until("the sockets", || cancel.exists() && inject.exists());
    Talk {
        run,
        cancel,
        inject,
    }
}

/// Writes a message, and waits for the acknowledgement.
fn send(path: &PathBuf, text: &str) {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.write_all(format!("{text}\n").as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

fn said(run: &mut Run, text: &str) {
    until(text, || run.stdout().contains(text));
}

fn times_out(mut run: Run) {
    let exit = run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(124), "{stderr}");
    assert!(
        stderr.contains("cancel-timeout: a cancelled turn did not end in time"),
        "{stderr}"
    );
}

#[test]
fn a_cancelled_turn_that_does_not_end_in_time_ends_the_server() {
    for more in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        let mut scene = start("200ms", more, ANSWERS);
        scene.run.write_stdin(b"begin\n");
        said(&mut scene.run, "got begin");
        let before = sys::now_ms();
        send(&scene.cancel, "stop it");
        times_out(scene.run);
        assert!(sys::now_ms() - before >= 200);
    }
}

#[test]
fn a_boundary_in_time_stops_the_clock_and_the_next_message_is_delivered() {
    let mut scene = start(LONG, &[], ANSWERS);
    for round in 1..=2 {
        scene.run.write_stdin(b"begin\n");
        send(&scene.cancel, "end");
        until("the boundary", || {
            scene.run.stdout().matches("result").count() == round
        });
    }
    assert!(!scene.run.ends_within(LONGER), "{}", scene.run.stderr());
    send(&scene.inject, "after");
    said(&mut scene.run, "got after");
    scene.run.close_stdin();
    assert_eq!(scene.run.wait_clean().code(), Some(0));
}

#[test]
fn a_text_that_only_looks_like_a_boundary_stops_no_clock() {
    let mut scene = start("500ms", &[], ANSWERS);
    scene.run.write_stdin(b"begin\n");
    send(&scene.cancel, "nested");
    said(&mut scene.run, "type=result");
    times_out(scene.run);
}

#[test]
fn a_cancel_while_no_turn_runs_is_passed_on_and_starts_no_clock() {
    let mut scene = start("100ms", &[], ANSWERS);
    send(&scene.cancel, "early");
    said(&mut scene.run, "got early");
    assert!(!scene.run.ends_within(A_WHILE), "{}", scene.run.stderr());
    // And after a turn.
    scene.run.write_stdin(b"end\n");
    said(&mut scene.run, "result");
    send(&scene.cancel, "late");
    said(&mut scene.run, "got late");
    assert!(!scene.run.ends_within(A_WHILE), "{}", scene.run.stderr());
    // The control: an injected message begins a turn.
    send(&scene.inject, "begin");
    send(&scene.cancel, "now");
    times_out(scene.run);
}

#[test]
fn of_two_cancels_the_first_one_sets_the_time_and_one_boundary_ends_both() {
    let mut scene = start(LONG, &[], ANSWERS);
    scene.run.write_stdin(b"begin\n");
    said(&mut scene.run, "got begin");
    let before = sys::now_ms();
    send(&scene.cancel, "first");
    sys::pause_for(Duration::from_secs(3));
    send(&scene.cancel, "second");
    times_out(scene.run);
    let took = sys::now_ms() - before;
    // From the second one on it would be 7 s.
    assert!((4000..7000).contains(&took), "{took} ms");

    let mut scene = start(LONG, &[], ANSWERS);
    scene.run.write_stdin(b"begin\n");
    said(&mut scene.run, "got begin");
    send(&scene.cancel, "first");
    send(&scene.cancel, "end");
    said(&mut scene.run, "result");
    assert!(!scene.run.ends_within(LONGER), "{}", scene.run.stderr());
    scene.run.close_stdin();
    scene.run.wait_clean();
}

/// Writes to the server until its stdin, the relay and our pipe are full.
fn fill(run: &Run) {
    let host = File::from(run.stdin.as_ref().unwrap().try_clone().unwrap());
    sys::set_nonblocking(host.as_raw_fd());
    let mut since = sys::now_ms();
    while sys::now_ms() < since + 500 {
        match (&host).write(&b"begin\n".repeat(1000)) {
            Ok(_) => since = sys::now_ms(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        sys::pause_for(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_reads_nothing_is_stopped_in_time() {
    // The second one ends its first turn before the cancel, and does not take the next one.
    for boundary in [false, true] {
        let script =
            "until [ -e \"$0\" ]; do sleep 0.02; done; echo '{\"type\":\"result\"}'; sleep 1000";
        let mut scene = start("300ms", &[], &script.replace("$0", "$ACTOR_LOG.go"));
        fill(&scene.run);
        if boundary {
            let mut name = scene.run.log.path.clone().into_os_string();
            name.push(".go");
            File::create(name).unwrap();
            said(&mut scene.run, "result");
        }
        let mut socket = UnixStream::connect(&scene.cancel).unwrap();
        socket.write_all(b"stop it\n").unwrap();
        times_out(scene.run);
    }
}

#[test]
fn a_cancel_in_the_middle_of_a_message_of_stdin_starts_the_clock() {
    // Also if the message has begun before the last boundary.
    for boundary in [false, true] {
        let mut scene = start("300ms", &[], "cat; sleep 1000");
        scene.run.write_stdin(b"begun, ");
        said(&mut scene.run, "begun, ");
        if boundary {
            scene
                .run
                .write_stdin(b"ended\n{\"type\":\"result\"}\nbegun again");
            said(&mut scene.run, "begun again");
        }
        let mut socket = UnixStream::connect(&scene.cancel).unwrap();
        socket.write_all(b"stop it\n").unwrap();
        times_out(scene.run);
    }
}

#[test]
fn headers_have_their_boundaries_too() {
    let frame = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let (begin, end) = (frame("begin"), frame("end"));
    let script = format!(
        "head -c {} >/dev/null; echo begun >&2; head -c {} >/dev/null; \
         printf 'Content-Length: 17\\r\\n\\r\\n{{\"type\":\"result\"}}'; cat >&2; sleep 1000",
        begin.len(),
        end.len()
    );
    let mut scene = start("2s", &["--framing", "headers"], &script);
    scene.run.write_stdin(begin.as_bytes());
    until("a turn", || scene.run.stderr().contains("begun"));
    let mut socket = UnixStream::connect(&scene.cancel).unwrap();
    socket.write_all(end.as_bytes()).unwrap();
    said(&mut scene.run, "result");
    let longer = Duration::from_millis(2500);
    assert!(!scene.run.ends_within(longer), "{}", scene.run.stderr());
    scene.run.write_stdin(frame("again").as_bytes());
    until("a turn", || scene.run.stderr().contains("again"));
    socket.write_all(frame("a turn").as_bytes()).unwrap();
    times_out(scene.run);
}
