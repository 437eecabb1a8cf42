//! catatonit, and podman's init, which is catatonit.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::proc::Process;
use crate::common::{ACTOR, Run, Scene, first_second_over, skip, sys, until, until_it_rests};
use crate::oracle::{both, exchange, plain_signals, real, treaper_as, without_pids};

const A_WHILE: Duration = Duration::from_millis(400);

#[test]
fn statuses_are_those_of_catatonit() {
    let Some(real) = real("catatonit") else {
        return;
    };
    for (words, variables) in [
        (&["--", "sh", "-c", "exit 0"][..], &[][..]),
        (&["--", "sh", "-c", "exit 9"], &[]),
        (&["-g", "--", "sh", "-c", "kill $$"], &[]),
        (&["--", "sh", "-c", "kill -KILL $$"], &[]),
        (&["--", "no-such-command"], &[]),
        (&["/no/such"], &[]),
        (&["/etc/passwd"], &[]),
        (&["/etc/passwd/x"], &[]),
        (&[], &[]),
        (&["--"], &[]),
        (&["-z", "true"], &[]),
        (&["--no-such", "true"], &[]),
        (&["--vers"], &[]),
        (&["--version"], &[]),
        (&["-V", "-z"], &[]),
        (&["-h"], &[]),
        (&["-L"], &[]),
        (&["sh", "-c", "exit 3"], &[]),
        (&["sh", "-c", "exit 3"], &[("POSIXLY_CORRECT", "1")]),
        (&["true"], &[("CATATONIT_LOG", "x")]),
        (&["true"], &[("CATATONIT_DEBUG", "")]),
    ] {
        let expected = real.outcome(variables, words).code;
        for name in ["catatonit", "podman-init"] {
            let outcome = treaper_as(name).outcome(variables, words);
            assert_eq!(outcome.code, expected, "{name} {words:?}: {outcome:?}");
        }
    }
}

#[test]
fn complaints_are_those_of_catatonit() {
    let Some(real) = real("catatonit") else {
        return;
    };
    let own = treaper_as("catatonit");
    for (words, variables) in [
        (&[][..], &[][..]),
        (&["-z"], &[]),
        (&["--no-such"], &[]),
        (&["/no/such"], &[]),
        (&["/etc/passwd"], &[]),
        (&["true"], &[("CATATONIT_LOG", "x")]),
    ] {
        let printed = |program: &crate::oracle::Program| {
            let outcome = program.outcome(variables, words);
            let text = outcome
                .stderr
                .replace(program.path.to_str().unwrap(), "catatonit");
            (outcome.stdout, without_pids(&text))
        };
        assert_eq!(printed(&own), printed(&real), "{words:?}");
    }
}

/// The usage is catatonit's. The rest of the help, and the licence, are those of treaper.
#[test]
fn the_help_and_the_licence_are_printed() {
    let own = treaper_as("catatonit");
    let help = own.outcome(&[], &["-h"]);
    assert_eq!((help.code, help.stdout.as_str()), (Some(0), ""));
    assert!(
        help.stderr.starts_with("usage: catatonit [-ghLPV] "),
        "{help:?}"
    );
    for word in ["-P: ", "--version", "TREAPER_*"] {
        assert!(help.stderr.contains(word), "{word}: {help:?}");
    }
    let licence = own.outcome(&[], &["-L"]);
    assert_eq!(licence.stdout, include_str!("../../LICENSE-MIT"));
    assert_eq!((licence.code, licence.stderr.as_str()), (Some(0), ""));
}

#[test]
fn with_its_variable_each_step_is_reported() {
    let words = ["--", "sh", "-c", "true & exit 0"];
    for program in both("catatonit") {
        let outcome = program.outcome(&[("CATATONIT_DEBUG", "1")], &words);
        let text = &outcome.stderr;
        let (_, rest) = text.split_once("pid1 (").unwrap();
        let (server, rest) = rest.split_once(')').unwrap();
        assert!(rest.starts_with(" spawned: sh"), "{program:?}: {text}");
        // The server is none of the others.
        let child = format!("child process {server} ");
        assert!(!text.contains(&child), "{program:?}: {text}");
        let is_told = text.contains("got ECHILD: no children left to monitor");
        assert!(is_told || !program.is_treaper, "{text}");
        let outcome = program.outcome(&[], &words);
        assert_eq!(outcome.stderr, "", "{program:?}");
    }
    // The one that treaper ends, and catatonit leaves.
    let words = ["--", "sh", "-c", "sleep 1000 & exit 0"];
    let outcome = treaper_as("catatonit").outcome(&[("CATATONIT_DEBUG", "1")], &words);
    let ended = outcome.stderr.contains(" exited due to signal 15");
    assert!(ended, "{outcome:?}");
}

/// `docker info` looks for the name of tini, since it knows no other.
#[test]
fn the_version_begins_as_docker_looks_for_it() {
    for program in both("catatonit") {
        for words in [["--version"], ["-V"]] {
            let outcome = program.outcome(&[], &words);
            assert!(
                outcome.stdout.starts_with("tini version 0.1.7_catatonit"),
                "{outcome:?}"
            );
            assert_eq!(outcome.stdout.contains("treaper"), program.is_treaper);
        }
    }
}

