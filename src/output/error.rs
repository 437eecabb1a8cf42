//! Why treaper did not start the server. Once it has started, there are only messages.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

use crate::output::status;
use crate::sys::{Errno, proc};

/// One line for the user, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Error {
    pub message: String,
    pub status: u8,
    /// Why COMMAND could not be executed, if that is what failed.
    pub cause: Option<Errno>,
}

impl Error {
    /// Anything but that COMMAND could not be executed.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            status: status::OWN_FAILURE,
            cause: None,
        }
    }

    /// `cannot <verb> <object>: <errno text>`
    pub fn kernel(what: &str, errno: Errno) -> Self {
        Self::new(format!("cannot {what}: {}", describe(errno)))
    }

    /// As [`Self::kernel`], if the call was to make a process.
    pub fn no_process(what: &str, errno: Errno) -> Self {
        let mut error = Self::kernel(what, errno);
        if errno == Errno::AGAIN {
            error.message += "; treaper needs room for three more processes (ulimit -u, or pids.max of the control group)";
        }
        error
    }
}

/// The text of an errno, without the number that std appends.
pub fn describe(errno: Errno) -> String {
    if errno == proc::FOREIGN {
        return "/proc is missing, or is that of another PID namespace".to_owned();
    }
    let mut text = std::io::Error::from(errno).to_string();
    text.truncate(text.rfind(" (os error").unwrap_or(text.len()));
    text
}

/// Why `open` with `O_APPEND` and `O_NONBLOCK` has failed.
pub fn why_not_opened(errno: Errno) -> String {
    match errno {
        Errno::NXIO => "no process reads this FIFO, or it is a socket".to_owned(),
        errno => describe(errno),
    }
}

/// A name in a message. Control characters and bytes that are not UTF-8 are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a OsStr);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.as_bytes().utf8_chunks() {
            for char in chunk.valid().chars() {
                if char.is_control() {
                    write!(f, "{}", char.escape_default())?;
                } else {
                    f.write_char(char)?;
                }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
