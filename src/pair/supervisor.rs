//! The process that runs the loop: events from the watch and from reaping, effects on the tree.

mod reaping;
mod signals;

use std::{mem::discriminant, time::Duration};

use super::{context::Context, finally, link::Link};
use crate::contain::{Level, cgroup::Cgroup};
use crate::output::progress::{self, Seconds, Step};
use crate::output::{error::Error, report::Facts, status, stderr};
use crate::plan::event::{Action, Event, Trigger};
use crate::plan::machine::{Plan, ROUND_MIN, State, World};
use crate::plan::policy::{KillMode, Until};
use crate::streams::watch::{Watch, Woken};
use crate::sys::{Errno, apart, clock, clone, fd, pid, prctl, proc, stream};
use crate::sys::{exec::Failure, parent::Parent, pid::Pid, signal::Signal};
use crate::tree::{Tree, reap::Left};
use crate::{command, job_control};

/// Which process runs the loop.
pub enum Role {
    /// The only process of treaper.
    Alone,
    /// The child of the shim.
    Monitor(Link),
    /// The shim after the end of the monitor.
    Heir,
}

impl Role {
    /// The shim, if it is the parent.
    const fn shim(&self) -> Option<i32> {
        match self {
            Self::Monitor(Link::Parent(pid, _)) => Some(*pid),
            _ => None,
        }
    }
}

pub struct Supervisor<'a> {
    context: &'a Context<'a>,
    role: Role,
    /// The host, if it is the parent of this process, and its end is a trigger.
    parent: Option<Parent>,
    watch: Watch,
    tree: Tree,
    alone: job_control::Alone,
    /// Whether children are reaped before anything else.
    reaps_first: bool,
    /// When children are reaped though no signal reports a change.
    next_reap: Option<Duration>,
    /// When the code is locked; `None` once it is, and for an heir, which does that as the shim.
    keeps_code_at: Option<Duration>,
    /// When the stop began; `None` for an heir that goes on with the stop of the monitor.
    stopping_since: Option<Duration>,
    /// When the server was seen to be gone, if a process may be spared.
    server_gone_at: Option<Duration>,
}

impl<'a> Supervisor<'a> {
    pub fn new(
        context: &'a Context<'a>,
        role: Role,
        parent: Option<Parent>,
        watch: Watch,
        mut tree: Tree,
    ) -> Self {
        tree.spare = context.spare;
        tree.ledger = context.report.map(|report| report.ledger);
        tree.treaper[1] = role.shim().unwrap_or(0);
        let front = context.front.as_ref().and_then(|front| front.pid);
        tree.treaper[2] = front.map_or(0, Pid::get);
        Self {
            context,
            reaps_first: matches!(role, Role::Heir),
            keeps_code_at: prctl::keeps_code_at().filter(|_| !matches!(role, Role::Heir)),
            role,
            parent,
            watch,
            tree,
            alone: job_control::Alone::default(),
            next_reap: None,
            stopping_since: None,
            server_gone_at: None,
        }
    }

    /// Runs the loop until the tree is empty, or treaper gives up, and reports that. `first`: an
    /// event from before the loop. Returns the last plan, and the exit status. If the exec of the
    /// server has failed, the status of the new process means nothing: that is an error.
    pub fn run(&mut self, plan: Plan, first: Option<Event>) -> Result<(Plan, u8), Error> {
        let plan = plan.run(self, first);
        self.pass_on_the_rest();
        // Those of the only process or the heir may also be children from before treaper.
        if matches!(self.role, Role::Monitor(_)) || self.context.place.strangers.is_empty() {
            apart::wait_for(&self.tree.strangers);
        }
        let board = &self.context.board;
        let is_missing = board.server().is_none();
        let failure = board.failure().or(is_missing.then_some(Failure::Orphaned));
        if let Some(failure) = failure.filter(|_| plan.state == State::Done) {
            let name = &self.context.config.command[0];
            let directory = &self.context.place.directory;
            return Err(command::error(failure, name, directory));
        }
        let status = self.finish(&plan);
        self.end_run(plan.trigger, status, plan.state == State::Survived);
        if self.shim_is_gone() {
            self.tell_front(b".");
        }
        Ok((plan, status))
    }

