//! What the monitor does with an arriving signal.

use std::time::Duration;

use super::{Link, Role, Supervisor};
use crate::plan::event::{Event, Trigger};
use crate::sys::arrival::{self, Arrival, Origin};
use crate::sys::pid;
use crate::sys::signal::{self, Signal};
use crate::sys::{Errno, parent::Parent, pidfd, proc};
use crate::{
    job_control, pair::board, pair::link, settings::config::ForwardTo, streams::forward::Route,
};

impl Supervisor<'_> {
    pub(super) fn on_signal(&mut self, arrival: Arrival) -> Option<Event> {
        if self.is_kill_key(&arrival) {
            self.reaps_first = true;
            return Some(Event::KillNow);
        }
        let gone = self.check_parent();
        self.reaps_first |= gone.is_some();
        let is_cont = arrival.signal == Signal::CONT;
        if is_cont {
            self.resume_shim(&arrival);
        }
        if self.never_returns(&arrival) {
            self.pass_to_host(&arrival);
            return gone.map(Event::Trigger);
        }
        let rules = self.context.rules();
        match rules.route(&arrival) {
            Route::Child if gone.is_some() => {}
            Route::Forward(_) if self.has_announced_an_end(&arrival) => {}
            // Ctrl-Z may have suspended the server meanwhile, and this would undo it.
            Route::Forward(_) if is_cont && self.context.board.resumes_monitor.take() => {}
            Route::Trigger(trigger) => return Some(Event::Trigger(gone.unwrap_or(trigger))),
            Route::Child => return Some(self.reap()),
            Route::Forward(_) if self.is_also_for_shim(&arrival) => {}
            Route::Forward(to) if rules.is_resumption(&arrival) => {
                let forward = &mut |signal, to| self.forward(to, &Arrival { signal, ..arrival });
                job_control::forward_resumption(to, &signal::waiting_job_stop, forward);
            }
            Route::Forward(to) => self.forward(to, &arrival),
            Route::Delivered => {}
            Route::Drop => self.context.report_forwarding(arrival.signal, None),
        }
        // The request to suspend was for the shim, not for the monitor.
        if matches!(self.role, Role::Alone) && self.context.board.trigger().is_none() {
            if rules.suspends_treaper(&arrival) {
                job_control::suspend_self(Signal::STOP, &|| true);
            }
            let is_key = rules.is_for_job(&arrival) && arrival.signal.suspends_job();
            let is_key = is_key && !signal::is_ignored(arrival.signal);
            match self.tree.living_server() {
                Some(server) if is_key => self.alone.terminal_suspends(Some(server)),
                None if is_key => job_control::suspend_self(arrival.signal, &|| true),
                _ => {}
            }
        }
        gone.map(Event::Trigger)
    }

    /// Whether it is the Ctrl-C that was offered. To a monitor, the shim reports it.
    fn is_kill_key(&self, arrival: &Arrival) -> bool {
        let pressed = self.context.rules().is_interrupt_key(arrival);
        let forwarded = arrival.signal == Signal::CHLD && self.context.board.kill_now.take();
        forwarded || pressed && self.context.board.named.get()
    }

    /// Whether it must not go back into the tree: it comes from the server, or from a process there
    /// that has signalled the whole job. The host knows the only process as well, so others may
    /// mean the server by it. Other inits send back all of it.
    fn never_returns(&self, arrival: &Arrival) -> bool {
        let Origin::Process(sender) = arrival.origin else {
            return false;
        };
        let is_server = self.is_server(sender);
        let is_of_tree = match &self.role {
            // What it has sent to itself is a signal that it has put back.
            Role::Monitor(_) if ![pid::parent(), pid::own()].contains(&sender) => {
                matches!(proc::child_above(sender), Ok(Some(_)))
            }
            Role::Alone if self.context.place.job_control => {
                let ours = |child| !self.tree.strangers.contains(&child);
                job_control::is_from_within(arrival, &ours)
            }
            _ => false,
        };
        let is_from_tree = (is_server || is_of_tree) && arrival.signal != Signal::CHLD;
        is_from_tree && !self.context.manner.is_other_init
    }

    /// Whether it is the server. The numbers of a PID namespace mean nothing to an heir.
    fn is_server(&self, pid: i32) -> bool {
        let server = self.tree.server.as_ref();
        server.is_some_and(|server| server.pid.get() == pid)
    }

    /// Whether the sender can mean the host. An orphan gets the number of its new parent; and in a
    /// PID namespace, 1 is the number of an init, which other processes than the server may mean.
    fn means_host(&self, arrival: &Arrival) -> bool {
        let may_be_init = matches!(self.role, Role::Monitor(Link::Bell(_)));
        let is_orphan = |pid| proc::child_above(pid) == Ok(Some(pid));
        let may_mean = |pid| self.is_server(pid) || !may_be_init && !is_orphan(pid);
        matches!(arrival.origin, Origin::Process(sender) if may_mean(sender))
    }

    /// What the server sends to its parent goes to the host, as it would without treaper (an X
    /// server says by SIGUSR1 that it is ready). Not if it would be a trigger, and not at a
    /// terminal if this process is in the job: then the server may have signalled its own group.
    fn pass_to_host(&self, arrival: &Arrival) {
        let is_alone = matches!(self.role, Role::Alone) && self.context.place.job_control;
        let is_trigger = matches!(self.context.rules().route(arrival), Route::Trigger(_));
        let host = self.context.host.as_ref();
        let host = host.filter(|_| !is_alone && !is_trigger && self.means_host(arrival));
        let order = self.context.board.suspension.get();
        let sent = host.map(|host| match &self.role {
            // The bell would resume a job that Ctrl-Z has suspended.
            Role::Monitor(Link::Bell(_)) if board::suspending_signal(order).is_some() => {
                Err(Errno::AGAIN)
            }
            Role::Monitor(Link::Bell(bell)) => link::ring(bell, arrival.signal.number()),
            _ => pidfd::send_value(*host, arrival.signal, arrival.value),
        });
        let to = sent.and_then(Result::ok).map(|()| arrival.signal);
        self.context.report_forwarding(arrival.signal, to);
    }

    /// Passes on what the server has sent to its parent right before its end: of all signals that
    /// wait, the kernel reports those with low numbers first, and one of these is SIGCHLD.
    pub(super) fn pass_on_the_rest(&self) {
        let next = |_| arrival::wait_any(Some(Duration::ZERO)).ok().flatten();
        // Bounded, since a process outside can send without a pause.
        for arrival in (0..1000).map_while(next) {
            if self.never_returns(&arrival) {
                self.pass_to_host(&arrival);
            }
        }
    }

    /// If another process than the shim has resumed the monitor, the monitor resumes the shim:
    /// while both are suspended, neither can resume the other.
    fn resume_shim(&self, arrival: &Arrival) {
        if let (Role::Alone, Some(front)) = (&self.role, &self.context.front) {
            front.resume();
        }
        if arrival.origin != Origin::Process(pid::parent()) {
            self.signal_shim(Signal::CONT);
        }
    }

    /// Whether the service manager signals all processes of the unit (`systemctl kill`): then the
    /// shim forwards it. From a PID namespace of its own, the monitor cannot see the sender.
    fn is_also_for_shim(&self, arrival: &Arrival) -> bool {
        let manager = self.context.place.manager.map(Origin::Process);
        self.role.shim().is_some() && manager == Some(arrival.origin)
    }

    /// Whether it is only the parent-death signal, a SIGCONT, of the host, the relay or the shim.
    fn has_announced_an_end(&self, arrival: &Arrival) -> bool {
        let of_shim = arrival.signal == Signal::CONT && self.shim_is_gone();
        let of_host = |parent: Parent| parent.has_announced_its_end(arrival);
        let front = self.context.front.as_ref().and_then(|front| front.pid);
        let relay = front.map(|pid| Parent::new(pid.get()));
        of_shim || self.parent.is_some_and(of_host) || relay.is_some_and(of_host)
    }

    fn check_parent(&mut self) -> Option<Trigger> {
        let host_ends = self.parent.as_mut().is_some_and(Parent::ends);
        match &self.role {
            Role::Alone if host_ends => Some(Trigger::ParentExit),
            Role::Monitor(Link::Parent(pid, _)) if pid::parent() != *pid => {
                self.role = Role::Monitor(Link::Gone);
                Some(Trigger::ShimKilled)
            }
            Role::Monitor(_) if self.context.board.host_gone.take() => Some(Trigger::ParentExit),
            _ => None,
        }
    }

    fn forward(&mut self, signal: Signal, arrival: &Arrival) {
        self.context.report_forwarding(arrival.signal, Some(signal));
        match self.context.config.forward_to {
            ForwardTo::Server => self.tree.signal_server(signal, arrival.value),
            ForwardTo::Group => self.tree.signal_group(signal),
            ForwardTo::Tree => self.tree.signal_tree(signal),
        }
    }

    /// Suspends the process that the shell knows. `signal`: it has suspended the server.
    pub(super) fn suspend_with_server(&mut self, signal: Signal) {
        let board = &self.context.board;
        match self.role {
            Role::Monitor(_) => {
                board.order_suspension(signal.number());
                self.signal_shim(Signal::CHLD);
            }
            Role::Alone => self.alone.server_suspended(signal, board.server()),
            // The heir always stops the tree.
            Role::Heir => {}
        }
    }
}
