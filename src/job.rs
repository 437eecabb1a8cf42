//! Job control. A shell waits for the process that it knows, so treaper is suspended and resumed with the server.
#![forbid(unsafe_code)]

use crate::config::Config;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Arrival, Signal};
use crate::sys::tty;

/// After SIGTSTP, SIGTTIN or SIGTTOU was forwarded: suspends this process as well, where that was asked for. With
/// job control the terminal's own signals do not need it: treaper is suspended when the server is. `still` as in
/// [`signal::suspend_self`].
pub fn suspend_with(
    arrival: &Arrival,
    config: &Config,
    job_control: bool,
    still: &dyn Fn() -> bool,
) {
    let by_terminal = job_control && arrival.from_terminal;
    if config.stop_with_signals && arrival.signal.is_job_stop() && !by_terminal {
        signal::suspend_self(Signal::STOP, still);
    }
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
        tty::hand_over(own, group);
    }
}
