//! The stop: terminate, grace, kill, done. Each step ends early if no process is left.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::log::Line;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, is_quiet, signals, sys, treaper, until};

fn at(line: &Line) -> i64 {
    line.number("at")
}

#[test]
fn a_tree_that_exits_on_sigterm_is_not_delayed() {
    let tree = "server:on=TERM/3[worker*3:setsid:on=TERM/0,deep:daemon[leaf:pgrp]]";
    let mut run = treaper(
        &["--drain", "20s", "--grace", "20s"],
        tree,
        &["server", "leaf"],
    );
    run.log.wait_for(3, "worker", "ready");
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(3));
    assert!(
        sys::now_ms() - before < 15_000,
        "took {} ms",
        sys::now_ms() - before
    );
    assert_eq!(run.stderr(), "");
}

#[test]
fn a_server_that_ignores_term_is_killed_after_the_grace_and_not_before() {
    let mut run = treaper(&["--grace", "400ms"], "server:ignore=TERM", &["server"]);
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
    let took = sys::now_ms() - before;
    assert!((395..15_000).contains(&took), "took {took} ms");
    let stderr = run.stderr();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("treaper: "), "{stderr}");
}

/// As under faketime. A program that is linked statically loads no such library.
#[test]
fn a_clock_of_a_preloaded_library_that_stands_still_keeps_no_sigkill_waiting() {
    let scene = Scene::new();
    let (source, library) = (
        scene.directory().join("c.c"),
        scene.directory().join("c.so"),
    );
    let text = "#include <time.h>\nint clock_gettime(clockid_t clock, struct timespec *time)\n\
        { time->tv_sec = 1000000000; time->tv_nsec = 0; return 0; }\n";
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    let preload = format!("LD_PRELOAD={}", library.display());
    let date = Command::new("env")
        .args([&*preload, "date", "+%s"])
        .output();
    assert_eq!(date.unwrap().stdout, b"1000000000\n");
    let script = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let words = [
        "env",
        &preload,
        TREAPER,
        "--grace=100ms",
        "sh",
        "-c",
        script,
    ];
    let mut run = scene.start(&Wrap::Bare.command(&words));
    until("the server", || run.stdout() == "up\n");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
}

#[test]
fn staged_signals_the_server_first_and_the_rest_when_it_is_gone() {
    let tree = "server:on=TERM/0:slow=300[worker*2:setsid:on=TERM/0]";
    let mut run = treaper(&["--grace", "20s"], tree, &["server"]);
    run.log.wait_for(2, "worker", "ready");
    run.signal(libc::SIGTERM);
    run.wait_clean();
    let left = at(&run.log.wait("server", "leaving"));
    let signalled = run.log.wait_for(2, "worker", "signal");
    assert_eq!(signalled.len(), 2, "each once");
    assert!(
        signalled.iter().all(|line| at(line) >= left),
        "{:#?}",
        run.log.lines
    );
}

/// How long after SIGTERM the worker of a server that ignores SIGTERM gets the signal, and how long until all are gone.
fn worker_is_signalled_and_all_are_gone_after(options: &[&str]) -> (i64, i64) {
    let tree = "server:ignore=TERM[worker:setsid:record]";
    let mut run = treaper(options, tree, &["server", "worker"]);
    let before = sys::now_ms() as i64;
    run.signal(libc::SIGTERM);
    run.wait_clean();
    let gone = sys::now_ms() as i64 - before;
    (at(&run.log.wait("worker", "signal")) - before, gone)
}

#[test]
fn staged_signals_the_rest_a_quarter_of_the_grace_before_sigkill_at_the_latest() {
    let (signalled, gone) = worker_is_signalled_and_all_are_gone_after(&["--grace", "6s"]);
    assert!((4495..6000).contains(&signalled), "after {signalled} ms");
    assert!(gone >= 5995, "gone after {gone} ms");
}

