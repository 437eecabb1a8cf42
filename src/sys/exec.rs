//! Becoming the server: what the new process executes, and why it could not.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustix::fs::{FileType, Mode, OFlags};

use super::environment::Environment;
use super::{Errno, last_errno, pid, startup};

/// What the new process executes. All of it is prepared, so that no failure but that of the exec is
/// left to report.
pub struct Image {
    /// The paths to try, in this order.
    candidates: Vec<CString>,
    /// `/bin/sh`, then the arguments, then null. Without the first entry it is the argv of the
    /// command. With it, and with the path in place of the command's name, it calls the shell for a
    /// script that has no `#!` line.
    argv: Vec<*const c_char>,
    /// Whether `candidates` come from PATH rather than from a path that was given.
    searched: bool,
    /// `None`: that of treaper.
    environment: Option<Environment>,
    /// Owns what `argv` points to.
    _arguments: Vec<CString>,
}

const SHELL: &CStr = c"/bin/sh";

impl Image {
    /// `candidates`: full paths to try (`searched`: made from PATH); `arguments`: argv, the
    /// command's name first.
    pub fn new(candidates: Vec<CString>, searched: bool, arguments: Vec<CString>) -> Self {
        let mut argv = Vec::with_capacity(arguments.len() + 2);
        argv.push(SHELL.as_ptr());
        argv.extend(arguments.iter().map(|text| text.as_ptr()));
        argv.push(std::ptr::null());
        Self {
            candidates,
            searched,
            argv,
            environment: Environment::naming_another(),
            _arguments: arguments,
        }
    }

    /// Tries the candidates as a shell does, and returns only if none could be executed. If an
    /// interpreter is missing, its name is written to `interpreter`.
    pub fn execute(&mut self, interpreter: Text) -> Failure {
        if let Some(environment) = &mut self.environment {
            environment.fill_in(pid::own());
        }
        let (mut found, mut closed, mut missing) = (None, None, Errno::NOENT);
        for at in 0..self.candidates.len() {
            let errno = self.try_candidate(at);
            // In PATH, a directory with the command's name is no command.
            if exists(&self.candidates[at], self.searched) {
                found = found.or(Some((errno, at)));
            } else if errno != Errno::NOENT {
                missing = errno;
                let is_closed = errno == Errno::ACCESS && !exists(&self.candidates[at], false);
                closed = closed.or(is_closed.then_some(at));
            }
        }
        match found {
            // The file is there, so the interpreter or the dynamic loader is missing.
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

    /// Executes one candidate, by the shell if it is a script without a `#!` line.
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

/// As in an [`Image`], `path` and the entries of `argv` are NUL-terminated strings, and null ends
/// both arrays.
fn execve(path: *const c_char, argv: &[*const c_char], environment: *const *const c_char) -> Errno {
    // SAFETY: NUL-terminated strings in null-terminated arrays, owned by the image and by the C
    // runtime.
    unsafe { libc::execve(path, argv.as_ptr(), environment) };
    last_errno()
}

fn exists(path: &CStr, but_no_directory: bool) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| {
        !(but_no_directory && FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    })
}

/// A short text in shared memory, written by the new process if its exec fails. All words are zero
/// at first.
#[derive(Clone, Copy, Debug)]
pub struct Text(pub &'static [AtomicU64]);

impl Text {
    /// How many words are enough for a name.
    pub const WORDS: usize = 8;

    /// Stores the name of the interpreter in the first line of the script `path`, as the kernel
    /// reads that line: the name ends at a blank or at the end of the line. In a file with DOS line
    /// ends, a carriage return is a part of it.
    fn read_from(self, path: &CStr) {
        let mut line = [0_u8; 2 + Self::WORDS * 8];
        let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        else {
            return;
        };
        let len = rustix::io::read(&file, &mut line).unwrap_or(0);
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

    /// The text, up to the first NUL. Allocates.
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
    /// Its parent ended before the parent-death signal was set.
    Orphaned,
    /// There is no file of that name.
    NotFound,
    /// There is no file of that name in the directories of PATH that may be searched. The one with
    /// this index may not.
    NotSearched(usize),
    /// There is a file of that name, and it cannot be executed.
    NotExecutable(Errno),
    /// The interpreter of the script, or the dynamic loader of the program, is missing.
    NoInterpreter,
}

impl Failure {
    /// As a word that is never zero.
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
