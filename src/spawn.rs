//! Starting the server with exactly the state that treaper was given.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::output::error::{self, Error, Shown};
use crate::output::status;
use crate::sys::clone::{self, Setup};
use crate::sys::exec::{Failure, Image, Text};
use crate::sys::pid::Pid;
use crate::sys::{Errno, startup};

/// The directories in which a shell looks if PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Prepares the command, so that nothing needs an allocation between clone and exec. `notify_socket`: the server's
/// `NOTIFY_SOCKET`, if it is not that of treaper.
///
/// # Errors
/// An argument that no program can get.
pub fn prepare(command: &[OsString], notify_socket: Option<&OsStr>) -> Result<Image, Error> {
    let nul = || Error::Misuse("COMMAND contains a NUL byte".to_owned());
    let name = command
        .first()
        .ok_or_else(|| Error::Misuse("no COMMAND was given".to_owned()))?;
    let searched = !name.as_bytes().contains(&b'/');
    let candidates = if searched {
        let path = startup::variable("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        search_path(&path, name)
            .into_iter()
            .map(startup::c_string)
            .collect()
    } else {
        Some(vec![startup::c_string(name.clone()).ok_or_else(nul)?])
    };
    let arguments: Option<Vec<CString>> = command.iter().cloned().map(startup::c_string).collect();
    Ok(Image::new(
        candidates.ok_or_else(nul)?,
        searched,
        arguments.ok_or_else(nul)?,
        notify_socket,
    ))
}

/// The path of `name` in each directory of `path`. An empty directory is the working directory.
fn search_path(path: &OsStr, name: &OsStr) -> Vec<OsString> {
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let candidate = |directory: &[u8]| {
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        OsString::from_vec([directory, b"/", name.as_bytes()].concat())
    };
    directories.map(candidate).collect()
}

/// Makes the process that becomes the server. Its exec may fail later: see [`error`]. The pidfd is missing before
/// Linux 5.2.
///
/// # Errors
/// 125: no process could be made.
pub fn start(
    image: Image,
    setup: &Setup,
    cgroup: Option<BorrowedFd<'_>>,
    name: &OsStr,
) -> Result<(Pid, Option<OwnedFd>), Error> {
    let interpreter = setup.interpreter;
    let spawned = clone::spawn(image, setup, cgroup);
    spawned.map_err(|errno| error(Failure::Clone(errno), name, interpreter))
}

/// Why the server `name` was not started: 127 not found, 126 not executable, 125 no process could be made.
/// `interpreter`: the missing one, if this is why.
#[must_use]
pub fn error(failure: Failure, name: &OsStr, interpreter: Text) -> Error {
    let name = Shown(name);
    match failure {
        Failure::NotFound => {
            let message = format!("cannot find '{name}': {}", error::describe(Errno::NOENT));
            not_executed(status::NOT_FOUND, Errno::NOENT, message)
        }
        Failure::NotSearched(at) => {
            let directory = directory_of_path(at);
            let directory = Shown(&directory);
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

/// The directory of PATH with this index.
fn directory_of_path(at: usize) -> OsString {
    let path = startup::variable("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let directory = path.as_bytes().split(|byte| *byte == b':').nth(at);
    match directory {
        Some(directory) if !directory.is_empty() => OsStr::from_bytes(directory).to_owned(),
        Some(_) | None => ".".into(),
    }
}