#[test]
fn the_stage_can_be_set_and_one_longer_than_the_grace_signals_all_at_once() {
    // Without `--stage`, that would be after 4.5 s.
    let options = ["--grace", "6s", "--stage", "4s"];
    let (signalled, _) = worker_is_signalled_and_all_are_gone_after(&options);
    assert!((1995..4495).contains(&signalled), "after {signalled} ms");
    let options = ["--grace", "6s", "--stage", "1m"];
    let (signalled, _) = worker_is_signalled_and_all_are_gone_after(&options);
    assert!((0..4495).contains(&signalled), "after {signalled} ms");
}

#[test]
fn a_server_that_finishes_its_work_is_not_disturbed_by_the_end_of_its_workers() {
    let tree = "server:on=TERM/0:slow=3000[worker:setsid:record]";
    let mut run = treaper(&["--grace", "2m"], tree, &["server", "worker"]);
    run.signal(libc::SIGTERM);
    let left = at(&run.log.wait("server", "leaving"));
    let signalled = at(&run.log.wait("worker", "signal"));
    assert!(
        signalled >= left,
        "signalled {} ms too early",
        left - signalled
    );
}

#[test]
fn tree_signals_all_at_once() {
    let tree = "server:on=TERM/0:slow=5000[worker*2:setsid:on=TERM/0,deep:daemon:on=TERM/0]";
    let mut run = treaper(&["-k", "tree", "--grace", "20s"], tree, &["server", "deep"]);
    run.log.wait_for(2, "worker", "ready");
    run.signal(libc::SIGTERM);
    run.wait_clean();
    let left = at(&run.log.wait("server", "leaving"));
    for name in ["worker", "worker", "deep"] {
        let signalled = run.log.wait(name, "signal");
        assert!(
            at(&signalled) < left,
            "{name} was signalled late: {:#?}",
            run.log.lines
        );
    }
}

#[test]
fn mixed_signals_the_server_only() {
    let tree = "server:on=TERM/0[worker:setsid:on=TERM/0]";
    let mut run = treaper(
        &["-k", "mixed", "--grace", "3s"],
        tree,
        &["server", "worker"],
    );
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
    assert_eq!(run.log.all("server", "signal").len(), 1);
    assert_eq!(run.log.all("worker", "signal").len(), 0);
}

#[test]
fn suspended_processes_are_resumed_so_that_they_can_exit() {
    let tree = "server:on=TERM/3:stopped[worker:setsid:stopped:on=TERM/0,\
                deep:daemon:stopped:on=TERM/0]";
    for mode in ["staged", "tree"] {
        let options = ["-vv", "-k", mode, "--grace", "20s"];
        let mut run = treaper(&options, tree, &["server", "worker", "deep"]);
        common::until("three suspended", || {
            run.survivors().iter().filter(|p| p.state == 'T').count() == 3
        });
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
        for name in ["server", "worker", "deep"] {
            let left = run.log.all(name, "leaving").len();
            let stderr = run.stderr();
            assert_eq!(left, 1, "{mode}, {name}: {:#?}\n{stderr}", run.log.lines);
        }
    }
}

const SHAPES: &[(&str, &str)] = &[
    (
        "own sessions",
        "server[a:setsid:ignore=TERM[b:setsid:ignore=TERM,c:pgrp:ignore=TERM]]",
    ),
    (
        "double forks",
        "server[a:daemon:ignore=TERM[b:daemon:ignore=TERM,c:daemon:ignore=TERM]]",
    ),
    (
        "stopped",
        "server:stopped[a:stopped,b:stopped:setsid,c:stopped:daemon:ignore=TERM]",
    ),
    ("chains", "server[a*8:chain=2,b:chain=2:daemon,c]"),
    ("busy chains", "server:ignore=TERM[a*8:chain=0,b,c]"),
    ("a bomb", "server:ignore=TERM[a:bomb=200,b,c]"),
    (
        "a bomb of sessions",
        "server:ignore=TERM[a:bomb=200:spread,b:daemon,c]",
    ),
];

