//! What an arriving signal means: a pure decision, the same in each process of treaper.
#![forbid(unsafe_code)]

use crate::plan::event::Trigger;
use crate::settings::config::{Config, SignalUse};
use crate::sys::arrival::Arrival;
use crate::sys::signal::Signal;

/// What has to be done with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Trigger(Trigger),
    /// A child, or the other process of the pair, has changed.
    Child,
    /// Send this signal to the server (or to its group, or to the tree).
    Forward(Signal),
    /// The server has got it from the terminal.
    Delivered,
    Drop,
}

/// The rules for an arriving signal.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub config: &'a Config,
    pub hup: SignalUse,
    /// The server is in the process group of treaper, which the terminal signals as a whole.
    pub job_control: bool,
    /// Whether a forwarded SIGTSTP, SIGTTIN or SIGTTOU also suspends treaper.
    pub suspends_with_signals: bool,
}

impl Rules<'_> {
    #[must_use]
    pub fn route(self, arrival: &Arrival) -> Route {
        match meaning(arrival.signal, self.config, self.hup) {
            Route::Forward(_) if self.is_for_job(arrival) => Route::Delivered,
            other => other,
        }
    }

    /// Whether the terminal has sent it to the whole job, so that the server has it already.
    #[must_use]
    pub fn is_for_job(self, arrival: &Arrival) -> bool {
        self.job_control && arrival.from_terminal
    }

    /// Whether it may come from a shell which has resumed the whole job. Then the server has it, too.
    #[must_use]
    pub fn is_resumption(self, arrival: &Arrival) -> bool {
        arrival.signal == Signal::CONT && self.job_control
    }

    /// Whether treaper suspends itself after it has forwarded this signal. Not after a signal of the terminal to the
    /// job: then treaper is suspended when the server is.
    #[must_use]
    pub fn suspends_treaper(self, arrival: &Arrival) -> bool {
        self.suspends_with_signals && arrival.signal.suspends_job() && !self.is_for_job(arrival)
    }

    /// Whether it is Ctrl-C, whatever a rewrite makes of SIGINT for the server.
    #[must_use]
    pub fn is_interrupt_key(self, arrival: &Arrival) -> bool {
        arrival.signal == Signal::INT && self.is_for_job(arrival)
    }
}

fn meaning(signal: Signal, config: &Config, hup: SignalUse) -> Route {
    if signal == Signal::CHLD {
        return Route::Child;
    }
    let rewritten = config.rewrites.iter().find(|(from, _)| *from == signal);
    let Some(signal) = rewritten.map_or(Some(signal), |(_, to)| *to) else {
        return Route::Drop;
    };
    match signal {
        Signal::TERM if config.term == SignalUse::Stop => Route::Trigger(Trigger::Terminate),
        Signal::HUP if hup == SignalUse::Stop => Route::Trigger(Trigger::Hangup),
        other => Route::Forward(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::cli;

    fn usr1() -> Signal {
        Signal::parse("USR1").unwrap()
    }

    fn config(values: &[(&str, &str)]) -> Config {
        let variables = values.iter().map(|(n, v)| (n.into(), v.into()));
        cli::from_variables(&variables.collect::<Vec<_>>(), &["server".into()]).unwrap()
    }

    #[test]
    fn term_and_hup_stop_the_server_unless_an_option_forwards_them() {
        let (plain, term) = (config(&[]), config(&[("TREAPER_TERM", "forward")]));
        for hup in [SignalUse::Stop, SignalUse::Forward] {
            let terminate = Route::Trigger(Trigger::Terminate);
            assert_eq!(meaning(Signal::TERM, &plain, hup), terminate);
            let forwarded = Route::Forward(Signal::TERM);
            assert_eq!(meaning(Signal::TERM, &term, hup), forwarded);
            let forwarded = Route::Forward(usr1());
            assert_eq!(meaning(usr1(), &plain, hup), forwarded);
        }
        let hangup = Route::Trigger(Trigger::Hangup);
        assert_eq!(meaning(Signal::HUP, &plain, SignalUse::Stop), hangup);
        let forwarded = Route::Forward(Signal::HUP);
        assert_eq!(meaning(Signal::HUP, &plain, SignalUse::Forward), forwarded);
    }

    #[test]
    fn the_new_signal_of_a_rewrite_counts_and_chld_is_never_rewritten() {
        let list = "USR1:TERM,TERM:USR1,HUP:0,CHLD:USR1";
        let rewrites = config(&[("TREAPER_REWRITE", list)]);
        let terminate = Route::Trigger(Trigger::Terminate);
        assert_eq!(meaning(usr1(), &rewrites, SignalUse::Stop), terminate);
        let forwarded = Route::Forward(usr1());
        assert_eq!(meaning(Signal::TERM, &rewrites, SignalUse::Stop), forwarded);
        assert_eq!(
            meaning(Signal::HUP, &rewrites, SignalUse::Stop),
            Route::Drop
        );
        assert_eq!(
            meaning(Signal::CHLD, &rewrites, SignalUse::Stop),
            Route::Child
        );
        assert_eq!(
            meaning(Signal::CHLD, &config(&[]), SignalUse::Stop),
            Route::Child
        );
    }

    fn arrival(signal: Signal, from_terminal: bool) -> Arrival {
        Arrival {
            signal,
            value: None,
            sender: 0,
            from_terminal,
            by_kernel: false,
            of_child_or_descriptor: false,
        }
    }

    #[test]
    fn treaper_suspends_itself_only_with_signals_that_it_forwards() {
        let config = config(&[]);
        let rules = |job_control, suspends_with_signals| Rules {
            config: &config,
            hup: SignalUse::Stop,
            job_control,
            suspends_with_signals,
        };
        let stop = Signal::parse("TSTP").unwrap();
        for (job_control, from_terminal) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let arrived = arrival(stop, from_terminal);
            assert!(!rules(job_control, false).suspends_treaper(&arrived));
            let suspends = rules(job_control, true).suspends_treaper(&arrived);
            assert_eq!(suspends, !(job_control && from_terminal));
            let arrived = arrival(usr1(), from_terminal);
            assert!(!rules(job_control, true).suspends_treaper(&arrived));
            let arrived = arrival(Signal::CONT, from_terminal);
            assert_eq!(
                rules(job_control, true).is_resumption(&arrived),
                job_control
            );
        }
        assert!(!rules(true, true).is_resumption(&arrival(stop, false)));
    }

    #[test]
    fn only_a_signal_from_the_terminal_to_the_job_counts_as_delivered() {
        let config = config(&[]);
        for (job_control, from_terminal) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let rules = Rules {
                config: &config,
                hup: SignalUse::Stop,
                job_control,
                suspends_with_signals: false,
            };
            let both = job_control && from_terminal;
            for signal in [Signal::INT, usr1()] {
                let arrival = arrival(signal, from_terminal);
                let forwarded = Route::Forward(signal);
                let expected = if both { Route::Delivered } else { forwarded };
                assert_eq!(rules.route(&arrival), expected);
                let key = both && signal == Signal::INT;
                assert_eq!(rules.is_interrupt_key(&arrival), key);
            }
        }
    }
}
