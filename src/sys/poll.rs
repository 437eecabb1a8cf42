//! Waiting for descriptors, and what can be known of their other ends without reading.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

pub use rustix::event::PollFlags as Events;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
pub use rustix::fs::inotify::WatchFlags;
use rustix::fs::inotify::{self, CreateFlags};
use rustix::net::{ipproto, sockopt};

use super::fd::{self, Kind};
use super::{Errno, check, clock, std_fd};

/// A descriptor that [`poll`] looks at, and what it has reported. A negative one is ignored.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Polled(libc::pollfd);

impl Polled {
    /// HUP, ERR and NVAL are reported also if they are not among the `events`.
    pub const fn new(fd: RawFd, events: Events) -> Self {
        Self(libc::pollfd {
            fd,
            events: events.bits() as _,
            revents: 0,
        })
    }

    pub const fn reported(&self) -> Events {
        Events::from_bits_retain(self.0.revents as _)
    }
}

/// Whether the peer of `fd` has hung up. See `poll(2)`, `POLLRDHUP`.
pub fn has_hung_up(fd: RawFd) -> bool {
    poll_one(fd, Events::RDHUP, Duration::ZERO).intersects(HANG_UP)
}

/// The peer of an input has hung up. POLLERR does not mean that: a socket also reports the failure
/// of a message that was sent, or a time stamp (`MSG_ZEROCOPY`, `SO_TIMESTAMPING`).
pub const HANG_UP: Events = Events::HUP.union(Events::RDHUP);

/// Whether the peer of a TCP socket can still send, so that a POLLRDHUP is of `shutdown(SHUT_RD)`
/// here. Of Unix sockets and MPTCP it is unknown which end was shut down. See `tcp(7)`.
pub fn peer_can_send(fd: i32) -> bool {
    const ESTABLISHED_OR_FIN_WAIT: [u8; 3] = [1, 4, 5];
    let is_tcp = sockopt::socket_protocol(std_fd(fd)) == Ok(Some(ipproto::TCP));
    let (mut state, mut len) = (0_u8, 1);
    let at = (&raw mut state).cast();
    // SAFETY: room for one byte, the first of `struct tcp_info`, and a live length.
    let ret = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len) };
    is_tcp && ret == 0 && ESTABLISHED_OR_FIN_WAIT.contains(&state)
}

/// Reports each event once, where poll would repeat it. See `EPOLLET` in `epoll(7)`.
pub struct News(OwnedFd);

impl News {
    /// Also errors and hang-ups, and what is there already. `ENOSPC`: too many watches of the user.
    pub fn of(fd: i32, events: Events) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // epoll has the same numbers.
        let events = EventFlags::from_bits_retain(i32::from(events.bits()) as u32);
        let (events, data) = (events | EventFlags::ET, EventData::new_u64(0));
        epoll::add(&epoll, std_fd(fd), data, events)?;
        Ok(Self(epoll))
    }

    /// What is new. Never waits.
    pub fn take(&self) -> Events {
        let mut room = [MaybeUninit::uninit()];
        let found = epoll::wait(&self.0, &mut room, Some(&Timespec::default()));
        let flags = found.map_or(None, |(events, _)| events.first().map(|event| event.flags));
        Events::from_bits_retain(flags.unwrap_or(EventFlags::empty()).bits() as _)
    }
}

impl AsRawFd for News {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Returns how many descriptors are ready, after at most `timeout`. `EINTR`: this process was
/// suspended and resumed; `EINVAL`: more descriptors than `RLIMIT_NOFILE` allows. See `ppoll(2)`.
pub fn poll(fds: &mut [Polled], timeout: Option<Duration>) -> Result<usize, Errno> {
    // A system call, for the reason in `clock`. The kernel writes the remaining time to `limit`.
    let mut limit = timeout.map(clock::limit);
    let limit = limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let (number, no_mask, len) = (libc::SYS_ppoll, ptr::null::<u64>(), fds.len());
    // SAFETY: a live array of the kernel's type with its own length; the time-out is null or live.
    let ret = unsafe { libc::syscall(number, fds.as_mut_ptr(), len, limit, no_mask, 0_usize) };
    check(ret).map(|count| count as usize)
}

/// Nothing is reported also if a signal interrupts the wait, or poll fails.
pub fn poll_one(fd: RawFd, events: Events, timeout: Duration) -> Events {
    let mut one = [Polled::new(fd, events)];
    let _ = poll(&mut one, Some(timeout));
    one[0].reported()
}

/// Notices each write to a stream, also one that another process reads at once, which an epoll that
/// asks for input alone forgets: when it is looked at, it asks the stream again.
pub enum Writes {
    /// Each write to a pipe; each read of a terminal, where a write is output.
    Inotify(RawFd, OwnedFd),
    /// Of a socket, which inotify does not know. An epoll that also asks for room keeps the event
    /// of a write while there is room. Each read of the other end of a Unix socket counts, too.
    Epoll(RawFd, News),
}

impl Writes {
    /// `EMFILE`: also too many instances of inotify; `ENOSPC`: too many watches; `EACCES`: another
    /// user's pipe or terminal; `ENOENT`: no `/proc`; `EINVAL`: another kind. See `inotify(7)`.
    /// `of_pipe`: what is noticed of a pipe: a write (`MODIFY`), or that a FIFO is opened (`OPEN`).
    pub fn watch(stream: RawFd, of_pipe: WatchFlags) -> Result<Self, Errno> {
        let flags = match fd::kind(stream) {
            Kind::Pipe => of_pipe,
            Kind::Terminal => WatchFlags::ACCESS,
            Kind::Socket => {
                let news = News::of(stream, Events::IN | Events::OUT)?;
                return Ok(Self::Epoll(stream, news));
            }
            Kind::Other => return Err(Errno::INVAL),
        };
        let notify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&notify, format!("/proc/self/fd/{stream}"), flags)?;
        if flags == WatchFlags::ACCESS {
            // The same terminal under its other name. Readers of other terminals by it count, too.
            let _ = inotify::add_watch(&notify, c"/dev/tty", flags);
        }
        Ok(Self::Inotify(stream, notify))
    }

    /// Whether there was a write since the last call. Never waits.
    pub fn take(&self) -> bool {
        match self {
            Self::Inotify(_, notify) => {
                rustix::io::read(notify, &mut [0; 256]).is_ok_and(|len| len > 0)
            }
            Self::Epoll(_, news) => !news.take().is_empty(),
        }
    }

    /// Whether a write may be going on that is not noticed yet: its process may be waiting for
    /// room. Without room for output, writes to a socket are not noticed.
    pub fn may_be_going_on(&self) -> bool {
        let (Self::Inotify(stream, _) | Self::Epoll(stream, _)) = *self;
        let has_room = || !poll_one(stream, Events::OUT, Duration::ZERO).is_empty();
        fd::may_be_full(stream) || matches!(self, Self::Epoll(..)) && !has_room()
    }
}

impl AsRawFd for Writes {
    /// Is readable after a write.
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Inotify(_, notify) => notify.as_raw_fd(),
            Self::Epoll(_, news) => news.as_raw_fd(),
        }
    }
}
