//! `--contain=pidns`: the kernel ends all processes when the init of the namespace ends. Everything else is as without
//! it.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ACTOR, Run, Scene, TREAPER, Wrap, place, proc, signals, skip, sys};

const USER: u32 = 65534;
const PIDNS: Wrap = Wrap::Treaper(&["--contain=pidns", "--drain", "100ms", "--grace", "200ms"]);
const STUBBORN: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:stopped:ignore=TERM,\
                        c:chain=2]";
const NAMES: &[&str] = &["server", "a", "b", "c"];

/// The user who runs the tests. If that is root, also another user, who needs a user namespace.
fn users() -> Vec<(&'static str, Option<u32>)> {
    let user = sys::is_root().then_some(("a user", Some(USER)));
    [("ourselves", None)].into_iter().chain(user).collect()
}

fn scene(user: Option<u32>) -> Scene {
    match user {
        Some(uid) => Scene::new().uid(uid),
        None => Scene::new(),
    }
}

/// Without an arena, since the kernel ends all processes of the namespace.
fn code(user: Option<u32>, command: &[&str]) -> Option<i32> {
    let mut treaper = Command::new(TREAPER);
    treaper.args(["--contain=pidns", "--"]).args(command);
    treaper.stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(uid) = user {
        treaper.uid(uid).gid(uid);
    }
    treaper.status().unwrap().code()
}

#[test]
fn every_exit_status_is_passed_out() {
    for (name, user) in users() {
        for number in 0..=255 {
            let status = code(user, &[ACTOR, "exit", &number.to_string()]);
            assert_eq!(status, Some(number), "{name}");
        }
    }
}

#[test]
fn a_server_ended_by_a_signal_is_128_more_for_every_signal() {
    for (name, user) in users() {
        for signal in signals::ending() {
            let tree = format!("server:die={signal}");
            let status = code(user, &[ACTOR, "tree", &tree]);
            assert_eq!(status, Some(128 + signal), "{name}: signal {signal}");
        }
    }
}

#[test]
fn the_server_sees_only_its_own_processes_and_keeps_its_ids() {
    // Number 2 was the first leader of the session, which may still be ending.
    let script = "cd /proc; while [ -e 2 ]; do :; done; echo [0-9]*; id -u; id -g; echo $$; \
                  grep ' /proc ' mounts | tail -n 1";
    let words = ["sh", "-c", script];
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts
            .lines()
            .filter(|line| line.contains(" /proc "))
            .count()
    };
    let before = mounted();
    // A user namespace without the right map shows uid 65534.
    let another = sys::is_root().then_some(("another user", Some(USER - 1)));
    for (name, user) in users().into_iter().chain(another) {
        let mut run = scene(user).start(&PIDNS.command(&words));
        assert_eq!(run.wait_clean().code(), Some(0), "{name}: {}", run.stderr());
        let uid = user.unwrap_or(sys::euid());
        let printed = run.stdout();
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[0], "1 3", "{name}");
        assert_eq!(lines[1], uid.to_string(), "{name}");
        assert_eq!(lines[3], "3", "{name}");
        let careful = lines[4].contains("nosuid,nodev,noexec");
        assert!(careful, "{name}: {}", lines[4]);
    }
    assert_eq!(before, mounted(), "what is mounted inside stays inside");
}

