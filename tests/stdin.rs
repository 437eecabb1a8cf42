//! `stdin-eof` and `stdout-closed`: the peer has hung up. The server's streams are unchanged.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::Duration;

use common::proc::Process;
use common::{ACTOR, Run, Scene, Wrap, sys, until};

const A_WHILE: Duration = Duration::from_millis(400);
/// With this the end of stdin counts at any time. By default it does not count in the first second.
const QUICK: Wrap = Wrap::Treaper(&[
    "-v", "--stdin", "watch", "--drain", "200ms", "--grace", "2s",
]);
const AUTO: Wrap = Wrap::Treaper(&["-v", "--drain", "200ms", "--grace", "2s"]);
/// A server that does not read its stdin.
const DEAF: &str = "server:on=TERM/3[worker:setsid,deep:daemon:ignore=TERM]";

fn hosted(wrap: Wrap, kind: &str, tree: &str) -> Run {
    let host = [ACTOR, "host", "--stdin", kind, "--"].map(str::to_owned);
    let mut run = Scene::new().start(&[&host[..], &wrap.tree(tree)].concat());
    run.log.ready("server");
    run.log.wait("host", "spawned");
    run
}

/// The drain comes first, then the signal. Then no process is left.
fn is_drained_then_stopped(mut run: Run, after: i64) {
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.contains("stdin-eof"), "{stderr}");
    let signalled = run.log.wait("server", "signal");
    assert_eq!(signalled.number("sig"), i64::from(libc::SIGTERM));
    let drained = signalled.number("at") - after;
    assert!(drained >= 195, "signalled after {drained} ms, not 200");
    // A hang-up that is reported again and again would wake treaper for nothing.
    assert_eq!(stderr.matches("trigger: ").count(), 1, "{stderr}");
}

#[test]
fn a_peer_that_closes_any_kind_of_stdin_ends_the_tree() {
    for kind in ["pipe", "socketpair", "tcp", "fifo"] {
        let mut run = hosted(QUICK, kind, DEAF);
        run.log.ready("deep");
        let before = sys::now_ms() as i64;
        run.signal(libc::SIGUSR1);
        is_drained_then_stopped(run, before);
    }
}

#[test]
fn a_peer_that_half_closes_a_socket_ends_the_tree() {
    for kind in ["socketpair", "tcp"] {
        let mut run = hosted(QUICK, kind, DEAF);
        run.log.ready("deep");
        let before = sys::now_ms() as i64;
        run.signal(libc::SIGUSR2);
        is_drained_then_stopped(run, before);
    }
}

#[test]
fn control_without_treaper_a_deaf_server_outlives_its_stdin() {
    let mut run = hosted(Wrap::Bare, "pipe", DEAF);
    run.log.ready("deep");
    run.signal(libc::SIGUSR1);
    run.log.wait("host", "closed");
    assert!(!run.ends_within(A_WHILE));
    assert_eq!(run.survivors().len(), 4);
}

#[test]
fn a_server_that_exits_at_eof_is_neither_signalled_nor_delayed() {
    let wrap = Wrap::Treaper(&["--drain", "20s", "--grace", "20s"]);
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&wrap.tree("server:eof=7:record"));
    run.log.ready("server");
    let before = sys::now_ms();
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(7));
    assert!(sys::now_ms() - before < 15_000);
    assert!(run.log.all("server", "signal").is_empty());
    assert_eq!(run.stderr(), "");
}

#[test]
fn unread_data_does_not_hide_the_hang_up() {
    let mut run = Scene::new().stdin_pipe().start(&QUICK.tree(DEAF));
    run.log.ready("server");
    run.log.ready("deep");
    run.write_stdin(&[b'x'; 5000]);
    let before = sys::now_ms() as i64;
    run.close_stdin();
    is_drained_then_stopped(run, before);
}

