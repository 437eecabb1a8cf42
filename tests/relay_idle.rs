//! `--idle` with a relay: it keeps the clock, which stands while a turn runs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;
#[path = "relay/messages.rs"]
mod messages;

use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use common::{Run, Scene, Wrap, sys, until};
use messages::{answered, connect};

/// Answers the first message after 3 s, and then reads on.
const SLOW: &str = "read -r line; sleep 3; echo '{\"id\":1,\"result\":{}}'; exec cat";
const CALL: &[u8] = b"{\"id\":1,\"method\":\"tools/call\"}\n";
const ANSWER: &str = "{\"id\":1,\"result\":{}}\n";
const TURN: &str = "--turn=method=tools/call";
const LINE: &str =
    "treaper: idle: nothing was written to the server's stdin for the time of --idle";

fn start(options: &[&str], script: &str) -> (Run, PathBuf) {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("--inject=unix:{}", path.display());
    let options = [&["--grace=300ms", &source], options].concat();
    let run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
    until("the socket", || path.exists());
    (run, path)
}

fn is_stopped(run: &mut Run) {
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.starts_with(LINE), "{stderr}");
}

#[test]
fn the_clock_stands_while_a_turn_runs_and_starts_again_with_its_end() {
    for more in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        let (mut run, _) = start(&[&["--idle=1s", TURN], more].concat(), SLOW);
        let begun = sys::now_ms();
        run.write_stdin(CALL);
        is_stopped(&mut run);
        assert!(sys::now_ms() - begun >= 4000, "{more:?}");
        assert_eq!(run.stdout(), ANSWER);
    }
}

#[test]
fn control_without_the_turn_the_call_is_cut_off() {
    for options in [&["--idle=1s"][..], &["--idle=1s", "--turn=method=other"]] {
        let (mut run, _) = start(options, SLOW);
        run.write_stdin(CALL);
        is_stopped(&mut run);
        assert_eq!(run.stdout(), "", "{options:?}");
    }
}

/// The recipe of docs/hosts.md, without another writer and without a cancel.
#[test]
fn a_server_of_mcp_that_the_host_forgets_is_stopped_after_its_last_answer() {
    let script = format!("setsid sleep 1000 & {SLOW}");
    let options = ["--grace=300ms", "--idle=1s", TURN];
    for (options, answer) in [(&options[..], ANSWER), (&options[..2], "")] {
        let wrap = Wrap::Treaper(options);
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&wrap.command(&["sh", "-c", &script]));
        run.write_stdin(CALL);
        is_stopped(&mut run);
        assert_eq!(run.stdout(), answer, "{options:?}");
    }
    // Control without treaper: the server waits for its host, and what it has started outlives it.
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Bare.command(&["sh", "-c", &script]));
    run.write_stdin(CALL);
    until("the answer", || run.stdout() == ANSWER);
    assert!(!run.ends_within(Duration::from_millis(2500)));
    run.close_stdin();
    run.wait();
    assert_eq!(run.survivors().len(), 1);
}

#[test]
fn a_boundary_ends_the_turn_as_well() {
    let options = ["--idle=1s", TURN, "--boundary=result.done=true"];
    let script = "read -r line; sleep 2; echo '{\"result\":{\"done\":true}}'; exec cat";
    let (mut run, _) = start(&options, script);
    run.write_stdin(CALL);
    is_stopped(&mut run);
    assert!(run.stdout().contains("done"));
    // The answer is no end then.
    let (mut run, _) = start(&options, SLOW);
    run.write_stdin(CALL);
    until("the answer", || run.stdout() == ANSWER);
    assert!(!run.ends_within(Duration::from_millis(2500)));
    run.close_stdin();
    run.wait_clean();
}

#[test]
fn each_write_of_each_writer_restarts_the_clock() {
    let (mut run, path) = start(&["--idle=2s"], "exec cat");
    for round in 0..6 {
        assert!(
            !run.ends_within(Duration::from_millis(700)),
            "{}",
            run.stderr()
        );
        if round % 2 == 0 {
            run.write_stdin(b"line\n");
        } else {
            let mut socket = connect(&path);
            socket.write_all(b"line\n").unwrap();
            assert_eq!(answered(socket), "ok\n");
        }
    }
    let since = sys::now_ms();
    is_stopped(&mut run);
    assert!(sys::now_ms() - since >= 1500);
}

