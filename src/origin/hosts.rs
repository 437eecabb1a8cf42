//! Who is the host: our parent, the launchers behind it, and whatever else is to be watched.
#![forbid(unsafe_code)]

mod shell;

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use crate::output::error::{self, Error};
use crate::plan::event::Trigger;
use crate::settings::config::Config;
use crate::sys::fd::{self, Identity, Kind};
use crate::sys::proc::View;
use crate::sys::signal::Signal;
use crate::sys::{pid, pidfd, poll, prctl, proc};

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
    /// The process that started us, or one of its launchers, had ended when it was looked for.
    gone: bool,
}

impl Hosts {
    /// Asks for a signal at the end of the parent: a second watch beside its pidfd. Then checks that the host still
    /// lives.
    ///
    /// # Errors
    /// The process that started us, or one of its launchers, has ended already.
    pub fn watch_parent(&self) -> Result<(), Error> {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        // SIGCONT, since it reaches us even if we are suspended.
        let _ = prctl::signal_on_parent_exit(Signal::CONT);
        // A parent that died before the call above sends nothing.
        if self.gone || pid::parent() != parent {
            return Err(Error::Gone(
                "parent-exit: the process that started treaper is gone, so COMMAND was not started; --no-parent starts it",
            ));
        }
        Ok(())
    }
}

/// More launchers in a row than anybody has; a bound for the walk.
const MAX_LAUNCHERS: usize = 16;

/// Finds and opens everything that is to be watched. `sighup_ignored`: we were started so.
///
/// # Errors
/// A process that was asked for by number or name is not there.
pub fn find(config: &Config, sighup_ignored: bool) -> Result<Hosts, Error> {
    let mut hosts = Hosts::default();
    if config.parent && pid::own() != 1 {
        find_parent(&mut hosts, sighup_ignored);
    }
    let trigger = Trigger::WatchedExit;
    for asked in &config.watch_pids {
        let fd = pidfd::open(*asked)
            .map_err(|errno| Error::kernel(&format!("watch pid {asked} (--watch-pid)"), errno))?;
        hosts.watched.push(Watched { fd, trigger });
    }
    for name in &config.watch_ancestors {
        let found = find_ancestor(name.as_bytes()).map_err(|reason| {
            let name = name.display();
            Error::Misuse(format!(
                "cannot find an ancestor named '{name}' (--watch-ancestor): {reason}"
            ))
        })?;
        let watched = found.into_iter().map(|fd| Watched { fd, trigger });
        hosts.watched.extend(watched);
    }
    Ok(hosts)
}

fn find_parent(hosts: &mut Hosts, sighup_ignored: bool) {
    let Some(parent) = parent_that_counts(sighup_ignored) else {
        return;
    };
    hosts.parent = Some(parent);
    // A pid is only a number: the process that has it by the time of the open need not be our parent. So
    // `watch_parent` asks getppid() again. Without a pidfd, the parent-death signal and getppid() still tell.
    if let Ok(fd) = pidfd::open(parent) {
        let trigger = Trigger::ParentExit;
        hosts.watched.push(Watched { fd, trigger });
    }
    let (kind, stdin) = fd::describe(fd::STDIN);
    let stdin = stdin.filter(|_| matches!(kind, Kind::Pipe | Kind::Socket));
    hosts.gone = stdin.is_some() && was_adopted_by(parent) && poll::has_hung_up(fd::STDIN);
    find_behind_launchers(hosts, parent, stdin, sighup_ignored);
}

/// Our parent, if its end is a reason to stop.
///
/// It is none if we ignore SIGHUP and our parent does not: then a program between the two, `nohup`, has
/// set that, so that we outlive the parent. If that has ended already, init or a subreaper is our parent
/// by now, which does not ignore SIGHUP either, so the answer is the same.
fn parent_that_counts(sighup_ignored: bool) -> Option<i32> {
    loop {
        let parent = pid::parent();
        if parent == 0 {
            // It lives outside of our PID namespace: its end cannot be seen from here.
            return None;
        }
        if !sighup_ignored {
            return Some(parent);
        }
        let stat = proc::stat(parent);
        // If it ended meanwhile, the process that adopted us has to be asked.
        if pid::parent() == parent {
            return stat
                .map_or(true, |stat| stat.ignores(Signal::HUP))
                .then_some(parent);
        }
    }
}

