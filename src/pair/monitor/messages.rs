//! The messages of the monitor.
#![forbid(unsafe_code)]

use super::Monitor;
use crate::output::progress::{Seconds, Step, Victims};
use crate::pair::context::Context;
use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::sys::wait::Ended;

impl Monitor<'_> {
    /// Logs which processes the stop waits for. From then on Ctrl-C kills them, except if the shim is gone: then the
    /// shell has its terminal back.
    pub(super) fn name_waiting(&mut self, plan: &Plan) {
        let (named, count) = self.tree.living();
        if count == 0 || !log::log_enabled!(log::Level::Warn) {
            return;
        }
        let offer = if self.shim_is_gone() {
            ""
        } else {
            self.context.board.named.set(true);
            "; Ctrl-C kills them now"
        };
        let named = &named;
        let trigger = plan.trigger().map_or("?", Trigger::name);
        let waiting = Victims { named, count };
        log::warn!("{trigger}: waiting for {waiting} to end{offer}");
    }

    pub(super) fn report_killed(&self, plan: &Plan) {
        let sigkill = &self.tree.sigkill;
        if sigkill.ended == 0 {
            return;
        }
        let trigger = plan.trigger().map_or("?", Trigger::name);
        let victims = Victims {
            named: &sigkill.victims,
            count: sigkill.ended as usize,
        };
        let (signal, since) = (self.stop_signal(plan), self.stopping_since);
        let time = sigkill.since.zip(since);
        if let Some(time) = time.map(|(kill, stop)| Seconds::about(kill.saturating_sub(stop))) {
            log::warn!("{trigger}: had to SIGKILL {victims}, alive {time} after {signal}");
        } else {
            log::warn!("{trigger}: had to SIGKILL {victims}, alive after {signal}");
        }
    }
}

/// Reports the end of a child. If the exec of the server has failed, that is reported as an error after the loop.
pub(super) fn report_end(context: &Context<'_>, pid: i32, ended: Ended, server: bool) {
    if server && context.board.failure().is_some() {
        return;
    }
    context.voice.report(&Step::Reaped { pid, ended, server });
    if server {
        let signal = context.config.signal;
        context.voice.report(&Step::StoppingRest { signal });
    }
}

/// Logs each new state of the plan, for `-v`.
pub(super) fn log_state(before: &Plan, after: &Plan) {
    if before.trigger().is_none() && after.trigger() == Some(Trigger::ServerExit) {
        log::info!("trigger: {}", Trigger::ServerExit);
    }
    match after.state() {
        State::Done | State::Survived => {}
        State::Running => log::info!("stdin has a writer again, so the server goes on"),
        State::Draining { .. } => log::info!("draining: the server may exit by itself"),
        State::Terminating { .. } => log::info!("terminating"),
        State::Killing { .. } => log::info!("killing: the grace period has ended"),
    }
}