/// The bell reports as well that the shim is gone, but not while what closes files for the shim keeps the bell open.
#[test]
fn the_monitor_watches_the_host_and_the_shim_by_pidfds() {
    for (name, user) in users() {
        let mut run = scene(user).start(&PIDNS.tree("server")).ready(&["server"]);
        let (shim, monitor) = (run.shim(), run.monitor());
        let open = std::fs::read_dir(format!("/proc/{monitor}/fdinfo")).unwrap();
        let watched: Vec<i32> = open
            // Another one may be closed meanwhile.
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
            .filter_map(|info| {
                let mut lines = info.lines();
                lines.find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
            })
            .collect();
        let host = proc::Process::read(shim).unwrap().ppid;
        assert!(watched.contains(&host), "{name}: {watched:?}");
        assert!(watched.contains(&shim), "{name}: {watched:?}");
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

#[test]
fn a_stubborn_tree_is_stopped() {
    for (name, user) in users() {
        let mut run = scene(user).start(&PIDNS.tree(STUBBORN)).ready(NAMES);
        run.signal(libc::SIGTERM);
        let exit = run.wait_clean();
        assert_eq!(exit.code(), Some(137), "{name}: {}", run.stderr());
    }
}

#[test]
fn a_server_that_exits_on_sigterm_is_not_delayed() {
    for (name, user) in users() {
        let wrap = Wrap::Treaper(&["--contain=pidns", "--grace", "20s"]);
        let tree = "server:on=TERM/3[a:setsid:on=TERM/0,b:daemon:on=TERM/0]";
        let mut run = scene(user)
            .start(&wrap.tree(tree))
            .ready(&["server", "a", "b"]);
        let before = sys::now_ms();
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3), "{name}");
        assert!(sys::now_ms() - before < 15_000, "{name}");
        assert_eq!(run.stderr(), "", "{name}");
    }
}

#[test]
fn a_server_that_ends_leaves_nothing() {
    for (name, user) in users() {
        let tree = "server:exit=7[a:setsid:ignore=TERM,b:daemon:ignore=TERM]";
        let mut run = scene(user).start(&PIDNS.tree(tree)).ready(&["server"]);
        assert_eq!(run.wait_clean().code(), Some(7), "{name}");
    }
}

#[test]
fn orphans_are_reaped_inside() {
    for (name, user) in users() {
        let tree = "server:orphans=1000:on=TERM/6";
        let wrap = Wrap::Treaper(&["--contain=pidns", "--grace", "60s"]);
        let mut run = scene(user).start(&wrap.tree(tree)).ready(&["server"]);
        let monitor = run.monitor();
        let left = || proc::children(monitor).len();
        common::until("only the server", || left() == 1);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(6), "{name}");
    }
}

#[test]
fn stdin_that_closes_drains_and_then_ends_the_tree() {
    for (name, user) in users() {
        let scene = scene(user).stdin_pipe();
        let wrap = Wrap::Treaper(&[
            "-v",
            "--contain=pidns",
            "--stdin=watch",
            "--drain=20s",
            "--grace=200ms",
        ]);
        let tree = "server:eof=4:slow=100[a:setsid:ignore=TERM]";
        let mut run = scene.start(&wrap.tree(tree)).ready(&["server", "a"]);
        run.close_stdin();
        assert_eq!(run.wait_clean().code(), Some(4), "{name}");
        assert!(run.stderr().contains("stdin-eof"), "{}", run.stderr());
        assert!(run.log.all("server", "signal").is_empty(), "{name}");
    }
}

#[test]
fn every_reason_to_stop_is_seen_and_named() {
    for (name, user) in users() {
        for (reason, more) in [
            ("terminate", &[][..]),
            ("hangup", &[]),
            ("parent-exit", &[]),
            ("watched-exit", &["--no-parent", "--watch-ancestor", "host"]),
            ("shim-killed", &[]),
            ("monitor-killed", &[]),
        ] {
            let options = [&["-v", "--contain=pidns", "--grace=200ms"], more].concat();
            let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
            let command = [&host[..], &Wrap::Treaper(&options).tree(STUBBORN)].concat();
            let mut run = scene(user).start(&command).ready(NAMES);
            run.log.wait("host", "spawned");
            let (shim, monitor) = (run.shim(), run.monitor());
            let (victim, signal) = match reason {
                "terminate" => (shim, libc::SIGTERM),
                "hangup" => (shim, libc::SIGHUP),
                "shim-killed" => (shim, libc::SIGKILL),
                "monitor-killed" => (monitor, libc::SIGKILL),
                _ => (run.main, libc::SIGKILL),
            };
            sys::kill(victim, signal).unwrap();
            run.wait_empty();
            let stderr = run.stderr();
            assert!(stderr.contains(reason), "{name}: {reason}: {stderr}");
        }
    }
}

