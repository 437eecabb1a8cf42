//! What only `src/streams/forward.rs` itself can see of its work.

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
