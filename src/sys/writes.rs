//! Writes to a stream that another process reads: noticed without reading any of it.

use std::os::fd::{AsRawFd, RawFd};

use super::Errno;
use super::fd;
use super::poll::News;

/// Notices each write to a stream.
#[derive(Debug)]
pub struct Writes {
    stream: RawFd,
    epoll: News,
}

impl Writes {
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`, `ENOSPC`; `EPERM` a file, or a device that never waits.
    pub fn of(stream: RawFd) -> Result<Self, Errno> {
        let epoll = News::with(libc::EPOLLIN | libc::EPOLLRDHUP, stream)?;
        Ok(Self { stream, epoll })
    }

    /// Whether there was a write since the last call. Never waits.
    #[must_use]
    pub fn take(&self) -> bool {
        !self.epoll.take().is_empty()
    }

    /// Whether a write may be going on that is not noticed yet: its process may be waiting for room.
    #[must_use]
    pub fn may_be_going_on(&self) -> bool {
        fd::may_be_full(self.stream)
    }
}

impl AsRawFd for Writes {
    /// Is readable after a write.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
