//! A running scene: the command under test in an arena of its own (`fixtures/actor/arena.rs`), its output, and the
//! proof which processes are left.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use super::log::Log;
use super::proc::{self, Process};
use super::scene::Directory;
use super::{PATIENCE, patience, sys, until};

/// How the command ended, and which processes of the scene were alive at that moment.
#[derive(Debug, Clone)]
pub struct Exit {
    status: i32,
    pub left: Vec<i32>,
}

impl Exit {
    pub fn code(&self) -> Option<i32> {
        libc::WIFEXITED(self.status).then(|| libc::WEXITSTATUS(self.status))
    }

    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }
}

/// A running scene. Dropping it ends every process of the scene, also when the test fails.
pub struct Run {
    /// The process the arena started: treaper, a host, or a bare server.
    pub main: i32,
    pub stdin: Option<OwnedFd>,
    pub log: Log,
    arena: Child,
    control: BufReader<UnixStream>,
    exit: Option<Exit>,
    empty: bool,
    stdout: Option<File>,
    stderr: Option<File>,
    printed: [String; 2],
    directory: Directory,
}

impl Run {
    /// Wraps a started arena, as soon as that has reported the pid of the command.
    pub(super) fn new(
        arena: Child,
        control: UnixStream,
        stdin: Option<OwnedFd>,
        [stdout, stderr]: [Option<File>; 2],
        log: Log,
        directory: Directory,
    ) -> Run {
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut run = Run {
            main: 0,
            stdin,
            log,
            arena,
            control: BufReader::new(control),
            exit: None,
            empty: false,
            stdout,
            stderr,
            printed: Default::default(),
            directory,
        };
        let line = run.line();
        let pid = line.strip_prefix("main ").and_then(|pid| pid.parse().ok());
        run.main = pid.unwrap_or_else(|| panic!("the arena printed `{line}`: {}", run.stderr()));
        run
    }

    pub fn arena(&self) -> i32 {
        self.arena.id() as i32
    }

    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        if let Err(error) = self.control.read_line(&mut line) {
            let stderr = self.stderr();
            panic!(
                "nothing from the arena: {error}; alive: {:#?}; {stderr}",
                self.survivors()
            );
        }
        line.trim_end().to_owned()
    }

    fn take_line(&mut self) {
        let line = self.line();
        if let Some(rest) = line.strip_prefix("exit ") {
            let mut words = rest.split_whitespace().map(|word| word.parse().unwrap());
            let status = words.next().unwrap();
            self.exit = Some(Exit {
                status,
                left: words.collect(),
            });
        } else if line == "empty" {
            self.empty = true;
        } else {
            panic!("the arena printed `{line}`; {}", self.stderr());
        }
    }

    /// The run, once each of these processes is ready.
    pub fn ready(mut self, names: &[&str]) -> Run {
        for name in names {
            self.log.ready(name);
        }
        self
    }

    /// Waits for the end of the command.
    pub fn wait(&mut self) -> Exit {
        while self.exit.is_none() {
            self.take_line();
        }
        self.exit.clone().unwrap()
    }

    /// Waits for the end of the command and of everything it ever started.
    pub fn wait_empty(&mut self) -> Exit {
        while self.exit.is_none() || !self.empty {
            self.take_line();
        }
        self.exit.clone().unwrap()
    }

    /// Waits for the command. At its end no process may be left, not even for an instant.
    pub fn wait_clean(&mut self) -> Exit {
        let exit = self.wait();
        let names: Vec<_> = self
            .survivors()
            .into_iter()
            .map(|p| (p.pid, p.comm))
            .collect();
        let stderr = self.stderr();
        assert!(
            exit.left.is_empty(),
            "left {:?}, still there: {names:?}\n{stderr}",
            exit.left
        );
        self.wait_empty()
    }

    /// Whether the command ends within this time. Only for an end that must not come.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        if self.exit.is_some() {
            return true;
        }
        let fds = [(self.control.get_ref().as_raw_fd(), libc::POLLIN)];
        let buffered = !self.control.buffer().is_empty();
        buffered || sys::poll(&fds, Some(Instant::now() + time))[0] != 0
    }

    /// Every living process of the scene.
    pub fn survivors(&self) -> Vec<Process> {
        proc::descendants(self.arena())
    }

    /// The living processes of the scene with this command name.
    pub fn named(&self, comm: &str) -> Vec<Process> {
        self.survivors()
            .into_iter()
            .filter(|p| p.comm == comm)
            .collect()
    }

    /// The monitor of the pair, as soon as it has its name.
    pub fn monitor(&self) -> i32 {
        self.topmost("tree-monitor")
    }

    /// The shim, also below a host.
    pub fn shim(&self) -> i32 {
        self.topmost("treaper")
    }

    /// The relay, as soon as it has its name.
    pub fn relay(&self) -> i32 {
        self.topmost("tree-relay")
    }

    /// The process of this name whose parent has another name. (Until a child sets a name or executes a program, it has
    /// the name of its parent.)
    fn topmost(&self, comm: &str) -> i32 {
        let mut top = None;
        until(comm, || {
            let found = self.named(comm);
            let is_top = |p: &&Process| found.iter().all(|other| other.pid != p.ppid);
            top = found.iter().find(is_top).map(|p| p.pid);
            top.is_some()
        });
        top.unwrap()
    }

    /// Signals the command.
    pub fn signal(&self, signal: i32) {
        sys::kill(self.main, signal).unwrap();
    }

    /// The signals that `name` of the tree has got, in order.
    pub fn received(&mut self, name: &str) -> Vec<i32> {
        let lines = self.log.all(name, "signal");
        lines.iter().map(|line| line.number("sig") as i32).collect()
    }

    /// All output on stdout until now.
    pub fn stdout(&mut self) -> String {
        self.printed[0] += &read(self.stdout.as_mut());
        self.printed[0].clone()
    }

    /// Waits until the output on stdout ends a line. Returns all of it.
    pub fn whole_line(&mut self) -> String {
        until("a line on stdout", || self.stdout().ends_with('\n'));
        self.stdout()
    }

    /// All output on stderr until now.
    pub fn stderr(&mut self) -> String {
        self.printed[1] += &read(self.stderr.as_mut());
        self.printed[1].clone()
    }

    /// The stdout pipe itself, to close it or to read it whole.
    pub fn take_stdout(&mut self) -> File {
        self.stdout.take().unwrap()
    }

    pub fn write_stdin(&self, text: &[u8]) {
        let end = self.stdin.as_ref().unwrap().try_clone().unwrap();
        File::from(end).write_all(text).unwrap();
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }
}

fn read(stream: Option<&mut File>) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    if let Some(stream) = stream {
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            text.extend_from_slice(&buffer[..n]);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

impl Drop for Run {
    fn drop(&mut self) {
        // The arena kills the processes that it may kill. Only a privileged test can have made others.
        let _ = self.control.get_ref().shutdown(std::net::Shutdown::Both);
        let deadline = patience();
        while !sys::wait_gone(self.arena(), Instant::now() + Duration::from_millis(50)) {
            for process in self.survivors() {
                process.kill();
            }
            if Instant::now() > deadline {
                let left = self.survivors();
                eprintln!("the arena could not be emptied: {left:?}");
                break;
            }
        }
        let _ = self.arena.kill();
        let _ = self.arena.wait();
    }
}
