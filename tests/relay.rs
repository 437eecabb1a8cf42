//! `--inject`: messages of several writers are whole, in order and never mixed; which processes may write; the socket.
//!
//! `RELAY_MESSAGES=600` writes as many of each writer as that.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;
#[path = "relay/messages.rs"]
mod messages;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::proc;
use common::scene::Directory;
use common::{ACTOR, PATIENCE, Run, Scene, TREAPER, Wrap, skip, special, sys, until};
use messages::{acknowledged, answered, connect, inject, read_all, sockets, torn, write_all};

fn count() -> usize {
    std::env::var("RELAY_MESSAGES").map_or(60, |text| text.parse().unwrap())
}

const LARGE: usize = 200_000;
const SMALL: usize = 100;
/// How often the control may try.
const TRIES: u32 = 40;

/// A server with a socket to inject, whose stdin is a pipe.
fn start(options: &[&str], command: &[&str]) -> (Run, PathBuf) {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let options = [&["--inject", &source], options].concat();
    (scene.start(&Wrap::Treaper(&options).command(command)), path)
}

/// Waits for a line on stdout.
fn line(run: &mut Run, text: &str) {
    until(text, || run.stdout().lines().any(|line| line == text));
}

/// Waits until stdout is this.
fn line_begins(run: &mut Run, text: &str) {
    until(text, || run.stdout() == text);
}

fn exchange(writers: usize, on_socket: bool, slow: bool) {
    let mut scene = Scene::new();
    let path = scene.directory().join("socket");
    let mut host: Option<Box<dyn Write + Send>> = None;
    if on_socket {
        let (near, far) = sockets();
        scene = scene.with(|command| {
            command.stdin(far);
        });
        host = Some(Box::new(UnixStream::from(near)));
    } else {
        scene = scene.stdin_pipe();
    }
    let source = format!("unix:{}", path.display());
    let options = ["--inject", &source];
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
    until("the socket", || path.exists());
    let host = host.unwrap_or_else(|| Box::new(File::from(run.stdin.take().unwrap())));
    let output = run.take_stdout();
    let reader = std::thread::spawn(move || read_all(output, slow));
    let writer = write_all(host, "h", (count(), LARGE));
    let names = ["a", "b", "c", "d", "e"];
    let injecting: Vec<_> = names[..writers]
        .iter()
        .map(|name| inject(&path, name, (count(), SMALL)))
        .collect();
    for thread in injecting {
        thread.join().unwrap();
    }
    drop(writer.join().unwrap());
    let text = reader.join().unwrap();
    let mut expected = vec![("h", count(), LARGE)];
    expected.extend(names[..writers].iter().map(|name| (*name, count(), SMALL)));
    let bad = torn(&text, &expected);
    let which = format!("{writers} writers, socket {on_socket}, slow {slow}");
    assert_eq!(bad, 0, "{which}: {}", run.stderr());
    run.wait_clean();
    assert!(!path.exists());
}

#[test]
fn messages_of_all_writers_are_whole_and_in_order() {
    exchange(1, false, false);
    exchange(5, true, false);
    exchange(5, false, true);
}

#[test]
fn control_two_writers_of_one_pipe_tear_each_others_messages() {
    // On a busy machine one of them may be done before the other one begins.
    for _ in 0..TRIES {
        if torn_on_one_pipe() > 0 {
            return;
        }
    }
    panic!("the scene shows nothing");
}

fn torn_on_one_pipe() -> usize {
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).command(&["cat"]));
    let output = run.take_stdout();
    let reader = std::thread::spawn(move || read_all(output, false));
    let pipe = File::from(run.stdin.take().unwrap());
    let other = pipe.try_clone().unwrap();
    let writers = [
        write_all(pipe, "h", (count(), LARGE)),
        write_all(other, "a", (count() * 20, SMALL)),
    ];
    for writer in writers {
        drop(writer.join().unwrap());
    }
    let text = reader.join().unwrap();
    let expected = [("h", count(), LARGE), ("a", count() * 20, SMALL)];
    torn(&text, &expected)
}

/// Writes the first bytes of a message, and is SIGKILLed.
fn killed_writer(path: &PathBuf, bytes: &[u8]) {
    let mut socket = connect(path);
    let pid = sys::fork();
    if pid == 0 {
        let _ = socket.write_all(bytes);
        sys::raise(libc::SIGKILL);
        sys::exit(1);
    }
    drop(socket);
    sys::wait_for(pid);
}

