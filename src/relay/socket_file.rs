//! The socket that other processes connect to: made before the server starts, removed at the end.
//!
//! A stale socket is replaced by the process that holds the claim on it: a socket of its own, whose name is made of the
//! number of the stale one. `bind` makes such a name once. So two processes that have found the same stale socket do not
//! both replace it, and none waits for the other. One gap is left: if a claim is stale too, since its process was
//! killed in the few microseconds before the socket got its name, two processes can remove it after each other.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RenameFlags, StatxFlags, StatxTimestamp,
};

use crate::output::error;
use crate::sys::{Errno, peer};

/// How much of a name is part of the name of a claim: that one must fit into the address of a socket, too.
const KEPT_NAME: usize = 60;
/// How often it is tried again, because another process has changed the folder meanwhile.
const ATTEMPTS: usize = 8;

/// Where a socket is to be made. It stays the same whatever the working directory is.
#[derive(Debug)]
pub struct SocketPath {
    folder: OwnedFd,
    /// The path of the folder, and the name in it, as the option has them.
    parent: PathBuf,
    name: OsString,
}

/// A socket that was made, as far as it is needed to remove it.
#[derive(Debug)]
pub struct SocketFile {
    place: SocketPath,
    identity: SocketId,
}

/// Which file it is. A later file can have the same number, but not the same time as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketId {
    device: (u32, u32),
    number: u64,
    made: (i64, u32),
}

impl SocketPath {
    /// The place that `path` names.
    ///
    /// # Errors
    /// `path` is too long, or its folder cannot be opened.
    pub fn open(path: &Path) -> Result<Self, String> {
        let length = path.as_os_str().len();
        if length > peer::LONGEST_PATH {
            return Err(format!(
                "the path has {length} bytes, and the name of a socket has at most {}",
                peer::LONGEST_PATH
            ));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("the path names a folder".to_owned());
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty())
            .map_err(|errno| format!("its folder: {}", error::describe(errno)))?;
        Ok(Self {
            folder,
            parent: parent.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Whether a socket could be made here.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(&self.folder, ".", access, AtFlags::EACCESS)
            .map_err(|errno| format!("its folder: {}", error::describe(errno)))?;
        self.stale(&self.name).map(drop)
    }

    /// Makes the socket, and replaces a stale one. The socket listens before it gets its name, so it accepts connections
    /// as soon as it can be seen.
    ///
    /// # Errors
    /// Another file has this name, or no socket can be made here.
    pub fn make(self) -> Result<(SocketFile, UnixListener), String> {
        for _ in 0..ATTEMPTS {
            let stale = self.stale(&self.name)?;
            let claim = self.claim(stale);
            let listener = match peer::listen(&self.address(&claim)) {
                Err(Errno::ADDRINUSE) => {
                    // Another process may have just made it.
                    if self.stale(&claim)?.is_some() {
                        self.unlink(&claim);
                    }
                    continue;
                }
                other => other.map_err(error::describe)?,
            };
            match self.take(&claim, stale) {
                Ok(identity) => {
                    let place = self;
                    return Ok((SocketFile { place, identity }, listener));
                }
                Err(Errno::EXIST) => self.unlink(&claim),
                Err(errno) => {
                    self.unlink(&claim);
                    return Err(error::describe(errno));
                }
            }
        }
        Err("other processes make sockets with this name at the same time".to_owned())
    }

    /// Gives the claimed socket its name, in the place of the stale one. `EXIST`: that is no longer there, or there is
    /// another file now.
    fn take(&self, claim: &OsStr, stale: Option<SocketId>) -> Result<SocketId, Errno> {
        let identity = self.identity(claim)?;
        let folder = &self.folder;
        if let Some(stale) = stale {
            if self.identity(&self.name) != Ok(stale) {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(folder, claim, folder, &self.name)?;
        } else {
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(folder, claim, folder, &self.name, flags) {
                // The file system does not know the flag.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::linkat(folder, claim, folder, &self.name, AtFlags::empty())?;
                    self.unlink(claim);
                }
                other => other?,
            }
        }
        Ok(identity)
    }

    /// The socket of this name, if its process is gone. `None`: there is no file.
    fn stale(&self, name: &OsStr) -> Result<Option<SocketId>, String> {
        let Ok(stat) = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(None);
        };
        let identity = self.identity(name);
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err("there is a file already, which is not a socket".to_owned());
        }
        match peer::is_alive(&self.address(name)) {
            Ok(false) => identity.map(Some).map_err(error::describe),
            Ok(true) => Err("a process listens on this socket".to_owned()),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(format!("there is one already: {}", error::describe(errno))),
        }
    }

    /// The name of the claim on this stale socket, or on a name that no file has.
    fn claim(&self, stale: Option<SocketId>) -> OsString {
        let name = self.name.as_bytes();
        let kept = &name[..name.len().min(KEPT_NAME)];
        let number = stale.map_or(0, |stale| stale.number);
        let end = format!(".{number:x}");
        OsString::from_vec([b".", kept, end.as_bytes()].concat())
    }

    /// The address of a socket with this name: its path, or a shorter one if that is too long.
    fn address(&self, name: &OsStr) -> PathBuf {
        let path = self.parent.join(name);
        if path.as_os_str().len() <= peer::LONGEST_PATH {
            return path;
        }
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        Path::new(&folder).join(name)
    }

    fn identity(&self, name: &OsStr) -> Result<SocketId, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::MTIME;
        let found = rustix::fs::statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
        let StatxTimestamp {
            tv_sec, tv_nsec, ..
        } = found.stx_mtime;
        Ok(SocketId {
            device: (found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
            made: (tv_sec, tv_nsec),
        })
    }

    fn unlink(&self, name: &OsStr) {
        let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
    }
}

impl SocketFile {
    /// The descriptor of its folder.
    #[must_use]
    pub fn folder(&self) -> i32 {
        self.place.folder.as_raw_fd()
    }

    /// Removes the socket, unless it was replaced.
    fn remove(&self) {
        if self.place.identity(&self.place.name) == Ok(self.identity) {
            self.place.unlink(&self.place.name);
        }
    }
}

/// The sockets of this run. They are removed when this is dropped.
#[derive(Debug, Default)]
pub struct SocketFiles(pub Vec<SocketFile>);

impl SocketFiles {
    pub fn remove(&self) {
        self.0.iter().for_each(SocketFile::remove);
    }
}

impl Drop for SocketFiles {
    fn drop(&mut self) {
        self.remove();
    }
}
