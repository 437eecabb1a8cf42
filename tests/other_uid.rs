//! Processes of another user in the tree: killed if that is allowed, otherwise listed, and never waited for.
//! `--no-new-privs` prevents them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Run, Scene, Wrap, place, proc, skip, sys};

const USER: u32 = 65534;

/// The server itself is a setuid program: it has lost its parent-death signal as well.
fn setuid_server(options: &[&str]) -> Option<Run> {
    if !sys::is_root() {
        skip("only root can make a setuid program");
        return None;
    }
    let scene = Scene::new().uid(USER);
    let setuid = place::setuid_actor(&scene);
    let options = [options, &["--grace", "100ms", "--kill-timeout", "300ms"]].concat();
    let tree = "server:setuid:ignore=TERM[worker:ignore=TERM]";
    let command = Wrap::Treaper(&options).command(&[&setuid, "tree", tree]);
    Some(scene.start(&command).ready(&["server", "worker"]))
}

#[test]
fn a_server_of_another_uid_is_named_and_left() {
    let Some(mut run) = setuid_server(&[]) else {
        return;
    };
    let server = run.log.wait("server", "ready");
    assert_eq!(server.number("uid"), 0);
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(123), "{stderr}");
    assert_eq!(stderr.matches("survivor").count(), 2, "{stderr}");
    assert!(stderr.contains(&server.pid().to_string()), "{stderr}");
    assert!(stderr.contains("uid 0"), "{stderr}");
    let what_to_do = "only root can kill one with another uid, one in state D ends when what it is waiting for \
                      responds, and one in state t when its debugger detaches";
    assert!(stderr.contains(what_to_do), "{stderr}");
    // The monitor goes on reaping, and exits when the last one has ended.
    let monitor = run.monitor();
    for pid in [run.log.ready("worker"), server.pid()] {
        assert!(proc::Process::read(monitor).is_some());
        sys::kill(pid, libc::SIGKILL).unwrap();
    }
    run.wait_empty();
}

#[test]
fn without_the_shim_or_the_monitor_the_other_one_still_gives_up() {
    for victim in ["shim", "monitor"] {
        let Some(mut run) = setuid_server(&[]) else {
            return;
        };
        let (server, worker) = (run.log.ready("server"), run.log.ready("worker"));
        let pid = if victim == "shim" {
            run.main
        } else {
            run.monitor()
        };
        sys::kill(pid, libc::SIGKILL).unwrap();
        let exit = run.wait();
        if victim == "monitor" {
            assert_eq!(exit.code(), Some(123), "{}", run.stderr());
        } else {
            common::until("the survivors are named", || {
                run.stderr().matches("survivor").count() == 2
            });
        }
        for pid in [worker, server] {
            sys::kill(pid, libc::SIGKILL).unwrap();
        }
        run.wait_empty();
    }
}

#[test]
fn with_no_new_privs_every_process_can_be_killed() {
    let Some(mut run) = setuid_server(&["--no-new-privs"]) else {
        return;
    };
    let server = run.log.wait("server", "ready");
    assert_eq!(server.number("uid"), i64::from(USER));
    let setting = proc::status(server.pid(), "NoNewPrivs");
    assert_eq!(setting.as_deref(), Some("1"));
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
}

#[test]
fn no_new_privs_holds_in_every_level() {
    for level in ["group", "cgroup", "pidns"] {
        let level = format!("--contain={level}");
        let options = [level.as_str(), "--no-new-privs"];
        let wrap = Wrap::Treaper(&options);
        let mut run =
            Scene::new().start(&wrap.command(&["grep", "NoNewPrivs", "/proc/self/status"]));
        let exit = run.wait_clean();
        if exit.code() == Some(125) {
            skip(&run.stderr());
            continue;
        }
        assert_eq!(
            run.stdout().trim().replace('\t', " "),
            "NoNewPrivs: 1",
            "{level}"
        );
    }
}

#[test]
fn without_it_the_server_has_the_setting_that_treaper_was_given() {
    let mut run = Scene::new().start(&Wrap::Treaper(&[]).command(&[
        "grep",
        "NoNewPrivs",
        "/proc/self/status",
    ]));
    let own = proc::status(sys::getpid(), "NoNewPrivs").unwrap();
    run.wait_clean();
    assert_eq!(
        run.stdout().trim().replace('\t', " "),
        format!("NoNewPrivs: {own}")
    );
}

#[test]
fn root_kills_processes_of_every_uid() {
    if !sys::is_root() {
        return skip("only root may");
    }
    let tree = "server:ignore=TERM[a:uid=12345:ignore=TERM,b:uid=54321:daemon:stopped]";
    let wrap = Wrap::Treaper(&["--grace", "100ms"]);
    let mut run = Scene::new()
        .start(&wrap.tree(tree))
        .ready(&["server", "a", "b"]);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137), "{}", run.stderr());
}