#[test]
fn nothing_arrives_of_a_message_whose_writer_is_killed() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let (message, good) = ("never seen\n", "right seen\n");
    for end in 0..message.len() {
        killed_writer(&path, &message.as_bytes()[..end]);
        let mut next = connect(&path);
        next.write_all(good.as_bytes()).unwrap();
        acknowledged(next);
    }
    // And one that had written all of it.
    killed_writer(&path, message.as_bytes());
    until("the last one", || run.stdout().ends_with(message));
    let expected = good.repeat(message.len()) + message;
    assert_eq!(run.stdout(), expected);
    let refused = run.stderr().matches("it has no newline").count();
    assert_eq!(refused, message.len() - 1);
    run.close_stdin();
    run.wait_clean();
}

#[test]
fn each_writer_is_told_at_once_what_became_of_its_messages() {
    let (mut run, path) = start(&[], &["sh", "-c", "exec cat >/dev/null"]);
    until("the socket", || path.exists());
    let longest = 16 << 20;
    let fits = [&vec![b'x'; longest - 1], &b"\n"[..]].concat();
    for (bytes, answer) in [
        (&b"one\ntwo\n"[..], "ok\n"),
        (b"", "ok\n"),
        (&fits, "ok\n"),
        (
            b"one\nhalf",
            "error: the last message is incomplete: it has no newline\n",
        ),
        (
            &vec![b'x'; longest + 100],
            "error: the message is longer than 16 MiB\n",
        ),
    ] {
        let mut writer = connect(&path);
        // All of it is taken, also what is not passed on: a writer that is not finished could not read the answer.
        writer.write_all(bytes).unwrap();
        assert_eq!(answered(writer), answer);
    }
    // An answer that comes before the writer is finished.
    let mut writer = connect(&path);
    writer.write_all(&vec![b'x'; longest]).unwrap();
    let mut answer = String::new();
    writer.set_read_timeout(Some(PATIENCE)).unwrap();
    writer.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "error: the message is longer than 16 MiB\n");
    run.close_stdin();
    run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(stderr.matches("refused a writer").count(), 3, "{stderr}");
}

#[test]
fn a_message_that_is_not_written_is_not_acknowledged() {
    for (victim, expected) in [
        ("none", "error: stdin has ended\n"),
        (
            "server",
            "error: the server is gone or no longer reads stdin\n",
        ),
        ("tree-relay", ""),
    ] {
        let (mut run, path) = start(&["--grace", "100ms"], &["cat"]);
        until("the socket", || path.exists());
        // A message of stdin that does not end keeps all others waiting.
        run.write_stdin(b"half");
        line_begins(&mut run, "half");
        let mut writer = connect(&path);
        writer.write_all(b"waits\n").unwrap();
        let relay = run.relay();
        common::until_it_rests(relay);
        match victim {
            "none" => run.close_stdin(),
            "server" => sys::kill(run.named("cat")[0].pid, libc::SIGKILL).unwrap(),
            _ => sys::kill(relay, libc::SIGKILL).unwrap(),
        }
        assert_eq!(answered(writer), expected, "{victim}");
        run.close_stdin();
        run.wait_empty();
        assert_eq!(run.stdout(), "half");
        // The user learns how many messages were lost, and why.
        if let Some(why) = expected.strip_prefix("error: ") {
            let why = why.trim_end();
            let lost = format!("undelivered messages of other writers: 1, because {why}\n");
            assert!(run.stderr().contains(&lost), "{}", run.stderr());
        }
    }
}

#[test]
fn a_message_of_stdin_keeps_its_turn_until_it_ends() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    run.write_stdin(b"begun ");
    line_begins(&mut run, "begun ");
    let mut other = connect(&path);
    other.write_all(b"other\n").unwrap();
    other.shutdown(std::net::Shutdown::Write).unwrap();
    other
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(
        other.read(&mut [0]).is_err(),
        "acknowledged before its turn"
    );
    assert_eq!(run.stdout(), "begun ");
    run.write_stdin(b"and ended\nlast");
    acknowledged(other);
    // A last line without a newline is passed on, as without treaper.
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0));
    let text = run.stdout();
    assert_eq!(text, "begun and ended\nother\nlast");
}