#[test]
fn no_shape_of_tree_survives() {
    for (shape, tree) in SHAPES {
        // A suspended server has to run before it can end by SIGTERM.
        let grace = if *shape == "stopped" { "3s" } else { "150ms" };
        let mut run = treaper(&["--grace", grace], tree, &["server", "a", "b", "c"]);
        run.signal(libc::SIGTERM);
        let exit = run.wait_clean();
        // A server that does not ignore SIGTERM ends by it. The others are killed.
        let by = if tree.starts_with("server:ignore=TERM") {
            libc::SIGKILL
        } else {
            libc::SIGTERM
        };
        assert_eq!(exit.code(), Some(128 + by), "{shape}");
    }
}

#[test]
fn no_shape_of_tree_survives_its_server() {
    for (shape, tree) in SHAPES {
        let mut run = treaper(&["--grace", "150ms"], tree, &["server", "a", "b", "c"]);
        let server = run.log.ready("server");
        sys::kill(server, libc::SIGKILL).unwrap();
        assert_eq!(
            run.wait_clean().code(),
            Some(128 + libc::SIGKILL),
            "{shape}"
        );
    }
}

#[test]
fn control_without_treaper_every_shape_survives() {
    for (shape, tree) in SHAPES {
        let mut run = Scene::new()
            .start(&Wrap::Bare.tree(tree))
            .ready(&["server", "a", "b", "c"]);
        run.signal(libc::SIGKILL);
        // One scan may miss some processes of a chain.
        assert!(!run.wait().left.is_empty(), "{shape}");
    }
}

#[test]
fn an_endless_bomb_at_its_process_limit_does_not_survive() {
    if !sys::is_root() {
        return common::skip("the limit needs a uid of its own");
    }
    for spread in ["", ":spread"] {
        let tree = format!("server:ignore=TERM[bomb:uid=54321:nproc=80:bomb=100000000{spread}]");
        let mut run = treaper(&["--grace", "200ms"], &tree, &["server", "bomb"]);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
    }
}

#[test]
fn processes_of_another_uid_do_not_survive() {
    if !sys::is_root() {
        return common::skip("only root can start another uid");
    }
    let tree = "server[a:uid=12345:ignore=TERM[b:daemon:ignore=TERM],c:daemon:uid=12346]";
    let mut run = treaper(&["--grace", "200ms"], tree, &["server", "a", "b", "c"]);
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn processes_left_by_a_server_are_stopped_and_the_status_is_the_servers() {
    let tree = "server:exit=9[polite:setsid:on=TERM/0,deaf:daemon:ignore=TERM]";
    let mut run = treaper(&["--grace", "300ms"], tree, &["server"]);
    assert_eq!(run.wait_clean().code(), Some(9));
    // The stop may have come before they were ready. Neither may be left.
    let stderr = run.stderr();
    let is_known = |line: &str| {
        let what = line
            .strip_prefix("treaper: server-exit: ")
            .unwrap_or_default();
        what.starts_with("the server exited, so its daemons") || what.starts_with("had to SIGKILL")
    };
    assert!(
        stderr.lines().count() <= 2 && stderr.lines().all(is_known),
        "{stderr}"
    );
}

#[test]
fn until_tree_waits_for_the_last_one() {
    let options = ["--until", "tree", "--grace", "200ms"];
    let mut run = treaper(
        &options,
        "server:exit=5[worker:setsid,deep:daemon]",
        &["worker", "deep"],
    );
    assert!(!run.ends_within(Duration::from_millis(300)));
    for name in ["worker", "deep"] {
        let pid = run.log.ready(name);
        sys::kill(pid, libc::SIGKILL).unwrap();
    }
    assert_eq!(run.wait_clean().code(), Some(5));
}

#[test]
fn until_tree_stops_the_rest_when_a_trigger_comes() {
    let options = ["--until", "tree", "--grace", "200ms"];
    let tree = "server:exit=5[worker:setsid:ignore=TERM]";
    let mut run = treaper(&options, tree, &["worker"]);
    assert!(!run.ends_within(Duration::from_millis(200)));
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(5));
}

