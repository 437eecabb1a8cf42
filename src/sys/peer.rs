//! Unix sockets that other processes connect to, and who they are. See `unix(7)`.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;

use super::{Errno, check, last_errno};

/// The longest path that the name of a socket can be.
pub const LONGEST_PATH: usize = 107;

/// Who has connected.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// 0: it is outside of this PID namespace.
    pub pid: i32,
    pub uid: u32,
}

/// A socket at `path` that listens. From its first moment on only this user may connect to it. See `umask(2)`.
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

/// Whether a process has the socket at `path` open. No connection is made: the attempt is one of another type, which the
/// kernel refuses only after it has found the socket. See `EPROTOTYPE` in `connect(2)`.
///
/// # Errors
/// It cannot be known: `EACCES`, ...
pub fn is_alive(path: &Path) -> Result<bool, Errno> {
    // SAFETY: all zeros are an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > LONGEST_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers.
    let socket = check(unsafe { libc::socket(libc::AF_UNIX, flags, 0) }.into())?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
    let (at, len) = (
        (&raw const address).cast(),
        size_of_val(&address) as libc::socklen_t,
    );
    // SAFETY: the address is live, and its length is passed with it.
    match check(unsafe { libc::connect(socket.as_raw_fd(), at, len) }.into()) {
        // A socket of treaper is a stream. One of datagrams belongs to another program.
        Ok(_) | Err(Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Who has called connect: `SO_PEERCRED`.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn credentials(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of_val(&found) as libc::socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast());
    // SAFETY: room for the struct, and a live length.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, at, &raw mut len) }.into())?;
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
    let mut found: libc::c_int = -1;
    let mut len = size_of_val(&found) as libc::socklen_t;
    let (level, at) = (libc::SOL_SOCKET, (&raw mut found).cast());
    // SAFETY: room for the descriptor, and a live length.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, SO_PEERPIDFD, at, &raw mut len) };
    if result == -1 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// The effective uid of this process.
#[must_use]
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