#[test]
fn the_drain_waits_while_the_server_takes_unread_data() {
    // 12 pieces, 400 ms each: three times the drain.
    let options = ["--stdin=watch", "--drain=1500ms", "--grace=5s"];
    let tree = Wrap::Treaper(&options).tree("server:eof=0:slowread=400:record");
    let mut run = Scene::new().stdin_pipe().start(&tree);
    run.log.ready("server");
    run.write_stdin(&vec![b'x'; 12 * 4096]);
    run.close_stdin();
    let exit = run.wait_clean();
    assert_eq!(
        run.log.all("server", "signal").len(),
        0,
        "signalled while it still read"
    );
    assert_eq!(run.log.wait("server", "eof").number("bytes"), 12 * 4096);
    assert_eq!(exit.code(), Some(0));
}

#[test]
fn a_piped_request_gets_its_whole_answer() {
    // It has hung up before the server has really begun, as in `echo request | treaper server`.
    let mut scene = Scene::new();
    let (read, mut write) = sys::pipe().unwrap();
    scene = scene.with(|command| {
        command.stdin(read);
    });
    write.write_all(b"request\n").unwrap();
    drop(write);
    let wrap = Wrap::Treaper(&["--drain", "100ms", "--grace", "100ms"]);
    let mut run = scene.start(&wrap.tree("server:echo:readafter=300:eof=0:slow=300:record"));
    let exit = run.wait_clean();
    assert_eq!(run.stdout(), "request\n");
    assert_eq!(exit.code(), Some(0), "{}", run.stderr());
}

#[test]
fn a_pipe_written_and_closed_after_the_start_gets_its_whole_answer() {
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).tree("server:echo:eof=0:slow=300"));
    run.log.ready("server");
    run.write_stdin(b"request\n");
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0));
    assert_eq!(run.stdout(), "request\n");
}

#[test]
fn a_stdin_that_was_hung_up_at_the_start_is_a_complete_input() {
    let mut run = hosted(AUTO, "hungup", DEAF);
    assert!(!run.ends_within(A_WHILE), "{}", run.stderr());
    assert_eq!(run.log.all("server", "signal").len(), 0);
    // Except with an option that lets every end count. Then it may be stopped before it is ready.
    let host = [ACTOR, "host", "--stdin", "hungup", "--"].map(str::to_owned);
    let mut run = Scene::new().start(&[&host[..], &QUICK.tree(DEAF)].concat());
    run.wait_empty();
    assert!(run.stderr().contains("stdin-eof"), "{}", run.stderr());
}

#[test]
fn an_end_of_input_in_the_first_second_is_a_complete_input_whatever_the_moment() {
    for kind in ["pipe", "socketpair", "tcp", "fifo"] {
        for after in [0, 30, 100] {
            let host = [ACTOR, "host", "--stdin", kind, "--"].map(str::to_owned);
            let command = [&host[..], &AUTO.tree(DEAF)].concat();
            let mut run = loop {
                let begun = sys::now_ms();
                let mut run = Scene::new().start(&command);
                run.log.wait("host", "spawned");
                sys::pause_for(Duration::from_millis(after));
                run.signal(libc::SIGUSR1);
                until("the end is seen", || {
                    // The host may have closed its end even before treaper looks who has it.
                    let ways = ["complete input", "stdin is not watched", "trigger: "];
                    let said = run.stderr();
                    ways.iter().any(|way| said.contains(way))
                });
                // The first second begins later than this. On a busy machine it may be over.
                if sys::now_ms() - begun < 900 || !run.stderr().contains("trigger: ") {
                    break run;
                }
            };
            run.log.ready("deep");
            // Longer than the drain.
            assert!(!run.ends_within(A_WHILE), "{kind}: {}", run.stderr());
            assert_eq!(run.log.all("server", "signal").len(), 0);
            // The host's death is still seen.
            run.signal(libc::SIGKILL);
            run.wait_empty();
            assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
        }
    }
}

#[test]
fn an_end_of_input_after_the_first_second_is_that_of_a_host() {
    for kind in ["pipe", "socketpair"] {
        let mut run = hosted(AUTO, kind, DEAF);
        run.log.ready("deep");
        // The first second begins about here.
        sys::pause_for(Duration::from_secs(3));
        let before = sys::now_ms() as i64;
        run.signal(libc::SIGUSR1);
        is_drained_then_stopped(run, before);
    }
}

