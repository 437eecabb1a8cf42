//! A PID namespace: the monitor is its init, so the kernel kills every process in it when the
//! monitor ends, even if all processes of treaper are SIGKILLed at the same instant.
//! This changes what the server sees: its pid is 2 or 3, and it only sees the processes of the
//! namespace, which has its own `/proc`. Without root the server is also in a user namespace: only
//! its own uid and gid exist there, and setuid programs give no rights.

use crate::output::error::{self, Error};
use crate::sys::clone::{self, Fork};
use crate::sys::{Errno, namespace};

/// Forks the monitor into a new PID namespace, which the child sets up. The error, which the child
/// can return, too, names the cause and the remedy. `in_job`: see [`clone::fork`].
pub fn fork(in_job: bool) -> Result<Fork, Error> {
    let (uid, gid) = namespace::own_ids();
    let fork = |with_user| clone::fork_into_namespace(with_user, in_job);
    let (forked, with_user) = match fork(false) {
        Err(Errno::PERM) => (fork(true), true),
        other => (other, false),
    };
    let forked = forked.map_err(|errno| cannot("make a PID namespace", errno))?;
    if matches!(forked, Fork::Child) {
        if with_user {
            namespace::map_ids(uid, gid)
                .map_err(|errno| cannot("map the uid of treaper", errno))?;
        }
        namespace::mount_own_proc().map_err(|errno| cannot("mount /proc", errno))?;
    }
    Ok(forked)
}

fn cannot(what: &str, errno: Errno) -> Error {
    let remedy = match errno {
        Errno::INVAL if what == "mount /proc" => {
            "; the root directory is not a mount point: before the chroot, mount its directory onto itself (mount --bind)"
        }
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
    let message = format!("--contain=pidns cannot be used here: cannot {what}: {text}{remedy}");
    Error::new(message)
}
