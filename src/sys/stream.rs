//! Streams that other processes share: used without waiting, and without a change of their flags.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};
use rustix::pipe::{PIPE_BUF, PipeFlags, SpliceFlags};

use super::fd::{self, Kind, reopen};
use super::poll::{Events, poll_one};
use super::signal::Signal;
use super::{Errno, arrival, errno, std_fd};

#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    pub kind: Kind,
    /// `O_NONBLOCK` would be set for other processes that have a pipe open, too. `splice` can be
    /// asked not to wait, but needs a second pipe: this one, which is empty between two calls.
    own_pipe: Option<(File, OwnedFd)>,
}

impl Stream {
    /// A socket, or what is open without waiting (`O_NONBLOCK`) for this process alone.
    pub const fn new(fd: OwnedFd, kind: Kind) -> Self {
        let own_pipe = None;
        Self { fd, kind, own_pipe }
    }

    /// Whether it is a pipe with a name, which other processes can open.
    pub fn is_fifo(&self) -> bool {
        let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| stat.st_dev);
        let own_pipe = self.own_pipe.as_ref();
        own_pipe.is_some_and(|(_, own)| device(own) != device(&self.fd))
    }

    /// `EAGAIN`: there is nothing. See `read(2)`, `recv(2)`, and `splice(2)`.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        if self.kind == Kind::Socket {
            let received = rustix::net::recv(&self.fd, bytes, RecvFlags::DONTWAIT);
            return self.without_reports(received.map(|(count, _)| count));
        }
        let Some((out, into)) = &self.own_pipe else {
            return rustix::io::read(&self.fd, bytes);
        };
        match splice(&self.fd, into, bytes.len()) {
            Ok(count) => take(out, &mut bytes[..count]),
            Err(FILTERED) if self.is_ready(Events::IN) => {
                let most = bytes.len().min(PIPE_BUF);
                rustix::io::read(&self.fd, &mut bytes[..most])
            }
            Err(FILTERED) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        }
    }

    /// `EAGAIN`: nothing fits; `EPIPE`: no reader. See `write(2)`, `send(2)`, and `splice(2)`.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.kind == Kind::Socket {
            return self.without_reports(rustix::net::send(&self.fd, bytes, AT_ONCE));
        }
        let Some((out, into)) = &self.own_pipe else {
            return fd::write_at_once(self.as_fd(), bytes);
        };
        let count = rustix::io::write(into, bytes)?;
        let moved = splice(out, &self.fd, count);
        // What did not fit is written again by the next call.
        let left = count - moved.unwrap_or(0);
        take(out, &mut vec![0; left])?;
        match moved {
            Err(Errno::PIPE) => arrival::remove_own(Signal::PIPE),
            Err(FILTERED) if self.is_ready(Events::OUT) => {
                return fd::write_at_once(self.as_fd(), &bytes[..count.min(PIPE_BUF)]);
            }
            Err(FILTERED) => return Err(Errno::AGAIN),
            _ => {}
        }
        moved
    }

    /// The place of a pipe, which counts neither as a reader nor as a writer. `ENOENT`: no `/proc`.
    pub fn place(&self) -> Result<OwnedFd, Errno> {
        reopen(self.as_raw_fd(), OFlags::PATH)
    }

    /// Opens a pipe for writing again, whose last writer has left. `ENXIO`: it has no reader.
    pub fn open_again(place: &OwnedFd) -> Result<Self, Errno> {
        let own = reopen(place.as_raw_fd(), OFlags::WRONLY | OFlags::NONBLOCK)?;
        Ok(Self::new(own, Kind::Pipe))
    }

    fn is_ready(&self, for_what: Events) -> bool {
        poll_one(self.fd.as_raw_fd(), for_what, Duration::ZERO).intersects(for_what | Events::HUP)
    }

    /// Empties the error queue of a TCP socket if the `result` is `EAGAIN`. What is in it
    /// (`MSG_ZEROCOPY`) does not end the stream, but poll would report it again and again. Other
    /// families might hand out data for this. See `MSG_ERRQUEUE` in `recv(2)`.
    fn without_reports(&self, result: Result<usize, Errno>) -> Result<usize, Errno> {
        let is_tcp = || sockopt::socket_protocol(&self.fd) == Ok(Some(ipproto::TCP));
        if result == Err(Errno::AGAIN) && is_tcp() {
            let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
            while rustix::net::recv(&self.fd, &mut [0; 1], flags).is_ok() {}
        }
        result
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

const AT_ONCE: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// What a filter of system calls answers instead of a `splice`. Then poll is asked first, which
/// leaves a gap: a faster process at the same end of the pipe makes this one wait.
const FILTERED: Errno = Errno::NOSYS;

fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize, Errno> {
    match rustix::pipe::splice(from, None, to, None, most, SpliceFlags::NONBLOCK) {
        Err(Errno::PERM) => Err(FILTERED),
        other => other,
    }
}

/// Reads as many bytes as are known to be in the pipe.
fn take(mut pipe: &File, bytes: &mut [u8]) -> Result<usize, Errno> {
    pipe.read_exact(bytes).map_err(errno)?;
    Ok(bytes.len())
}

/// A pair of sockets, or else a pipe; closed on exec. See `pipe2(2)`, `socketpair(2)`.
fn pair(kind: Kind) -> Result<(OwnedFd, OwnedFd), Errno> {
    if kind != Kind::Socket {
        return rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
}

/// `None`: a file or a device, or a terminal that cannot be opened anew.
pub fn of_standard(standard: i32) -> Result<Option<Stream>, Errno> {
    let kind = fd::kind(standard);
    Ok(match kind {
        Kind::Socket => Some(Stream::new(copy_of(standard)?, kind)),
        Kind::Pipe => {
            let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            let (fd, own_pipe) = (copy_of(standard)?, Some((File::from(out), into)));
            Some(Stream { fd, kind, own_pipe })
        }
        Kind::Terminal => {
            let own = reopen(standard, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
            own.ok().map(|own| Stream::new(own, kind))
        }
        Kind::Other => None,
    })
}

/// An end of a [`pair`] of this kind.
fn never_waiting(fd: OwnedFd, kind: Kind) -> Result<Stream, Errno> {
    rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
    let is_socket = kind == Kind::Socket;
    Ok(Stream::new(fd, if is_socket { kind } else { Kind::Pipe }))
}

/// A stream from this process to another one, and its end there. A socket cannot be written there.
pub fn outgoing(kind: Kind) -> Result<(Stream, OwnedFd), Errno> {
    let (far, near) = pair(kind)?;
    if kind == Kind::Socket {
        rustix::net::shutdown(&near, Shutdown::Read)?;
    }
    Ok((never_waiting(near, kind)?, far))
}

/// A stream from another process to this one, and its end there.
pub fn incoming(kind: Kind) -> Result<(Stream, OwnedFd), Errno> {
    let (near, far) = pair(kind)?;
    Ok((never_waiting(near, kind)?, far))
}

/// Two ends that each report the end of the process that has the other one.
pub fn line() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair(Kind::Socket)
}

/// Does not wait. See `send(2)`.
pub fn send(line: BorrowedFd<'_>, bytes: &[u8]) {
    let _ = rustix::net::send(line, bytes, AT_ONCE);
}

/// Does not wait. `None`: the other end has hung up; `EAGAIN`: there is no byte. See `recv(2)`.
pub fn receive(line: BorrowedFd<'_>) -> Result<Option<u8>, Errno> {
    let mut byte = [0];
    let (count, _) = rustix::net::recv(line, &mut byte, RecvFlags::DONTWAIT)?;
    Ok((count > 0).then_some(byte[0]))
}

/// Whether stdin is a readable pipe, or a connected stream socket. See `fcntl(2)`, `socket(7)`.
pub fn stdin_can_be_relayed() -> bool {
    let stdin = std_fd(fd::STDIN);
    match fd::kind(fd::STDIN) {
        Kind::Pipe => rustix::fs::fcntl_getfl(stdin)
            .is_ok_and(|flags| flags & OFlags::ACCMODE != OFlags::WRONLY),
        // A socket that listens is not connected.
        Kind::Socket => {
            sockopt::socket_type(stdin) == Ok(SocketType::STREAM)
                && sockopt::socket_acceptconn(stdin) == Ok(false)
        }
        Kind::Terminal | Kind::Other => false,
    }
}

/// A copy above the standard descriptors, closed on exec. See `F_DUPFD_CLOEXEC` in `fcntl(2)`.
pub fn copy_of(standard: i32) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(std_fd(standard), 3)
}