#[test]
fn one_shot_commands_with_input_run_to_their_end() {
    // Each is longer than drain and grace, and the input ends before or after treaper looks.
    let script = "echo x | \"$@\"; (sleep 0.1) | \"$@\"; printf 'a\\nb\\n' | while read -r line; do \"$@\"; done";
    for more in [&[][..], &["--no-guard"]] {
        let options = [&["--drain", "100ms", "--grace", "100ms"], more].concat();
        let job = Wrap::Treaper(&options).command(&["sh", "-c", "sleep 0.7; echo done"]);
        let mut words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        words.extend(job);
        let mut run = Scene::new().start(&words);
        run.wait_clean();
        assert_eq!(run.stdout(), "done\n".repeat(4), "{}", run.stderr());
    }
}

/// The processor time of a process, in ticks of 10 ms.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let times = fields.skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// After what has happened to its stdin, the server still runs, and treaper takes no processor time.
fn is_no_hang_up(run: &mut Run) {
    assert!(!run.ends_within(A_WHILE), "{}", run.stderr());
    assert_eq!(run.log.all("server", "signal").len(), 0);
    let (monitor, before) = (run.monitor(), ticks(run.monitor()));
    assert!(!run.ends_within(A_WHILE));
    let used = ticks(monitor) - before;
    assert!(used < 10, "{used} ticks of processor time for nothing");
}

fn on_socket(socket: impl Into<std::os::fd::OwnedFd>) -> Run {
    let socket = socket.into();
    let scene = Scene::new().with(|command| {
        command.stdin(socket);
    });
    let mut run = scene.start(&QUICK.tree(DEAF));
    run.log.ready("deep");
    run.log.ready("server");
    run
}

#[test]
fn a_refused_datagram_is_no_hang_up() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(other.local_addr().unwrap()).unwrap();
    let mut run = on_socket(socket.try_clone().unwrap());
    drop(other);
    socket.send(b"x").unwrap();
    is_no_hang_up(&mut run);
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    run.wait_empty();
}

fn tcp() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn an_error_queued_on_a_socket_neither_is_nor_hides_its_hang_up() {
    for again in [false, true] {
        let (near, far) = tcp();
        let mut run = on_socket(near.try_clone().unwrap());
        sys::send_zerocopy(near.as_raw_fd(), b"x");
        is_no_hang_up(&mut run);
        if again {
            sys::send_zerocopy(near.as_raw_fd(), b"y");
            is_no_hang_up(&mut run);
        }
        drop(near);
        let before = sys::now_ms() as i64;
        drop(far);
        is_drained_then_stopped(run, before);
    }
}

#[test]
fn a_tcp_server_that_shuts_its_own_input_down_has_a_peer_still() {
    let (near, far) = tcp();
    let mut run = on_socket(near.try_clone().unwrap());
    near.shutdown(std::net::Shutdown::Read).unwrap();
    is_no_hang_up(&mut run);
    drop(near);
    let before = sys::now_ms() as i64;
    drop(far);
    is_drained_then_stopped(run, before);
}

#[test]
fn a_tcp_server_that_shuts_down_both_ways_has_no_peer_any_more() {
    let (near, _far) = tcp();
    let run = on_socket(near.try_clone().unwrap());
    let before = sys::now_ms() as i64;
    near.shutdown(std::net::Shutdown::Both).unwrap();
    is_drained_then_stopped(run, before);
}

/// The state of an MPTCP socket is that of its first subflow, which stays open.
#[test]
fn a_peer_that_closes_an_mptcp_socket_has_hung_up() {
    let Some((near, far)) = common::special::mptcp() else {
        return common::skip("no MPTCP in this kernel");
    };
    let run = on_socket(near);
    let before = sys::now_ms() as i64;
    drop(far);
    is_drained_then_stopped(run, before);
    // The kernel forgets the connection after a minute.
    assert!(sys::now_ms() as i64 - before < 45_000);
}

