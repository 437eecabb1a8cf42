//! Signalling the tree: the server alone, the rest of it, or all of it until nobody is left.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use crate::sys::pid::Pid;
use crate::sys::proc::{self, Name};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{self, Change};
use crate::sys::{Errno, clock, namespace, pid, pidfd};
use crate::tree::survivors::NAMED;
use crate::tree::{Server, Told, Tree, walk};

/// Whom SIGKILL has reached. A recycled pid only costs a short rest between rounds.
static KILLED: PidSet = PidSet(Mutex::new([0; PidSet::WORDS]));
/// Who was told to stop, so that nobody is told twice. A recycled pid is killed when the grace is over.
static TOLD: PidSet = PidSet(Mutex::new([0; PidSet::WORDS]));
/// One bit for each possible pid. Static: it must not need memory, and pages never touched cost none.
struct PidSet(Mutex<[u64; PidSet::WORDS]>);

impl PidSet {
    /// For 4 Mi pids, the most that a kernel gives out.
    const WORDS: usize = 64 * 1024;

    /// Adds `pid`; whether it was not there before.
    fn insert(&self, pid: Pid) -> bool {
        let (word, bit) = (pid.get() as usize / 64, 1 << (pid.get() % 64));
        let Ok(mut words) = self.0.try_lock() else {
            return true;
        };
        let Some(word) = words.get_mut(word) else {
            return true;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

/// How long members of a group that die of one call are left alone: a walk would only take the processor from
/// them. Processes that have left the group come after that.
const GROUP_FIRST: Duration = Duration::from_millis(75);
/// How long no process may have ended before the rest of the tree is walked.
const QUIET: Duration = Duration::from_millis(2);

/// The stop signal went to the server's process group in one call, and most of the tree is ending.
#[derive(Clone, Copy, Debug)]
struct GroupStop {
    signal: Signal,
    since: Duration,
    /// When to look what is left; `None`: that was done.
    look_at: Option<Duration>,
    /// How many processes had been reaped at the last look.
    reaped: u64,
}

/// Signals a tree, and remembers what it did for the message at the end.
#[derive(Debug, Default)]
pub struct Killer {
    group_stop: Option<GroupStop>,
    /// How many processes have been reaped.
    pub reaped: u64,
    /// When SIGKILL was sent for the first time.
    pub killing_since: Option<Duration>,
    /// The first ones that SIGKILL found alive.
    pub victims: [Option<(Pid, Name)>; NAMED],
}

impl Killer {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            group_stop: None,
            reaped: 0,
            killing_since: None,
            victims: [None; NAMED],
        }
    }

    /// The stop signal to the rest of the tree, then SIGCONT. SIGCONT goes to all: that is cheaper than finding out
    /// which processes are suspended, and harmless to the others.
    ///
    /// If the server is gone, its process group gets the signal by one call. What is not in the group gets it at
    /// once where it is our child, and otherwise by [`Self::continue_stop`], when the group had time to end: to
    /// look up a thousand processes that are ending takes as long as their end.
    pub fn stop_rest(&mut self, tree: &mut Tree, signal: Signal) {
        let group = tree.stop_group(signal);
        self.tell_rest(tree, signal, group);
        if group.is_some() {
            let since = clock::now();
            self.group_stop = Some(GroupStop {
                signal,
                since,
                look_at: Some(since + QUIET),
                reaped: self.reaped,
            });
        }
    }

    /// When [`Self::continue_stop`] is to be called.
    #[must_use]
    pub fn continues_at(&self) -> Option<Duration> {
        self.group_stop.and_then(|stop| stop.look_at)
    }

    /// The second step of [`Self::stop_rest`], as soon as no more processes end.
    pub fn continue_stop(&mut self, tree: &mut Tree) {
        let now = clock::now();
        let Some(stop) = &mut self.group_stop else {
            return;
        };
        if self.reaped != stop.reaped && now < stop.since + GROUP_FIRST {
            (stop.reaped, stop.look_at) = (self.reaped, Some(now + QUIET));
            return;
        }
        stop.look_at = None;
        let signal = stop.signal;
        self.tell_rest(tree, signal, None);
    }

    /// The stop signal to each process that has not got it yet. `without`: neither to the members of that process
    /// group nor to what is below them.
    fn tell_rest(&self, tree: &mut Tree, signal: Signal, without: Option<i32>) {
        let mut count = 0;
        if let Some(server) = tree.living_server() {
            TOLD.insert(server);
        }
        let led = || tree.server.as_ref().map(|server| server.pid.get());
        let told = without.or_else(|| self.group_stop.and_then(|_| led()));
        walk::repeat(&clock::now, &mut || {
            let before = count;
            let missed = tree.each_closely(without, &mut |member| {
                let by_group = told.is_some() && pid::group_of(member.pid.get()).ok() == told;
                if by_group || !TOLD.insert(member.pid) {
                    return;
                }
                count += 1;
                tell(member.pid, signal, member.send(signal));
                tell(member.pid, Signal::CONT, member.send(Signal::CONT));
            });
            // A list of a namespace misses processes that were born while it was read.
            let missed = missed || tree.is_namespace() && count > before;
            missed && without.is_none()
        });
        let plural = if count == 1 { "" } else { "es" };
        log::info!("sent {signal} to the rest of the tree: {count} process{plural}");
    }

    /// One round of SIGKILL over all. Returns whether somebody was met that no round before had met.
    pub fn kill_round(&mut self, tree: &mut Tree) -> bool {
        let now = clock::now();
        let began = *self.killing_since.get_or_insert(now);
        self.group_stop = None;
        // The groups first: one call each that no fork can outrun.
        if self.kill_cgroup(tree) && now < began + GROUP_FIRST {
            return false;
        }
        if let Some(server) = tree.server.as_ref().filter(|server| server.leads_group) {
            let _ = signal_whole_group(server, Signal::KILL);
        }
        let mut progress = false;
        let mut victims = self.victims;
        tree.each(&mut |member| {
            let new = KILLED.insert(member.pid);
            if new {
                progress = true;
                remember(&mut victims, member.pid);
            }
            let result = member.send(Signal::KILL);
            if new || result.is_err() {
                tell(member.pid, Signal::KILL, result);
            }
        });
        self.victims = victims;
        progress
    }

    /// SIGKILL to the members of the cgroup; whether there were any and the kernel has told them all at once.
    fn kill_cgroup(&mut self, tree: &Tree) -> bool {
        let Some(cgroup) = tree.cgroup() else {
            return false;
        };
        if cgroup.is_populated() == Ok(false) {
            return false;
        }
        if self.victims[0].is_none() {
            let victims = &mut self.victims;
            cgroup.members(&mut |number| {
                if let Some(pid) = Pid::new(number) {
                    remember(victims, pid);
                }
            });
        }
        cgroup.kill()
    }
}

impl Tree {
    /// Sends `signal` to the server, while it is there; whether it was. `value` is that of `sigqueue(3)`.
    pub fn signal_server(&self, signal: Signal, value: Option<u64>) -> bool {
        let Some(server) = self.server.as_ref().filter(|server| !server.reaped) else {
            return false;
        };
        // Not reaped, so the pid is its own.
        tell(server.pid, signal, signal::send(server.pid, signal, value));
        true
    }