#[test]
fn the_kind_of_stdin_stays_and_no_other_process_has_an_end_of_it() {
    for on_socket in [false, true] {
        let scene = Scene::new();
        let path = scene.directory().join("socket");
        let source = format!("unix:{}", path.display());
        let (near, far) = sockets();
        let mut scene = scene;
        if on_socket {
            scene = scene.with(|command| {
                command.stdin(far);
            });
        } else {
            scene = scene.stdin_pipe();
        }
        let command = [
            "sh",
            "-c",
            "readlink /proc/self/fd/0; read -r line; exec 0<&-; echo closed; read -r never </dev/null; sleep 1000",
        ];
        let mut run = scene.start(
            &Wrap::Treaper(&["--inject", &source, "--stdin=ignore", "--grace", "100ms"])
                .command(&command),
        );
        let kind = if on_socket { "socket:" } else { "pipe:" };
        until("the kind", || run.stdout().starts_with(kind));
        let mut host: Box<dyn Write> = if on_socket {
            Box::new(UnixStream::from(near))
        } else {
            Box::new(File::from(run.stdin.as_ref().unwrap().try_clone().unwrap()))
        };
        host.write_all(b"line\n").unwrap();
        line(&mut run, "closed");
        // With no reader left the relay takes no more writers.
        until("the end of the socket", || {
            UnixStream::connect(&path).is_err()
        });
        assert!(
            !run.ends_within(Duration::from_millis(300)),
            "{}",
            run.stderr()
        );
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// A connection from the tree, from another user, and from a process that is neither.
#[test]
fn processes_of_the_tree_and_of_other_users_are_refused() {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let script = format!(
        "exec 3<&0 </dev/null; {ACTOR} connect {0} direct; (setsid {ACTOR} connect {0} orphan &); exec cat <&3",
        path.display()
    );
    let options = ["--inject", &source];
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", &script]));
    until("two refusals", || {
        run.stderr().matches("of the server's own tree").count() == 2
    });
    let mut other = connect(&path);
    other.write_all(b"from outside\n").unwrap();
    acknowledged(other);
    run.close_stdin();
    run.wait_clean();
    let text = run.stdout();
    assert!(text.contains("from outside"), "{text}");
    assert!(
        !text.contains("direct\n") && !text.contains("orphan\n"),
        "{text}"
    );
}

#[test]
fn another_user_is_refused_even_where_the_file_lets_it_in() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let attempt = |path: &PathBuf| {
        let path = path.to_str().unwrap();
        let output = Command::new(ACTOR)
            .args(["connect", path, "intruder", "65534"])
            .stdin(Stdio::null())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert!(attempt(&path).contains("PermissionDenied"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    attempt(&path);
    until("the refusal", || {
        run.stderr().contains("has another uid, 65534")
    });
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "");
}

/// By `/proc` it tells processes of the tree from others. For turns alone it needs none.
#[test]
fn without_proc_other_writers_are_refused_before_the_start() {
    if !sys::is_root() {
        return skip("only root can cover /proc");
    }
    let cover = "mount -t tmpfs none /proc && exec \"$@\"";
    let why = "cannot check which process connects: /proc is missing";
    let scene = Scene::new();
    let source = format!("unix:{}", scene.directory().join("socket").display());
    for (options, is_refused) in [
        (["--inject", &source], true),
        (["--turn=method=a", "--cancel=method=b"], false),
    ] {
        let treaper = ["unshare", "-m", "sh", "-c", cover, "sh", TREAPER];
        let words = [&treaper[..], &options, &["--", "cat"]].concat();
        let mut run = Scene::new().stdin_pipe().start(&words);
        run.close_stdin();
        let expected = if is_refused { 125 } else { 0 };
        assert_eq!(run.wait_clean().code(), Some(expected), "{}", run.stderr());
        assert_eq!(run.stderr().contains(why), is_refused, "{}", run.stderr());
    }
}

/// Status and message of a treaper whose stdin is a pipe, and that must not start its server.
fn refused(options: &[&str]) -> String {
    let mut treaper = Command::new(TREAPER);
    let treaper = treaper
        .args(options)
        .args(["--", "echo", "started"])
        .stdin(Stdio::piped());
    let output = treaper
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(125), 0),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_source_that_cannot_be_used_is_an_error_before_the_start() {
    let directory = Directory::new();
    let path = |name: &str| format!("unix:{}/{name}", directory.0.display());
    fs::write(directory.0.join("file"), "kept").unwrap();
    let live = UnixListener::bind(directory.0.join("live")).unwrap();
    // To open one can take for ever.
    sys::mkfifo(&directory.0.join("fifo"));
    for (source, text) in [
        (
            path("file"),
            "there is a file already, which is not a socket",
        ),
        (path("live"), "a process listens on this socket"),
        (path("none/socket"), "its folder: No such file or directory"),
        (path(&"x".repeat(100)), "has at most 107"),
        (path("fifo/socket"), "its folder: Not a directory"),
        ("unix:/".to_owned(), "the path names a folder"),
        ("fd:99".to_owned(), "expected unix:PATH"),
    ] {
        let told = refused(&["--inject", &source]);
        assert!(told.contains(text) && told.contains("--inject"), "{told}");
    }
    assert_eq!(
        fs::read_to_string(directory.0.join("file")).unwrap(),
        "kept"
    );
    assert!(
        fs::metadata(directory.0.join("live"))
            .unwrap()
            .file_type()
            .is_socket()
    );
    drop(live);
    // Where stdin is no pipe.
    let mut treaper = Command::new(TREAPER);
    let treaper = treaper
        .args(["--inject", &path("s"), "true"])
        .stdin(Stdio::null());
    let output = treaper.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("stdin is not a pipe")
    );
    assert!(!directory.0.join("s").exists());
    // A later error leaves no socket behind.
    for other in ["none/s", "./s"] {
        let _ = refused(&["--inject", &path("s"), "--inject", &path(other)]);
        assert!(!directory.0.join("s").exists(), "{other}");
    }
}

#[test]
fn a_folder_that_may_not_be_written_to_is_an_error_before_the_start() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let directory = Directory::new();
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
    let source = format!("unix:{}/socket", directory.0.display());
    let mut treaper = Command::new(TREAPER);
    treaper.args(["--inject", &source, "true"]).uid(65534);
    let output = treaper.stdin(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("its folder: Permission denied"), "{told}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn without_shim_and_monitor_the_relay_removes_the_socket() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    // Before it has this name, it has that of the shim.
    run.relay();
    let (shim, monitor) = (run.shim(), run.monitor());
    until("a server", || !run.named("cat").is_empty());
    sys::kill(monitor, libc::SIGKILL).unwrap();
    // On one processor, the shim may have stopped the server and ended before the test goes on.
    let killed = sys::kill(shim, libc::SIGKILL);
    assert!(killed.is_ok() || killed.unwrap_err().raw_os_error() == Some(libc::ESRCH));
    run.wait_empty();
    assert!(!path.exists());
}

#[test]
fn a_socket_that_can_be_seen_takes_connections() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let scene = Scene::new().stdin_pipe();
    // Also a path that is as long as the address of a socket can be.
    let folder = scene.directory().join("d".repeat(20));
    fs::create_dir(&folder).unwrap();
    let room = 107 - folder.as_os_str().len() - 1;
    for name in ["socket".to_owned(), "s".repeat(room)] {
        let path = folder.join(&name);
        let source = format!("unix:{}", path.display());
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e"];
        let slow = ["trace=listen", "-e", "inject=listen:delay_enter=300000"];
        let treaper = [TREAPER, "--inject", &source, "--", "cat"];
        let mut run = Scene::new()
            .stdin_pipe()
            .start(&[&strace[..], &slow, &treaper].concat());
        until("the socket", || path.exists());
        let mut writer = UnixStream::connect(&path).unwrap();
        writer.write_all(b"at once\n").unwrap();
        acknowledged(writer);
        line(&mut run, "at once");
        run.close_stdin();
        run.wait_empty();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}

#[test]
fn the_socket_has_one_user_and_is_gone_after_the_kill_of_any_process() {
    for victim in ["none", "tree-relay", "tree-monitor", "treaper"] {
        let (mut run, path) = start(&["--grace", "100ms"], &["sleep", "1000"]);
        until("the socket", || path.exists());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        run.relay();
        run.monitor();
        until("a server", || !run.named("sleep").is_empty());
        if victim == "none" {
            run.signal(libc::SIGTERM);
        } else {
            let pid = run
                .named(victim)
                .iter()
                .map(|process| process.pid)
                .min()
                .unwrap();
            sys::kill(pid, libc::SIGKILL).unwrap();
        }
        run.wait_empty();
        until("no socket", || !path.exists());
    }
}

#[test]
fn the_socket_of_a_dead_run_is_replaced_and_a_new_one_is_not_removed() {
    let (mut run, path) = start(&["--no-guard"], &["cat"]);
    until("the socket", || path.exists());
    let directory = Directory::new();
    let other = directory.0.join("other");
    drop(UnixListener::bind(&other).unwrap());
    let source = format!("unix:{}", other.display());
    // The socket of a process that is gone.
    let mut second = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&["--inject", &source]).command(&["cat"]));
    until("a listener", || UnixStream::connect(&other).is_ok());
    // Another process has put its own socket in the place of that of treaper.
    fs::remove_file(&path).unwrap();
    let _own = UnixListener::bind(&path).unwrap();
    run.close_stdin();
    run.wait_clean();
    assert!(path.exists());
    second.close_stdin();
    second.wait_clean();
    assert!(!other.exists());
}