/// Such a descriptor only names its file, so it neither ends nor can be waited for.
#[test]
fn a_stdin_that_only_names_a_fifo_cannot_be_watched() {
    for (mode, status) in [("watch", 125), ("auto", 0)] {
        let (scene, path, _writer) = fifo(Scene::new());
        let mut open = std::fs::OpenOptions::new();
        let named = open
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)
            .unwrap();
        let scene = scene.with(|command| {
            command.stdin(named);
        });
        let mut run = scene.start(&Wrap::Treaper(&["--stdin", mode]).command(&["sleep", "1"]));
        assert_eq!(run.wait_clean().code(), Some(status), "{}", run.stderr());
    }
}

/// A log that is rotated would stay allocated, and a file system could not be unmounted.
#[test]
fn treaper_keeps_no_file_open_that_only_the_server_needs() {
    for options in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        if options.contains(&"--contain=pidns") && !sys::is_root() {
            common::skip("pidns without root depends on the machine");
            continue;
        }
        let scene = Scene::new();
        let path = scene.directory().join("output");
        let log = std::fs::File::create(&path).unwrap();
        let [stdin, stdout] = [log.try_clone().unwrap(), log.try_clone().unwrap()];
        let number = log.as_raw_fd();
        let scene = scene.no_capture().with(|command| {
            command.stdin(stdin).stdout(stdout).stderr(Stdio::null());
        });
        let scene = scene.before_exec(move || sys::dup2(number, 99));
        let mut run = scene.start(&Wrap::Treaper(options).tree("server:on=TERM/3"));
        run.log.ready("server");
        let copies = |process: &Process| {
            // A process that closes files for treaper ends then.
            let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid));
            let links = open.into_iter().flatten().flatten();
            let targets = links.filter_map(|fd| std::fs::read_link(fd.path()).ok());
            targets.filter(|target| *target == path).count()
        };
        until("no copy but those of the server", || {
            let all = run.survivors();
            let expected = |it: &Process| if it.comm == "server" { 3 } else { 0 };
            all.iter().all(|it| copies(it) == expected(it))
        });
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
    }
}

/// treaper needs one more descriptor to distinguish errors of a socket from its hang-up. If none is free, stdin is not
/// watched any more, and nothing else is watched in its place.
#[test]
fn without_a_free_descriptor_an_error_of_a_socket_is_no_hang_up() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(other.local_addr().unwrap()).unwrap();
    let (mut messages, stderr) = sys::pipe().unwrap();
    let stdin = std::os::fd::OwnedFd::from(socket.try_clone().unwrap());
    let scene = Scene::new().no_capture().with(|command| {
        command.stdin(stdin).stdout(Stdio::null()).stderr(stderr);
    });
    let mut run = scene.start(&QUICK.tree(DEAF));
    run.log.ready("deep");
    let monitor = run.monitor();
    let limit = |number| common::special::limit_of(monitor, libc::RLIMIT_NOFILE, number);
    common::until_it_rests(monitor);
    let open = std::fs::read_dir(format!("/proc/{monitor}/fd")).unwrap();
    limit(open.count() as u64);
    drop(other);
    socket.send(b"x").unwrap();
    let mut text = String::new();
    while !text.contains("cannot watch stdin any more") {
        let mut buffer = [0; 4096];
        let count = messages.read(&mut buffer).unwrap();
        text += &String::from_utf8_lossy(&buffer[..count]);
    }
    // stderr, of which treaper's stdout is a copy, has no reader.
    drop(messages);
    common::until_it_rests(monitor);
    assert_eq!(run.log.all("server", "signal").len(), 0);
    limit(100);
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    run.wait_empty();
}

/// A debugger interrupts a call when it attaches. A machine may be out of memory for a moment.
#[test]
fn a_poll_that_fails_now_and_then_misses_nothing() {
    if std::process::Command::new("strace").output().is_err() {
        return common::skip("strace is not installed");
    }
    for error in ["EINTR", "ENOMEM"] {
        let fault = format!("inject=ppoll:error={error}:when=1..3");
        let strace = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e"];
        let before = [&strace[..], &["trace=ppoll", "-e", &fault]].concat();
        let before = before.into_iter().map(str::to_owned).collect();
        let scene = Scene::new().stdin_pipe();
        let mut run = scene.start(&[before, QUICK.tree(DEAF)].concat());
        run.log.ready("deep");
        run.close_stdin();
        run.wait_empty();
        let stderr = run.stderr();
        assert!(stderr.contains("stdin-eof"), "{error}: {stderr}");
        assert!(!stderr.contains("cannot poll"), "{error}: {stderr}");
    }
}