    /// The stop signal to the server, unless the kernel seems to have sent it: a second one would pass for
    /// impatience. Returns whether the server was there.
    pub fn stop_server(&mut self, signal: Signal) -> bool {
        if self.server.as_ref().is_some_and(seems_told) {
            log::info!("the kernel has sent {signal} to the server");
            return true;
        }
        self.ensure_server_stop(signal)
    }

    /// The stop signal to the server, if it has not got it from us; then SIGCONT if it is suspended: it could not
    /// see the signal otherwise. Returns whether the server was there.
    pub fn ensure_server_stop(&mut self, signal: Signal) -> bool {
        let Some(server) = self.server.as_mut().filter(|server| !server.reaped) else {
            return false;
        };
        if server.told == Told::ByUs {
            return true;
        }
        server.told = Told::ByUs;
        let pid = server.pid;
        self.signal_server(signal, None);
        log::info!("sent {signal} to the server, pid {pid}");
        if self.server.as_ref().is_some_and(is_suspended) {
            tell(pid, Signal::CONT, signal::kill(pid, Signal::CONT));
        }
        true
    }

    /// The stop signal to the group that the server has led, unless the server would get it a second time;
    /// the group, if a process of it was there.
    fn stop_group(&self, signal: Signal) -> Option<i32> {
        let gone = |server: &&Server| server.leads_group && server.reaped;
        let server = self.server.as_ref().filter(gone)?;
        signal_whole_group(server, signal).ok()?;
        let _ = signal_whole_group(server, Signal::CONT);
        log::info!("sent {signal} to the server's process group");
        Some(server.pid.get())
    }

