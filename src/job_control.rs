//! Job control. A shell waits for the process that it knows, so treaper is suspended and resumed
//! with the server.

use std::time::Duration;

use crate::sys::arrival::{Arrival, Origin};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::Wait;
use crate::sys::{clock, proc, tty};

/// Forwards as `to` a SIGCONT that may come from a shell which has resumed the whole job. Not if it
/// was `overtaken`: Ctrl-Z has suspended the server by this signal in the meantime, and a SIGCONT
/// would resume it. `forward` gets the signal that has arrived, and the signal for the server.
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
    // Ctrl-Z may have come just before the SIGCONT was sent, which has then resumed the server. So
    // its signal is sent again. If the server is suspended, that changes nothing, and the next
    // SIGCONT removes it.
    if let Some(stop) = overtaken() {
        forward(stop, stop);
    }
}

/// Whether a process of the tree has sent `arrival`, and the whole job has got it (`kill 0`): then
/// it is not for treaper, and the server has it. PID 1 is told by its number, so a signal to it is
/// for treaper.
pub fn is_from_within(arrival: &Arrival) -> bool {
    match arrival.origin {
        Origin::Process(sender) if pid::own() != 1 => {
            pid::group_of(sender) == Ok(pid::group()) && proc::is_descendant(sender) == Ok(true)
        }
        _ => false,
    }
}

/// Suspends this process as the server was suspended, until a shell resumes it. The shell then
/// moves treaper's group to the foreground, since it knows no other. If the server's own group was
/// there before (the server is a shell, for example), it is moved there again. `still`: see
/// [`suspend_self`].
pub fn suspend_as_server(signal: Signal, server: Option<Pid>, still: &dyn Fn() -> bool) {
    let own = pid::group();
    let servers = server.and_then(|pid| pid::group_of(pid.get()).ok());
    let had_front = servers.filter(|group| *group != own && tty::front_group() == Some(*group));
    suspend_self(signal, still);
    if let Some(group) = had_front {
        tty::move_foreground(own, group);
    }
}

/// Suspends this process by `signal`, if that is a signal that suspends and `still` says that there
/// is a reason. Returns when the process is resumed, or at once where job control suspends nothing
/// (an orphaned process group).
///
/// The process that ends the reason must send SIGCONT, which removes a pending signal that
/// suspends. So `still` is asked again while the signal is pending, and no change between that
/// question and the suspension is missed. SIGSTOP cannot be blocked, so with SIGSTOP a change in
/// that moment is missed.
pub fn suspend_self(signal: Signal, still: &dyn Fn() -> bool) {
    if !signal.suspends() || !still() {
        return;
    }
    signal::kill_self(signal);
    if signal != Signal::STOP {
        // The signal has removed a pending SIGCONT, which may have announced that the reason has
        // ended.
        if still() {
            signal::let_pending_act(signal);
        } else {
            // SIGCONT removes the signal. It is also received, so the loop looks at everything once
            // more.
            signal::kill_self(Signal::CONT);
        }
    }
}

/// How long a server may need to restore the screen before it suspends itself.
const RESTORE_TIME: Duration = Duration::from_secs(2);

/// What the one process of `--no-guard` knows of the suspension of the server.
///
/// A suspended treaper cannot notice that its server is resumed or ends: the kernel sends SIGCHLD,
/// which resumes no process. So treaper is suspended only if a shell is expected to resume the
/// whole job. That is the case after SIGTSTP, SIGTTIN and SIGTTOU, which job control uses. It is
/// also the case after SIGSTOP, if the terminal has sent one of those just before: some servers
/// catch it, restore the screen, and then suspend themselves by SIGSTOP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    server: Option<Signal>,
    /// Until when SIGSTOP counts as one of the terminal.
    terminal: Duration,
}

impl Alone {
    /// The server `pid` was suspended by `signal`.
    pub fn server_suspended(&mut self, signal: Signal, pid: Option<Pid>) {
        self.server = Some(signal);
        self.follow(pid);
    }

    /// The server was resumed.
    pub fn server_resumed(&mut self) {
        *self = Self::default();
    }

    /// The terminal has sent SIGTSTP, SIGTTIN or SIGTTOU to the job.
    pub fn terminal_suspends(&mut self, pid: Option<Pid>) {
        self.terminal = clock::now() + RESTORE_TIME;
        self.follow(pid);
    }

    /// Suspends this process if the server `pid` is suspended and a shell is expected to resume
    /// both.
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
