//! Streams that other processes share: read and written without waiting, and without a change of
//! their flags.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};
use rustix::pipe::PipeFlags;

use super::fd::{Kind, reopen};
use super::{Errno, poll, std_fd};

/// A socket, or a pipe that is open without waiting (`O_NONBLOCK`) for this process alone: the flag
/// belongs to the open file, which a fork or a copy shares.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    kind: Kind,
}

impl Stream {
    pub const fn new(fd: OwnedFd, kind: Kind) -> Self {
        Self { fd, kind }
    }

    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Reads what is there; 0 at the end. Never waits. See `read(2)`, and `recv(2)`.
    ///
    /// # Errors
    /// `EAGAIN` there is nothing.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        if self.kind == Kind::Socket {
            let received = rustix::net::recv(&self.fd, bytes, RecvFlags::DONTWAIT);
            return self.moved(received.map(|(count, _)| count));
        }
        rustix::io::read(&self.fd, bytes)
    }

    /// Writes what fits. Never waits. See `write(2)`, and `send(2)`.
    ///
    /// # Errors
    /// `EAGAIN` nothing fits; `EPIPE` there is no reader.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.kind == Kind::Socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            return self.moved(rustix::net::send(&self.fd, bytes, flags));
        }
        rustix::io::write(&self.fd, bytes)
    }

    fn moved(&self, result: Result<usize, Errno>) -> Result<usize, Errno> {
        if result == Err(Errno::AGAIN) {
            self.discard_reports();
        }
        result
    }

    /// Empties the error queue of a TCP socket. What is in it (`SO_TIMESTAMPING`, `MSG_ZEROCOPY`)
    /// does not end the stream, but poll would report it at once, again and again. Sockets of other
    /// families are left alone: some of them would hand out data for this. See `MSG_ERRQUEUE` in
    /// `recv(2)`.
    fn discard_reports(&self) {
        if sockopt::socket_protocol(&self.fd) != Ok(Some(ipproto::TCP)) {
            return;
        }
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        let mut nothing = [0; 1];
        while rustix::net::recv(&self.fd, &mut nothing, flags).is_ok() {}
    }

    /// How many bytes there are to be read. See `FIONREAD` in `ioctl_pipe(2)`.
    pub fn readable(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    /// How many bytes that were written here the other end has not read yet. See `FIONREAD` in
    /// `ioctl_pipe(2)`, and `SIOCOUTQ` in `unix(7)`.
    pub fn unread(&self) -> u64 {
        if self.kind == Kind::Socket {
            let mut count: libc::c_int = 0;
            // SAFETY: room for the int that the kernel writes.
            let result =
                unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut count) };
            return if result == 0 { count.max(0) as u64 } else { 0 };
        }
        rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    /// Ends what is written here, so that the other end reads an end; keeps a way to see what it
    /// has not read.
    pub fn end(self) -> ClosedStream {
        if self.kind == Kind::Socket {
            hang_up(self.as_fd());
            return ClosedStream::Socket(self);
        }
        // A path counts neither as a reader nor as a writer.
        reopen(self.fd.as_raw_fd(), OFlags::PATH).map_or(ClosedStream::Unknown, ClosedStream::Pipe)
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

/// A stream that this process has ended.
#[derive(Debug)]
pub enum ClosedStream {
    Socket(Stream),
    Pipe(OwnedFd),
    Unknown,
}

impl ClosedStream {
    /// As [`Stream::unread`].
    pub fn unread(&self) -> u64 {
        match self {
            Self::Socket(stream) => stream.unread(),
            Self::Pipe(place) => {
                // A second reader for an instant: it reads nothing, and no writer is left to notice
                // it.
                reopen(place.as_raw_fd(), OFlags::RDONLY | OFlags::NONBLOCK)
                    .and_then(|reader| rustix::io::ioctl_fionread(&reader))
                    .unwrap_or(0)
            }
            Self::Unknown => 0,
        }
    }
}

/// A pipe or a pair of sockets, closed on exec. See `pipe2(2)`, `socketpair(2)`.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
fn pair(kind: Kind) -> Result<(OwnedFd, OwnedFd), Errno> {
    if kind != Kind::Socket {
        return rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
}

/// A stream of its own for this process, of what `standard` is open on: a pipe is opened anew, so
/// that no other process gets the flag. `None`: it is neither a pipe nor a socket, or cannot be
/// opened (it belongs to another user, there is no `/proc`, or nothing reads the FIFO), or it has
/// ended.
pub fn of_standard(standard: i32, kind: Kind) -> Option<Stream> {
    let copy = copy_of(standard).ok()?;
    if kind == Kind::Socket {
        return Some(Stream::new(copy, kind));
    }
    if kind != Kind::Pipe {
        return None;
    }
    // A FIFO that is open in both directions (`<>fifo`) never ends, and has to stay so.
    let direction = rustix::fs::fcntl_getfl(&copy).ok()? & OFlags::RWMODE;
    let own = reopen(copy.as_raw_fd(), direction | OFlags::NONBLOCK).ok()?;
    let file = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    // A FIFO that was opened anew after its last writer has left would not show its end.
    let can_end = !poll::has_hung_up(copy.as_raw_fd()) || poll::has_hung_up(own.as_raw_fd());
    (can_end && file(&own) == file(&copy)).then(|| Stream::new(own, kind))
}

/// An end of [`pair`] of this kind that never waits.
fn never_waiting(fd: OwnedFd, kind: Kind) -> Result<Stream, Errno> {
    rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
    let kind = if kind == Kind::Socket {
        kind
    } else {
        Kind::Pipe
    };
    Ok(Stream::new(fd, kind))
}

/// A stream from this process to another one, and its end there.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn outgoing(kind: Kind) -> Result<(Stream, OwnedFd), Errno> {
    let (far, near) = pair(kind)?;
    Ok((never_waiting(near, kind)?, far))
}

/// A stream from another process to this one, and its end there.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn incoming(kind: Kind) -> Result<(Stream, OwnedFd), Errno> {
    let (near, far) = pair(kind)?;
    Ok((never_waiting(near, kind)?, far))
}

