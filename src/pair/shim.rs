//! The life of the shim: it forwards signals, guards the monitor, and is its heir.

use std::os::fd::{AsFd, OwnedFd};
use std::{mem, time::Duration};

use super::context::{Context, Prepared};
use super::supervisor::{Role, Supervisor};
use super::{board, bound::Bound, link};
use crate::output::{error::Error, progress, status, stderr};
use crate::plan::event::{Event, Trigger};
use crate::plan::machine::State;
use crate::streams::{forward::Route, watch::Watch};
use crate::sys::arrival::{self, Arrival, Origin};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{self, Signal};
use crate::sys::wait::{self, Change, DYING, Ended, Wait};
use crate::sys::{Errno, apart, clock, fd, parent::Parent, pidfd, prctl, proc};
use crate::tree::{Server, StopSent, Tree};
use crate::{contain::Containment, job_control, settings::config::ForwardTo};

/// `bell`: if `monitor` is in a PID namespace of its own. Returns the exit status of treaper.
pub fn run(
    context: &Context<'_>,
    prepared: &mut Prepared,
    monitor: Pid,
    bell: Option<OwnedFd>,
) -> Result<u8, Error> {
    fd::raise_limit(fd::Resource::RLIMIT_CPU);
    let place = &context.place;
    let mut shim = Shim {
        context,
        monitor,
        parent: prepared.hosts.parent,
        bell,
        ends_by: None,
        bound: Bound::default(),
        server: None,
        real_time_by_monitor: false,
        obeyed: 0,
        obeys: false,
        strangers: place.strangers.clone(),
    };
    super::release(&[fd::STDIN, fd::STDOUT], place, &mut shim.strangers);
    // Terminals open the next pane where the leader of the foreground job is.
    if !place.job_control {
        fd::leave_directory();
    }
    let level = mem::take(&mut prepared.containment);
    let status = match shim.guard() {
        Ok(Ended::Exited(status)) => {
            // Children from before treaper may keep running.
            if place.strangers.is_empty() {
                apart::wait_for(&shim.strangers);
            }
            status
        }
        Ok(Ended::Killed(_)) => take_over(shim, level, None)?,
        Err(why) => {
            let _ = signal::kill(monitor, Signal::KILL);
            take_over(shim, level, Some(why))?
        }
    };
    super::end_treaper(context, status);
    Ok(status)
}

