//! The relay is in front of treaper: what the host sees of its child, and does to it, is as without a relay.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;
#[path = "relay/messages.rs"]
mod messages;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::special;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, is_quiet, skip, sys, until, until_state};
use messages::{acknowledged, connect};

const CANCEL: [&str; 2] = ["--turn=method=p", "--cancel=method=c"];

fn source(scene: &Scene) -> (PathBuf, String) {
    let path = scene.directory().join("socket");
    let source = format!("--inject=unix:{}", path.display());
    (path, source)
}

/// With a relay in both directions.
fn start(more: &[&str], command: &[&str]) -> (Run, PathBuf) {
    let scene = Scene::new().stdin_pipe();
    let (path, source) = source(&scene);
    let options = [&CANCEL[..], &[&source], more].concat();
    (scene.start(&Wrap::Treaper(&options).command(command)), path)
}

#[test]
fn the_host_knows_the_relay_which_has_the_rest_below_it() {
    let (mut run, path) = start(&[], &["cat"]);
    until("a server", || !run.named("cat").is_empty());
    until("names", || {
        let names: Vec<_> = run.survivors().into_iter().map(|p| p.comm).collect();
        names.len() == 4 && names.iter().any(|name| name == "tree-monitor")
    });
    let parent_of = |name: &str| run.named(name)[0].ppid;
    assert_eq!(run.relay(), run.main);
    assert_eq!(parent_of("treaper"), run.main);
    assert_eq!(parent_of("tree-monitor"), run.named("treaper")[0].pid);
    assert_eq!(parent_of("cat"), run.monitor());
    let mut writer = connect(&path);
    writer.write_all(b"line\n").unwrap();
    acknowledged(writer);
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0));
    assert_eq!(
        (run.stdout(), run.stderr()),
        ("line\n".into(), String::new())
    );
}

/// Each has another number of processes between, and the relay may be process 1.
#[test]
fn the_status_is_that_of_the_server_also_as_process_1() {
    for level in ["--contain=group", "--contain=pidns", "--no-guard"] {
        for first in [false, true] {
            if first || level == "--contain=pidns" {
                common::skip::needs("pidns");
            }
            let scene = Scene::new().stdin_pipe();
            let scene = if first { scene.pidns() } else { scene };
            let (path, source) = source(&scene);
            let options = [&CANCEL[..], &[&source, level]].concat();
            let command = ["sh", "-c", "echo last words; (sleep 1000 &); exit 7"];
            let mut run = scene.start(&Wrap::Treaper(&options).command(&command));
            let exit = run.wait_clean();
            let which = format!("{level} as process 1: {first}");
            assert_eq!(exit.code(), Some(7), "{which}: {}", run.stderr());
            assert_eq!(run.stdout(), "last words\n", "{which}");
            assert_eq!(run.stderr(), "", "{which}");
            assert!(!path.exists(), "{which}");
        }
    }
}

#[test]
fn a_signal_reaches_the_server_once_whether_it_was_sent_to_the_relay_or_to_its_group() {
    for options in [&[][..], &["--no-guard"]] {
        let scene = Scene::new().stdin_pipe();
        let (_, source) = source(&scene);
        let options = [&[&source[..]], options].concat();
        let words = Wrap::Treaper(&options).tree("server:queue");
        // It leads a group, without a shell that does job control.
        let mut run = scene.start(&[vec!["setsid".to_owned()], words].concat());
        run.log.ready("server");
        sys::queue(run.main, libc::SIGRTMIN() + 3, 77).unwrap();
        let first = run.log.wait("server", "signal");
        assert_eq!(first.number("value"), 77, "{first:?}");
        sys::kill(run.main, libc::SIGUSR1).unwrap();
        run.log.wait_for(2, "server", "signal");
        sys::kill_group(run.main, libc::SIGUSR2).unwrap();
        run.log.wait_for(3, "server", "signal");
        sys::kill(run.main, libc::SIGCONT).unwrap();
        run.log.wait_for(4, "server", "signal");
        run.log
            .comes_within(Duration::from_millis(200), "server", "never");
        let all = run.log.all("server", "signal");
        let numbers: Vec<_> = all.iter().map(|line| line.number("sig") as i32).collect();
        let [first, second] = [libc::SIGRTMIN() + 3, libc::SIGUSR1];
        let expected = [first, second, libc::SIGUSR2, libc::SIGCONT];
        assert_eq!(numbers, expected, "{options:?}");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGTERM));
    }
}

