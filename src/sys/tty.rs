//! Terminals.

use std::os::fd::OwnedFd;

use nix::sys::termios::tcgetsid;
use rustix::fs::OFlags;
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios;

use super::{Errno, errno, open, std_fd};

/// Without `/dev/tty`, it is known only if a standard descriptor is open on it. See `tty(4)`.
pub fn have_controlling_terminal() -> bool {
    match open(c"/dev/tty", OFlags::NOCTTY | OFlags::NONBLOCK) {
        Ok(_) => true,
        Err(Errno::NXIO) => false,
        Err(_) => {
            let own = super::pid::session(0);
            // Not by rustix, whose type excludes the 0 of a leader outside of this PID namespace.
            let session = |fd| tcgetsid(std_fd(fd)).map_err(errno);
            (0..3).any(|fd| session(fd).map(nix::unistd::Pid::as_raw) == own)
        }
    }
}

/// Makes `group` the foreground group again, if the current one, which the server (a shell, for
/// example) may have made, has no process any more.
pub fn reclaim_foreground(group: i32) {
    let is_gone = |group: Pid| test_kill_process_group(group) == Err(Errno::SRCH);
    let other = front().filter(|(_, current)| current.as_raw_pid() != group && is_gone(*current));
    if let Some((terminal, _)) = other {
        set_front(&terminal, group);
    }
}

pub fn front_group() -> Option<i32> {
    front().map(|(_, group)| group.as_raw_pid())
}

/// Makes `to` the foreground group, if that is now `from`.
pub fn move_foreground(from: i32, to: i32) {
    if let Some((terminal, _)) = front().filter(|(_, current)| current.as_raw_pid() == from) {
        set_front(&terminal, to);
    }
}

/// The controlling terminal, and its foreground group. `None` also if the leader of that group is
/// outside of this PID namespace. See `tcgetpgrp(3)`.
fn front() -> Option<(OwnedFd, Pid)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK;
    let terminal = open(c"/dev/tty", flags).ok()?;
    let group = termios::tcgetpgrp(&terminal).ok()?;
    (!group.is_init()).then_some((terminal, group))
}

/// SIGTTOU is blocked. Fails only if the terminal or the group is gone. See `tcsetpgrp(3)`.
fn set_front(terminal: &OwnedFd, group: i32) {
    let _ = Pid::from_raw(group).map(|group| termios::tcsetpgrp(terminal, group));
}
