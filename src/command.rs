//! The command of the server, and that of `--finally`: where it is, and why it was not executed.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::origin::unit::{self, Environment};
use crate::output::error::{self, Error, Shown};
use crate::output::status;
use crate::sys::exec::{self, Failure, Strings};
use crate::sys::{Errno, fd, startup};

/// What the new process executes. All of it is prepared: no failure but that of the exec is left,
/// and nothing needs an allocation between clone and exec.
pub struct Command {
    /// The paths to try, in this order.
    candidates: Vec<CString>,
    /// Whether `candidates` come from PATH.
    searched: bool,
    arguments: Strings,
    /// `None`: that of treaper.
    environment: Option<Environment>,
}

impl Command {
    pub fn prepare(words: &[OsString]) -> Result<Self, Error> {
        let nul = |_| Error::new("COMMAND contains a NUL byte");
        let name = &words[0];
        let paths = candidates(name).into_iter().map(OsString::into_vec);
        let candidates: Result<_, _> = paths.map(CString::new).collect();
        let text = |word: &OsString| CString::new(word.as_bytes()).map(CString::into_bytes);
        let arguments: Result<_, _> = words.iter().map(text).collect();
        Ok(Self {
            candidates: candidates.map_err(nul)?,
            searched: is_searched(name),
            arguments: Strings::new(arguments.map_err(nul)?),
            environment: Environment::of_server(),
        })
    }

    /// Tries the candidates as a shell does, and returns only if none could be executed.
    pub fn execute(&mut self) -> Failure {
        let environment = self.environment.as_mut().map(Environment::strings);
        let (mut found, mut closed, mut missing) = (None, None, Errno::NOENT);
        for (at, path) in self.candidates.iter().enumerate() {
            let errno = exec::execute(path, &mut self.arguments, environment);
            // In PATH, a directory with the command's name is no command.
            if exec::exists(path, self.searched) {
                found = found.or(Some((errno, at)));
            } else if errno == Errno::ACCESS {
                missing = errno;
                closed = closed.or((!exec::exists(path, false)).then_some(at));
            } else if missing != Errno::ACCESS {
                // As with execvp(3), the last error counts, or EACCES if there was one.
                missing = errno;
            }
        }
        match found {
            // The file is there, so the interpreter or the dynamic loader is missing.
            Some((Errno::NOENT | Errno::NOTDIR, at)) => Failure::NoInterpreter(at),
            Some((errno, _)) => Failure::NotExecutable(errno),
            None if self.searched || missing == Errno::NOENT => {
                closed.map_or(Failure::NotFound(missing), Failure::NotSearched)
            }
            None => Failure::NotExecutable(missing),
        }
    }
}

/// Executes `/bin/sh -c text` in `directory`, or else in `/`. Returns only if that fails.
pub fn execute_last(text: &OsStr, directory: &Path, variables: &[(&str, &str)]) -> Errno {
    let is_kept = |entry: &&[u8]| {
        let name = entry.split(|byte| *byte == b'=').next();
        let mut replaced = variables.iter().map(|(known, _)| Some(known.as_bytes()));
        !replaced.any(|known| known == name) && !unit::is_own(entry)
    };
    let inherited = startup::entries().map(CStr::to_bytes).filter(is_kept);
    let entry = |(name, value): &(&str, &str)| format!("{name}={value}").into_bytes();
    let own = variables.iter().map(entry);
    let environment = Strings::new(inherited.map(<[u8]>::to_vec).chain(own).collect());
    let shell = exec::SHELL;
    let words = [shell.to_bytes(), b"-c", text.as_bytes()].map(<[u8]>::to_vec);
    if std::env::set_current_dir(directory).is_err() {
        fd::leave_directory();
    }
    fd::separate_streams();
    exec::execute(shell, &mut Strings::new(words.to_vec()), Some(&environment))
}

fn is_searched(name: &OsStr) -> bool {
    !name.as_bytes().contains(&b'/') && !["", ".", ".."].iter().any(|path| name == *path)
}

