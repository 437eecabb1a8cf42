//! A PID namespace: the monitor is its init, so the kernel kills every member when the monitor
//! dies, even if all processes of ours are SIGKILLed at the same instant.
//!
//! What changes for the server: its pid is 2, it sees the namespace's processes only (with a
//! `/proc` of their own), and without root it is in a user namespace, where only its own uid and
//! gid exist and setuid programs give no rights.
#![forbid(unsafe_code)]

use crate::error::{self, Error};
use crate::sys::clone::{self, Fork, Namespaces};
use crate::sys::{Errno, namespace, wait};

/// Forks the monitor into a new PID namespace, and sets that up in it.
///
/// # Errors
/// It cannot be had here: the cause and the remedy. In the child, too.
pub fn fork() -> Result<Fork, Error> {
    let ids = namespace::own_ids();
    let (forked, kind) = fork_bare()?;
    if matches!(forked, Fork::Child) {
        set_up(kind, ids)?;
    }
    Ok(forked)
}

/// Whether it can be had here: by making one.
///
/// # Errors
/// The cause and the remedy.
pub fn probe() -> Result<(), String> {
    let ids = namespace::own_ids();
    match fork_bare().map_err(|error| error.to_string())? {
        (Fork::Child, kind) => clone::exit_child(set_up(kind, ids).is_err().into()),
        (Fork::Parent(pid), _) if wait::for_success(pid) => Ok(()),
        (Fork::Parent(_), _) => {
            Err("a namespace can be made, but no /proc be mounted in it; in a container it needs CAP_SYS_ADMIN and an uncovered /proc".to_owned())
        }
    }
}

fn fork_bare() -> Result<(Fork, Namespaces), Error> {
    let (forked, kind) = match clone::fork_into(Namespaces::Privileged) {
        Err(Errno::PERM) => (clone::fork_into(Namespaces::WithUser), Namespaces::WithUser),
        other => (other, Namespaces::Privileged),
    };
    let forked = forked.map_err(|errno| cannot("make a PID namespace", errno))?;
    Ok((forked, kind))
}

/// In the new namespaces.
fn set_up(kind: Namespaces, (uid, gid): (u32, u32)) -> Result<(), Error> {
    if kind == Namespaces::WithUser {
        namespace::map_ids(uid, gid).map_err(|errno| cannot("map our uid", errno))?;
    }
    namespace::mount_own_proc().map_err(|errno| cannot("mount /proc", errno))
}

fn cannot(what: &str, errno: Errno) -> Error {
    let remedy = match errno {
        Errno::NOSPC => {
            "; the limit of namespaces is reached: sysctl user.max_user_namespaces and user.max_pid_namespaces"
        }
        Errno::PERM | Errno::ACCESS => {
            "; run as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns); \
             in a container it needs CAP_SYS_ADMIN"
        }
        Errno::INVAL => "; this kernel has no PID or user namespaces",
        _ => "",
    };
    let text = error::describe(errno);
    Error::usage(format!(
        "--contain=pidns cannot be had here: cannot {what}: {text}{remedy}"
    ))
}
