//! What the monitor adds to the report of the run, see `--report`.
#![forbid(unsafe_code)]

use super::Monitor;
use crate::output::ledger::Lost;
use crate::output::report::Facts;
use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::relay::Handle;
use crate::sys::clock;
use crate::sys::pid::Pid;

impl Monitor<'_> {
    /// Notes each new state of the plan.
    pub(super) fn note_state(&mut self, before: &Plan, after: &Plan) {
        let Some(report) = self.context.report else {
            return;
        };
        let (old, new) = (before.state(), after.state());
        if std::mem::discriminant(&old) == std::mem::discriminant(&new) {
            return;
        }
        report.ledger.set_state(new, clock::now());
        self.count_due |= matches!(new, State::Terminating { .. });
    }

    /// Counts the living processes, after the stop signal was sent.
    pub(super) fn count_signalled(&mut self) {
        if let Some(report) = self.context.report
            && std::mem::take(&mut self.count_due)
        {
            report.ledger.set_signalled(self.tree.count_signalled());
        }
    }

    pub(super) fn note_loss(&self, trigger: Trigger) {
        let lost = match trigger {
            Trigger::ShimKilled => Lost::Shim,
            Trigger::MonitorKilled => Lost::Monitor,
            Trigger::RelayKilled => Lost::Relay,
            _ => return,
        };
        if let Some(report) = self.context.report {
            report.ledger.set_lost(lost);
        }
    }

    /// Writes the report. `status`: the exit status.
    pub fn write_report(&self, plan: &Plan, status: u8) {
        let Some(report) = self.context.report else {
            return;
        };
        if self.shim_is_gone() {
            self.note_loss(Trigger::ShimKilled);
        }
        report.write(&Facts {
            trigger: plan.trigger(),
            server_pid: self.context.board.server().map(Pid::get),
            server_ended: self.context.board.ended(),
            exit_status: status,
            relay: self.context.relay.as_ref().map(Handle::counts),
            memory_peak: self.tree.memory_peak(),
            ..self.context.config.facts()
        });
    }
}
