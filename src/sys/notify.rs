//! Messages to a service manager. See `sd_notify(3)`.

use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::Errno;

/// Sends `text` to the socket at `address`: a path, or an abstract name that begins with `@`. See
/// `unix(7)`. `EAGAIN`: it has too many unread messages; `ENOENT`, `ECONNREFUSED`: there is no
/// manager; `EAFNOSUPPORT`: another kind of address.
pub fn send(address: &[u8], text: &[u8]) -> Result<(), Errno> {
    let address = match address {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path @ [b'/', ..] => SocketAddrUnix::new(path)?,
        _ => return Err(Errno::AFNOSUPPORT),
    };
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendto(socket, text, flags, &address).map(drop)
}
