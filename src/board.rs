//! What shim and monitor know of each other: a few words of shared memory.
//!
//! Each is written by one side and read by the other, at once and without a message that could be
//! lost when either is killed. Deadlines are written before the signals that they bound.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::event::Trigger;
use crate::plan::{KillMode, NAME_AFTER, NEVER, Plan, ROUND_MIN, Settings, State};
use crate::status::Ended;
use crate::sys::exec::{Failure, Text};
use crate::sys::pid::Pid;
use crate::sys::signal::Signal;
use crate::sys::{Errno, shared};

/// The words; zero means "not yet" in each.
#[derive(Clone, Copy)]
enum Word {
    Server,
    Ended,
    Trigger,
    ServerTold,
    KillAt,
    Named,
    KillNow,
    TerminalGone,
    GiveUpAt,
    HostGone,
    Suspension,
    LeaveWith,
    Failure,
}

/// The shared words.
#[derive(Clone, Copy, Debug)]
pub struct Board(&'static [AtomicU64; WORDS + Text::WORDS]);

const WORDS: usize = Word::Failure as usize + 1;

impl Board {
    /// A board that a fork shares.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn shared() -> Result<Self, Errno> {
        shared::words().map(Self)
    }

    fn get(self, word: Word) -> u64 {
        self.0[word as usize].load(SeqCst)
    }

    fn set(self, word: Word, value: u64) {
        self.0[word as usize].store(value, SeqCst);
    }

    fn take(self, word: Word) -> u64 {
        self.0[word as usize].swap(0, SeqCst)
    }

    /// Where the server itself writes its pid (in the monitor's PID namespace) before it is executed.
    #[must_use]
    pub fn server_word(self) -> &'static AtomicU64 {
        &self.0[Word::Server as usize]
    }

    /// Where the process that was to be the server writes why it could not.
    #[must_use]
    pub fn failure_word(self) -> &'static AtomicU64 {
        &self.0[Word::Failure as usize]
    }

    /// Why the process that was to be the server could not become it, if it could not. Known before its end is.
    #[must_use]
    pub fn failure(self) -> Option<Failure> {
        Failure::decode(self.get(Word::Failure))
    }

    /// Where that process leaves the name of the interpreter that is missing, if this is why.
    #[must_use]
    pub fn interpreter(self) -> Text {
        Text(&self.0[WORDS..])
    }

    /// The server's pid, from its start on.
    #[must_use]
    pub fn server(self) -> Option<Pid> {
        Pid::new(self.get(Word::Server) as i32)
    }

    /// Monitor: how the server ended.
    pub fn set_ended(self, ended: Ended) {
        self.set(Word::Ended, ended.encode().into());
    }

    /// How the server ended, if it has.
    #[must_use]
    pub fn ended(self) -> Option<Ended> {
        Ended::decode(self.get(Word::Ended) as u32)
    }

    /// Monitor: where the stop is; to be called before its actions are done.
    pub fn set_plan(self, plan: &Plan) {
        // A drain can end without a stop, and then there is no trigger any more.
        let trigger = plan.trigger().map_or(0, |trigger| trigger as u64);
        self.set(Word::Trigger, trigger);
        match plan.state() {
            State::Terminating { kill_at, .. } => self.set(Word::KillAt, nanos(kill_at)),
            State::Killing { give_up_at, .. } => self.set(Word::GiveUpAt, nanos(give_up_at)),
            State::Running | State::Draining { .. } | State::Done | State::GivenUp => {}
        }
    }

    /// Monitor: the server has got the stop signal, sent by us and not by the kernel.
    pub fn set_server_told(self) {
        self.set(Word::ServerTold, 1);
    }

    /// Whether it has.
    #[must_use]
    pub fn server_told(self) -> bool {
        self.get(Word::ServerTold) != 0
    }

    /// Monitor: what the stop waits for was named, and that Ctrl-C kills it now.
    pub fn set_named(self) {
        self.set(Word::Named, 1);
    }

    /// Whether it was.
    #[must_use]
    pub fn named(self) -> bool {
        self.get(Word::Named) != 0
    }

    /// Shim: Ctrl-C was pressed after that.
    pub fn set_kill_now(self) {
        self.set(Word::KillNow, 1);
    }

    /// Monitor: takes that news.
    #[must_use]
    pub fn take_kill_now(self) -> bool {
        self.take(Word::KillNow) != 0
    }

    /// Shim: the SIGHUP that it hands on is the kernel's, since the terminal is gone.
    pub fn set_terminal_gone(self) {
        self.set(Word::TerminalGone, 1);
    }

    /// Whether the shim has seen the end of the terminal.
    #[must_use]
    pub fn terminal_gone(self) -> bool {
        self.get(Word::TerminalGone) != 0
    }

    /// Why the tree is being stopped, if it is.
    #[must_use]
    pub fn trigger(self) -> Option<Trigger> {
        let number = self.get(Word::Trigger);
        Trigger::ALL.into_iter().find(|t| *t as u64 == number)
    }

    /// Shim: the plan to go on with after the monitor's death, at the deadlines that it had set.
    #[must_use]
    pub fn resume(self, settings: Settings, now: Duration) -> Plan {
        let trigger = self.trigger();
        let kill_at = match self.get(Word::KillAt) {
            u64::MAX => NEVER,
            nanos => Duration::from_nanos(nanos),
        };
        let give_up_at = Duration::from_nanos(self.get(Word::GiveUpAt));
        let state = if !give_up_at.is_zero() {
            State::Killing {
                next: now,
                rest: ROUND_MIN,
                give_up_at,
            }
        } else if !kill_at.is_zero() {
            // Which processes the monitor had signalled is not known, so all are signalled again. The server most
            // likely has the stop signal from the kernel.
            let stage = settings.stage_of(settings.grace);
            State::Terminating {
                server_at: self.ended().is_none().then(|| match kill_at {
                    NEVER => NEVER,
                    at => at.saturating_sub(stage),
                }),
                rest_at: (settings.kill_mode != KillMode::Mixed).then_some(now),
                name_at: (settings.at_terminal && !self.named()).then_some(now + NAME_AFTER),
                kill_at,
            }
        } else {
            State::Running
        };
        Plan::resume(settings, state, trigger, self.ended().is_some())
    }

    /// Shim: the host is gone. The monitor is not its child and may not be able to see that itself.
    pub fn set_host_gone(self) {
        self.set(Word::HostGone, 1);
    }

    /// Monitor: takes that news.
    #[must_use]
    pub fn take_host_gone(self) -> bool {
        self.take(Word::HostGone) != 0
    }

    /// Monitor: job control has suspended the server by signal `number`, and wants the shim to be suspended alike.
    pub fn order_suspension(self, number: u8) {
        let Suspension(last) = self.suspension();
        self.set(Word::Suspension, (last | 0xff) + 1 + u64::from(number));
    }

    /// Monitor: the server goes on, and so the order does not stand any more.
    pub fn withdraw_suspension(self) {
        let Suspension(last) = self.suspension();
        self.set(Word::Suspension, last & !0xff);
    }

    /// Shim: the last order to be suspended.
    #[must_use]
    pub fn suspension(self) -> Suspension {
        Suspension(self.get(Word::Suspension))
    }

    /// Monitor: the shim is to leave with `status` now, though some of the tree could not be killed.
    pub fn set_leave_with(self, status: u8) {
        self.set(Word::LeaveWith, 0x100 | u64::from(status));
    }

    #[must_use]
    pub fn leave_with(self) -> Option<u8> {
        Some(self.get(Word::LeaveWith))
            .filter(|n| *n != 0)
            .map(|n| n as u8)
    }
}

/// An order to be suspended: the number of the signal in the lowest byte, 0 once it was withdrawn. The count of the
/// orders is above it, so that no two are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspension(u64);

impl Suspension {
    /// By which signal, if the order stands.
    #[must_use]
    pub fn signal(self) -> Option<Signal> {
        Signal::from_number((self.0 & 0xff) as i32)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
