//! Job control. A shell waits for the process that it knows, so treaper is suspended and resumed with the server.
#![forbid(unsafe_code)]

use crate::settings::manner::Manner;
use crate::streams::forward::Rules;
use crate::sys::arrival::Arrival;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::{tty, wait};

/// After SIGTSTP, SIGTTIN or SIGTTOU was forwarded: suspends this process as well, where that was asked for. With
/// job control the terminal's own signals do not need it: treaper is suspended when the server is. `still` as in
/// [`signal::suspend_self`].
pub fn suspend_with(
    arrival: &Arrival,
    manner: &Manner,
    rules: Rules<'_>,
    still: &dyn Fn() -> bool,
) {
    let is_suspending = arrival.signal.is_job_stop() && !rules.is_for_job(arrival);
    if manner.suspends_with_signals && is_suspending {
        signal::suspend_self(Signal::STOP, still);
    }
}

/// The stop signal of job control that has come after `arrival`, if that is a SIGCONT: then it is out of date.
///
/// A shell that resumes a job sends SIGCONT to all of it. So the server has it already, and treaper, which cannot know
/// that, sends it once more. The server must not be resumed so if Ctrl-Z has suspended it in the meantime.
pub fn overtaken_by(arrival: &Arrival, rules: Rules<'_>) -> Option<Signal> {
    let is_resumption = arrival.signal == Signal::CONT && rules.job_control;
    is_resumption.then(signal::waiting_job_stop).flatten()
}

/// Suspends this process as the server was suspended, until a shell resumes it. The shell then puts treaper's
/// group into the foreground, since it knows no other. A server with a group of its own (a shell again) gets back
/// the place that it had.
pub fn suspend_as_server(signal: Signal, server: Option<Pid>, still: &dyn Fn() -> bool) {
    let own = pid::group();
    let its = server.and_then(|pid| pid::group_of(pid.get()).ok());
    let had_front = its.filter(|group| *group != own && tty::front_group() == Some(*group));
    signal::suspend_self(signal, still);
    if let Some(group) = had_front {
        tty::move_foreground(own, group);
    }
}

/// With `--no-guard`: what is known of the suspension of the server.
///
/// A suspended treaper cannot notice that its server is resumed or ends: the kernel sends SIGCHLD, which resumes no
/// process. So treaper is suspended only where a shell is expected to resume the whole job. That is after SIGTSTP,
/// SIGTTIN and SIGTTOU, which job control uses; and after SIGSTOP if the terminal has sent a stop signal as well: some
/// servers catch that, tidy up the screen, and then suspend themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    server: Option<Signal>,
    terminal: bool,
}

impl Alone {
    /// The server was suspended by `signal`.
    pub fn server_suspended(&mut self, signal: Signal) {
        self.server = Some(signal);
    }

    /// The server was resumed.
    pub fn server_resumed(&mut self) {
        *self = Self::default();
    }

    /// The terminal has sent a stop signal to the job.
    pub fn terminal_suspends(&mut self) {
        self.terminal = true;
    }

    /// Suspends this process if the server `pid` is suspended and a shell is expected to resume both.
    pub fn follow(&mut self, pid: Option<Pid>) {
        let followed = |signal: &Signal| signal.is_job_stop() || self.terminal;
        if let Some(signal) = self.server.filter(followed) {
            // Only once for each stop: a process that resumes treaper alone means it.
            *self = Self::default();
            suspend_as_server(signal, pid, &|| !pid.is_some_and(wait::is_resumed));
        }
    }
}
