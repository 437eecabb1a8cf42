//! Signalling the server, the rest of the tree, or all of it until no process is left.

use std::mem;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::output::ledger::{Ledger, List, Process};
use crate::output::{progress::Named, stderr};
use crate::sys::pid::Pid;
use crate::sys::proc::{self, Name};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{Change, Wait};
use crate::sys::{Errno, clock, fd, namespace, pid, pidfd};
use crate::tree::pid_set::PidSet;
use crate::tree::walk::{self, Reach};
use crate::tree::{Server, StopSent, Tree};

/// The processes that were sent SIGKILL. A recycled pid only makes the pause between rounds longer.
static KILLED: PidSet = PidSet(0);
/// The processes that have been sent the stop signal, so that none gets it twice. One with a
/// recycled pid does not get it, and gets SIGKILL when the grace period ends.
static STOP_SENT: PidSet = PidSet(1);

/// How long no walk begins after the first step of a stop, since it delays what is ending.
const FIRST_STEP_TIME: Duration = Duration::from_millis(75);
/// How long no process may have ended before the rest of the tree is walked.
const QUIET_TIME: Duration = Duration::from_millis(2);
/// How long the walks may take in which the stop signal is sent.
pub const STOP_WALKS: Duration = Duration::from_millis(50);

/// The stop signal, when filters are looked for again, the end of their time, and its first tick.
pub(super) type Waits = (Signal, Duration, Duration, u64);

/// The server's group and the children of this process have got the stop signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstStep {
    signal: Signal,
    /// The group, if one call has reached it.
    group: Option<i32>,
    since: Duration,
    /// The clock tick before the first signal.
    began: u64,
    /// When the rest of the tree is walked next; `None`: all of it was reached.
    walk_at: Option<Duration>,
    /// How long no walk began before the next one; `None` before the first one.
    pause: Option<Duration>,
    /// How many processes had been reaped when `walk_at` was set.
    reaped: u64,
}

/// What SIGKILL has done, for the message at the end.
#[derive(Debug, Default)]
pub struct Sigkill {
    /// When it was sent first.
    pub since: Option<Duration>,
    /// The first processes that were still there then.
    pub victims: Named,
    /// How many have ended by it.
    pub ended: u32,
}

impl Tree {
    /// Touches what a stop writes to, for a process in a memory cgroup of v1: once that is full and
    /// its OOM killer is off, the stop would wait for these pages.
    #[inline(never)]
    pub fn rehearse_stop(&mut self, is_running: bool) {
        // With this array, the search below is as deep in the stack as a stop.
        std::hint::black_box([0_u8; 4096]);
        // What is known about the server is most likely in the same page.
        let _ = Pid::new(pid::own()).map(|own| KILLED.insert(own));
        // A name that a process has now is not to count in the stop.
        let (spare, _) = (self.spare.take(), self.living());
        self.spare = spare;
        if is_running {
            // Both write to the same page, and are not used again before a stop.
            stderr::defer();
            stderr::write_deferred();
        }
    }

    /// As [`Self::stop_rest`], but after a server that has ended, the filters of its output have so
    /// much `time` for the rest of it (`exec > >(tee LOG)` in a script): processes whose stdin is a
    /// pipe that no process writes to any more, and is not that of treaper. Daemons have 0.1 s, as
    /// some end with the server (that of tmux, the one that sudo starts for its command), or until
    /// they are 1 s old, as the server may have started them for a last errand (Next.js).
    pub fn stop_rest_after_filters(&mut self, signal: Signal, time: Duration) {
        let (now, own, mut found, mut more) = (clock::now(), self.stdin, false, 0..64);
        let began = self.waits.map_or_else(clock::ticks, |(.., began)| began);
        let sessions = self.server.as_ref().map_or([0; 2], Server::sessions);
        let in_job = matches!(&self.server, Some(server) if server.group().is_none());
        if !time.is_zero() && self.living_server().is_none() && proc::view().is_ok() {
            self.walk(Reach::Children, &mut |member| {
                let pid = member.pid.get();
                let is_near = || in_job || pid::session(pid).is_ok_and(|of| sessions.contains(&of));
                let is_filter = || fd::stdin_is_over(pid, own) || is_new_copy(pid, began);
                let is_young = |stat: proc::Stat| clock::ticks() < stat.started + 100;
                let has_time =
                    || clock::ticks() < began + 10 || proc::stat(pid).is_ok_and(is_young);
                let is_daemon = || name_of_daemon(member.pid, sessions).is_some();
                found = found || is_daemon() && has_time();
                found = found || is_near() && more.next().is_some() && is_filter();
            });
        }
        let next = clock::now() + time.min(Duration::from_millis(10));
        self.waits = found.then_some((signal, next, now + time, began));
        if !found {
            self.stop_rest(signal);
        }
    }

