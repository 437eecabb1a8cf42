//! Terminals.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Whether this process has a controlling terminal. See `tty(4)`.
///
/// Without `/dev/tty` (an empty `/dev`) it is known only if a standard descriptor is that terminal.
#[must_use]
pub fn have_controlling_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        Ok(_) => true,
        Err(rustix::io::Errno::NXIO) => false,
        Err(_) => {
            let own = super::pid::session(0).unwrap_or(-1);
            // SAFETY: takes numbers; a descriptor that is closed or no terminal gives an error.
            (0..3).any(|fd| unsafe { libc::tcgetsid(fd) } == own)
        }
    }
}

/// Makes `group` the foreground group of the controlling terminal again, if the current one has no process any
/// more. The server (a shell, for example) may have made that one.
pub fn reclaim_foreground(group: i32) {
    let Some((terminal, current)) = front().filter(|(_, current)| *current != group) else {
        return;
    };
    // SAFETY: takes numbers; signal 0 only asks whether the group has a member.
    let abandoned =
        unsafe { libc::kill(-current, 0) } == -1 && super::last_errno() == super::Errno::SRCH;
    if abandoned {
        set_front(&terminal, group);
    }
}

/// The foreground group of the controlling terminal.
#[must_use]
pub fn front_group() -> Option<i32> {
    front().map(|(_, group)| group)
}

/// Makes `to` the foreground group of the controlling terminal, if that is now `from`.
pub fn move_foreground(from: i32, to: i32) {
    if let Some((terminal, _)) = front().filter(|(_, current)| *current == from) {
        set_front(&terminal, to);
    }
}

fn front() -> Option<(OwnedFd, i32)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
    let group = foreground(terminal.as_raw_fd()).filter(|group| *group > 1)?;
    Some((terminal, group))
}

/// See `tcsetpgrp(3)`.
fn set_front(terminal: &OwnedFd, group: i32) {
    // SAFETY: takes numbers; SIGTTOU is blocked, so the call cannot suspend this process. It fails only if the
    // terminal or the group is gone.
    unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) };
}

/// Whether `fd` is a terminal, the controlling one or another. See `isatty(3)`.
#[must_use]
pub fn is_terminal(fd: i32) -> bool {
    // SAFETY: takes a number.
    unsafe { libc::isatty(fd) == 1 }
}

/// The foreground group of the terminal on `fd`, if that is the controlling terminal. See `tcgetpgrp(3)`.
#[must_use]
pub fn foreground(fd: i32) -> Option<i32> {
    // SAFETY: takes a number.
    let group = unsafe { libc::tcgetpgrp(fd) };
    (group >= 0).then_some(group)
}
