//! Job control: a shell waits for treaper, which is suspended and resumed with the server.

use std::time::Duration;

use crate::sys::arrival::{Arrival, Origin};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{clock, proc, tty, wait::Wait};

/// Forwards as `to` a SIGCONT that may come from a shell which has resumed the whole job, unless
/// Ctrl-Z has suspended the server meanwhile, by `overtaken`. `forward` gets what came, and `to`.
#[cold]
pub fn forward_resumption(
    to: Signal,
    overtaken: &dyn Fn() -> Option<Signal>,
    forward: &mut dyn FnMut(Signal, Signal),
) {
    if overtaken().is_some() {
        return;
    }
    forward(Signal::CONT, to);
    // If Ctrl-Z came just before, this SIGCONT has resumed the server. So its signal is sent again.
    // It changes nothing in a server that is suspended, and the next SIGCONT removes it.
    if let Some(stop) = overtaken() {
        forward(stop, stop);
    }
}

/// Whether a process of the tree, below a child that is `ours`, has sent `arrival` to the whole job
/// (`kill 0`): the server has it, and treaper is not meant. PID 1 always is: its number is known.
pub fn is_from_within(arrival: &Arrival, ours: &dyn Fn(i32) -> bool) -> bool {
    match arrival.origin {
        Origin::Process(sender) if pid::own() != 1 => match pid::group_of(sender) {
            // The kernel's threads send none, so this is a number of the server's PID namespace.
            Ok(0) if proc::stat(sender).is_ok_and(|stat| stat.is_kernel) => true,
            group if group == Ok(pid::group()) => {
                matches!(proc::child_above(sender), Ok(Some(child)) if ours(child))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Suspends this process as the server was, until a shell resumes it and moves treaper's group to
/// the foreground. If the server's own group was there before, it is moved there again.
pub fn suspend_as_server(signal: Signal, server: Option<Pid>, still: &dyn Fn() -> bool) {
    let own = pid::group();
    let servers = server.and_then(|pid| pid::group_of(pid.get()).ok());
    let had_front = servers.filter(|group| *group != own && tty::front_group() == Some(*group));
    suspend_self(signal, still);
    if let Some(group) = had_front {
        tty::move_foreground(own, group);
    }
}

/// Suspends this process by `signal`, if that suspends and there is `still` a reason. Returns when
/// the process is resumed, or at once in an orphaned process group.
/// The process that ends the reason must send SIGCONT, which removes a pending signal that
/// suspends. So `still` is asked again while the signal is pending, and no change between that
/// question and the suspension is missed, except with SIGSTOP, which cannot be blocked.
pub fn suspend_self(signal: Signal, still: &dyn Fn() -> bool) {
    if !(signal == Signal::STOP || signal.suspends_job()) || !still() {
        return;
    }
    signal::kill_self(signal);
    if signal != Signal::STOP {
        // The signal has removed a SIGCONT, which may have announced the end of the reason.
        if still() {
            signal::let_pending_act(signal);
        } else {
            // It removes the signal, and is received: the loop looks at everything once more.
            signal::kill_self(Signal::CONT);
        }
    }
}

/// What the one process of `--no-guard` knows of the suspension of the server.
/// A suspended treaper does not notice that its server is resumed or ends: SIGCHLD resumes no
/// process. So it is suspended only if a shell is expected to resume the job: after SIGTSTP,
/// SIGTTIN and SIGTTOU, and after SIGSTOP if the terminal has just sent one of those.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    server: Option<Signal>,
    /// Until when SIGSTOP counts as one of the terminal: some servers first restore the screen.
    terminal: Duration,
}

impl Alone {
    pub fn server_suspended(&mut self, signal: Signal, pid: Option<Pid>) {
        self.server = Some(signal);
        self.follow(pid);
    }

    /// The terminal has sent SIGTSTP, SIGTTIN or SIGTTOU to the job.
    pub fn terminal_suspends(&mut self, pid: Option<Pid>) {
        self.terminal = clock::now() + Duration::from_secs(2);
        self.follow(pid);
    }

    fn follow(&mut self, pid: Option<Pid>) {
        let followed = |signal: &Signal| signal.suspends_job() || clock::now() < self.terminal;
        if let Some(signal) = self.server.filter(followed) {
            // Once for each suspension: if a process resumes treaper alone, treaper stays resumed.
            *self = Self::default();
            let goes_on = |pid| Wait::child(pid).ended().resumed().has_come();
            suspend_as_server(signal, pid, &|| !pid.is_some_and(goes_on));
        }
    }
}
