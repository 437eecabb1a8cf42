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
use super::signal::Signal;
use super::{Errno, arrival, clock, pid, proc, std_fd};

pub struct Stream {
    fd: OwnedFd,
    pub kind: Kind,
    /// `O_NONBLOCK` would be set for other processes that read a pipe, too. `splice` can be asked
    /// not to wait, but needs a second pipe: this one, which is empty between two calls.
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
        let target = || proc::view().and_then(|proc| proc.target(pid::own(), self.as_raw_fd()));
        self.kind == Kind::Pipe && target().is_ok_and(|target| !target.starts_with(b"pipe:"))
    }

    /// Whether poll reports, unasked, that the reader has gone, and nothing else.
    pub fn reports_reader(&self) -> bool {
        // The errors that wait in the queue of a TCP socket are another thing.
        let is_unix = || sockopt::socket_domain(&self.fd) == Ok(AddressFamily::UNIX);
        self.kind == Kind::Pipe || self.kind == Kind::Socket && is_unix()
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
            // Of packets (`O_DIRECT` in `pipe(2)`), each is read by itself.
            Ok(count) => {
                let all = (&*out).read_exact(&mut bytes[..count]);
                all.map_or(Err(Errno::IO), |()| Ok(count))
            }
            // A filter refuses it. Poll has reported something, but another reader may be faster.
            Err(Errno::NOSYS | Errno::PERM) => rustix::io::read(&self.fd, bytes),
            other => other,
        }
    }

    /// `EAGAIN`: nothing fits; `EPIPE`: no reader. See `write(2)`, and `send(2)`.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.kind == Kind::Socket {
            return self.without_reports(rustix::net::send(&self.fd, bytes, AT_ONCE));
        }
        let Some((out, into)) = &self.own_pipe else {
            return fd::write_at_once(self.as_fd(), bytes);
        };
        // What does not fit is written again by the next call.
        let len = rustix::io::write(into, &bytes[..bytes.len().min(PIPE_BUF)])?;
        let moved = splice(out, &self.fd, len);
        if moved != Ok(len) {
            let _ = rustix::io::read(out, &mut [0; PIPE_BUF]);
        }
        if moved == Err(Errno::PIPE) {
            arrival::remove_own(Signal::PIPE);
        }
        moved
    }

    /// Makes room for 1 MiB, if limits allow it. See `F_SETPIPE_SZ`, `SO_SNDBUF`.
    pub fn make_room(&self) {
        let _ = rustix::pipe::fcntl_setpipe_size(&self.fd, 1 << 20);
        let _ = sockopt::set_socket_send_buffer_size(&self.fd, 1 << 20);
    }

    /// The place of a pipe, which counts neither as a reader nor as a writer. `ENOENT`: no `/proc`.
    pub fn place(&self) -> Result<OwnedFd, Errno> {
        reopen(self.as_raw_fd(), OFlags::PATH)
    }

    /// Opens one end of a pipe again. `ENXIO`: for writing, and it has no reader.
    pub fn open_again(place: &OwnedFd, end: OFlags) -> Result<Self, Errno> {
        let own = reopen(place.as_raw_fd(), end | OFlags::NONBLOCK)?;
        Ok(Self::new(own, Kind::Pipe))
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

/// Whether to try again when poll reports something. Without memory, this waits a moment first.
pub fn is_for_later(errno: Errno) -> bool {
    let lacks_memory = matches!(errno, Errno::NOMEM | Errno::NOBUFS);
    if lacks_memory {
        clock::pause(Duration::from_millis(10));
    }
    lacks_memory || matches!(errno, Errno::AGAIN | Errno::INTR)
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

/// A pair of sockets, or else a pipe; closed on exec. See `pipe2(2)`, `socketpair(2)`.
fn pair(kind: Kind) -> Result<(OwnedFd, OwnedFd), Errno> {
    if kind != Kind::Socket {
        return rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
}

/// `None`: a file or a device, a terminal that cannot be opened anew, or a pipe without `splice`.
pub fn of_standard(standard: i32) -> Result<Option<Stream>, Errno> {
    let kind = fd::kind(standard);
    if standard == fd::STDOUT && matches!(kind, Kind::Pipe | Kind::Terminal) {
        let mode = rustix::fs::fcntl_getfl(std_fd(standard))? & OFlags::ACCMODE;
        if let Ok(own) = reopen(standard, mode | OFlags::NONBLOCK | OFlags::NOCTTY) {
            return Ok(Some(Stream::new(own, kind)));
        }
    }
    Ok(match kind {
        Kind::Socket => Some(Stream::new(copy_of(standard)?, kind)),
        // Opened anew for reading, a pipe would not show that its last writer has already left.
        Kind::Pipe => {
            let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            let fd = copy_of(standard)?;
            let is_refused = matches!(splice(&out, &fd, 1), Err(Errno::NOSYS | Errno::PERM));
            let own_pipe = Some((out.into(), into));
            (standard == fd::STDIN || !is_refused).then_some(Stream { fd, kind, own_pipe })
        }
        Kind::Terminal | Kind::Other => None,
    })
}

fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize, Errno> {
    rustix::pipe::splice(from, None, to, None, most, SpliceFlags::NONBLOCK)
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
