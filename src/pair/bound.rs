//! How long the monitor may take. A monitor that is held (by a debugger, in a frozen group, by a
//! file system) would keep the shim, and so the host, waiting forever.

use std::time::Duration;

use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::sys::{Errno, pid::Pid, proc};

/// How long the monitor may be late. It needs less than a millisecond.
const LATE: Duration = Duration::from_secs(4);
/// How long it is given after that. If both processes were held and are released (`docker pause`),
/// the shim can be the first one to run.
const MORE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
pub struct Bound {
    /// The first reason to stop that was passed on, and when.
    pub asked: Option<(Trigger, Duration)>,
    /// When there was nothing left to do but to exit.
    over: Option<Duration>,
    /// When the last step was due that the monitor has to do.
    due: Option<Duration>,
    /// That step, if the monitor was late with it and held at the last look.
    suspected: Option<Duration>,
    /// After a look, the monitor has time until then in any case.
    extended: Duration,
}

impl Bound {
    pub fn ask(&mut self, trigger: Trigger, now: Duration) {
        self.asked.get_or_insert((trigger, now));
    }

    /// When the monitor is late, if it follows `plan`. `None`: nothing is expected of it.
    /// `finally`: until when the command of `--finally` has time, or 0.
    pub fn late_at(&mut self, plan: &Plan, finally: Duration, now: Duration) -> Option<Duration> {
        let asked = self.asked.map(|(_, at)| at);
        self.due = match plan.state {
            State::Running | State::Draining { .. } => asked.or(plan.deadline()),
            State::Done | State::Survived => Some((*self.over.get_or_insert(now)).max(finally)),
            _ => plan.deadline(),
        };
        self.due.map(|due| (due + LATE).max(self.extended))
    }

    /// Whether the late monitor is held, now and at the last look, and does not only wait for the
    /// processor. Unknown means no, but without memory for the answer it waits for memory as well.
    pub fn is_held(&mut self, monitor: Pid, now: Duration) -> bool {
        self.extended = now + MORE;
        let is_held = match proc::stat(monitor.get()) {
            Ok(stat) => stat.state != b'R',
            Err(errno) => errno == Errno::NOMEM,
        };
        let before = std::mem::replace(&mut self.suspected, self.due.filter(|_| is_held));
        is_held && before == self.due
    }
}
