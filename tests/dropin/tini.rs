//! tini, and docker-init, which is tini.

use std::time::Duration;

use crate::common::scene::Directory;
use crate::common::{ACTOR, Scene, first_second_over, until};
use crate::oracle::{Program, both, exchange, plain_signals, real, treaper_as, without_pids};

const A_WHILE: Duration = Duration::from_millis(400);

#[test]
fn statuses_are_those_of_tini() {
    let Some(tini) = real("tini") else { return };
    let directory = Directory::new();
    let no_interpreter = &*directory.program("script", b"#!/no/such/interpreter\n");
    for (words, variables) in [
        (&["--", "sh", "-c", "exit 7"][..], &[][..]),
        (&["-s", "--", "sh", "-c", "exit 0"], &[]),
        (&["--", "sh", "-c", "kill -KILL $$"], &[]),
        (&["--", "sh", "-c", "kill -USR1 $$"], &[]),
        (&["-e", "143", "--", "sh", "-c", "kill $$"], &[]),
        (&["-e", "7", "-e3", "--", "sh", "-c", "exit 3"], &[]),
        (&["-e", "", "--", "sh", "-c", "exit 3"], &[]),
        (&["-e", " +7", "--", "sh", "-c", "exit 7"], &[]),
        (&["-e", "256", "true"], &[]),
        (&["-e", "-1", "true"], &[]),
        (&["-e", "7x", "true"], &[]),
        (&["-e"], &[]),
        (&["-p", "TERM", "true"], &[]),
        (&["-p", "SIGRTMIN", "true"], &[]),
        (&["-p", "SIGTERM", "--", "true"], &[]),
        (&["-z"], &[]),
        (&["--foo", "true"], &[]),
        (&["--version"], &[]),
        (&["--version", "true"], &[]),
        (&["-h"], &[]),
        (&["-hz"], &[]),
        (&["-zh"], &[]),
        (&["-l"], &[]),
        (&[], &[]),
        (&["--"], &[]),
        (&["-svvw"], &[]),
        (&["--", "no-such-command"], &[]),
        (&["/no/such/command"], &[]),
        (&["/etc/passwd"], &[]),
        (&["/"], &[]),
        (&["/etc/passwd/x"], &[]),
        (&["--", "."], &[]),
        // The child of tini exits so, and its status is mapped as any other.
        (&["-e", "127", "--", "no-such-command"], &[]),
        (&["-e", "126", "--", "no-such-command"], &[]),
        (&["-e", "126", "--", "/etc/passwd"], &[]),
        (&["-e", "1", "--", "/etc/passwd/x"], &[]),
        (&["-e", "126", "--", "/etc/passwd/x"], &[]),
        (&["--", no_interpreter], &[]),
        (&["-e", "127", "--", no_interpreter], &[]),
        (&["-e", "126", "--", no_interpreter], &[]),
        // Options are also found after the first word, so `-c` does not reach the shell.
        (&["sh", "-c", "exit 3"], &[]),
        (&["sh", "-c", "exit 3"], &[("POSIXLY_CORRECT", "1")]),
        (&["true", "-h"], &[]),
        (&["sh", "-s", "--", "-c", "exit 4"], &[]),
        (&["--", "sh", "-c", "exit 5"], &[("TINI_SUBREAPER", "")]),
        (&["--", "sh", "-c", "exit 5"], &[("TINI_VERBOSITY", "x")]),
        (
            &["--", "sh", "-c", "exit 5"],
            &[("TINI_KILL_PROCESS_GROUP", "")],
        ),
    ] {
        let expected = tini.outcome(variables, words).code;
        for name in ["tini", "tini-static", "docker-init"] {
            let outcome = treaper_as(name).outcome(variables, words);
            assert_eq!(outcome.code, expected, "{name} {words:?}: {outcome:?}");
        }
    }
}

#[test]
fn as_pid_1_the_status_of_no_program_is_mapped_too() {
    for program in both("tini") {
        for (words, status) in [
            (&["-e", "1", "--", "/etc/passwd/x"], 0),
            (&["-e", "126", "--", "/etc/passwd/x"], 1),
        ] {
            let mut run = Scene::new().pidns().start(&program.words(words));
            assert_eq!(run.wait_clean().code(), Some(status), "{program:?}");
        }
    }
}

