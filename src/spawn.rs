//! The command of the server: what is executed, and why it could not be.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::output::error::{self, Error, Shown};
use crate::output::status;
use crate::sys::Errno;
use crate::sys::exec::{Failure, Image, Text};

/// The directories in which execvp(3) looks if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Prepares the command, so that nothing needs an allocation between clone and exec.
///
/// # Errors
/// An argument that no program can get.
pub fn prepare(command: &[OsString]) -> Result<Image, Error> {
    let nul = || Error::Misuse("COMMAND contains a NUL byte".to_owned());
    let name = command
        .first()
        .ok_or_else(|| Error::Misuse("no COMMAND was given".to_owned()))?;
    let searched = !name.as_bytes().contains(&b'/');
    let candidates = if searched {
        let in_directory = |mut path: OsString| {
            path.push("/");
            path.push(name);
            path
        };
        directories_of_path()
            .into_iter()
            .map(in_directory)
            .collect()
    } else {
        vec![name.clone()]
    };
    let c_string = |text: &OsString| CString::new(text.as_bytes()).map_err(|_| nul());
    let candidates: Result<_, Error> = candidates.iter().map(c_string).collect();
    let arguments: Result<_, Error> = command.iter().map(c_string).collect();
    Ok(Image::new(candidates?, searched, arguments?))
}

/// The directories of PATH. An empty one is the working directory.
fn directories_of_path() -> Vec<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let or_dot =
        |name: &[u8]| OsString::from_vec(if name.is_empty() { b"." } else { name }.to_vec());
    directories.map(or_dot).collect()
}

/// Why the server `name` was not started: 127 not found, 126 not executable, 125 no process could
/// be made. `interpreter`: the missing one, if this is why.
pub fn error(failure: Failure, name: &OsStr, interpreter: Text) -> Error {
    let name = Shown(name);
    match failure {
        Failure::NotFound => {
            let message = format!("cannot find '{name}': {}", error::describe(Errno::NOENT));
            not_executed(status::NOT_FOUND, Errno::NOENT, message)
        }
        Failure::NotSearched(at) => {
            let directories = directories_of_path();
            let directory = Shown(directories.get(at).map_or(OsStr::new("."), |name| name));
            let message = format!(
                "cannot find '{name}' in PATH: treaper is not permitted to search the directory '{directory}'"
            );
            not_executed(status::NOT_FOUND, Errno::ACCESS, message)
        }
        Failure::NotExecutable(errno) => {
            let message = format!("cannot execute '{name}': {}", error::describe(errno));
            not_executed(status::NOT_EXECUTABLE, errno, message)
        }
        Failure::NoInterpreter => {
            let missing = missing(&interpreter.get());
            let message = format!("cannot execute '{name}': {missing}");
            not_executed(status::NOT_EXECUTABLE, Errno::NOENT, message)
        }
        Failure::Clone(errno) => Error::kernel(&format!("start '{name}'"), errno),
        Failure::Orphaned => Error::Gone("the monitor is gone, so COMMAND was not started"),
    }
}

fn not_executed(status: u8, cause: Errno, message: String) -> Error {
    Error::NotExecuted {
        status,
        cause,
        message,
    }
}

fn missing(interpreter: &[u8]) -> String {
    if interpreter.is_empty() {
        return "the dynamic loader that it names does not exist".to_owned();
    }
    let remedy = if interpreter.ends_with(b"\r") {
        "; the lines of this file end with CR LF"
    } else {
        ""
    };
    let interpreter = Shown(OsStr::from_bytes(interpreter));
    format!("its interpreter '{interpreter}' does not exist{remedy}")
}