/// A host that may be waiting at a full pipe is not silent.
#[test]
fn input_that_the_server_does_not_read_is_no_silence() {
    let (mut run, _) = start(&["--idle=3s"], "exec sleep 1000");
    run.write_stdin(&vec![b'x'; 150_000]);
    assert!(!run.ends_within(Duration::from_millis(5000)));
    run.signal(libc::SIGTERM);
    run.wait_clean();
    let (mut run, _) = start(&["--idle=500ms"], "exec sleep 1000");
    run.write_stdin(b"x\n");
    is_stopped(&mut run);
}

/// The report of an error in its queue is no end of stdin: once all is read, silence counts again.
#[test]
fn a_queued_error_while_input_waits_does_not_stop_the_clock() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    sys::time_stamps(far.as_raw_fd());
    let mut stamped = far.try_clone().unwrap();
    let scene = Scene::new().with(|command| {
        command.stdin(OwnedFd::from(far));
    });
    let source = format!(
        "--inject=unix:{}",
        scene.directory().join("socket").display()
    );
    let options = [&source, "--stdin=watch", "--idle=5s"];
    let go = scene.directory().join("go");
    sys::mkfifo(&go);
    let mut both = File::options();
    let mut both = both.read(true).write(true).open(&go).unwrap();
    let script = format!("read -r go <'{}'; exec cat >/dev/null", go.display());
    let server = ["sh", "-c", &script];
    let mut run = scene.start(&Wrap::Treaper(&options).command(&server));
    // More than all of them can hold, so some of it waits in the relay.
    host.set_nonblocking(true).unwrap();
    let mut is_full = false;
    while !is_full {
        common::until_it_rests(run.relay());
        is_full = host.write(&[b'x'; 4096]).is_err();
        while host.write(&[b'x'; 4096]).is_ok() {}
    }
    stamped.write_all(b"stamped").unwrap();
    common::until_it_rests(run.relay());
    both.write_all(b"go\n").unwrap();
    is_stopped(&mut run);
}

/// The host has written nothing, and another writer's message waits for the server.
#[test]
fn an_injected_message_that_the_server_does_not_read_is_no_silence_either() {
    let (mut run, path) = start(&["--idle=3s"], "exec sleep 1000");
    let mut message = vec![b'x'; 150_000];
    message.push(b'\n');
    let mut writer = connect(&path);
    writer.write_all(&message).unwrap();
    assert!(!run.ends_within(Duration::from_millis(5000)));
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// A server that reads no more has not lost its host.
#[test]
fn a_server_that_closes_its_input_is_not_silent_at_once() {
    // To see the end of stdin, treaper keeps a copy of it, which hides that the server has closed its own. It does so if
    // the host holds the other end, and until the arena has closed its copies, it seems to.
    let options = ["--idle=2s", "--stdin=ignore"];
    let (mut run, _) = start(&options, "sleep 6; exec 0</dev/null; exec sleep 1000");
    run.write_stdin(&vec![b'x'; 150_000]);
    // The clock stands while the host may be waiting, and begins when the server reads no more: 8 s after its start.
    assert!(
        !run.ends_within(Duration::from_millis(4000)),
        "{}",
        run.stderr()
    );
    is_stopped(&mut run);
}

/// MCP gives no answer to a request that was cancelled.
#[test]
fn a_request_of_mcp_that_was_cancelled_no_longer_runs() {
    let cancel = b"{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";
    for (cancels, ends) in [(true, true), (false, false)] {
        let (mut run, _) = start(&["--idle=1s", TURN], "exec cat >/dev/null");
        run.write_stdin(CALL);
        if cancels {
            run.write_stdin(cancel);
        }
        if !ends {
            assert!(!run.ends_within(Duration::from_secs(4)), "{}", run.stderr());
            run.close_stdin();
        }
        run.wait_clean();
    }
}

/// Such a message is not looked at, so it may be a call.
#[test]
fn a_message_that_is_too_long_may_be_a_turn() {
    let script = "head -c 17000000 >/dev/null; sleep 3; echo '{\"id\":1,\"result\":{}}'; exec cat >/dev/null";
    let (mut run, _) = start(&["--idle=1s", TURN], script);
    let mut call = vec![b'x'; 17_000_000];
    call[..12].copy_from_slice(b"{\"id\":1,\"a\":");
    run.write_stdin(&call);
    run.write_stdin(b"\n");
    is_stopped(&mut run);
    assert_eq!(run.stdout(), ANSWER);
}

/// As without a relay.
#[test]
fn silence_cuts_no_drain_short() {
    let options = ["--idle=3s", "--stdout=watch", "--drain=5s"];
    let (mut run, _) = start(&options, "exec sleep 1000");
    let begun = sys::now_ms();
    drop(run.take_stdout());
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.starts_with("treaper: stdout-closed: "), "{stderr}");
    assert!(sys::now_ms() - begun >= 5000, "{stderr}");
}
