//! The server's environment: that of treaper, except for variables that name treaper by its pid and
//! mean the server.

use std::ffi::c_char;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use super::{pid, startup};

/// Variables in which a service manager names one process: a program obeys them only if they hold
/// its own pid. See `sd_listen_fds(3)`, `sd_watchdog_enabled(3)`, `systemd.exec(5)`.
const PID_VARIABLES: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];
/// Names this process by the inode of its pidfd. Without this variable `LISTEN_PID` alone counts.
const INODE: &[u8] = b"LISTEN_PIDFDID=";
/// The bytes of the longest pid in digits, with the NUL.
const PID_SIZE: usize = 11;

/// Whether the variable `name` holds the pid of this process.
pub fn names_this_process(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|text| text.as_bytes() == pid::own().to_string().as_bytes())
}

/// An environment in which these variables name another process. The pid is written later, by
/// [`Self::fill_in`].
pub struct Environment {
    entries: Vec<*const c_char>,
    /// The entries that hold a pid, each with the offset at which the pid begins.
    texts: Vec<(Vec<u8>, usize)>,
}

impl Environment {
    /// `None` if no variable names this process: then the server gets the original environment.
    pub fn naming_another() -> Option<Self> {
        let names: Vec<&str> = PID_VARIABLES
            .into_iter()
            .filter(|name| names_this_process(name))
            .collect();
        if names.is_empty() {
            return None;
        }
        let (mut entries, mut texts) = (Vec::new(), Vec::new());
        for entry in startup::entries() {
            let text = entry.to_bytes();
            let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
            if names.iter().any(|known| known.as_bytes() == name) {
                let start = name.len() + 1;
                let mut copy = text[..start].to_vec();
                copy.resize(start + PID_SIZE, 0);
                entries.push(copy.as_ptr().cast());
                texts.push((copy, start));
            } else if !text.starts_with(INODE) {
                entries.push(entry.as_ptr());
            }
        }
        entries.push(std::ptr::null());
        Some(Self { entries, texts })
    }

    /// Writes `pid` into each entry that holds one. Allocates nothing.
    pub fn fill_in(&mut self, pid: i32) {
        for (text, start) in &mut self.texts {
            let mut room = &mut text[*start..];
            room.fill(0);
            let _ = write!(room, "{pid}");
        }
    }

    /// For `execve(2)`.
    pub fn as_ptr(&self) -> *const *const c_char {
        self.entries.as_ptr()
    }
}
