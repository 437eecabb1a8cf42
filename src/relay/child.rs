//! Treaper itself, which is the child of the relay. The host knows the pid of the relay alone, so
//! the relay forwards signals, is suspended and resumed with its child, and ends as that does.

use crate::job_control;
use crate::output::status;
use crate::sys::arrival::{self, Arrival, Origin};
use crate::sys::parent::Parent;
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{Change, Ended, Wait};
use crate::sys::{Errno, pid, proc};

pub struct Child {
    pub pid: pid::Pid,
    /// The child is in the process group of the relay, which the terminal signals as a whole.
    pub job_control: bool,
    /// The host, if its end is a trigger.
    pub parent: Option<Parent>,
    pub ended: Option<Ended>,
}

impl Child {
    /// Whether the host has ended since the last look.
    pub fn loses_host(&mut self) -> bool {
        let ends = self.parent.as_mut().is_some_and(Parent::ends);
        if ends {
            // The kernel resumes only its own child, which is this process.
            self.resume();
        }
        ends
    }

    /// Acts on a signal. Returns whether it asks for the end.
    pub fn handle(&self, arrival: &Arrival) -> bool {
        let by_treaper = [pid::own(), self.pid.get()].map(Origin::Process);
        let reached_all = self.job_control && arrival.origin == Origin::Terminal;
        let announces_end = |parent: Parent| parent.has_announced_its_end(arrival);
        let is_news =
            arrival.origin == Origin::ChildOrDescriptor || self.parent.is_some_and(announces_end);
        match arrival.signal {
            _ if by_treaper.contains(&arrival.origin) || reached_all || is_news => false,
            Signal::CHLD => false,
            Signal::CONT if self.job_control => {
                self.resume();
                false
            }
            signal => {
                if self.ended.is_none() {
                    arrival::pass_on(arrival, self.pid);
                }
                let stops = [Signal::HUP, Signal::TERM].contains(&signal);
                if stops && !self.job_control {
                    // The host sees only the relay, which is not suspended.
                    self.resume();
                }
                stops || signal == Signal::INT
            }
        }
    }

    /// Looks at the children after every signal: one that suspends removes a SIGCONT that announces
    /// an end. Returns the change of another child, after which there may be more to look at.
    pub fn look(&mut self) -> Option<(i32, Change)> {
        loop {
            match Wait::any().ended().suspended().resumed().take() {
                Ok(Some((pid, change))) if pid == self.pid.get() => match change {
                    Change::Ended(ended) => self.ended = Some(ended),
                    Change::Suspended(by) => self.follow(by),
                    Change::Trapped | Change::Resumed => {}
                },
                Ok(other) => return other,
                Err(Errno::CHILD) => return None,
                // A filter refuses the call, so the status will never be known.
                Err(_) => {
                    self.ended = Some(Ended::Exited(status::OWN_FAILURE));
                    return None;
                }
            }
        }
    }

    /// Suspends the relay as the child was suspended, until a shell or the child resumes it.
    fn follow(&self, by: u8) {
        let signal = Signal::from_number(by.into());
        // Nothing suspends PID 1.
        if let Some(signal) = signal.filter(|_| self.job_control && pid::own() != 1) {
            let goes_on = Wait::child(self.pid).ended().resumed();
            job_control::suspend_self(signal, &|| !goes_on.has_come());
            self.resume();
        }
    }

    /// Resumes the child, if it is still suspended. A shell resumes both.
    fn resume(&self) {
        if self.ended.is_none() && proc::may_be_suspended(self.pid.get()) {
            let mut send = |_, signal| {
                let _ = signal::kill(self.pid, signal);
            };
            job_control::forward_resumption(Signal::CONT, &signal::waiting_job_stop, &mut send);
        }
    }
}
