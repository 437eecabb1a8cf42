//! Messages: none when all went well, one when processes had to be killed. They never delay or break anything.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use common::place::Place;
use common::{ACTOR, Run, Scene, Wrap, proc, skip, special, sys, treaper, until};
use treaper::output::progress::{Named, Seconds};
use treaper::sys::pid::Pid;
use treaper::sys::proc::Name;

#[test]
fn nothing_is_logged_when_all_went_well() {
    for tree in [
        "server:exit=0",
        "server:exit=5",
        "server:exit=0[worker:pgrp]",
    ] {
        let mut run = treaper(&[], tree, &["server"]);
        run.wait_clean();
        assert_eq!(
            (run.stdout(), run.stderr()),
            (String::new(), String::new()),
            "{tree}"
        );
    }
    for (signal, lines) in [(libc::SIGTERM, 0), (libc::SIGHUP, 1)] {
        let mut run = treaper(&[], "server:on=TERM/0[worker:daemon]", &["server"]);
        run.log.ready("worker");
        run.signal(signal);
        run.wait_clean();
        assert_eq!(run.stdout(), "");
        // Only SIGTERM says by itself why the server was stopped.
        let messages = run.stderr();
        assert_eq!(messages.lines().count(), lines, "{messages}");
        let hangup =
            "treaper: hangup: the terminal is gone or SIGHUP was sent, so SIGTERM was sent";
        assert!(lines == 0 || messages.starts_with(hangup), "{messages}");
    }
}

#[test]
fn one_line_says_what_had_to_be_killed() {
    for options in [
        &["--grace", "100ms"][..],
        &["--grace", "100ms", "--no-guard"],
    ] {
        let tree = "server:on=TERM/0[worker*3:setsid:ignore=TERM]";
        let mut run = treaper(options, tree, &["server"]);
        run.log.wait_for(3, "worker", "ready");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let stderr = run.stderr();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("treaper: "), "{stderr}");
        assert!(
            stderr.contains("SIGKILL") || stderr.contains("killed"),
            "{stderr}"
        );
        assert!(run.stdout().is_empty());
    }
}

#[test]
fn v_logs_each_step_and_vv_each_process() {
    let tree = "server:on=TERM/0[worker:daemon:ignore=TERM]";
    let messages_with = |options: &[&str], variable: Option<(&str, &str)>| {
        let mut scene = Scene::new();
        if let Some((name, value)) = variable {
            scene = scene.env(name, value);
        }
        let options = [options, &["--grace", "2s"]].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).tree(tree));
        run.log.ready("server");
        let worker = run.log.ready("worker");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        assert!(run.stdout().is_empty());
        let stderr = run.stderr();
        assert!(
            stderr.lines().all(|line| line.starts_with("treaper: ")),
            "{stderr}"
        );
        (stderr, worker.to_string())
    };
    let (v, _) = messages_with(&["-v"], None);
    assert!(v.contains("terminate"), "{v}");
    assert!(v.contains(" exited with status 0"), "{v}");
    let (vv, worker) = messages_with(&["-vv"], None);
    assert!(vv.lines().count() > v.lines().count(), "{v}\n---\n{vv}");
    assert!(vv.contains(&worker), "{vv}");
    assert!(
        vv.contains(&format!("pid {worker} was ended by SIGKILL")),
        "{vv}"
    );
    let (logged, _) = messages_with(&[], Some(("TREAPER_LOG", "debug")));
    assert!(logged.lines().count() > 1, "{logged}");
}

#[test]
fn every_trigger_is_named() {
    let quick = ["-v", "--grace", "100ms", "--drain", "50ms"];
    let mut run = treaper(&quick, "server:exit=0[worker:pgrp]", &["server"]);
    run.wait_clean();
    assert!(run.stderr().contains("server-exit"), "{}", run.stderr());
    let mut run = treaper(&quick, "server", &["server"]);
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.contains("monitor-killed"), "{stderr}");
    let mut run = treaper(&quick, "server", &["server"]);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let stderr = run.stderr();
    assert!(stderr.contains("shim-killed"), "{stderr}");
}

/// A tree that makes treaper log a lot while it stops.
const TALKATIVE: &str = "server:ignore=TERM[worker*20:setsid:ignore=TERM]";

fn stops_in_time(mut run: Run) {
    run.log.ready("server");
    run.log.wait_for(20, "worker", "ready");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137));
}

