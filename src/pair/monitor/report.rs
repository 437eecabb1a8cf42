//! What the monitor adds to the report of the run, see `--report`.
#![forbid(unsafe_code)]

use super::Monitor;
use crate::output::ledger::Lost;
use crate::output::report::Facts;
use crate::plan::event::Trigger;
use crate::plan::machine::Plan;
use crate::relay::Handle;
use crate::sys::pid::Pid;

impl Monitor<'_> {
    /// Counts the living processes once, after the stop signal was sent.
    pub(super) fn count_signalled(&mut self) {
        let Some(report) = self.context.report else {
            return;
        };
        if self.stopping_since.is_some() && report.ledger.signalled().is_none() {
            report.ledger.set_signalled(self.tree.count_signalled());
        }
    }

    pub(super) fn record_loss(&self, trigger: Trigger) {
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
            self.record_loss(Trigger::ShimKilled);
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