/// A busy machine may need a second from the start to the first poll.
#[test]
fn a_stdin_that_was_hung_up_at_the_start_is_a_complete_input_however_slow_the_start_is() {
    if std::process::Command::new("strace").output().is_err() {
        return common::skip("strace is not installed");
    }
    // A FIFO has a name, so its other end counts as the host's.
    let (scene, _path, writer) = fifo(Scene::new());
    drop(writer);
    let slow = "inject=ppoll:delay_enter=1500000:when=1..2";
    let strace = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e"];
    let before = [&strace[..], &["trace=ppoll", "-e", slow]].concat();
    let before = before.into_iter().map(str::to_owned).collect();
    let mut run = scene.start(&[before, AUTO.tree(DEAF)].concat());
    let found = || {
        let stderr = run.stderr();
        stderr.contains("complete input") || stderr.contains("stdin-eof")
    };
    until("a look at stdin", found);
    assert!(!run.stderr().contains("stdin-eof"), "{}", run.stderr());
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    run.wait_empty();
}

#[test]
fn a_terminal_that_is_not_the_controlling_one_hangs_up_as_one() {
    let (master, slave) = common::special::pty();
    let scene = Scene::new().with(|command| {
        command.stdin(slave);
    });
    let mut run = scene.start(&AUTO.tree(DEAF));
    run.log.ready("deep");
    assert!(!run.ends_within(A_WHILE / 4));
    drop(master);
    run.wait_clean();
    assert!(run.stderr().contains("hangup"), "{}", run.stderr());
}

/// It hangs up whenever no process has the other side open, and clients come and go there.
#[test]
fn the_master_of_a_pseudoterminal_has_no_end() {
    let (master, slave) = common::special::pty();
    let scene = Scene::new().with(|command| {
        command.stdin(master);
    });
    let mut run = scene.start(&AUTO.tree(DEAF));
    run.log.ready("deep");
    drop(slave);
    // In the first second, the end of stdin would not count.
    assert!(!run.ends_within(5 * A_WHILE));
    run.signal(libc::SIGTERM);
    run.wait_clean();
    assert!(!run.stderr().contains("hangup"), "{}", run.stderr());
}

#[test]
fn a_terminal_that_hangs_up_stops_nothing_where_sighup_stops_nothing() {
    let options: [(bool, &[&str]); 2] = [
        (true, &["--no-guard"]),
        (false, &["--no-guard", "--hup", "forward"]),
    ];
    for (ignored, options) in options {
        let (master, slave) = common::special::pty();
        let scene = Scene::new().with(|command| {
            command.stdin(slave);
        });
        let scene = scene.before_exec(move || sys::ignore(libc::SIGHUP, ignored));
        let mut run = scene.start(&Wrap::Treaper(options).tree("server:record"));
        run.log.ready("server");
        drop(master);
        // The end of the terminal is seen before this signal, and a stop signal has a lower number.
        run.signal(libc::SIGWINCH);
        let signalled = run.log.wait("server", "signal").number("sig");
        assert_eq!(signalled, i64::from(libc::SIGWINCH), "{options:?}");
    }
}

/// The host holds the other end of stdin. In a pipeline, another child of the shell would hold it.
#[test]
fn the_pipe_of_a_host_at_a_terminal_is_watched() {
    let (scene, _master) = Scene::new().terminal();
    let host = [ACTOR, "host", "--stdin", "pipe", "--"].map(str::to_owned);
    let mut run = scene.start(&[&host[..], &AUTO.tree(DEAF)].concat());
    run.log.ready("deep");
    run.log.wait("host", "spawned");
    common::first_second_of(run.monitor());
    run.signal(libc::SIGUSR1);
    let signalled = run.log.wait("server", "signal");
    assert_eq!(signalled.number("sig"), i64::from(libc::SIGTERM));
    run.wait_clean();
}