#[test]
fn a_full_stderr_never_blocks_a_stop() {
    for options in [
        &["-vv", "--grace", "100ms"][..],
        &["-vv", "--grace", "100ms", "--no-guard"],
    ] {
        let (_read, write) = sys::pipe().unwrap();
        common::fill(&write);
        let scene = Scene::new().no_capture().with(|command| {
            command.stdout(Stdio::null()).stderr(write);
        });
        stops_in_time(scene.start(&Wrap::Treaper(options).tree(TALKATIVE)));
    }
}

#[test]
fn a_closed_stderr_or_one_without_a_reader_changes_nothing() {
    let options = ["-vv", "--grace", "100ms"];
    let scene = Scene::new().before_exec(|| sys::close(2));
    stops_in_time(scene.start(&Wrap::Treaper(&options).tree(TALKATIVE)));
    for ignored in [true, false] {
        let (read, write) = sys::pipe().unwrap();
        drop(read);
        let scene = Scene::new().no_capture().with(|command| {
            command.stdout(Stdio::null()).stderr(write);
        });
        let scene = scene.before_exec(move || sys::ignore(libc::SIGPIPE, ignored));
        stops_in_time(scene.start(&Wrap::Treaper(&options).tree(TALKATIVE)));
    }
}

/// U+009B begins a control sequence as ESC [ does, and a lone byte 0x9b does the same in some terminals.
#[test]
fn a_name_cannot_control_the_terminal() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    let name = b"caf\xc3\xa9\xc2\x9b31m\x9bx\x1b[31m\x7f";
    for program in ["treaper", "tini", "dumb-init"] {
        let mut command = std::process::Command::new(common::TREAPER);
        command.arg0(program).arg("--");
        let output = command
            .arg(std::ffi::OsStr::from_bytes(name))
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("caf\u{e9}"), "{program}: {text}");
        assert!(
            !text.trim_end().chars().any(char::is_control),
            "{program}: {text:?}"
        );
    }
}

/// A failed write causes a signal, and forwarding a signal causes the next message.
#[test]
fn a_message_that_cannot_be_written_is_no_signal_to_the_server() {
    let scene = || Scene::new().stderr_at_its_size_limit();
    let script = ["sh", "-c", "echo message >&2; exit 0"];
    let bare = scene().start(&Wrap::Bare.command(&script)).wait();
    assert_ne!(bare.code(), Some(0), "a write within the limit");
    for options in [&["-v"][..], &["-vv"], &["-vv", "--no-guard"]] {
        let patient = [options, &["--grace", "60s"]].concat();
        let mut run = scene().start(&Wrap::Treaper(&patient).tree("server:on=TERM/0"));
        run.log.ready("server");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(0), "{options:?}");

        let options = [options, &["--grace", "100ms"]].concat();
        let mut run = scene().start(&Wrap::Treaper(&options).tree("server:record"));
        run.log.ready("server");
        // SIGUSR1 comes first. Its message fails while a SIGXFSZ of another process is waiting.
        let mut sent = vec![libc::SIGUSR1, libc::SIGXFSZ, libc::SIGCONT];
        run.signal(libc::SIGSTOP);
        for signal in &sent {
            run.signal(*signal);
        }
        run.log.wait_for(3, "server", "signal");
        for signal in [libc::SIGXFSZ, libc::SIGPIPE, libc::SIGXFSZ, libc::SIGUSR2] {
            run.signal(signal);
            sent.push(signal);
            run.log.wait_for(sent.len(), "server", "signal");
        }
        let came = run.log.all("server", "signal").into_iter();
        let mut came: Vec<i32> = came.map(|line| line.number("sig") as i32).collect();
        came.sort_unstable();
        sent.sort_unstable();
        assert_eq!(came, sent, "{options:?}");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(137), "{options:?}");
    }
}

#[test]
fn a_message_never_goes_into_a_file_of_the_server() {
    // Descriptor 2 is closed, so the server's first file becomes 2. No message may be written into it.
    let scene = Scene::new().before_exec(|| sys::close(2));
    let file = scene.directory().join("data");
    let script = format!("exec 2>{0}; echo data >&2; kill -KILL $$", file.display());
    let mut run = scene.start(&Wrap::Treaper(&["-vv"]).command(&["sh", "-c", &script]));
    run.wait_clean();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "data\n");
}

