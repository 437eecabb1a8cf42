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

#[derive(Clone, Copy)]
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
        let signal = arrival.signal;
        let mut rewrites = self.config.rewrites.iter();
        let rewritten = rewrites.find(|(from, _)| *from == signal);
        match rewritten.map_or(Some(signal), |(_, to)| *to) {
            // treaper has used up its own time on the processor, since it reaps for others.
            _ if signal == Signal::XCPU && arrival.origin == Origin::Kernel => Route::Drop,
            _ if signal == Signal::CHLD => Route::Child,
            Some(Signal::TERM) if self.config.term == SignalUse::Stop => {
                Route::Trigger(Trigger::Terminate)
            }
            Some(Signal::HUP) if self.hup == SignalUse::Stop => Route::Trigger(Trigger::Hangup),
            Some(_) if self.is_for_job(arrival) => Route::Delivered,
            Some(other) => Route::Forward(other),
            None => Route::Drop,
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
