//! `idle`: the host has written nothing to stdin for the time of `--idle`.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Run, Scene, TREAPER, Wrap, proc, sys};

/// Long enough for one write on a busy machine, and for treaper to see it.
const TIME: u64 = 3000;
const OPTIONS: &[&str] = &["--idle", "3s", "--grace", "5s"];
const SERVER: &str = "server:on=TERM/3:record";

/// The trigger is `idle`, and one line says so. Returns when the server got the signal.
fn is_stopped(run: &mut Run) -> u64 {
    let signalled = run.log.wait("server", "signal");
    assert_eq!(signalled.number("sig"), i64::from(libc::SIGTERM));
    assert_eq!(run.wait_clean().code(), Some(3));
    let printed = "treaper: idle: the host has written nothing to stdin for the time of --idle, so SIGTERM was sent to the server (a longer --idle changes that)\n";
    assert_eq!(run.stderr(), printed);
    signalled.number("at") as u64
}

/// Both ends of each kind of stdin.
fn kinds() -> Vec<(&'static str, OwnedFd, File)> {
    let (read, write) = std::io::pipe().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let served = listener.accept().unwrap().0;
    vec![
        ("pipe", read.into(), File::from(OwnedFd::from(write))),
        ("unix", near.into(), File::from(OwnedFd::from(far))),
        ("tcp", served.into(), File::from(OwnedFd::from(client))),
    ]
}

#[test]
fn a_silent_host_ends_the_server_and_each_write_restarts_the_clock() {
    for (kind, stdin, mut host) in kinds() {
        for options in [
            OPTIONS,
            &[OPTIONS, &["--stdin=ignore", "--no-guard"]].concat(),
        ] {
            let stdin = stdin.try_clone().unwrap();
            let scene = Scene::new().with(|command| {
                command.stdin(stdin);
            });
            let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
            run.log.ready("server");
            let (start, mut last) = (sys::now_ms(), 0);
            // The server reads none of it.
            while sys::now_ms() < start + TIME * 3 / 2 {
                host.write_all(b"x").unwrap();
                last = sys::now_ms();
                sys::pause_for(Duration::from_millis(100));
                assert_eq!(run.log.all("server", "signal").len(), 0, "{kind}");
            }
            let signalled = is_stopped(&mut run);
            assert!(
                signalled >= last + TIME - 5,
                "{kind}: {} ms",
                signalled - last
            );
        }
    }
}

#[test]
fn without_a_write_the_time_begins_at_the_start_and_without_the_option_there_is_none() {
    let options: &[&str] = &["--idle", "300ms"];
    let scene = Scene::new().stdin_pipe();
    let before = sys::now_ms();
    let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
    let signalled = is_stopped(&mut run);
    assert!(signalled >= before + 300, "{}", signalled - before);
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).tree(SERVER));
    run.log.ready("server");
    assert!(!run.ends_within(Duration::from_millis(900)));
    assert_eq!(run.log.all("server", "signal").len(), 0);
}

#[test]
fn a_host_that_may_be_waiting_at_a_full_pipe_is_not_idle() {
    for kind in ["pipe", "unix"] {
        let (_, stdin, mut host) = kinds()
            .into_iter()
            .find(|(name, ..)| *name == kind)
            .unwrap();
        let scene = Scene::new().with(|command| {
            command.stdin(stdin.try_clone().unwrap());
        });
        sys::set_nonblocking(host.as_raw_fd());
        while host.write(&[b'x'; 50]).is_ok() {}
        let options: &[&str] = &["--idle", "300ms"];
        let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
        run.log.ready("server");
        assert!(!run.ends_within(Duration::from_millis(1500)), "{kind}");
        assert_eq!(run.log.all("server", "signal").len(), 0, "{kind}");
        let unread = match kind {
            "pipe" => 33_000,
            _ => 3000,
        };
        File::from(stdin).read_exact(&mut vec![0; unread]).unwrap();
        is_stopped(&mut run);
    }
}

/// How often the processes of treaper have waited.
fn waits(run: &Run) -> Vec<u64> {
    let count = |pid| {
        let text = proc::status(pid, "voluntary_ctxt_switches").unwrap();
        text.parse().unwrap()
    };
    [run.shim(), run.monitor()].map(count).to_vec()
}

