//! The process that runs the loop. It gets its events from the watch and from reaping, and acts on the tree.
#![forbid(unsafe_code)]

mod outcome;
mod report;
mod signals;

use std::time::Duration;

use crate::job_control;
use crate::output::progress::{self, Seconds, Step};
use crate::output::status;
use crate::pair::context::Context;
use crate::pair::link::Link;
use crate::plan::event::{Action, Event, Trigger};
use crate::plan::machine::{Plan, State};
use crate::plan::supervise::World;
use crate::relay::Handle;
use crate::settings::config::StdoutMode;
use crate::streams::notify::Notifier;
use crate::streams::watch::{Watch, Woken};
use crate::sys::signal::Signal;
use crate::sys::{clock, fd, proc};
use crate::tree::kill::Killer;
use crate::tree::reap::{self, JobChange, Left, Reaped};
use crate::tree::{Hold, Tree};

/// Which process runs the loop, and which parent it watches by `getppid()`.
#[derive(Debug)]
pub enum Role {
    /// The only process of treaper. `parent`: the host, if its end is a trigger.
    Alone { parent: Option<i32> },
    /// The child of the shim.
    Monitor { shim: Link },
    /// The shim after the end of the monitor.
    Heir,
}

/// When children are reaped the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextReap {
    /// Before anything else.
    Now,
    /// After everything else was looked at: one batch was taken, and more are waiting.
    Soon,
    /// After a pause: only members of the cgroup that are not descendants are left, and the heir has no descriptor
    /// that reports their end.
    AfterPause,
    /// When a signal reports that a child has changed.
    OnSignal,
}

/// The state of the process that runs the loop.
#[derive(Debug)]
pub struct Monitor<'a> {
    context: &'a Context<'a>,
    role: Role,
    watch: Watch,
    tree: Tree,
    killer: Killer,
    /// Only in the process that the service manager knows.
    notifier: Option<&'a Notifier>,
    alone: job_control::Alone,
    /// A trigger that was found together with something else, and is the next event.
    found: Option<Trigger>,
    next_reap: NextReap,
    /// How many processes ended by SIGKILL after treaper had begun to send it.
    killed: u32,
    /// A process has sent the SIGHUP that is the next trigger.
    hangup_asked: bool,
    /// The last trigger, if no process has asked for the stop by a signal.
    unasked: Option<Trigger>,
    /// When the stop began; `None` for an heir that goes on with the stop of the monitor.
    stopping_since: Option<Duration>,
    /// The stop signal is out, and the report needs to know how many processes there are.
    count_due: bool,
}

/// The pause of [`NextReap::AfterPause`].
const REAP_PAUSE: Duration = Duration::from_millis(10);

impl<'a> Monitor<'a> {
    #[must_use]
    pub fn new(context: &'a Context<'a>, role: Role, watch: Watch, tree: Tree) -> Self {
        Self {
            context,
            role,
            watch,
            tree,
            killer: Killer::noting(context.report.map(|report| report.ledger)),
            notifier: context.notifier.as_ref(),
            alone: job_control::Alone::default(),
            found: None,
            next_reap: NextReap::OnSignal,
            killed: 0,
            hangup_asked: false,
            unasked: None,
            stopping_since: None,
            count_due: false,
        }
    }

    /// The shim after the end of the monitor. `namespace`: the server was in a PID namespace, so its pid means
    /// nothing here.
    #[must_use]
    pub fn heir(context: &'a Context<'a>, tree: Tree, namespace: bool) -> Self {
        let heir = Self::new(context, Role::Heir, Watch::signals_only(), tree);
        Self {
            notifier: heir.notifier.filter(|_| !namespace),
            found: Some(Trigger::MonitorKilled),
            next_reap: NextReap::Now,
            ..heir
        }
    }

    /// A process without a server, which has to stop its orphans.
    #[must_use]
    pub fn of_orphans(context: &'a Context<'a>) -> Self {
        let tree = Tree::new(None, Vec::new(), Hold::Descent);
        let role = Role::Alone { parent: None };
        Self {
            found: Some(Trigger::Terminate),
            next_reap: NextReap::Now,
            ..Self::new(context, role, Watch::signals_only(), tree)
        }
    }
}

