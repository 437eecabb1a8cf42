//! `--stderr`: standard error of the server and of treaper is appended to a file.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::scene::Directory;
use common::{Scene, TREAPER, Wrap, proc, skip, sys, until};

/// Runs the command, and returns what the host reads.
fn run(options: &[&str], file: &Path, command: &[&str]) -> Output {
    let mut treaper = Command::new(TREAPER);
    treaper.args(options).arg("--stderr").arg(file).arg("--");
    treaper.args(command).stdin(Stdio::null()).output().unwrap()
}

/// Nothing is started, and one line names the option.
fn is_refused(file: &Path, why: &str) {
    let output = run(&[], file, &["echo", "started"]);
    let text = String::from_utf8(output.stderr).unwrap();
    let printed = (output.status.code(), &output.stdout[..]);
    assert_eq!(printed, (Some(125), &b""[..]), "{text}");
    let file = file.display();
    let expected =
        format!("treaper: --stderr or TREAPER_STDERR: cannot append to '{file}': {why}\n");
    assert_eq!(text, expected);
}

#[test]
fn the_server_and_treaper_append_to_the_file_and_the_host_reads_nothing() {
    let directory = Directory::new();
    let file = directory.0.join("errors");
    for options in [&["-v"][..], &["-v", "--no-guard"]] {
        let _ = fs::remove_file(&file);
        for _ in 0..2 {
            let output = run(
                options,
                &file,
                &["sh", "-c", "echo problem >&2; echo answer"],
            );
            assert_eq!(output.status.code(), Some(0));
            assert_eq!(
                (&output.stdout[..], &output.stderr[..]),
                (&b"answer\n"[..], &b""[..])
            );
        }
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("problem\n").count(), 2, "{text}");
        assert_eq!(text.matches("treaper: starting 'sh'").count(), 2, "{text}");
        assert_eq!(text.matches("treaper: done: ").count(), 2, "{text}");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}

