//! A word to the service manager. See `sd_notify(3)`.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::{environment, startup};

/// Lets READY=1 and WATCHDOG=1 count that come from another process of the unit than the main one,
/// if we are that one: it will not be us who sends them. Since systemd 254; older ones pass it over.
///
/// # Errors
/// Those of `sendto(2)`; also if it would have to wait.
pub fn let_the_server_notify() -> Result<()> {
    if !environment::names_us("SYSTEMD_EXEC_PID") {
        return Ok(());
    }
    match startup::variable("NOTIFY_SOCKET") {
        Some(name) => send(&name, b"NOTIFYACCESS=all"),
        None => Ok(()),
    }
}

/// `name` is a path, or an abstract name after an `@`.
fn send(name: &OsStr, text: &[u8]) -> Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(Error::from(ErrorKind::Unsupported)),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(text, &address).map(drop)
}