#[test]
fn the_output_of_the_server_is_unchanged() {
    let script = "printf out; printf err >&2";
    let mut run = Scene::new().start(&Wrap::Treaper(&[]).command(&["sh", "-c", script]));
    run.wait_clean();
    assert_eq!(
        (run.stdout().as_str(), run.stderr().as_str()),
        ("out", "err")
    );
}

#[test]
fn stderr_is_not_kept_open_after_the_end_of_treaper() {
    let (read, write) = sys::pipe().unwrap();
    let scene = Scene::new().no_capture().with(|command| {
        command.stdout(Stdio::null()).stderr(write);
    });
    let mut run = scene.start(&Wrap::Treaper(&[]).command(&[ACTOR, "exit", "0"]));
    run.wait_clean();
    let read = File::from(OwnedFd::from(read));
    let hung_up = sys::poll(
        &[(read.as_raw_fd(), libc::POLLIN)],
        Some(common::patience()),
    )[0];
    assert_ne!(hung_up & libc::POLLHUP, 0);
}

/// What treaper logs when `act` makes it stop a server.
fn messages_when(scene: Scene, options: &[&str], tree: &str, act: impl FnOnce(&mut Run)) -> String {
    let mut run = scene.start(&Wrap::Treaper(options).tree(tree));
    run.log.ready("server");
    act(&mut run);
    run.wait_empty();
    run.stderr()
}

#[test]
fn no_live_server_is_stopped_without_a_message() {
    let tree = "server:on=TERM/0";
    let quick = &["--drain", "50ms"][..];
    let close = |run: &mut Run| drop(run.stdin.take());
    let watch = ["--stdin", "watch", "--drain", "50ms"];
    let stdin = messages_when(Scene::new().stdin_pipe(), &watch, tree, close);
    let shim = messages_when(Scene::new(), quick, tree, |run| run.signal(libc::SIGKILL));
    let monitor = messages_when(Scene::new(), quick, tree, |run| {
        sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    });
    for (messages, trigger, option) in [
        (stdin, "stdin-eof", "--stdin"),
        (shim, "shim-killed", ""),
        (monitor, "monitor-killed", ""),
    ] {
        assert_eq!(messages.lines().count(), 1, "{trigger}: {messages}");
        assert!(
            messages.starts_with(&format!("treaper: {trigger}: ")),
            "{messages}"
        );
        assert!(
            messages.contains("SIGTERM was sent to the server"),
            "{messages}"
        );
        assert!(messages.contains(option), "{messages}");
    }
}

#[test]
fn the_end_of_a_host_is_logged_when_its_server_lives() {
    let mut other = Scene::new().start(&[ACTOR, "tree", "other"]);
    let pid = other.log.ready("other").to_string();
    let options = ["--watch-pid", &pid];
    let messages = messages_when(Scene::new(), &options, "server:on=TERM/0", |_| {
        other.signal(libc::SIGKILL);
    });
    let words = "a process of --watch-pid or --watch-ancestor is gone, so SIGTERM was sent to the server (without that option, the server would keep running)";
    assert_eq!(messages, format!("treaper: watched-exit: {words}\n"));

    let host = [ACTOR, "host", "--stdin", "null", "--"];
    let command = Wrap::Treaper(&[]).tree("server:on=TERM/0");
    let command: Vec<&str> = host
        .into_iter()
        .chain(command.iter().map(String::as_str))
        .collect();
    let mut run = Scene::new().start(&command);
    run.log.ready("server");
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let messages = run.stderr();
    assert!(messages.starts_with("treaper: parent-exit: "), "{messages}");
    assert!(messages.contains("--no-parent"), "{messages}");
    assert_eq!(messages.lines().count(), 1, "{messages}");
}

