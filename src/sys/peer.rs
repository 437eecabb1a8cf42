//! Unix sockets that other processes connect to, and who they are. See `unix(7)`.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Errno, check};

/// The longest path that the name of a socket can be.
pub const LONGEST_PATH: usize = 107;

/// Who has connected.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// 0: it is outside of this PID namespace.
    pub pid: i32,
    pub uid: u32,
}

/// A socket at `path` that listens. From its first moment on only this user may connect to it. See
/// `umask(2)`.
///
/// # Errors
/// `EADDRINUSE`: there is something at `path`. Others of `bind(2)`.
pub fn listen(path: &Path) -> Result<UnixListener, Errno> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let listener = bound.map_err(errno)?;
    listener.set_nonblocking(true).map_err(errno)?;
    Ok(listener)
}

/// Whether a process has the socket at `path` open. No connection is made: the attempt is one of
/// another type, which the kernel refuses only after it has found the socket. See `EPROTOTYPE` in
/// `connect(2)`.
///
/// # Errors
/// It cannot be known: `EACCES`, ...
pub fn is_alive(path: &Path) -> Result<bool, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    match net::connect(&socket, &address) {
        // A socket of treaper is a stream. One of datagrams belongs to another program.
        Ok(()) | Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Who has called connect: `SO_PEERCRED`.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn credentials(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let unset = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let found = socket_option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, unset)?;
    Ok(Credentials {
        pid: found.pid,
        uid: found.uid,
    })
}

/// As `<asm-generic/socket.h>` has it.
const SO_PEERPIDFD: i32 = 77;

/// A pidfd of the process that has called connect, whatever has its number now.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.5; `ESRCH` or `EINVAL`: it is gone.
pub fn process(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let found: libc::c_int = socket_option(socket, libc::SOL_SOCKET, SO_PEERPIDFD, -1)?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// A type of which all bits are a valid value.
pub(super) trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for libc::c_int {}
impl Plain for libc::ucred {}

/// An option of a socket, written over `value`. See `getsockopt(2)`.
pub(super) fn socket_option<T: Plain>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    mut value: T,
) -> Result<T, Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let (fd, at) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: room for the value, and a live length.
    check(unsafe { libc::getsockopt(fd, level, name, at, &raw mut len) }.into())?;
    Ok(value)
}
