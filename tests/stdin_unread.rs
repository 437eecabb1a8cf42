//! Without `--inject` and `--cancel` no process of treaper reads from stdin, and there is no third process. strace shows
//! each call that names the pipe or socket of stdin, whatever the number of its descriptor.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use common::{Scene, TREAPER, proc, skip, sys, until};

/// The calls that take bytes out of a pipe or socket.
const READS: &[&str] = &[
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "splice",
    "tee",
    "sendfile",
    "copy_file_range",
    "io_uring_setup",
    "io_uring_enter",
];

/// What strace saw of one run, until the server was executed in its process.
struct Trace {
    /// The lines that name stdin.
    stdin: Vec<String>,
    /// Those of them that read from it.
    reads: Vec<String>,
    processes: usize,
}

/// A line of strace's output: pid, call, and the rest.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (pid, rest) = line.split_once(' ')?;
    let (call, arguments) = rest.trim_start().split_once('(')?;
    Some((pid, call, arguments))
}

/// Starts `cat`, passes a request through it, and ends it: by the end of its stdin, or by SIGTERM to treaper.
fn trace(options: &[&str], on_socket: bool, by_signal: bool) -> Trace {
    let (near, far): (OwnedFd, OwnedFd) = if on_socket {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        (near.into(), far.into())
    } else {
        let (read, write) = sys::pipe().unwrap();
        (write.into(), read.into())
    };
    // As strace names it: `pipe:[123]`.
    let name = std::fs::read_link(format!("/proc/self/fd/{}", far.as_raw_fd())).unwrap();
    let name = format!("<{}>", name.display());
    let scene = Scene::new().with(|command| {
        command.stdin(far);
    });
    let path = scene.directory().join("trace");
    let strace = ["strace", "-f", "-y", "-qq", "-b", "execve", "-o"];
    let words = [&strace[..], &[path.to_str().unwrap(), TREAPER], options].concat();
    let mut run = scene.start(&[&words[..], &["--", "cat"]].concat());
    let mut host = File::from(near);
    host.write_all(b"a request\n").unwrap();
    until("an answer", || run.stdout() == "a request\n");
    if by_signal {
        let shim = proc::children(run.main)[0].pid;
        sys::kill(shim, libc::SIGTERM).unwrap();
        run.wait_empty();
    }
    drop(host);
    run.wait_empty();
    let text = std::fs::read_to_string(&path).unwrap();
    let calls: Vec<_> = text.lines().filter_map(parts).collect();
    let of_stdin = || calls.iter().filter(|(_, _, rest)| rest.contains(&name));
    let line = |(pid, call, rest): &(&str, &str, &str)| format!("{pid} {call}({rest}");
    let pids: BTreeSet<&str> = calls.iter().map(|(pid, _, _)| *pid).collect();
    Trace {
        stdin: of_stdin().map(line).collect(),
        reads: of_stdin()
            .filter(|(_, call, _)| READS.contains(call))
            .map(line)
            .collect(),
        processes: pids.len(),
    }
}

fn has_strace() -> bool {
    let found = Command::new("strace").arg("-V").output().is_ok();
    if !found {
        skip("needs strace");
    }
    found
}

#[test]
fn without_further_writers_nothing_is_read_from_stdin_and_there_is_no_third_process() {
    if !has_strace() {
        return;
    }
    let variants: [&[&str]; 7] = [
        &[],
        &["--stdin=watch"],
        &["--stdin=ignore"],
        &["--idle=1h"],
        &["--report=/dev/null"],
        &["--no-guard"],
        &["--no-guard", "--stdin=watch"],
    ];
    for options in variants {
        for (on_socket, by_signal) in [(false, false), (false, true), (true, false), (true, true)] {
            let seen = trace(options, on_socket, by_signal);
            let which = format!("{options:?}, socket {on_socket}, by a signal {by_signal}");
            assert_eq!(seen.reads, [""; 0], "{which}");
            // strace has seen what is done with stdin.
            assert!(!seen.stdin.is_empty(), "{which}");
            // The last two are the first leader of the server's session, and the process in which
            // the server is executed.
            let own = if options.contains(&"--no-guard") {
                1
            } else {
                2
            };
            assert_eq!(seen.processes, own + 2, "{which}");
        }
    }
}

#[test]
fn control_with_further_writers_the_relay_reads_stdin() {
    if !has_strace() {
        return;
    }
    for on_socket in [false, true] {
        let directory = common::scene::Directory::new();
        let source = format!("--inject=unix:{}/socket", directory.0.display());
        let seen = trace(&[&source], on_socket, false);
        assert!(!seen.reads.is_empty(), "{:?}", seen.stdin);
        assert_eq!(seen.processes, 5);
    }
}