/// Two ends that each report the end of the process that has the other one.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn line() -> Result<(OwnedFd, OwnedFd), Errno> {
    pair(Kind::Socket)
}

/// Sends a few bytes, and does not wait. See `send(2)`.
pub fn send(line: BorrowedFd<'_>, bytes: &[u8]) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(line, bytes, flags);
}

/// Says that nothing more will be sent, for every process that has this end. See `shutdown(2)`.
pub fn hang_up(line: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(line, Shutdown::Write);
}

/// Whether stdin is a pipe that can be read from, or a connected stream socket. See `fcntl(2)`,
/// `F_GETFL`, and `socket(7)`.
pub fn stdin_can_be_relayed() -> bool {
    let kind = super::fd::kind(super::fd::STDIN);
    let Ok(stdin) = copy_of(super::fd::STDIN) else {
        return false;
    };
    match kind {
        Kind::Pipe => rustix::fs::fcntl_getfl(&stdin)
            .is_ok_and(|flags| flags & OFlags::ACCMODE != OFlags::WRONLY),
        // A socket that listens is not connected.
        Kind::Socket => {
            sockopt::socket_type(&stdin) == Ok(SocketType::STREAM)
                && sockopt::socket_acceptconn(&stdin) == Ok(false)
        }
        Kind::Terminal | Kind::Other => false,
    }
}

/// A copy of a standard descriptor, above the standard ones, that no child gets. See
/// `F_DUPFD_CLOEXEC` in `fcntl(2)`.
///
/// # Errors
/// `EMFILE`.
pub fn copy_of(standard: i32) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(std_fd(standard), 3)
}

/// Closes every descriptor above 2 except these, whatever owns it: for a process that never uses
/// one of the others again, and ends without returning. See `close_range(2)`.
pub fn close_all_except(kept: &[i32]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.into_iter().filter(|fd| *fd > 2).chain([i32::MAX]) {
        if from < fd {
            // SAFETY: takes numbers. What is closed is never used again.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
        }
        from = fd.saturating_add(1);
    }
}
