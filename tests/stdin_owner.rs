//! Whose end of stdin? Only if the host holds the other end, its end is a reason to stop.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::proc::{Process, descendants};
use common::scene::Directory;
use common::{TREAPER, skip, sys, until};

const QUICK: [&str; 3] = ["-v", "--drain=100ms", "--grace=100ms"];
/// The end of the input comes after the first second, and the server lives much longer than it takes to stop it.
const PRODUCER: &str = "echo a; sleep 1.5";
const SERVER: &str = "cat >/dev/null; sleep 2; echo survived";

/// What the end of stdin did.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It was no trigger, and the server has ended by itself.
    OfASibling,
    /// It was one.
    OfTheHost,
}

/// What happened to a server of [`SERVER`], from what it and treaper have written. Its exit status is not asked for: a
/// shell may have hidden it.
fn end(text: &str) -> End {
    let (looked, stopped) = (
        text.contains("stdin is not watched: no process that started treaper"),
        text.contains("trigger: stdin-eof"),
    );
    match (looked, stopped, text.contains("survived")) {
        (true, false, true) => End::OfASibling,
        (false, true, false) => End::OfTheHost,
        _ => panic!("{text}"),
    }
}

/// A child of this process. Both of its outputs go to the pipe that is returned.
fn start(mut command: Command, stdin: impl Into<Stdio>) -> (Child, impl Read) {
    let (read, write) = sys::pipe().unwrap();
    command
        .stdin(stdin)
        .stdout(write.try_clone().unwrap())
        .stderr(write);
    (command.spawn().unwrap(), read)
}

/// Waits until the first second of the treaper is over that this process has become, or has started.
fn first_second_over(starter: &Child) {
    let mut monitor = None;
    until("a monitor", || {
        let mut all = descendants(starter.id() as i32);
        all.retain(|process| process.comm == "tree-monitor");
        let is_top = |process: &&Process| all.iter().all(|other| other.pid != process.ppid);
        monitor = all.iter().find(is_top).map(|process| process.pid);
        monitor.is_some()
    });
    common::first_second_of(monitor.unwrap());
}

/// treaper with these options, and a server.
fn treaper(options: &[&str]) -> Command {
    let mut command = Command::new(TREAPER);
    command.args(QUICK).args(options).args(["sh", "-c", SERVER]);
    command
}

/// All that treaper and its server write, and what that means.
fn outcome((mut child, mut output): (Child, impl Read)) -> End {
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    end(&text)
}

/// A script of this shell, as `SHELL -c`. `$T` is treaper with its options and a server. What it writes tells the end.
fn script(shell: &[&str], text: &str, options: &[&str]) -> End {
    let treaper = [&[TREAPER], &QUICK[..], options].concat().join(" ");
    let text = text.replace("$T", &format!("{treaper} sh -c '{SERVER}'"));
    let mut command = Command::new(shell[0]);
    command
        .args(&shell[1..])
        .args(["-c", &format!("{text}; true")]);
    outcome(start(command, Stdio::null()))
}

const SHELLS: [&[&str]; 7] = [
    &["bash"],
    &["dash"],
    &["zsh"],
    &["fish"],
    &["ksh93"],
    &["mksh"],
    &["busybox", "sh"],
];

/// Those of the shells that are installed; the others are a skip.
fn shells() -> Vec<&'static [&'static str]> {
    let is_installed = |shell: &&[&str]| {
        let there = Command::new(shell[0])
            .args(&shell[1..])
            .args(["-c", "true"])
            .output();
        if there.is_err() {
            skip(&format!("{} is not installed", shell[0]));
        }
        there.is_ok()
    };
    SHELLS.into_iter().filter(is_installed).collect()
}

#[test]
fn the_end_of_a_pipeline_in_a_script_is_no_trigger_whatever_the_shell() {
    std::thread::scope(|scope| {
        for shell in shells() {
            scope.spawn(move || {
                let pipeline = format!("sh -c '{PRODUCER}' | $T");
                assert_eq!(script(shell, &pipeline, &[]), End::OfASibling, "{shell:?}");
                // A list of commands before the pipe. fish runs it in its own process, which then holds the other end.
                if shell[0] != "fish" {
                    let pipeline = format!("({PRODUCER}) | $T");
                    assert_eq!(script(shell, &pipeline, &[]), End::OfASibling, "{shell:?}");
                }
            });
        }
    });
}