impl World for Monitor<'_> {
    fn now(&self) -> Duration {
        clock::now()
    }

    fn next_event(&mut self, deadline: Option<Duration>) -> Event {
        self.count_signalled();
        let event = self.wait_for_event(deadline);
        if let Event::Trigger(trigger) = event {
            self.note_loss(trigger);
            log::info!("trigger: {trigger}");
            let asked = std::mem::take(&mut self.hangup_asked) && trigger == Trigger::Hangup;
            // If stdin and stdout have both hung up, the first one began the drain: the second is not the reason.
            if !(trigger.drains() && self.context.board.trigger().is_some()) {
                self.unasked = Some(trigger).filter(|_| !asked);
            }
        }
        event
    }

    fn planned(&mut self, before: &Plan, after: &Plan) {
        let terminating = |plan: &Plan| matches!(plan.state(), State::Terminating { .. });
        if terminating(after) && !terminating(before) {
            self.stopping_since = Some(clock::now());
        }
        self.note_state(before, after);
        self.context.board.set_plan(after);
        if before.is_running() != after.is_running() {
            self.watch.set_running(after.is_running());
        }
        if before.is_running() && !after.is_running() {
            self.wake_shim();
        }
        if !before.is_running() && after.is_running() {
            self.watch.watch_stdin_again();
            if self.context.config.stdout == StdoutMode::Watch {
                self.watch.watch_stdout_again();
            }
        }
        if self.context.board.failure().is_none() {
            report::new_state(before, after);
        }
    }

    fn apply(&mut self, plan: &Plan, action: Action) -> Option<Event> {
        match action {
            Action::StopServer => self.stop_server(plan),
            Action::EnsureServerStop => {
                let signal = self.stop_signal(plan);
                let _ = self.tree.ensure_server_stop(signal);
            }
            Action::StopRest => {
                let signal = self.stop_signal(plan);
                self.killer.stop_rest(&mut self.tree, signal);
            }
            Action::KillAll => {
                let progress = self.killer.kill_round(&mut self.tree);
                // SIGCHLD signals may have been merged, so a child may have ended without one.
                self.next_reap = NextReap::Now;
                return Some(Event::Swept { progress });
            }
            Action::NameWaiting => self.name_waiting(plan),
            Action::NameSurvivors => {
                self.tree.name_survivors();
                if let Some(report) = self.context.report {
                    self.tree.note_survivors(report.ledger);
                }
            }
        }
        None
    }
}