#[test]
fn with_both_directions_full_each_byte_arrives_and_the_relay_takes_little_memory() {
    let size = 64 << 20;
    for both in [false, true] {
        let scene = Scene::new().stdin_pipe();
        let path = scene.directory().join("socket");
        let source = format!("unix:{}", path.display());
        let mut options = vec!["--inject", &source];
        if both {
            options.extend(["--turn=method=p", "--cancel=method=c"]);
        }
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
        let mut host = File::from(run.stdin.take().unwrap());
        let letter = |at: u32| match at % 1000 {
            999 => b'\n',
            _ => b'a' + (at / 1000 % 26) as u8,
        };
        let text: Vec<u8> = (0..size).map(letter).collect();
        let expected = text.clone();
        let writer = std::thread::spawn(move || {
            host.write_all(&text).unwrap();
            host
        });
        // The output is read when everything on the way is full.
        let relay = run.relay();
        common::until_it_rests(relay);
        assert!(!writer.is_finished());
        let output = run.take_stdout();
        let reader = std::thread::spawn(move || read_all(output, false));
        let host = writer.join().unwrap();
        // stdin is still open, so the relay is still there.
        let peak = proc::status(relay, "VmHWM").unwrap();
        let peak: u64 = peak.trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 16 << 10, "{peak} kB");
        drop(host);
        let found = reader.join().unwrap();
        assert!(found == expected, "{} bytes", found.len());
        run.wait_clean();
    }
}

