//! `--finally`: a command that is run once, when the tree is gone, by whichever process of treaper ends the run.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;
#[path = "relay/messages.rs"]
mod messages;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::scene::Directory;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, sys, until};
use messages::{answered, connect};
use serde_json::{Value, json};

const FORMS: [&[&str]; 4] = [
    &[],
    &["--no-guard"],
    &["--contain=pidns"],
    &["--contain=pidns", "--no-guard"],
];

/// Says why and how the run has ended, into the file `said` of the scene, and lives until there is a file `go`, if `waits`.
fn says(directory: &Path, waits: bool) -> String {
    let place = directory.display();
    let wait = format!("until [ -e {place}/go ]; do sleep 0.05; done; ");
    let wait = if waits { &wait } else { "" };
    format!(
        "echo begun >>{place}/begun; {wait}echo $STOP_REASON $EXIT_STATUS $(readlink /proc/self/fd/0) >>{place}/said"
    )
}

fn lines(directory: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(directory.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn start(options: &[&str], finally: impl FnOnce(&Path) -> String, tree: &str) -> Run {
    let scene = Scene::new().stdin_pipe();
    let report = scene.directory().join("report");
    let finally = finally(scene.directory());
    let more = ["--report", report.to_str().unwrap(), "--finally", &finally];
    let mut run = scene.start(&Wrap::Treaper(&[options, &more].concat()).tree(tree));
    run.log.ready("server");
    run
}

fn report(run: &Run) -> Value {
    let text = fs::read_to_string(run.directory().join("report")).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Whether this machine lacks what the form needs.
fn is_missing(form: &[&str]) -> bool {
    let missing = form.contains(&"--contain=pidns") && !sys::is_root();
    if missing {
        skip("pidns without root depends on the machine");
    }
    missing
}

#[test]
fn it_runs_once_after_each_way_to_end_and_changes_no_status() {
    for form in FORMS {
        if is_missing(form) {
            continue;
        }
        let said = |run: &Run| lines(run.directory(), "said");
        let mut run = start(form, |place| says(place, false), "server:exit=3");
        assert_eq!(run.wait_clean().code(), Some(3));
        assert_eq!(said(&run), ["server-exit 3 /dev/null"], "{form:?}");
        assert_eq!(report(&run)["finally"], json!(0));

        let tree = "server:on=TERM/4[worker:setsid]";
        let mut run = start(form, |place| says(place, false), tree);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(4));
        assert_eq!(said(&run), ["terminate 4 /dev/null"], "{form:?}");
        assert_eq!(run.stderr(), "", "{form:?}");
    }
}

#[test]
fn it_begins_when_no_process_of_the_tree_is_left() {
    for form in FORMS {
        if is_missing(form) {
            continue;
        }
        // The name of the worker's program, as of no other process.
        let directory = Directory::new();
        let text = fs::read("/bin/sleep").unwrap();
        let program = directory.program("unlike-any-other", &text);
        let out = directory.0.join("out");
        let finally = format!(
            "grep -l unlike-any-othe /proc/[0-9]*/comm >{} 2>/dev/null; echo done >>{}",
            out.display(),
            out.display()
        );
        let script = format!("{program} 1000 & trap '' TERM; read line");
        let mut child = Command::new(TREAPER)
            .args(form)
            .args(["--finally", &finally, "--grace=500ms", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_there = || {
            let found = Command::new("sh")
                .args([
                    "-c",
                    "grep -l unlike-any-othe /proc/[0-9]*/comm 2>/dev/null",
                ])
                .output()
                .unwrap();
            !found.stdout.is_empty()
        };
        // The same look finds it while it lives.
        until("the worker", is_there);
        sys::kill(child.id() as i32, libc::SIGTERM).unwrap();
        child.wait().unwrap();
        assert_eq!(fs::read_to_string(out).unwrap(), "done\n", "{form:?}");
    }
}

#[test]
fn the_death_of_the_host_and_of_each_process_of_treaper_runs_it_once() {
    // The host.
    let scene = Scene::new();
    let finally = says(scene.directory(), false);
    let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
    let command = Wrap::Treaper(&["--finally", &finally]).tree("server:on=TERM/3");
    let mut run = scene.start(&[&host[..], &command].concat());
    run.log.ready("server");
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let said = lines(run.directory(), "said");
    assert_eq!(said, ["parent-exit 3 /dev/null"]);
    // Shim and monitor, before the stop.
    for (shim, reason) in [(true, "shim-killed"), (false, "monitor-killed")] {
        let mut run = start(&[], |place| says(place, false), "server:on=TERM/3");
        let pid = if shim { run.shim() } else { run.monitor() };
        sys::kill(pid, libc::SIGKILL).unwrap();
        run.wait_empty();
        let expected = format!("{reason} 3 /dev/null");
        assert_eq!(lines(run.directory(), "said"), [expected]);
        assert_eq!(report(&run)["finally"], json!(0));
    }
}

#[test]
fn a_process_of_treaper_that_is_killed_meanwhile_neither_ends_nor_repeats_it() {
    for shim in [true, false] {
        let mut run = start(&[], |place| says(place, true), "server");
        let (shim_pid, monitor) = (run.shim(), run.monitor());
        run.signal(libc::SIGTERM);
        until("its begin", || lines(run.directory(), "begun").len() == 1);
        sys::kill(if shim { shim_pid } else { monitor }, libc::SIGKILL).unwrap();
        // The other one neither stops it nor begins again.
        assert!(!run.ends_within(Duration::from_millis(500)) || shim);
        fs::write(run.directory().join("go"), "").unwrap();
        run.wait_empty();
        let said = lines(run.directory(), "said");
        assert_eq!(said, ["terminate 143 /dev/null"], "{shim}");
        assert_eq!(lines(run.directory(), "begun").len(), 1);
        let report = report(&run);
        assert_eq!(report["finally"], json!(0), "{report}");
        let lost = if shim { "shim" } else { "monitor" };
        assert_eq!(report["lost"], lost, "{report}");
    }
}

#[test]
fn a_monitor_in_a_namespace_takes_it_along_and_it_does_not_begin_again() {
    if !sys::is_root() {
        return skip("pidns without root depends on the machine");
    }
    let mut run = start(&["--contain=pidns"], |place| says(place, true), "server");
    let monitor = run.monitor();
    run.signal(libc::SIGTERM);
    until("its begin", || lines(run.directory(), "begun").len() == 1);
    sys::kill(monitor, libc::SIGKILL).unwrap();
    run.wait_clean();
    assert!(lines(run.directory(), "said").is_empty());
    assert_eq!(lines(run.directory(), "begun").len(), 1);
    assert_eq!(report(&run)["finally"], Value::Null);
    let stderr = run.stderr();
    assert!(
        stderr.contains("unknown how the command of --finally"),
        "{stderr}"
    );
}

#[test]
fn at_the_end_of_its_time_its_group_gets_sigkill_and_a_line_says_so() {
    for form in FORMS {
        if is_missing(form) {
            continue;
        }
        let begun = Instant::now();
        let deaf = |_: &Path| "trap '' TERM; sleep 1000 & wait".to_owned();
        let options = [form, &["--grace=1s"]].concat();
        let mut run = start(&options, deaf, "server:exit=3");
        assert_eq!(run.wait_clean().code(), Some(3), "{form:?}");
        assert!(begun.elapsed() >= Duration::from_secs(1));
        assert_eq!(report(&run)["finally"], json!(137));
        let stderr = run.stderr();
        let line = "the command of --finally was ended by SIGKILL";
        assert!(stderr.contains(line), "{stderr}");
    }
}

/// The shim kills a monitor that is late, but not one that waits for this command.
#[test]
fn a_long_command_has_the_whole_grace_period() {
    let long = |place: &Path| format!("sleep 7; echo done >{}/said", place.display());
    let mut run = start(&["--grace=20s"], long, "server:exit=3");
    assert_eq!(run.wait_clean().code(), Some(3));
    assert_eq!(lines(run.directory(), "said"), ["done"]);
    assert_eq!(run.stderr(), "");
}

#[test]
fn what_it_leaves_behind_ends_with_it() {
    for form in FORMS.into_iter().filter(|form| !is_missing(form)) {
        for wrap in ["", "setsid "] {
            let leaves = |place: &Path| {
                let said = place.join("said");
                format!("{wrap}sleep 1000 & sleep 0.2; echo $! >{}", said.display())
            };
            // As treaper's own status, 123 says that something is left.
            for status in [3, 123] {
                let mut run = start(form, leaves, &format!("server:exit={status}"));
                assert_eq!(run.wait_clean().code(), Some(status), "{form:?} {wrap}");
                assert_eq!(lines(run.directory(), "said").len(), 1, "{form:?} {wrap}");
            }
        }
    }
    // The control: without treaper it outlives the command.
    let command = "setsid sleep 1000 & sleep 0.2";
    let mut run = Scene::new().start(&["sh", "-c", command]);
    run.wait();
    until("a process that outlives it", || {
        run.named("sleep").len() == 1
    });
}

/// A tracer keeps the command from being reaped, as a file system that hangs would keep it from ending.
#[test]
fn what_a_command_that_does_not_end_leaves_behind_ends_all_the_same() {
    let leaves = |place: &Path| {
        let place = place.display();
        format!(
            "setsid sleep 1000 & echo $$ >{place}/new; mv {place}/new {place}/pid; exec sleep 999"
        )
    };
    let options = ["--grace=3s", "--kill-timeout=2s"];
    let (mut run, tracer) = loop {
        let mut run = start(&options, leaves, "server:exit=3");
        until("the command", || run.directory().join("pid").exists());
        let pid = lines(run.directory(), "pid").remove(0);
        let mut tracer = Scene::new().start(&[ACTOR, "trace", &pid]);
        match tracer.log.wait("tracer", "tried").text("error") {
            "none" => break (run, tracer),
            // On a busy machine its time may be over before.
            "3" => drop(run.wait_empty()),
            _ => return skip("tracing a stranger is not allowed here"),
        }
    };
    let exit = run.wait();
    let stderr = run.stderr();
    assert_eq!(
        (exit.code(), exit.left.len()),
        (Some(3), 0),
        "{exit:?} {stderr}"
    );
    drop(tracer);
    run.wait_empty();
}

#[test]
fn a_failure_is_one_line_and_a_member_of_the_report() {
    let mut run = start(&[], |_| "echo text; exit 7".to_owned(), "server:exit=3");
    assert_eq!(run.wait_clean().code(), Some(3));
    assert_eq!(run.stdout(), "");
    assert_eq!(
        run.stderr(),
        "text\ntreaper: the command of --finally exited with status 7\n"
    );
    assert_eq!(report(&run)["finally"], json!(7));
}

#[test]
fn it_is_not_run_if_no_server_was_started() {
    let directory = Directory::new();
    let said = directory.0.join("said");
    let finally = format!("echo done >{}", said.display());
    for (command, status) in [("/nonexistent", 127), ("/etc/passwd", 126), ("true", 0)] {
        let mut treaper = Command::new(TREAPER);
        treaper.args(["--finally", &finally, command]);
        let output = treaper.output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(said.exists(), status == 0, "{command}");
    }
}

/// The working directory, the environment and the mask of signals are those with which treaper was started.
#[test]
fn it_runs_where_treaper_was_started_and_can_be_ended_by_signals() {
    let directory = Directory::new();
    let finally = "pwd >out; echo $WORD >>out; grep SigBlk /proc/self/status >>out";
    let status = Command::new(TREAPER)
        .args(["--finally", finally, "true"])
        .env("WORD", "kept")
        .current_dir(&directory.0)
        .status()
        .unwrap();
    assert!(status.success());
    let out = fs::read_to_string(directory.0.join("out")).unwrap();
    let place = directory.0.canonicalize().unwrap();
    let expected = format!("{}\nkept\nSigBlk:\t0000000000000000\n", place.display());
    assert_eq!(out, expected);
    // A directory that is gone is no obstacle.
    let gone = directory.0.join("gone");
    fs::create_dir(&gone).unwrap();
    let out = directory.0.join("out");
    let finally = format!("pwd >{}", out.display());
    let status = Command::new(TREAPER)
        .args(["--finally", &finally, "rmdir"])
        .arg(&gone)
        .current_dir(&gone)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(fs::read_to_string(out).unwrap(), "/\n");
}

/// How a run ends in the tests below.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The server exits by itself, at a signal that is forwarded.
    Server,
    Stop,
    MonitorKilled,
}

const ENDS: &str = "server:on=TERM+USR1/3";

/// Ends the server of a run, and does `act` while the command of `--finally` runs.
fn meanwhile(run: &mut Run, end: End, act: impl FnOnce(&Run)) {
    match end {
        End::Server => run.signal(libc::SIGUSR1),
        End::Stop => run.signal(libc::SIGTERM),
        End::MonitorKilled => sys::kill(run.monitor(), libc::SIGKILL).unwrap(),
    }
    until("its begin", || lines(run.directory(), "begun").len() == 1);
    act(run);
    fs::write(run.directory().join("go"), "").unwrap();
    let code = run.wait_clean().code();
    assert_eq!(code, Some(3), "{end:?}: {}", run.stderr());
    assert_eq!(lines(run.directory(), "said").len(), 1);
}

fn ways_to_end() -> impl Iterator<Item = (&'static [&'static str], End)> {
    let forms = FORMS.into_iter().filter(|form| !is_missing(form));
    let each = forms.flat_map(|form| [(form, End::Server), (form, End::Stop)]);
    each.chain([(FORMS[0], End::MonitorKilled)])
}

/// Its writer would take it for one that the server has got.
#[test]
fn while_it_runs_no_message_of_another_writer_is_acknowledged() {
    for (form, end) in ways_to_end() {
        let directory = Directory::new();
        let socket = directory.0.join("socket");
        let source = format!("--inject=unix:{}", socket.display());
        let options = [form, &[&source]].concat();
        let mut run = start(&options, |place| says(place, true), ENDS);
        let mut early = connect(&socket);
        meanwhile(&mut run, end, |_| {
            // The relay may have answered before, or not yet.
            let _ = early.write_all(b"lost\n");
            let why = "error: the server is gone or no longer reads stdin\n";
            assert_eq!(answered(early), why, "{form:?} {end:?}");
            let late = UnixStream::connect(&socket).map(|mut late| {
                let _ = late.write_all(b"lost\n");
                answered(late)
            });
            match late {
                Ok(answer) => assert_ne!(answer, "ok\n", "{form:?} {end:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
            }
        });
    }
}

/// As without treaper, no process reads it any more.
#[test]
fn while_it_runs_a_write_of_the_host_to_stdin_fails() {
    let fails = |run: &Run, what: &str| {
        let stdin = run.stdin.as_ref().unwrap().try_clone().unwrap();
        let result = File::from(stdin).write_all(b"lost\n");
        let kind = result.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::BrokenPipe), "{what}");
    };
    for (form, end) in ways_to_end() {
        let mut run = start(form, |place| says(place, true), ENDS);
        meanwhile(&mut run, end, |run| {
            fails(run, &format!("{form:?} {end:?}"));
        });
    }
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Bare.tree("server:exit=3"));
    run.wait();
    fails(&run, "bare");
}