impl Monitor<'_> {
    fn wait_for_event(&mut self, deadline: Option<Duration>) -> Event {
        loop {
            if let Some(trigger) = self.found.take() {
                return Event::Trigger(trigger);
            }
            if self.next_reap == NextReap::Now {
                return self.reap();
            }
            let until = |at: Duration| at.saturating_sub(clock::now());
            let timeout = deadline.map(until);
            // Deadlines come first: many other events must not delay them.
            if timeout == Some(Duration::ZERO) {
                return self.overdue();
            }
            let retry = self
                .notifier
                .and_then(|notifier| notifier.retry(self.context.board.server()));
            let continues_at = self.killer.continues_at();
            if continues_at.is_some_and(|at| at <= clock::now()) {
                self.killer.continue_stop(&mut self.tree);
                continue;
            }
            let timeout = earlier(timeout, continues_at.map(until));
            let patience = match self.next_reap {
                NextReap::Now | NextReap::Soon => Some(Duration::ZERO),
                NextReap::AfterPause => earlier(timeout, Some(REAP_PAUSE)),
                NextReap::OnSignal => timeout,
            };
            let retry = retry.filter(|retry| patience.is_none_or(|patience| *retry < patience));
            let event = match self.watch.wait(retry.or(patience)) {
                Woken::TimedOut | Woken::Nothing if self.next_reap != NextReap::OnSignal => {
                    Some(self.reap())
                }
                Woken::TimedOut if retry.is_some() => None,
                Woken::Nothing => None,
                Woken::TimedOut => Some(self.overdue()),
                Woken::CgroupChanged => {
                    self.read_cgroup_events();
                    Some(self.reap())
                }
                Woken::Trigger(Trigger::RelayKilled) => self.news_of_relay().map(Event::Trigger),
                Woken::Trigger(trigger) => Some(Event::Trigger(trigger)),
                Woken::Signal(arrival) => self.on_signal(arrival),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// A deadline has come.
    fn overdue(&self) -> Event {
        let relay = self.context.relay.as_ref();
        Event::Deadline {
            unread: fd::unread(fd::STDIN) + relay.map_or(0, Handle::unread),
            hung_up: relay.is_some_and(Handle::has_ended) || !self.watch.stdin_is_back(),
        }
    }

    /// The relay has said something, or has ended.
    fn news_of_relay(&self) -> Option<Trigger> {
        self.context.relay.as_ref().and_then(Handle::news)
    }

    /// The exit status after the loop. Logs a line if processes had to be killed.
    pub fn finish(&mut self, plan: &Plan) -> u8 {
        if let Some(notifier) = self.notifier {
            notifier.finish(self.context.board.server());
        }
        self.report_killed(plan);
        if plan.state() == State::Survived {
            log::error!(
                "{} after SIGKILL some processes are left; see above",
                Seconds(self.context.config.policy.kill_timeout)
            );
            return status::SURVIVORS;
        }
        if plan.trigger() == Some(Trigger::CancelTimeout) {
            return status::CANCEL_TIMEOUT;
        }
        let Some(ended) = self.context.board.ended() else {
            log::error!("it is unknown how the server ended");
            return status::OWN_FAILURE;
        };
        let status = ended.code();
        self.context.voice.report(&Step::Done { status });
        self.context.config.success.map(status)
    }

    fn stop_server(&mut self, plan: &Plan) {
        let signal = self.stop_signal(plan);
        if !self.tree.stop_server(signal) {
            return;
        }
        if self.tree.has_sent_stop() {
            self.context.board.set_stop_sent();
        }
        // After the signal, so that the message does not delay the stop.
        if let Some(trigger) = self.unasked.take() {
            progress::stopped_unasked(trigger, signal);
        }
    }

    fn stop_signal(&self, plan: &Plan) -> Signal {
        match self.context.manner.parent_signal {
            Some(signal) if plan.trigger() == Some(Trigger::ParentExit) => signal,
            _ => self.context.config.signal,
        }
    }

    /// Lets the shim exit with `status`. Returns whether the monitor has to stay, to reap the processes that are left.
    /// The init of a PID namespace need not stay: when it exits, the kernel reaps them.
    pub fn release_shim(&self, status: u8) -> bool {
        let Role::Monitor { shim } = &self.role else {
            return false;
        };
        self.context.board.set_early_status(status);
        // Not SIGCHLD: the shim may be suspended, and the end of the monitor, which would resume it, does not come now.
        self.wake_shim();
        !matches!(shim, Link::Bell(_))
    }

    /// After giving up: reaps the survivors until no process is left.
    pub fn reap_to_the_end(&mut self) {
        while !matches!(self.reap(), Event::Reaped { empty: true, .. }) {
            let again = (self.next_reap == NextReap::Soon).then_some(Duration::ZERO);
            if let Woken::CgroupChanged = self.watch.wait(again) {
                self.read_cgroup_events();
            }
        }
    }

    /// Reading clears the notification. If it cannot be read, poll would return at once again and again, so the watch
    /// is removed. That happens when the group is gone: the shim removes it when it exits.
    fn read_cgroup_events(&mut self) {
        let cgroup = self.tree.cgroup();
        if cgroup.is_none_or(|cgroup| cgroup.is_populated().is_err()) {
            self.watch.forget_cgroup_events();
        }
    }

    /// Notes on the board whether this job has the terminal. A group that is gone does not show whose it was, so this is
    /// asked before the server is reaped.
    fn note_foreground(&self) {
        let server = self.tree.living_server();
        let Some(server) = server.filter(|_| self.context.place.job_control) else {
            return;
        };
        if let Ok(stat) = proc::stat(server.get()) {
            let front = stat.foreground;
            let is_ours = front == stat.group || proc::is_descendant(front) == Ok(true);
            self.context.board.set_in_foreground(is_ours);
        }
    }

    fn reap(&mut self) -> Event {
        self.note_foreground();
        let mut reaped = Reaped::default();
        let context = self.context;
        let left = reap::drain(&mut self.tree, &mut reaped, &mut |end| {
            report::end_of_child(context, end);
        });
        if let Some(relay) = &context.relay {
            relay.keep_awake();
        }
        // A process that was put into the group is of the tree, also if it is not a descendant. The group is read only
        // when no child is left: with a thousand servers at once, each look costs. If it cannot be read, it counts as
        // empty.
        let populated = left == Left::Empty && self.tree.has_members();
        let empty = left == Left::Empty && !populated;
        self.next_reap = match left {
            Left::More => NextReap::Soon,
            Left::Empty if populated && matches!(self.role, Role::Heir) => NextReap::AfterPause,
            Left::Empty | Left::Living => NextReap::OnSignal,
        };
        if let Some(ended) = reaped.server {
            self.context.board.set_ended(ended);
        }
        match reaped.server_job.filter(|_| self.context.place.job_control) {
            // During a stop treaper must not be suspended: no shell would resume it.
            Some(JobChange::Suspended(signal)) if self.context.board.trigger().is_none() => {
                self.suspend_with_server(signal);
            }
            Some(JobChange::Resumed) => {
                self.context.board.withdraw_suspension();
                self.alone.server_resumed();
                self.wake_shim();
            }
            Some(JobChange::Suspended(_)) | None => {}
        }
        self.killer.reaped += reaped.ended;
        if self.killer.killing_since.is_some() {
            self.killed += reaped.killed;
        }
        Event::Reaped {
            server_gone: reaped.server.is_some(),
            empty,
        }
    }

    fn shim_is_gone(&self) -> bool {
        matches!(&self.role, Role::Monitor { shim } if shim.is_gone())
    }

    /// Resumes the shim. A suspended shim could not report to the host how the server ended.
    fn wake_shim(&self) {
        self.signal_shim(Signal::CONT);
    }

    /// Makes the shim look at the board.
    fn call_shim(&self) {
        self.signal_shim(Signal::CHLD);
    }

    fn signal_shim(&self, signal: Signal) {
        if let Role::Monitor { shim } = &self.role {
            shim.signal(signal);
        }
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