    /// `signal` to everybody, once.
    pub fn signal_tree(&mut self, signal: Signal) {
        self.each(&mut |member| tell(member.pid, signal, member.send(signal)));
    }

    /// `signal` to the server's process group. Where others are in it too (job control), to those of it that are ours.
    pub fn signal_group(&mut self, signal: Signal) {
        let Some(server) = &self.server else { return };
        if server.leads_group {
            let _ = signal_whole_group(server, signal);
            return;
        }
        let Ok(group) = proc::stat(server.pid.get()).map(|stat| stat.group) else {
            self.signal_server(signal, None);
            return;
        };
        self.each(&mut |member| {
            if proc::stat(member.pid.get()).is_ok_and(|stat| stat.group == group) {
                tell(member.pid, signal, member.send(signal));
            }
        });
    }
}

/// Keeps pid and name for the message, as long as there is room.
fn remember(victims: &mut [Option<(Pid, Name)>], pid: Pid) {
    if let Some(slot) = victims.iter_mut().find(|slot| slot.is_none()) {
        *slot = match proc::stat(pid.get()) {
            Ok(stat) => Some((pid, stat.name)),
            Err(proc::FOREIGN) => Some((pid, Name::default())),
            Err(_) => None,
        };
    }
}

/// To the group that the server leads or has led. Until it is reaped, its number cannot be anybody
/// else's; after that only its pidfd can tell (Linux 6.9).
fn signal_whole_group(server: &Server, signal: Signal) -> Result<(), Errno> {
    let result = match &server.pidfd {
        _ if !server.reaped => signal::kill_group(server.pid, signal),
        Some(pidfd) => pidfd::send_group(pidfd.as_fd(), signal),
        None => Err(Errno::SRCH),
    };
    log::debug!(
        "{signal} to the group of pid {}: {}",
        server.pid,
        outcome(result)
    );
    result
}

/// Whether the parent-death signal seems to have reached `server`. A change of uid would have disarmed it, and
/// shows in the owner; what else disarms it does not show, see [`Tree::ensure_server_stop`].
fn seems_told(server: &Server) -> bool {
    server.told == Told::PerhapsByKernel
        && proc::owner(server.pid.get()) == Ok(namespace::own_ids().0)
        && !is_suspended(server)
}

/// The kernel tells each stop of a child once: the newest may still wait to be taken, the one before was
/// remembered. The shim that takes over was told of none. Then `/proc` says it; where it is not ours the
/// answer is yes, since SIGCONT does no harm to a process that runs.
fn is_suspended(server: &Server) -> bool {
    match wait::job_change(server.pid) {
        Some(change) => matches!(change, Change::Stopped(_)),
        None => server.suspended.unwrap_or_else(|| {
            proc::stat(server.pid.get()).map_or(true, |stat| stat.state == b'T')
        }),
    }
}

fn tell(pid: Pid, signal: Signal, result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(Errno::SRCH) => log::debug!("{signal} to pid {pid}: {}", outcome(result)),
        Err(Errno::PERM) if signal == Signal::KILL => {
            log::debug!("{signal} to pid {pid}: not permitted");
        }
        Err(_) => log::warn!("cannot send {signal} to pid {pid}: {}", outcome(result)),
    }
}

/// The text of a result, without allocating.
fn outcome(result: Result<(), Errno>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Errno::SRCH) => "already gone",
        Err(Errno::PERM) => "not permitted",
        Err(Errno::AGAIN) => "too many pending signals",
        Err(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_pids_knows_which_were_there_before() {
        static SET: PidSet = PidSet(Mutex::new([0; PidSet::WORDS]));
        let highest = 4 * 1024 * 1024 - 1;
        let pids = (2..300).chain([70_000, 1_000_000, highest]);
        let pids: Vec<Pid> = pids.filter_map(Pid::new).collect();
        for before in [false, true] {
            for pid in &pids {
                assert_eq!(SET.insert(*pid), !before, "{pid}");
            }
        }
        // There is no such pid.
        let beyond = Pid::new(highest + 1).unwrap();
        assert!(SET.insert(beyond) && SET.insert(beyond));
    }
}