#[test]
fn at_rest_nothing_wakes_treaper_and_each_write_wakes_it_once() {
    let options: &[&str] = &["--idle", "1h"];
    let scene = Scene::new().stdin_pipe();
    let mut run = scene.start(&Wrap::Treaper(options).tree("server:reads:on=TERM/0"));
    run.log.ready("server");
    for pid in [run.shim(), run.monitor()] {
        common::until_it_rests(pid);
    }
    let before = waits(&run);
    assert!(!run.ends_within(Duration::from_millis(2000)));
    assert_eq!(waits(&run), before);
    for _ in 0..10 {
        run.write_stdin(b"message\n");
        sys::pause_for(Duration::from_millis(50));
    }
    common::until_it_rests(run.monitor());
    let after = waits(&run);
    assert_eq!(after[0], before[0]);
    let woken = after[1] - before[1];
    assert!((1..=10).contains(&woken), "{woken}");
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(0));
}

#[test]
fn a_stdin_on_which_no_write_can_be_seen_is_an_error_before_the_start() {
    for stdin in [Stdio::null(), File::open("/etc/passwd").unwrap().into()] {
        let mut treaper = Command::new(TREAPER);
        treaper
            .args(["--idle", "5s", "echo", "started"])
            .stdin(stdin);
        let output = treaper.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let printed = (output.status.code(), &output.stdout[..]);
        assert_eq!(printed, (Some(125), &b""[..]), "{text}");
        assert!(
            text.starts_with("treaper: --idle or TREAPER_IDLE: stdin is not a pipe"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn keys_at_a_terminal_count_as_writes() {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(OPTIONS).tree(SERVER));
    run.log.ready("server");
    let mut typist = File::from(master);
    let (start, mut last) = (sys::now_ms(), 0);
    while sys::now_ms() < start + TIME * 3 / 2 {
        typist.write_all(b"line\n").unwrap();
        last = sys::now_ms();
        sys::pause_for(Duration::from_millis(100));
        assert_eq!(run.log.all("server", "signal").len(), 0);
    }
    let signalled = run.log.wait("server", "signal").number("at") as u64;
    assert!(signalled >= last + TIME - 5, "{} ms", signalled - last);
    run.wait_clean();
    let mut printed = vec![0; 64 * 1024];
    let len = typist.read(&mut printed).unwrap();
    let printed = String::from_utf8_lossy(&printed[..len]).into_owned();
    assert!(printed.contains("treaper: idle: "), "{printed}");
}

#[test]
fn after_the_end_of_its_input_the_clock_stands() {
    let options: &[&str] = &["--idle", "300ms"];
    for more in [&[][..], &["--stdin=ignore"]] {
        let options = [options, more].concat();
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&Wrap::Treaper(&options).tree(SERVER));
        run.close_stdin();
        run.log.ready("server");
        assert!(
            !run.ends_within(Duration::from_millis(1500)),
            "{}",
            run.stderr()
        );
        assert_eq!(run.log.all("server", "signal").len(), 0);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
    }
}

#[test]
fn the_next_writer_of_a_fifo_starts_the_clock_again() {
    let scene = Scene::new();
    let path = scene.directory().join("fifo");
    sys::mkfifo(&path);
    let open = || OpenOptions::new().write(true).open(&path);
    let both = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let (read, mut write) = (File::open(&path).unwrap(), open().unwrap());
    drop(both);
    let scene = scene.with(|command| {
        command.stdin(read);
    });
    let options: &[&str] = &["--idle", "1s", "--stdin=ignore"];
    let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
    run.log.ready("server");
    write.write_all(b"x").unwrap();
    drop(write);
    assert!(
        !run.ends_within(Duration::from_millis(2500)),
        "{}",
        run.stderr()
    );
    write = open().unwrap();
    write.write_all(b"x").unwrap();
    is_stopped(&mut run);
}

#[test]
fn the_clock_stands_during_a_drain() {
    let options: &[&str] = &["-v", "--stdin=watch", "--drain=1500ms", "--idle=1s"];
    let scene = Scene::new().stdin_pipe();
    let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
    run.log.ready("server");
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(3));
    let stderr = run.stderr();
    assert!(stderr.contains("trigger: stdin-eof"), "{stderr}");
    assert_eq!(stderr.matches("trigger: ").count(), 1, "{stderr}");
}