#[test]
fn further_stop_signals_neither_hasten_nor_delay_the_end() {
    let mut run = treaper(&["--grace", "3s"], "server:record", &["server"]);
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    for round in 0..2000 {
        let signal = if round % 2 == 0 {
            libc::SIGTERM
        } else {
            libc::SIGHUP
        };
        let _ = sys::kill(run.main, signal);
        if run.ends_within(Duration::from_millis(10)) {
            break;
        }
    }
    run.wait_clean();
    let took = sys::now_ms() - before;
    assert!((2990..15_000).contains(&took), "took {took} ms");
    let signalled = run.log.all("server", "signal");
    let stops = |n| {
        signalled
            .iter()
            .filter(|line| line.number("sig") == n)
            .count()
    };
    assert_eq!((stops(15), stops(1)), (1, 0), "{signalled:#?}");
}

#[test]
fn a_hang_up_stops_unless_it_was_ignored_at_the_start_or_is_to_be_forwarded() {
    let tree = "server:record[worker:ignore=TERM]";
    let mut run = treaper(&["-v", "--grace", "200ms"], tree, &["server"]);
    run.signal(libc::SIGHUP);
    run.wait_clean();
    assert!(run.stderr().contains("hangup"));

    let nohup = Scene::new().before_exec(|| sys::ignore(libc::SIGHUP, true));
    let mut run = nohup
        .start(&Wrap::Treaper(&[]).tree("server[worker]"))
        .ready(&["server"]);
    run.signal(libc::SIGHUP);
    assert!(!run.ends_within(Duration::from_millis(300)));

    let nohup = Scene::new().before_exec(|| sys::ignore(libc::SIGHUP, true));
    let options = ["--hup", "stop", "--grace", "200ms"];
    let mut run = nohup
        .start(&Wrap::Treaper(&options).tree(tree))
        .ready(&["server"]);
    run.signal(libc::SIGHUP);
    run.wait_clean();

    let options = ["--hup", "forward", "--grace", "200ms"];
    let mut run = treaper(&options, tree, &["server"]);
    run.signal(libc::SIGHUP);
    assert_eq!(run.log.wait("server", "signal").number("sig"), 1);
    assert!(!run.ends_within(Duration::from_millis(300)));
}

/// treaper with `options`, as the main process of a systemd unit: the variable holds its pid.
fn as_main_process(options: &str, tree: &str) -> Run {
    let command = format!("SYSTEMD_EXEC_PID=$$ exec \"$0\" {options} -- \"$1\" tree \"$2\"");
    let mut run = Scene::new().start(&["sh", "-c", &command, TREAPER, ACTOR, tree]);
    run.log.ready("server");
    run
}

/// `systemctl kill` signals every process of the unit, also the monitor.
#[test]
fn a_signal_of_the_manager_to_all_processes_reaches_the_server_once() {
    let unit = "SYSTEMD_EXEC_PID=$$ exec \"$0\" -- \"$1\" tree server:record";
    // Real-time signals are not merged. The shim gets the last one, and forwards it.
    let manager = format!(
        "sh -c '{unit}' \"$0\" \"$1\" & read monitor shim; kill -{0} $monitor; kill -{0} $shim; wait",
        signals::RTMIN
    );
    let scene = Scene::new().stdin_pipe();
    let mut run = scene.start(&["bash", "-c", &manager, TREAPER, ACTOR]);
    run.log.ready("server");
    let (shim, monitor) = (run.shim(), run.monitor());
    run.write_stdin(format!("{monitor} {shim}\n").as_bytes());
    run.log.wait("server", "signal");
    until("a pair that waits", || is_quiet(shim) && is_quiet(monitor));
    sys::kill(shim, libc::SIGUSR1).unwrap();
    run.log.wait_for(2, "server", "signal");
    until("a pair that waits", || is_quiet(shim) && is_quiet(monitor));
    let expected = [signals::RTMIN, libc::SIGUSR1];
    assert_eq!(run.received("server"), expected);
    // Control: the monitor forwards what another process sends to it.
    sys::kill(monitor, signals::RTMIN).unwrap();
    run.log.wait_for(3, "server", "signal");
}

