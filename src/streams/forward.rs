//! What an arriving signal means: a pure decision, the same in each process of treaper.

use crate::plan::event::Trigger;
use crate::settings::config::{Config, SignalUse};
use crate::sys::arrival::{Arrival, Origin};
use crate::sys::signal::Signal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Trigger(Trigger),
    /// A child, or the other process of the pair, has changed.
    Child,
    /// To the server, to its group, or to the tree.
    Forward(Signal),
    /// The server has got it from the terminal.
    Delivered,
    Drop,
}

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
    pub fn route(self, arrival: &Arrival) -> Route {
        // treaper has used up its own time on the processor, since it reaps for others.
        if arrival.signal == Signal::XCPU && arrival.origin == Origin::Kernel {
            return Route::Drop;
        }
        match meaning(arrival.signal, self.config, self.hup) {
            Route::Forward(_) if self.is_for_job(arrival) => Route::Delivered,
            other => other,
        }
    }

    /// Whether the terminal has sent it to the whole job, so that the server has it already.
    pub fn is_for_job(self, arrival: &Arrival) -> bool {
        self.job_control && arrival.origin == Origin::Terminal
    }

    /// Whether it may come from a shell which has resumed the whole job, and so the server, too.
    pub fn is_resumption(self, arrival: &Arrival) -> bool {
        arrival.signal == Signal::CONT && self.job_control
    }

    /// Whether treaper suspends itself after it has forwarded this signal. If the terminal has sent
    /// it to the job, treaper is suspended when the server is.
    pub fn suspends_treaper(self, arrival: &Arrival) -> bool {
        self.suspends_with_signals && arrival.signal.suspends_job() && !self.is_for_job(arrival)
    }

    /// Whether it is Ctrl-C, whatever a rewrite makes of SIGINT for the server.
    pub fn is_interrupt_key(self, arrival: &Arrival) -> bool {
        arrival.signal == Signal::INT && self.is_for_job(arrival)
    }
}

fn meaning(signal: Signal, config: &Config, hup: SignalUse) -> Route {
    let rewritten = config.rewrites.iter().find(|(from, _)| *from == signal);
    match rewritten.map_or(Some(signal), |(_, to)| *to) {
        _ if signal == Signal::CHLD => Route::Child,
        Some(Signal::TERM) if config.term == SignalUse::Stop => Route::Trigger(Trigger::Terminate),
        Some(Signal::HUP) if hup == SignalUse::Stop => Route::Trigger(Trigger::Hangup),
        Some(other) => Route::Forward(other),
        None => Route::Drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::cli;

    fn config(values: &[(&str, &str)]) -> Config {
        let variables = values.iter().map(|(n, v)| (n.into(), v.into()));
        cli::from_variables(&variables.collect::<Vec<_>>(), &["server".into()]).unwrap()
    }

    #[test]
    fn options_and_rewrites_decide_what_a_signal_means() {
        use SignalUse::{Forward, Stop};
        let usr1 = Signal::parse("USR1").unwrap();
        let [terminate, hangup] = [Trigger::Terminate, Trigger::Hangup].map(Route::Trigger);
        let (plain, term) = (config(&[]), config(&[("TREAPER_TERM", "forward")]));
        let list = "USR1:TERM,TERM:USR1,HUP:0,CHLD:USR1";
        let rewrites = config(&[("TREAPER_REWRITE", list)]);
        for (signal, config, hup, expected) in [
            (Signal::TERM, &plain, Stop, terminate),
            (Signal::TERM, &plain, Forward, terminate),
            (Signal::TERM, &term, Stop, Route::Forward(Signal::TERM)),
            (Signal::HUP, &plain, Stop, hangup),
            (Signal::HUP, &plain, Forward, Route::Forward(Signal::HUP)),
            (usr1, &plain, Stop, Route::Forward(usr1)),
            (Signal::CHLD, &plain, Stop, Route::Child),
            // The new signal counts, and SIGCHLD is never rewritten.
            (usr1, &rewrites, Stop, terminate),
            (Signal::TERM, &rewrites, Stop, Route::Forward(usr1)),
            (Signal::HUP, &rewrites, Stop, Route::Drop),
            (Signal::CHLD, &rewrites, Stop, Route::Child),
        ] {
            assert_eq!(meaning(signal, config, hup), expected, "{signal} {hup:?}");
        }
    }

    #[test]
    fn the_processor_time_of_treaper_is_no_concern_of_the_server() {
        let config = config(&[]);
        let rules = Rules {
            config: &config,
            hup: SignalUse::Stop,
            job_control: false,
            suspends_with_signals: false,
        };
        for (origin, expected) in [
            (Origin::Kernel, Route::Drop),
            (Origin::Process(7), Route::Forward(Signal::XCPU)),
        ] {
            let (signal, value) = (Signal::XCPU, None);
            let arrival = Arrival {
                signal,
                origin,
                value,
            };
            assert_eq!(rules.route(&arrival), expected);
        }
    }

    #[test]
    fn what_the_terminal_sends_to_the_job_is_neither_forwarded_nor_followed() {
        let config = config(&[]);
        let [usr1, stop] = ["USR1", "TSTP"].map(|name| Signal::parse(name).unwrap());
        for bits in 0..8 {
            let [job_control, from_terminal, suspends_with_signals] =
                [1, 2, 4].map(|bit| bits & bit != 0);
            let rules = Rules {
                config: &config,
                hup: SignalUse::Stop,
                job_control,
                suspends_with_signals,
            };
            let delivered = job_control && from_terminal;
            for signal in [Signal::INT, Signal::CONT, usr1, stop] {
                let arrival = Arrival {
                    signal,
                    value: None,
                    origin: if from_terminal {
                        Origin::Terminal
                    } else {
                        Origin::Outside
                    },
                };
                let route = rules.route(&arrival);
                assert_eq!(route == Route::Delivered, delivered);
                assert_eq!(route == Route::Forward(signal), !delivered);
                let is_key = rules.is_interrupt_key(&arrival);
                assert_eq!(is_key, delivered && signal == Signal::INT);
                let suspends = rules.suspends_treaper(&arrival);
                let may_suspend = suspends_with_signals && !delivered;
                assert_eq!(suspends, may_suspend && signal == stop);
                let resumes = rules.is_resumption(&arrival);
                assert_eq!(resumes, job_control && signal == Signal::CONT);
            }
        }
    }
}
