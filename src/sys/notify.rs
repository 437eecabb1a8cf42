//! The sockets between the server and the service manager. See `sd_notify(3)` and `unix(7)`.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::cmsg_space;
use rustix::net::{
    self, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sockopt,
};

use super::signal::Signal;
use super::{check, environment, fd};

/// The longest message that systemd reads, in bytes.
const MAX_MESSAGE: usize = 4096;
/// The most descriptors that one message can carry: `SCM_MAX_FD`.
const MAX_FDS: usize = 253;
/// The kernel's `struct cmsghdr`: a `size_t` for its length, level and kind, each an `int`.
const HEAD: usize = size_of::<usize>() + 8;
/// Room for the sender's `struct ucred` and that many descriptors, in bytes.
const CONTROL: usize = 2 * HEAD + 16 + MAX_FDS * 4 + 8;
/// systemd splits a message into lines at both.
const LINE_ENDS: [u8; 2] = *b"\n\r";

/// The manager's socket, `NOTIFY_SOCKET`, if `SYSTEMD_EXEC_PID` says that this process is the main
/// process of its unit.
pub fn manager() -> Option<OsString> {
    environment::names_this_process("SYSTEMD_EXEC_PID")
        .then(|| std::env::var_os("NOTIFY_SOCKET"))
        .flatten()
}

/// Whether the manager understands `NOTIFYACCESS=`, by which the main process of a unit allows
/// messages of other processes: systemd since 254, which is also the first to set
/// `MEMORY_PRESSURE_WATCH`.
pub fn takes_notify_access() -> bool {
    std::env::var_os("MEMORY_PRESSURE_WATCH").is_some()
}

/// A message of the server to the manager.
#[derive(Debug)]
pub struct Message {
    text: [u8; MAX_MESSAGE],
    length: usize,
    /// They are open until the message is dropped. The sender may wait for that (`BARRIER=1`).
    descriptors: [Option<OwnedFd>; MAX_FDS],
    /// The sender's pid; 0 if it is outside of this PID namespace.
    pub sender: i32,
    /// Neither text nor descriptors have been cut off.
    pub whole: bool,
}

impl Message {
    fn empty() -> Self {
        Self {
            text: [0; MAX_MESSAGE],
            length: 0,
            descriptors: [const { None }; MAX_FDS],
            sender: 0,
            whole: true,
        }
    }

    /// A message of `text`, cut to the length that systemd reads.
    pub fn new(text: &[u8]) -> Self {
        let mut message = Self::empty();
        message.length = text.len().min(MAX_MESSAGE);
        message.text[..message.length].copy_from_slice(&text[..message.length]);
        message
    }

    pub fn text(&self) -> &[u8] {
        &self.text[..self.length]
    }

    /// Removes the lines for which `keep` is false, each with its line end. Returns false if that
    /// leaves no line.
    pub fn retain_lines(&mut self, keep: impl Fn(&[u8]) -> bool) -> bool {
        let before = self.length;
        let (mut from, mut to) = (0, 0);
        while from < self.length {
            let rest = &self.text[from..self.length];
            let end = rest.iter().position(|byte| LINE_ENDS.contains(byte));
            let line = end.map_or(rest.len(), |at| at + 1);
            if keep(&rest[..end.unwrap_or(line)]) {
                self.text.copy_within(from..from + line, to);
                to += line;
            }
            from += line;
        }
        self.length = to;
        to > 0 || before == 0
    }

    /// Reads the control data that the kernel has added to the text. See `cmsg(3)`.
    fn take(&mut self, mut control: &[u8]) {
        let number = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(-1, |four| i32::from_ne_bytes(*four))
        };
        while let Some(length) = control.first_chunk() {
            let length = usize::from_ne_bytes(*length);
            let Some(body) = control.get(HEAD..length) else {
                return;
            };
            match number(&control[HEAD - 4..]) {
                libc::SCM_CREDENTIALS => self.sender = number(body),
                libc::SCM_RIGHTS => {
                    for (place, four) in self.descriptors.iter_mut().zip(body.chunks_exact(4)) {
                        // SAFETY: the kernel has just opened this descriptor, and nothing else owns
                        // it.
                        *place = Some(unsafe { OwnedFd::from_raw_fd(number(four)) });
                    }
                }
                _ => {}
            }
            let next = length.next_multiple_of(size_of::<usize>());
            control = control.get(next..).unwrap_or_default();
        }
    }
}

/// A socket to which the server sends (`incoming`), and one to the manager (`outgoing`).
#[derive(Debug)]
pub struct Sockets {
    incoming: UnixDatagram,
    outgoing: UnixDatagram,
    manager: SocketAddr,
}