#[test]
fn each_signal_reaches_the_server_once_except_for_suspending_ones() {
    let mut send = plain_signals();
    send.extend([libc::SIGTERM, libc::SIGHUP]);
    let dropped = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    for program in both("catatonit") {
        for options in [&[][..], &["-g"]] {
            let mut run = program.start(options, "server:record");
            assert_eq!(
                exchange(&mut run, &send, &dropped),
                send,
                "{program:?} {options:?}"
            );
        }
    }
}

#[test]
fn the_group_is_signalled_only_with_g() {
    for program in both("catatonit") {
        for grouped in [true, false] {
            let options: &[&str] = if grouped { &["-g"] } else { &[] };
            program.check_group(Scene::new(), options, grouped);
        }
    }
}

#[test]
fn the_pid_that_sockets_are_meant_for_becomes_that_of_the_server() {
    for program in both("catatonit") {
        let mut command = Command::new("sh");
        // `exec` makes the pid of the shell that of the program.
        let script =
            "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" -- sh -c 'echo $LISTEN_PID $$ $LISTEN_FDS'";
        let output = command
            .arg("-c")
            .arg(script)
            .arg(&program.path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[0], words[1], "{program:?}: {text}");
        assert_eq!(words[2], "1");
        let other = program.outcome(
            &[("LISTEN_PID", "77")],
            &["--", "sh", "-c", "echo $LISTEN_PID"],
        );
        assert_eq!(other.stdout, "77\n");
    }
}

/// The pause of a pod: there is no command, and only SIGINT or SIGTERM ends it.
#[test]
fn a_pause_ends_by_sigint_or_sigterm_with_0() {
    for program in both("catatonit") {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let mut command = Command::new(&program.path);
            command.arg("-P").stdin(Stdio::null()).process_group(0);
            let mut child = Pause(command.spawn().unwrap());
            let pid = child.0.id() as i32;
            until("a process that takes signals", || takes(pid, signal));
            for harmless in [libc::SIGUSR1, libc::SIGHUP, libc::SIGWINCH] {
                sys::kill(pid, harmless).unwrap();
            }
            until_it_rests(pid);
            assert!(child.0.try_wait().unwrap().is_none());
            sys::kill(pid, signal).unwrap();
            assert_eq!(
                child.0.wait().unwrap().code(),
                Some(0),
                "{program:?} {signal}"
            );
        }
    }
}

/// Ends with the test, also if the test fails.
struct Pause(Child);

impl Drop for Pause {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the signal is blocked, or the process waits for it. Before that, the signal would just kill the process.
fn takes(pid: i32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = blocked.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let waits = call.starts_with(&format!("{} ", libc::SYS_rt_sigtimedwait));
    waits || mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[test]
fn stdin_does_not_matter_and_the_rest_is_stopped() {
    for program in both("catatonit") {
        let tree = "server:on=USR1/5[worker:setsid:on=TERM/0]";
        let mut run = program.start_in(Scene::new().stdin_pipe(), &[], tree);
        run.log.ready("worker");
        first_second_over();
        run.close_stdin();
        assert!(!run.ends_within(A_WHILE), "{program:?}");
        program.check_rest(&mut run);
    }
}

/// A pause whose child `parent` exits at SIGUSR1 and leaves `tree` behind. Returns when the pause has adopted that.
fn adopting(scene: Scene, tree: &str) -> Run {
    let pause = treaper_as("catatonit");
    let script = "\"$0\" tree \"$1\" & exec \"$2\" -P";
    let tree = format!("parent:on=USR1/0[{tree}]");
    let folder = scene.directory().to_owned();
    let scene = scene.with(|command| {
        command.current_dir(folder);
    });
    let path = pause.path.to_str().unwrap();
    let mut run = scene.start(&["sh", "-c", script, ACTOR, &tree, path]);
    let [parent, orphan] = ["parent", "orphan"].map(|name| run.log.ready(name));
    // The pause leaves its directory once it adopts orphans.
    let directory = format!("/proc/{}/cwd", run.main);
    until("a pause that adopts", || {
        std::fs::read_link(&directory).is_ok_and(|path| path.as_os_str() == "/")
    });
    sys::kill(parent, libc::SIGUSR1).unwrap();
    until("the pause has adopted the orphan", || {
        Process::read(orphan).is_some_and(|process| process.ppid == run.main)
    });
    run
}

#[test]
fn a_pause_ends_the_orphans_that_it_has_adopted() {
    let mut run = adopting(Scene::new(), "orphan:setsid");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
}

/// A zombie that its tracer does not reap cannot be ended.
#[test]
fn a_pause_that_has_to_leave_a_process_says_so_by_its_status() {
    let scene = Scene::new()
        .env("TREAPER_GRACE", "100ms")
        .env("TREAPER_KILL_TIMEOUT", "300ms");
    let mut run = adopting(scene, "orphan:ignore=TERM");
    let orphan = run.log.ready("orphan").to_string();
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &orphan]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return skip("tracing a stranger is not allowed here");
    }
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    assert_eq!(exit.code(), Some(123), "{}", run.stderr());
    drop(tracer);
    run.wait_empty();
}
