//! Signals that come from inside the tree: each goes where it would go without treaper.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use common::scene::Directory;
use common::{Scene, TREAPER, Wrap, skip, special, sys, until};

const WRAPS: [&[&str]; 3] = [&[], &[TREAPER], &[TREAPER, "--no-guard"]];
/// The end of the host is no trigger.
const UNWATCHED: [&[&str]; 2] = [
    &[TREAPER, "--no-parent"],
    &[TREAPER, "--no-parent", "--no-guard"],
];
/// The monitor cannot signal the host.
const PIDNS: [&[&str]; 2] = [
    &[TREAPER, "--contain=pidns"],
    &[TREAPER, "--contain=pidns", "--no-parent"],
];

/// What a shell prints that is the host of `server`, and reports each of these signals.
fn host_of(wrap: &[&str], signal: &str, server: &str) -> String {
    host_that(wrap, "echo got", signal, server)
}

/// As [`host_of`], with what the shell does at such a signal.
fn host_that(wrap: &[&str], act: &str, signal: &str, server: &str) -> String {
    let host = format!("trap '{act}' {signal}; \"$@\" & wait $!; wait $!; echo $?");
    let words = [&["-c", &host, "sh"][..], wrap, &["sh", "-c", server]].concat();
    let out = Command::new("sh")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap()
}

/// An X server tells its parent by SIGUSR1 that it is ready.
#[test]
fn what_the_server_sends_to_its_parent_reaches_the_host() {
    let server = "trap 'echo back' USR1; kill -USR1 $PPID; sleep 0.1; exit 3";
    for wrap in WRAPS.into_iter().chain(UNWATCHED) {
        assert_eq!(host_of(wrap, "USR1", server), "got\n3\n", "{wrap:?}");
    }
}

#[test]
fn what_the_server_sends_reaches_a_host_outside_of_the_pid_namespace() {
    skip::needs("pidns");
    for wrap in PIDNS {
        let server = "trap 'echo back' USR1; kill -USR1 $PPID; sleep 0.1; exit 3";
        assert_eq!(host_of(wrap, "USR1", server), "got\n3\n", "{wrap:?}");
        sends_right_before_its_end(wrap);
        // Forwarded, it is no reason to stop.
        let server = "trap '' HUP; kill -HUP $PPID; sleep 0.1; exit 3";
        let forwarded = [wrap, &["--hup=forward"]].concat();
        assert_eq!(host_of(&forwarded, "HUP", server), "got\n3\n", "{wrap:?}");
        assert_eq!(host_of(wrap, "HUP", server), "3\n", "{wrap:?}");
        // Other processes mean the init, as `halt` does.
        let server = "trap 'echo back' USR1; sh -c 'kill -USR1 1; sleep 1000' & sleep 0.3; exit 3";
        assert_eq!(host_of(wrap, "USR1", server), "3\n", "{wrap:?}");
    }
}

/// A child of the server that knows the server's parent. treaper must be able to see who it is.
#[test]
fn what_a_child_of_the_server_sends_to_its_parent_reaches_the_host() {
    // The sender waits until its signal has arrived, so that treaper can see who it is.
    let send = "kill -USR1 $P; n=0; \
                until [ -e $END ] || [ $((n += 1)) -gt 10000 ]; do sleep 0.01; done";
    let directory = Directory::new();
    for (number, daemon) in ["", "setsid "].into_iter().enumerate() {
        for (at, wrap) in WRAPS[..2].iter().enumerate() {
            let end = directory.0.join(format!("{number}{at}"));
            let end = end.to_str().unwrap();
            let server = format!(
                "END={end}; P=$PPID; export P END; trap 'echo back; : >$END' USR1; \
                 {daemon}sh -c '{send}' & wait $!; wait $!; sleep 0.1; exit 3"
            );
            let said = host_that(wrap, &format!("echo got; : >{end}"), "USR1", &server);
            assert_eq!(said, "got\n3\n", "{wrap:?} {daemon}");
        }
    }
}

/// treaper has adopted it. Without treaper, the signal would be for an init.
#[test]
fn what_an_orphan_sends_to_its_parent_does_not_reach_the_host() {
    let read = "read -r _ _ _ parent _ </proc/$$/stat";
    let send = format!("until {read}; [ $parent = $P ]; do sleep 0.01; done; kill -USR1 $P");
    let server =
        format!("P=$PPID; export P; sh -c 'setsid sh -c \"$1\" &' sh '{send}' | cat; exit 3");
    assert_eq!(host_of(WRAPS[1], "USR1", &server), "3\n");
}

