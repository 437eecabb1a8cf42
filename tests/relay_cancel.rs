//! `--turn`, `--cancel`, `--boundary`: a turn that was cancelled ends in time, or the server is stopped, with status 124.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;
#[path = "relay/messages.rs"]
mod messages;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Run, Scene, TREAPER, Wrap, skip, sys, until, until_it_rests};
use messages::{answered, connect};
use treaper::sys::fd;

/// Answers `"id":N` with a result if the line says so, and echoes each line to stderr.
const ANSWERS: &str = "while read -r line; do echo \"$line\" >&2; case $line in \
    *end-1*) echo '{\"id\":1,\"result\":{}}' ;; \
    *end-one*) echo '{\"id\":\"1\",\"error\":{}}' ;; \
    *ask-1*) echo '{\"id\":1,\"method\":\"fs/read\"}'; echo '{\"params\":{\"id\":1,\"result\":1}}'; echo '\"id\":1,\"result\":1' ;; \
    *done*) echo '{\"type\":\"system\",\"request\":{\"type\":\"result\"}}'; echo '{\"type\":\"result\"}' ;; \
    esac; done";
const JSON_RPC: [&str; 4] = [
    "--turn=method=prompt",
    "--cancel=method=cancel",
    "--grace",
    "300ms",
];
const TURN: &str = "{\"id\":1,\"method\":\"prompt\"}";
const CANCEL: &str = "{\"method\":\"cancel\"}";
const A_WHILE: Duration = Duration::from_millis(700);
/// Time enough for a boundary on a busy machine, and longer than that.
const LONG: &str = "--cancel-drain=4s";
const LONGER: Duration = Duration::from_millis(4500);
const SHORT: &str = "--cancel-drain=300ms";

fn start(options: &[&str], script: &str) -> (Run, PathBuf) {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let options = [&JSON_RPC[..], &["--inject", &source], options].concat();
    let run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
    until("the socket", || path.exists());
    (run, path)
}

/// Writes a line to stdin, and waits until the server has read it.
fn say(run: &mut Run, line: &str) {
    let count = run.stderr().matches(line).count();
    run.write_stdin(format!("{line}\n").as_bytes());
    until(line, || run.stderr().matches(line).count() > count);
}

/// The same by another writer.
fn inject(run: &mut Run, path: &PathBuf, line: &str) {
    let count = run.stderr().matches(line).count();
    let mut socket = connect(path);
    socket.write_all(format!("{line}\n").as_bytes()).unwrap();
    assert_eq!(answered(socket), "ok\n");
    until(line, || run.stderr().matches(line).count() > count);
}

/// As [`say`], for a line after which the server may be stopped before it has read it.
fn say_last(run: &Run, line: &str) {
    run.write_stdin(format!("{line}\n").as_bytes());
}

/// The same by another writer.
fn inject_last(path: &PathBuf, line: &str) {
    let mut socket = connect(path);
    socket.write_all(format!("{line}\n").as_bytes()).unwrap();
    assert_eq!(answered(socket), "ok\n");
}

fn times_out(mut run: Run) {
    let exit = run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(124), "{stderr}");
    assert!(
        stderr.contains("cancel-timeout: a cancelled turn did not end in time, so SIGTERM was sent to the server (--cancel-drain changes that)\n"),
        "{stderr}"
    );
}

fn goes_on(mut run: Run, time: Duration) {
    assert!(!run.ends_within(time), "{}", run.stderr());
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
}

#[test]
fn a_cancelled_turn_that_does_not_end_in_time_ends_the_server_whoever_writes() {
    for more in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        let (mut run, _) = start(&[&[SHORT], more].concat(), ANSWERS);
        say(&mut run, TURN);
        let before = sys::now_ms();
        say_last(&run, CANCEL);
        times_out(run);
        assert!(sys::now_ms() - before >= 300);
    }
    let (mut run, path) = start(&[SHORT], ANSWERS);
    inject(&mut run, &path, TURN);
    say_last(&run, CANCEL);
    times_out(run);
    let (mut run, path) = start(&[SHORT], ANSWERS);
    say(&mut run, TURN);
    inject_last(&path, CANCEL);
    times_out(run);
    // Both in one write: the turn has not begun yet when the cancel is read.
    let (run, _) = start(&[SHORT], ANSWERS);
    run.write_stdin(format!("{TURN}\n{CANCEL}\n").as_bytes());
    times_out(run);
}

