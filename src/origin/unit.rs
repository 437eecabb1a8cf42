//! The unit of a service manager, and the variables that name treaper but mean the server.

use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::output::report::To;
use crate::settings::value;
use crate::sys::exec::Strings;
use crate::sys::{Errno, peer, pid, startup};

/// A program obeys these variables only if they hold its own pid. See `sd_listen_fds(3)`,
/// `sd_watchdog_enabled(3)`, `systemd.exec(5)`.
const PID_VARIABLES: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];

/// What is for one run: a command at its end, and what is done with its stdin.
const OWN: &str = "FINALLY INJECT TURN CANCEL CANCEL_DRAIN BOUNDARY IDLE";

/// Whether a treaper in the tree must not find this entry of the environment. The server inherits
/// the report's descriptor only if it is 2, so the number would be another file there.
pub fn is_own(entry: &[u8]) -> bool {
    let setting = entry.strip_prefix(b"TREAPER_").unwrap_or_default();
    let parts = setting.splitn(2, |byte| *byte == b'=');
    let mut parts = parts.map(OsStr::from_bytes);
    let (name, text) = (parts.next(), parts.next().unwrap_or_default());
    let is_called = |own: &str| name == Some(own.as_ref());
    !setting.is_empty() && OWN.split(' ').any(is_called)
        || is_called("REPORT") && matches!(value::report(text), Ok(To::Descriptor(3..)))
}

/// Whether the variable `name` holds the pid of this process.
pub fn names_this_process(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|text| text.as_bytes() == pid::own().to_string().as_bytes())
}

/// Whether this process is the main process of a unit, and its manager understands the request of
/// [`ask_manager`]: systemd since version 254, the first one that sets `MEMORY_PRESSURE_WATCH`.
pub fn can_ask_manager() -> bool {
    names_this_process("SYSTEMD_EXEC_PID") && std::env::var_os("MEMORY_PRESSURE_WATCH").is_some()
}

/// Asks the manager to accept notifications of the server, which alone knows when it is ready; by
/// default only those of the main process count. It reads in order, so treaper need not wait.
pub fn ask_manager() -> Result<(), Errno> {
    match std::env::var_os("NOTIFY_SOCKET").filter(|_| can_ask_manager()) {
        Some(manager) => peer::notify(manager.as_bytes(), b"NOTIFYACCESS=all"),
        None => Ok(()),
    }
}

/// The environment of a server: without what [`is_own`] names, with its pid in `PID_VARIABLES`.
pub struct Environment {
    strings: Strings,
    /// The strings that hold a pid, each with the offset of the pid.
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
            // It names treaper by its pidfd. Without it, `LISTEN_PID` alone counts.
            let is_inode = !names.is_empty() && name == Some(b"LISTEN_PIDFDID".as_slice());
            if names.iter().any(|known| name == Some(known.as_bytes())) {
                pids.push((texts.len(), head.len()));
                // Room for the longest pid.
                texts.push([head, &[0; 10]].concat());
            } else if !is_own(text) && !is_inode {
                texts.push(text.to_vec());
            }
        }
        let strings = Strings::new(texts);
        Some(Self { strings, pids })
    }

    /// The pid in them is that of the calling process. Allocates nothing.
    pub fn strings(&mut self) -> &Strings {
        let pid = pid::own();
        for (at, start) in &self.pids {
            let _ = write!(&mut self.strings.text_mut(*at)[*start..], "{pid}");
        }
        &self.strings
    }
}