/// A job at a terminal, whose stdin is a FIFO that never ends.
fn job(more: &[&str], tree: &str) -> (Run, OwnedFd) {
    let (scene, master) = Scene::new().terminal();
    let fifo = scene.directory().join("fifo");
    sys::mkfifo(&fifo);
    let (_, source) = source(&scene);
    let options = [&[&source, "--stdin=ignore"], more].concat();
    let script = format!("exec \"$@\" <>{}", fifo.display());
    let shell = ["sh", "-c", &script, "sh"].map(str::to_owned);
    let words = [&shell[..], &Wrap::Treaper(&options).tree(tree)].concat();
    (scene.start(&words), master)
}

fn press(master: &OwnedFd, key: u8) {
    let mut master = File::from(master.try_clone().unwrap());
    master.write_all(&[key]).unwrap();
}

#[test]
fn at_a_terminal_the_relay_is_suspended_and_resumed_with_the_server_and_ends_as_it_does() {
    for options in [&[][..], &["--no-guard"]] {
        let (mut run, master) = job(options, "server");
        let server = run.log.ready("server");
        press(&master, 26);
        until_state(&[server, run.main, run.shim()], 'T');
        sys::kill_group(run.main, libc::SIGCONT).unwrap();
        until_state(&[server, run.main, run.shim()], 'S');
        // The server alone is resumed, and all follow.
        press(&master, 26);
        until_state(&[server, run.main, run.shim()], 'T');
        if options.is_empty() {
            sys::kill(server, libc::SIGCONT).unwrap();
        } else {
            sys::kill(run.main, libc::SIGCONT).unwrap();
        }
        until_state(&[server, run.main, run.shim()], 'S');
        press(&master, 3);
        assert_eq!(run.wait_clean().signal(), Some(libc::SIGINT));
    }
}

/// Terminals open the next split in the folder of the job.
#[test]
fn the_relay_leaves_its_folder_unless_it_is_a_job() {
    let folder = |pid: i32| std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    let (run, _) = start(&[], &["sleep", "1000"]);
    until("a relay in /", || folder(run.main) == Path::new("/"));
    let (mut run, _master) = job(&[], "server");
    let server = run.log.ready("server");
    until("a relay that waits", || is_quiet(run.main));
    assert_ne!(folder(server), Path::new("/"));
    assert_eq!(folder(run.main), folder(server));
}

#[test]
fn at_a_terminal_the_error_says_what_to_write() {
    let (_master, slave) = special::pty();
    let scene = Scene::new().with(|treaper| {
        treaper.stdin(slave);
    });
    let (_, source) = source(&scene);
    let mut run = scene.start(&Wrap::Treaper(&[&source]).command(&["true"]));
    assert_eq!(run.wait_clean().code(), Some(125));
    let words = "so the relay cannot pass it on; at a terminal, write: cat | treaper\n";
    assert!(run.stderr().ends_with(words), "{}", run.stderr());
}

