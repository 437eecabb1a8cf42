//! Starting the server with exactly the state that we were given.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::{self, Error};
use crate::kill::Server;
use crate::status;
use crate::sys::clone::{self, Failure, Group, Image, Setup};
use crate::sys::startup;

/// Where a shell looks when PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Prepares the command: after this, starting it allocates nothing. `notify_socket`: what it gets for `NOTIFY_SOCKET`, if another.
///
/// # Errors
/// An argument that no program can be given.
pub fn prepare(command: &[OsString], notify_socket: Option<&OsStr>) -> Result<Image, Error> {
    let nul = || Error::usage("COMMAND has a NUL byte in it");
    let name = command
        .first()
        .ok_or_else(|| Error::usage("no COMMAND was given"))?;
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

/// Each directory of `path` with `name` behind it; an empty one is the working directory.
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

/// Starts the server.
///
/// # Errors
/// 127 not found, 126 not executable, 125 no process could be made.
pub fn start(image: &mut Image, setup: &Setup<'_>, name: &OsStr) -> Result<Server, Error> {
    match clone::spawn(image, setup) {
        Ok((pid, pidfd)) => Ok(Server {
            pid,
            pidfd,
            leads_group: setup.group == Group::Own,
            reaped: false,
            suspended: Some(false),
            told: false,
        }),
        Err(Failure::NotFound(errno)) => {
            let message = format!(
                "cannot find '{}': {}",
                name.display(),
                error::describe(errno)
            );
            Err(Error::exec(status::NOT_FOUND, errno, message))
        }
        Err(Failure::NotExecutable(errno)) => {
            let message = format!(
                "cannot execute '{}': {}",
                name.display(),
                error::describe(errno)
            );
            Err(Error::exec(status::NOT_EXECUTABLE, errno, message))
        }
        Err(Failure::Clone(errno)) => {
            Err(Error::kernel(&format!("start '{}'", name.display()), errno))
        }
    }
}
