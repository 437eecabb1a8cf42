//! The arena itself. These tests say nothing about treaper: they prove that the arena sees survivors.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{ACTOR, Run, Scene, Wrap, sys, until};

fn bare(tree: &str) -> Run {
    Scene::new().start(&Wrap::Bare.tree(tree))
}

#[test]
fn processes_left_by_a_bare_server_are_counted() {
    let mut run =
        bare("server:on=TERM/3[worker,deep:daemon[leaf:setsid],stuck:ignore=TERM:stopped]");
    for name in ["server", "worker", "deep", "leaf", "stuck"] {
        run.log.ready(name);
    }
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    assert_eq!(exit.code(), Some(3));
    assert_eq!(exit.left.len(), 4);
    assert_eq!(run.survivors().len(), 4);
}

#[test]
fn zombies_are_no_survivors() {
    let mut run = bare("server[gone*3:exit=0]");
    run.log.ready("server");
    run.log.wait_for(3, "gone", "ready");
    until("one living process", || run.survivors().len() == 1);
    sys::kill(run.main, libc::SIGKILL).unwrap();
    let exit = run.wait_clean();
    assert_eq!(exit.signal(), Some(libc::SIGKILL));
}

#[test]
fn dropping_a_run_ends_every_process_of_it() {
    let mut run =
        bare("server:ignore=TERM[chain*3:chain=1,bomb:bomb=60:spread,stuck:stopped:daemon]");
    run.log.ready("server");
    run.log.wait_for(3, "chain", "ready");
    run.log.ready("stuck");
    run.log.ready("bomb");
    let arena = run.arena();
    let stuck = run.log.ready("stuck");
    drop(run);
    assert!(common::proc::Process::read(stuck).is_none());
    assert!(common::proc::Process::read(arena).is_none());
}

#[test]
fn a_killed_test_leaves_nothing_since_the_arena_sees_its_socket_close() {
    // An arena in an arena: the outer one counts the processes that leave the inner one.
    let scene = Scene::new();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let far = std::os::fd::AsRawFd::as_raw_fd(&far);
    let scene = scene.before_exec(move || sys::dup2(far, 901));
    let mut run = scene.start(&[
        ACTOR,
        "arena",
        "901",
        "--",
        ACTOR,
        "tree",
        "server[worker:daemon:ignore=TERM]",
    ]);
    run.log.ready("worker");
    run.log.ready("server");
    drop(near);
    let exit = run.wait_clean();
    assert_eq!(exit.code(), Some(0));
}

#[test]
fn a_scene_can_be_pid_1_of_a_namespace_and_another_uid() {
    let mut run = Scene::new()
        .pidns()
        .start(&Wrap::Bare.tree("server[worker]"));
    assert_eq!(run.log.ready("server"), 1);
    run.log.ready("worker");
    assert_eq!(run.survivors().len(), 2);
    if sys::is_root() {
        let mut run = Scene::new().uid(12345).start(&Wrap::Bare.tree("server"));
        assert_eq!(run.log.wait("server", "ready").number("uid"), 12345);
    }
}

#[test]
fn a_host_owns_the_other_end_of_any_kind_of_stdin() {
    for kind in ["pipe", "socketpair", "tcp", "fifo"] {
        let words = [
            ACTOR,
            "host",
            "--stdin",
            kind,
            "--",
            ACTOR,
            "tree",
            "server:eof=4",
        ];
        let mut run = Scene::new().start(&words);
        run.log.ready("server");
        run.log.wait("host", "spawned");
        run.signal(libc::SIGUSR1);
        assert_eq!(
            run.log.wait("host", "reaped").number("status"),
            4 << 8,
            "{kind}"
        );
        run.wait_clean();
    }
}

/// Runs one test of this program again, behind a shell that does `before`.
fn again(before: &str, test: &str) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("{before}; exec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored"])
        .args(common::IN_PROCESS)
        .env_remove("SKIPPED_TESTS")
        .env_remove("FORBID_SKIPS");
    command
}

#[test]
fn no_signal_is_ignored_in_a_scene() {
    let mut run = bare("server");
    let server = run.log.ready("server");
    let ignored = common::proc::status(server, "SigIgn").unwrap();
    let ignored = u64::from_str_radix(&ignored, 16).unwrap();
    // 32 and 33 belong to the C library, whose posix_spawn ignores them.
    assert_eq!(ignored & !(0b11 << 31), 0, "{ignored:x}");
}

#[test]
fn signals_that_the_caller_ignores_are_not_ignored_in_a_scene() {
    let mut ignoring = again(
        "trap '' HUP INT QUIT USR1 TERM",
        "no_signal_is_ignored_in_a_scene",
    );
    let out = ignoring.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn folders_left_by_a_killed_run_disturb_no_later_one() {
    let folder = std::env::temp_dir();
    let old = |number| folder.join(format!("treaper-test-{}-{number}", std::process::id()));
    for number in 0..100 {
        let _ = std::fs::create_dir(old(number));
    }
    let start = std::panic::catch_unwind(|| bare("server").log.ready("server"));
    for number in 0..100 {
        std::fs::remove_dir(old(number)).unwrap();
    }
    assert!(start.is_ok());
}

#[test]
#[ignore = "skips on purpose: it is what the next test runs"]
fn a_test_that_is_skipped() {
    common::skip("on purpose,\nas planned");
}

#[test]
fn a_skip_is_listed_and_is_an_error_where_all_is_installed() {
    let scene = Scene::new();
    let list = scene.directory().join("skipped");
    let mut counted = again(":", "a_test_that_is_skipped");
    let out = counted.env("SKIPPED_TESTS", &list).output().unwrap();
    assert!(out.status.success());
    let line = "arena a_test_that_is_skipped: on purpose, as planned\n";
    assert_eq!(std::fs::read_to_string(&list).unwrap(), line);
    let printed = String::from_utf8(out.stderr).unwrap();
    assert!(printed.contains(line), "{printed}");

    let mut forbidden = again(":", "a_test_that_is_skipped");
    let out = forbidden.env("FORBID_SKIPS", "1").output().unwrap();
    assert!(!out.status.success());
}