/// With `--until=tree` a process that has outlived the server goes on, so its end needs a reason as well.
#[test]
fn what_has_outlived_the_server_is_not_stopped_without_a_message() {
    const TREE: &str = "server:exit=0[worker:on=TERM/0]";
    let alone = |run: &mut Run| {
        run.log.ready("worker");
        let monitor = run.monitor();
        until("a server that was reaped", || {
            let children = proc::children(monitor);
            children.iter().all(|child| child.comm == "worker")
        });
    };
    let until_tree = |more: &[&'static str]| [&["--until=tree"], more].concat();
    let pipe = || Scene::new().stdin_pipe();
    let watch = until_tree(&["--stdin=watch", "--drain=50ms"]);
    let stdin = messages_when(pipe(), &watch, TREE, |run| {
        alone(run);
        run.close_stdin();
    });
    let idle = messages_when(pipe(), &until_tree(&["--idle=3s"]), TREE, |run| {
        run.log.ready("worker");
    });
    let shim = messages_when(Scene::new(), &until_tree(&[]), TREE, |run| {
        alone(run);
        run.signal(libc::SIGKILL);
    });
    let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
    let command = Wrap::Treaper(&["--until=tree"]).tree(TREE);
    let mut run = Scene::new().start(&[&host[..], &command].concat());
    alone(&mut run);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    for (messages, reason, change) in [
        (
            stdin,
            "stdin-eof: stdin has closed and the drain has ended",
            " (--stdin and --drain change that)",
        ),
        (
            idle,
            "idle: nothing was written to the server's stdin for the time of --idle",
            " (a longer --idle changes that)",
        ),
        (
            shim,
            "shim-killed: the treaper process that your host started was killed",
            "",
        ),
        (
            run.stderr(),
            "parent-exit: the process that started treaper is gone",
            " (--no-parent changes that)",
        ),
    ] {
        let sent = "so SIGTERM was sent to the rest of the tree";
        assert_eq!(messages, format!("treaper: {reason}, {sent}{change}\n"));
    }
    // It was asked for, or the end of the server is the reason.
    let asked = messages_when(Scene::new(), &until_tree(&[]), TREE, |run| {
        alone(run);
        run.signal(libc::SIGTERM);
    });
    let default = messages_when(Scene::new(), &[], TREE, |_| {});
    assert_eq!([asked, default], [""; 2]);
}

#[test]
fn a_stop_that_was_asked_for_or_finds_no_server_is_silent() {
    let tree = "server:on=TERM/0:eof=0";
    let watch = ["--stdin", "watch", "--drain", "60s"];
    let left = messages_when(Scene::new().stdin_pipe(), &watch, tree, |run| {
        drop(run.stdin.take());
    });
    let asked = messages_when(
        Scene::new().stdin_pipe(),
        &watch,
        "server:on=TERM/0",
        |run| {
            drop(run.stdin.take());
            run.signal(libc::SIGTERM);
        },
    );
    let gone = messages_when(Scene::new(), &[], "server:exit=0[worker:pgrp]", |_| {});
    for messages in [left, asked, gone] {
        assert_eq!(messages, "");
    }
}

#[test]
fn killed_processes_are_counted_and_the_first_four_are_named() {
    for (count, text) in [
        (1, "1 process ("),
        (2, "2 processes ("),
        (6, "6 processes ("),
    ] {
        let tree = format!("server:on=TERM/0[worker*{count}:setsid:ignore=TERM]");
        let mut run = treaper(&["--grace", "2s"], &tree, &["server"]);
        let workers = run.log.wait_for(count, "worker", "ready");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let messages = run.stderr();
        assert!(
            messages.starts_with("treaper: terminate: had to SIGKILL "),
            "{messages}"
        );
        assert!(messages.contains(text), "{messages}");
        let named =
            |line: &common::log::Line| messages.contains(&format!("worker[{}]", line.pid()));
        let named = workers.iter().filter(|line| named(line)).count();
        assert_eq!(named, count.min(4), "{messages}");
        assert_eq!(messages.contains(", ...)"), count > 4, "{messages}");
        let time = messages.split("alive ").nth(1).unwrap();
        let time = time.split(" after SIGTERM").next().unwrap();
        let millis = time.strip_suffix("ms").map(str::to_owned);
        let millis = millis.unwrap_or_else(|| time.replace('s', "000"));
        let millis: u64 = millis.parse().unwrap();
        assert!((2000..30_000).contains(&millis), "{messages}");
    }
}

/// The kernel sends SIGHUP to the leader of the session.
#[test]
fn the_end_of_the_terminal_is_logged_when_the_server_lives() {
    for options in [&["--stdin=ignore"][..], &["--stdin=ignore", "--no-guard"]] {
        let (master, slave) = special::pty();
        let scene = Scene::new().no_capture();
        let path = scene.directory().join("stderr");
        let file = File::create(&path).unwrap();
        let scene = scene.with(|command| {
            command.stdin(slave).stdout(Stdio::null()).stderr(file);
        });
        let mut words = ["setsid", "--ctty"].map(str::to_owned).to_vec();
        words.extend(Wrap::Treaper(options).tree("server:ignore=HUP:on=TERM/0"));
        let mut run = scene.start(&words);
        run.log.ready("server");
        drop(master);
        run.wait_clean();
        let messages = std::fs::read_to_string(&path).unwrap();
        let words = "the terminal is gone or SIGHUP was sent, so SIGTERM was sent to the server (--hup=forward changes that)";
        assert_eq!(
            messages,
            format!("treaper: hangup: {words}\n"),
            "{options:?}"
        );
    }
}

/// A stop of almost a second says so. A longer one needs no milliseconds.
#[test]
fn times_are_rounded_to_a_tenth_of_a_second_from_one_second_on() {
    for (millis, text) in [
        (0, "0s"),
        (30, "30ms"),
        (999, "999ms"),
        (1000, "1s"),
        (1049, "1s"),
        (1050, "1100ms"),
        (2960, "3s"),
    ] {
        let time = Seconds::about(Duration::from_millis(millis));
        assert_eq!(time.to_string(), text, "{millis} ms");
    }
}

#[test]
fn a_number_of_processes_is_shown_with_the_names_of_the_first_ones() {
    for (names, count, text) in [
        (0, 1, "1 process"),
        (0, 3, "3 processes"),
        (1, 1, "1 process (worker[7])"),
        (1, 3, "3 processes (worker[7], ...)"),
        (
            4,
            4,
            "4 processes (worker[7], worker[7], worker[7], worker[7])",
        ),
        (
            5,
            5,
            "5 processes (worker[7], worker[7], worker[7], worker[7], ...)",
        ),
    ] {
        let mut named = Named::default();
        for _ in 0..names {
            named.add(Pid::new(7).unwrap(), Name::new(b"worker"));
        }
        assert_eq!(named.count, names);
        named.count = count;
        assert_eq!(named.to_string(), text);
    }
}

/// Starts a server that leaves four daemons: a child, an orphan, and one below each of two processes, of which one ends
/// at once and one after all of the tree got its signal. Then it exits by itself. Returns the only line, and the daemons.
fn left_daemons(scene: Scene, level: &str) -> (String, [String; 4]) {
    const DAEMONS: [&str; 4] = ["one", "two", "three", "four"];
    let tree = "server:on=USR1/4[one:setsid,two:daemon,quick:pgrp[three:setsid],\
                late:pgrp:on=TERM/0:slow=300[four:setsid]]";
    let mut run = scene.start(&Wrap::Treaper(&[level]).tree(tree));
    run = run.ready(&DAEMONS).ready(&["server", "quick", "late"]);
    let pid = |run: &Run, name: &str| run.named(name)[0].pid;
    let daemons = DAEMONS.map(|name| format!("{name}[{}]", pid(&run, name)));
    sys::kill(pid(&run, "server"), libc::SIGUSR1).unwrap();
    assert_eq!(run.wait_clean().code(), Some(4), "{level}");
    let lines = run.stderr();
    assert_eq!(lines.lines().count(), 1, "{level}: {lines}");
    (lines, daemons)
}

const LEFT_DAEMONS: &str =
    "treaper: server-exit: the server exited, so its daemons were sent SIGTERM: 4 processes (";
const KEEPS: &str = "); --spare=NAME keeps a daemon running\n";
const KEEPS_IN_GROUP: &str = "); --spare=NAME with --contain=group keeps a daemon running\n";

/// Somebody may have started them on purpose.
#[test]
fn a_server_that_exits_by_itself_does_not_lose_its_daemons_without_a_word() {
    let place = Place::new();
    if place.is_none() {
        skip("no cgroup v2 that this user may change");
    }
    let cgroup = place
        .as_ref()
        .map(|place| ("--contain=cgroup", place.scene(), KEEPS_IN_GROUP));
    let others = ["--contain=group", "--no-guard"].map(|level| (level, Scene::new(), KEEPS));
    for (level, scene, end) in others.into_iter().chain(cgroup) {
        let (line, daemons) = left_daemons(scene, level);
        assert!(line.starts_with(LEFT_DAEMONS), "{level}: {line}");
        assert!(line.ends_with(end), "{level}: {line}");
        let are_named = daemons.iter().all(|daemon| line.contains(daemon));
        assert!(are_named, "{level}: {line} {daemons:?}");
    }
}

#[test]
fn in_a_namespace_that_line_says_where_a_daemon_can_be_kept() {
    common::skip::needs("pidns");
    let (line, daemons) = left_daemons(Scene::new(), "--contain=pidns");
    assert!(line.starts_with(LEFT_DAEMONS), "{line}");
    assert!(line.ends_with(KEEPS_IN_GROUP), "{line}");
    // Their numbers are those of the namespace.
    let mut names = daemons
        .iter()
        .map(|daemon| daemon.split_once('[').unwrap().0);
    assert!(
        names.all(|name| line.contains(&format!("{name}["))),
        "{line}"
    );
}

/// When treaper itself stops the server, the reason is in another line, or SIGTERM has asked for it.
#[test]
fn the_daemons_of_a_server_that_is_stopped_are_not_named() {
    let tree = "server:on=TERM/4[one:setsid,two:daemon]";
    let mut run = treaper(&[], tree, &["server", "one", "two"]);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(4));
    assert_eq!(run.stderr(), "");
}

