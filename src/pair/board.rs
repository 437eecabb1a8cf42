//! The *board*: a few words of memory that shim and monitor share. One writes a word, and the other
//! reads it, so nothing is lost when either is killed, as a message on its way would be.

use std::{array, sync::atomic::Ordering::SeqCst, time::Duration};

use crate::plan::machine::{Plan, State};
use crate::plan::record::{self, TIMES};
use crate::plan::{event::Trigger, policy::Policy};
use crate::sys::shared::{Flag, Word, Words, shared_words};
use crate::sys::{exec::Failure, pid::Pid, signal::Signal, wait::Ended};

shared_words! {
    /// In each word, zero means "not yet". The first three flags are never cleared.
    pub struct Board {
        /// The new process writes its pid (in the monitor's PID namespace) before its exec.
        pub server: Word,
        /// The first leader of the server's session writes its pid.
        pub leader: Word,
        /// The new process writes why it could not become the server, before it ends.
        pub failure: Word,
        ended: Word,
        plan: Word,
        times: Words<{ 2 * TIMES }>,
        /// The last order to the shim to suspend itself: in the lowest byte the signal, or 0 if the
        /// order was withdrawn, and above it the count of the orders, so no two are equal.
        pub suspension: Word,
        /// The new process writes its pid before its exec, or the shim `TAKEN_OVER`.
        pub finally: Word,
        finally_until: Word,
        finally_ended: Word,
        /// Set by the monitor when some of the tree could not be killed, and all else is done. So
        /// the shim has to exit, and the monitor may have to stay.
        pub gave_up: Flag,
        /// Set by the monitor when it has sent the stop signal to the server. The kernel may, too.
        pub stop_sent: Flag,
        /// Set by the monitor when it has offered that Ctrl-C kills what the stop waits for.
        pub named: Flag,
        /// Set by the shim at Ctrl-C after that offer, cleared by the monitor when it acts on it.
        pub kill_now: Flag,
        /// Set by the shim when the host is gone, cleared by the monitor when it acts on it. The
        /// monitor is not a child of the host, so it may have no other way to learn that.
        pub host_gone: Flag,
        /// Set and cleared by the monitor before it reaps, until the server is reaped: whether the
        /// foreground group of the terminal belongs to this job.
        pub in_foreground: Flag,
        /// Set by the shim before it looks once more why to suspend, cleared when it goes on.
        pub suspending: Flag,
        /// Set by the shim before it resumes a suspended monitor, cleared by the monitor when it
        /// takes the next SIGCONT, which is then not for the server.
        pub resumes_monitor: Flag,
    }
}

/// The command of `--finally` is the shim's to start, or was in a namespace that is gone.
const TAKEN_OVER: i32 = -1;
/// The bit of the word `plan` that says which half of `times` belongs to it.
const HALF: u64 = 1 << 63;

impl Board {
    /// Monitor: the plan, before its actions are done, so that the shim can go on with it. The half
    /// of `times` that is not in use is filled, and then belongs to the plan by one store. So a
    /// monitor that is killed meanwhile leaves the plan before.
    pub fn set_plan(&self, plan: &Plan) {
        let (head, times) = plan.encode();
        let half = !self.plan.get() & HALF;
        for (at, time) in times.into_iter().enumerate() {
            self.times.set(first_of(half) + at, time);
        }
        self.plan.set(head | half);
    }

    /// The last plan, or a new one if there is none.
    pub fn plan(&self, policy: Policy) -> Plan {
        let head = self.plan.get();
        let times = array::from_fn(|at| self.times.get(first_of(head) + at));
        Plan::decode(policy, head & !HALF, times).unwrap_or_else(|| Plan::new(policy))
    }

    /// Why the tree is being stopped, or is draining.
    pub fn trigger(&self) -> Option<Trigger> {
        record::trigger(self.plan.get())
    }

    /// Shim: the plan after the death of the monitor.
    pub fn resume(&self, policy: Policy, now: Duration) -> Plan {
        let plan = self.plan(policy);
        plan.inherit(self.ended().is_some(), self.named.get(), now)
    }

    /// Shim: the monitor was the init of a PID namespace and is ending. Returns until when the
    /// processes of the namespace have to end.
    pub fn set_monitor_ending(&self, policy: Policy, now: Duration) -> Duration {
        let plan = self.plan(policy).end_namespace(now);
        self.set_plan(&plan);
        match plan.state {
            State::Killing { survivors_at, .. } => survivors_at,
            _ => now + policy.kill_timeout,
        }
    }

    pub fn leader(&self) -> Option<Pid> {
        Pid::new(self.leader.get() as i32)
    }

    pub fn failure(&self) -> Option<Failure> {
        Failure::decode(self.failure.get())
    }

    pub fn server(&self) -> Option<Pid> {
        Pid::new(self.server.get() as i32)
    }

    pub fn set_ended(&self, ended: Ended) {
        self.ended.set(ended.encode().into());
    }

    pub fn ended(&self) -> Option<Ended> {
        Ended::decode(self.ended.get() as u32)
    }

    /// The command of `--finally` is about to be started, and has time until then.
    pub fn set_finally_until(&self, until: Duration) {
        self.finally_until.set(record::word(Some(until)));
    }

    pub fn finally_until(&self) -> Option<Duration> {
        record::time(self.finally_until.get())
    }

    /// The new process `pid` is the command of `--finally`, unless the process that has made it was
    /// killed, and the other one has taken that over. `claim`: what the word was before the fork.
    pub fn claim_finally(&self, claim: u64, pid: i32) -> bool {
        let word = self.finally.atomic();
        word.compare_exchange(claim, pid as u64, SeqCst, SeqCst) == Ok(claim)
    }

    /// The monitor was killed: whether the command of `--finally` runs, or has ended. If it has not
    /// begun, the shim is to start it. `namespace`: it was in a PID namespace, which is gone.
    pub fn take_over_finally(&self, namespace: bool) -> bool {
        let is_free = self.claim_finally(0, TAKEN_OVER);
        if is_free {
            self.finally_until.set(0);
        } else if namespace {
            self.finally.set(TAKEN_OVER as u64);
        }
        !is_free && !namespace
    }

    pub fn set_finally_ended(&self, ended: Ended) {
        self.finally_ended.set(ended.encode().into());
    }

    /// How the command of `--finally` has ended.
    pub fn finally_ended(&self) -> Option<Ended> {
        Ended::decode(self.finally_ended.get() as u32)
    }

    /// Job control has suspended the server by signal `number`, so the shim has to follow.
    pub fn order_suspension(&self, number: u8) {
        let last = self.suspension.get();
        self.suspension.set((last | 0xff) + 1 + u64::from(number));
    }

    /// The server was resumed.
    pub fn withdraw_suspension(&self) {
        self.suspension.set(self.suspension.get() & !0xff);
    }
}

/// Where the half of `times` begins that `head` names.
const fn first_of(head: u64) -> usize {
    if head & HALF == 0 { 0 } else { TIMES }
}

pub fn suspending_signal(order: u64) -> Option<Signal> {
    Signal::from_number((order & 0xff) as i32)
}
