//! A scene before it runs: which process starts the server, as which user, with which streams and environment.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::arena::Run;
use super::log::Log;
use super::{ACTOR, TREAPER, special, sys, unique};

/// The number of the arena's end of the control socket: higher than every descriptor of a scene.
const CONTROL: RawFd = 900;

/// By what a server is started: by treaper with these options, or directly, as the negative control.
#[derive(Debug, Clone, Copy)]
pub enum Wrap<'a> {
    Treaper(&'a [&'a str]),
    Bare,
}

impl Wrap<'_> {
    /// The whole command: treaper, its options, and `command`. Bare, only `command`.
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

/// Everything about a run before it starts. By default stdin is `/dev/null`, and stdout and stderr are
/// pipes that the run collects.
pub struct Scene {
    command: Command,
    options: Vec<String>,
    directory: Directory,
    log: Log,
    stdin_pipe: bool,
    capture: bool,
    control: (UnixStream, UnixStream),
}

/// A directory for the files of one scene, removed with it.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Directory {
        let name = format!("treaper-test-{}", unique());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        Directory(path)
    }
}

impl Directory {
    /// Makes a program, as [`copy_program`].
    pub fn program(&self, name: &str, text: &[u8]) -> String {
        let (written, path) = (self.0.join(format!("{name}.new")), self.0.join(name));
        std::fs::write(&written, text).unwrap();
        std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&written, &path);
        path.to_str().unwrap().to_owned()
    }
}

/// Copies a program. Another process writes the copy: a process that another test forks here meanwhile would have it open
/// for writing, and the kernel executes no such file (ETXTBSY).
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("cp");
    let copy = copy.arg(from.as_ref()).arg(to.as_ref());
    assert!(copy.status().unwrap().success());
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
        sys::leave_terminal();
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
        // Before all other hooks: a later one may put another file at the number of the socket.
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

    /// Adds a hook that runs in the new process just before the arena starts. It may only make plain system calls.
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

    /// Stderr is a file that has reached the size limit: every write to it fails, with a SIGXFSZ.
    pub fn stderr_at_its_size_limit(self) -> Scene {
        let file = File::create(self.directory().join("stderr")).unwrap();
        let scene = self.no_capture().with(|command| {
            command.stdout(Stdio::null()).stderr(file);
        });
        scene.before_exec(|| special::set_limit(libc::RLIMIT_FSIZE, 0))
    }

    /// The processes of the scene have this uid. The arena, which ends them, keeps that of the test.
    pub fn uid(mut self, uid: u32) -> Scene {
        self.options.extend(["--uid".to_owned(), uid.to_string()]);
        self
    }

    /// The process that adopts the orphans of the scene has this command name.
    pub fn reaper_named(mut self, name: &str) -> Scene {
        let name = ["--name".to_owned(), name.to_owned()];
        self.options.extend(name);
        self
    }

    /// The command is PID 1 of a PID namespace with a `/proc` of its own.
    pub fn pidns(mut self) -> Scene {
        super::skip::needs("pidns");
        self.options.push("--pidns".to_owned());
        self
    }

    /// On a terminal of its own, as the foreground job of a session. Returns the other end of the terminal.
    pub fn terminal(mut self) -> (Scene, OwnedFd) {
        self.options.push("--job".to_owned());
        self.terminal_without_a_shell()
    }

    /// On a terminal of its own, with no process in the session that could resume it.
    pub fn terminal_without_a_shell(self) -> (Scene, OwnedFd) {
        let (master, slave) = special::pty();
        let scene = self.no_capture().with(|command| {
            command.stdin(slave.try_clone().unwrap());
            command.stdout(slave.try_clone().unwrap()).stderr(slave);
        });
        let scene = scene.before_exec(|| {
            sys::setsid();
            special::take_terminal(0).unwrap();
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
            let (read, write) = super::sys::pipe().unwrap();
            self.command.stdin(read);
            stdin = Some(OwnedFd::from(write));
        }
        let mut streams = [None, None];
        if self.capture {
            let (out, out_write) = super::sys::pipe().unwrap();
            let (err, err_write) = super::sys::pipe().unwrap();
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
        // This also closes the test's copies of the scene's streams, which would hide their end.
        let Scene {
            log,
            directory,
            control,
            ..
        } = self;
        let (near, far) = control;
        drop(far);
        Run::new(child, near, stdin, streams, log, directory)
    }
}
