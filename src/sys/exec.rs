//! Executing a program, and why it could not become the server.

use std::ffi::{CStr, c_char};

use rustix::fs::FileType;

use super::{Errno, errno, startup};

pub const SHELL: &CStr = c"/bin/sh";

/// What execve takes, before the clone: nothing may be allocated between clone and exec.
pub struct Strings {
    /// The shell, then each text, then null.
    pointers: Vec<*const c_char>,
    texts: Vec<Vec<u8>>,
}

impl Strings {
    /// A NUL in a text would end it.
    pub fn new(mut texts: Vec<Vec<u8>>) -> Self {
        let end = |text: &mut Vec<u8>| {
            text.push(0);
            text.as_mut_ptr().cast_const().cast()
        };
        let mut pointers = vec![SHELL.as_ptr()];
        pointers.extend(texts.iter_mut().map(end));
        pointers.push(std::ptr::null());
        Self { pointers, texts }
    }

    /// What is written there begins at the first byte, and zeros end it.
    pub fn text_mut(&mut self, at: usize) -> &mut [u8] {
        match self.texts.get_mut(at).map(Vec::as_mut_slice) {
            Some([text @ .., _]) => text,
            _ => &mut [],
        }
    }
}

/// Executes `path` as execvp(3) does: by the shell if it is a script without a `#!` line. Without
/// an `environment` it gets that of this process. Returns only if that fails.
pub fn execute(path: &CStr, arguments: &mut Strings, environment: Option<&Strings>) -> Errno {
    let environment = environment.map_or(startup::environment(), |own| own.pointers[1..].as_ptr());
    let errno = execve(path, &arguments.pointers[1..], environment);
    if errno == Errno::NOEXEC && !arguments.texts.is_empty() {
        let name = std::mem::replace(&mut arguments.pointers[1], path.as_ptr());
        execve(SHELL, &arguments.pointers, environment);
        arguments.pointers[1] = name;
    }
    errno
}

fn execve(path: &CStr, argv: &[*const c_char], environment: *const *const c_char) -> Errno {
    // SAFETY: NUL-terminated strings in null-terminated arrays, of `Strings` and the C runtime.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environment) };
    errno(std::io::Error::last_os_error())
}

/// See `stat(2)`.
pub fn exists(path: &CStr, but_no_directory: bool) -> bool {
    let kind = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind.is_ok_and(|kind| !(but_no_directory && kind == FileType::Directory))
}

/// Why no server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process could not be made or set up.
    Clone(Errno),
    /// Its parent ended before the parent-death signal was set.
    Orphaned,
    /// The error is that of execvp(3), which may be that of a directory with the name.
    NotFound(Errno),
    /// No directory of PATH that may be searched has the file. The one with this index may not.
    NotSearched(usize),
    NotExecutable(Errno),
    /// An interpreter or loader is missing. The file is the candidate of this index.
    NoInterpreter(usize),
}

impl Failure {
    /// As a word that is never zero.
    pub fn encode(self) -> u64 {
        let (kind, detail) = match self {
            Self::Clone(errno) => (1, errno.raw_os_error()),
            Self::NotFound(errno) => (2, errno.raw_os_error()),
            Self::NotExecutable(errno) => (3, errno.raw_os_error()),
            Self::Orphaned => (4, 0),
            Self::NotSearched(at) => (5, at as i32),
            Self::NoInterpreter(at) => (6, at as i32),
        };
        kind << 32 | detail as u64
    }

    pub fn decode(word: u64) -> Option<Self> {
        let errno = || Errno::from_raw_os_error(word as i32);
        Some(match word >> 32 {
            1 => Self::Clone(errno()),
            2 => Self::NotFound(errno()),
            3 => Self::NotExecutable(errno()),
            4 => Self::Orphaned,
            5 => Self::NotSearched(word as u32 as usize),
            6 => Self::NoInterpreter(word as u32 as usize),
            _ => return None,
        })
    }
}