#[test]
fn a_key_reaches_the_server_once() {
    let (mut run, master) = job(&[], "server:record");
    run.log.ready("server");
    press(&master, 3);
    run.log.wait("server", "signal");
    press(&master, 28);
    run.log.wait_for(2, "server", "signal");
    run.log
        .comes_within(Duration::from_millis(100), "server", "never");
    let all = run.log.all("server", "signal");
    let numbers: Vec<_> = all.iter().map(|line| line.number("sig")).collect();
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn at_a_terminal_what_is_sent_to_the_relay_reaches_the_server() {
    let (mut run, _master) = job(&[], "server:record");
    run.log.ready("server");
    sys::kill(run.main, libc::SIGUSR1).unwrap();
    assert_eq!(
        run.log.wait("server", "signal").number("sig"),
        i64::from(libc::SIGUSR1)
    );
}

#[test]
fn a_killed_shim_ends_the_tree_and_then_the_relay() {
    let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let (mut run, path) = start(&[], &["sh", "-c", script]);
    until("ready", || run.stdout() == "ready\n");
    // Before it has this name, it has that of the shim.
    run.relay();
    sys::kill(run.shim(), libc::SIGKILL).unwrap();
    // The relay sees that the monitor has closed its files, which is just before its end.
    assert_eq!(run.wait_empty().signal(), Some(libc::SIGKILL));
    assert_eq!(run.stdout(), "ready\nbye\n");
    assert!(run.stderr().contains("shim-killed"), "{}", run.stderr());
    assert!(!path.exists());
}

/// The kernel queues these, so there is always one more. Not so many that others of this user find no room.
#[test]
fn a_flood_of_signals_keeps_the_relay_from_nothing() {
    let options = ["--drain=100ms", "--grace=100ms", "--rewrite=RTMIN:0"];
    let (mut run, _socket) = start(&options, &["sh", "-c", "echo ready; exec sleep 1000"]);
    until("a server", || run.stdout() == "ready\n");
    let (relay, monitor) = (run.relay(), run.monitor());
    special::limit_of(relay, libc::RLIMIT_SIGPENDING, 1000);
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while !is_over() && sys::kill(relay, libc::SIGRTMIN()).is_ok() {});
        }
        common::first_second_of(monitor);
        run.close_stdin();
        let has_ended = run.ends_within(Duration::from_secs(60));
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(has_ended, "{}", run.stderr());
    });
    assert!(run.stderr().contains("stdin-eof"), "{}", run.stderr());
}

/// Its poll then fails with EINVAL.
#[test]
fn a_lowered_limit_of_descriptors_ends_no_relay() {
    let (mut run, path) = start(&[], &["cat"]);
    until("a server", || !run.named("cat").is_empty());
    let relay = run.relay();
    special::limit_of(relay, libc::RLIMIT_NOFILE, 1);
    run.write_stdin(b"a line\n");
    sys::pause_for(Duration::from_millis(300));
    // It does not try again and again without a pause.
    let ticks = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{relay}/stat")).unwrap();
        let times = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(12)
            .take(2);
        times.map(|text| text.parse::<u64>().unwrap()).sum()
    };
    let before = ticks();
    sys::pause_for(Duration::from_millis(500));
    assert!(ticks() - before < 20);
    special::limit_of(relay, libc::RLIMIT_NOFILE, 1024);
    until("the line", || run.stdout() == "a line\n");
    let mut writer = connect(&path);
    writer.write_all(b"another\n").unwrap();
    acknowledged(writer);
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
}

/// The server has ended by itself, so its output is waited for as long as the host lives.
fn pauses(scene: Scene, level: &str) {
    let scene = scene.stdin_pipe();
    let (_, source) = source(&scene);
    let options = [&CANCEL[..], &[&source, level]].concat();
    let command = ["head", "-c", "150000", "/dev/zero"];
    let mut run = scene.start(&Wrap::Treaper(&options).command(&command));
    sys::pause_for(Duration::from_secs(8));
    let mut output = run.take_stdout();
    let mut count = 0;
    loop {
        match output.read(&mut [0; 8192]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(_) => {
                sys::poll(
                    &[(output.as_raw_fd(), libc::POLLIN)],
                    Some(common::patience()),
                );
            }
        }
    }
    assert_eq!(count, 150_000, "{}", run.stderr());
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    assert_eq!(run.stderr(), "");
}

#[test]
fn a_host_that_pauses_for_long_gets_all_of_the_output() {
    pauses(Scene::new(), "--contain=group");
}

/// The processes of treaper have pid 1 in two namespaces.
#[test]
fn a_host_that_pauses_for_long_gets_all_of_the_output_from_process_1() {
    common::skip::needs("pidns");
    pauses(Scene::new().pidns(), "--contain=pidns");
}