    /// The exit status after the loop.
    fn finish(&mut self, plan: &Plan) -> u8 {
        let config = self.context.config;
        let trigger = plan.trigger.map_or("?", Trigger::name);
        self.tree.name_daemons(trigger, self.stop_signal(plan));
        self.report_killed(plan);
        if self.tree.spare.is_some() {
            self.tree.name_spared();
        }
        if plan.state == State::Survived {
            log::error!(
                "{} after SIGKILL, some processes still exist (listed above): only root can kill one with another uid, one in state D ends when what it is waiting for responds, and one in state t when its debugger detaches",
                Seconds(config.policy.kill_timeout)
            );
            return status::SURVIVORS;
        }
        if plan.trigger == Some(Trigger::CancelTimeout) {
            return config.exit_status(status::CANCEL_TIMEOUT);
        }
        let Some(ended) = self.context.board.ended() else {
            log::error!("it is unknown how the server ended");
            return status::OWN_FAILURE;
        };
        let status = ended.code();
        self.context.voice.report(&Step::Done { status });
        config.exit_status(status)
    }

    fn report_killed(&self, plan: &Plan) {
        let sigkill = &self.tree.sigkill;
        if sigkill.ended == 0 {
            return;
        }
        let trigger = plan.trigger.map_or("?", Trigger::name);
        let (mut victims, signal) = (sigkill.victims, self.stop_signal(plan));
        victims.count = sigkill.ended as usize;
        let begin: &dyn std::fmt::Display = match plan.policy.kill_mode {
            KillMode::Mixed => &"the stop began",
            _ => &signal,
        };
        let times = sigkill.since.zip(self.stopping_since);
        let time = times.map(|(kill, stop)| Seconds::about(kill.saturating_sub(stop)));
        let time = time.map_or(String::new(), |time| format!(" {time}"));
        log::warn!("{trigger}: had to SIGKILL {victims}, alive{time} after {begin}");
    }

    /// When the tree is gone, or was given up (`survived`). `status`: the exit status.
    fn end_run(&mut self, trigger: Option<Trigger>, status: u8, survived: bool) {
        if self.context.config.finally.is_some() {
            // No process reads it any more, so a write to it has to fail.
            apart::give_up(fd::STDIN, &mut self.tree.strangers);
        }
        let finally = finally::run(self.context, trigger, status);
        // What the command has left in other groups is not of its own group, which is gone.
        if self.context.config.finally.is_some() && !survived {
            self.kill_until_empty();
        }
        let report = self.context.report;
        let Some(report) = report else { return };
        if self.shim_is_gone() {
            self.context.record_loss(Trigger::ShimKilled);
        }
        report.write(&Facts {
            trigger,
            server_pid: self.context.board.server().map(Pid::get),
            server_ended: self.context.board.ended(),
            finally,
            memory_peak: self.tree.cgroup().and_then(Cgroup::memory_peak),
            ..self.context.config.facts(status)
        });
    }