/// The same as PID 1.
fn as_pid_1(options: &str, tree: &str) -> Run {
    let options: Vec<&str> = options.split_whitespace().collect();
    let scene = Scene::new().pidns();
    scene
        .start(&Wrap::Treaper(&options).tree(tree))
        .ready(&["server"])
}

type Start = fn(&str, &str) -> Run;
const MANAGED: [(&str, Start); 2] = [("PID 1", as_pid_1), ("unit", as_main_process)];

#[test]
fn in_a_unit_sighup_is_for_the_server_and_treaper_ends_by_its_signal() {
    let mut run = as_main_process("", "server:on=HUP/7");
    run.signal(libc::SIGHUP);
    assert_eq!(run.wait_clean().code(), Some(7));
    let mut run = as_main_process("", "server");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().signal(), Some(libc::SIGTERM));
    // Control: elsewhere SIGHUP is a reason to stop, and the signal becomes an exit status.
    let mut run = treaper(&[], "server:on=HUP/7", &["server"]);
    run.signal(libc::SIGHUP);
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn a_manager_asks_for_a_reload_by_sighup() {
    let tree = "server:record";
    for (place, start) in MANAGED {
        if place == "PID 1" && !sys::is_root() {
            common::skip("only root can make a PID namespace with a /proc here");
            continue;
        }
        let mut run = start("--grace 200ms", tree);
        run.signal(libc::SIGHUP);
        let signalled = run.log.wait("server", "signal").number("sig");
        assert_eq!(signalled, i64::from(libc::SIGHUP), "{place}");
        assert!(!run.ends_within(Duration::from_millis(300)), "{place}");

        let mut run = start("--grace 20s --hup stop", "server:record:on=TERM/0");
        run.signal(libc::SIGHUP);
        let signalled = run.log.wait("server", "signal").number("sig");
        assert_eq!(signalled, i64::from(libc::SIGTERM), "{place}");
        run.wait_clean();
    }
}

#[test]
fn the_deadline_of_a_manager_counts_unless_a_grace_was_set() {
    // Longer than the default grace, which a busy machine reaches late.
    let tree = "server:on=TERM/7:slow=15000";
    let mut runs = Vec::new();
    for (place, start) in MANAGED {
        if place == "PID 1" && !sys::is_root() {
            common::skip("only root can make a PID namespace with a /proc here");
            continue;
        }
        runs.push((place, start("", tree), 7));
        runs.push((place, start("--grace 10s", tree), 128 + libc::SIGKILL));
        runs.push((place, start("--hup stop", tree), -1));
    }
    runs.push((
        "elsewhere",
        treaper(&[], tree, &["server"]),
        128 + libc::SIGKILL,
    ));
    for (_, run, status) in &runs {
        let signal = if *status < 0 {
            libc::SIGHUP
        } else {
            libc::SIGTERM
        };
        run.signal(signal);
    }
    for (place, mut run, status) in runs {
        // Only after SIGTERM does a manager have a deadline.
        let expected = if status < 0 {
            128 + libc::SIGKILL
        } else {
            status
        };
        // The main process of a unit ends by the signal that has ended the server.
        let code = run.wait_clean().code().unwrap_or(128 + libc::SIGKILL);
        assert_eq!(code, expected, "{place}: {status}");
    }
}

