//! The socket that other processes connect to: made before the server starts, removed at the end.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};

use crate::output::error::{self, Error};
use crate::sys::{Errno, clock, peer, poll};

/// Where a socket is to be made. It stays the same whatever the working directory is.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    /// The path of the folder, and the name in it, as the option has them.
    parent: PathBuf,
    name: OsString,
}

/// A socket that was made, as far as it is needed to remove it.
#[derive(Debug)]
pub struct SocketFile {
    place: Place,
    identity: Identity,
}

/// Which file it is. A later file can have the same number, but not the same time as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    number: u64,
    made: (i64, u64),
}

impl Identity {
    /// The size of its bytes.
    pub const SIZE: usize = 32;

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let words = [
            self.device,
            self.number,
            self.made.0.cast_unsigned(),
            self.made.1,
        ];
        let mut bytes = [0; Self::SIZE];
        for (place, byte) in bytes.iter_mut().zip(words.map(u64::to_ne_bytes).concat()) {
            *place = byte;
        }
        bytes
    }

    #[must_use]
    pub fn of_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            device: word(0),
            number: word(1),
            made: (word(2).cast_signed(), word(3)),
        }
    }
}

/// How long another treaper may take to make a socket in the same folder.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// How much of a name is part of its temporary name: that one must fit into the address of a socket, too.
const KEPT_NAME: usize = 60;

impl Place {
    /// The place that `path` names, for the socket that `option` asks for.
    ///
    /// # Errors
    /// `path` is too long, or its folder cannot be opened.
    pub fn open(path: &Path, option: &str) -> Result<Self, Error> {
        let cannot = |why: &str| failure(path, option, why);
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
        Ok(Self {
            folder,
            parent: parent.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Makes the socket, and replaces one whose process is gone. The socket listens before it gets its name, so it
    /// accepts connections as soon as it can be seen.
    ///
    /// # Errors
    /// Another file has this name, or no socket can be made there.
    pub fn make(&self, option: &str) -> Result<(Identity, UnixListener), Error> {
        let path = self.parent.join(&self.name);
        self.try_to_make()
            .map_err(|why| failure(&path, option, &why))
    }

    fn try_to_make(&self) -> Result<(Identity, UnixListener), String> {
        // Between the look at an old socket and its removal no other treaper may put a new one there.
        let _lock = Lock::of(&self.folder).ok_or("another process has locked its folder")?;
        self.remove_dead(&self.name)?;
        // A run whose processes were all killed at this point has left this one.
        let temporary = self.temporary();
        let in_the_way = |why| format!("'{}' is in its folder: {why}", temporary.display());
        self.remove_dead(&temporary).map_err(in_the_way)?;
        let kernel = |errno| error::describe(errno);
        let listener = peer::listen(&self.address(&temporary)).map_err(kernel)?;
        let named = identity(&self.folder, &temporary)
            .and_then(|identity| self.rename(&temporary).map(|()| identity));
        let identity = named.map_err(|errno| {
            let _ = rustix::fs::unlinkat(&self.folder, &temporary, AtFlags::empty());
            kernel(errno)
        })?;
        Ok((identity, listener))
    }

    /// Removes what a process has left that was killed while it made the socket.
    pub fn clean(&self) {
        let _lock = Lock::of(&self.folder);
        for name in [&self.temporary(), &self.name] {
            let _ = self.remove_dead(name);
        }
    }

    /// The name of the socket until it listens. Names that begin alike share it, and the lock of the folder keeps them
    /// apart.
    fn temporary(&self) -> OsString {
        let name = self.name.as_bytes();
        let kept = &name[..name.len().min(KEPT_NAME)];
        OsString::from_vec([b".", kept, b".new"].concat())
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

    /// Gives the socket its name. It replaces no file that has appeared in the meantime.
    fn rename(&self, temporary: &OsStr) -> Result<(), Errno> {
        let (folder, flags) = (&self.folder, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(folder, temporary, folder, &self.name, flags) {
            // The file system cannot do that.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::renameat(folder, temporary, folder, &self.name)
            }
            other => other,
        }
    }

    /// Removes the socket of this name if its process is gone.
    fn remove_dead(&self, name: &OsStr) -> Result<(), String> {
        let Ok(stat) = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(());
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err("there is a file already, which is not a socket".to_owned());
        }
        match peer::is_alive(&self.address(name)) {
            Ok(false) => {}
            Ok(true) => return Err("a process listens on this socket".to_owned()),
            Err(errno) => {
                return Err(format!("there is one already: {}", error::describe(errno)));
            }
        }
        rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()).map_err(error::describe)
    }
}

fn failure(path: &Path, option: &str, why: &str) -> Error {
    let path = path.display();
    Error::Misuse(format!("{option}: cannot make the socket '{path}': {why}"))
}

/// Removes these sockets, unless they were replaced.
pub fn remove(files: &[SocketFile]) {
    for file in files {
        file.remove();
    }
}

impl SocketFile {
    /// The socket that was made at `place`.
    #[must_use]
    pub const fn new(place: Place, identity: Identity) -> Self {
        Self { place, identity }
    }

    /// The descriptor of its folder.
    #[must_use]
    pub fn folder(&self) -> i32 {
        self.place.folder.as_raw_fd()
    }

    fn remove(&self) {
        let Place { folder, name, .. } = &self.place;
        let _lock = Lock::of(folder);
        if identity(folder, name) == Ok(self.identity) {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
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
    /// `None`: another process holds the lock for too long.
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