#[test]
fn the_file_keeps_its_mode_and_its_text_and_the_variable_means_the_same() {
    let directory = Directory::new();
    let file = directory.0.join("errors");
    fs::write(&file, "before\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mut treaper = Command::new(TREAPER);
    treaper
        .args(["no-such-command"])
        // A folder that may not be searched changes the message.
        .env("PATH", "/usr/bin:/bin")
        .env("TREAPER_STDERR", &file);
    let output = treaper.output().unwrap();
    assert_eq!(
        (output.status.code(), &output.stderr[..]),
        (Some(127), &b""[..])
    );
    let text = fs::read_to_string(&file).unwrap();
    let printed = "treaper: cannot find 'no-such-command': No such file or directory\n";
    assert_eq!(text, format!("before\n{printed}"));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_before_the_start() {
    let directory = Directory::new();
    is_refused(&directory.0, "Is a directory");
    is_refused(&directory.0.join("no/file"), "No such file or directory");
    is_refused(Path::new("/etc/passwd/x"), "Not a directory");
    is_refused(Path::new(""), "No such file or directory");
    let unread = "no process reads this FIFO, or it is a socket";
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    is_refused(&fifo, unread);
    let socket = directory.0.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    is_refused(&socket, unread);
}

#[test]
fn a_place_that_may_not_be_written_is_an_error_before_the_start() {
    if !sys::is_root() {
        return skip("only root can become another user");
    }
    let scene = Scene::new();
    let folder = scene.directory().join("closed");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let file = folder.join("errors").to_str().unwrap().to_owned();
    let wrap = ["--stderr", &file];
    let words = Wrap::Treaper(&wrap).command(&["echo", "started"]);
    let mut run = scene.uid(12345).start(&words);
    assert_eq!(run.wait_clean().code(), Some(125));
    assert_eq!(run.stdout(), "");
    assert!(
        run.stderr().contains("Permission denied"),
        "{}",
        run.stderr()
    );
}

/// A shell's `2>>` gives such a descriptor as well.
#[test]
fn the_server_gets_a_descriptor_that_appends_and_waits() {
    let directory = Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let mut reader = fs::OpenOptions::new();
    let reader = reader.read(true).custom_flags(libc::O_NONBLOCK);
    let reader = reader.open(&fifo).unwrap();
    sys::set_nonblocking(reader.as_raw_fd());
    for file in [fifo, directory.0.join("errors"), "/dev/null".into()] {
        let asked = ["grep", "flags", "/proc/self/fdinfo/2"];
        let output = run(&[], &file, &asked);
        let text = String::from_utf8(output.stdout).unwrap();
        let flags = text.split_whitespace().nth(1).unwrap();
        let flags = i32::from_str_radix(flags, 8).unwrap();
        let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let expected = libc::O_WRONLY | libc::O_APPEND;
        assert_eq!(flags & kept, expected, "{}", file.display());
    }
}

#[test]
fn the_server_gets_no_other_descriptor_and_a_closed_stderr_becomes_the_file() {
    let directory = Directory::new();
    let file = directory.0.join("errors");
    let list = "ls /proc/self/fd | wc -l; echo problem >&2";
    let script = format!(
        "'{TREAPER}' sh -c '{list}' 2>/dev/null; '{TREAPER}' --stderr '{}' sh -c '{list}' 2>&-",
        file.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counts: Vec<&str> = text.lines().collect();
    assert_eq!(counts.len(), 2, "{text}");
    assert_eq!(counts[0], counts[1]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "problem\n");
}

#[test]
fn sighup_does_not_open_the_file_again() {
    let scene = Scene::new();
    let [file, moved] = ["errors", "moved"].map(|name| scene.directory().join(name));
    let wrap = ["--hup", "forward", "--stderr", file.to_str().unwrap()];
    let mut run = scene.start(&Wrap::Treaper(&wrap).command(&[
        "sh",
        "-c",
        "trap 'echo hangup >&2; exit 0' HUP; echo started >&2; while :; do sleep 0.01; done",
    ]));
    common::until("the server has started", || {
        fs::read_to_string(&file).is_ok_and(|text| text == "started\n")
    });
    fs::rename(&file, &moved).unwrap();
    run.signal(libc::SIGHUP);
    assert_eq!(run.wait_clean().code(), Some(0));
    assert_eq!(fs::read_to_string(&moved).unwrap(), "started\nhangup\n");
    assert!(!file.exists());
    assert_eq!(run.stderr(), "");
}

/// A server with so many `children`, whose treaper has a file as this `stream`, on a file system that `hangs` or `works`.
/// Returns what `hung_file.py` prints: whether the server was stopped, and the file.
fn on_a_file_system(
    stream: &str,
    hangs: &str,
    options: &[&str],
    children: usize,
) -> Option<String> {
    let children = children.to_string();
    on_a_file_system_with(&[("CHILDREN", &children)], stream, hangs, options)
}

fn on_a_file_system_with(
    variables: &[(&str, &str)],
    stream: &str,
    hangs: &str,
    options: &[&str],
) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hung_file.py");
    let python = Command::new("python3").arg("-V").output();
    if python.is_err() || !sys::is_root() || !Path::new("/dev/fuse").exists() {
        skip("needs root, FUSE and python3");
        return None;
    }
    let directory = Directory::new();
    let file = directory.0.join("file");
    let output = Command::new("unshare")
        .envs(variables.iter().copied())
        .args(["-m", "python3", script, file.to_str().unwrap()])
        .args([stream, hangs])
        .args([TREAPER, "--drain=100ms", "--grace=300ms"])
        .arg("--kill-timeout=1s")
        .args(options)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    // Once the file system is gone, so are the server, and each process of treaper.
    let text = stdout.strip_suffix("over\n");
    let text = text.filter(|text| text.starts_with("stopped\n"));
    assert!(
        text.is_some(),
        "{stream}, {hangs}, {options:?}: {stdout}{stderr}"
    );
    text.map(str::to_owned)
}

/// The pair, one process alone, and the pair whose monitor is the first process of a PID namespace.
const LEVELS: [&[&str]; 3] = [&[], &["--no-guard"], &["--contain=pidns"]];

/// Each level on a file system that hangs, and on one that works.
fn scenes() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    let both = |options| [(options, "hangs"), (options, "works")];
    LEVELS.into_iter().flat_map(both)
}

/// A write to it never returns. The next step is SIGKILL.
#[test]
fn a_file_system_that_hangs_does_not_keep_sigkill_waiting() {
    for (options, hangs) in scenes() {
        let Some(stdout) = on_a_file_system("stderr", hangs, options, 0) else {
            return;
        };
        // No line is lost, and none comes twice.
        let lines = stdout.matches("treaper: stdin-eof: ").count();
        assert_eq!(lines, if hangs == "works" { 2 } else { 0 }, "{stdout}");
    }
}

/// A process that closes its copy of the file waits. treaper needs no stdout, and closes it before its loop begins.
#[test]
fn a_stdout_on_a_file_system_that_hangs_keeps_no_trigger_waiting() {
    for (options, hangs) in scenes() {
        on_a_file_system("stdout", hangs, options, 0);
    }
}

/// As with a lock or a log that the host has left open.
#[test]
fn a_lock_on_a_file_system_that_hangs_keeps_no_trigger_waiting() {
    for (options, hangs) in scenes() {
        on_a_file_system("lock", hangs, options, 0);
    }
}

/// What waits in its place has all descriptors of the killed process, and keeps them open.
#[test]
fn a_lock_on_a_file_system_that_hangs_hides_no_killed_shim_and_no_killed_relay() {
    let directory = Directory::new();
    let socket = format!("--inject=unix:{}", directory.0.join("socket").display());
    let scenes: [(&str, &[&str]); 5] = [
        ("host's", &[]),
        ("host's", &["--contain=pidns"]),
        ("host's", &[&socket]),
        ("host's", &[&socket, "--no-guard"]),
        ("shim", &[&socket]),
    ];
    for (kills, options) in scenes {
        for hangs in ["hangs", "works"] {
            on_a_file_system_with(&[("KILLS", kills)], "lock", hangs, options);
        }
    }
}

/// Its time, which says whether it has had another writer since, is what the kernel knows without a request.
#[test]
fn a_fifo_on_a_file_system_that_hangs_keeps_no_trigger_waiting() {
    for (options, hangs) in scenes() {
        on_a_file_system("fifo", hangs, options, 0);
    }
}

/// Who has the other end of stdin is found out by what the parent has open.
#[test]
fn a_stdin_of_the_parent_on_a_file_system_that_hangs_does_not_delay_the_start() {
    for hangs in ["hangs", "works"] {
        on_a_file_system("parent", hangs, &[], 0);
    }
}

/// The shim goes on for a monitor that the file keeps from its end.
#[test]
fn a_report_on_a_file_system_that_hangs_changes_no_status() {
    let is_guarded = |scene: &(&[&str], &str)| scene.0 != LEVELS[1] || scene.1 == "works";
    for (options, hangs) in scenes().filter(is_guarded) {
        let Some(stdout) = on_a_file_system("report", hangs, options, 0) else {
            return;
        };
        assert!(
            stdout.ends_with("status 7\n"),
            "{options:?}, {hangs}: {stdout}"
        );
        assert_eq!(
            stdout.contains("\"schema\":1"),
            hangs == "works",
            "{stdout}"
        );
    }
}

/// A message of the relay, about a writer that it refuses, waits until the end.
#[test]
fn a_stderr_on_a_file_system_that_hangs_keeps_no_writer_waiting() {
    for hangs in ["hangs", "works"] {
        let directory = Directory::new();
        let socket = directory.0.join("socket");
        let option = format!("--inject=unix:{}", socket.display());
        let Some(stdout) = on_a_file_system(socket.to_str().unwrap(), hangs, &[&option], 0) else {
            return;
        };
        let lines = stdout.matches("treaper: refused a writer ").count();
        assert_eq!(lines, usize::from(hangs == "works"), "{stdout}");
    }
}

/// How many lines say that messages were lost, and how many messages the last one counts.
fn lost(text: &str) -> (usize, usize) {
    let end = " more messages of the stop are lost: there was no room to keep them";
    let lines = text.lines().filter_map(|line| line.strip_suffix(end));
    let counts: Vec<usize> = lines
        .map(|line| line.strip_prefix("treaper: ").unwrap().parse().unwrap())
        .collect();
    (counts.len(), counts.last().copied().unwrap_or(0))
}

/// Runs a program for a scene, and expects that it succeeds.
fn done(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).status();
    assert!(status.unwrap().success(), "{words:?}");
}