#[test]
fn the_answer_to_the_message_that_began_the_turn_ends_it() {
    let (mut run, _) = start(&[LONG], ANSWERS);
    for id in ["1", "\"1\""] {
        say(&mut run, &TURN.replace('1', id));
        say(&mut run, CANCEL);
        say(&mut run, if id == "1" { "end-1" } else { "end-one" });
    }
    goes_on(run, LONGER);
}

#[test]
fn what_only_looks_like_the_answer_ends_no_turn() {
    // A request of the server's own with the same id, and the answer to another id.
    for other in ["ask-1", "end-one"] {
        let (mut run, _) = start(&["--cancel-drain=3s"], ANSWERS);
        say(&mut run, TURN);
        say(&mut run, CANCEL);
        say(&mut run, other);
        times_out(run);
    }
}

#[test]
fn a_boundary_ends_a_turn_and_one_that_waits_in_the_queue_counts() {
    let boundary = [
        "--boundary",
        "type=result",
        "--turn",
        "type=user",
        "--cancel",
        "request.subtype=interrupt",
    ];
    let user = "{\"type\":\"user\",\"message\":{\"type\":\"control\"}}";
    let interrupt = "{\"type\":\"control\",\"request\":{\"x\":[{}],\"subtype\":\"interrupt\"}}";
    let (mut run, path) = start(&[&boundary[..], &[LONG]].concat(), ANSWERS);
    say(&mut run, user);
    inject(&mut run, &path, interrupt);
    say(&mut run, "done");
    goes_on(run, LONGER);
    // Two have begun, and one has ended.
    let (mut run, path) = start(&[&boundary[..], &[SHORT]].concat(), ANSWERS);
    say(&mut run, user);
    say(&mut run, user);
    say(&mut run, "done");
    until("the boundary", || {
        run.stdout().contains("{\"type\":\"result\"}\n")
    });
    inject_last(&path, interrupt);
    times_out(run);
}

#[test]
fn a_cancel_while_no_turn_runs_starts_no_clock() {
    let (mut run, path) = start(&["--cancel-drain=100ms"], ANSWERS);
    // Neither does any other request begin a turn, nor a message that has the member deeper, in an array or in a string.
    for other in [
        "{\"id\":1,\"method\":\"initialize\"}",
        "{\"params\":{\"id\":1,\"method\":\"prompt\"}}",
        "{\"id\":1,\"x\":[\"method\",\"prompt\"],\"y\":\"\\\"method\\\":\\\"prompt\\\"\"}",
        // Without an id there can be no answer.
        "{\"method\":\"prompt\"}",
        "{\"id\":null,\"method\":\"prompt\"}",
    ] {
        say(&mut run, other);
    }
    inject(&mut run, &path, CANCEL);
    say(&mut run, CANCEL);
    assert!(!run.ends_within(A_WHILE), "{}", run.stderr());
    // And after a turn.
    say(&mut run, &TURN.replace('}', ",\"x\":\"end-1\"}"));
    until("the answer", || run.stdout().contains("result"));
    say(&mut run, CANCEL);
    goes_on(run, A_WHILE);
}

#[test]
fn of_two_cancels_the_first_one_sets_the_time_and_one_boundary_ends_both() {
    let (mut run, path) = start(&[LONG], ANSWERS);
    say(&mut run, TURN);
    let before = sys::now_ms();
    say(&mut run, CANCEL);
    sys::pause_for(Duration::from_secs(3));
    inject_last(&path, CANCEL);
    times_out(run);
    let took = sys::now_ms() - before;
    // From the second one on it would be 7 s.
    assert!((4000..7000).contains(&took), "{took} ms");

    let (mut run, path) = start(&[LONG], ANSWERS);
    say(&mut run, TURN);
    say(&mut run, CANCEL);
    inject(&mut run, &path, CANCEL);
    say(&mut run, "end-1");
    goes_on(run, LONGER);
}