/// A daemon that needs 12 s to save after its server has ended: more than the default grace, and less than the manager
/// gives.
#[test]
fn the_deadline_of_a_manager_counts_for_the_rest_as_well() {
    let tree = "server:on=TERM/7[saver:setsid:on=TERM/0:slow=12000]";
    let mut runs = Vec::new();
    for (place, start) in MANAGED {
        if place == "PID 1" && !sys::is_root() {
            common::skip("only root can make a PID namespace with a /proc here");
            continue;
        }
        runs.push((place, start("", tree), 1));
        runs.push((place, start("--grace 1s", tree), 0));
    }
    if sys::is_root() {
        // Control: the kernel ends all when a bare PID 1 exits.
        let scene = Scene::new().pidns();
        let bare = scene.start(&Wrap::Bare.tree(tree)).ready(&["server"]);
        runs.push(("bare", bare, 0));
    }
    for (_, run, _) in &mut runs {
        run.log.ready("saver");
        run.signal(libc::SIGTERM);
    }
    for (place, mut run, saved) in runs {
        run.wait_clean();
        assert_eq!(run.log.all("saver", "leaving").len(), saved, "{place}");
    }
}

#[test]
fn a_server_without_the_kernels_signal_gets_one_when_the_stage_begins() {
    for mode in ["staged", "tree", "mixed"] {
        let options = ["--kill-mode", mode, "--grace", "30s", "--stage", "29s"];
        let mut run = treaper(&options, "server:disarms:on=TERM/3", &["server"]);
        let before = sys::now_ms() as i64;
        sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{mode}");
        let signalled = at(&run.log.wait("server", "signal")) - before;
        assert!(
            (995..30_000).contains(&signalled),
            "{mode}: after {signalled} ms"
        );
    }
}

#[test]
fn after_the_end_of_the_shim_the_rest_is_gone_within_seconds() {
    let tree = "server:ignore=TERM[worker:setsid:ignore=TERM]";
    let mut run = treaper(&["--grace", "60s"], tree, &["server", "worker"]);
    let before = sys::now_ms();
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let took = sys::now_ms() - before;
    assert!((1990..30_000).contains(&took), "took {took} ms");

    // In the middle of a stop as well.
    let mut run = treaper(&["--grace", "60s"], tree, &["server", "worker"]);
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let took = sys::now_ms() - before;
    assert!((1990..30_000).contains(&took), "took {took} ms");
}

#[test]
fn the_stop_signal_can_be_chosen() {
    for name in ["INT", "SIGINT", "2"] {
        let mut run = treaper(&["-s", name], "server:record:on=INT/4", &["server"]);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(4));
        let signalled = run.log.all("server", "signal");
        assert_eq!(signalled.len(), 1, "{signalled:#?}");
    }
}

/// A setuid copy of the actor that belongs to root.
fn setuid_actor(scene: &Scene) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let path = scene.directory().join("setuid-actor");
    common::scene::copy_program(ACTOR, &path);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    sys::is_root().then(|| path.to_string_lossy().into_owned())
}

#[test]
fn a_survivor_that_may_not_be_killed_is_listed_and_does_not_delay_the_host() {
    let scene = Scene::new().uid(12345);
    let Some(setuid) = setuid_actor(&scene) else {
        return common::skip("only root can make a setuid program");
    };
    let tree = format!("server[rooted:via={setuid}:setuid:daemon:ignore=TERM,other:ignore=TERM]");
    let options = ["--grace", "100ms", "--kill-timeout", "3s"];
    let mut run = scene
        .start(&Wrap::Treaper(&options).tree(&tree))
        .ready(&["server", "rooted", "other"]);
    let rooted = run.log.ready("rooted");
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    let took = sys::now_ms() - before;
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(123), "{stderr}");
    assert!((3095..30_000).contains(&took), "took {took} ms");
    assert!(
        stderr.contains(&rooted.to_string()) && stderr.contains("rooted"),
        "{stderr}"
    );
    assert!(stderr.contains("uid 0"), "{stderr}");
    assert_eq!(stderr.matches("survivor").count(), 1, "{stderr}");
    // The monitor stays to reap it, and exits when it is gone.
    assert!(exit.left.contains(&rooted), "{exit:?}");
    sys::kill(rooted, libc::SIGKILL).unwrap();
    run.wait_empty();
}