/// A TCP connection: the end of the host, and the end that is the server's stdin and stdout.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn an_error_queue_ends_no_stream_and_keeps_no_processor_busy() {
    let (mut near, far) = connection();
    sys::time_stamps(far.as_raw_fd());
    let scene = Scene::new();
    let source = format!("unix:{}", scene.directory().join("socket").display());
    let options = ["--inject", &source, "--turn=method=p", "--cancel=method=c"];
    let mut run = scene
        .with(|command| {
            command.stdin(OwnedFd::from(far.try_clone().unwrap()));
            command.stdout(OwnedFd::from(far));
            command.stderr(Stdio::null());
        })
        .no_capture()
        .start(&Wrap::Treaper(&options).command(&["cat"]));
    let mut answer = [0; 6];
    near.write_all(b"hello\n").unwrap();
    near.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello\n");
    common::until_it_rests(run.relay());
    // The output is read only when the relay cannot write any more.
    let size = 32 << 20;
    let mut host = near.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        host.write_all(&vec![b'x'; size]).unwrap();
        host.shutdown(Shutdown::Write).unwrap();
    });
    common::until_it_rests(run.relay());
    assert!(!writer.is_finished());
    let found = read_all(File::from(OwnedFd::from(near)), false);
    assert_eq!(found.len(), size);
    writer.join().unwrap();
    run.wait_clean();
}

#[test]
fn a_host_that_closes_its_stdin_drains_the_server_as_without_a_relay() {
    // Read slowly: longer than the drain.
    let (mut run, path) = start(
        &["--stdin", "watch", "--drain", "1500ms", "--grace", "5s"],
        &[ACTOR, "tree", "server:eof=0:slowread=400:record"],
    );
    run.log.ready("server");
    until("the socket", || path.exists());
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

/// Both pipes and the buffer between them are full when the host leaves.
#[test]
fn a_host_that_closes_a_full_stdin_stops_a_server_that_reads_nothing() {
    for on_socket in [false, true] {
        let scene = Scene::new();
        let path = scene.directory().join("socket");
        let source = format!("unix:{}", path.display());
        let (far, mut host): (OwnedFd, File) = if on_socket {
            let (near, far) = sockets();
            (far, near.into())
        } else {
            let (far, near) = std::io::pipe().unwrap();
            (far.into(), OwnedFd::from(near).into())
        };
        sys::set_nonblocking(host.as_raw_fd());
        let scene = scene.with(|command| {
            command.stdin(far);
        });
        let options = ["--inject", &source, "--stdin=watch", "--drain=100ms"];
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["sleep", "1000"]));
        until("the socket", || path.exists());
        let (mut written, mut before) = (0, 1);
        while written != before {
            before = written;
            while let Ok(count) = host.write(&[b'x'; 4096]) {
                written += count;
            }
            common::until_it_rests(run.relay());
        }
        let least = if on_socket { 300 } else { 128 };
        assert!(written > least << 10, "{written}");
        assert!(!run.ends_within(Duration::from_millis(300)));
        drop(host);
        run.wait_clean();
        let log = run.stderr();
        assert!(log.contains("stdin-eof"), "on a socket: {on_socket}: {log}");
    }
}