/// Most servers over stdio end like this. No signal has ended the server, so its daemons are not lost silently either.
#[test]
fn the_daemons_of_a_server_that_exits_as_its_input_ends_are_named() {
    let scene = Scene::new().stdin_pipe();
    let tree = Wrap::Treaper(&["--stdin=watch", "--drain=60s"])
        .tree("server:eof=4[one:setsid,two:daemon]");
    let mut run = scene.start(&tree).ready(&["server", "one", "two"]);
    drop(run.stdin.take());
    assert_eq!(run.wait_clean().code(), Some(4));
    let line = run.stderr();
    let begin =
        "treaper: stdin-eof: the server exited, so its daemons were sent SIGTERM: 2 processes (";
    assert!(line.starts_with(begin) && line.ends_with(KEEPS), "{line}");
}

/// There the end of the input is the reason, and the line that says so is enough.
#[test]
fn with_until_tree_the_end_of_the_input_names_no_daemons() {
    let scene = Scene::new().stdin_pipe();
    let options = ["--until=tree", "--stdin=watch", "--drain=50ms"];
    let tree = Wrap::Treaper(&options).tree("server:on=USR1/4[one:setsid,two:daemon]");
    let mut run = scene.start(&tree).ready(&["server", "one", "two"]);
    sys::kill(run.named("server")[0].pid, libc::SIGUSR1).unwrap();
    run.log.wait("server", "leaving");
    drop(run.stdin.take());
    assert_eq!(run.wait_clean().code(), Some(4));
    let line = run.stderr();
    assert!(
        line.starts_with("treaper: stdin-eof: stdin has closed"),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");
}

/// The end of the input has begun the drain, and the end of the other process has ended it.
#[test]
fn a_stop_during_a_drain_names_what_has_ended_the_drain() {
    let mut other = Scene::new().start(&[ACTOR, "tree", "other"]);
    let pid = other.log.ready("other").to_string();
    let scene = Scene::new().stdin_pipe();
    let report = scene.directory().join("report");
    let mut options = vec!["-v", "--stdin", "watch", "--drain", "60s"];
    options.extend(["--watch-pid", &pid, "--report", report.to_str().unwrap()]);
    let wrap = Wrap::Treaper(&options).tree("server:on=TERM/0");
    let mut run = scene.start(&wrap).ready(&["server"]);
    drop(run.stdin.take());
    until("the drain begins", || {
        run.stderr().contains("trigger: stdin-eof")
    });
    other.signal(libc::SIGKILL);
    assert_eq!(run.wait_clean().code(), Some(0));
    let messages = run.stderr();
    let reason = messages
        .lines()
        .find(|line| line.contains("SIGTERM was sent to the server"));
    let reason = reason.unwrap_or_else(|| panic!("{messages}"));
    assert!(reason.starts_with("treaper: watched-exit: "), "{reason}");
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains(r#""trigger":"watched-exit""#), "{report}");
}

/// On a socket that keeps the limits of messages, an empty one would be an empty line of the log.
#[test]
fn each_message_is_one_datagram() {
    let (read, write) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let scene = Scene::new().no_capture().with(|command| {
        command.stdout(Stdio::null()).stderr(OwnedFd::from(write));
    });
    let tree = "server:on=TERM/0";
    let mut run = scene
        .start(&Wrap::Treaper(&["-v"]).tree(tree))
        .ready(&["server"]);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
    drop(run);
    read.set_nonblocking(true).unwrap();
    let (mut buffer, mut count) = ([0; 2048], 0);
    while let Ok(len) = read.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..len]);
        assert!(text.starts_with("treaper: "), "{text:?}");
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        count += 1;
    }
    assert!(count > 1, "{count} messages");
}
