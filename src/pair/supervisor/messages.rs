//! What the monitor says: its messages, and its part of the report of the run, see `--report`.

use super::{Role, Supervisor};
use crate::contain::Level;
use crate::output::ledger::Lost;
use crate::output::progress::{Named, Seconds};
use crate::output::report::Facts;
use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::sys::pid::{self, Pid};
use crate::sys::proc;
use crate::sys::signal::Signal;

impl Supervisor<'_> {
    /// Logs which processes the stop waits for. From then on Ctrl-C kills them, if it reaches
    /// treaper.
    pub(super) fn name_waiting(&mut self, plan: &Plan) {
        let waiting = self.tree.living();
        if waiting.count == 0 || !log::log_enabled!(log::Level::Warn) {
            return;
        }
        let offer = if self.gets_keys() {
            self.context.board.named.set(true);
            "; Ctrl-C kills them now"
        } else {
            ""
        };
        let trigger = plan.trigger.map_or("?", Trigger::name);
        log::warn!("{trigger}: waiting for {waiting} to end{offer}");
    }

    /// Whether the keys of the terminal reach treaper: its group has the foreground. It has not
    /// while the job is in the background, behind a shell that gives each of its own jobs the
    /// foreground, or after the end of the shim.
    fn gets_keys(&self) -> bool {
        if self.shim_is_gone() {
            return false;
        }
        let known = match (&self.role, self.role.shim()) {
            (_, Some(shim)) => shim,
            (Role::Alone | Role::Heir, None) => pid::own(),
            // Its own PID namespace hides the shim.
            (Role::Monitor { .. }, None) => return self.context.board.in_foreground.get(),
        };
        let is_in_front = |stat: proc::Stat| stat.foreground == stat.group;
        proc::stat(known).is_ok_and(is_in_front)
    }

    /// Logs which daemons end since the server has ended: who has started one with the server may
    /// want to keep it. The users of another init know that its end is that of all.
    pub(super) fn name_daemons(&self, daemons: &Named, signal: Signal) {
        if daemons.count == 0 || self.context.manner.is_other_init {
            return;
        }
        let with = match self.context.config.contain {
            Level::Group => "",
            Level::Cgroup | Level::Pidns => " with --contain=group",
        };
        log::warn!(
            "server-exit: the server exited, so its daemons were sent {signal}: {daemons}; --spare=NAME{with} keeps a daemon running"
        );
    }

    pub(super) fn report_killed(&self, plan: &Plan) {
        let sigkill = &self.tree.sigkill;
        if sigkill.ended == 0 {
            return;
        }
        let trigger = plan.trigger.map_or("?", Trigger::name);
        let mut victims = sigkill.victims;
        victims.count = sigkill.ended as usize;
        let (signal, since) = (self.stop_signal(plan), self.stopping_since);
        let time = sigkill.since.zip(since);
        if let Some(time) = time.map(|(kill, stop)| Seconds::about(kill.saturating_sub(stop))) {
            log::warn!("{trigger}: had to SIGKILL {victims}, alive {time} after {signal}");
        } else {
            log::warn!("{trigger}: had to SIGKILL {victims}, alive after {signal}");
        }
    }

    /// Counts the living processes once, after the stop signal was sent.
    pub(super) fn count_signalled(&mut self) {
        let Some(report) = self.context.report else {
            return;
        };
        if self.stopping_since.is_some() && report.ledger.signalled().is_none() {
            report.ledger.set_signalled(self.tree.count_signalled());
        }
    }

    /// Notes for the report that a process of treaper was killed, if `trigger` says so.
    pub fn record_loss(&self, trigger: Trigger) {
        let lost = match trigger {
            Trigger::ShimKilled => Lost::Shim,
            Trigger::MonitorKilled => Lost::Monitor,
            _ => return,
        };
        if let Some(report) = self.context.report {
            report.ledger.set_lost(lost);
        }
    }

    /// Writes the report. `status`: the exit status. `finally`: that of the command of `--finally`.
    pub fn write_report(&self, trigger: Option<Trigger>, status: u8, finally: Option<u8>) {
        let Some(report) = self.context.report else {
            return;
        };
        if self.shim_is_gone() {
            self.record_loss(Trigger::ShimKilled);
        }
        report.write(&Facts {
            trigger,
            server_pid: self.context.board.server().map(Pid::get),
            server_ended: self.context.board.ended(),
            exit_status: status,
            finally,
            memory_peak: self.tree.memory_peak(),
            ..self.context.config.facts()
        });
    }
}

/// Logs each new state of the plan, for `-v`.
pub(super) fn log_state(before: &Plan, after: &Plan) {
    if before.trigger.is_none() && after.trigger == Some(Trigger::ServerExit) {
        log::info!("trigger: {}", Trigger::ServerExit);
    }
    match after.state {
        State::Done | State::Survived => {}
        State::Running => log::info!("stdin has a writer again, so the server goes on"),
        State::Draining { .. } => log::info!("draining: the server may exit by itself"),
        State::Terminating { .. } => log::info!("terminating"),
        State::Killing { .. } => log::info!("killing: the grace period has ended"),
    }
}