#[test]
fn a_killed_init_takes_all_with_it_and_the_status_says_so() {
    for (name, user) in users() {
        let mut run = scene(user).start(&PIDNS.tree(STUBBORN)).ready(NAMES);
        sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        assert_eq!(run.wait_clean().code(), Some(137), "{name}");

        // The server has ended before, and the rest is not stopped without a word.
        let wrap = Wrap::Treaper(&["--contain=pidns", "--until=tree"]);
        let mut run = scene(user).start(&wrap.tree("server:exit=3[worker]"));
        run.log.ready("worker");
        let monitor = run.monitor();
        common::until("a server that was reaped", || {
            let children = proc::children(monitor);
            children.iter().all(|child| child.comm == "worker")
        });
        sys::kill(monitor, libc::SIGKILL).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{name}");
        let words = "the monitor process of treaper was killed, so SIGKILL was sent to the rest of the tree";
        assert_eq!(run.stderr(), format!("treaper: monitor-killed: {words}\n"));
    }
}

fn both_killed(run: &mut Run, round: usize) {
    // By pidfd: after the first was killed, the other may end before it is signalled.
    let mut victims = [run.main, run.monitor()].map(|pid| sys::pidfd(pid).unwrap());
    victims.rotate_left(round % 2);
    for victim in victims {
        sys::kill_by_pidfd(&victim);
    }
}

#[test]
fn all_processes_of_treaper_killed_at_one_instant_leave_nothing() {
    for (_, user) in users() {
        for round in 0..50 {
            let mut run = scene(user).start(&PIDNS.tree(STUBBORN)).ready(NAMES);
            both_killed(&mut run, round);
            // No process of treaper is left, so the kernel does it.
            run.wait_empty();
        }
    }
}

#[test]
fn control_without_the_namespace_they_leave_the_tree() {
    let group = Wrap::Treaper(&["--contain=group", "--drain", "100ms", "--grace", "200ms"]);
    let mut leaked = 0;
    for round in 0..10 {
        let mut run = Scene::new().start(&group.tree(STUBBORN)).ready(NAMES);
        both_killed(&mut run, round);
        leaked += usize::from(!run.wait().left.is_empty() && !run.survivors().is_empty());
    }
    assert!(leaked > 0, "the scene shows nothing");
}

#[test]
fn signals_are_forwarded_once_and_so_are_real_time_ones() {
    for (name, user) in users() {
        let mut run = scene(user)
            .start(&PIDNS.tree("server:record"))
            .ready(&["server"]);
        let all = [
            libc::SIGUSR1,
            libc::SIGINT,
            libc::SIGWINCH,
            signals::RTMIN,
            40,
            64,
        ];
        for (number, signal) in all.into_iter().enumerate() {
            run.signal(signal);
            let signalled = run.log.wait_for(number + 1, "server", "signal");
            assert_eq!(signalled[number].number("sig"), i64::from(signal), "{name}");
        }
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let signalled = run.log.all("server", "signal");
        assert_eq!(
            signalled.iter().filter(|l| l.number("sig") != 15).count(),
            6,
            "{name}"
        );
    }
}

#[test]
fn queued_signals_keep_their_values() {
    for (name, user) in users() {
        let mut run = scene(user)
            .start(&PIDNS.tree("server:queue"))
            .ready(&["server"]);
        for value in 0..50 {
            sys::queue(run.main, signals::RTMIN + 3, value).unwrap();
        }
        let signalled = run.log.wait_for(50, "server", "signal");
        let values: Vec<i64> = signalled.iter().map(|line| line.number("value")).collect();
        assert_eq!(values, (0..50).collect::<Vec<i64>>(), "{name}");
    }
}