#[test]
fn a_traced_zombie_does_not_delay_the_host() {
    let options = ["--grace", "100ms", "--kill-timeout", "300ms"];
    let mut run = treaper(&options, "server[stuck:ignore=TERM]", &["server", "stuck"]);
    let stuck = run.log.ready("stuck").to_string();
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &stuck]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return common::skip("tracing a stranger is not allowed here");
    }
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(123), "{stderr}");
    assert!(
        stderr.contains(&stuck) && stderr.contains("stuck"),
        "{stderr}"
    );
    drop(tracer);
    run.wait_empty();
}

#[test]
fn a_long_kill_timeout_does_not_delay_a_tree_that_ends() {
    let options = ["--grace", "100ms", "--kill-timeout", "20s"];
    let mut run = treaper(
        &options,
        "server:ignore=TERM[worker:ignore=TERM:daemon]",
        &["worker"],
    );
    run.log.ready("server");
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    run.wait_clean();
    assert!(sys::now_ms() - before < 15_000);
}

#[test]
fn members_of_the_servers_group_and_all_others_get_the_stop_signal_once() {
    // The keeper only records signals, so it lives until SIGKILL.
    let tree = "server:on=TERM/0[worker*20:on=TERM/0,outside:setsid:on=TERM/0,\
                keeper:record[deep:setsid:on=TERM/0[below:pgrp:on=TERM/0]]]";
    let names = ["server", "outside", "keeper", "below"];
    let mut run = treaper(&["--grace", "4s"], tree, &names);
    run.log.wait_for(20, "worker", "ready");
    let before = sys::now_ms() as i64;
    run.signal(libc::SIGTERM);
    run.wait_clean();
    assert_eq!(run.log.all("worker", "signal").len(), 20, "each once");
    for name in ["outside", "keeper", "deep", "below"] {
        let mut signalled = run.log.all(name, "signal");
        signalled.retain(|line| line.number("sig") == i64::from(libc::SIGTERM));
        assert_eq!(signalled.len(), 1, "{name}: {signalled:#?}");
        assert!(
            at(&signalled[0]) - before < 3500,
            "{name} was signalled late"
        );
    }
}

#[test]
fn a_suspended_member_of_the_servers_group_gets_the_stop_signal() {
    let mut run = treaper(
        &["--grace", "20s"],
        "server:on=TERM/0[worker:on=TERM/0]",
        &["server", "worker"],
    );
    let worker = run.log.ready("worker");
    sys::kill(worker, libc::SIGSTOP).unwrap();
    common::until_state(&[worker], 'T');
    run.signal(libc::SIGTERM);
    run.wait_clean();
    assert_eq!(run.log.all("worker", "signal").len(), 1);
}

/// What is left may ignore the signal, as SIGINT in the background of a shell, and dumb-init does not wait for it. The
/// default grace period is 10 s.
#[test]
fn with_the_name_dumb_init_a_rewritten_stop_signal_leaves_one_second_to_what_is_left() {
    for (to, left) in [
        (libc::SIGINT, "sleep 1000 &"),
        (libc::SIGHUP, "nohup sleep 1000 >/dev/null &"),
        (libc::SIGUSR1, "trap \"\" USR1; sleep 1000 & trap - USR1;"),
    ] {
        let script =
            format!("exec -a dumb-init \"$0\" -r 15:{to} sh -c '{left} echo up; exec sleep 1000'");
        let mut run = Scene::new().start(&["bash", "-c", &script, TREAPER]);
        until("the server", || run.stdout() == "up\n");
        until("what is left", || run.named("sleep").len() == 2);
        let begun = sys::now_ms();
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(128 + to));
        assert!(sys::now_ms() - begun < 8000, "{}", run.stderr());
        assert!(run.stderr().contains("had to SIGKILL 1 process (sleep["));
    }
}
