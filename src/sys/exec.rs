//! Becoming the server: what the new process executes, and why it could not.
//!
//! The new process may share our memory while we go on. So nothing here allocates, asks the libc for
//! anything that can fail (that would overwrite our `errno`), or changes what we read.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustix::fs::{FileType, Mode, OFlags};

use super::environment::Environment;
use super::{Errno, pid, raw, startup};

/// What the server is to be: everything prepared, since between clone and exec nothing may allocate.
pub struct Image {
    /// Where it may be, in the order of trial.
    candidates: Vec<CString>,
    /// `/bin/sh` and a slot for the path, then the arguments, then null: with the first entry left
    /// out a plain argv, with it the call of a script that has no `#!` line.
    argv: Vec<*const c_char>,
    /// Whether `candidates` come from PATH rather than from a path that was given.
    searched: bool,
    /// Unless ours will do.
    environment: Option<Environment>,
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
}

const SHELL: &CStr = c"/bin/sh";

impl Image {
    /// `candidates`: full paths to try (`searched`: made from PATH); `arguments`: argv, the command's name first;
    /// `notify_socket`: where the server finds its manager, if elsewhere than we do.
    #[must_use]
    pub fn new(
        candidates: Vec<CString>,
        searched: bool,
        arguments: Vec<CString>,
        notify_socket: Option<&OsStr>,
    ) -> Self {
        let mut argv = Vec::with_capacity(arguments.len() + 2);
        argv.push(SHELL.as_ptr());
        argv.extend(arguments.iter().map(|text| text.as_ptr()));
        argv.push(std::ptr::null());
        Self {
            candidates,
            searched,
            argv,
            environment: Environment::naming_another(notify_socket),
            _arguments: arguments,
        }
    }

    /// Tries the candidates as a shell does; returns only what went wrong. If an interpreter is missing, its name
    /// is left in `interpreter`.
    pub fn execute(&mut self, interpreter: Text) -> Failure {
        if let Some(environment) = &mut self.environment {
            environment.fill_in(pid::own());
        }
        let (mut found, mut closed, mut missing) = (None, None, Errno::NOENT);
        for at in 0..self.candidates.len() {
            let errno = self.try_candidate(at);
            // A directory of the command's name in PATH is no command.
            if exists(&self.candidates[at], self.searched) {
                found = found.or(Some((errno, at)));
            } else if errno != Errno::NOENT {
                missing = errno;
                closed = closed.or((errno == Errno::ACCESS).then_some(at));
            }
        }
        match found {
            // The file is there, so something else is not.
            Some((Errno::NOENT | Errno::NOTDIR, at)) => {
                interpreter.read_from(&self.candidates[at]);
                Failure::NoInterpreter
            }
            Some((errno, _)) => Failure::NotExecutable(errno),
            None if self.searched => closed.map_or(Failure::NotFound, Failure::NotSearched),
            None if missing == Errno::NOENT => Failure::NotFound,
            None => Failure::NotExecutable(missing),
        }
    }

    /// Executes one of them, by the shell if it is a script without a `#!` line.
    fn try_candidate(&mut self, at: usize) -> Errno {
        let environment = match &self.environment {
            Some(environment) => environment.as_ptr(),
            None => startup::environment(),
        };
        let path = self.candidates[at].as_ptr();
        let errno = execve(path, &self.argv[1..], environment);
        if errno == Errno::NOEXEC {
            let name = std::mem::replace(&mut self.argv[1], path);
            execve(SHELL.as_ptr(), &self.argv, environment);
            self.argv[1] = name;
        }
        errno
    }
}

/// `path` and what is in `argv` are NUL-terminated strings, and null ends both arrays, as everything in an [`Image`].
fn execve(path: *const c_char, argv: &[*const c_char], environment: *const *const c_char) -> Errno {
    let arguments = [
        path as usize,
        argv.as_ptr() as usize,
        environment as usize,
        0,
        0,
    ];
    // SAFETY: NUL-terminated strings in null-terminated arrays, owned by the image and by the C runtime.
    match unsafe { raw::call(libc::SYS_execve, arguments) } {
        Ok(_) => Errno::IO,
        Err(errno) => errno,
    }
}

fn exists(path: &CStr, but_no_directory: bool) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| {
        !(but_no_directory && FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    })
}

/// A short text in shared memory, left by the process that could not be executed: these words, all zero at first.
#[derive(Clone, Copy, Debug)]
pub struct Text(pub &'static [AtomicU64]);

impl Text {
    /// How many words are enough for a name.
    pub const WORDS: usize = 8;

    /// Remembers the interpreter that the first line of the script `path` names, as the kernel reads that line: up to
    /// the first blank. Nothing else ends the name, so that in a file from elsewhere a carriage return is a part of it.
    fn read_from(self, path: &CStr) {
        let mut line = [0_u8; 2 + Self::WORDS * 8];
        let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        let len = rustix::io::read(&file, &mut line).unwrap_or(0);
        // It is closed by the end of this process, and not by the libc.
        std::mem::forget(file);
        let Some(rest) = line[..len].strip_prefix(b"#!") else {
            return;
        };
        let is_blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
        let start = rest.iter().take_while(|byte| is_blank(byte)).count();
        let name = rest[start..].split(|byte| is_blank(byte) || *byte == b'\n');
        for (byte, at) in name.take(1).flatten().zip(0..) {
            if let Some(word) = self.0.get(at / 8) {
                word.fetch_or(u64::from(*byte) << (at % 8 * 8), SeqCst);
            }
        }
    }

    /// What was left, up to the first NUL. Allocates.
    #[must_use]
    pub fn get(self) -> Vec<u8> {
        let words = self.0.iter().map(|word| word.load(SeqCst).to_le_bytes());
        words.flatten().take_while(|byte| *byte != 0).collect()
    }
}

/// Why no server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process could not be made or set up.
    Clone(Errno),
    /// Its parent was gone before it could be armed against that.
    Orphaned,
    /// Nothing of that name.
    NotFound,
    /// Nothing of that name in those directories of PATH that may be searched; this one, counted from 0, may not.
    NotSearched(usize),
    /// Something of that name, which cannot be executed.
    NotExecutable(Errno),
    /// A script whose interpreter is not there, or a program whose dynamic loader is not.
    NoInterpreter,
}

impl Failure {
    /// As a non-zero word.
    #[must_use]
    pub fn encode(self) -> u64 {
        let (kind, detail) = match self {
            Self::Clone(errno) => (1, errno.raw_os_error()),
            Self::NotFound => (2, 0),
            Self::NotExecutable(errno) => (3, errno.raw_os_error()),
            Self::Orphaned => (4, 0),
            Self::NotSearched(at) => (5, at as i32),
            Self::NoInterpreter => (6, 0),
        };
        kind << 32 | detail as u64
    }

    /// The reverse; `None` for zero.
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        let errno = || Errno::from_raw_os_error(word as i32);
        Some(match word >> 32 {
            1 => Self::Clone(errno()),
            2 => Self::NotFound,
            3 => Self::NotExecutable(errno()),
            4 => Self::Orphaned,
            5 => Self::NotSearched(word as u32 as usize),
            6 => Self::NoInterpreter,
            _ => return None,
        })
    }
}
