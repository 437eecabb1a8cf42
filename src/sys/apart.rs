//! What may have to wait for a file system, so that another process does it.

use super::clone::{Fork, clone, exit_now, fork_plainly};
use super::pid::Pid;
use super::wait::{DYING, Wait};
use super::{clock, fd, proc, std_fd};

/// Closes a descriptor, except stderr, that only the server needs. Stdin and stdout become copies
/// of stderr, so that nothing opened later gets their numbers. If the file system may make the
/// close wait (`flush` of FUSE and NFS), a process that shares them does it: one of `helpers`.
pub fn give_up(fd: i32, helpers: &mut Vec<i32>) {
    if !fd::may_wait(fd) {
        return close(fd);
    }
    match clone(libc::CLONE_FILES | libc::SIGCHLD, None) {
        Ok((Fork::Child, ..)) => {
            close(fd);
            exit_now(0)
        }
        Ok((Fork::Parent(pid), ..)) if helpers.try_reserve(1).is_ok() => helpers.push(pid.get()),
        Ok((Fork::Parent(_), ..)) | Err(_) => {}
    }
}

/// Waits until `helpers` have ended, or the files would stay open for a moment after this process.
/// One that is older than half a second is not waited for: its file system may never answer.
pub fn wait_for(helpers: &[i32]) {
    let is_new = |stat: proc::Stat| stat.started + 50 > clock::ticks();
    for helper in helpers.iter().filter_map(|pid| Pid::new(*pid)) {
        let may_end = || proc::stat(helper.get()).is_ok_and(is_new);
        while Wait::child(helper).ended().take() == Ok(None) && may_end() {
            clock::pause(DYING / 500);
        }
    }
}

fn close(fd: i32) {
    if fd < fd::STDERR {
        fd::redirect(std_fd(fd::STDERR), fd);
    } else {
        // SAFETY: it was open before this program began, so nothing in it owns it.
        unsafe { libc::close(fd) };
    }
}

/// As [`fd::write_message`]. If that may wait, a child does it, and its pid is returned.
pub fn write_message_apart(bytes: &[u8]) -> Option<Pid> {
    if !fd::may_wait(fd::STDERR) {
        fd::write_message(bytes);
        return None;
    }
    match fork_plainly().ok()? {
        Fork::Parent(child) => Some(child),
        Fork::Child => {
            fd::inherited().into_iter().for_each(close);
            fd::write_message(bytes);
            exit_now(0)
        }
    }
}
