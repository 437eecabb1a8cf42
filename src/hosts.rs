//! Who is the host: our parent, the launchers behind it, and whoever else is to be watched.
#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use crate::config::Config;
use crate::error::Error;
use crate::event::Trigger;
use crate::sys::fd::{self, Identity, Kind};
use crate::sys::{Errno, pid, pidfd, proc};

/// The command name of our monitor.
pub const MONITOR: &CStr = c"tree-monitor";

/// A process whose end is a trigger.
#[derive(Debug)]
pub struct Watched {
    pub fd: OwnedFd,
    pub trigger: Trigger,
}

/// The outcome of the search.
#[derive(Debug, Default)]
pub struct Hosts {
    pub watched: Vec<Watched>,
    /// Our parent's pid, if its end is a trigger.
    pub parent: Option<i32>,
    /// The parent was gone before we could look.
    pub gone: bool,
}

/// More launchers in a row than anybody has; a bound for the walk.
const MAX_LAUNCHERS: usize = 16;

/// Finds and opens everything that is to be watched.
///
/// # Errors
/// A process that was asked for by number or name is not there.
pub fn find(config: &Config) -> Result<Hosts, Error> {
    let mut hosts = Hosts::default();
    if config.parent && pid::own() != 1 {
        find_parent(&mut hosts);
    }
    for asked in &config.watch_pids {
        let fd = pidfd::open(*asked)
            .map_err(|errno| Error::kernel(&format!("watch pid {asked} (--watch-pid)"), errno))?;
        hosts.watched.push(Watched {
            fd,
            trigger: Trigger::WatchedExit,
        });
    }
    for name in &config.watch_ancestors {
        let fd = find_ancestor(name.as_bytes()).map_err(|errno| {
            Error::kernel(
                &format!("find an ancestor named '{}'", name.display()),
                errno,
            )
        })?;
        hosts.watched.push(Watched {
            fd,
            trigger: Trigger::WatchedExit,
        });
    }
    Ok(hosts)
}

fn find_parent(hosts: &mut Hosts) {
    let parent = pid::parent();
    if parent == 0 {
        // It lives outside of our PID namespace: its end cannot be seen from here.
        return;
    }
    hosts.parent = Some(parent);
    // A pid is only a number: whoever has it by the time of the open need not be our parent.
    // If getppid() still names it afterwards, it was.
    match pidfd::open(parent) {
        Ok(_) if pid::parent() != parent => hosts.gone = true,
        Ok(fd) => hosts.watched.push(Watched {
            fd,
            trigger: Trigger::ParentExit,
        }),
        Err(Errno::SRCH) => hosts.gone = true,
        // Without a pidfd, the parent-death signal and getppid() still tell.
        Err(_) => {}
    }
    let (kind, stdin) = fd::describe(fd::STDIN);
    let passed_on = matches!(kind, Kind::Pipe | Kind::Socket);
    if let Some(stdin) = stdin.filter(|_| passed_on && !hosts.gone) {
        hosts.gone = orphaned_before_start(parent);
        find_behind_launchers(hosts, parent, stdin);
    }
}

/// Whether the host had died before we could ask for our parent, so that we never saw it.
///
/// Fork keeps the session, and setsid() makes one named by the caller's own pid. So a session that
/// is neither our own nor our parent's came from another parent, unless that has left it since, as a
/// monitor of ours does. Its end of our stdin must be gone
/// as well, with nothing left to read: then nobody can ever ask anything of the server.
fn orphaned_before_start(parent: i32) -> bool {
    let own = pid::session(0).unwrap_or(0);
    let foreign = own != pid::own() && own != 0 && pid::session(parent).is_ok_and(|sid| sid != own);
    let monitor = |stat: proc::Stat| stat.name.as_bytes() == MONITOR.to_bytes();
    foreign
        && !proc::stat(parent).is_ok_and(monitor)
        && fd::has_hung_up(fd::STDIN)
        && fd::unread(fd::STDIN) == 0
}

/// Watches each process that holds our stdin as its own (`sh -c`, `npx`, `uv run` only pass it on),
/// and the first one behind them, which made it. What may not be read ends the walk.
fn find_behind_launchers(hosts: &mut Hosts, parent: i32, stdin: Identity) {
    let mut current = parent;
    for _ in 0..MAX_LAUNCHERS {
        if fd::stdin_of(current) != Ok(stdin) {
            return;
        }
        let Ok(above) = proc::stat(current).map(|stat| stat.parent) else {
            return;
        };
        if above <= 1 {
            return;
        }
        let Ok(fd) = pidfd::open(above) else { return };
        // As with our own parent: only if it is still the parent now was it the one that we opened.
        if proc::stat(current).map(|stat| stat.parent) != Ok(above) {
            return;
        }
        hosts.watched.push(Watched {
            fd,
            trigger: Trigger::ParentExit,
        });
        current = above;
    }
}

/// Opens the nearest ancestor whose command name is `name` (of which the kernel keeps 15 bytes).
fn find_ancestor(name: &[u8]) -> Result<OwnedFd, Errno> {
    let name = &name[..name.len().min(15)];
    let mut current = pid::parent();
    while current > 0 {
        let fd = pidfd::open(current)?;
        let stat = proc::stat(current)?;
        if stat.name.as_bytes() == name {
            return Ok(fd);
        }
        current = stat.parent;
    }
    Err(Errno::SRCH)
}