/// The monitor was killed, so the shim becomes the *heir*, and stops the tree. `why`: what the shim
/// cannot do, if it cannot wait any more.
fn take_over(shim: Shim<'_>, level: Containment, why: Option<(&str, Errno)>) -> Result<u8, Error> {
    let context = shim.context;
    let (board, policy) = (context.board, context.policy());
    let has_not_acted = shim.ends_by.is_some() && board.trigger().is_none_or(Trigger::drains);
    // A reason on which the monitor has not acted counts more than its end.
    let asked = shim.bound.asked.filter(|_| has_not_acted);
    let killed = Event::Trigger(asked.map_or(Trigger::MonitorKilled, |(trigger, _)| trigger));
    let namespace = level.is_namespace();
    // A monitor that cannot end: it waits in the kernel, or a process in its PID namespace does.
    let killed_monitor = shim.ends_by.map(|_| shim.monitor);
    let ending = killed_monitor.filter(|pid| wait::is_child(*pid));
    if namespace {
        // The monitor was the init of a namespace. With it the kernel kills all processes in it.
        let trigger = board.plan(policy).step(killed, clock::now()).0.trigger;
        let (is_cause, ended) = (trigger == Some(Trigger::MonitorKilled), board.ended());
        if is_cause && why.is_none() && board.server().is_some() {
            let whom = ended.map_or("the server", |_| "the rest of the tree");
            progress::stopped_unasked(Trigger::MonitorKilled, Signal::KILL, whom);
        }
        if ended.is_none() && ending.is_none() {
            board.set_ended(Ended::Killed(Signal::KILL.number()));
        }
    }
    drop((shim.server, shim.bell));
    let is_below = |pid: &Pid| ending.is_some_and(|monitor| is_child_of(monitor, *pid));
    // Its pid means nothing here in a namespace, and may be recycled if it is no child any more.
    let server = board.server().filter(|_| !namespace).map(|pid| Server {
        pid,
        pidfd: None,
        standing: context.place.standing,
        leader: board.leader().map(|leader| (leader, None)),
        reaped: board.ended().is_some()
            || !wait::is_child(pid) && !is_below(&pid)
            || shim.strangers.contains(&pid.get()),
        suspended: None,
        stop_sent: match board.stop_sent.get() {
            true => StopSent::ByTreaper,
            false if is_below(&pid) => StopSent::No,
            false => StopSent::PerhapsByKernel,
        },
    });
    let containment = if namespace { Containment::Group } else { level };
    let mut tree = Tree::new(server, shim.strangers, containment);
    tree.ending_init = ending;
    let watch = Watch::default();
    let mut supervisor = Supervisor::new(context, Role::Heir, shim.parent, watch, tree);
    if let Some((what, errno)) = why {
        supervisor.give_up(what, errno);
    }
    let has_begun = context.config.finally.is_some() && board.take_over_finally(namespace);
    let last = board.plan(policy);
    stderr::defer();
    let is_lost = board.stop_sent.get() && !last.is_over() && fd::may_wait(fd::STDERR);
    // The monitor was to write this once the stop is over: a file system might keep it waiting.
    if let Some(trigger) = last.trigger.filter(|_| is_lost) {
        progress::stopped_unasked(trigger, supervisor.stop_signal(&last), "the server");
    }
    // Once the tree is empty, or the command of `--finally` runs, nothing else is left to do.
    let (plan, first) = if last.state == State::Done || has_begun && last.is_over() {
        (last, None)
    } else {
        (board.resume(policy, clock::now()), Some(killed))
    };
    context.record_loss(Trigger::MonitorKilled);
    supervisor.run(plan, first).map(|(_, status)| status)
}

/// Without memory for the answer, it is one.
fn is_child_of(parent: Pid, pid: Pid) -> bool {
    match proc::stat(pid.get()) {
        Ok(stat) => stat.parent == parent.get(),
        Err(errno) => errno == Errno::NOMEM,
    }
}

struct Shim<'a> {
    context: &'a Context<'a>,
    monitor: Pid,
    /// The host, if its end is a trigger.
    parent: Option<Parent>,
    /// If the monitor is in a PID namespace of its own. Its pids mean nothing here then.
    bell: Option<OwnedFd>,
    /// Until when the monitor has to end: it was sent SIGKILL, or was an init and closed its files.
    ends_by: Option<Duration>,
    bound: Bound,
    /// A pidfd of the server, opened for the first signal.
    server: Option<OwnedFd>,
    /// The monitor had to send a real-time signal, which later ones must not overtake.
    real_time_by_monitor: bool,
    /// The last order to suspend itself that the shim has obeyed.
    obeyed: u64,
    /// No process but the monitor has resumed it since.
    obeys: bool,
    /// Not of the tree: children from before treaper's exec, their orphans, and what closes files.
    strangers: Vec<i32>,
}