/// Nothing else would end the relay, whose server is gone.
#[test]
fn while_the_last_output_waits_for_the_host_sigterm_ends_the_relay() {
    let (_reader, stdout) = sys::pipe().unwrap();
    common::fill(&stdout);
    let scene = Scene::new().stdin_pipe().no_capture();
    let stderr = scene.directory().join("stderr");
    let file = File::create(&stderr).unwrap();
    let (_, source) = source(&scene);
    let scene = scene.with(|command| {
        command.stdout(stdout).stderr(file);
    });
    let options = [&CANCEL[..], &[&source]].concat();
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["echo", "last words"]));
    until("the end of treaper", || {
        run.named("tree-relay").len() == run.survivors().len()
    });
    // It was for the server, which is gone.
    run.signal(libc::SIGUSR1);
    assert!(!run.ends_within(Duration::from_secs(6)));
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
    let stderr = fs::read_to_string(stderr).unwrap();
    assert!(
        stderr.contains("the end of the server's output is lost"),
        "{stderr}"
    );
}

/// As SIGTERM does. Another process holds the other end, so no hang-up ends the relay.
#[test]
fn while_the_last_output_waits_for_the_host_its_death_ends_the_relay() {
    let (_reader, stdout) = sys::pipe().unwrap();
    common::fill(&stdout);
    let scene = Scene::new().stdin_pipe().no_capture();
    let stderr = scene.directory().join("stderr");
    let file = File::create(&stderr).unwrap();
    let scene = scene.with(|command| {
        command.stdout(stdout).stderr(file);
    });
    let host = ["sh", "-c", "\"$@\"; :", "host"].map(str::to_owned);
    let words = Wrap::Treaper(&CANCEL).command(&["echo", "last words"]);
    let mut run = scene.start(&[&host[..], &words].concat());
    let relay = run.relay();
    until("the end of treaper", || {
        common::proc::children(relay).is_empty()
    });
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait_empty().signal(), Some(libc::SIGKILL));
    let stderr = fs::read_to_string(stderr).unwrap();
    assert!(
        stderr.contains("the end of the server's output is lost"),
        "{stderr}"
    );
}

/// The relay has output that did not fit. Without treaper, the server's write would fail.
#[test]
fn a_host_that_leaves_while_output_waits_for_it_takes_the_reader_from_the_server() {
    let (reader, stdout) = sys::pipe().unwrap();
    let scene = Scene::new().stdin_pipe().no_capture();
    let scene = scene.with(|command| {
        command.stdout(stdout);
    });
    let mut run = scene.start(&Wrap::Treaper(&CANCEL).command(&["sh", "-c", "yes; exit 3"]));
    let relay = run.relay();
    until("a full pipe", || {
        let server = run.named("yes");
        let server = server.first().map(|process| process.pid);
        server.is_some_and(is_quiet) && is_quiet(relay)
    });
    drop(reader);
    assert_eq!(run.wait_clean().code(), Some(3));
}

/// As those of inetd can.
#[test]
fn what_a_server_writes_to_a_stdin_that_is_a_socket_fails() {
    let (near, far) = UnixStream::pair().unwrap();
    let scene = Scene::new();
    let (_, source) = source(&scene);
    let scene = scene.with(|command| {
        command.stdin(OwnedFd::from(far));
    });
    let script = "trap '' PIPE; head -c 1000000 /dev/zero 2>/dev/null >&0; echo status $?; cat";
    let mut run = scene.start(&Wrap::Treaper(&[&source]).command(&["sh", "-c", script]));
    until("an error", || run.stdout() == "status 1\n");
    (&near).write_all(b"line\n").unwrap();
    until("the line", || run.stdout() == "status 1\nline\n");
    drop(near);
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
}

#[test]
fn a_socket_that_was_touched_is_removed() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let status = Command::new("touch").arg(&path).status().unwrap();
    assert!(status.success());
    run.close_stdin();
    run.wait_clean();
    assert!(!path.exists());
}

#[test]
fn the_path_of_a_socket_needs_neither_utf_8_nor_a_folder_that_can_be_read() {
    if !sys::is_root() {
        return skip("root may read every folder, and only root can be another user");
    }
    let scene = Scene::new();
    let folder = scene.directory().join("folder");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o300)).unwrap();
    fs::set_permissions(scene.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.join(OsStr::from_bytes(b"s\xff"));
    let mut option = OsStr::new("--inject=unix:").to_owned();
    option.push(&path);
    let mut treaper = Command::new(TREAPER);
    treaper.arg(option).arg("cat").stdin(Stdio::piped());
    treaper.stdout(Stdio::piped());
    std::os::unix::process::CommandExt::uid(&mut treaper, 65534);
    let mut child = treaper.spawn().unwrap();
    until("the socket", || path.exists());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
}