#[test]
fn complaints_are_those_of_tini() {
    let Some(tini) = real("tini") else { return };
    for words in [
        &["-p", "XX", "true"][..],
        &["-e", "300", "true"],
        &["-s", "--", "no-such-command"],
        &["-s", "--", "/etc/passwd"],
    ] {
        let theirs = tini.outcome(&[], words);
        let outcome = treaper_as("tini").outcome(&[], words);
        let own = without_pids(&outcome.stderr);
        assert_eq!(own, without_pids(&theirs.stderr), "{words:?}");
        assert_eq!(outcome.stdout, theirs.stdout);
    }
    for words in [&["-z"][..], &["-e"], &["--foo"]] {
        // getopt names the program by its whole path, and the usage by the last part of the path.
        let printed = |program: &Program| {
            let path = program.path.to_str().unwrap();
            let text = program.outcome(&[], words).stderr;
            assert!(text.starts_with(path), "{text}");
            text.lines().next().unwrap()[path.len()..].to_owned()
        };
        assert_eq!(printed(&treaper_as("tini")), printed(&tini));
    }
}

#[test]
fn every_status_can_be_mapped_and_no_other_is() {
    let program = treaper_as("tini");
    let all: Vec<String> = (0..=255).map(|code: u8| code.to_string()).collect();
    for code in &all {
        let exit = format!("exit {code}");
        let one = program.outcome(&[], &["-e", code, "--", "sh", "-c", &exit]);
        assert_eq!(one.code, Some(0), "-e {code}");
    }
    for code in all.iter().step_by(5) {
        let exit = format!("exit {code}");
        let mut words: Vec<&str> = Vec::new();
        for other in all.iter().filter(|other| *other != code) {
            words.extend(["-e", other]);
        }
        words.extend(["sh", "-c", &exit]);
        let others = program.outcome(&[("POSIXLY_CORRECT", "1")], &words);
        assert_eq!(others.code, code.parse().ok(), "all but {code}");
    }
}