impl Sockets {
    /// The kernel chooses the address of the server's socket, adds the sender's pid to each
    /// message, and sends SIGCHLD to this process when there is something to read. Allocates.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)`; `Unsupported`: `manager` is neither a path nor an abstract
    /// name after an `@`.
    pub fn open(manager: &OsString) -> io::Result<Self> {
        let manager = match manager.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(manager)?,
            _ => return Err(ErrorKind::Unsupported.into()),
        };
        let (incoming, outgoing) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
        net::bind(&incoming, &SocketAddrUnix::new_unnamed())?;
        sockopt::set_socket_passcred(&incoming, true)?;
        fd::signal_when_readable(incoming.as_fd(), Signal::CHLD)?;
        Ok(Self {
            incoming,
            outgoing,
            manager,
        })
    }

    /// The server's `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// Those of `getsockname(2)`.
    pub fn address(&self) -> io::Result<OsString> {
        let address = self.incoming.local_addr()?;
        let name = address
            .as_abstract_name()
            .ok_or(ErrorKind::AddrNotAvailable)?;
        Ok(OsString::from_vec([b"@", name].concat()))
    }

    /// The pid of the sender of the next message; 0 if it is outside of this PID namespace. `None`
    /// if there is no message. Descriptors in the message are not received, since closing those of
    /// an unknown process can take long.
    pub fn peek_sender(&self) -> Option<i32> {
        Some(self.receive(&mut [0; HEAD + 16])?.sender)
    }

    /// A copy of the next message; `None` if there is none.
    pub fn peek(&self) -> Option<Message> {
        self.receive(&mut [0; CONTROL])
    }

    /// Removes the next message.
    pub fn discard(&self) {
        let _ = net::recv(&self.incoming, &mut [0; 0], RecvFlags::DONTWAIT);
    }

    /// A copy of the next message, with as much of what the kernel adds as `control` has room for.
    /// Does not allocate. See `recvmsg(2)`. Not by rustix: a sender outside of this PID namespace
    /// has pid 0, and its type for a pid has no such value.
    fn receive(&self, control: &mut [u8]) -> Option<Message> {
        let mut message = Message::empty();
        let mut text = libc::iovec {
            iov_base: message.text.as_mut_ptr().cast(),
            iov_len: MAX_MESSAGE,
        };
        // SAFETY: null pointers and zeros are a valid header without buffers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut text;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len() as _;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header names buffers that are alive, and their sizes.
        let got = unsafe { libc::recvmsg(self.incoming.as_raw_fd(), &raw mut header, flags) };
        message.length = check(got as libc::c_long).ok()? as usize;
        message.whole = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
        let length: usize = header.msg_controllen as _;
        message.take(&control[..length.min(control.len())]);
        Some(message)
    }

    /// Sends it to the manager, with its descriptors. Neither waits nor allocates. See
    /// `sendmsg(2)`.
    ///
    /// # Errors
    /// `EAGAIN`: the manager has not read what came before; `ENOENT`, `ECONNREFUSED`: there is no
    /// manager.
    pub fn send(&self, message: &Message) -> io::Result<()> {
        self.outgoing.connect_addr(&self.manager)?;
        let mut descriptors = [self.outgoing.as_fd(); MAX_FDS];
        let carried = message.descriptors.iter().flatten();
        let mut count = 0;
        for (place, descriptor) in descriptors.iter_mut().zip(carried) {
            *place = descriptor.as_fd();
            count += 1;
        }
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if count > 0 && !control.push(SendAncillaryMessage::ScmRights(&descriptors[..count])) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        net::sendmsg(
            &self.outgoing,
            &[IoSlice::new(message.text())],
            &mut control,
            flags,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_passes_with_its_descriptors_and_its_sender() {
        let name = format!("treaper-manager-{}", super::super::pid::own());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let sockets = Sockets::open(&format!("@{name}").into()).unwrap();
        assert_eq!(sockets.peek_sender(), None);
        assert!(sockets.peek().is_none());
        let (mut sent, pipe) = (Message::new(b"FDSTORE=1"), rustix::pipe::pipe().unwrap());
        sent.descriptors[0] = Some(pipe.1);
        // This process sends in place of a server. Then the message is passed on.
        let server = Sockets::open(&sockets.address().unwrap()).unwrap();
        server.send(&sent).unwrap();
        drop(sent);
        assert_eq!(sockets.peek_sender(), Some(super::super::pid::own()));
        let got = sockets.peek().unwrap();
        assert_eq!((got.text(), got.whole), (&b"FDSTORE=1"[..], true));
        assert_eq!(got.sender, super::super::pid::own());
        assert_eq!(got.descriptors.iter().flatten().count(), 1);
        sockets.send(&got).unwrap();
        drop(got);
        sockets.discard();
        assert!(sockets.peek().is_none());
        // The pipe stays open while the message exists: a barrier waits for its end.
        let reader = pipe.0;
        let has_ended = |reader: &OwnedFd| super::super::poll::has_hung_up(reader.as_raw_fd());
        assert!(!has_ended(&reader));
        let mut text = [0; 100];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"FDSTORE=1");
        assert!(has_ended(&reader));
    }

    #[test]
    fn a_message_carries_as_many_descriptors_as_the_kernel_lets_it() {
        let receiver = Sockets::open(&"@nobody".into()).unwrap();
        let sender = Sockets::open(&receiver.address().unwrap()).unwrap();
        let mut sent = Message::new(b"FDSTORE=1");
        for place in &mut sent.descriptors {
            *place = Some(sender.outgoing.as_fd().try_clone_to_owned().unwrap());
        }
        sender.send(&sent).unwrap();
        let got = receiver.peek().unwrap();
        assert!(got.whole);
        assert_eq!(got.descriptors.iter().flatten().count(), 253);
    }

    #[test]
    fn what_is_too_long_is_not_whole() {
        let sockets = Sockets::open(&"@nobody".into()).unwrap();
        let address =
            SocketAddr::from_abstract_name(&sockets.address().unwrap().as_bytes()[1..]).unwrap();
        for (length, whole) in [(MAX_MESSAGE, true), (MAX_MESSAGE + 1, false)] {
            sockets
                .outgoing
                .send_to_addr(&vec![b'x'; length], &address)
                .unwrap();
            let got = sockets.peek().unwrap();
            assert_eq!((got.text().len(), got.whole), (MAX_MESSAGE, whole));
            sockets.discard();
        }
    }
}