/// The host has nothing waiting, but a part of an injected message is all that the pipe can hold.
#[test]
fn the_end_of_stdin_is_seen_behind_half_of_an_injected_message() {
    let (mut run, path) = start(&["--stdin=watch", "--drain=100ms"], &["sleep", "1000"]);
    let mut message = vec![b'x'; LARGE];
    message.push(b'\n');
    until("the socket", || path.exists());
    let mut writer = connect(&path);
    writer.write_all(&message).unwrap();
    common::until_it_rests(run.relay());
    run.close_stdin();
    run.wait_clean();
    assert!(run.stderr().contains("stdin-eof"), "{}", run.stderr());
}

#[test]
fn a_fifo_whose_writer_left_before_the_start_has_ended() {
    let scene = Scene::new();
    let (fifo, socket) = (
        scene.directory().join("fifo"),
        scene.directory().join("socket"),
    );
    sys::mkfifo(&fifo);
    let mut both = File::options();
    let mut both = both.read(true).write(true).open(&fifo).unwrap();
    let read = File::open(&fifo).unwrap();
    both.write_all(b"hello\n").unwrap();
    drop(both);
    let source = format!("unix:{}", socket.display());
    let scene = scene.with(|command| {
        command.stdin(read);
    });
    let mut run = scene.start(&Wrap::Treaper(&["--inject", &source]).command(&["cat"]));
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    assert_eq!(run.stdout(), "hello\n");
}

/// The server reads slowly, so a message always waits.
#[test]
fn writers_that_go_on_do_not_keep_a_server_alive_whose_stdin_has_ended() {
    const SIZE: usize = 100_000;
    let tree = "server:eof=0:slowread=20:record";
    let (mut run, path) = start(
        &["--stdin", "watch", "--drain", "20s"],
        &[ACTOR, "tree", tree],
    );
    run.log.ready("server");
    until("the socket", || path.exists());
    let (answer, answers) = std::sync::mpsc::channel();
    for _ in 0..4 {
        let (path, answer) = (path.clone(), answer.clone());
        std::thread::spawn(move || {
            let message = [&vec![b'x'; SIZE - 1][..], b"\n"].concat();
            while let Ok(mut writer) = UnixStream::connect(&path) {
                // The relay may close the connection before it has read all of it.
                let _ = writer.write_all(&message);
                answer.send(answered(writer)).unwrap();
            }
        });
    }
    drop(answer);
    let mut all: Vec<String> = answers.iter().take(4).collect();
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    all.extend(answers);
    let count = |text: &str| all.iter().filter(|answer| *answer == text).count();
    let written = count("ok\n");
    let bytes = run.log.wait("server", "eof").number("bytes") as usize;
    assert_eq!(bytes, written * SIZE, "{all:?}");
    // Each of the four had at most one more message in the relay.
    assert!((4..=12).contains(&written), "{all:?}");
}

#[test]
fn a_low_limit_of_descriptors_refuses_no_writer() {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let script = format!(
        "ulimit -Sn 24; exec {TREAPER} --inject unix:{} cat",
        path.display()
    );
    let mut run = scene.start(&["sh", "-c", &script]);
    until("the socket", || path.exists());
    let mut writers: Vec<_> = (0..20).map(|_| connect(&path)).collect();
    for writer in &mut writers {
        writer.write_all(b"message\n").unwrap();
    }
    writers.into_iter().for_each(acknowledged);
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "message\n".repeat(20));
}

#[test]
fn a_connection_that_cannot_be_accepted_is_reported_once_and_tried_again() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let calls = scene.directory().join("calls");
    let strace = [
        "strace",
        "-f",
        "-qq",
        "-ttt",
        "-o",
        calls.to_str().unwrap(),
        "-e",
    ];
    let failing = [
        "trace=accept4",
        "-e",
        "inject=accept4:error=ENFILE:when=1..5",
    ];
    let treaper = [TREAPER, "--inject", &source, "--", "cat"];
    let mut run = scene.start(&[&strace[..], &failing, &treaper].concat());
    until("the socket", || path.exists());
    let mut writer = connect(&path);
    writer.write_all(b"message\n").unwrap();
    acknowledged(writer);
    run.close_stdin();
    run.wait_empty();
    // A pause of 100 ms comes after each failure. The tracer's clock is late whenever it has to wait for a processor.
    let calls = fs::read_to_string(calls).unwrap();
    let failed = calls.lines().filter(|line| line.contains("INJECTED"));
    let times: Vec<f64> = failed
        .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
        .collect();
    assert_eq!(times.len(), 5, "{calls}");
    // On a busy machine one call is late at times, and the next one is not.
    assert!(times[4] - times[0] > 4.0 * 0.05, "{calls}");
    let stderr = run.stderr();
    assert_eq!(
        stderr.matches("cannot accept a writer").count(),
        1,
        "{stderr}"
    );
}