/// Mounted for one test. It is thawed and unmounted whatever the test does.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        for program in [&["fsfreeze", "-u"][..], &["umount", "-l"]] {
            let mut command = Command::new(program[0]);
            let _ = command.args(&program[1..]).arg(&self.0).output();
        }
    }
}

/// As a backup freezes it (`fsfreeze`). Then no write returns, and no signal ends it.
#[test]
fn a_frozen_file_system_does_not_keep_sigkill_waiting() {
    if !sys::is_root() || !Path::new("/dev/loop-control").exists() {
        return skip("needs root and loop devices");
    }
    let directory = Directory::new();
    let (image, mount) = (directory.0.join("image"), directory.0.join("mount"));
    fs::create_dir(&mount).unwrap();
    let (image, at) = (image.to_str().unwrap(), mount.to_str().unwrap());
    done(&["truncate", "-s", "16M", image]);
    done(&["mkfs.ext4", "-q", image]);
    done(&["mount", "-o", "loop", image, at]);
    let mounted = Mounted(mount.clone());
    for options in LEVELS {
        is_stopped_on_a_frozen(&mount, options);
    }
    drop(mounted);
}

fn is_stopped_on_a_frozen(mount: &Path, options: &[&str]) {
    let (file, at) = (mount.join("errors"), mount.to_str().unwrap());
    let script = "exec 2>&-; trap '' TERM; echo up; while :; do sleep 0.2; done";
    let mut treaper = Command::new(TREAPER)
        .args(["--stdin=watch", "--drain=100ms", "--grace=300ms"])
        .args(options)
        .args(["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&file).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = treaper.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    // Its pid is another one inside of a PID namespace.
    let tree = proc::descendants(treaper.id() as i32);
    let server = tree.iter().find(|it| it.comm == "sh").unwrap().pid;
    done(&["fsfreeze", "-f", at]);
    drop(treaper.stdin.take());
    let deadline = sys::now_ms() + 20_000;
    let is_alive = || proc::Process::read(server).is_some_and(|server| server.is_alive());
    while is_alive() && sys::now_ms() < deadline {
        sys::pause_for(Duration::from_millis(20));
    }
    let survived = is_alive();
    done(&["fsfreeze", "-u", at]);
    treaper.wait().unwrap();
    assert!(!survived, "no SIGKILL came");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("stdin-eof: had to SIGKILL"), "{text}");
}

/// How many bytes of messages are kept until the stop is over.
const ROOM: usize = 32 << 10;

/// Such a file gets the first messages of a stop, and the number of the others, once the stop is over.
#[test]
fn messages_of_a_stop_without_room_are_counted() {
    for guard in [&["-vv"][..], &["-vv", "--no-guard"]] {
        for children in [0, 300] {
            let Some(stdout) = on_a_file_system("stderr", "works", guard, children) else {
                return;
            };
            let (_, text) = stdout.split_once("treaper: trigger: ").unwrap();
            if children == 0 {
                assert_eq!(lost(text), (0, 0), "{text}");
                assert!(text.contains("treaper: done: "), "{text}");
                continue;
            }
            let (lines, more) = lost(text);
            assert_eq!(lines, 1, "{text}");
            let kept: Vec<&str> = text.trim_end().lines().collect();
            assert!(kept.last().unwrap().ends_with("no room to keep them"));
            let bytes = "treaper: trigger: ".len() + text.rfind("treaper: ").unwrap();
            assert!((ROOM - 100..=ROOM).contains(&bytes), "{bytes} bytes");
            // One for each of three signals and one for the end of each process, and a few about the whole stop.
            let all = kept.len() - 1 + more;
            assert!((4 * children..4 * children + 60).contains(&all), "{all}");
        }
    }
}

/// Its file system may be frozen, so it gets the messages of a stop when the stop is over.
#[test]
fn a_plain_file_gets_every_message_that_has_room() {
    let directory = Directory::new();
    let file = directory.0.join("errors");
    let script = "trap '' TERM; for i in $(seq 200); do sleep 60 2>&- & done; exit 3";
    let output = run(&["-vv", "--grace=100ms"], &file, &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(lost(&text), (0, 0), "{text}");
    // One for SIGKILL and one for the end of each process.
    assert!(text.len() < ROOM && text.lines().count() >= 400, "{text}");
}

/// A write to it might wait. Each copy of it is whole, whenever the process that makes it is killed.
#[test]
fn a_plain_file_is_not_written_as_long_as_a_process_of_the_tree_is_alive() {
    let copy = |name: &str| format!("cp $0 $0.{name}.new; mv $0.{name}.new $0.{name}");
    let worker = format!(
        "trap '' TERM; echo up; while :; do if [ -e $0.first ]; then {}; fi; done",
        copy("last")
    );
    let server = format!(
        "trap '{}; exit 3' TERM; setsid sh -c \"$1\" $0 & while :; do sleep 0.01; done",
        copy("first")
    );
    for options in LEVELS {
        if options.contains(&"--contain=pidns") && !sys::is_root() {
            skip("pidns without root depends on the machine");
            continue;
        }
        let directory = Directory::new();
        let file = directory.0.join("errors");
        let mut treaper = Command::new(TREAPER);
        treaper.args(["-vv", "--grace=3s"]).args(options);
        treaper.args(["sh", "-c", &server]).arg(&file).arg(&worker);
        treaper.stdin(Stdio::null()).stdout(Stdio::piped());
        treaper.stderr(fs::File::create(&file).unwrap());
        let mut treaper = treaper.spawn().unwrap();
        let mut stdout = BufReader::new(treaper.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        sys::kill(treaper.id() as i32, libc::SIGTERM).unwrap();
        assert_eq!(treaper.wait().unwrap().code(), Some(3));
        let read = |name: &str| fs::read_to_string(file.with_extension(name)).unwrap();
        let (first, last, all) = (read("first"), read("last"), read(""));
        assert!(first.contains("starting 'sh'"), "{first}");
        assert_eq!(first, last, "{options:?}");
        let stop = all.strip_prefix(&first).unwrap();
        assert!(stop.starts_with("treaper: trigger: "), "{stop}");
        assert!(stop.contains("had to SIGKILL"), "{stop}");
    }
}

/// The monitor, which was to write it at the end of the stop, is killed before.
#[test]
fn a_plain_file_gets_the_reason_of_a_stop_whose_monitor_is_killed() {
    for options in [&[][..], &["--contain=pidns"]] {
        if !options.is_empty() && !sys::is_root() {
            skip("pidns without root depends on the machine");
            continue;
        }
        let scene = Scene::new().stdin_pipe();
        let file = scene.directory().join("errors");
        let more = [
            "--stderr",
            file.to_str().unwrap(),
            "--stdin=watch",
            "--drain=10ms",
        ];
        let script = "trap 'echo told; sleep 1; exit' TERM; echo up; while :; do sleep 0.05; done";
        let options = [&more[..], options].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
        until("the server", || run.stdout() == "up\n");
        run.close_stdin();
        until("the stop signal", || run.stdout() == "up\ntold\n");
        sys::kill(run.monitor(), libc::SIGKILL).unwrap();
        run.wait_clean();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(
            text.matches("treaper: stdin-eof: stdin has closed").count(),
            1,
            "{text}"
        );
    }
}

/// It is not worth a word, and nothing comes later. The next message that fits is written.
#[test]
fn a_message_that_a_full_pipe_does_not_take_is_dropped() {
    let (mut read, write) = sys::pipe().unwrap();
    common::fill(&write);
    sys::set_nonblocking(read.as_raw_fd());
    let scene = Scene::new().no_capture().with(|command| {
        command.stdout(Stdio::null()).stderr(write);
    });
    let tree = "server:record:on=USR1/3[worker:record:on=USR2/0]";
    let wrap = Wrap::Treaper(&["-vv", "-k", "tree", "--grace", "60s"]).tree(tree);
    let mut run = scene.start(&wrap).ready(&["server", "worker"]);
    let [server, worker] = ["server", "worker"].map(|name| run.log.ready(name));
    run.signal(libc::SIGTERM);
    // The message about the first one comes before the second one.
    run.log.wait_for(2, "worker", "signal");
    let mut text = String::new();
    let drained = read.read_to_string(&mut text);
    assert!(drained.is_err(), "a writer is left");
    for (pid, signal) in [(worker, libc::SIGUSR2), (server, libc::SIGUSR1)] {
        sys::kill(pid, signal).unwrap();
    }
    assert_eq!(run.wait_clean().code(), Some(3));
    read.read_to_string(&mut text).unwrap();
    assert!(text.starts_with(&"x".repeat(4096)), "{text}");
    let dropped = format!("SIGTERM to pid {worker}: done");
    assert!(!text.contains(&dropped), "{text}");
    assert!(text.contains("treaper: done: "), "{text}");
    assert_eq!(lost(&text), (0, 0), "{text}");
}