fn candidates(name: &OsStr) -> Vec<OsString> {
    if !is_searched(name) {
        return vec![name.to_owned()];
    }
    let below = |directory: OsString| [&*directory, "/".as_ref(), name].into_iter().collect();
    directories_of_path().into_iter().map(below).collect()
}

/// The directories of PATH. An empty one is the working directory.
fn directories_of_path() -> Vec<OsString> {
    // As in execvp(3).
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let or_dot = |name: &[u8]| if name.is_empty() { b"." } else { name }.to_vec();
    directories.map(or_dot).map(OsString::from_vec).collect()
}

/// Why the server `name` was not started in `directory`.
pub fn error(failure: Failure, name: &OsStr, directory: &Path) -> Error {
    let shown = Shown(name);
    let cannot_execute = |why: &str| format!("cannot execute '{shown}': {why}");
    let (status, cause, message) = match failure {
        Failure::NotFound(errno) => {
            let why = error::describe(Errno::NOENT);
            let message = format!("cannot find '{shown}': {why}{}", hint(name));
            (status::NOT_FOUND, errno, message)
        }
        Failure::NotSearched(at) => {
            let directories = directories_of_path();
            let directory = Shown(directories.get(at).map_or(OsStr::new("."), |name| name));
            let why = "treaper is not permitted to search the directory";
            let message = format!("cannot find '{shown}' in PATH: {why} '{directory}'");
            (status::NOT_FOUND, Errno::ACCESS, message)
        }
        Failure::NotExecutable(errno) => {
            // The kernel does not say so.
            let is_directory = errno == Errno::ACCESS && directory.join(name).is_dir();
            let why = error::describe(if is_directory { Errno::ISDIR } else { errno });
            (status::NOT_EXECUTABLE, errno, cannot_execute(&why))
        }
        Failure::NoInterpreter(at) => {
            let path = candidates(name).into_iter().nth(at).unwrap_or_default();
            let why = missing_interpreter(&directory.join(path));
            (status::NOT_EXECUTABLE, Errno::NOENT, cannot_execute(&why))
        }
        Failure::Clone(errno) => return Error::no_process(&format!("start '{shown}'"), errno),
        Failure::Orphaned => return Error::new("the monitor is gone, so COMMAND was not started"),
    };
    Error {
        message,
        status,
        cause: Some(cause),
    }
}

/// What to write instead of a `name` that means something to a shell.
fn hint(name: &OsStr) -> &'static str {
    const BUILTINS: [&[u8]; 6] = [b"cd", b"source", b"alias", b"export", b"set", b"ulimit"];
    let name = name.as_bytes();
    let word = name.split(|byte| *byte == b'=').next().unwrap_or_default();
    if name.iter().any(|byte| b" ;|&<>$`(".contains(byte)) {
        "; for a line of a shell, write: treaper sh -c 'LINE'"
    } else if word.len() < name.len() && !word.contains(&b'/') {
        "; to set a variable, write: treaper env NAME=VALUE COMMAND"
    } else if BUILTINS.contains(&name) {
        "; it is a command of the shell, so write: treaper sh -c 'LINE'"
    } else {
        ""
    }
}

/// Says which interpreter of `path` is missing. In the first line, the kernel ends the name at a
/// blank or at the end of the line, so with DOS line ends it includes a carriage return.
fn missing_interpreter(path: &Path) -> String {
    let mut line = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(256).read_to_end(&mut line));
    let rest = line.strip_prefix(b"#!").unwrap_or_default();
    let mut words = rest.split(|byte| matches!(*byte, b' ' | b'\t' | b'\n'));
    let Some(interpreter) = words.find(|word| !word.is_empty()) else {
        return "the dynamic loader that it names does not exist".to_owned();
    };
    let remedy = match interpreter.last() {
        Some(b'\r') => "; the lines of this file end with CR LF",
        _ => "",
    };
    let interpreter = Shown(OsStr::from_bytes(interpreter));
    format!("its interpreter '{interpreter}' does not exist{remedy}")
}
