//! What an arriving signal means (a pure decision), and what is common to all who forward it.
#![forbid(unsafe_code)]

use crate::config::Config;
use crate::event::Trigger;
use crate::sys::signal::Signal;
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

/// Decides for `signal`. `forward_hup`: SIGHUP is a signal as any other.
#[must_use]
pub fn route(signal: Signal, config: &Config, forward_hup: bool) -> Route {
    if signal == Signal::CHLD {
        return Route::Child;
    }
    let rewritten = config.rewrites.iter().find(|(from, _)| *from == signal);
    let Some(signal) = rewritten.map_or(Some(signal), |(_, to)| *to) else {
        return Route::Drop;
    };
    match signal {
        Signal::TERM if !config.forward_term => Route::Trigger(Trigger::Terminate),
        Signal::HUP if !forward_hup => Route::Trigger(Trigger::Hangup),
        other => Route::Forward(other),
    }
}

/// Tells that `from` goes to the server as `to` (`None`: that it does not).
pub fn tell(from: Signal, to: Option<Signal>) {
    voice::tell(&Step::Forwarding { from, to });
}