/// The monitor is killed when it has decided to start the command, and has not: the shim starts it.
#[test]
fn a_command_that_was_not_begun_is_begun_by_the_other_one() {
    let mut run = start(&[], |place| says(place, false), "server:on=TERM/3");
    let monitor = run.monitor();
    // The last fork of the monitor is that of the command.
    let calls = [libc::SYS_clone3, libc::SYS_clone];
    let mut tracer = common::trace(monitor, calls[0]);
    run.signal(libc::SIGTERM);
    common::held(&mut tracer);
    sys::kill(monitor, libc::SIGKILL).unwrap();
    drop(tracer);
    run.wait_empty();
    let said = lines(run.directory(), "said");
    assert_eq!(said.len(), 1, "{said:?} {}", run.stderr());
    assert_eq!(report(&run)["finally"], json!(0));
}

/// In a group in the background the kernel would suspend it, for as long as the grace period.
#[test]
fn at_a_terminal_it_can_restore_the_modes_of_that() {
    let restores = |place: &Path| {
        let said = place.join("said");
        format!("stty sane <&2; echo $? >>{}", said.display())
    };
    let start = |form: &[&str], tree: &str| {
        let (scene, master) = Scene::new().terminal();
        let finally = restores(scene.directory());
        let options = [form, &["--grace=60s", "--finally", &finally]].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).tree(tree));
        run.log.ready("server");
        (run, master)
    };
    for form in FORMS.into_iter().filter(|form| !is_missing(form)) {
        let (mut run, _master) = start(form, "server:exit=3");
        assert_eq!(run.wait_clean().code(), Some(3), "{form:?}");
        assert_eq!(lines(run.directory(), "said"), ["0"], "{form:?}");
    }
    // The shim, which is in the group of the job, starts it in the place of the monitor.
    let (mut run, _master) = start(&[], "server:on=TERM/4");
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    assert_eq!(run.wait_empty().code(), Some(4));
    assert_eq!(lines(run.directory(), "said"), ["0"]);
}

/// In the tree it would run too early.
#[test]
fn neither_the_server_nor_the_command_inherits_its_variable() {
    let seen = "echo [$TREAPER_FINALLY]";
    let output = Command::new(TREAPER)
        .args(["sh", "-c", seen])
        .env("TREAPER_FINALLY", seen)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&output.stdout), "[]\n");
    assert_eq!(text(&output.stderr), "[]\n");
}
