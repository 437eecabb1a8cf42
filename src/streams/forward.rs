//! What an arriving signal means (a pure decision), and what is common to all who forward it.
#![forbid(unsafe_code)]

use crate::plan::event::Trigger;
use crate::settings::config::Config;
use crate::sys::signal::Signal;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::cli::Args;
    use crate::settings::config;

    fn usr1() -> Signal {
        Signal::parse("USR1").unwrap()
    }

    fn config(values: &[(&'static str, &str)]) -> Config {
        let args = Args {
            values: values.iter().map(|(n, v)| (*n, (*v).into())).collect(),
            command: vec!["server".into()],
        };
        config::resolve(args, std::iter::empty()).unwrap()
    }

    #[test]
    fn term_and_hup_are_reasons_to_stop_unless_they_are_to_be_forwarded() {
        let (plain, term) = (config(&[]), config(&[("term", "forward")]));
        for forward_hup in [false, true] {
            let terminate = Route::Trigger(Trigger::Terminate);
            assert_eq!(route(Signal::TERM, &plain, forward_hup), terminate);
            let forwarded = Route::Forward(Signal::TERM);
            assert_eq!(route(Signal::TERM, &term, forward_hup), forwarded);
            let forwarded = Route::Forward(usr1());
            assert_eq!(route(usr1(), &plain, forward_hup), forwarded);
        }
        let hangup = Route::Trigger(Trigger::Hangup);
        assert_eq!(route(Signal::HUP, &plain, false), hangup);
        let forwarded = Route::Forward(Signal::HUP);
        assert_eq!(route(Signal::HUP, &plain, true), forwarded);
    }

    #[test]
    fn a_rewritten_signal_means_what_it_has_become_and_chld_is_never_one() {
        let rewrites = config(&[
            ("rewrite", "USR1:TERM"),
            ("rewrite", "TERM:USR1"),
            ("rewrite", "HUP:0"),
            ("rewrite", "CHLD:USR1"),
        ]);
        let terminate = Route::Trigger(Trigger::Terminate);
        assert_eq!(route(usr1(), &rewrites, false), terminate);
        let forwarded = Route::Forward(usr1());
        assert_eq!(route(Signal::TERM, &rewrites, false), forwarded);
        assert_eq!(route(Signal::HUP, &rewrites, false), Route::Drop);
        assert_eq!(route(Signal::CHLD, &rewrites, false), Route::Child);
        assert_eq!(route(Signal::CHLD, &config(&[]), false), Route::Child);
    }
}