/// In JavaScript a text can end in the middle of a character, and so can an id.
#[test]
fn half_a_character_in_an_id_is_the_same_however_it_is_written() {
    let answers = "echo '{\"id\":\"x\\ud83d\",\"result\":{}}'; ";
    for (answers, drain) in [(answers, "4s"), ("", "300ms")] {
        let drain = format!("--cancel-drain={drain}");
        let script = format!("read -r turn; read -r cancel; {answers}cat");
        let (mut run, _) = start(&[&drain], &["sh", "-c", &script]);
        run.write_stdin(b"{\"id\":\"\\u0078\\uD83D\",\"method\":\"p\"}\n{\"method\":\"c\"}\n");
        if answers.is_empty() {
            assert_eq!(run.wait_clean().code(), Some(124), "{}", run.stderr());
            continue;
        }
        until("the answer", || run.stdout().contains("result"));
        assert!(!run.ends_within(Duration::from_millis(4500)));
        run.close_stdin();
        assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    }
}

/// Filters of containers refuse calls that this kernel has, and older kernels lack them.
#[test]
fn no_call_that_a_filter_may_refuse_is_needed() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    for call in [
        "close_range",
        "clone3",
        "pidfd_open",
        "faccessat2",
        "statx",
        "renameat2",
        "splice",
        "rt_sigqueueinfo",
    ] {
        for error in ["ENOSYS", "EPERM"] {
            let scene = Scene::new().stdin_pipe();
            let (path, source) = source(&scene);
            let rule = format!("inject={call}:error={error}");
            let strace = [
                "strace",
                "-f",
                "-b",
                "execve",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &rule,
            ];
            let options = [&strace[..], &[TREAPER, &source], &CANCEL].concat();
            let command = [
                "--",
                ACTOR,
                "tree",
                "server:echo:eof=3[worker:setsid:ignore=TERM]",
            ];
            let options = [&options[..], &["--grace=100ms"], &command].concat();
            let mut run = scene.start(&options);
            run.log.ready("worker");
            until("the socket", || path.exists());
            let mut writer = connect(&path);
            writer.write_all(b"line\n").unwrap();
            acknowledged(writer);
            run.close_stdin();
            let exit = run.wait_clean();
            let which = format!("{call}: {error}: {}", run.stderr());
            assert_eq!(exit.code(), Some(3), "{which}");
            assert!(!path.exists(), "{which}");
        }
    }
}

/// As without a relay: while a FIFO has no reader, the server's writes fail, and only then.
#[test]
fn a_fifo_can_have_another_reader() {
    const REPEATS: &str =
        "trap '' PIPE; while read -r line; do echo $line || echo no $line >&2; done";
    for relay in [true, false] {
        let scene = Scene::new().stdin_pipe().no_capture();
        let path = scene.directory().join("fifo");
        let failed = scene.directory().join("failed");
        sys::mkfifo(&path);
        let stderr = File::create(&failed).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let both = open();
        let stdout = File::options().write(true).open(&path).unwrap();
        let (_, source) = source(&scene);
        let scene = scene.with(|command| {
            command.stdout(stdout).stderr(stderr);
        });
        let options = [&[&*source], &CANCEL[..]].concat();
        let options = if relay { &*options } else { &[] };
        let mut run = scene.start(&Wrap::Treaper(options).command(&["sh", "-c", REPEATS]));
        until("a server", || !run.named("sh").is_empty());
        common::until_it_rests(run.main);
        drop(both);
        for round in ["1", "2"] {
            run.write_stdin(format!("lost{round}\n").as_bytes());
            until("a write that fails", || {
                fs::read_to_string(&failed)
                    .unwrap()
                    .contains(&format!("no lost{round}"))
            });
            let mut both = open();
            run.write_stdin(b"line\n");
            let mut text = [0; 5];
            both.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"line\n", "{relay}, {round}");
        }
        // Without a reader, nothing waits for one once the server has exited.
        run.close_stdin();
        assert_eq!(run.wait_clean().code(), Some(0), "{relay}");
    }
}

