//! What the monitor says: its messages, and what it notes for `--report`.

use super::{Role, Supervisor};
use crate::output::progress::{Named, Seconds};
use crate::plan::machine::{Plan, State};
use crate::sys::{clock, pid, proc, signal::Signal};
use crate::{contain::Level, pair::link::Link, plan::event::Trigger};

impl Supervisor<'_> {
    /// From then on Ctrl-C kills the processes that the stop waits for, if it reaches treaper.
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

    /// Whether the keys of the terminal reach treaper: its group has the foreground. It has not in
    /// the background, behind a shell that gives it to each of its jobs, or after the shim's end.
    fn gets_keys(&self) -> bool {
        let known = match &self.role {
            Role::Monitor(shim) if shim.is_gone() => return false,
            Role::Monitor(Link::Parent { pid, .. }) => *pid,
            // Its own PID namespace hides the shim.
            Role::Monitor(_) => return self.context.board.in_foreground.get(),
            Role::Alone | Role::Heir => pid::own(),
        };
        proc::stat(known).is_ok_and(|stat| stat.foreground == stat.group)
    }

    /// Who has started a daemon with the server may want to keep it. The users of another init know
    /// that the end of the server is that of all.
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
        let (mut victims, signal) = (sigkill.victims, self.stop_signal(plan));
        victims.count = sigkill.ended as usize;
        if let Some((kill, stop)) = sigkill.since.zip(self.stopping_since) {
            let time = Seconds::about(kill.saturating_sub(stop));
            log::warn!("{trigger}: had to SIGKILL {victims}, alive {time} after {signal}");
        } else {
            log::warn!("{trigger}: had to SIGKILL {victims}, alive after {signal}");
        }
    }

    /// Counts the living processes once, after the stop signal was sent.
    pub(super) fn count_signalled(&mut self) {
        if let (Some(report), Some(_)) = (self.context.report, self.stopping_since) {
            if report.ledger.signalled().is_none() {
                report.ledger.set_signalled(self.tree.count_signalled());
            }
        }
    }

    pub(super) fn enter_state(&mut self, before: &Plan, after: &Plan) {
        let (state, now) = (after.state, clock::now());
        if matches!(state, State::Terminating { .. }) {
            self.stopping_since = Some(now);
        }
        if let Some(report) = self.context.report {
            report.ledger.set_state(state, now);
        }
        if self.context.board.failure().is_some() {
            return;
        }
        if before.trigger.is_none() && after.trigger == Some(Trigger::ServerExit) {
            log::info!("trigger: {}", Trigger::ServerExit);
        }
        match state {
            State::Done | State::Survived => {}
            State::Running => log::info!("stdin has a writer again, so the server goes on"),
            State::Draining { .. } => log::info!("draining: the server may exit by itself"),
            State::Terminating { .. } => log::info!("terminating"),
            State::Killing { .. } => log::info!("killing: the grace period has ended"),
        }
    }
}
