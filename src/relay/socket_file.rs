//! The socket that other processes connect to: made before the server starts, removed at the end.
//! A socket listens before it gets its name, so it accepts connections as soon as it can be seen.
//! Until then it has the name of its *claim*, a hash of the name. `bind` makes a name once, so one
//! process at a time makes a socket or replaces a stale one, and none waits for another one. Two
//! gaps of microseconds are left: two processes can remove the claim of a killed one after each
//! other, and a run that ends can remove a new socket that just took the place of its own.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RenameFlags};

use crate::output::error;
use crate::sys::Errno;
use crate::sys::peer::{self, LONGEST_PATH};

/// Where a socket is to be made, whatever the working directory is. Once made, drop removes it.
pub struct SocketFile {
    folder: OwnedFd,
    /// As the option has it.
    path: PathBuf,
    name: OsString,
    /// The device and the number of the socket that was made. A later file can have the same ones.
    made: Option<(u64, u64)>,
}

impl SocketFile {
    /// The place that `path` names, or why no socket can be made there.
    pub fn open(path: &Path) -> Result<Self, String> {
        let length = path.as_os_str().len();
        if length > LONGEST_PATH {
            let sizes = format!("{length} bytes, and that of a socket has at most {LONGEST_PATH}");
            return Err(format!("the path has {sizes}"));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("the path names a folder".to_owned());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cannot = |errno| format!("its folder: {}", error::describe(errno));
        // `.`: the folder of a bare name.
        let parent = Path::new(".").join(parent);
        let folder = rustix::fs::open(&parent, flags, Mode::empty()).map_err(cannot)?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(&folder, ".", access, AtFlags::EACCESS) {
            // A filter refuses the call. Whether the socket can be made will be seen.
            Ok(()) | Err(Errno::NOSYS | Errno::PERM) => {}
            Err(errno) => return Err(cannot(errno)),
        }
        let file = Self {
            folder,
            path: path.to_owned(),
            name: name.to_owned(),
            made: None,
        };
        file.is_stale(&file.name, &file.path)?;
        Ok(file)
    }

    /// Makes the socket, and replaces a stale one, but no other file.
    pub fn make(mut self) -> Result<(Self, UnixListener), String> {
        let claim = self.claim();
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        let address = Path::new(&folder).join(&claim);
        let mut listener = peer::listen(&address);
        if matches!(listener, Err(Errno::ADDRINUSE)) {
            // Another process may have just removed it.
            if self.is_stale(&claim, &address)? {
                self.unlink(&claim);
            }
            listener = peer::listen(&address);
        }
        let listener = listener.map_err(error::describe)?;
        self.made = Some(self.take(&claim).inspect_err(|_| self.unlink(&claim))?);
        Ok((self, listener))
    }

    /// Gives the claimed socket its name, in the place of a stale one.
    fn take(&self, claim: &OsStr) -> Result<(u64, u64), String> {
        let identity = self.identity(claim).map_err(error::describe)?;
        let is_free = !self.is_stale(&self.name, &self.path)?;
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, is_free);
        let folder = &self.folder;
        let mut taken = rustix::fs::renameat_with(folder, claim, folder, &self.name, flags);
        if matches!(taken, Err(Errno::INVAL | Errno::NOSYS | Errno::PERM)) {
            // The file system does not know the flag, or a filter refuses the call.
            taken = rustix::fs::linkat(folder, claim, folder, &self.name, AtFlags::empty());
            self.unlink(claim);
        }
        taken.map(|()| identity).map_err(error::describe)
    }

    /// Whether a socket of this name is there whose process is gone. False: there is no file.
    fn is_stale(&self, name: &OsStr, address: &Path) -> Result<bool, String> {
        let Ok(stat) = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(false);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err("there is a file already, which is not a socket".to_owned());
        }
        match peer::is_alive(address) {
            Ok(true) => Err("a process listens on this socket".to_owned()),
            Ok(false) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(format!("there is one already: {}", error::describe(errno))),
        }
    }

    /// A short name, since the address of a socket has room for 107 bytes.
    fn claim(&self) -> OsString {
        // FNV-1a, so that another version of treaper makes the same name.
        let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        let hash = self.name.as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, add);
        format!(".treaper-{hash:016x}").into()
    }

    fn identity(&self, name: &OsStr) -> Result<(u64, u64), Errno> {
        let found = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((found.st_dev, found.st_ino))
    }

    fn unlink(&self, name: &OsStr) {
        let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
    }
}

impl Drop for SocketFile {
    /// Removes the socket, unless it was replaced, or a process still listens on it: the relay, or
    /// that of a later run whose socket has the same number. Leaves the working directory.
    fn drop(&mut self) {
        let Some(made) = self.made else { return };
        // A longer path to it may be no address of a socket.
        let _ = rustix::process::fchdir(&self.folder);
        let is_alive = || peer::is_alive(Path::new(&self.name)) == Ok(true);
        if self.identity(&self.name) == Ok(made) && !is_alive() {
            self.unlink(&self.name);
        }
    }
}
