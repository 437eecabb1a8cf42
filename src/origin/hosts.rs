//! Finds the processes to be watched: the parent, what is behind launchers, and what options name.

pub mod shell;

use std::cell::OnceCell;
use std::ffi::{CStr, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::origin::unit;
use crate::output::error::{self, Error};
use crate::plan::event::Trigger;
use crate::settings::config::Config;
use crate::sys::fd::{self, Kind, STDERR, STDIN};
use crate::sys::proc::{Target, View};
use crate::sys::{Errno, clock, parent::Parent, pid, pidfd, poll, prctl, proc};
use crate::sys::{signal::Signal, wait::DYING};

/// The command name of the monitor.
pub const MONITOR: &CStr = c"tree-monitor";

/// A process whose end is a trigger.
pub struct Watched {
    pub pid: i32,
    pub fd: BorrowedFd<'static>,
    pub trigger: Trigger,
}

impl Watched {
    pub fn open(pid: i32, trigger: Trigger) -> Result<Self, Errno> {
        pidfd::open(pid).map(|fd| Self::new(pid, fd, trigger))
    }

    fn new(pid: i32, fd: OwnedFd, trigger: Trigger) -> Self {
        let fd = fd::keep(fd);
        Self { pid, fd, trigger }
    }
}

#[derive(Default)]
pub struct Hosts {
    pub watched: Vec<Watched>,
    /// The parent, if its end is a trigger.
    pub parent: Option<Parent>,
    /// The parent, also if its end is no trigger; 0 if it is outside of this PID namespace.
    starter: i32,
    pub host: Option<BorrowedFd<'static>>,
    hold_stdin: OnceCell<bool>,
    /// The host, or one of the launchers, had ended before it was found.
    gone: bool,
}

impl Hosts {
    /// Asks for a signal at the end of the parent: a second watch beside its pidfd. Fails if the
    /// host, or one of the launchers, has ended already.
    pub fn watch_parent(&self) -> Result<(), Error> {
        let Some(parent) = self.parent else {
            return Ok(());
        };
        // SIGCONT also reaches a suspended process. None comes if the parent has ended before.
        let _ = prctl::signal_on_parent_exit(Signal::CONT);
        if self.gone || parent.is_gone() {
            let why = "the process that started treaper is gone, so COMMAND was not started; --no-parent starts it";
            return Err(Error::new(format!("parent-exit: {why}")));
        }
        Ok(())
    }

    /// Whether the host has the other end of stdin, so that its end says something about the host.
    /// In a pipeline (`produce | treaper consume`) another child of it has that. Looks only once.
    pub fn hold_stdin(&self) -> bool {
        *self.hold_stdin.get_or_init(|| {
            chain_of_stdin(self.starter).is_none_or(|(chain, passed_on)| {
                let (chain, above) = chain.split_at(passed_on);
                fd::other_end_is_of(chain, true) || fd::other_end_is_of(above, false)
            })
        })
    }
}

const MAX_LAUNCHERS: usize = 16;

/// Finds and opens all processes to be watched. Fails if one that an option names does not exist.
pub fn find(config: &Config, sighup_ignored: bool) -> Result<Hosts, Error> {
    let mut hosts = Hosts {
        starter: pid::parent(),
        ..Hosts::default()
    };
    if config.parent && pid::own() != 1 {
        find_parent(&mut hosts, sighup_ignored);
    }
    if hosts.parent.is_none() {
        // An init that has adopted treaper is not what the server would signal.
        let counts = |_: &_| !is_init(hosts.starter, None) && pid::parent() == hosts.starter;
        hosts.host = pidfd::open(hosts.starter).ok().filter(counts).map(fd::keep);
    }
    for &pid in &config.watch_pids {
        let watched = Watched::open(pid, Trigger::WatchedExit);
        let cannot = |errno| Error::kernel(&format!("watch pid {pid} (--watch-pid)"), errno);
        hosts.watched.push(watched.map_err(cannot)?);
    }
    for name in &config.watch_ancestors {
        hosts.watched.extend(find_ancestor(name)?);
    }
    Ok(hosts)
}

/// Watches the parent, and each process behind a launcher, which wants the server, and which the
/// launcher may outlive. The search ends at a process that may not be read in `/proc`.
pub fn find_parent(hosts: &mut Hosts, sighup_ignored: bool) {
    let current = parent_that_counts(sighup_ignored);
    let Some(mut current) = current else { return };
    (hosts.parent, hosts.starter) = (Some(Parent::new(current)), current);
    // Before it is opened, the pid may get to another process. So `watch_parent` compares getppid()
    // again. Without a pidfd, the parent-death signal and getppid() are still there.
    if let Ok(parent) = Watched::open(current, Trigger::ParentExit) {
        hosts.host = Some(parent.fd);
        hosts.watched.push(parent);
    }
    let has_peer = matches!(fd::kind(STDIN), Kind::Pipe | Kind::Socket);
    let own = || proc::view().and_then(|proc| proc.target(pid::own(), STDIN));
    let stdin = has_peer.then(own).and_then(Result::ok);
    let stdin = stdin.as_ref();
    hosts.gone = has_peer && was_adopted_by(current, stdin) && poll::has_hung_up(STDIN);
    let Ok(proc) = proc::view() else { return };
    let ignores_hup = |pid| proc.stat(pid).is_ok_and(|stat| stat.ignores(Signal::HUP));
    for _ in 0..MAX_LAUNCHERS {
        let above = behind_launcher(proc, current, stdin);
        // As in `parent_that_counts`: otherwise `nohup` is between the two.
        let above = above.filter(|above| !sighup_ignored || ignores_hup(*above));
        let Some(above) = above else { return };
        let opened = pidfd::open(above);
        // The opened process is the right one only if it is still the parent now.
        let Ok(stat) = proc.stat(current) else { return };
        hosts.gone |= stat.parent != above;
        let fd = opened.ok().filter(|_| stat.parent == above);
        let Some(fd) = fd else { return };
        let watched = Watched::new(above, fd, Trigger::ParentExit);
        hosts.watched.push(watched);
        current = above;
    }
}

/// The processes that have passed stdin on, the nearest first, then the one with another stdin,
/// which gave it to them, and after so many those above, for which that one may start programs
/// (`erl_child_setup`). `None`: unknown, or an init, which passes on what others have made.
fn chain_of_stdin(starter: i32) -> Option<(Vec<i32>, usize)> {
    let proc = proc::view().ok()?;
    let own = proc.target(pid::own(), STDIN).ok()?;
    let (mut chain, mut current) = (Vec::new(), starter);
    while chain.len() < MAX_LAUNCHERS && current != 0 && !is_init(current, Some(&own)) {
        chain.push(current);
        current = proc.stat(current).map_or(0, |stat| stat.parent);
    }
    let has_another = |pid: &i32| proc.target(*pid, STDIN) != Ok(own);
    let passed_on = 1 + chain.iter().position(has_another)?;
    Some((chain, passed_on))
}

/// The parent, if its end is a reason to stop. Not if this process ignores SIGHUP and the parent
/// does not: then `nohup` is between them. What adopts treaper does not ignore SIGHUP either.
fn parent_that_counts(sighup_ignored: bool) -> Option<i32> {
    loop {
        let parent = pid::parent();
        // It is outside of this PID namespace, so its end cannot be seen from here.
        if parent == 0 {
            return None;
        }
        if only_passes(parent) {
            clock::pause(DYING / 500);
            continue;
        }
        let ignores_hup = || proc::stat(parent).map_or(true, |stat| stat.ignores(Signal::HUP));
        let counts = !sighup_ignored || ignores_hup();
        // If it has ended meanwhile, the new parent is looked at.
        if pid::parent() == parent {
            return counts.then_some(parent);
        }
    }
}

/// Whether `pid` was there for less than a second and is ending, as a copy of a host that forks
/// twice (`g_spawn_async`). It still has its children while it frees its memory. A new copy that is
/// neither ending nor asleep may only lack a processor or a page, until it is 0.2 s old.
fn only_passes(pid: i32) -> bool {
    let mut waited = false;
    while let Ok(stat) = proc::stat(pid) {
        let age = || clock::ticks().saturating_sub(stat.started);
        if stat.exiting || !stat.is_copy || !b"RD".contains(&stat.state) || age() >= 20 {
            return stat.exiting && age() < 100;
        }
        clock::pause(DYING / 500);
        waited = true;
    }
    waited
}

/// Whether `parent` has adopted this process, since the one that started it has ended already.
/// Fork keeps the session, and setsid() makes its caller the leader of a new one. So a parent in
/// another session has adopted this process, or has called setsid() after it started it. A child of
/// treaper is in a session apart, too, but has a parent-death signal.
fn was_adopted_by(parent: i32, stdin: Option<&Target>) -> bool {
    let (Ok(session), Ok(parents)) = (pid::session(0), pid::session(parent)) else {
        return false;
    };
    if prctl::has_parent_death_signal() {
        return false;
    }
    // A session of its own shows nothing, but an init starts no servers on a pipe.
    if session == pid::own() {
        // systemd before 248 sets INVOCATION_ID, but not yet SYSTEMD_EXEC_PID.
        let is_set = |name| std::env::var_os(name).is_some();
        let is_unknown = is_set("INVOCATION_ID") && !is_set("SYSTEMD_EXEC_PID");
        let is_of_unit = || unit::names_this_process("SYSTEMD_EXEC_PID");
        return !is_unknown && is_init(parent, stdin) && !is_of_unit();
    }
    // A session that was made outside of this PID namespace (0) proves nothing.
    if session == 0 || session == parents {
        return false;
    }
    // A parent that does not lead its session has never left one. Process 1 is older than all.
    if parents != parent || parent == 1 {
        return true;
    }
    // The parent can only have left this session if it was born in it, after its leader. A process
    // that has adopted this one is an ancestor of that leader. Unknown if the leader is gone.
    proc::stat(session).is_ok_and(|leader| {
        proc::stat(parent).is_ok_and(|stat| (stat.started, parent) < (leader.started, session))
    })
}

/// Whether `parent` is an init, which adopts orphans: that of the machine, systemd (also that of a
/// user), or in a container a program made to be PID 1. Any other PID 1 there can be a host.
/// dumb-init starts its command in a session of its own, with its stdin. So a container's init that
/// has `stdin`, or hides its own, may have started this process, or treaper, whose stdin is stderr.
fn is_init(parent: i32, stdin: Option<&Target>) -> bool {
    let name = proc::stat(parent).map(|stat| stat.name);
    let Ok(name) = name else { return false };
    let target = |fd| proc::view().and_then(|proc| proc.target(parent, fd)).ok();
    let has_another = |own: Target| Some(&own) != stdin && target(STDERR) != Some(own);
    match name.as_bytes() {
        b"systemd" => true,
        _ if parent != 1 => false,
        _ if proc::is_of_first_namespace() => true,
        b"bwrap" | b"catatonit" | b"dinit" | b"docker-init" | b"dumb-init" | b"init" | b"pause"
        | b"podman-init" | b"runit" | b"s6-svscan" | b"tini" => {
            target(STDIN).is_some_and(has_another)
        }
        _ => false,
    }
}

/// The parent of `current`, if that is a launcher: it has the same stdin as treaper (`npx` and `uv
/// run` only pass it on), or is a shell that was given a command. Not in a session of its own
/// (`setsid sh -c`), since such a shell has to outlive its parent.
fn behind_launcher(proc: View, current: i32, stdin: Option<&Target>) -> Option<i32> {
    let has_our_stdin = stdin.is_some_and(|stdin| proc.target(current, STDIN) == Ok(*stdin));
    if !has_our_stdin && !is_shell_with_a_command(proc, current) {
        return None;
    }
    let above = proc.stat(current).ok()?.parent;
    let same_session = || pid::session(current) == pid::session(above);
    let counts = above > 1 && !only_passes(above);
    (counts && (has_our_stdin || same_session())).then_some(above)
}

/// The process that started the shell `pid`, if a session of that shell hides it.
pub fn hidden_behind(pid: i32) -> Option<i32> {
    let proc = proc::view().ok()?;
    let above = proc.stat(pid).ok()?.parent;
    let is_apart = || pid::session(pid) != pid::session(above);
    (above > 1 && is_shell_with_a_command(proc, pid) && is_apart()).then_some(above)
}

fn is_shell_with_a_command(proc: View, pid: i32) -> bool {
    proc.cmdline(pid, &mut [0; 512])
        .is_ok_and(shell::was_given_a_command)
}

/// Opens the nearest ancestor that has `name` (see [`View::has_name`]), and the processes above it
/// of which it is a copy. The error lists the ancestors that there are.
fn find_ancestor(name: &OsStr) -> Result<Vec<Watched>, Error> {
    let cannot = |why: String| {
        let name = name.to_string_lossy();
        let text = format!("cannot find an ancestor named '{name}' (--watch-ancestor): {why}");
        Error::new(text)
    };
    let (mut current, name) = (pid::parent(), name.as_bytes());
    let (mut seen, mut found) = (Vec::new(), Vec::<Watched>::new());
    while current > 0 {
        let opened = pidfd::open(current);
        let (fd, stat) = match opened.and_then(|opened| Ok((opened, proc::stat(current)?))) {
            Ok(opened) => opened,
            // What is above the ancestor may be hidden, or has just ended.
            Err(_) if !found.is_empty() => break,
            Err(errno) => return Err(cannot(error::describe(errno))),
        };
        let is_named = proc::view().is_ok_and(|proc| proc.has_name(current, stat.name, name, true));
        let below = found.last();
        if below.is_some_and(|below| !is_named || !is_copy(below.pid, current)) {
            break;
        }
        if is_named {
            found.push(Watched::new(current, fd, Trigger::WatchedExit));
        }
        let shown = proc::shown_name(current, stat.name);
        seen.push(format!("{shown}[{current}]"));
        current = stat.parent;
    }
    match (found.is_empty(), seen.is_empty()) {
        (false, _) => Ok(found),
        (_, true) => Err(cannot("there is none in this PID namespace".to_owned())),
        (_, false) => Err(cannot(format!("there are {}", seen.join(", ")))),
    }
}

/// Whether `pid` is a fork of its parent `above` without an exec. A host may have such a copy of
/// itself in front of treaper (Python's multiprocessing), which lives on when the host is killed.
fn is_copy(pid: i32, above: i32) -> bool {
    let Ok(proc) = proc::view() else { return false };
    let (mut one, mut other) = ([0; 512], [0; 512]);
    let one = proc.cmdline(pid, &mut one);
    one.is_ok_and(|one| !one.is_empty() && proc.cmdline(above, &mut other) == Ok(one))
}
