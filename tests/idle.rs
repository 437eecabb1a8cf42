//! `idle`: nothing was written to the server's stdin for the time of `--idle`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::scene::Directory;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, proc, skip, sys, until};
use treaper::sys::poll::{WatchFlags, Writes};

/// Long enough for one write on a busy machine, and for treaper to see it.
const TIME: u64 = 3000;
const OPTIONS: &[&str] = &["--idle", "3s", "--grace", "5s"];
const SERVER: &str = "server:on=TERM/3:record";
/// It waits for input with poll.
const READER: &str = "server:reads:on=TERM/3:record";

/// The trigger is `idle`, and one line says so. Returns when the server got the signal.
fn is_stopped(run: &mut Run) -> u64 {
    let signalled = run.log.wait("server", "signal");
    assert_eq!(signalled.number("sig"), i64::from(libc::SIGTERM));
    assert_eq!(run.wait_clean().code(), Some(3));
    let printed = "treaper: idle: nothing was written to the server's stdin for the time of --idle, so SIGTERM was sent to the server (a longer --idle changes that)\n";
    assert_eq!(run.stderr(), printed);
    signalled.number("at") as u64
}

/// Both ends of a new FIFO, which has no other writer.
fn fifo_at(path: &Path) -> (File, File) {
    sys::mkfifo(path);
    let both = OpenOptions::new().read(true).write(true).open(path);
    let read = File::open(path).unwrap();
    let write = writer_of(path);
    drop(both);
    (read, write)
}