/// As without a relay: the server prints nothing, so no write would notice it. A host that only writes no more still reads.
#[test]
fn the_end_of_the_socket_that_is_stdout_is_seen_at_once() {
    for options in [&CANCEL[..], &[]] {
        let (near, far) = UnixStream::pair().unwrap();
        let scene = Scene::new().stdin_pipe().no_capture();
        let stderr = scene.directory().join("stderr");
        let file = File::create(&stderr).unwrap();
        let scene = scene.with(|command| {
            command.stdout(OwnedFd::from(far)).stderr(file);
        });
        let options = [options, &["--stdout=watch", "--drain=0"]].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
        near.shutdown(std::net::Shutdown::Write).unwrap();
        run.write_stdin(b"line\n");
        let mut text = [0; 5];
        (&near).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"line\n", "{options:?}");
        let said = || fs::read_to_string(&stderr).unwrap();
        assert!(!run.ends_within(Duration::from_millis(500)), "{}", said());
        drop(near);
        let code = run.wait_clean().code();
        assert_eq!(code, Some(128 + libc::SIGTERM), "{options:?}: {}", said());
        assert!(said().contains("treaper: stdout-closed: "), "{}", said());
    }
}

/// A run whose stdin is a FIFO, with or without a relay: it, the FIFO, its first writer and the socket. The server reads on
/// after each end.
fn reads_a_fifo(options: &[&str], relay: bool) -> (Run, PathBuf, File, PathBuf) {
    let reads = "while :; do while read -r line; do echo \"got $line\"; done; sleep 0.05; done";
    let scene = Scene::new();
    let path = scene.directory().join("fifo");
    sys::mkfifo(&path);
    let both = File::options().read(true).write(true).open(&path).unwrap();
    let stdin = File::open(&path).unwrap();
    let host = writer_of(&path);
    drop(both);
    let (socket, source) = source(&scene);
    let scene = scene.with(|command| {
        command.stdin(stdin);
    });
    let relay: &[&str] = if relay { &[&source] } else { &[] };
    let wrap = [options, relay].concat();
    let run = scene.start(&Wrap::Treaper(&wrap).command(&["sh", "-c", reads]));
    (run, path, host, socket)
}

fn writer_of(fifo: &Path) -> File {
    File::options().write(true).open(fifo).unwrap()
}

/// The relay was suspended while that writer came and went.
#[test]
fn what_a_short_writer_of_a_fifo_leaves_in_it_reaches_the_server() {
    let (mut run, fifo, mut host, _) = reads_a_fifo(&["--stdin=ignore"], true);
    let relay = run.relay();
    host.write_all(b"one\n").unwrap();
    until("the first line", || run.stdout() == "got one\n");
    drop(host);
    until("a relay that waits", || is_quiet(relay));
    sys::kill(relay, libc::SIGSTOP).unwrap();
    until_state(&[relay], 'T');
    writer_of(&fifo).write_all(b"two\n").unwrap();
    sys::kill(relay, libc::SIGCONT).unwrap();
    until("the second line", || run.stdout() == "got one\ngot two\n");
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// As without a relay: a FIFO that gets another writer during the drain has not hung up.
#[test]
fn another_writer_of_a_fifo_saves_the_server() {
    let options = ["--stdin=watch", "--drain=2s", "--grace=100ms"];
    for relay in [true, false] {
        let (mut run, fifo, mut host, socket) = reads_a_fifo(&options, relay);
        host.write_all(b"one\n").unwrap();
        until("the first line", || run.stdout() == "got one\n");
        drop(host);
        sys::pause_for(Duration::from_millis(500));
        let mut host = writer_of(&fifo);
        assert!(
            !run.ends_within(Duration::from_millis(2500)),
            "{relay}: {}",
            run.stderr()
        );
        host.write_all(b"two\n").unwrap();
        until("the second line", || run.stdout() == "got one\ngot two\n");
        if relay {
            let mut other = connect(&socket);
            other.write_all(b"three\n").unwrap();
            acknowledged(other);
            until("the third line", || run.stdout().ends_with("got three\n"));
        }
        drop(host);
        run.wait_clean();
        assert!(run.stderr().contains("stdin-eof"), "{}", run.stderr());
    }
}
