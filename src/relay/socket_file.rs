//! The socket that other processes connect to: made before the server starts, removed at the end.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};

use crate::output::error::{self, Error};
use crate::sys::{Errno, clock, peer, poll};

/// A socket in a folder, as far as it is needed to remove it. It stays the same whatever the working directory is.
#[derive(Debug)]
pub struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    identity: Identity,
}

/// Which file it is. A later file can have the same number, but not the same time as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    made: (i64, u64),
}

/// How long another treaper may take to make a socket in the same folder.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl SocketFile {
    /// Makes the socket that `option` asked for, and replaces the one of a process that is gone.
    ///
    /// # Errors
    /// There is something else at `path`, or nothing can be made there.
    pub fn make(path: &Path, option: &str) -> Result<(Self, UnixListener), Error> {
        let cannot = |why: &str| {
            Error::Misuse(format!(
                "{option}: cannot make the socket '{}': {why}",
                path.display()
            ))
        };
        let kernel = |errno| cannot(&error::describe(errno));
        let length = path.as_os_str().len();
        if length > peer::LONGEST_PATH {
            return Err(cannot(&format!(
                "the path has {length} bytes, and the name of a socket has at most {}",
                peer::LONGEST_PATH
            )));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(cannot("the path names a folder"));
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|errno| cannot(&format!("its folder: {}", error::describe(errno))))?;
        // Between the look at an old socket and its removal no other treaper may put a new one there.
        let _lock =
            Lock::of(&folder).ok_or_else(|| cannot("another process has locked its folder"))?;
        if let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
                return Err(cannot("there is a file already, which is not a socket"));
            }
            match peer::is_alive(path) {
                Ok(false) => {}
                Ok(true) => return Err(cannot("a process listens on this socket")),
                Err(errno) => {
                    let text = error::describe(errno);
                    return Err(cannot(&format!("there is one already: {text}")));
                }
            }
            rustix::fs::unlinkat(&folder, name, AtFlags::empty()).map_err(kernel)?;
        }
        let listener = peer::listen(path).map_err(kernel)?;
        let identity = identity(&folder, name).map_err(kernel)?;
        let name = name.to_owned();
        let made = Self {
            folder,
            name,
            identity,
        };
        Ok((made, listener))
    }

    /// The descriptor of its folder.
    #[must_use]
    pub fn folder(&self) -> i32 {
        self.folder.as_raw_fd()
    }

    /// Removes it, unless it was replaced.
    pub fn remove(&self) {
        let _lock = Lock::of(&self.folder);
        if identity(&self.folder, &self.name) == Ok(self.identity) {
            let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

fn identity(folder: &OwnedFd, name: &OsStr) -> Result<Identity, Errno> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Identity {
        device: stat.st_dev,
        number: stat.st_ino,
        made: (stat.st_mtime, stat.st_mtime_nsec),
    })
}

/// The lock of a folder, until it is dropped. See `flock(2)`.
struct Lock(Option<OwnedFd>);

impl Lock {
    /// `None`: another process holds it, and does not let it go.
    fn of(folder: &OwnedFd) -> Option<Self> {
        // The lock belongs to the open file, which a fork shares. So it needs one of its own.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(own) = rustix::fs::openat(folder, ".", flags, Mode::empty()) else {
            return Some(Self(None));
        };
        let end = clock::now() + LOCK_PATIENCE;
        loop {
            match rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if clock::now() < end => {
                    let _ = poll::poll(&mut [], Some(LOCK_PAUSE));
                }
                Err(Errno::WOULDBLOCK) => return None,
                Err(Errno::INTR) => {}
                // A file system without locks.
                Ok(()) | Err(_) => return Some(Self(Some(own))),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            let _ = rustix::fs::flock(own, FlockOperation::Unlock);
        }
    }
}
