//! Setting up new namespaces, from inside of them.

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{getegid, geteuid};

use super::Errno;
use super::fd::write_file;

/// The effective uid and gid of this process. See `geteuid(2)`.
pub fn own_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Gives the calling process of a new user namespace the ids that it has outside. See
/// `user_namespaces(7)`. `EPERM`: forbidden by the system.
pub fn map_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // The kernel takes a gid map from an unprivileged process only if that has denied setgroups.
    match write_file(CWD, c"/proc/self/setgroups", b"deny") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let map = |path, id| write_file(CWD, path, format!("{id} {id} 1").as_bytes());
    map(c"/proc/self/uid_map", uid)?;
    map(c"/proc/self/gid_map", gid)
}

/// Mounts a `/proc` of this PID namespace over the old one. See `mount(2)`. `EPERM`: the old one is
/// partly covered, as in containers, so a whole one is not allowed.
pub fn mount_own_proc() -> Result<(), Errno> {
    // Mounts that are made outside are still seen here, and not the other way round.
    let from_outside = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change(c"/", from_outside)?;
    let careful = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", careful, None)
}
