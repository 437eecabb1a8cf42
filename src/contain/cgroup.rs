//! A new cgroup v2 for the tree, below the group in which treaper is.
//! It guarantees more than the walk: one write reaches every member at once, whatever its uid, and
//! also while it forks. A member with write access to another group can leave this one, but is
//! still stopped as a descendant. The group outlives treaper, so the pair is still needed.

use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::sys::cgroup_dir as sys;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::Signal;
use crate::sys::{Errno, fd, pidfd, proc};

pub struct Cgroup {
    /// The group in which treaper is.
    parent: OwnedFd,
    name: CString,
    pub dir: OwnedFd,
    /// `cgroup.events`: poll reports it when the last member is gone.
    pub events: OwnedFd,
}

/// Begins each name of a group. The pid and start time of its treaper follow, and a free number:
/// another PID namespace may have the same two, or a sweep may just have removed the group.
const PREFIX: &str = "treaper-";
/// How many numbers are tried.
const MAX_NAMES: u32 = 1000;

impl Cgroup {
    /// Makes the group, and removes groups beside it that killed instances of treaper have left.
    /// The error is a sentence with the cause and the remedy.
    pub fn make() -> Result<Self, String> {
        let read = |path| std::fs::read(path).map_err(|why| format!("cannot read {path}: {why}"));
        let path = find(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)?;
        let parent = sys::open(&path).map_err(|errno| because(&path, errno))?;
        sys::may_move(parent.as_fd()).map_err(|errno| because(&path, errno))?;
        sweep(&parent);
        let started = proc::stat(pid::own()).map_or(0, |stat| stat.started);
        let own = format!("{PREFIX}{}-{started}", pid::own());
        for number in 0..MAX_NAMES {
            let name = CString::new(format!("{own}-{number}")).map_err(|why| why.to_string())?;
            match make_and_hold(&parent, &name) {
                Ok((dir, events)) => {
                    return Ok(Self {
                        parent,
                        name,
                        dir,
                        events,
                    });
                }
                Err(errno) if is_taken(errno) => {}
                Err(errno) => return Err(because(&path, errno)),
            }
        }
        Err(because(&path, Errno::EXIST))
    }

    /// Whether it has a living member. ENODEV: the group has been removed.
    pub fn is_populated(&self) -> Result<bool, Errno> {
        sys::is_populated(self.events.as_fd())
    }

    /// See [`sys::memory_peak`].
    pub fn memory_peak(&self) -> Option<u64> {
        sys::memory_peak(self.dir.as_fd())
    }

    /// Moves processes of treaper that another process has moved into the group, or one below it,
    /// out again: a stop is for the tree alone.
    pub fn expel(&self, treaper: &[i32]) {
        for own in treaper.iter().copied().filter(|pid| *pid != 0) {
            let mut buffer = [0; 4096];
            let groups = proc::view().and_then(|proc| proc.cgroups(own, &mut buffer));
            let groups = groups.unwrap_or_default();
            let mut names = groups.split(|byte| b"/\n".contains(byte));
            if names.any(|name| name == self.name.to_bytes()) {
                let _ = sys::admit(self.parent.as_fd(), own);
            }
        }
    }

    /// Kills the members, also of groups below. Returns whether one call has reached all of them.
    pub fn kill(&self) -> bool {
        match fd::write_file(self.dir.as_fd(), c"cgroup.kill", b"1") {
            Ok(()) => return true,
            Err(Errno::NOENT) => self.kill_by_freezing(),
            Err(errno) => log::warn!("cannot kill the cgroup: {errno}"),
        }
        false
    }

    /// Calls `each` with the pid of every member that is not in a group below.
    pub fn members(&self, each: &mut dyn FnMut(Pid)) {
        let _ = sys::members(self.dir.as_fd(), &mut |number| {
            if let Some(pid) = Pid::new(number) {
                each(pid);
            }
        });
    }

    /// For Linux before 5.14. Frozen members cannot fork. The write returns before all are frozen.
    fn kill_by_freezing(&self) {
        let freeze = |text| fd::write_file(self.dir.as_fd(), c"cgroup.freeze", text);
        let _ = freeze(b"1");
        self.members(&mut |pid| {
            // The pidfd is opened before the proof, so that the signal reaches this member only.
            let fd = pidfd::open(pid.get());
            let Ok(fd) = fd else { return };
            let mut is_member = false;
            self.members(&mut |member| is_member |= member == pid);
            if is_member {
                let _ = pidfd::send(fd.as_fd(), Signal::KILL);
            }
        });
        let _ = freeze(b"0");
    }
}

/// Removes the group, and the empty ones that the server has made below it. Each process of treaper
/// tries it at its end. A group with members cannot be removed, so the last one succeeds.
impl Drop for Cgroup {
    fn drop(&mut self) {
        // The other process has removed it, and another treaper, PID 1 of another namespace, may
        // have made a group of the same name since then.
        if self.is_populated() == Err(Errno::NODEV) {
            return;
        }
        let name = self.name.to_string_lossy();
        match remove_tree(&self.parent, &self.name) {
            Ok(()) | Err(Errno::NOENT | Errno::BUSY) => {}
            Err(errno) => log::warn!("cannot remove the cgroup {name}: {errno}"),
        }
    }
}