#[test]
fn dev_null_a_file_and_a_closed_stdin_are_not_watched() {
    let closed = Scene::new().before_exec(|| sys::close(0));
    let null = Scene::new();
    let file = Scene::new().with(|command| {
        command.stdin(std::fs::File::open("/etc/passwd").unwrap());
    });
    let ignored = Scene::new().stdin_pipe();
    for (number, scene) in [closed, null, file, ignored].into_iter().enumerate() {
        let options: &[&str] = if number == 3 {
            &["--stdin", "ignore"]
        } else {
            &[]
        };
        let mut run = scene.start(&Wrap::Treaper(options).tree(DEAF));
        run.log.ready("server");
        common::first_second_over();
        run.close_stdin();
        assert!(
            !run.ends_within(A_WHILE / 2),
            "case {number}: {}",
            run.stderr()
        );
        assert_eq!(run.log.all("server", "signal").len(), 0, "case {number}");
    }
}

#[test]
fn a_stream_of_64_mib_arrives_unchanged() {
    const PIECE: usize = 1 << 16;
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).tree("server:echo:eof=0"));
    let mut out = run.take_stdout();
    let mut stdin = std::fs::File::from(run.stdin.take().unwrap());
    // A different piece each time, so that a lost or doubled one shows.
    let piece = |number: usize| -> Vec<u8> {
        (0..PIECE)
            .map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(17) ^ (at >> 8)) as u8)
            .collect()
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..1024 {
                stdin.write_all(&piece(number)).unwrap();
            }
        });
        let mut buffer = vec![0; PIECE];
        for number in 0..1024 {
            let mut filled = 0;
            while filled < PIECE {
                let fds = [(out.as_raw_fd(), libc::POLLIN)];
                sys::poll(&fds, Some(common::patience()));
                let n = out.read(&mut buffer[filled..]).unwrap();
                assert!(n > 0, "the stream ended in piece {number}");
                filled += n;
            }
            assert!(buffer == piece(number), "piece {number} differs");
        }
    });
    assert_eq!(run.wait_clean().code(), Some(0));
}

#[test]
fn the_host_sees_the_end_of_stdout_as_without_treaper() {
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).tree("server:closes"));
    run.log.ready("server");
    let mut out = run.take_stdout();
    // The server has closed both, and lives on. A copy in another process would hide that.
    let fds = [(out.as_raw_fd(), libc::POLLIN)];
    assert_ne!(
        sys::poll(&fds, Some(common::patience()))[0] & libc::POLLHUP,
        0
    );
    assert_eq!(out.read(&mut [0; 8]).unwrap(), 0);
    assert!(!run.ends_within(Duration::from_millis(50)));
}

#[test]
fn the_host_sees_that_the_server_has_closed_its_stdin() {
    for options in [&["--stdin=ignore"][..], &["--stdin=ignore", "--no-guard"]] {
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&Wrap::Treaper(options).tree("server:closes"));
        run.log.ready("server");
        // A copy in another process would hide that.
        let fds = [(run.stdin.as_ref().unwrap().as_raw_fd(), 0)];
        let came = sys::poll(&fds, Some(common::patience()));
        assert_ne!(came[0] & libc::POLLERR, 0, "{options:?}");
        assert!(!run.ends_within(Duration::from_millis(50)));
    }
}

#[test]
fn a_reader_of_stdout_that_left_ends_the_server_only_if_asked() {
    for (options, ends) in [
        (
            &[
                "-v", "--stdout", "watch", "--drain", "100ms", "--grace", "200ms",
            ][..],
            true,
        ),
        (&["--drain", "100ms", "--grace", "200ms"], false),
    ] {
        let (read, write) = sys::pipe().unwrap();
        let scene = Scene::new().no_capture().with(|command| {
            command.stdout(write).stderr(Stdio::null());
        });
        let mut run = scene.start(&Wrap::Treaper(options).tree(DEAF));
        run.log.ready("server");
        run.log.ready("deep");
        assert!(!run.ends_within(Duration::from_millis(50)));
        drop(read);
        if ends {
            run.wait_clean();
        } else {
            assert!(!run.ends_within(A_WHILE), "no process asked for it");
        }
    }
}