    /// Sends the stop signal to the rest of the tree, then SIGCONT, which is cheaper than finding
    /// out which processes are suspended, and harmless to the others.
    /// If the server is gone, its group gets the signal by one call, as each child of this process
    /// does. The others have time to end before [`Self::continue_stop`]: a search takes as long.
    pub fn stop_rest(&mut self, signal: Signal) {
        let began = clock::ticks();
        if let Some(cgroup) = self.cgroup() {
            cgroup.expel(&self.treaper);
        }
        let mut step = FirstStep {
            signal,
            group: self.stop_group(signal),
            since: clock::now(),
            began,
            walk_at: None,
            pause: None,
            reaped: self.reaped,
        };
        if let Some(server) = self.living_server() {
            STOP_SENT.insert(server);
            return self.signal_rest(step);
        }
        log_count(signal, self.send_stops(Reach::Children, step).0);
        step.since = clock::now();
        step.walk_at = Some(step.since + QUIET_TIME);
        self.first_step = Some(step);
    }

    /// When [`Self::continue_stop`] is to be called.
    pub fn continues_at(&self) -> Option<Duration> {
        let waits = self.waits.map(|(_, next, ..)| next);
        waits.or(self.first_step.and_then(|stop| stop.walk_at))
    }

    /// The second step of [`Self::stop_rest`], once processes no longer end one after the other.
    pub fn continue_stop(&mut self) {
        let now = clock::now();
        if let Some((signal, _, end, _)) = self.waits {
            return self.stop_rest_after_filters(signal, end.saturating_sub(now));
        }
        let step = self.first_step.filter(|step| step.walk_at.is_some());
        let Some(mut step) = step else { return };
        if self.reaped != step.reaped && now < step.since + FIRST_STEP_TIME {
            (step.reaped, step.walk_at) = (self.reaped, Some(now + QUIET_TIME));
            self.first_step = Some(step);
        } else {
            self.signal_rest(step);
        }
    }

    /// Sends the stop signal to each process that has not got it yet. If the last walk may have
    /// missed some, walks follow after a pause, which doubles until more are found. These leave
    /// alone what was born during the stop, such as the commands by which a server cleans up.
    fn signal_rest(&mut self, mut step: FirstStep) {
        let (mut count, mut missed) = (0, false);
        walk::repeat(&clock::now, STOP_WALKS, &mut || {
            let (sent, disturbed) = self.send_stops(Reach::WatchedTree, step);
            count += sent;
            // The list of a namespace lacks processes that were born while it was read.
            missed = disturbed || self.containment.is_namespace() && sent > 0;
            missed
        });
        log_count(step.signal, count);
        let before = step.pause.filter(|_| count == 0);
        let pause = before.map_or(FIRST_STEP_TIME, |pause| pause.saturating_mul(2));
        step.walk_at = (missed || self.cut_short).then(|| clock::now() + pause);
        step.pause = Some(pause);
        self.first_step = Some(step);
    }

    /// Sends the stop signal to each process that has not got it yet, also by the one call for the
    /// group. Returns how many got it now, and whether some may have been missed.
    fn send_stops(&mut self, reach: Reach, step: FirstStep) -> (u32, bool) {
        let (mut count, mut daemons) = (0, self.daemons);
        let sessions = self.server.as_ref().map_or([0; 2], Server::sessions);
        // One whose start is unknown counts as older, and so does one of the same tick (10 ms).
        let is_new = |pid: Pid| proc::stat(pid.get()).is_ok_and(|stat| stat.started > step.began);
        let missed = self.walk(reach, &mut |member| {
            let pid = member.pid;
            let by_group = step.group.is_some() && pid::group_of(pid.get()).ok() == step.group;
            if by_group || step.pause.is_some() && is_new(pid) || !STOP_SENT.insert(pid) {
                return;
            }
            if let Some(daemons) = &mut daemons {
                let name = name_of_daemon(pid, sessions);
                name.inspect(|name| daemons.add(pid, *name));
            }
            log_sent(pid, step.signal, member.send(step.signal));
            log_sent(pid, Signal::CONT, member.send(Signal::CONT));
            count += 1;
        });
        self.daemons = daemons;
        (count, missed)
    }

    /// At the end, in one line: who has started a daemon with the server may want to keep it.
    pub fn name_daemons(&self, trigger: &str, signal: Signal) {
        let daemons = self.daemons.unwrap_or_default();
        let inside = self.containment.is_namespace() || self.cgroup().is_some();
        let with = if inside { " with --contain=group" } else { "" };
        if daemons.count > 0 {
            log::warn!(
                "{trigger}: the server exited, so its daemons were sent {signal}: {daemons}; --spare=NAME{with} keeps a daemon running"
            );
        }
    }