#[test]
fn the_version_begins_as_docker_looks_for_it() {
    for name in ["tini", "docker-init"] {
        let text = treaper_as(name).outcome(&[], &["--version"]).stdout;
        assert!(text.starts_with("tini version 0.19.0"), "{text}");
        assert!(text.contains("treaper"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn help_names_every_option_and_variable_that_tini_names() {
    let Some(tini) = real("tini") else { return };
    let (theirs, own) = (
        tini.outcome(&[], &["-h"]),
        treaper_as("tini").outcome(&[], &["-h"]),
    );
    let option = |line: &str| {
        line.strip_prefix("  ")
            .and_then(|l| l.split_once(':'))
            .map(|o| o.0.to_owned())
    };
    let names: Vec<String> = theirs.stdout.lines().filter_map(option).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(own.stdout.contains(&name), "{name}");
    }
    assert_eq!(own.stderr, theirs.stderr);
}

/// tini writes INFO, DEBUG and TRACE to stdout. With treaper stdout belongs to the server, and a copy of it would hide
/// its end from the host. So treaper writes these lines to stderr.
#[test]
fn messages_are_in_the_words_of_tini() {
    let Some(tini) = real("tini") else { return };
    for command in ["exit 7", "kill $$"] {
        for options in ["-s", "-sv", "-svv", "-svvv"] {
            let words = [options, "--", "sh", "-c", command];
            let theirs = without_pids(&tini.outcome(&[], &words).stdout);
            let outcome = treaper_as("tini").outcome(&[], &words);
            assert_eq!(outcome.stdout, "");
            let own = without_pids(&outcome.stderr);
            assert_eq!(
                own.is_empty(),
                theirs.is_empty(),
                "{options}: {own} | {theirs}"
            );
            for line in own.lines() {
                assert!(
                    theirs.lines().any(|l| l == line),
                    "{options}: {line} is not in {theirs}"
                );
            }
            // treaper does not log SIGCHLD itself, the subreaper, and empty waits.
            let missing = theirs.lines().filter(|l| !own.lines().any(|m| m == *l));
            for line in missing {
                let known = [
                    "Received SIGCHLD",
                    "Registered as child",
                    "No child to wait",
                ];
                assert!(known.iter().any(|k| line.contains(k)), "{options}: {line}");
            }
        }
    }
    let loud = treaper_as("tini").outcome(&[("TINI_VERBOSITY", "2")], &["--", "true"]);
    assert!(
        loud.stderr.contains("Spawned child process 'true'"),
        "{loud:?}"
    );
    for text in [
        "-1",
        "4",
        "4294967295",
        "2147483648",
        "99999999999999999999",
    ] {
        for program in [&tini, &treaper_as("tini")] {
            let outcome = program.outcome(&[("TINI_VERBOSITY", text)], &["-s", "--", "true"]);
            let all = outcome.stdout + &outcome.stderr;
            assert!(all.contains("[TRACE tini"), "{text}: {program:?}: {all}");
        }
    }
    for text in ["0", "", "x", "4294967296", "-99999999999999999999"] {
        for program in [&tini, &treaper_as("tini")] {
            let outcome = program.outcome(&[("TINI_VERBOSITY", text)], &["-s", "--", "true"]);
            assert_eq!(outcome.stdout + &outcome.stderr, "", "{text}: {program:?}");
        }
    }
    let quiet = treaper_as("tini").outcome(&[("TINI_VERBOSITY", "1")], &["-vvv", "--", "true"]);
    assert_eq!(quiet.stderr, "");
}

/// tini warns that it cannot reap if it is neither PID 1 nor a subreaper. treaper always becomes one.
#[test]
fn no_warning_comes_for_zombies_that_are_reaped_anyway() {
    for program in both("tini") {
        let text = program.outcome(&[], &["--", "true"]).stderr;
        assert_eq!(
            text.contains("zombie reaping won't work"),
            !program.is_treaper
        );
    }
}

#[test]
fn each_signal_reaches_the_server_once_also_a_second_sigterm() {
    let mut send = plain_signals();
    send.extend([libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP]);
    for program in both("tini") {
        for options in [&["-s"][..], &["-sg"]] {
            let mut run = program.start(options, "server:record");
            let all = exchange(&mut run, &send, &[libc::SIGTTIN, libc::SIGTTOU]);
            assert_eq!(all, send, "{program:?} {options:?}");
        }
    }
}

#[test]
fn a_signal_that_ends_the_server_ends_treaper_the_same_way() {
    for program in both("tini") {
        for signal in [
            libc::SIGTERM,
            libc::SIGINT,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGHUP,
        ] {
            let mut run = program.start(&["-s"], "server");
            run.signal(signal);
            assert_eq!(run.wait_clean().code(), Some(128 + signal), "{program:?}");
        }
    }
}

/// Each forwarded signal is logged here, and each line that cannot be written causes a signal.
#[test]
fn a_line_that_cannot_be_written_is_no_signal_to_the_server() {
    let scene = Scene::new().stderr_at_its_size_limit();
    let mut run = treaper_as("tini").start_in(scene, &["-svvv"], "server:record");
    let sent = [libc::SIGUSR1, libc::SIGXFSZ, libc::SIGUSR2];
    assert_eq!(exchange(&mut run, &sent, &[]), sent);
}

#[test]
fn the_group_is_signalled_only_with_g() {
    for program in both("tini") {
        for (options, variable, grouped) in [
            (&["-sg"][..], None, true),
            (&["-s"], Some("TINI_KILL_PROCESS_GROUP"), true),
            (&["-s"], None, false),
        ] {
            let scene = variable
                .into_iter()
                .fold(Scene::new(), |s, name| s.env(name, "1"));
            program.check_group(scene, options, grouped);
        }
    }
}

#[test]
fn orphans_are_reaped_while_the_server_runs_and_w_logs_them() {
    for program in both("tini") {
        for (options, lines) in [(&["-s"][..], 0), (&["-sw"], 3)] {
            let mut run = program.start(options, "server:on=TERM/0[orphan*3:daemon:exit=3]");
            let gone: Vec<i32> = run
                .log
                .wait_for(3, "orphan", "ready")
                .iter()
                .map(super::common::log::Line::pid)
                .collect();
            until("all orphans reaped", || {
                gone.iter()
                    .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
            });
            run.signal(libc::SIGTERM);
            assert_eq!(run.wait().code(), Some(0));
            let text = run.stderr();
            let count = text.matches("Reaped zombie process with pid=").count();
            assert_eq!(count, lines, "{program:?}: {text}");
        }
    }
}

/// tini exits with its child, and leaves the rest of the tree (in a container the kernel then kills it in the middle of
/// its work). That is a leak, so treaper sends the stop signal to the rest, and waits.
#[test]
fn processes_left_by_the_server_are_stopped() {
    for program in both("tini") {
        let tree = "server:on=USR1/5[worker:setsid:on=TERM/0,deep:daemon:on=TERM/0]";
        let mut run = program.start(&["-s"], tree);
        run.log.ready("worker");
        run.log.ready("deep");
        program.check_rest(&mut run);
        if program.is_treaper {
            assert_eq!(run.received("worker"), [libc::SIGTERM]);
            assert_eq!(run.received("deep"), [libc::SIGTERM]);
        }
    }
}

/// The program that stops tini decides how long the server may take. With `TREAPER_TERM=stop`, treaper decides.
#[test]
fn sigterm_has_no_deadline_unless_it_is_asked_for() {
    for (variable, ends) in [("forward", false), ("stop", true)] {
        let scene = Scene::new()
            .env("TREAPER_TERM", variable)
            .env("TREAPER_GRACE", "100ms");
        let mut run = treaper_as("tini").start_in(scene, &[], "server:ignore=TERM");
        run.signal(libc::SIGTERM);
        if ends {
            run.wait_clean();
        } else {
            assert!(!run.ends_within(A_WHILE), "{variable}");
        }
    }
}

#[test]
fn neither_stdin_nor_the_parent_stops_it_unless_p_is_given() {
    for program in both("tini") {
        let mut run = program.start_in(Scene::new().stdin_pipe(), &["-s"], "server");
        run.log.ready("server");
        first_second_over();
        run.close_stdin();
        assert!(!run.ends_within(A_WHILE), "{program:?}");
        let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
        let words = program.words(&["-s", "--", ACTOR, "tree", "server:record"]);
        let mut run = Scene::new().start(&[&host[..], &words].concat());
        run.log.ready("server");
        run.log.wait("host", "spawned");
        run.signal(libc::SIGKILL);
        run.wait();
        assert!(
            !run.log.comes_within(A_WHILE, "server", "signal"),
            "{program:?}"
        );
    }
}

/// SIGKILL kills tini itself, and its child lives on. That is a leak, so treaper kills the child.
#[test]
fn with_p_the_server_is_signalled_when_the_parent_ends() {
    for program in both("tini") {
        for signal in ["SIGTERM", "SIGUSR1", "SIGKILL"] {
            let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
            let tree = "server:on=TERM+USR1/0";
            let words = program.words(&["-s", "-p", signal, "--", ACTOR, "tree", tree]);
            let mut run = Scene::new().start(&[&host[..], &words].concat());
            let server = run.log.ready("server");
            run.log.wait("host", "spawned");
            run.signal(libc::SIGKILL);
            if program.is_treaper || signal != "SIGKILL" {
                run.wait_empty();
            } else {
                run.wait();
                assert!(run.survivors().iter().any(|p| p.pid == server));
            }
            let signalled = run.received("server");
            let expected: &[i32] = match signal {
                "SIGTERM" => &[libc::SIGTERM],
                "SIGUSR1" => &[libc::SIGUSR1],
                _ => &[],
            };
            assert_eq!(signalled, expected, "{program:?} -p {signal}");
        }
    }
}

/// The option only counts for the death of the parent.
#[test]
fn another_stop_does_not_use_the_signal_for_the_parents_death() {
    let tree = "server:on=USR2/0[worker:setsid:on=TERM+USR1/0]";
    let words = treaper_as("tini").words(&["-s", "-p", "SIGUSR1", "--", ACTOR, "tree", tree]);
    let mut run = Scene::new().start(&words);
    run.log.ready("server");
    run.log.ready("worker");
    run.signal(libc::SIGUSR2);
    run.wait_clean();
    assert_eq!(run.received("worker"), [libc::SIGTERM]);
}
