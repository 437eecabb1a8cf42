//! Setting up new namespaces, from inside of them.

use rustix::fs::{CWD, Mode, OFlags};

use super::{Errno, check};

/// Our effective uid and gid. See `getuid(2)`.
#[must_use]
pub fn own_ids() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Gives the calling process of a new user namespace the ids that it has outside. See `user_namespaces(7)`.
///
/// # Errors
/// `EPERM` forbidden by the system.
pub fn map_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // Without giving up setgroups the kernel takes no gid map from the unprivileged.
    match write(c"/proc/self/setgroups", "deny") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    write(c"/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write(c"/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn write(path: &std::ffi::CStr, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Mounts a `/proc` of our PID namespace over the old one, seen in our mount namespace only. See `mount(2)`.
///
/// # Errors
/// `EPERM` the old one is partly covered, as containers do, and may not be shown whole.
pub fn mount_own_proc() -> Result<(), Errno> {
    // What is mounted outside still comes in; nothing of ours goes out.
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
    mount(
        c"proc",
        c"/proc",
        Some(c"proc"),
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
    )
}

fn mount(
    source: &std::ffi::CStr,
    target: &std::ffi::CStr,
    kind: Option<&std::ffi::CStr>,
    flags: libc::c_ulong,
) -> Result<(), Errno> {
    let kind = kind.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: NUL-terminated strings that outlive the call, or null where the kernel takes it; no data.
    check(
        unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind,
                flags,
                std::ptr::null(),
            )
        }
        .into(),
    )
    .map(drop)
}
