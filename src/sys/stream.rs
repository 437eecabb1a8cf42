//! Streams that other processes share: read and written without waiting, and without a change of their flags.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;
use rustix::net::{RecvFlags, SendFlags, ipproto, sockopt};

use super::fd::Kind;
use super::{Errno, check};

/// One direction of standard input or output, or one end of something that treaper has made.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    kind: Kind,
}

/// What a write to a pipe cannot wait for if poll says that there is room. See `pipe(7)`.
const PIPE_BUF: usize = 4096;
/// "Where the file is", for calls that take a position.
const CURRENT: u64 = u64::MAX;

impl Stream {
    #[must_use]
    pub const fn new(fd: OwnedFd, kind: Kind) -> Self {
        Self { fd, kind }
    }

    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Reads what is there; 0 at the end. To be called if poll says that there is something. See `preadv2(2)`,
    /// `RWF_NOWAIT`, and `recv(2)`.
    ///
    /// # Errors
    /// `EAGAIN` there is nothing.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        match self.kind {
            Kind::Socket => {
                let (at, len) = (bytes.as_mut_ptr().cast(), bytes.len());
                // SAFETY: the buffer is live, and its length is passed with it.
                let got = unsafe { libc::recv(self.fd.as_raw_fd(), at, len, libc::MSG_DONTWAIT) };
                self.moved(check(got as libc::c_long))
            }
            Kind::Pipe | Kind::Terminal | Kind::Other => {
                let mut one = [IoSliceMut::new(bytes)];
                match rustix::io::preadv2(&self.fd, &mut one, CURRENT, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                        rustix::io::read(&self.fd, bytes)
                    }
                    other => other,
                }
            }
        }
    }

    /// Copies what is there, and leaves it there; 0 at the end. Only of a socket. See `MSG_PEEK` in `recv(2)`.
    ///
    /// # Errors
    /// `EAGAIN` there is nothing.
    pub fn peek(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.fd, bytes, flags).map(|(count, _)| count)
    }

    /// Writes what fits. To be called if poll says that something does. See `pwritev2(2)`, `RWF_NOWAIT`, and `send(2)`.
    ///
    /// # Errors
    /// `EAGAIN` nothing fits; `EPIPE` there is no reader.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.kind {
            Kind::Socket => {
                let (at, len) = (bytes.as_ptr().cast(), bytes.len());
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                // SAFETY: the buffer is live, and its length is passed with it.
                let sent = unsafe { libc::send(self.fd.as_raw_fd(), at, len, flags) };
                self.moved(check(sent as libc::c_long))
            }
            Kind::Pipe => {
                let one = [IoSlice::new(bytes)];
                match rustix::io::pwritev2(&self.fd, &one, CURRENT, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                        rustix::io::write(&self.fd, &bytes[..bytes.len().min(PIPE_BUF)])
                    }
                    other => other,
                }
            }
            Kind::Terminal | Kind::Other => {
                rustix::io::write(&self.fd, &bytes[..bytes.len().min(PIPE_BUF)])
            }
        }
    }

    fn moved(&self, result: Result<libc::c_long, Errno>) -> Result<usize, Errno> {
        if result == Err(Errno::AGAIN) {
            self.discard_reports();
        }
        result.map(|count| count as usize)
    }

    /// Empties the error queue of a TCP socket. What is in it (`SO_TIMESTAMPING`, `MSG_ZEROCOPY`) does not end the
    /// stream, but poll would report it at once, again and again. Sockets of other families are left alone: some of
    /// them would hand out data for this. See `MSG_ERRQUEUE` in `recv(2)`.
    fn discard_reports(&self) {
        if sockopt::socket_protocol(&self.fd) != Ok(Some(ipproto::TCP)) {
            return;
        }
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        let mut nothing = [0; 1];
        while rustix::net::recv(&self.fd, &mut nothing, flags).is_ok() {}
    }

    /// How many bytes there are to be read. See `FIONREAD` in `ioctl_pipe(2)`.
    #[must_use]
    pub fn readable(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.fd).unwrap_or(0)
    }

    /// How many bytes that were written here the other end has not read yet. See `FIONREAD` in `ioctl_pipe(2)`, and
    /// `SIOCOUTQ` in `unix(7)`.
    #[must_use]
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

    /// Ends what is written here, so that the other end reads an end; keeps a way to see what it has not read.
    #[must_use]
    pub fn end(self) -> Ended {
        if self.kind == Kind::Socket {
            // SAFETY: takes numbers.
            unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
            return Ended::Socket(self);
        }
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // A path counts neither as a reader nor as a writer.
        rustix::fs::open(path, flags, Mode::empty()).map_or(Ended::Unknown, Ended::Pipe)
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
pub enum Ended {
    Socket(Stream),
    Pipe(OwnedFd),
    Unknown,
}

impl Ended {
    /// As [`Stream::unread`].
    #[must_use]
    pub fn unread(&self) -> u64 {
        match self {
            Self::Socket(stream) => stream.unread(),
            Self::Pipe(place) => {
                let path = format!("/proc/self/fd/{}", place.as_raw_fd());
                // A reader of a moment: nothing is read, and there is no writer that could miss the end of the others.
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, Mode::empty())
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
    let mut ends = [-1; 2];
    let result = if kind == Kind::Socket {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: room for the two descriptors that the kernel writes.
        unsafe { libc::socketpair(libc::AF_UNIX, flags, 0, ends.as_mut_ptr()) }
    } else {
        // SAFETY: as above.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }
    };
    check(result.into())?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    let first = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let second = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    Ok((first, second))
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

/// Receives what was sent; 0 at the end. Does not wait. See `recv(2)`.
///
/// # Errors
/// `EAGAIN` there is nothing.
pub fn receive(line: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(line, bytes, RecvFlags::DONTWAIT).map(|(count, _)| count)
}

/// Says that nothing more will be sent, for every process that has this end. See `shutdown(2)`.
pub fn hang_up(line: BorrowedFd<'_>) {
    // SAFETY: takes numbers.
    unsafe { libc::shutdown(line.as_raw_fd(), libc::SHUT_WR) };
}

/// What an inherited descriptor is, for one who wants to read messages from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Pipe,
    /// A connected stream socket.
    Socket,
    /// The writing end of a pipe, a datagram socket, a file, ...
    Unusable,
    Closed,
}

/// Looks at an inherited descriptor. See `fcntl(2)`, `F_GETFL`, and `socket(7)`.
#[must_use]
pub fn look(number: i32) -> Given {
    // SAFETY: takes numbers.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    if flags == -1 {
        return Given::Closed;
    }
    // SAFETY: it is open, and nothing closes it meanwhile.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let kind = rustix::fs::fstat(fd).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(rustix::fs::FileType::Fifo) if flags & libc::O_ACCMODE != libc::O_WRONLY => Given::Pipe,
        Ok(rustix::fs::FileType::Socket) if is_stream(fd) => Given::Socket,
        _ => Given::Unusable,
    }
}

/// Whether it is a stream socket that does not listen.
#[must_use]
pub fn is_stream(fd: BorrowedFd<'_>) -> bool {
    option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && option(fd, libc::SO_ACCEPTCONN) == Some(0)
}

fn option(fd: BorrowedFd<'_>, name: i32) -> Option<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: room for an int, and a live length.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, at, &raw mut len) };
    (result == 0).then_some(value)
}

/// Adopts an inherited descriptor: from now on only this process has it, and no child gets it.
#[must_use]
pub fn adopt(number: i32, given: Given) -> Stream {
    // SAFETY: it was open before this program began, and the caller has taken it off the list of the server's.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
    let kind = if given == Given::Socket {
        Kind::Socket
    } else {
        Kind::Pipe
    };
    Stream::new(fd, kind)
}

/// A copy of a standard descriptor, above the standard ones, that no child gets. See `F_DUPFD_CLOEXEC` in `fcntl(2)`.
///
/// # Errors
/// `EMFILE`.
pub fn copy_of(standard: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers.
    let copy = check(unsafe { libc::fcntl(standard, libc::F_DUPFD_CLOEXEC, 3) }.into())?;
    // SAFETY: the kernel has just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy as i32) })
}

/// Closes every descriptor above 2 except these, whatever owns it: for a process that never uses one of the others
/// again, and ends without returning. See `close_range(2)`.
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
