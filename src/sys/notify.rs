//! The service manager, and whose notifications it accepts. See `sd_notify(3)`.
//!
//! By default systemd accepts only those of the main process of a unit. That is treaper, but only
//! the server knows when it is ready. Since version 254 the main process can ask systemd to accept
//! the others as well. For an older one, the unit needs `NotifyAccess=all`.

use std::os::unix::ffi::OsStrExt;

use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Errno, environment};

/// Whether this process can ask the manager: it is the main process of a unit, and this systemd is
/// one that sets `MEMORY_PRESSURE_WATCH`, as only those since version 254 do.
pub fn can_ask_manager() -> bool {
    environment::names_this_process("SYSTEMD_EXEC_PID")
        && std::env::var_os("MEMORY_PRESSURE_WATCH").is_some()
}

/// Asks the manager to accept the server's notifications, if there is a manager that can be asked.
/// It reads its messages in the order in which they were sent, so treaper need not wait until it
/// has read this one. See `unix(7)`. Allocates.
///
/// # Errors
/// `EAGAIN`: it has too many unread messages; `ENOENT`, `ECONNREFUSED`: there is no manager;
/// `EAFNOSUPPORT`: its address is neither a path nor an abstract name.
pub fn ask_manager() -> Result<(), Errno> {
    let Some(manager) = std::env::var_os("NOTIFY_SOCKET").filter(|_| can_ask_manager()) else {
        return Ok(());
    };
    let address = match manager.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path @ [b'/', ..] => SocketAddrUnix::new(path)?,
        _ => return Err(Errno::AFNOSUPPORT),
    };
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendto(socket, b"NOTIFYACCESS=all", flags, &address)?;
    Ok(())
}