    fn enter_state(&mut self, before: &Plan, after: &Plan) {
        let (state, now) = (after.state, clock::now());
        if matches!(state, State::Terminating { .. }) {
            self.stopping_since = Some(now);
            let is_sent = before.server_gone && after.policy.kill_mode != KillMode::Mixed;
            if let Some(trigger) = after.trigger.filter(|_| is_sent) {
                progress::stopped_unasked(trigger, self.stop_signal(after), "the rest of the tree");
            }
            if before.server_gone == after.server_gone {
                self.tell_front(b"!");
            }
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

    fn stop_server(&mut self, plan: &Plan) {
        let signal = self.stop_signal(plan);
        // A monitor that was killed may have done it.
        if self.context.board.stop_sent.get() || !self.tree.stop_server(signal) {
            return;
        }
        self.context.board.stop_sent.set(self.tree.has_sent_stop());
        // After the signal, so that the message does not delay the stop.
        if let Some(trigger) = plan.trigger {
            progress::stopped_unasked(trigger, signal, "the server");
        }
    }

    /// Tells the process in front of treaper by `!` that a stop was asked for, so that it no longer
    /// waits for the host to read all output, and by `.` that a run is over whose shim was killed.
    fn tell_front(&self, word: &[u8]) {
        if let Some(front) = &self.context.front {
            stream::send(front.line, word);
        }
    }

    pub fn stop_signal(&self, plan: &Plan) -> Signal {
        match self.context.manner.parent_signal {
            Some(signal) if plan.trigger == Some(Trigger::ParentExit) => signal,
            _ => self.context.config.signal,
        }
    }

    /// Names what the stop waits for. From then on Ctrl-C kills that, if it reaches treaper.
    fn name_waiting(&mut self, plan: &Plan) {
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
            Role::Monitor(Link::Parent(pid, _)) => *pid,
            // Its own PID namespace hides the shim.
            Role::Monitor(_) => return self.context.board.in_foreground.get(),
            Role::Alone | Role::Heir => pid::own(),
        };
        proc::stat(known).is_ok_and(|stat| stat.foreground == stat.group)
    }

    /// Lets the shim exit. Returns whether the monitor has to stay, to reap what is left. For the
    /// init of a PID namespace, the kernel does that.
    pub fn release_shim(&self) -> bool {
        self.context.board.gave_up.set(true);
        // Not SIGCHLD: the end of the monitor, which resumes a suspended shim, does not come now.
        self.signal_shim(Signal::CONT);
        self.context.config.contain != Level::Pidns
    }

    /// A call on which the loop rests has failed in a way that its manual does not foresee.
    pub fn give_up(&mut self, what: &str, errno: Errno) -> ! {
        stderr::defer();
        log::error!("cannot {what}: {errno}; the tree gets SIGKILL");
        self.tell_front(b"!");
        self.kill_until_empty();
        self.end_run(self.context.board.trigger(), status::OWN_FAILURE, false);
        stderr::write_deferred();
        clone::exit_now(status::OWN_FAILURE.into())
    }

    /// Sends SIGKILL until the tree is empty, or `--kill-timeout` is over.
    fn kill_until_empty(&mut self) {
        let end = clock::now() + self.context.config.policy.kill_timeout;
        loop {
            let progress = self.tree.kill_round();
            let reaped = self.tree.reap(&mut |_, _, _| {});
            if let Some(ended) = reaped.server {
                self.context.board.set_ended(ended);
            }
            if reaped.left == Left::Empty {
                return;
            }
            if !progress && clock::now() >= end {
                return self.tree.name_survivors();
            }
            // Dying takes processor time.
            clock::pause(ROUND_MIN);
        }
    }

    fn shim_is_gone(&self) -> bool {
        matches!(&self.role, Role::Monitor(shim) if shim.is_gone())
    }

    /// Resumes the shim if it is suspended, or is about to be. A shim that runs would lose the
    /// SIGTSTP of a Ctrl-Z that it has not read yet, and undo it by forwarding an older SIGCONT.
    fn resume_suspended_shim(&self) {
        let runs = |pid| proc::stat(pid).is_ok_and(|stat| stat.state != b'T');
        let runs = self.role.shim().is_some_and(runs);
        if self.context.board.suspending.get() || !runs {
            self.signal_shim(Signal::CONT);
        }
    }

    fn signal_shim(&self, signal: Signal) {
        if let Role::Monitor(shim) = &self.role {
            shim.signal(signal);
        }
    }
}

impl World for Supervisor<'_> {
    fn now(&self) -> Duration {
        clock::now()
    }