fn writer_of(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// Both ends of each kind of stdin.
fn kinds() -> Vec<(&'static str, OwnedFd, File)> {
    let (read, write) = sys::pipe().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let served = listener.accept().unwrap().0;
    let directory = Directory::new();
    let (fifo_read, fifo_write) = fifo_at(&directory.0.join("fifo"));
    vec![
        ("pipe", read.into(), File::from(OwnedFd::from(write))),
        ("fifo", fifo_read.into(), fifo_write),
        ("unix", near.into(), File::from(OwnedFd::from(far))),
        ("tcp", served.into(), File::from(OwnedFd::from(client))),
    ]
}

#[test]
fn a_silent_host_ends_the_server_and_each_write_restarts_the_clock() {
    let unguarded = [OPTIONS, &["--stdin=ignore", "--no-guard"]].concat();
    let mut runs = Vec::new();
    for (options, command) in [
        (OPTIONS, &[ACTOR, "tree", SERVER][..]),
        (&unguarded, &[ACTOR, "tree", SERVER]),
        (OPTIONS, &[ACTOR, "tree", READER]),
        // It waits in a read.
        (OPTIONS, &["cat"]),
    ] {
        for (kind, stdin, host) in kinds() {
            let scene = Scene::new().with(|treaper| {
                treaper.stdin(stdin);
            });
            let mut run = scene.start(&Wrap::Treaper(options).command(command));
            let is_cat = command.len() == 1;
            if !is_cat {
                run.log.ready("server");
            }
            runs.push((format!("{kind} {command:?}"), is_cat, run, host, 0));
            // The clocks of the earlier ones run already.
            for (.., host, last) in &mut runs {
                host.write_all(b"x").unwrap();
                *last = sys::now_ms();
            }
        }
    }
    let start = sys::now_ms();
    while sys::now_ms() < start + TIME * 3 / 2 {
        for (name, _, run, host, last) in &mut runs {
            host.write_all(b"x").unwrap();
            *last = sys::now_ms();
            assert!(!run.ends_within(Duration::ZERO), "{name}");
            assert_eq!(run.log.all("server", "signal").len(), 0, "{name}");
        }
        sys::pause_for(Duration::from_millis(100));
    }
    for (name, is_cat, mut run, _host, last) in runs {
        if is_cat {
            assert_eq!(run.wait_clean().code(), Some(143), "{name}");
            assert!(run.stderr().contains("idle: nothing"), "{name}");
            continue;
        }
        let signalled = is_stopped(&mut run);
        assert!(
            signalled >= last + TIME - 5,
            "{name}: {} ms",
            signalled - last
        );
    }
}

#[test]
fn a_write_that_the_server_has_read_while_treaper_was_suspended_restarts_the_clock() {
    for (kind, stdin, mut host) in kinds() {
        let scene = Scene::new().with(|treaper| {
            treaper.stdin(stdin);
        });
        let options = ["--idle", "2s", "--no-guard"];
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
        host.write_all(b"1").unwrap();
        common::until("the first", || run.stdout() == "1");
        sys::pause_for(Duration::from_millis(200));
        run.signal(libc::SIGSTOP);
        common::until_state(&[run.main], 'T');
        host.write_all(b"2").unwrap();
        let last = sys::now_ms();
        common::until("the second", || run.stdout() == "12");
        sys::pause_for(Duration::from_millis(2000));
        run.signal(libc::SIGCONT);
        assert_eq!(run.wait_clean().code(), Some(143), "{kind}");
        let time = sys::now_ms() - last;
        assert!(time >= 4000, "{kind}: {time} ms");
    }
}

/// As `docker pause` does for longer than what remains of the time. The host could not write then, and has its whole time
/// once more. Behind a relay, it is the relay that has the clock.
#[test]
fn a_pause_at_the_end_of_the_time_is_no_silence() {
    let directory = Directory::new();
    let inject = format!("unix:{}", directory.0.join("socket").display());
    for options in [
        &["--no-guard"] as &[_],
        &["--no-guard", "--inject", &inject],
    ] {
        let options = [&["--idle", "2s"], options].concat();
        let (stdin, host) = sys::pipe().unwrap();
        let scene = Scene::new().with(|treaper| {
            treaper.stdin(stdin);
        });
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
        let mut host = File::from(OwnedFd::from(host));
        host.write_all(b"1").unwrap();
        common::until("the server", || run.stdout() == "1");
        run.signal(libc::SIGSTOP);
        common::until_state(&[run.main], 'T');
        sys::pause_for(Duration::from_secs(8));
        let resumed = sys::now_ms();
        run.signal(libc::SIGCONT);
        assert_eq!(run.wait_clean().code(), Some(143), "{options:?}");
        let time = sys::now_ms() - resumed;
        assert!(time >= 1990, "{options:?}: {time} ms");
        assert!(run.stderr().starts_with("treaper: idle: "));
    }
}

#[test]
fn none_of_a_thousand_writes_is_missed_although_each_is_read_at_once() {
    for with_poll in [false, true] {
        for (kind, stdin, mut host) in kinds() {
            let (read, was_read) = mpsc::channel();
            let writes = Writes::watch(stdin.as_raw_fd(), WatchFlags::MODIFY).unwrap();
            let _ = writes.take();
            let reader = std::thread::spawn(move || {
                let mut server = File::from(stdin);
                let mut is_open = true;
                while is_open {
                    if with_poll {
                        sys::poll(&[(server.as_raw_fd(), libc::POLLIN)], None);
                    }
                    is_open = server.read(&mut [0; 9]).unwrap() > 0;
                    read.send(()).unwrap();
                }
            });
            let mut seen = 0;
            for _ in 0..1000 {
                host.write_all(b"x").unwrap();
                was_read.recv().unwrap();
                seen += u32::from(writes.take());
            }
            assert_eq!(seen, 1000, "{kind}");
            drop(host);
            was_read.recv().unwrap();
            reader.join().unwrap();
        }
    }
}

#[test]
fn what_the_server_reads_or_writes_is_no_write() {
    for (kind, stdin, mut host) in kinds() {
        let writes = Writes::watch(stdin.as_raw_fd(), WatchFlags::MODIFY).unwrap();
        let mut server = File::from(stdin);
        let _ = writes.take();
        for _ in 0..10 {
            host.write_all(b"x").unwrap();
            assert!(writes.take(), "{kind}");
            assert_eq!(server.read(&mut [0; 9]).unwrap(), 1);
            assert!(!writes.take(), "{kind}: a read");
            if ["unix", "tcp"].contains(&kind) {
                server.write_all(b"x").unwrap();
                assert!(!writes.take(), "{kind}: output");
            }
        }
    }
}

#[test]
fn a_socket_without_room_for_output_may_hide_a_write() {
    for (kind, stdin, mut host) in kinds() {
        if !["unix", "tcp"].contains(&kind) {
            continue;
        }
        let writes = Writes::watch(stdin.as_raw_fd(), WatchFlags::MODIFY).unwrap();
        assert!(!writes.may_be_going_on(), "{kind}");
        sys::set_nonblocking(stdin.as_raw_fd());
        let mut server = File::from(stdin);
        while server.write(&[0; 1000]).is_ok() {}
        assert!(writes.may_be_going_on(), "{kind}");
        sys::set_nonblocking(host.as_raw_fd());
        let _ = writes.take();
        while host.read(&mut [0; 4096]).is_ok() {}
        common::until("room again", || writes.take());
        assert!(!writes.may_be_going_on(), "{kind}");
    }
}

#[test]
fn without_a_write_the_time_begins_at_the_start_and_without_the_option_there_is_none() {
    let options: &[&str] = &["--idle", "3s"];
    let scene = Scene::new().stdin_pipe();
    let before = sys::now_ms();
    let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
    let signalled = is_stopped(&mut run);
    assert!(signalled >= before + 3000, "{}", signalled - before);
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).tree(SERVER));
    run.log.ready("server");
    assert!(!run.ends_within(Duration::from_millis(4000)));
    assert_eq!(run.log.all("server", "signal").len(), 0);
}