#[test]
fn the_end_of_a_pipeline_is_no_trigger_at_any_level_and_one_if_asked_for() {
    let pipeline = format!("({PRODUCER}) | $T");
    std::thread::scope(|scope| {
        for option in ["--no-guard", "--no-parent"] {
            let pipeline = &pipeline;
            scope.spawn(move || {
                let end = script(&["bash"], pipeline, &[option]);
                assert_eq!(end, End::OfASibling, "{option}");
            });
        }
        let watched = script(&["bash"], &pipeline, &["--stdin=watch"]);
        assert_eq!(watched, End::OfTheHost);
    });
}

#[test]
fn in_a_pid_namespace_the_end_of_a_pipeline_is_no_trigger_and_that_of_a_host_is_one() {
    if !sys::is_root() {
        return skip("needs root, for a PID namespace");
    }
    let pipeline = format!("({PRODUCER}) | $T");
    let namespace = &["--contain=pidns"];
    assert_eq!(script(&["bash"], &pipeline, namespace), End::OfASibling);
    let (read, write) = sys::pipe().unwrap();
    let started = start(treaper(namespace), read);
    first_second_over(&started.0);
    drop(write);
    assert_eq!(outcome(started), End::OfTheHost);
}

#[test]
fn the_end_of_a_pipe_or_socket_of_the_host_is_a_trigger() {
    for option in [&[][..], &["--no-parent"]] {
        let (read, mut pipe) = sys::pipe().unwrap();
        let (far, mut socket) = UnixStream::pair().unwrap();
        let by_pipe = start(treaper(option), read);
        let by_socket = start(treaper(option), OwnedFd::from(far));
        pipe.write_all(b"x").unwrap();
        socket.write_all(b"x").unwrap();
        first_second_over(&by_pipe.0);
        first_second_over(&by_socket.0);
        drop((pipe, socket));
        assert_eq!(outcome(by_pipe), End::OfTheHost, "{option:?}");
        assert_eq!(outcome(by_socket), End::OfTheHost, "{option:?}");
    }
}

/// Nothing shows which process has the other end of a connection.
#[test]
fn the_end_of_a_tcp_connection_is_a_trigger_after_the_first_second() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bare = Command::new("sh");
    bare.args(["-c", SERVER]);
    let [bare, treaper] = [bare, treaper(&[])].map(|command| {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let started = start(command, OwnedFd::from(near));
        (started, listener.accept().unwrap().0)
    });
    first_second_over(&treaper.0.0);
    drop(treaper.1);
    assert_eq!(outcome(treaper.0), End::OfTheHost);
    drop(bare.1);
    let (mut server, mut output) = bare.0;
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "survived\n");
    server.wait().unwrap();
}

/// The server behind it has a pipe from the relay, which says nothing about the host.
#[test]
fn with_a_relay_the_end_of_a_pipeline_is_no_trigger_and_that_of_a_host_is_one() {
    let directory = Directory::new();
    let inject = format!("--inject=unix:{}", directory.0.join("socket").display());
    for options in [&[][..], &[&*inject]] {
        let pipeline = format!("({PRODUCER}) | $T");
        assert_eq!(script(&["bash"], &pipeline, options), End::OfASibling);
        let (read, write) = sys::pipe().unwrap();
        let started = start(treaper(options), read);
        first_second_over(&started.0);
        drop(write);
        assert_eq!(outcome(started), End::OfTheHost, "{options:?}");
    }
}

/// Launchers pass stdin on, and the process behind them has its other end.
#[test]
fn the_end_of_a_host_behind_launchers_is_a_trigger() {
    let text = format!("{TREAPER} {} sh -c '{SERVER}'; exit $?", QUICK.join(" "));
    let mut shell = Command::new("sh");
    shell.args(["-c", "sh -c \"$1\"; exit $?", "sh", &text]);
    let (mut shell, output) = start(shell, Stdio::piped());
    let stdin = shell.stdin.take();
    first_second_over(&shell);
    drop(stdin);
    assert_eq!(outcome((shell, output)), End::OfTheHost);
}

