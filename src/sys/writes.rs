//! Writes to a stream that another process reads: noticed without reading any of it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::Errno;
use super::fd::{self, Kind};
use super::poll::{self, Events, News};

/// Notices each write to a stream, also one that is read at once.
///
/// An epoll that asks for input alone does not: when it is looked at, it asks the stream again, and
/// forgets what another process has read by then.
#[derive(Debug)]
pub struct Writes {
    stream: RawFd,
    seen_by: SeenBy,
}

#[derive(Debug)]
enum SeenBy {
    /// Of a pipe, each write. Of a terminal, each read that has got something: there, a write is
    /// one to the screen. See `inotify(7)`.
    Inotify(OwnedFd),
    /// Of a socket, which inotify does not know. An epoll that also asks for room to write keeps
    /// the event of a write as long as there is room. If the socket is a Unix socket that is
    /// written to as well, each read of the other end is an event, too.
    Epoll(News),
}

impl Writes {
    /// Notices writes from now on.
    ///
    /// # Errors
    /// `EMFILE` also if the user has too many instances of inotify; `ENOSPC` too many watches;
    /// `EACCES` a pipe or terminal of another user; `ENOENT` no `/proc`; `EINVAL` another kind of
    /// file.
    pub fn watch(stream: RawFd) -> Result<Self, Errno> {
        let flags = match fd::kind(stream) {
            Kind::Pipe => Some(WatchFlags::MODIFY),
            Kind::Terminal => Some(WatchFlags::ACCESS),
            Kind::Socket => None,
            Kind::Other => return Err(Errno::INVAL),
        };
        let seen_by = if let Some(flags) = flags {
            let notify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&notify, format!("/proc/self/fd/{stream}"), flags)?;
            if flags == WatchFlags::ACCESS {
                // The same terminal under its other name. Readers of other terminals by this name
                // count as well.
                let _ = inotify::add_watch(&notify, c"/dev/tty", flags);
            }
            SeenBy::Inotify(notify)
        } else {
            SeenBy::Epoll(News::of(stream, Events::IN | Events::OUT)?)
        };
        Ok(Self { stream, seen_by })
    }

    /// Whether there was a write since the last call. Never waits.
    pub fn take(&self) -> bool {
        match &self.seen_by {
            SeenBy::Inotify(notify) => {
                rustix::io::read(notify, &mut [0; 256]).is_ok_and(|len| len > 0)
            }
            SeenBy::Epoll(epoll) => !epoll.take().is_empty(),
        }
    }

    /// Whether a write may be going on that is not noticed yet: its process may be waiting for
    /// room. Without room for output, writes to a socket are not noticed.
    pub fn may_be_going_on(&self) -> bool {
        let has_room = || !poll::poll_one(self.stream, Events::OUT, Duration::ZERO).is_empty();
        fd::may_be_full(self.stream) || matches!(self.seen_by, SeenBy::Epoll(_)) && !has_room()
    }
}

impl AsRawFd for Writes {
    /// Is readable after a write.
    fn as_raw_fd(&self) -> RawFd {
        match &self.seen_by {
            SeenBy::Inotify(notify) => notify.as_raw_fd(),
            SeenBy::Epoll(epoll) => epoll.as_raw_fd(),
        }
    }
}