    /// Sends SIGKILL to all processes, once. Returns whether it found one that is new.
    pub fn kill_round(&mut self) -> bool {
        // After SIGKILL the states of the processes would say nothing any more.
        if let (None, Some(ledger)) = (self.sigkill.since, self.ledger) {
            self.each(&mut |member| record(ledger, member.pid));
            if let Some(cgroup) = self.cgroup() {
                cgroup.members(&mut |pid| record(ledger, pid));
            }
        }
        let now = clock::now();
        let began = *self.sigkill.since.get_or_insert(now);
        (self.first_step, self.waits) = (None, None);
        // The groups come first: one call reaches all members of a group, also while they fork.
        if self.kill_cgroup() && now < began + FIRST_STEP_TIME {
            return false;
        }
        if let Some(server) = &self.server {
            let _ = signal_whole_group(server, Signal::KILL);
        }
        let mut progress = false;
        let (mut victims, ledger) = (self.sigkill.victims, self.ledger);
        self.each(&mut |member| {
            let new = KILLED.insert(member.pid);
            if new {
                progress = true;
                remember(&mut victims, member.pid);
            }
            ledger.inspect(|ledger| record(*ledger, member.pid));
            let result = member.send(Signal::KILL);
            if new || result.is_err() {
                log_sent(member.pid, Signal::KILL, result);
            }
        });
        self.sigkill.victims = victims;
        progress
    }

    /// Sends SIGKILL to the members of the cgroup. Returns whether one call has reached them all.
    fn kill_cgroup(&mut self) -> bool {
        let cgroup = self.containment.cgroup();
        let cgroup = cgroup.filter(|cgroup| cgroup.is_populated() != Ok(false));
        let Some(cgroup) = cgroup else { return false };
        cgroup.expel(&self.treaper);
        let victims = &mut self.sigkill.victims;
        if victims.count == 0 {
            cgroup.members(&mut |pid| _ = KILLED.insert(pid).then(|| remember(victims, pid)));
        }
        cgroup.kill()
    }

    /// Sends `signal` to the server, if it is there. `value`: that of `sigqueue(3)`.
    pub fn signal_server(&self, signal: Signal, value: Option<u64>) {
        // It is not reaped, so the pid is still its own.
        if let Some(server) = self.living_server() {
            log_sent(server, signal, signal::send(server, signal, value));
        }
    }

    /// Sends the stop signal to the server, unless the kernel seems to have sent it: many servers
    /// end without cleaning up when they get a second one. Returns whether the server was there.
    pub fn stop_server(&mut self, signal: Signal) -> bool {
        if self.server.as_ref().is_some_and(seems_sent_by_kernel) {
            log::info!("the kernel has sent {signal} to the server");
            return true;
        }
        self.ensure_server_stop(signal)
    }

    /// Sends the stop signal to the server, if treaper has not sent it yet, then SIGCONT if it is
    /// suspended, since it could not handle the signal. Returns whether the server was there.
    pub fn ensure_server_stop(&mut self, signal: Signal) -> bool {
        let server = self.server.as_mut().filter(|server| !server.reaped);
        let Some(server) = server else { return false };
        if mem::replace(&mut server.stop_sent, StopSent::ByTreaper) == StopSent::ByTreaper {
            return true;
        }
        let pid = server.pid;
        log_sent(pid, signal, signal::kill(pid, signal));
        log::info!("sent {signal} to the server, pid {pid}");
        if is_suspended(server) {
            log_sent(pid, Signal::CONT, signal::kill(pid, Signal::CONT));
        }
        true
    }

    /// Sends the stop signal to the group of a server that is gone, and so cannot get it twice.
    /// Returns the group, if a process was left in it.
    fn stop_group(&self, signal: Signal) -> Option<i32> {
        let server = self.server.as_ref().filter(|server| server.reaped)?;
        signal_whole_group(server, signal).ok()?;
        let _ = signal_whole_group(server, Signal::CONT);
        log::info!("sent {signal} to the server's process group");
        server.group().map(Pid::get)
    }

    /// Sends `signal` to each process, once.
    pub fn signal_tree(&mut self, signal: Signal) {
        self.each(&mut |member| log_sent(member.pid, signal, member.send(signal)));
    }

    /// Sends `signal` to the server's process group. If that was not made for the server (job
    /// control), or can no longer be proven, only members that are of the tree get the signal.
    pub fn signal_group(&mut self, signal: Signal) {
        let Some(server) = &self.server else { return };
        let own = server.group().map(Pid::get).ok_or(Errno::SRCH);
        let known = pid::group_of(server.pid.get());
        let group = if server.reaped { own } else { known };
        if own.is_ok() && own == group && signal_whole_group(server, signal).is_ok() {
            return;
        }
        let Ok(group) = group else {
            return self.signal_server(signal, None);
        };
        self.each(&mut |member| {
            if pid::group_of(member.pid.get()) == Ok(group) {
                log_sent(member.pid, signal, member.send(signal));
            }
        });
    }
}

