//! What the monitor does when children may have changed.

use std::time::Duration;

use super::{Role, Supervisor};
use crate::job_control::Alone;
use crate::sys::{clock, pid, proc, signal::Signal, wait::Change};
use crate::{output::progress::Step, plan::event::Event, streams::watch::Woken, tree::reap::Left};

/// The pause between two looks at a cgroup, where no descriptor reports the end of its members.
const REAP_PAUSE: Duration = Duration::from_millis(10);

impl Supervisor<'_> {
    pub(super) fn reap(&mut self) -> Event {
        self.reaps_first = false;
        self.note_foreground();
        let context = self.context;
        let reaped = self.tree.reap(&mut |pid, ended, server| {
            if server {
                // At once: if this process is killed now, no other one learns it.
                context.board.set_ended(ended);
                // If its exec has failed, that is reported as an error after the loop.
                if context.board.failure().is_some() {
                    return;
                }
            }
            context.voice.report(&Step::Reaped { pid, ended, server });
            if server {
                let signal = context.config.signal;
                context.voice.report(&Step::StoppingRest { signal });
            }
        });
        let (left, is_heir) = (reaped.left, matches!(self.role, Role::Heir));
        // A process that was put into the group is of the tree, also if it is not a descendant. The
        // group is read only when no child is left: with a thousand servers, each look costs.
        let group = self.tree.cgroup().filter(|_| left == Left::Empty);
        let populated = group.is_some_and(|group| {
            group.expel(&self.tree.treaper);
            group.is_populated() == Ok(true)
        });
        let empty = left == Left::Empty && !populated;
        self.next_reap = match left {
            Left::More => Some(Duration::ZERO),
            Left::Empty if populated && is_heir => Some(clock::now() + REAP_PAUSE),
            // The kernel does not report that a process begins to lead a session or gets a name, so
            // treaper looks again after twice the time.
            Left::Living if self.tree.spare.is_some() && self.tree.living_server().is_none() => {
                let now = clock::now();
                let since = *self.server_gone_at.get_or_insert(now);
                Some(now + REAP_PAUSE.max(now.saturating_sub(since)))
            }
            Left::Empty | Left::Living => None,
            Left::Unknown(errno) => self.give_up("wait for children", errno),
        };
        let stops = context.board.trigger().is_some();
        match reaped.server_job.filter(|_| context.place.job_control) {
            Some(Change::Suspended(number)) => match Signal::from_number(number.into()) {
                Some(signal) if !stops && self.tree.living_server().is_some() => {
                    self.suspend_with_server(signal);
                }
                // A stop undoes Ctrl-Z, since no shell would, and a SIGSTOP of the server itself.
                Some(Signal::TSTP | Signal::STOP) if stops => {
                    self.tree.signal_tree(Signal::CONT);
                }
                _ => {}
            },
            Some(Change::Resumed) => {
                context.board.withdraw_suspension();
                self.alone = Alone::default();
                self.resume_suspended_shim();
            }
            _ => {}
        }
        let server_gone = reaped.server.is_some();
        Event::Reaped { server_gone, empty }
    }

    /// After giving up: reaps until no process of the tree is left.
    pub fn reap_to_the_end(&mut self) {
        while !matches!(self.reap(), Event::Reaped { empty: true, .. }) {
            if let Some(Woken::CgroupChanged) = self.watch.wait(self.next_reap) {
                self.read_cgroup_events();
            }
        }
    }

    /// Reading clears the notification. If that fails, the shim has exited and removed the group:
    /// then the watch ends, since poll would return at once again and again.
    pub(super) fn read_cgroup_events(&mut self) {
        let cgroup = self.tree.cgroup();
        if cgroup.is_none_or(|cgroup| cgroup.is_populated().is_err()) {
            self.watch.forget_cgroup_events();
        }
    }

    /// Whether this job has the terminal. A group that is gone does not show whose it was, so this
    /// is asked before the server is reaped.
    fn note_foreground(&mut self) {
        let server = self.tree.living_server();
        let server = server.filter(|_| self.context.place.job_control);
        let Some(server) = server else { return };
        let in_foreground = self.context.board.in_foreground;
        match proc::stat(server.get()) {
            Ok(stat) if stat.foreground == stat.group => in_foreground.set(true),
            Ok(stat) => match proc::child_above(stat.foreground) {
                Ok(child) => in_foreground.set(child.is_some()),
                // Its leader has ended. Another member shows whose it is; else it stays as it was.
                Err(_) => self.tree.each(&mut |member| {
                    if pid::group_of(member.pid.get()) == Ok(stat.foreground) {
                        in_foreground.set(true);
                    }
                }),
            },
            Err(proc::FOREIGN) => in_foreground.set(true),
            Err(_) => {}
        }
    }
}