/// The kernel reports the end of the server before a signal with a higher number.
#[test]
fn what_the_server_sends_right_before_its_end_reaches_the_host() {
    for wrap in WRAPS {
        sends_right_before_its_end(wrap);
    }
}

fn sends_right_before_its_end(wrap: &[&str]) {
    for signal in ["USR1", "URG", "WINCH"] {
        for _ in 0..20 {
            let server = format!("kill -{signal} $PPID; exit 3");
            let said = host_of(wrap, signal, &server);
            assert_eq!(said, "got\n3\n", "{wrap:?} {signal}");
        }
    }
}

/// It would be a reason to stop from any other process.
#[test]
fn a_server_does_not_stop_itself_by_way_of_treaper() {
    for name in ["TERM", "HUP"] {
        let server = format!("trap 'echo back' {name}; kill -{name} $PPID; sleep 0.1; exit 3");
        for wrap in &WRAPS[1..] {
            assert_eq!(host_of(wrap, "USR1", &server), "3\n", "{wrap:?} {name}");
        }
    }
}

/// Without treaper, other processes of the tree have another parent. What they send to treaper is
/// for the server.
#[test]
fn what_another_process_of_the_tree_sends_to_treaper_reaches_the_server() {
    // It waits for the signal, and then a moment for one that comes twice.
    let server = "got=; trap 'echo back; got=1' USR1; (kill -USR1 $SHIM); n=0; \
                  until [ \"$got\" ] || [ $((n += 1)) -gt 1200 ]; do sleep 0.1; done; \
                  sleep 0.1; exit 3";
    let script = "SHIM=$$ exec \"$@\"";
    for wrap in &WRAPS[1..] {
        let words = [&["-c", script, "sh"][..], wrap, &["sh", "-c", server]].concat();
        let mut command = Command::new("sh");
        let out = command.args(words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!((&*text, out.status.code()), ("back\n", Some(3)), "{wrap:?}");
    }
}

fn shown(master: &OwnedFd, until: &str) -> String {
    let mut terminal = File::from(master.try_clone().unwrap());
    let (mut text, mut bytes) = (String::new(), [0; 512]);
    while !text.contains(until) {
        let pending = [(std::os::fd::AsRawFd::as_raw_fd(&terminal), libc::POLLIN)];
        assert_ne!(sys::poll(&pending, Some(common::patience())), [0], "{text}");
        match terminal.read(&mut bytes) {
            Ok(count @ 1..) => text += &String::from_utf8_lossy(&bytes[..count]),
            _ => break,
        }
    }
    text
}

/// At a terminal the server is in the group of treaper.
#[test]
fn at_a_terminal_a_signal_to_its_own_group_is_for_the_server_alone() {
    let no_guard = Wrap::Treaper(&["--no-guard"]);
    for wrap in [Wrap::Bare, Wrap::Treaper(&[]), no_guard] {
        signals_its_own_group(&wrap);
    }
}

/// In a PID namespace the sender has a number that belongs to a thread of the kernel outside.
#[test]
fn from_a_pid_namespace_a_signal_to_the_own_group_is_for_the_server_alone() {
    skip::needs("pidns");
    if !special::is_kernel_thread(2) {
        return skip("needs the PID namespace of the machine");
    }
    signals_its_own_group(&Wrap::Treaper(&["--contain=pidns"]));
}

fn signals_its_own_group(wrap: &Wrap) {
    let counts = "n=0; trap 'n=$((n+1)); : >$D/$n' USR1";
    let sends = "(trap '' USR1; for i in 1 2 3 4 5; do kill -USR1 0; \
                 until [ -e $D/$i ]; do sleep 0.02; done; done; \
                 until [ -e $D/go ]; do sleep 0.02; done)";
    for (script, last) in [
        (
            "trap '' TERM; kill 0; trap - TERM; sleep 0.2; echo alive",
            "alive",
        ),
        (
            "trap '' HUP; kill -HUP 0; trap - HUP; sleep 0.2; echo alive",
            "alive",
        ),
        (
            // A sender that has ended cannot be told from one outside of the tree.
            &*format!("{counts}; {sends} & while kill -0 $! 2>&-; do wait $!; done; echo n=$n."),
            "n=5.",
        ),
        (
            &*format!("{counts}; kill -USR1 0; sleep 0.2; echo n=$n."),
            "n=1.",
        ),
    ] {
        let (scene, master) = Scene::new().terminal();
        let (waits, directory) = (script.contains("$D/go"), scene.directory().to_owned());
        // For the first moment, see `a_signal_to_the_own_group_right_after_the_start...`.
        let script = format!("D={}; sleep 0.1; {script}", directory.display());
        let mut run = scene.start(&wrap.command(&["sh", "-c", &script]));
        if waits {
            until("five signals", || directory.join("5").exists());
            // The sender lives until treaper has seen who it is.
            until("a treaper that rests", || {
                let own = run.named("treaper").into_iter();
                let mut own = own.chain(run.named("tree-monitor"));
                own.all(|process| common::is_quiet(process.pid))
            });
            std::fs::write(directory.join("go"), "").unwrap();
        }
        let text = shown(&master, last);
        assert!(text.contains(last), "{wrap:?} {script}: {text}");
        let status = run.wait_empty().code();
        assert_eq!(status, Some(0), "{wrap:?} {script}: {text}");
    }
}

/// What the report of a treaper at a terminal names as the reason for its end, after a child of
/// the server has signalled the whole job, which the server ignores.
fn reason_after_a_child_ends_the_job(scene: Scene, options: &[&'static str]) -> String {
    let (scene, _master) = scene.terminal();
    let directory = scene.directory().to_owned();
    let (file, go) = (directory.join("report"), directory.join("go"));
    let report = format!("--report={}", file.display());
    let script = format!(
        "trap '' TERM; (kill 0; : >{0}.sent; until [ -e {0} ]; do sleep 0.02; done)",
        go.display()
    );
    let wrap = [&[TREAPER, &report][..], options, &["sh", "-c", &script]].concat();
    let mut run = scene.start(&wrap);
    // As a reason to stop, it may end the sender before that file is there.
    until("the signal", || {
        directory.join("go.sent").exists() || run.survivors().is_empty()
    });
    // The sender lives until treaper has seen who it is.
    until("a treaper that rests", || {
        run.survivors().is_empty() || common::is_quiet(run.main)
    });
    std::fs::write(go, "").unwrap();
    run.wait_empty();
    let report = std::fs::read_to_string(file).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["trigger"].as_str().unwrap().to_owned()
}

#[test]
fn a_child_that_signals_the_whole_job_is_no_reason_to_stop() {
    for options in [&[][..], &["--no-guard"]] {
        let reason = reason_after_a_child_ends_the_job(Scene::new(), options);
        assert_eq!(reason, "server-exit", "{options:?}");
    }
}

/// `kill 1` in a container means treaper.
#[test]
fn what_the_tree_sends_to_process_1_is_a_reason_to_stop() {
    skip::needs("pidns");
    for options in [&["--grace=100ms"][..], &["--no-guard", "--grace=100ms"]] {
        let reason = reason_after_a_child_ends_the_job(Scene::new().pidns(), options);
        assert_eq!(reason, "terminate", "{options:?}");
    }
}

/// It means treaper, whose signals are for the server.
#[test]
fn at_a_terminal_what_comes_from_another_group_of_the_tree_reaches_the_server() {
    let server = "trap 'echo back; exit 3' USR1; setsid sh -c 'kill -USR1 $SHIM; sleep 1000' & \
                  while :; do wait; done";
    for wrap in &WRAPS[1..] {
        let (scene, master) = Scene::new().terminal();
        let words = [
            &["sh", "-c", "SHIM=$$ exec \"$@\"", "sh"][..],
            wrap,
            &["sh", "-c", server],
        ];
        let mut run = scene.start(&words.concat());
        assert!(shown(&master, "back").contains("back"), "{wrap:?}");
        assert_eq!(run.wait_empty().code(), Some(3), "{wrap:?}");
    }
}

/// The monitor is in the group of the server until it has left the session. Here that takes half a second.
#[test]
fn a_signal_to_the_own_group_right_after_the_start_does_not_reach_the_host() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    // The tracer is in another group. The host is the arena, which SIGUSR1 would end.
    let strace = [
        "strace",
        "-DD",
        "-f",
        "-qq",
        "-b",
        "execve",
        "-o",
        "/dev/null",
    ];
    let slow = "inject=setsid:delay_enter=500000";
    let rule = ["-e", "trace=setsid", "-e", slow];
    let script = "trap 'n=$((n+1))' USR1; kill -USR1 0; sleep 1; echo n=$n.";
    let (scene, master) = Scene::new().terminal();
    let treaper = [TREAPER, "sh", "-c", script];
    let mut run = scene.start(&[&strace[..], &rule, &treaper].concat());
    let text = shown(&master, "n=");
    assert!(text.contains("n=1."), "{text}");
    assert_eq!(run.wait_empty().code(), Some(0), "{text}");
}

/// The kernel counts the reaping for others as treaper's own time, so its signal and its limit
/// concern treaper, and not the server.
#[test]
fn a_limit_of_processor_time_is_for_each_process_alone() {
    let limited = ["sh", "-c", "ulimit -S -t 1000; exec \"$@\"", "sh"].map(str::to_owned);
    for options in [&[][..], &["--no-guard"]] {
        let command = Wrap::Treaper(options).tree("server");
        let mut run = Scene::new().start(&[&limited[..], &command].concat());
        let server = run.log.ready("server");
        let soft_limit = |pid: i32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let line = text.lines().find(|line| line.starts_with("Max cpu time"));
            line.unwrap().split_whitespace().nth(3).unwrap().to_owned()
        };
        assert_eq!(soft_limit(server), "1000");
        // Not by name: the first leader has the same one until it ends.
        let monitor = options.is_empty().then(|| run.monitor());
        for pid in monitor.into_iter().chain([run.main]) {
            until("a limit that is raised", || soft_limit(pid) == "unlimited");
        }
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// Here treaper uses it up, by signals that it takes out of a queue, and drops.
#[test]
fn the_signal_at_the_limit_of_treapers_own_time_is_not_for_the_server() {
    for options in [
        &["--rewrite=RTMIN:0"][..],
        &["--rewrite=RTMIN:0", "--no-guard"],
    ] {
        let mut run = common::treaper(options, "server:record", &["server"]);
        let pid = match options.len() {
            1 => run.monitor(),
            _ => run.main,
        };
        // At its start treaper raises this limit.
        run.log.ready("server");
        // It takes this one, and drops it, after its start.
        sys::kill(pid, libc::SIGRTMIN()).unwrap();
        until("a treaper that waits", || common::is_quiet(pid));
        special::limit_of(pid, libc::RLIMIT_CPU, 1);
        // Others of this user need room for theirs.
        special::limit_of(pid, libc::RLIMIT_SIGPENDING, 1000);
        // With the signal, the kernel raises the limit by a second.
        until("the signal at the limit", || {
            (0..1000).for_each(|_| sys::kill(pid, libc::SIGRTMIN()).unwrap());
            let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let cpu = limits.lines().find(|line| line.starts_with("Max cpu time"));
            cpu.unwrap().split_whitespace().nth(3) == Some("2")
        });
        run.signal(libc::SIGUSR1);
        run.log.wait("server", "signal");
        assert_eq!(run.received("server"), [libc::SIGUSR1], "{options:?}");
    }
}

/// The limit of the server itself.
#[test]
fn a_server_that_uses_up_its_time_gets_the_signal_with_and_without_treaper() {
    let script = "ulimit -S -t 1; trap 'echo xcpu; exit 3' XCPU; while :; do :; done";
    for wrap in WRAPS {
        let words = [wrap, &["sh", "-c", script]].concat();
        let mut command = Command::new(words[0]);
        let out = command.args(&words[1..]).stdin(Stdio::null()).output();
        let out = out.unwrap();
        let said = (&*out.stdout, out.status.code());
        assert_eq!(said, (&b"xcpu\n"[..], Some(3)), "{wrap:?}");
    }
}

/// Its parent is then the host, and at a terminal it is in the group of the server. stdin is a FIFO that never ends.
#[test]
fn with_a_relay_in_front_what_comes_from_inside_the_tree_goes_the_same_ways() {
    let directory = common::scene::Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let script = format!("exec \"$@\" <>{}", fifo.display());
    let socket = format!("--inject=unix:{}", directory.0.join("socket").display());
    let treaper = [TREAPER, &socket, "--stdin=ignore"];
    for wrap in [&[][..], &treaper, &[&treaper[..], &["--no-guard"]].concat()] {
        let wrap = [&["sh", "-c", &script, "sh"], wrap].concat();
        for server in [
            "trap 'echo back' USR1; kill -USR1 $PPID; sleep 0.2; exit 3",
            "kill -USR1 $PPID; exit 3",
        ] {
            assert_eq!(host_of(&wrap, "USR1", server), "got\n3\n", "{wrap:?}");
        }
        for (script, last) in [
            (
                "trap '' TERM; kill 0; trap - TERM; sleep 0.2; echo alive",
                "alive",
            ),
            (
                "n=0; trap 'n=$((n+1))' USR1; kill -USR1 0; sleep 0.2; echo n=$n.",
                "n=1.",
            ),
        ] {
            let (scene, master) = Scene::new().terminal();
            let mut run = scene.start(&[&wrap[..], &["sh", "-c", script]].concat());
            let text = shown(&master, last);
            assert!(text.contains(last), "{wrap:?} {script}: {text}");
            assert_eq!(run.wait_empty().code(), Some(0), "{wrap:?}: {text}");
        }
    }
}
