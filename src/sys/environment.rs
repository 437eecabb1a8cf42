//! The server's environment: ours, but for what names us by pid and means the server, and the socket that we relay.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use super::{pid, startup};

/// Variables by which a service manager tells a program that it is the one meant: it compares them
/// with its own pid. See `sd_listen_fds(3)`, `sd_watchdog_enabled(3)`, `systemd.exec(5)`.
const NAMING: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];
/// Names us by the inode of our pidfd; without it `LISTEN_PID` alone counts.
const INODE: &[u8] = b"LISTEN_PIDFDID=";
const SOCKET: &[u8] = b"NOTIFY_SOCKET=";
/// Digits of the longest pid, and the NUL.
const ROOM: usize = 11;

/// Whether the variable `name` holds our own pid.
#[must_use]
pub fn names_us(name: &str) -> bool {
    startup::variable(name).is_some_and(|text| text.as_bytes() == pid::own().to_string().as_bytes())
}

/// An environment in which those variables name another process, whose pid is filled in last, and
/// `NOTIFY_SOCKET` another socket.
pub struct Environment {
    entries: Vec<*const c_char>,
    /// The entries that are not the original ones, each with where its number begins.
    texts: Vec<(Vec<u8>, usize)>,
    /// Owns the entry of the socket.
    _socket: Option<CString>,
}

impl Environment {
    /// `None` if no variable names us and there is no `socket`: then the environment is handed on as it is.
    #[must_use]
    pub fn naming_another(socket: Option<&OsStr>) -> Option<Self> {
        let names: Vec<&str> = NAMING.into_iter().filter(|name| names_us(name)).collect();
        let socket = socket.and_then(|at| CString::new([SOCKET, at.as_bytes()].concat()).ok());
        if names.is_empty() && socket.is_none() {
            return None;
        }
        let (mut entries, mut texts) = (Vec::new(), Vec::new());
        for at in 0.. {
            // SAFETY: `environ` is an array that a null pointer ends, and we stop there.
            let place = unsafe { startup::environment().add(at) };
            // SAFETY: as above.
            let entry = unsafe { *place };
            if entry.is_null() {
                break;
            }
            // SAFETY: each entry is a NUL-terminated string that nobody changes.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
            if names.iter().any(|known| known.as_bytes() == name) {
                let start = name.len() + 1;
                let mut copy = text[..start].to_vec();
                copy.resize(start + ROOM, 0);
                entries.push(copy.as_ptr().cast());
                texts.push((copy, start));
            } else if let Some(socket) = socket.as_ref().filter(|_| text.starts_with(SOCKET)) {
                entries.push(socket.as_ptr());
            } else if !text.starts_with(INODE) {
                entries.push(entry);
            }
        }
        entries.push(std::ptr::null());
        Some(Self {
            entries,
            texts,
            _socket: socket,
        })
    }

    /// Writes `pid` into each of them. Allocates nothing.
    pub fn fill_in(&mut self, pid: i32) {
        for (text, start) in &mut self.texts {
            let mut room = &mut text[*start..];
            room.fill(0);
            let _ = write!(room, "{pid}");
        }
    }

    /// For `execve(2)`.
    #[must_use]
    pub fn as_ptr(&self) -> *const *const c_char {
        self.entries.as_ptr()
    }
}
