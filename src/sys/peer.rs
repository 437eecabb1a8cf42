//! Unix sockets: ones that listen, who has connected, that of a service manager. See `unix(7)`.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::socket::{UnixCredentials, getsockopt, sockopt};
use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Errno, errno};

/// The longest path that the name of a socket can be.
pub const LONGEST_PATH: usize = 107;

/// A socket at `path`. From its first moment on only this user may connect to it. See `umask(2)`,
/// `bind(2)`. `EADDRINUSE`: there is something at `path`.
pub fn listen(path: &Path) -> Result<UnixListener, Errno> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(errno)?;
    listener.set_nonblocking(true).map_err(errno)?;
    Ok(listener)
}

/// Whether a process has the socket at `path` open. Connecting by another type fails with
/// `EPROTOTYPE` only if so, and makes no connection. Other errors: unknown. See `connect(2)`.
pub fn is_alive(path: &Path) -> Result<bool, Errno> {
    let address = SocketAddrUnix::new(path)?;
    match net::connect(datagram_socket()?, &address) {
        // A socket of treaper is a stream. One of datagrams belongs to another program.
        Ok(()) | Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Of the process that has called connect. The pid is 0 if it is outside of this PID namespace.
pub fn credentials(socket: BorrowedFd<'_>) -> Result<UnixCredentials, Errno> {
    getsockopt(&socket, sockopt::PeerCredentials).map_err(errno)
}

/// A pidfd of the process that has called connect, whatever has its number now. `ENOPROTOOPT`:
/// before Linux 6.5; `ESRCH` or `EINVAL`: it is gone.
pub fn process(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    getsockopt(&socket, sockopt::PeerPidfd).map_err(errno)
}

/// Sends `text` to the service manager at `address`: a path, or `@` and an abstract name. See
/// `sd_notify(3)`. `EAGAIN`: too many unread messages; `ENOENT`, `ECONNREFUSED`: no manager.
pub fn notify(address: &[u8], text: &[u8]) -> Result<(), Errno> {
    let address = match address {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path @ [b'/', ..] => SocketAddrUnix::new(path)?,
        _ => return Err(Errno::AFNOSUPPORT),
    };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendto(datagram_socket()?, text, flags, &address).map(drop)
}

fn datagram_socket() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
}
