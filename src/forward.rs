//! What an arriving signal means (a pure decision), and what is common to all who forward it.
#![forbid(unsafe_code)]

use crate::config::Config;
use crate::event::Trigger;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Arrival, Signal};
use crate::sys::tty;
use crate::voice::{self, Step};

/// What is to be done with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Trigger(Trigger),
    /// News of a child, or of the other one of the pair.
    Child,
    /// To the server (or its group, or its tree).
    Forward(Signal),
    Drop,
}

/// Decides for `signal`. `sighup_ignored`: SIGHUP was ignored when we started (`nohup`).
#[must_use]
pub fn route(signal: Signal, config: &Config, sighup_ignored: bool) -> Route {
    if signal == Signal::CHLD {
        return Route::Child;
    }
    let rewritten = config.rewrites.iter().find(|(from, _)| *from == signal);
    let Some(signal) = rewritten.map_or(Some(signal), |(_, to)| *to) else {
        return Route::Drop;
    };
    match signal {
        Signal::TERM if !config.forward_term => Route::Trigger(Trigger::Terminate),
        Signal::HUP if !config.forward_hup && !sighup_ignored => Route::Trigger(Trigger::Hangup),
        other => Route::Forward(other),
    }
}

/// Tells that `from` goes to the server as `to` (`None`: that it does not).
pub fn tell(from: Signal, to: Option<Signal>) {
    voice::tell(&Step::Forwarding { from, to });
}

/// After SIGTSTP, SIGTTIN or SIGTTOU was forwarded: stops us as well, where that was asked for. With
/// job control the terminal's own do not need it: we stop as the server does.
pub fn stop_with(arrival: &Arrival, config: &Config, job_control: bool) {
    let by_terminal = job_control && arrival.from_terminal;
    if config.stop_with_signals && arrival.signal.is_job_stop() && !by_terminal {
        signal::suspend_self(Signal::STOP, &|| true);
    }
}

/// Stops us as the server was stopped, until a shell continues us. The shell then puts our group in front, the
/// only one that it knows; a server with one of its own (a shell again) gets back the place that it had.
pub fn stop_as_server(signal: Signal, server: Option<Pid>) {
    let own = pid::group();
    let its = server.and_then(|pid| pid::group_of(pid.get()).ok());
    let had_front = its.filter(|group| *group != own && tty::front_group() == Some(*group));
    signal::suspend_self(signal, &|| true);
    if let Some(group) = had_front {
        tty::hand_over(own, group);
    }
}