/// Erlang's `erl_child_setup` starts the programs of the VM above it, which holds their stdin. Its own is another one.
#[test]
fn the_end_of_a_host_above_the_process_that_starts_its_programs_is_a_trigger() {
    let starter = || {
        // dash would have this stdin itself while it waits.
        let mut shell = Command::new("bash");
        let text = "exec 9<&0 </dev/null; \"$@\" <&9 9<&-; exit $?";
        shell.args(["-c", text, "sh", TREAPER]).args(QUICK);
        shell.args(["sh", "-c", SERVER]);
        shell
    };
    let (read, pipe) = sys::pipe().unwrap();
    let (far, socket) = UnixStream::pair().unwrap();
    let by_pipe = start(starter(), read);
    let by_socket = start(starter(), OwnedFd::from(far));
    first_second_over(&by_pipe.0);
    first_second_over(&by_socket.0);
    drop((pipe, socket));
    assert_eq!(outcome(by_pipe), End::OfTheHost);
    assert_eq!(outcome(by_socket), End::OfTheHost);
}

/// Another child of the host has the other end of a pair of sockets, as in a pipeline of ksh. For a moment, the first end
/// is stdin of ksh itself, too, and the process above it has sockets of its own.
#[test]
fn the_end_of_a_socket_of_a_sibling_is_no_trigger() {
    let _sockets = UnixStream::pair().unwrap();
    for stdin in ["pass", "os.dup2(b.fileno(), 0)"] {
        sibling_of_a_socket(stdin);
    }
}

fn sibling_of_a_socket(stdin: &str) {
    let text = format!(
        "import socket, subprocess, sys, os\n\
         a, b = socket.socketpair()\n\
         if os.fork() == 0:\n\
         \x20   os.set_inheritable(a.fileno(), True)\n\
         \x20   os.execvp('sh', ['sh', '-c', 'exec >&%d; {PRODUCER}' % a.fileno()])\n\
         a.close()\n\
         {stdin}\n\
         sys.exit(subprocess.call(sys.argv[1:], stdin=b, stderr=1))"
    );
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("python3 is not installed");
    }
    let mut host = Command::new("python3");
    host.args(["-c", &text, TREAPER])
        .args(QUICK)
        .args(["sh", "-c", SERVER]);
    let outcome = outcome(start(host, Stdio::null()));
    assert_eq!(outcome, End::OfASibling, "{stdin}");
}

#[test]
fn the_end_of_a_node_host_is_a_trigger() {
    let text = "const { spawn } = require('child_process');\
        const [program, ...rest] = process.argv.slice(1);\
        const server = spawn(program, rest, { stdio: ['pipe', 'inherit', 'inherit'] });\
        setTimeout(() => server.stdin.end(), 2500); server.on('exit', () => process.exit());";
    if Command::new("node").arg("-v").output().is_err() {
        return skip("node is not installed");
    }
    let mut host = Command::new("node");
    host.args(["-e", text, "--", TREAPER])
        .args(QUICK)
        .args(["sh", "-c", SERVER]);
    assert_eq!(outcome(start(host, Stdio::null())), End::OfTheHost);
}

/// Any process may open it, so nothing is known of its writers.
#[test]
fn the_end_of_a_fifo_with_a_name_is_a_trigger() {
    let directory = Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let text = format!("({PRODUCER}) >{0} & exec $T <{0}", fifo.display());
    assert_eq!(script(&["bash"], &text, &[]), End::OfTheHost);
    let text = format!(
        "exec 3<>{0}; $T <{0} 3>&- & sleep 2; exec 3>&-; wait",
        fifo.display()
    );
    assert_eq!(script(&["bash"], &text, &[]), End::OfTheHost);
}

/// treaper may not read the descriptors of a host of another user, so its end counts, as that of a pipeline there.
#[test]
fn the_end_is_a_trigger_if_the_host_cannot_be_read() {
    if !sys::is_root() {
        return skip("needs root, to start treaper as another user");
    }
    let (read, write) = sys::pipe().unwrap();
    // Not this process has the other end.
    let mut sibling = Command::new("sleep")
        .arg("1.5")
        .stdout(write)
        .spawn()
        .unwrap();
    let mut command = treaper(&[]);
    command.uid(65534);
    assert_eq!(outcome(start(command, read)), End::OfTheHost);
    sibling.wait().unwrap();
}