#[test]
fn a_writer_that_is_silent_for_long_loses_its_place_to_one_that_waits() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let mut silent: Vec<_> = (0..32).map(|_| connect(&path)).collect();
    let mut waiting = connect(&path);
    waiting.write_all(b"waited\n").unwrap();
    let short = Some(Duration::from_millis(200));
    waiting.set_read_timeout(short).unwrap();
    let early = waiting.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock));
    // One that leaves makes room at once.
    silent.remove(7);
    acknowledged(waiting);
    silent.push(connect(&path));
    let before = sys::now_ms();
    let mut waiting = connect(&path);
    waiting.write_all(b"waited for long\n").unwrap();
    acknowledged(waiting);
    assert!(sys::now_ms() - before > 5000);
    // The first one of the silent writers, and no other one.
    let why = "error: nothing was sent for 10 s, and another writer needs the place\n";
    assert_eq!(answered(silent.remove(0)), why);
    let mut kept = silent.remove(0);
    kept.write_all(b"kept\n").unwrap();
    acknowledged(kept);
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "waited\nwaited for long\nkept\n");
    let stderr = run.stderr();
    assert_eq!(stderr.matches("refused a writer").count(), 1, "{stderr}");
}

#[test]
fn the_writer_that_has_the_last_place_can_write() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let silent: Vec<_> = (0..31).map(|_| connect(&path)).collect();
    let mut last = connect(&path);
    last.write_all(b"the last one\n").unwrap();
    acknowledged(last);
    drop(silent);
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "the last one\n");
}

/// The relay cannot find out any more whether it was a process of the tree. Without the pidfd of a peer it asks for the
/// number, which a zombie keeps: its parents are known as long as it is one.
#[test]
fn a_writer_that_ends_before_it_is_looked_at_is_refused() {
    if special::kernel() < (6, 5) {
        return skip("before Linux 6.5 a peer has no pidfd");
    }
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    // The next one has to wait until one of them leaves.
    let mut silent: Vec<_> = (0..32).map(|_| connect(&path)).collect();
    let pid = sys::fork();
    if pid == 0 {
        let _ = connect(&path).write_all(b"from a process that has ended\n");
        sys::exit(0);
    }
    common::until_state(&[pid], 'Z');
    silent.pop();
    let refusal = format!("whether pid {pid} is a process of the server's own tree is unknown");
    until("a refusal", || run.stderr().contains(&refusal));
    sys::wait_for(pid);
    drop(silent);
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "");
}

#[test]
fn refused_writers_that_stay_keep_no_place() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let long = vec![b'x'; 16 << 20];
    let refused: Vec<_> = (0..33)
        .map(|_| {
            let mut writer = connect(&path);
            writer.write_all(&long).unwrap();
            writer
        })
        .collect();
    let before = sys::now_ms();
    let mut next = connect(&path);
    next.write_all(b"next\n").unwrap();
    acknowledged(next);
    assert!(sys::now_ms() - before < 9000);
    drop(refused);
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "next\n");
}

/// It is refused when it connects, and not because of a message.
#[test]
fn a_refused_writer_can_send_and_then_reads_why() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let pid = sys::fork();
    if pid == 0 {
        let told = common::special::become_uid(65534).and_then(|()| {
            let mut socket = connect(&path);
            sys::poll(&[(socket.as_raw_fd(), libc::POLLIN)], None);
            socket.write_all(b"from an intruder\n")?;
            let mut text = String::new();
            socket.read_to_string(&mut text)?;
            Ok(text)
        });
        let _ = far.write_all(format!("{told:?}").as_bytes());
        sys::exit(0);
    }
    drop(far);
    let mut told = String::new();
    near.read_to_string(&mut told).unwrap();
    sys::wait_for(pid);
    assert!(told.contains("has another uid, 65534"), "{told}");
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stdout(), "");
}

#[test]
fn without_the_options_there_is_no_third_process() {
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&Wrap::Treaper(&[]).command(&["cat"]));
    run.monitor();
    until("a server", || !run.named("cat").is_empty());
    assert!(run.named("tree-relay").is_empty());
    run.close_stdin();
    run.wait_clean();
}