    fn next_event(&mut self, deadline: Option<Duration>) -> Event {
        let only_server = self.context.config.policy.kill_mode == KillMode::Mixed;
        if self.stopping_since.is_some() && (self.context.board.stop_sent.get() || !only_server) {
            self.tree.count_signalled();
        }
        loop {
            if self.reaps_first {
                return self.reap();
            }
            let now = clock::now();
            let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
            // Deadlines come first: many other events must not delay them.
            if is_due(deadline) {
                return Event::Deadline {
                    unread: fd::unread(fd::STDIN),
                    hung_up: !self.watch.stdin_is_back(),
                };
            }
            if is_due(self.tree.continues_at()) {
                self.tree.continue_stop();
            }
            if self.keeps_code_at.take_if(|at| *at <= now).is_some() {
                prctl::keep_code();
                if proc::is_in_memory_group_of_v1() && proc::view().is_ok() {
                    let is_running = self.context.board.trigger().is_none();
                    self.tree.rehearse_stop(is_running);
                }
            }
            let continues_at = self.tree.continues_at();
            let times = [deadline, continues_at, self.next_reap, self.keeps_code_at];
            match self.watch.wait(times.into_iter().flatten().min()) {
                // The relay's clock does not stand during a drain, as that of the watch does.
                Some(Woken::Trigger(Trigger::Idle)) if self.context.board.trigger().is_some() => {}
                Some(Woken::Trigger(trigger)) => return Event::Trigger(trigger),
                Some(Woken::Signal(arrival)) => {
                    if let Some(event) = self.on_signal(arrival) {
                        return event;
                    }
                }
                Some(Woken::Broken(what, errno)) => self.give_up(what, errno),
                Some(Woken::CgroupChanged) => {
                    self.read_cgroup_events();
                    self.reaps_first = true;
                }
                None => self.reaps_first = self.next_reap.is_some_and(|at| at <= clock::now()),
            }
        }
    }

    fn planned(&mut self, event: Event, before: &Plan, after: &Plan) {
        if after.is_running() {
            stderr::write_deferred();
        } else {
            stderr::defer();
        }
        if let Event::Trigger(trigger) = event {
            self.context.record_loss(trigger);
            match trigger {
                // Another process may get its number.
                Trigger::ShimKilled => self.tree.treaper[1] = 0,
                Trigger::RelayKilled => self.tree.treaper[2] = 0,
                trigger if trigger.drains() => {}
                _ => self.tell_front(b"!"),
            }
            log::info!("trigger: {trigger}");
        }
        if after != before {
            self.context.board.set_plan(after);
        }
        if discriminant(&before.state) != discriminant(&after.state) {
            self.enter_state(before, after);
        }
        if before.is_running() != after.is_running() {
            self.watch.set_running(after.is_running());
        }
        if before.is_running() && !after.is_running() && !after.is_over() {
            // A suspended shim could not report to the host how the server ended.
            self.signal_shim(Signal::CONT);
        }
    }

    fn apply(&mut self, plan: &Plan, action: Action) -> Option<Event> {
        match action {
            Action::StopServer => self.stop_server(plan),
            Action::EnsureServerStop => {
                self.tree.ensure_server_stop(self.stop_signal(plan));
                self.context.board.stop_sent.set(self.tree.has_sent_stop());
            }
            Action::StopRest => {
                let drained = plan.trigger.is_some_and(Trigger::drains);
                let by_itself = plan.trigger == Some(Trigger::ServerExit)
                    || drained && !self.tree.has_sent_stop();
                // With `--until=tree`, the end of stdin is the reason, and another line says so.
                let is_cause = !drained || plan.policy.until == Until::Server;
                // The users of another init know that the end of the server is that of all.
                let names = by_itself && is_cause && !self.context.manner.is_other_init;
                self.tree.daemons = names.then(|| self.tree.daemons.unwrap_or_default());
                let time = Duration::from_secs(by_itself.into()).min(plan.policy.grace / 4);
                let signal = self.stop_signal(plan);
                self.tree.stop_rest_after_filters(signal, time);
            }
            Action::KillAll => {
                let progress = self.tree.kill_round();
                // SIGCHLD signals may have been merged, so a child may have ended without one.
                self.reaps_first = true;
                return Some(Event::Swept { progress });
            }
            Action::NameWaiting => self.name_waiting(plan),
            Action::NameSurvivors => self.tree.name_survivors(),
        }
        None
    }
}