/// A FIFO as stdin, open for reading. Returns its path and a first writer.
fn fifo(scene: Scene) -> (Scene, std::path::PathBuf, std::fs::File) {
    let path = scene.directory().join("fifo");
    sys::mkfifo(&path);
    let mut both = std::fs::OpenOptions::new();
    // Open for reading and writing, so that neither end has to wait for the other.
    let both = both.read(true).write(true).open(&path).unwrap();
    let read = std::fs::File::open(&path).unwrap();
    let writer = writer(&path);
    drop(both);
    let scene = scene.with(|command| {
        command.stdin(read);
    });
    (scene, path, writer)
}

fn writer(fifo: &std::path::Path) -> std::fs::File {
    std::fs::OpenOptions::new().write(true).open(fifo).unwrap()
}

const FIFO: Wrap = Wrap::Treaper(&[
    "-v", "--stdin", "watch", "--drain", "1s", "--grace", "300ms",
]);

#[test]
fn a_fifo_whose_next_writer_comes_within_the_drain_has_not_hung_up() {
    let (scene, path, first) = fifo(Scene::new());
    let mut run = scene.start(&FIFO.tree(DEAF));
    run.log.ready("deep");
    drop(first);
    common::until("the drain", || run.stderr().contains("draining"));
    let next = writer(&path);
    common::until("the end of the drain", || {
        run.stderr().contains("has a writer again")
    });
    // Also after the time at which the monitor would have been late with the end of the drain.
    assert!(!run.ends_within(Duration::from_secs(6)));
    assert!(run.log.all("server", "signal").is_empty());
    let used = ticks(run.shim());
    assert!(used < 50, "{used} ticks of processor time for nothing");
    let before = sys::now_ms() as i64;
    drop(next);
    run.wait_clean();
    let signalled = run.log.wait("server", "signal").number("at") - before;
    assert!(signalled >= 995, "signalled after {signalled} ms, not 1000");
}

#[test]
fn a_fifo_that_gets_a_line_in_each_drain_has_not_hung_up() {
    let (scene, path, first) = fifo(Scene::new());
    let mut run = scene.start(&FIFO.tree(DEAF));
    run.log.ready("deep");
    drop(first);
    for line in 1..4 {
        let drains = |run: &mut Run| run.stderr().matches("draining").count();
        common::until("the drain", || drains(&mut run) == line);
        // As `echo line >fifo` does it.
        writer(&path).write_all(b"line\n").unwrap();
    }
    let before = sys::now_ms() as i64;
    run.wait_clean();
    let signalled = run.log.wait("server", "signal").number("at") - before;
    assert!(signalled >= 995, "signalled after {signalled} ms, not 1000");
}

const BOTH: Wrap = Wrap::Treaper(&[
    "-v", "--stdin", "watch", "--stdout", "watch", "--drain", "1s", "--grace", "300ms",
]);

#[test]
fn a_reader_of_stdout_that_left_during_the_drain_of_a_fifo_is_not_forgotten() {
    let (scene, path, first) = fifo(Scene::new());
    let mut run = scene.start(&BOTH.tree(DEAF));
    run.log.ready("deep");
    let read = run.take_stdout();
    drop(first);
    common::until("the drain", || run.stderr().contains("draining"));
    drop(read);
    let closed = "trigger: stdout-closed";
    common::until("no reader", || run.stderr().contains(closed));
    let _next = writer(&path);
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.contains("has a writer again"), "{stderr}");
    assert!(
        stderr.contains("stdout-closed: stdout has no reader any more and the drain has ended, so SIGTERM was sent to the server (--stdout and --drain change that)\n"),
        "{stderr}"
    );
}

#[test]
fn the_messages_of_a_stop_name_one_trigger_when_stdin_and_stdout_lose_their_peer() {
    let (scene, _path, first) = fifo(Scene::new());
    let mut run = scene.start(&BOTH.tree(DEAF));
    run.log.ready("deep");
    let read = run.take_stdout();
    drop(first);
    common::until("the drain", || run.stderr().contains("draining"));
    drop(read);
    run.wait_clean();
    let stderr = run.stderr();
    assert!(stderr.contains("stdin-eof: stdin has closed"), "{stderr}");
    assert!(stderr.contains("stdin-eof: had to SIGKILL"), "{stderr}");
}