/// Whether it may still be about to make a pipe its stdin, and to execute a filter.
fn is_new_copy(pid: i32, began: u64) -> bool {
    let is_new = |started| started <= began && clock::ticks() < started + 20;
    proc::stat(pid).is_ok_and(|stat| stat.is_copy && is_new(stat.started))
}

/// Whether the process has been sent the stop signal or SIGKILL.
pub(super) fn has_signalled(pid: Pid) -> bool {
    STOP_SENT.contains(pid) || KILLED.contains(pid)
}

/// The name of a living process that has left the session in which it was started, which is none of
/// the server's `sessions`: it leads its own, or the leader is gone.
fn name_of_daemon(pid: Pid, sessions: [i32; 2]) -> Option<Name> {
    let session = pid::session(pid.get()).ok()?;
    let is_apart = session == pid.get() || pid::session(session).is_err();
    if !is_apart || session == 0 || sessions.contains(&session) {
        return None;
    }
    let stat = proc::stat(pid.get()).ok()?;
    (!proc::is_dead(stat.state)).then(|| proc::shown_name(pid.get(), stat.name))
}

fn log_count(signal: Signal, count: u32) {
    let plural = if count == 1 { "" } else { "es" };
    log::info!("sent {signal} to the rest of the tree: {count} process{plural}");
}

/// Records a process that is about to get SIGKILL.
fn record(ledger: Ledger, pid: Pid) {
    if let Some(process) = Process::read(pid).filter(|process| !proc::is_dead(process.state)) {
        ledger.add(List::Sigkilled, &process);
    }
}

/// Keeps pid and name for the message.
fn remember(victims: &mut Named, pid: Pid) {
    if victims.count < victims.first.len() {
        Process::read(pid).inspect(|process| victims.add(pid, process.name));
    }
}

/// Sends `signal` to the group that was made for the server. Its number stays its own while the
/// server is in it, or leads it. After that only the pidfd of its leader means it (Linux 6.9).
fn signal_whole_group(server: &Server, signal: Signal) -> Result<(), Errno> {
    let group = server.group().ok_or(Errno::SRCH)?;
    let leads = group == server.pid;
    let pidfd = match &server.leader {
        Some((_, leader)) if !leads => leader,
        _ => &server.pidfd,
    };
    let is_pinned = leads || pid::group_of(server.pid.get()) == Ok(group.get());
    let result = match pidfd {
        _ if is_pinned && !server.reaped => signal::kill_group(group, signal),
        Some(pidfd) => pidfd::send_group(pidfd.as_fd(), signal),
        None => Err(Errno::SRCH),
    };
    log::debug!("{signal} to the group {group}: {}", outcome(result));
    result
}

/// Whether the parent-death signal seems to have reached `server`. A change of uid, which shows in
/// the owner, removes it. For other causes, [`Tree::ensure_server_stop`] sends it later.
fn seems_sent_by_kernel(server: &Server) -> bool {
    server.stop_sent == StopSent::PerhapsByKernel
        && proc::view().and_then(|proc| proc.owner(server.pid.get())) == Ok(namespace::own_ids().0)
        && !is_suspended(server)
}

/// Whether the server is suspended. The newest change may still wait to be taken, the one before is
/// in `suspended`; the heir asks `/proc`. If unknown, yes, since SIGCONT harms no process.
fn is_suspended(server: &Server) -> bool {
    let is_shown = || proc::may_be_suspended(server.pid.get());
    match Wait::child(server.pid).suspended().resumed().peek() {
        Ok(Some((_, change))) => matches!(change, Change::Suspended(_)),
        Ok(None) | Err(_) => server.suspended.unwrap_or_else(is_shown),
    }
}

fn log_sent(pid: Pid, signal: Signal, result: Result<(), Errno>) {
    match (result, signal) {
        (Ok(()) | Err(Errno::SRCH), _) | (Err(Errno::PERM), Signal::KILL) => {
            log::debug!("{signal} to pid {pid}: {}", outcome(result));
        }
        _ => log::warn!("cannot send {signal} to pid {pid}: {}", outcome(result)),
    }
}

/// The text of a result. Does not allocate.
fn outcome(result: Result<(), Errno>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Errno::SRCH) => "already gone",
        Err(Errno::PERM) => "not permitted",
        Err(Errno::AGAIN) => "too many pending signals",
        Err(_) => "failed",
    }
}