#[test]
fn a_host_that_may_be_waiting_at_a_full_pipe_is_not_idle() {
    for (kind, stdin, mut host) in kinds() {
        if !["pipe", "unix"].contains(&kind) {
            continue;
        }
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
fn lines_at_a_terminal_count_as_writes_when_the_server_reads_them() {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&Wrap::Treaper(OPTIONS).tree(READER));
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
fn a_line_that_is_read_by_the_name_dev_tty_counts() {
    let (scene, master) = Scene::new().terminal();
    let asks = "trap 'exit 3' TERM; while read -r line </dev/tty; do :; done";
    let wrap = Wrap::Treaper(&["--idle", "1s"]);
    let mut run = scene.start(&wrap.command(&["sh", "-c", asks]));
    let mut typist = File::from(master);
    for _ in 0..30 {
        typist.write_all(b"line\n").unwrap();
        assert!(!run.ends_within(Duration::from_millis(100)));
    }
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn what_a_server_prints_at_a_terminal_is_no_write() {
    let (scene, _master) = Scene::new().terminal();
    let loud = "trap 'exit 3' TERM; while sleep 0.05; do echo x >/dev/tty; done";
    let wrap = Wrap::Treaper(&["--idle", "1s"]);
    let mut run = scene.start(&wrap.command(&["sh", "-c", loud]));
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn what_is_injected_counts_as_a_write() {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let options = [OPTIONS, &["--inject", &source]].concat();
    let mut run = scene.start(&Wrap::Treaper(&options).tree(READER));
    run.log.ready("server");
    let start = sys::now_ms();
    let mut last = 0;
    while sys::now_ms() < start + TIME * 3 / 2 {
        let mut writer = UnixStream::connect(&path).unwrap();
        writer.write_all(b"{}\n").unwrap();
        last = sys::now_ms();
        sys::pause_for(Duration::from_millis(100));
        assert_eq!(run.log.all("server", "signal").len(), 0);
    }
    let signalled = is_stopped(&mut run);
    assert!(signalled >= last + TIME - 5, "{} ms", signalled - last);
}

/// The host is still there, and may have forgotten the server.
#[test]
fn a_server_that_has_closed_its_stdin_is_stopped_behind_a_relay_as_well() {
    for relay in [false, true] {
        let scene = Scene::new().stdin_pipe();
        let source = format!(
            "--inject=unix:{}",
            scene.directory().join("socket").display()
        );
        let options = ["--idle", "1s", &source];
        let closes = "trap 'exit 3' TERM; exec <&-; while :; do sleep 0.05; done";
        let wrap = Wrap::Treaper(&options[..2 + usize::from(relay)]);
        let mut run = scene.start(&wrap.command(&["sh", "-c", closes]));
        assert_eq!(run.wait_clean().code(), Some(3));
        assert!(run.stderr().contains("treaper: idle: "), "{}", run.stderr());
    }
}

#[test]
fn where_the_kernel_refuses_it_nothing_is_started_and_the_error_says_why() {
    if !sys::is_root() {
        return skip("needs root to set the limits");
    }
    for (limit, named) in [
        (
            "echo 0 >/proc/sys/user/max_inotify_instances",
            "max_user_instances",
        ),
        (
            "echo 0 >/proc/sys/user/max_inotify_watches",
            "No space left",
        ),
        ("mount -t tmpfs none /proc", "/proc"),
    ] {
        let shell = format!("{limit} && exec \"$@\"");
        let words = ["unshare", "-rm", "sh", "-c", &shell, "sh"].map(str::to_owned);
        let treaper = Wrap::Treaper(&["--idle", "5s"]).tree("server");
        let scene = Scene::new().stdin_pipe();
        let mut run = scene.start(&[&words[..], &treaper].concat());
        let exit = run.wait_clean();
        let stderr = run.stderr();
        assert_eq!(exit.code(), Some(125), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let begins = "treaper: --idle or TREAPER_IDLE: cannot notice what is written to stdin: ";
        assert!(
            stderr.starts_with(begins) && stderr.contains(named),
            "{stderr}"
        );
        assert!(run.log.all("server", "ready").is_empty());
    }
}

#[test]
fn a_pipe_of_another_user_is_an_error_that_says_so() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let mut treaper = Command::new(TREAPER);
    treaper.args(["--idle", "5s", "true"]).uid(65534);
    let output = treaper.stdin(Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        text.contains("(another user has made this pipe or terminal)"),
        "{text}"
    );
}

#[test]
fn input_that_the_server_does_not_read_keeps_no_processor_busy() {
    let words = Wrap::Treaper(&["--idle", "600s"]).command(&["sleep", "1000"]);
    let mut run = Scene::new().stdin_pipe().start(&words);
    until("a server", || !run.named("sleep").is_empty());
    run.write_stdin(b"never read\n");
    common::until_it_rests(run.monitor());
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn after_the_end_of_its_input_the_clock_stands() {
    let options: &[&str] = &["--idle", "2s"];
    for more in [&[][..], &["--stdin=ignore"]] {
        let options = [options, more].concat();
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&Wrap::Treaper(&options).tree(SERVER));
        run.close_stdin();
        run.log.ready("server");
        assert!(
            !run.ends_within(Duration::from_millis(4000)),
            "{}",
            run.stderr()
        );
        assert_eq!(run.log.all("server", "signal").len(), 0);
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
    }
}

/// The write and the end of the input are reported at once, and the end is handled first. Of the pipe and the socket,
/// the other end is not the host's (the arena started treaper), so their end is no trigger at any time.
#[test]
fn after_a_complete_input_no_write_starts_the_clock_again() {
    let options: &[&str] = &["-v", "--idle", "1s", "--drain=100ms"];
    let mut complete = Vec::new();
    for round in 0..20 {
        if round > 2 && complete.len() >= 9 {
            break;
        }
        // The end of a TCP connection may be that of one direction.
        for (kind, stdin, mut host) in kinds().into_iter().take(3) {
            let scene = Scene::new().with(|treaper| {
                treaper.stdin(stdin);
            });
            let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
            run.log.ready("server");
            host.write_all(b"x").unwrap();
            drop(host);
            // On a busy machine the end can come after the first second.
            until("the end is seen", || {
                let printed = run.stderr();
                let ends = ["complete input", "not watched", "stdin-eof"];
                ends.iter().any(|end| printed.contains(end))
            });
            if !run.stderr().contains("stdin-eof") {
                complete.push((kind, run));
            }
        }
    }
    assert!(complete.len() >= 9, "the machine is too slow");
    sys::pause_for(Duration::from_millis(2500));
    for (kind, mut run) in complete {
        assert_eq!(run.log.all("server", "signal").len(), 0, "{kind}");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3), "{kind}");
    }
}

#[test]
fn the_next_writer_of_a_fifo_starts_the_clock_again() {
    let scene = Scene::new();
    let path = scene.directory().join("fifo");
    let (read, mut write) = fifo_at(&path);
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
    write = writer_of(&path);
    write.write_all(b"x").unwrap();
    is_stopped(&mut run);
}

#[test]
fn after_a_complete_input_another_writer_of_the_fifo_does_not_start_the_clock() {
    let scene = Scene::new();
    let path = scene.directory().join("fifo");
    let (read, write) = fifo_at(&path);
    let kept = read.try_clone().unwrap();
    drop(write);
    let scene = scene.with(|command| {
        command.stdin(read);
    });
    let mut run = scene.start(&Wrap::Treaper(&["--idle", "1s"]).tree(SERVER));
    run.log.ready("server");
    for _ in 0..2 {
        // No writer: the input was complete when treaper looked first.
        assert!(!run.ends_within(Duration::from_millis(1500)));
        writer_of(&path).write_all(b"x").unwrap();
    }
    assert!(
        !run.ends_within(Duration::from_millis(2500)),
        "{}",
        run.stderr()
    );
    assert_eq!(run.log.all("server", "signal").len(), 0);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(3));
    drop(kept);
}

#[test]
fn the_clock_stands_during_a_drain() {
    let options: &[&str] = &["-v", "--stdin=watch", "--drain=4s", "--idle=3s"];
    let scene = Scene::new().stdin_pipe();
    let mut run = scene.start(&Wrap::Treaper(options).tree(SERVER));
    run.log.ready("server");
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(3));
    let stderr = run.stderr();
    assert!(stderr.contains("trigger: stdin-eof"), "{stderr}");
    assert_eq!(stderr.matches("trigger: ").count(), 1, "{stderr}");
}