#[test]
fn a_child_from_before_treaper_may_inject_and_one_of_the_tree_may_not() {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let (socket, go) = (path.display(), scene.directory().join("go"));
    let helper = format!(
        "(until [ -e {} ]; do sleep 0.02; done; exec {ACTOR} connect {socket} helper) </dev/null & ",
        go.display()
    );
    let script =
        format!("{helper} exec {TREAPER} --inject unix:{socket} -- sh -c '{helper} exec cat'");
    let mut run = scene.start(&["sh", "-c", &script]);
    until("the socket", || path.exists());
    fs::write(&go, "").unwrap();
    until("a refusal", || {
        run.stderr().contains("of the server's own tree")
    });
    until("the message", || run.stdout().contains("helper"));
    run.close_stdin();
    run.wait_empty();
    assert_eq!(run.stdout().matches("helper").count(), 1);
    assert_eq!(run.stderr().matches("refused").count(), 1);
}

#[test]
fn a_second_start_with_the_same_path_is_an_error_and_no_writer_of_the_first() {
    let (mut run, path) = start(&[], &["cat"]);
    until("the socket", || path.exists());
    let source = format!("unix:{}", path.display());
    for _ in 0..20 {
        let told = refused(&["--inject", &source]);
        assert!(told.contains("--inject: cannot make the socket"), "{told}");
    }
    // A nested treaper inherits the variable.
    let mut nested = Command::new(TREAPER);
    nested.env("TREAPER_INJECT", &source).arg("true");
    let output = nested.stdin(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("TREAPER_INJECT: cannot make the socket"),
        "{told}"
    );
    run.close_stdin();
    run.wait_clean();
    assert_eq!(run.stderr(), "");
}

#[test]
fn of_many_that_replace_a_stale_socket_at_once_exactly_one_has_it() {
    let directory = Directory::new();
    let path = directory.0.join("socket");
    let source = format!("unix:{}", path.display());
    for _ in 0..10 {
        drop(UnixListener::bind(&path).unwrap());
        let mut all: Vec<_> = (0..8)
            .map(|number: usize| {
                let mut treaper = Command::new(TREAPER);
                treaper.args(["--inject", &source, "--", "sh", "-c"]);
                treaper.arg(format!("read -r line; read -r line; echo {number}"));
                treaper.stdin(Stdio::piped()).stdout(Stdio::piped());
                treaper.stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        // Each one that runs has the socket. The second writer ends the one that answers by it.
        let running = |all: &mut Vec<std::process::Child>| {
            all.retain_mut(|child| child.try_wait().unwrap().is_none());
            all.len()
        };
        until("one that has it", || running(&mut all) == 1);
        let mut writer = connect(&path);
        writer.write_all(b"to the owner\n").unwrap();
        acknowledged(writer);
        connect(&path).write_all(b"the end\n").unwrap();
        until("its end", || running(&mut all) == 0);
        until("no file", || {
            fs::read_dir(&directory.0).unwrap().count() == 0
        });
    }
}

#[test]
fn a_locked_folder_delays_nothing() {
    let scene = Scene::new().stdin_pipe();
    // It holds the lock until its stdin ends.
    let mut holder = Command::new("flock");
    holder
        .arg("--no-fork")
        .arg(scene.directory())
        .args(["sh", "-c", "echo; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(mut holder) = holder.spawn() else {
        return skip("needs flock");
    };
    let mut output = holder.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let before = sys::now_ms();
    let mut run = scene.start(&Wrap::Treaper(&["--inject", &source]).command(&["cat"]));
    until("the socket", || path.exists());
    run.close_stdin();
    run.wait_clean();
    assert!(sys::now_ms() - before < 30_000);
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn two_long_names_that_begin_alike_are_made_at_the_same_time() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let directory = Directory::new();
    let begin = "n".repeat(100);
    let sockets = || fs::read_dir(&directory.0).unwrap().count();
    let path = |end: &str| directory.0.join(format!("{begin}{end}"));
    let source = |end: &str| format!("unix:{begin}{end}");
    let scene = || {
        let folder = directory.0.clone();
        let scene = Scene::new().stdin_pipe();
        scene.with(|command| {
            command.current_dir(folder);
        })
    };
    // The first one has made its socket, which has no name yet.
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e"];
    let slow = ["trace=listen", "-e", "inject=listen:delay_exit=10000000"];
    let one = source("1");
    let treaper = [TREAPER, "--inject", &one, "--", "cat"];
    let mut first = scene().start(&[&strace[..], &slow, &treaper].concat());
    until("a claim", || sockets() == 1);
    assert!(!path("1").exists());
    let other = source("2");
    let options = ["--inject", &other];
    let mut second = scene().start(&Wrap::Treaper(&options).command(&["cat"]));
    until("the second socket", || path("2").exists());
    assert!(!path("1").exists(), "the scene shows nothing");
    until("the first socket", || path("1").exists());
    for run in [&mut first, &mut second] {
        run.close_stdin();
        run.wait_empty();
    }
    assert_eq!(sockets(), 0);
}