#[test]
fn a_setuid_program_gives_no_rights_to_a_user_and_is_stopped() {
    if !sys::is_root() {
        return skip("only root can make a setuid program");
    }
    let scene = Scene::new().uid(USER);
    let setuid = place::setuid_actor(&scene);
    let tree = format!("server:ignore=TERM[rooted:via={setuid}:setuid:daemon:ignore=TERM]");
    let mut run = scene.start(&PIDNS.tree(&tree)).ready(&["server", "rooted"]);
    assert_eq!(
        run.log.wait("rooted", "ready").number("uid"),
        i64::from(USER)
    );
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn processes_that_cannot_be_killed_do_not_delay_the_host() {
    let wrap = Wrap::Treaper(&["--contain=pidns", "--grace=100ms", "--kill-timeout=300ms"]);
    let mut run = Scene::new()
        .start(&wrap.tree("server[stuck:ignore=TERM]"))
        .ready(&["stuck"]);
    let stuck = run.named("stuck")[0].pid.to_string();
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &stuck]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return skip("tracing a stranger is not allowed here");
    }
    run.signal(libc::SIGTERM);
    let exit = run.wait();
    assert_eq!(exit.code(), Some(123), "{}", run.stderr());
    drop(tracer);
    run.wait_empty();
}

/// The monitor is the init of the namespace, and so the kernel lets it end only after all others.
#[test]
fn a_killed_init_that_cannot_end_does_not_delay_the_host() {
    let wrap = Wrap::Treaper(&["--contain=pidns", "--kill-timeout=3s"]);
    let mut run = Scene::new()
        .start(&wrap.tree("server[stuck]"))
        .ready(&["stuck"]);
    let stuck = run.named("stuck")[0].pid.to_string();
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &stuck]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return skip("tracing a stranger is not allowed here");
    }
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    let exit = run.wait();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(123), "{stderr}");
    assert!(stderr.contains(&format!("survivor: pid {stuck} 'stuck'")));
    assert_eq!(stderr.matches("survivor").count(), 1, "{stderr}");
    drop(tracer);
    run.wait_empty();
}

#[test]
fn where_it_cannot_be_used_nothing_is_started_and_the_error_has_cause_and_remedy() {
    if !sys::is_root() {
        return skip("needs root to take the permission away");
    }
    // A user namespace in which no further one may be made, without any capability.
    let shell = "echo 0 >/proc/sys/user/max_user_namespaces && \
                 exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let words = ["unshare", "-r", "sh", "-c", shell, "sh"].map(str::to_owned);
    let mut run = Scene::new().start(&[&words[..], &PIDNS.tree("server")].concat());
    let exit = run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(125), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("--contain=pidns"), "{stderr}");
    assert!(stderr.contains("user.max_user_namespaces"), "{stderr}");
    assert!(run.log.all("server", "ready").is_empty());
}

#[test]
fn a_watched_pid_outside_takes_the_server_with_it() {
    for (name, user) in users() {
        let mut other = Scene::new().start(&[ACTOR, "tree", "other"]);
        let pid = other.log.ready("other").to_string();
        let options = [
            "-v",
            "--contain=pidns",
            "--grace=200ms",
            "--watch-pid",
            &pid,
        ];
        let wrap = Wrap::Treaper(&options);
        let mut run = scene(user).start(&wrap.tree(STUBBORN)).ready(NAMES);
        assert!(!run.ends_within(Duration::from_millis(200)), "{name}");
        other.signal(libc::SIGKILL);
        run.wait_clean();
        assert!(run.stderr().contains("watched-exit"), "{name}");
    }
}

#[test]
fn a_stdout_without_a_reader_ends_the_tree() {
    for (name, user) in users() {
        let wrap = Wrap::Treaper(&[
            "--contain=pidns",
            "--stdout=watch",
            "--drain=50ms",
            "--grace=200ms",
        ]);
        let mut run = scene(user).start(&wrap.tree(STUBBORN)).ready(NAMES);
        drop(run.take_stdout());
        assert_eq!(run.wait_clean().code(), Some(137), "{name}");
    }
}
