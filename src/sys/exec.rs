//! Becoming the server: what the new process executes, and why it could not.
//!
//! The new process may share our memory while we go on. So nothing here allocates, asks the libc for
//! anything that can fail (that would overwrite our `errno`), or changes what we read.

use std::ffi::{CStr, CString, OsStr, c_char};

use rustix::fs::FileType;

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

    /// Tries the candidates as a shell does; returns only what went wrong.
    pub fn execute(&mut self) -> Failure {
        if let Some(environment) = &mut self.environment {
            environment.fill_in(pid::own());
        }
        let (mut found, mut missing) = (None, Errno::NOENT);
        for at in 0..self.candidates.len() {
            let errno = self.try_candidate(at);
            // A directory of the command's name in PATH is no command.
            if exists(&self.candidates[at], self.searched) {
                found = found.or(Some(errno));
            } else if errno != Errno::NOENT {
                missing = errno;
            }
        }
        match found {
            Some(errno) => Failure::NotExecutable(errno),
            // A directory of PATH that may not be searched hides nothing that we could run.
            None if self.searched => Failure::NotFound(Errno::NOENT),
            None if matches!(missing, Errno::NOENT | Errno::NOTDIR) => Failure::NotFound(missing),
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

/// Why no server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process could not be made or set up.
    Clone(Errno),
    /// Its parent was gone before it could be armed against that.
    Orphaned,
    /// Nothing of that name.
    NotFound(Errno),
    /// Something of that name, which cannot be executed.
    NotExecutable(Errno),
}

impl Failure {
    /// As a non-zero word.
    #[must_use]
    pub fn encode(self) -> u64 {
        let (kind, errno) = match self {
            Self::Clone(errno) => (1, errno),
            Self::NotFound(errno) => (2, errno),
            Self::NotExecutable(errno) => (3, errno),
            Self::Orphaned => (4, Errno::CHILD),
        };
        kind << 32 | errno.raw_os_error() as u64
    }

    /// The reverse; `None` for zero.
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        let errno = || Errno::from_raw_os_error(word as i32);
        Some(match word >> 32 {
            1 => Self::Clone(errno()),
            2 => Self::NotFound(errno()),
            3 => Self::NotExecutable(errno()),
            4 => Self::Orphaned,
            _ => return None,
        })
    }
}