/// Writes to the server until its stdin, the relay and our pipe are full.
fn fill(run: &Run) {
    let host = File::from(run.stdin.as_ref().unwrap().try_clone().unwrap());
    sys::set_nonblocking(host.as_raw_fd());
    let mut since = sys::now_ms();
    while sys::now_ms() < since + 500 {
        match (&host).write(&format!("{TURN}\n").repeat(1000).into_bytes()) {
            Ok(_) => since = sys::now_ms(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        sys::pause_for(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_reads_nothing_is_stopped_in_time() {
    let (run, path) = start(&[SHORT], "exec sleep 1000");
    fill(&run);
    let mut socket = connect(&path);
    socket.write_all(format!("{CANCEL}\n").as_bytes()).unwrap();
    times_out(run);
    assert_eq!(
        answered(socket),
        "error: the server is gone or no longer reads stdin\n"
    );
}

/// The pipe to the server has room for the turn only, and the relay reads the cancel together with the turn.
#[test]
fn a_cancel_that_cannot_be_written_stops_the_turn_before_it() {
    let (mut run, _) = start(&[SHORT], "echo pid:$$: >&2; exec sleep 1000");
    until("the pid", || run.stderr().contains("pid:"));
    let path = format!("/proc/{}/fd/0", run.stderr().split(':').nth(1).unwrap());
    // The server may be stopped before the last look.
    let stdin = File::open(&path).unwrap();
    let unread = || fd::unread(stdin.as_raw_fd()) as usize;
    let (size, page) = (sys::pipe_size(stdin.as_raw_fd()), sys::page_size());
    if size < 2 * page || page > 4096 {
        return skip("a page holds more than the relay reads at once, or the pipe has one page");
    }
    let padded = |text: &str, len: usize| format!("{text}{}\n", " ".repeat(len - text.len() - 1));
    run.write_stdin(padded("{}", size - page).as_bytes());
    until("the pipe has one page left", || unread() == size - page);
    run.write_stdin(format!("{}{CANCEL}\n", padded(TURN, page)).as_bytes());
    until("the turn is written", || unread() == size);
    drop(stdin);
    times_out(run);
}

/// The members of the report of a run.
fn report(run: &Run) -> serde_json::Value {
    let path = run.log.path.with_file_name("report");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn message_report_and_status_name_the_same_trigger_if_the_time_ends_in_a_drain() {
    for success in [false, true] {
        let scene = Scene::new().stdin_pipe();
        let file = scene.directory().join("report");
        let file = file.to_str().unwrap();
        let mut options = [
            &JSON_RPC[..],
            &[
                "--cancel-drain=1s",
                "--report",
                file,
                "--drain=20s",
                "--stdin=watch",
            ],
        ]
        .concat();
        if success {
            options.push("--success=124");
        }
        let script = format!("{ANSWERS}; echo end >&2; sleep 1000");
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", &script]));
        say(&mut run, TURN);
        say(&mut run, CANCEL);
        run.close_stdin();
        let exit = run.wait_clean();
        let (stderr, report) = (run.stderr(), report(&run));
        let expected = if success { 0 } else { 124 };
        assert_eq!(exit.code(), Some(expected), "{stderr}");
        assert!(stderr.contains("cancel-timeout: "), "{stderr}");
        assert_eq!(report["trigger"], "cancel-timeout");
        assert_eq!(report["exit_status"], expected);
    }
}

#[test]
fn options_that_do_not_belong_together_are_an_error() {
    let mut many = vec!["--turn=a=b"];
    many.extend(["--cancel=a=b"; 33]);
    for (options, text) in [
        (&["--cancel=a=b"][..], "--cancel: needs --turn"),
        (
            &["--turn=a=b"],
            "--turn: has no effect without --cancel or --idle",
        ),
        (
            &["--boundary=a=b"],
            "--boundary: has no effect without --turn",
        ),
        (
            &["--cancel-drain=1s"],
            "--cancel-drain: has no effect without --cancel",
        ),
        (
            &["--turn=a"],
            "--turn: invalid value 'a': expected PATH=VALUE",
        ),
        (
            &["--cancel==b"],
            "--cancel: invalid value '=b': expected PATH=VALUE",
        ),
        (&many, "--cancel: more than 32 values"),
    ] {
        let mut treaper = Command::new(TREAPER);
        treaper
            .args(options)
            .args(["echo", "started"])
            .stdin(Stdio::piped());
        let output = treaper.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(
            stderr.contains(text) && output.stdout.is_empty(),
            "{stderr}"
        );
    }
}

/// Without treaper, the server's writes fail. With a relay in between, they would succeed although nobody reads them.
#[test]
fn without_a_stdout_nothing_is_started() {
    let script = "exec \"$@\" >&-";
    let words = ["-c", script, "sh", TREAPER, "--turn=a=b", "--idle=1h"];
    let mut command = Command::new("sh");
    command.args(words).args(["sh", "-c", "echo >&2 started"]);
    let output = command.stdin(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let text = "--turn: stdout is closed, so no answer can be passed on";
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains(text) && !stderr.contains("started"));
}

#[test]
fn an_error_names_the_variable_that_was_set() {
    let many = "a=b ".repeat(33);
    for (variables, text) in [
        (
            &[("TREAPER_CANCEL", "a=b"), ("TREAPER_TURN", "a=c")][..],
            "TREAPER_CANCEL: stdin is not a pipe",
        ),
        (
            &[("TREAPER_CANCEL", "a=b"), ("TREAPER_TURN", &many)],
            "TREAPER_TURN: more than 32 values",
        ),
        (
            &[("TREAPER_INJECT", "unix:socket"), ("TREAPER_TURN", "a=b")],
            "TREAPER_TURN: has no effect without --cancel or --idle",
        ),
        (
            &[("TREAPER_INJECT", "unix:socket")],
            "TREAPER_INJECT: stdin is not a pipe",
        ),
    ] {
        let mut treaper = Command::new(TREAPER);
        treaper.envs(variables.iter().copied()).arg("true");
        let output = treaper.stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    }
}

#[test]
fn a_last_line_of_stdin_counts_without_a_newline() {
    let options = [SHORT, "--stdin=watch", "--drain=20s"];
    let (mut run, _) = start(&options, &format!("{ANSWERS}; sleep 1000"));
    say(&mut run, TURN);
    run.write_stdin(CANCEL.as_bytes());
    run.close_stdin();
    times_out(run);
}

/// The last line of the host begins a turn and has no newline, so the cancel behind it never reaches the server.
#[test]
fn a_cancel_that_is_refused_stops_no_turn() {
    let script = "read -r line; cat; sleep 1; echo \"$line\" >&2";
    let (mut run, path) = start(&[SHORT, "--stdin=watch"], script);
    run.write_stdin(TURN.as_bytes());
    let mut socket = connect(&path);
    socket.write_all(format!("{CANCEL}\n").as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let relay = run.relay();
    until_it_rests(relay);
    run.close_stdin();
    assert_eq!(answered(socket), "error: stdin has ended\n");
    let exit = run.wait_clean();
    assert_eq!(exit.code(), Some(0), "{}", run.stderr());
    assert!(run.stderr().ends_with(&format!("{TURN}\n")));
}

#[test]
fn a_last_line_of_the_server_counts_without_a_newline() {
    let script = "read -r turn; read -r cancel; printf '{\"id\":1,\"result\":{}}'; exec cat >&2";
    let (mut run, _) = start(&[LONG], script);
    run.write_stdin(format!("{TURN}\n{CANCEL}\n").as_bytes());
    until("the answer", || run.stdout().contains("result"));
    goes_on(run, LONGER);
}