/// Whether `parent` adopted us: the process that started us had ended before we could see it.
///
/// Fork keeps the session. The only way out of a session is setsid(), which makes its caller the leader of
/// a new one. So a parent in another session either adopted us, or has called setsid() since it started us.
fn was_adopted_by(parent: i32) -> bool {
    let (Ok(session), Ok(parents)) = (pid::session(0), pid::session(parent)) else {
        return false;
    };
    // We may have made our session ourselves, or it was made outside of our PID namespace (0).
    let is_inherited = session != 0 && session != pid::own();
    if !is_inherited || session == parents {
        return false;
    }
    // A process that leads no session has never left one. Process 1 is older than any other session.
    if parents != parent || parent == 1 {
        return true;
    }
    // The parent can only have left our session if it was born in it, after the session's leader. A
    // process that adopts us is an ancestor of that leader. If the leader is gone, this is not known.
    match (proc::stat(session), proc::stat(parent)) {
        (Ok(leader), Ok(stat)) => (stat.started, parent) < (leader.started, session),
        _ => false,
    }
}

/// Watches each process that is behind a launcher: what started the launcher wants the server, and the
/// launcher may live on without it. What may not be read in `/proc` ends the walk.
fn find_behind_launchers(
    hosts: &mut Hosts,
    parent: i32,
    stdin: Option<Identity>,
    sighup_ignored: bool,
) {
    let Ok(proc) = proc::view() else { return };
    let mut current = parent;
    for _ in 0..MAX_LAUNCHERS {
        let Some(above) = behind_launcher(proc, current, stdin) else {
            return;
        };
        // As with our own parent: `nohup` stands between the two.
        if sighup_ignored && !proc.stat(above).is_ok_and(|stat| stat.ignores(Signal::HUP)) {
            return;
        }
        let opened = pidfd::open(above);
        // As with our own parent: only if it is still the parent now was it the one that we opened.
        match (opened, proc.stat(current).map(|stat| stat.parent)) {
            (Ok(fd), Ok(parent)) if parent == above => hosts.watched.push(Watched {
                fd,
                trigger: Trigger::ParentExit,
            }),
            (_, Ok(parent)) if parent != above => {
                hosts.gone = true;
                return;
            }
            _ => return,
        }
        current = above;
    }
}

/// The parent of `current`, if `current` is a launcher: it holds our stdin (`npx`, `uv run` only pass it on),
/// or it is a shell that was given a command. A shell in a session of its own (`setsid sh -c`) is meant to
/// outlive its parent.
fn behind_launcher(proc: View, current: i32, stdin: Option<Identity>) -> Option<i32> {
    let passes_stdin_on = stdin.is_some() && fd::stdin_of(current).ok() == stdin;
    if !passes_stdin_on && !is_shell_with_a_command(proc, current) {
        return None;
    }
    let above = proc.stat(current).ok()?.parent;
    let same_session = || pid::session(current) == pid::session(above);
    (above > 1 && (passes_stdin_on || same_session())).then_some(above)
}

fn is_shell_with_a_command(proc: View, pid: i32) -> bool {
    let mut buffer = [0; 512];
    proc.command_line(pid, &mut buffer)
        .is_ok_and(shell::was_given_a_command)
}

/// Opens the nearest ancestor whose command name is `name` (of which the kernel keeps 15 bytes), and the
/// processes above it of which it is a copy. If there is none, says which ancestors there are.
fn find_ancestor(name: &[u8]) -> Result<Vec<OwnedFd>, String> {
    let name = &name[..name.len().min(15)];
    let mut current = pid::parent();
    let (mut seen, mut found) = (Vec::new(), Vec::new());
    let mut below = None;
    while current > 0 {
        let fd = pidfd::open(current).map_err(error::describe)?;
        let stat = proc::stat(current).map_err(error::describe)?;
        let is_named = stat.name.as_bytes() == name;
        if below.is_some_and(|below| !is_named || !is_copy(below, current)) {
            break;
        }
        if is_named {
            found.push(fd);
            below = Some(current);
        }
        seen.push(format!("{}[{current}]", stat.name));
        current = stat.parent;
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(if seen.is_empty() {
        "there is none in this PID namespace".to_owned()
    } else {
        format!("there are {}", seen.join(", "))
    })
}

/// Whether `pid` is a fork of its parent `above` that has executed nothing: a host may leave such a copy of
/// itself between (Python's multiprocessing), and that lives on when the host is killed.
fn is_copy(pid: i32, above: i32) -> bool {
    let Ok(proc) = proc::view() else { return false };
    let (mut one, mut other) = ([0; 512], [0; 512]);
    let lines = (
        proc.command_line(pid, &mut one),
        proc.command_line(above, &mut other),
    );
    matches!(lines, (Ok(one), Ok(other)) if one == other && !one.is_empty())
}