impl Shim<'_> {
    /// Waits until the monitor has ended, or lets the shim exit before it. Returns how it ended; an
    /// error says which wait has failed, and why.
    /// The kernel reports the monitor's end by SIGCONT. A signal that suspends removes a pending
    /// SIGCONT, and then arrives itself. So the shim looks at the monitor after every signal.
    fn guard(&mut self) -> Result<Ended, (&'static str, Errno)> {
        let (mut late_at, mut keeps_code_at) = (None, prctl::keeps_code_at());
        loop {
            if keeps_code_at.take_if(|at| *at <= clock::now()).is_some() {
                prctl::keep_code();
            }
            let wakes_at = [self.ends_by.or(late_at), keeps_code_at];
            let wakes_at = wakes_at.into_iter().flatten().min();
            let timeout = wakes_at.map(|at| at.saturating_sub(clock::now()));
            let arrival = arrival::wait_any(timeout);
            let arrival = arrival.map_err(|errno| ("wait for signals", errno))?;
            if let Some(arrival) = arrival.filter(|arrival| !link::is_from_monitor(arrival)) {
                self.handle(&arrival);
            }
            if self.parent.as_mut().is_some_and(Parent::ends) {
                self.context.board.host_gone.set(true);
                self.bound.ask(Trigger::ParentExit, clock::now());
                self.signal_monitor(Signal::CHLD, None);
            }
            let ended = self.look_at_monitor();
            if let Some(ended) = ended.map_err(|errno| ("wait for children", errno))? {
                self.empty_bell();
                return Ok(ended);
            }
            self.suspend(arrival.as_ref());
            late_at = self.kill_held_monitor();
        }
    }

    /// A monitor that does not do what it has to do gets SIGKILL. Returns when it is late.
    fn kill_held_monitor(&mut self) -> Option<Duration> {
        let board = &self.context.board;
        if self.ends_by.is_some() || self.bound.asked.is_none() && board.trigger().is_none() {
            return None;
        }
        let (plan, now) = (board.plan(self.context.policy()), clock::now());
        let finally_until = board.finally_until().unwrap_or_default();
        let late_at = self.bound.late_at(&plan, finally_until, now);
        if late_at.is_some_and(|at| at <= now) && self.bound.is_held(self.monitor, now) {
            // The monitor may have reaped it, and from now on it cannot do so.
            let kills = match plan.state {
                State::Terminating(steps) => steps.kill <= now,
                other => matches!(other, State::Killing { .. }),
            };
            let is_its = |pid: &Pid| kills && is_child_of(self.monitor, *pid);
            let server = self.server_pid().filter(is_its);
            let _ = signal::kill(self.monitor, Signal::KILL);
            // In a full group, this frees memory for both of them.
            if let Some(server) = server.filter(|_| board.ended().is_none()) {
                let _ = signal::kill(server, Signal::KILL);
            }
            self.ends_by = Some(now + DYING);
            // The file system of stderr may be what holds it.
            stderr::defer();
            log::warn!("the monitor process of treaper was kept from running, so it was killed");
        }
        late_at
    }

    /// The server's pid; `None` if it is in another PID namespace.
    fn server_pid(&self) -> Option<Pid> {
        self.context.board.server().filter(|_| self.bell.is_none())
    }

    fn look_at_monitor(&mut self) -> Result<Option<Ended>, Errno> {
        let board = &self.context.board;
        if self.empty_bell() && self.ends_by.is_none() {
            let policy = self.context.policy();
            self.ends_by = Some(board.set_monitor_ending(policy, clock::now()));
        }
        if board.gave_up.get() {
            return Ok(Some(Ended::Exited(status::SURVIVORS)));
        }
        while let Some((pid, change)) = Wait::any().ended().suspended().resumed().take()? {
            let is_monitor = pid == self.monitor.get();
            match change {
                Change::Ended(ended) if is_monitor => return Ok(Some(ended)),
                // A suspended monitor sees nothing, so it is resumed at once.
                Change::Suspended(_) if is_monitor => {
                    board.resumes_monitor.set(true);
                    self.signal_monitor(Signal::CONT, None);
                }
                // Its pid is free now, and a process of the tree may get it.
                Change::Ended(ended) => {
                    // The monitor was killed, but its tracer keeps that from its parent. If the end
                    // of the server is known, this is another process with its number.
                    let server = self.server_pid().filter(|_| board.ended().is_none());
                    if server.is_some_and(|server| server.get() == pid) {
                        board.set_ended(ended);
                    }
                    self.strangers.retain(|known| *known != pid);
                }
                _ => {}
            }
        }
        self.note_strangers();
        let late = self.ends_by.is_some_and(|at| at <= clock::now());
        Ok(late.then_some(Ended::Killed(Signal::KILL.number())))
    }

    /// Passes to the host what the server has sent it, but no reason to stop, and nothing that only
    /// root in the namespace can have written. Returns whether the monitor begins to end.
    fn empty_bell(&self) -> bool {
        let may_pass = |signal: &Signal| {
            let arrival = Arrival {
                signal: *signal,
                origin: Origin::Outside,
                value: None,
            };
            let stops = matches!(self.context.rules().route(&arrival), Route::Trigger(_));
            !stops && ![Signal::KILL, Signal::STOP].contains(signal)
        };
        let pass_on = &mut |number: u8| {
            let signal = Signal::from_number(number.into()).filter(may_pass);
            if let Some((signal, host)) = signal.zip(self.context.host.as_ref()) {
                let _ = pidfd::send(*host, signal);
            }
        };
        let bell = self.bell.as_ref();
        bell.is_some_and(|bell| fd::empty(bell.as_fd(), pass_on))
    }

    /// Remembers new children. Until the monitor begins to end, it adopts all orphans of the tree.
    /// So an orphan that the shim adopts meanwhile is not of the tree.
    fn note_strangers(&mut self) {
        if self.context.place.strangers.is_empty() {
            return;
        }
        let (strangers, monitor) = (&mut self.strangers, self.monitor);
        let known = strangers.len();
        let _ = proc::children(pid::own(), &mut |child| {
            let is_new = child != monitor.get() && !strangers.contains(&child);
            let is_child = || Pid::new(child).is_some_and(wait::is_child);
            if is_new && is_child() && strangers.try_reserve(1).is_ok() {
                strangers.push(child);
            }
        });
        // Else orphans of the tree may be among them. A tracer can hide the end from `wait`.
        let lives = |stat: proc::Stat| stat.state != b'Z' && !stat.exiting;
        if !proc::stat(monitor.get()).is_ok_and(lives) || Wait::child(monitor).ended().has_come() {
            strangers.truncate(known);
        }
    }

    /// Suspends the shim if the monitor has ordered it, or if `arrival` asks for it.
    fn suspend(&mut self, arrival: Option<&Arrival>) {
        let (board, monitor) = (&self.context.board, self.monitor);
        let order = board.suspension.get();
        // The bell may ring for an order that the shim has obeyed already, and so resume it.
        if order != self.obeyed || self.obeys {
            (self.obeyed, self.obeys) = (order, true);
            // A slow monitor may not have seen a resumed server, or a stop or its end has begun. A
            // bell that is not empty would not resume the shim.
            let still = || {
                !self.empty_bell()
                    && board.suspension.get() == order
                    && board.trigger().is_none()
                    && self.server_may_be_suspended()
                    && !Wait::child(monitor).ended().has_come()
            };
            if let Some(signal) = board::suspending_signal(order) {
                board.suspending.set(true);
                job_control::suspend_as_server(signal, self.server_pid(), &still);
                board.suspending.set(false);
            }
        }
        let Some(arrival) = arrival else { return };
        let rules = self.context.rules();
        let is_key = rules.is_for_job(arrival) && !signal::is_ignored(arrival.signal);
        let lives = || !Wait::child(monitor).ended().has_come();
        if rules.suspends_treaper(arrival) {
            job_control::suspend_self(Signal::STOP, &lives);
        } else if is_key && board.ended().is_some() {
            // No other process tells the shell that Ctrl-Z has suspended the rest of the tree.
            job_control::suspend_self(arrival.signal, &|| board.trigger().is_none() && lives());
        }
    }

    /// Whether the server is, or may be, suspended: with a bell it may be any child of the monitor.
    fn server_may_be_suspended(&self) -> bool {
        if let Some(server) = self.server_pid() {
            return proc::may_be_suspended(server.get());
        }
        let mut found = false;
        let read = proc::children(self.monitor.get(), &mut |child| {
            found = found || proc::may_be_suspended(child);
        });
        found || read.is_err()
    }

    /// A signal from inside the tree never goes back there, except under the name of another init.
    /// What the server sends to its parent reaches the monitor.
    fn handle(&mut self, arrival: &Arrival) {
        let (context, board) = (self.context, &self.context.board);
        self.obeys &= arrival.signal != Signal::CONT;
        if let (Signal::CONT, Some(front)) = (arrival.signal, &context.front) {
            front.resume();
        }
        let by_treaper = [pid::own(), self.monitor.get()].map(Origin::Process);
        let resumed = by_treaper.contains(&arrival.origin) && arrival.signal == Signal::CONT;
        let announced = |parent: Parent| parent.has_announced_its_end(arrival);
        if resumed || self.parent.is_some_and(announced) {
            return;
        }
        let server = self.server_pid().map(|pid| Origin::Process(pid.get()));
        let from_server = Some(arrival.origin) == server && board.ended().is_none();
        let in_job = context.place.job_control;
        let ours = |child| child == self.monitor.get();
        let from_tree = from_server || in_job && job_control::is_from_within(arrival, &ours);
        if from_tree && !context.manner.is_other_init {
            return context.report_forwarding(arrival.signal, None);
        }
        let rules = context.rules();
        if rules.is_interrupt_key(arrival) && board.named.get() {
            board.kill_now.set(true);
            return self.signal_monitor(Signal::CHLD, None);
        }
        match rules.route(arrival) {
            Route::Forward(to) if rules.is_resumption(arrival) => self.resume_server(to, arrival),
            Route::Forward(to) => self.forward(to, arrival),
            Route::Trigger(trigger) => {
                self.bound.ask(trigger, clock::now());
                self.signal_monitor(arrival.signal, arrival.value);
            }
            Route::Drop => context.report_forwarding(arrival.signal, None),
            Route::Delivered | Route::Child => {}
        }
    }

    /// Forwards a SIGCONT that the server may have as well.
    #[cold]
    fn resume_server(&mut self, to: Signal, arrival: &Arrival) {
        // The monitor of a PID namespace may forward it late, so it gets only what is needed.
        if self.bell.is_some() && !self.server_may_be_suspended() {
            return;
        }
        // Its bell rings as SIGCONT, which removes the SIGTSTP of Ctrl-Z. The board has that order.
        let (board, obeyed, rings) = (&self.context.board, self.obeyed, self.bell.is_some());
        let is_new = |order: &u64| rings && *order != obeyed;
        let ordered = || board::suspending_signal(Some(board.suspension.get()).filter(is_new)?);
        let overtaken = || signal::waiting_job_stop().or_else(ordered);
        let forward = &mut |signal, to| self.forward(to, &Arrival { signal, ..*arrival });
        job_control::forward_resumption(to, &overtaken, forward);
    }

    fn forward(&mut self, signal: Signal, arrival: &Arrival) {
        let to_server = self.context.config.forward_to == ForwardTo::Server;
        if to_server && self.signal_server(signal, arrival.value) {
            self.context.report_forwarding(arrival.signal, Some(signal));
        } else {
            self.signal_monitor(arrival.signal, arrival.value);
        }
    }

    /// Sends it without the monitor, which wakes one less. Returns false if the monitor has to.
    fn signal_server(&mut self, signal: Signal, value: Option<u64>) -> bool {
        if self.real_time_by_monitor && signal.is_real_time() {
            return false;
        }
        self.server = self.server.take().or_else(|| self.open_server());
        let sent = self.server.as_ref().is_some_and(|server| {
            let sent = pidfd::send_value(server.as_fd(), signal, value);
            // ESRCH: the server has ended and was reaped, so no process can get the signal.
            matches!(sent, Ok(()) | Err(Errno::SRCH))
        });
        self.real_time_by_monitor |= signal.is_real_time() && !sent;
        sent
    }

    /// A pidfd of the server, if the process with its pid is proven to be a child of the monitor.
    fn open_server(&self) -> Option<OwnedFd> {
        let pid = self.server_pid()?;
        let server = pidfd::open(pid.get()).ok()?;
        let by_stat = |_| proc::stat(pid.get()).map(|stat| stat.parent);
        let parent = pidfd::parent(server.as_fd()).or_else(by_stat).ok()?;
        let is_unreaped = pidfd::is_unreaped(server.as_fd()) == Ok(true);
        // When the server has ended, another child of the monitor can have its number.
        let lives = self.context.board.ended().is_none();
        (lives && is_unreaped && parent == self.monitor.get()).then_some(server)
    }

    /// Signals the monitor, which is an unreaped child, so its pid is its own. A call that fails is
    /// tried once more, then as sigqueue: a reason to stop must not be lost.
    fn signal_monitor(&self, signal: Signal, value: Option<u64>) {
        let send = |value| signal::send(self.monitor, signal, value);
        if let Err(errno) = send(value).or_else(|_| send(value.or(Some(0)))) {
            log::warn!("cannot send {signal} to the monitor: {errno}");
        }
    }
}
