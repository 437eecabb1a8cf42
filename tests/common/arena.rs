//! A scene and its run: the command under test in an arena of its own (`fixtures/actor/arena.rs`),
//! its standard streams, its log, and the proof of who is left.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::log::Log;
use super::proc::{self, Process};
use super::{ACTOR, PATIENCE, TREAPER, patience, sys, until};

/// Where the arena's end of the control socket is: out of the way of every descriptor of a scene.
const CONTROL: RawFd = 900;

/// What a server is started by: treaper with these options; or nothing, as the negative control.
#[derive(Debug, Clone, Copy)]
pub enum Wrap<'a> {
    Treaper(&'a [&'a str]),
    Bare,
}

impl Wrap<'_> {
    /// The whole command: treaper, its options, and `command`; or just that.
    pub fn command(&self, command: &[&str]) -> Vec<String> {
        let before = match self {
            Wrap::Treaper(options) => [&[TREAPER][..], options, &["--"]].concat(),
            Wrap::Bare => Vec::new(),
        };
        before
            .iter()
            .chain(command)
            .map(|&word| word.to_owned())
            .collect()
    }

    /// The command for a tree of actors.
    pub fn tree(&self, tree: &str) -> Vec<String> {
        self.command(&[ACTOR, "tree", tree])
    }
}

/// Everything about a run before it starts. Standard streams: stdin `/dev/null`, stdout and stderr
/// pipes that the run collects, unless said otherwise.
pub struct Scene {
    command: Command,
    options: Vec<String>,
    directory: Directory,
    log: Log,
    stdin_pipe: bool,
    capture: bool,
    control: (UnixStream, UnixStream),
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A directory for the files of one scene, removed with it.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Directory {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("treaper-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Default for Scene {
    fn default() -> Scene {
        Scene::new()
    }
}

impl Scene {
    pub fn new() -> Scene {
        let directory = Directory::new();
        let log = Log::new(&directory.0);
        let mut command = Command::new(ACTOR);
        command.env("ACTOR_LOG", &log.path).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TREAPER_") {
                command.env_remove(name);
            }
        }
        let control = UnixStream::pair().unwrap();
        let far = control.1.as_raw_fd();
        let scene = Scene {
            command,
            options: Vec::new(),
            directory,
            log,
            stdin_pipe: false,
            capture: true,
            control,
        };
        // First of all the hooks, as a later one may put something else where the socket was.
        scene.before_exec(move || sys::dup2(far, CONTROL))
    }

    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// The command the arena will run, to set its environment, directory and streams.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Scene {
        change(&mut self.command);
        self
    }

    pub fn env(self, name: &str, value: &str) -> Scene {
        self.with(|command| {
            command.env(name, value);
        })
    }

    /// Runs in the new process just before the arena starts: only plain system calls.
    pub fn before_exec(self, act: impl Fn() + Send + Sync + 'static) -> Scene {
        self.with(|command| {
            let act = move || {
                act();
                Ok(())
            };
            #[allow(unsafe_code, reason = "the one way to run code between fork and exec")]
            // SAFETY: the callers make plain system calls only.
            unsafe {
                command.pre_exec(act);
            }
        })
    }

    /// Stdin is a pipe, whose write end is the run's `stdin`.
    pub fn stdin_pipe(mut self) -> Scene {
        self.stdin_pipe = true;
        self
    }

    /// Leaves stdout and stderr as `with` set them.
    pub fn no_capture(mut self) -> Scene {
        self.capture = false;
        self
    }

    /// The scene's processes have this uid (the arena, which ends them, keeps ours).
    pub fn uid(mut self, uid: u32) -> Scene {
        self.options.extend(["--uid".to_owned(), uid.to_string()]);
        self
    }

    /// The command is PID 1 of a PID namespace with a `/proc` of its own.
    pub fn pidns(mut self) -> Scene {
        self.options.push("--pidns".to_owned());
        self
    }

    /// On a terminal of its own, as the foreground job of a session; gives the other end of it.
    pub fn terminal(mut self) -> (Scene, OwnedFd) {
        let (master, slave) = sys::pty();
        self.options.push("--job".to_owned());
        let scene = self.no_capture().with(|command| {
            command.stdin(slave.try_clone().unwrap());
            command.stdout(slave.try_clone().unwrap()).stderr(slave);
        });
        let scene = scene.before_exec(|| {
            sys::setsid();
            sys::take_terminal(0).unwrap();
        });
        (scene, master)
    }

    pub fn start<S: AsRef<str>>(mut self, words: &[S]) -> Run {
        self.command
            .arg("arena")
            .arg(CONTROL.to_string())
            .args(&self.options)
            .arg("--");
        self.command.args(words.iter().map(AsRef::as_ref));
        let mut stdin = None;
        if self.stdin_pipe {
            let (read, write) = std::io::pipe().unwrap();
            self.command.stdin(read);
            stdin = Some(OwnedFd::from(write));
        }
        let mut streams = [None, None];
        if self.capture {
            let (out, out_write) = std::io::pipe().unwrap();
            let (err, err_write) = std::io::pipe().unwrap();
            self.command.stdout(out_write).stderr(err_write);
            streams = [
                Some(File::from(OwnedFd::from(out))),
                Some(File::from(OwnedFd::from(err))),
            ];
            for stream in streams.iter().flatten() {
                sys::set_nonblocking(stream.as_raw_fd());
            }
        }
        let child = self.command.spawn().expect("the arena");
        // Also lets go of our copies of the scene's stream ends, which would hide their end.
        let Scene {
            log,
            directory,
            control,
            ..
        } = self;
        let (near, far) = control;
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let [stdout, stderr] = streams;
        let mut run = Run {
            main: 0,
            stdin,
            log,
            arena: child,
            control: BufReader::new(near),
            exit: None,
            empty: false,
            stdout,
            stderr,
            said: Default::default(),
            directory,
        };
        drop(far);
        let line = run.line();
        let pid = line.strip_prefix("main ").and_then(|pid| pid.parse().ok());
        run.main = pid.unwrap_or_else(|| panic!("the arena said `{line}`: {}", run.stderr()));
        run
    }
}

/// How the command ended, and who of the scene was alive at that moment.
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

/// A running scene. Whatever becomes of the test, dropping it ends every process of the scene.
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
    said: [String; 2],
    directory: Directory,
}

impl Run {
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
            panic!("the arena said `{line}`; {}", self.stderr());
        }
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

    /// Waits for the command, which may leave nobody even for an instant.
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

    /// Whether the command ends within this time: for what must not happen.
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
        let mut found = Vec::new();
        until("the monitor", || {
            found = self.named("tree-monitor");
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].pid
    }

    /// The shim, also below a host.
    pub fn shim(&self) -> i32 {
        let mut found = Vec::new();
        until("the shim", || {
            found = self.named("treaper");
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].pid
    }

    /// Signals the command.
    pub fn signal(&self, signal: i32) {
        sys::kill(self.main, signal).unwrap();
    }

    /// All that came on stdout by now.
    pub fn stdout(&mut self) -> String {
        self.said[0] += &read(self.stdout.as_mut());
        self.said[0].clone()
    }

    /// All that came on stderr by now.
    pub fn stderr(&mut self) -> String {
        self.said[1] += &read(self.stderr.as_mut());
        self.said[1].clone()
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
        // The arena kills what it may; what is out of its reach, only a privileged test has made.
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