/// The new group, locked while a process of treaper has it open, and its `cgroup.events`.
fn make_and_hold(parent: &OwnedFd, name: &CStr) -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    let open_and_hold = || {
        let dir = fd::open_directory(parent.as_fd(), name)?;
        // From here on no sweep removes it. An earlier one has locked or removed it.
        sys::hold(dir.as_fd())?;
        let events = sys::open_events(dir.as_fd())?;
        Ok((dir, events))
    };
    open_and_hold().inspect_err(|errno| {
        // If it was taken, another treaper may have made a new group of this name by now.
        if !is_taken(*errno) {
            let _ = sys::remove(parent.as_fd(), name);
        }
    })
}

/// Whether another treaper has the name, or its sweep has found the group before it was locked.
fn is_taken(errno: Errno) -> bool {
    matches!(errno, Errno::EXIST | Errno::NOENT | Errno::NODEV)
}

/// Removes the group `name` and all groups below it, deepest first, if none has a member. The one
/// `dir` moves down and up, so neither stack nor number of descriptors grows with the depth.
fn remove_tree(parent: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match sys::remove(parent.as_fd(), name) {
        Err(Errno::BUSY) => {}
        other => return other,
    }
    let mut dir = fd::open_directory(parent.as_fd(), name)?;
    // The names of the groups between `name` and `dir`.
    let mut path: Vec<CString> = Vec::new();
    loop {
        if let Some(below) = sys::remove_empty(dir.as_fd())? {
            dir = fd::open_directory(dir.as_fd(), &below)?;
            path.push(below);
        } else if let Some(left) = path.pop() {
            dir = fd::open_directory(dir.as_fd(), c"..")?;
            match sys::remove(dir.as_fd(), &left) {
                Ok(()) | Err(Errno::NOENT) => {}
                // It has members.
                other => return other,
            }
        } else {
            return sys::remove(parent.as_fd(), name);
        }
    }
}

/// Removes empty groups of instances that have ended. The pid in the name means nothing in another
/// PID namespace, but the lock does: a group that can be locked belongs to no living instance.
fn sweep(parent: &OwnedFd) {
    let names = fd::directories_in(parent.as_fd()).unwrap_or_default();
    for name in names.iter().filter(|name| maker_is_dead(name.to_bytes())) {
        let dir = fd::open_directory(parent.as_fd(), name);
        // `dir` keeps it locked until it is removed.
        if dir.as_ref().is_ok_and(|dir| sys::hold(dir.as_fd()).is_ok()) {
            let _ = remove_tree(parent, name);
        }
    }
}

fn maker_is_dead(name: &[u8]) -> bool {
    maker(name).is_some_and(|(pid, started)| match proc::stat(pid) {
        Ok(stat) => stat.started != started,
        Err(errno) => matches!(errno, Errno::NOENT | Errno::SRCH),
    })
}

/// The pid and the start time of the treaper that has made the group `name`.
fn maker(name: &[u8]) -> Option<(i32, u64)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    let mut fields = name.split('-');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The directory of the group in which this process is, from the text of `/proc/self/mountinfo` and
/// `/proc/self/cgroup`. See `proc_pid_mountinfo(5)`, `cgroups(7)`.
pub fn find(mounts: &[u8], groups: &[u8]) -> Result<PathBuf, String> {
    let mut groups = groups.split(|byte| *byte == b'\n');
    let own = groups.find_map(|line| line.strip_prefix(b"0::"));
    let own = own.ok_or("this system has no cgroup v2")?;
    let goes_up = |path: &[u8]| path.split(|byte| *byte == b'/').any(|part| part == b"..");
    let mut why = "no cgroup v2 file system is mounted; mount one, or bind it into the container";
    for line in mounts.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let mut after_dash = fields.iter().skip_while(|field| **field != b"-").skip(1);
        if after_dash.next() != Some(&&b"cgroup2"[..]) || fields.len() < 5 {
            continue;
        }
        let (root, point) = (unescape(fields[3]), unescape(fields[4]));
        // Only a part of the hierarchy may be mounted here.
        match own.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root)) {
            Some(b"/") => return Ok(OsString::from_vec(point).into()),
            Some(below @ ([] | [b'/', ..])) if !goes_up(below) => {
                return Ok(OsString::from_vec([&point[..], below].concat()).into());
            }
            _ => why = "the cgroup of treaper is outside of the part that is mounted here",
        }
    }
    Err(why.to_owned())
}

/// mountinfo writes blank, tab, newline and backslash as `\ooo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(escaped.unwrap_or(*first));
        rest = &tail[if escaped.is_some() { 3 } else { 0 }..];
    }
    plain
}

fn because(path: &Path, errno: Errno) -> String {
    let text = crate::output::error::describe(errno);
    let remedy = match errno {
        Errno::ACCESS | Errno::PERM => {
            "; run as root, or in a delegated group (systemd: Delegate=yes, or systemd-run --user --scope -p Delegate=yes)"
        }
        Errno::AGAIN => "; a group above has reached cgroup.max.descendants or cgroup.max.depth",
        Errno::ROFS => "; mount it writable, or set ProtectControlGroups=no in the unit",
        _ => "",
    };
    format!("{}: {text}{remedy}", path.display())
}

#[cfg(test)]
#[path = "../../tests/unit/cgroup.rs"]
mod tests;
