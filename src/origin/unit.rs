//! The unit of a service manager in which this process runs, and the variables by which the manager
//! names one process of it. They name treaper by its pid, and mean the server.

use std::ffi::CStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::sys::exec::Strings;
use crate::sys::{Errno, notify, pid, startup};

/// Variables in which a service manager names one process: a program obeys them only if they hold
/// its own pid. See `sd_listen_fds(3)`, `sd_watchdog_enabled(3)`, `systemd.exec(5)`.
const PID_VARIABLES: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];
/// Names this process by the inode of its pidfd. Without this variable `LISTEN_PID` alone counts.
const INODE: &[u8] = b"LISTEN_PIDFDID=";
/// A descriptor of the report, which the server does not inherit: for a treaper in its tree this
/// number would be another file.
const DESCRIPTOR: &[u8] = b"TREAPER_REPORT=fd:";
/// It would run the command once more, while the server of this one still works.
const FINALLY: &[u8] = b"TREAPER_FINALLY=";
/// This descriptor it inherits.
const STDERR: &[u8] = b"TREAPER_REPORT=fd:2";
/// The longest pid, in digits.
const DIGITS: usize = 10;

/// Whether a treaper in the tree must not find this entry of the environment.
pub fn is_own(entry: &[u8]) -> bool {
    entry.starts_with(DESCRIPTOR) && entry != STDERR || entry.starts_with(FINALLY)
}

/// Whether the variable `name` holds the pid of this process.
pub fn names_this_process(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|text| text.as_bytes() == pid::own().to_string().as_bytes())
}

/// Whether this process can ask the manager to accept the server's notifications: it is the main
/// process of a unit, and this systemd is one that sets `MEMORY_PRESSURE_WATCH`, as only those
/// since version 254 do. For an older one, the unit needs `NotifyAccess=all`.
pub fn can_ask_manager() -> bool {
    names_this_process("SYSTEMD_EXEC_PID") && std::env::var_os("MEMORY_PRESSURE_WATCH").is_some()
}

/// Asks the manager to accept the server's notifications, if there is a manager that can be asked.
/// By default systemd accepts only those of the main process of a unit. That is treaper, but only
/// the server knows when it is ready. The manager reads its messages in the order in which they
/// were sent, so treaper need not wait until it has read this one.
pub fn ask_manager() -> Result<(), Errno> {
    match std::env::var_os("NOTIFY_SOCKET").filter(|_| can_ask_manager()) {
        Some(manager) => notify::send(manager.as_bytes(), b"NOTIFYACCESS=all"),
        None => Ok(()),
    }
}

/// The environment of a server: these variables name it, and those of [`is_own`] are missing. The
/// pid is written later, by [`Self::fill_in`].
#[derive(Debug)]
pub struct Environment {
    pub strings: Strings,
    /// The strings that hold a pid, each with the offset at which the pid begins.
    pids: Vec<(usize, usize)>,
}

impl Environment {
    /// `None`: nothing is different from the environment of this process.
    pub fn of_server() -> Option<Self> {
        let mut names = PID_VARIABLES.to_vec();
        names.retain(|name| names_this_process(name));
        if names.is_empty() && !startup::entries().any(|text| is_own(text.to_bytes())) {
            return None;
        }
        let (mut texts, mut pids) = (Vec::new(), Vec::new());
        for text in startup::entries().map(CStr::to_bytes) {
            let parts = text.split_inclusive(|byte| *byte == b'=').next();
            let head = parts.unwrap_or_default();
            let name = head.strip_suffix(b"=");
            if names.iter().any(|known| name == Some(known.as_bytes())) {
                pids.push((texts.len(), head.len()));
                texts.push([head, &[0; DIGITS]].concat());
            } else if !(is_own(text) || !names.is_empty() && text.starts_with(INODE)) {
                texts.push(text.to_vec());
            }
        }
        let strings = Strings::new(texts);
        Some(Self { strings, pids })
    }

    /// Writes `pid` into each string that holds one. Allocates nothing.
    pub fn fill_in(&mut self, pid: i32) {
        for (at, start) in &self.pids {
            let _ = write!(&mut self.strings.text_mut(*at)[*start..], "{pid}");
        }
    }
}
