//! Setting up new namespaces, from inside of them.

use std::ffi::CStr;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::Errno;

/// The effective uid and gid of this process. See `geteuid(2)`.
pub fn own_ids() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Gives the calling process of a new user namespace the ids that it has outside. See
/// `user_namespaces(7)`.
///
/// # Errors
/// `EPERM` forbidden by the system.
pub fn map_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // The kernel takes a gid map from an unprivileged process only after that process has denied
    // setgroups.
    match write(c"/proc/self/setgroups", "deny") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    write(c"/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write(c"/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn write(path: &CStr, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Mounts a `/proc` of this PID namespace over the old one, visible only in this mount namespace.
/// See `mount(2)`.
///
/// # Errors
/// `EPERM` the old one is partly covered, as in containers, so a whole one is not allowed.
pub fn mount_own_proc() -> Result<(), Errno> {
    // Mounts that are made outside are still seen here. Those that are made here are not seen
    // outside.
    mount_change(
        c"/",
        MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
    )?;
    let careful = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", c"/proc", c"proc", careful, None)
}
