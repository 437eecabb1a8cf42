//! Waiting for descriptors, and what poll reports about their other ends.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

pub use rustix::event::PollFlags as Events;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{ipproto, sockopt};

use super::{Errno, check, clock, std_fd};

/// A descriptor that [`poll`] looks at, and what it has reported. poll ignores a negative
/// descriptor.
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

    /// What the last [`poll`] has reported.
    pub const fn reported(&self) -> Events {
        Events::from_bits_retain(self.0.revents as _)
    }
}

/// Whether the peer of `fd` has hung up, without reading anything. See `poll(2)`, `POLLRDHUP`.
pub fn has_hung_up(fd: RawFd) -> bool {
    poll_one(fd, Events::RDHUP, Duration::ZERO).intersects(HANG_UP)
}

/// The answers of poll that mean that the peer of an input has hung up. POLLERR is not one of them:
/// a socket also reports the failure of a message that was sent, or a time stamp (`MSG_ZEROCOPY`,
/// `SO_TIMESTAMPING`).
pub const HANG_UP: Events = Events::HUP.union(Events::RDHUP);

/// Whether the peer of a TCP socket can still send. Then a POLLRDHUP was caused by
/// `shutdown(SHUT_RD)` on this end. With a Unix socket it is unknown which end was shut down, as
/// with MPTCP, where `TCP_INFO` is that of one subflow. See `tcp(7)`.
pub fn peer_can_send(fd: i32) -> bool {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT: [u8; 2] = [4, 5];
    let is_tcp = sockopt::socket_protocol(std_fd(fd)) == Ok(Some(ipproto::TCP));
    let (mut state, mut len) = (0_u8, 1);
    let at = (&raw mut state).cast();
    // SAFETY: room for one byte, the first of `struct tcp_info`, and a live length.
    let ret = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len) };
    is_tcp && ret == 0 && (state == ESTABLISHED || FIN_WAIT.contains(&state))
}

/// Reports each new event of a descriptor once, where poll would report it again and again. See
/// `EPOLLET` in `epoll(7)`.
#[derive(Debug)]
pub struct News(OwnedFd);

impl News {
    /// These `events`, errors and hang-ups, also those that are there already.
    ///
    /// # Errors
    /// `ENOSPC` the user has too many watches.
    pub fn of(fd: i32, events: Events) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // epoll has the same numbers.
        let events = EventFlags::from_bits_retain(i32::from(events.bits()) as u32);
        epoll::add(
            &epoll,
            std_fd(fd),
            EventData::new_u64(0),
            events | EventFlags::ET,
        )?;
        Ok(Self(epoll))
    }

    /// What is new, as the flags of poll. Never waits.
    pub fn take(&self) -> Events {
        let mut room = [MaybeUninit::uninit()];
        let found = epoll::wait(&self.0, &mut room, Some(&Timespec::default()));
        let flags = found.map_or(None, |(events, _)| events.first().map(|event| event.flags));
        flags.map_or(Events::empty(), |flags| {
            Events::from_bits_retain(flags.bits() as _)
        })
    }
}

impl AsRawFd for News {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Waits until a descriptor is ready, at most for `timeout` (`None`: without a limit). Returns how
/// many are ready. See `ppoll(2)`.
///
/// # Errors
/// `EINTR` after this process was suspended and resumed; `ENOMEM`; `EINVAL` if
/// there are more descriptors than `RLIMIT_NOFILE` allows.
pub fn poll(fds: &mut [Polled], timeout: Option<Duration>) -> Result<usize, Errno> {
    // By the system call, as in `clock`. It writes what is left of the time.
    let mut limit = timeout.map(clock::limit);
    let limit = limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let (number, no_mask, len) = (libc::SYS_ppoll, ptr::null::<u64>(), fds.len());
    // SAFETY: the array is live, of the kernel's type, and the length is its own; the time-out is
    // null or live.
    let ret = unsafe { libc::syscall(number, fds.as_mut_ptr(), len, limit, no_mask, 0_usize) };
    check(ret).map(|count| count as usize)
}

/// What is reported of one descriptor within this time. Nothing is reported also if a signal has
/// interrupted the wait, or if poll fails.
pub fn poll_one(fd: RawFd, events: Events, timeout: Duration) -> Events {
    let mut one = [Polled::new(fd, events)];
    let _ = poll(&mut one, Some(timeout));
    one[0].reported()
}
