//! The *board*: a few words of memory that shim and monitor share.
//!
//! Each word is written by one of the two and read by the other. Nothing is lost when either is killed, as a message
//! on its way would be. A deadline is written before the signals after which it counts are sent.
#![forbid(unsafe_code)]

mod stop;

use std::sync::atomic::AtomicU64;

use crate::sys::exec::{Failure, Text};
use crate::sys::pid::Pid;
use crate::sys::shared::{Word, Words, shared_words};
use crate::sys::signal::Signal;
use crate::sys::wait::Ended;

shared_words! {
    /// The words. In each, zero means "not yet".
    pub struct Board {
        server: Word,
        ended: Word,
        trigger: Word,
        stop_sent: Word,
        kill_at: Word,
        named: Word,
        kill_now: Word,
        terminal_gone: Word,
        survivors_at: Word,
        host_gone: Word,
        in_foreground: Word,
        suspension: Word,
        early_status: Word,
        failure: Word,
        /// A text.
        interpreter: Words<{ Text::WORDS }>,
    }
}

impl Board {
    /// The word in which the new process writes its pid (in the monitor's PID namespace) before its exec.
    #[must_use]
    pub fn server_word(self) -> &'static AtomicU64 {
        self.server.atomic()
    }

    /// The word in which the new process writes why it could not become the server.
    #[must_use]
    pub fn failure_word(self) -> &'static AtomicU64 {
        self.failure.atomic()
    }

    /// Why the new process could not become the server, if it could not. It is written before that process ends.
    #[must_use]
    pub fn failure(self) -> Option<Failure> {
        Failure::decode(self.failure.get())
    }

    /// The words in which that process writes the name of the missing interpreter, if this is why.
    #[must_use]
    pub fn interpreter(self) -> Text {
        Text(self.interpreter.0)
    }

    /// The server's pid, from its start on.
    #[must_use]
    pub fn server(self) -> Option<Pid> {
        Pid::new(self.server.get() as i32)
    }

    /// Monitor: how the server ended.
    pub fn set_ended(self, ended: Ended) {
        self.ended.set(ended.encode().into());
    }

    /// How the server ended, if it has.
    #[must_use]
    pub fn ended(self) -> Option<Ended> {
        Ended::decode(self.ended.get() as u32)
    }

    /// Monitor: treaper has sent the stop signal to the server. (The kernel may send it, too.)
    pub fn set_stop_sent(self) {
        self.stop_sent.set(1);
    }

    /// Whether treaper has sent the stop signal to the server.
    #[must_use]
    pub fn stop_sent(self) -> bool {
        self.stop_sent.get() != 0
    }

    /// Monitor: the processes for which the stop waits were listed, with the offer that Ctrl-C kills them now.
    pub fn set_named(self) {
        self.named.set(1);
    }

    /// Whether that was offered.
    #[must_use]
    pub fn named(self) -> bool {
        self.named.get() != 0
    }

    /// Shim: Ctrl-C was pressed after that offer.
    pub fn set_kill_now(self) {
        self.kill_now.set(1);
    }

    /// Monitor: whether Ctrl-C was pressed since the last call.
    #[must_use]
    pub fn take_kill_now(self) -> bool {
        self.kill_now.replace(0) != 0
    }

    /// Shim: the kernel has sent the SIGHUP that the shim is about to forward, since the terminal is gone.
    pub fn set_terminal_gone(self) {
        self.terminal_gone.set(1);
    }

    /// Whether the shim has got a SIGHUP from the kernel.
    #[must_use]
    pub fn terminal_gone(self) -> bool {
        self.terminal_gone.get() != 0
    }

    /// Shim: the host is gone. The monitor is not a child of the host, so it may have no other way to learn that.
    pub fn set_host_gone(self) {
        self.host_gone.set(1);
    }

    /// Monitor: whether the shim has written that since the last call.
    #[must_use]
    pub fn take_host_gone(self) -> bool {
        self.host_gone.replace(0) != 0
    }

    /// Monitor: whether the foreground group of the terminal belongs to this job. Written while the server is not
    /// reaped.
    pub fn set_in_foreground(self, so: bool) {
        self.in_foreground.set(so.into());
    }

    /// Whether that was so when the server ended.
    #[must_use]
    pub fn in_foreground(self) -> bool {
        self.in_foreground.get() != 0
    }

    /// Monitor: job control has suspended the server by signal `number`, so the shim has to be suspended by it, too.
    pub fn order_suspension(self, number: u8) {
        let Suspension(last) = self.suspension();
        self.suspension.set((last | 0xff) + 1 + u64::from(number));
    }

    /// Monitor: the server was resumed, so the order is withdrawn.
    pub fn withdraw_suspension(self) {
        let Suspension(last) = self.suspension();
        self.suspension.set(last & !0xff);
    }

    /// Shim: the last order to suspend itself.
    #[must_use]
    pub fn suspension(self) -> Suspension {
        Suspension(self.suspension.get())
    }

    /// Monitor: the shim has to exit with `status` now, though some of the tree could not be killed.
    pub fn set_early_status(self, status: u8) {
        self.early_status.set(0x100 + u64::from(status));
    }

    /// Shim: that status, if there is one.
    #[must_use]
    pub fn early_status(self) -> Option<u8> {
        Some(self.early_status.get())
            .filter(|n| *n != 0)
            .map(|n| n as u8)
    }
}

/// An order to the shim to suspend itself. The lowest byte is the number of the signal, or 0 if the order was
/// withdrawn. The count of the orders is above it, so no two orders are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspension(u64);

impl Suspension {
    /// The signal, unless the order was withdrawn.
    #[must_use]
    pub fn signal(self) -> Option<Signal> {
        Signal::from_number((self.0 & 0xff) as i32)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    fn board() -> Board {
        Board::shared().unwrap()
    }

    /// The contents of a board, except for words that a reader clears.
    fn standing(board: Board) -> Vec<String> {
        let mut words = Vec::new();
        let mut note = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{name} {value}")));
        };
        note("server", board.server().map(|pid| pid.to_string()));
        note("ended", board.ended().map(|ended| ended.to_string()));
        note(
            "trigger",
            board.trigger().map(|trigger| trigger.to_string()),
        );
        note("stop sent", board.stop_sent().then(String::new));
        note("named", board.named().then(String::new));
        note("terminal gone", board.terminal_gone().then(String::new));
        note("in foreground", board.in_foreground().then(String::new));
        note(
            "suspension",
            board.suspension().signal().map(|signal| signal.to_string()),
        );
        note(
            "leave with",
            board.early_status().map(|status| status.to_string()),
        );
        note(
            "failure",
            board.failure().map(|failure| format!("{failure:?}")),
        );
        let interpreter = board.interpreter().get();
        note(
            "interpreter",
            (!interpreter.is_empty()).then(|| format!("{interpreter:?}")),
        );
        words
    }

    #[test]
    fn each_value_is_read_as_written_and_changes_no_other() {
        let board = board();
        assert_eq!(standing(board), [""; 0]);
        assert!(!board.take_kill_now() && !board.take_host_gone());

        let steps: [(&dyn Fn(), &str); 10] = [
            (&|| board.server_word().store(77, SeqCst), "server 77"),
            (
                &|| board.set_ended(Ended::Exited(0)),
                "ended exited with status 0",
            ),
            (&|| board.set_stop_sent(), "stop sent "),
            (&|| board.set_named(), "named "),
            (&|| board.set_terminal_gone(), "terminal gone "),
            (&|| board.set_in_foreground(true), "in foreground "),
            (&|| board.order_suspension(19), "suspension SIGSTOP"),
            (&|| board.set_early_status(0), "leave with 0"),
            (
                &|| {
                    let failure = Failure::NotFound.encode();
                    board.failure_word().store(failure, SeqCst);
                },
                "failure NotFound",
            ),
            (
                &|| {
                    for word in board.interpreter().0 {
                        word.store(u64::MAX, SeqCst);
                    }
                },
                "interpreter ",
            ),
        ];
        let mut expected: Vec<&str> = Vec::new();
        for (write, text) in steps {
            write();
            expected.push(text);
            let found = standing(board);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(
                expected
                    .iter()
                    .all(|text| found.iter().any(|word| word.starts_with(text))),
                "{found:?}"
            );
            assert!(!board.take_kill_now() && !board.take_host_gone(), "{text}");
        }
        assert_eq!(board.interpreter().get(), [0xff; Text::WORDS * 8]);
    }

    #[test]
    fn the_monitor_reads_each_report_of_the_shim_once() {
        let board = board();
        board.set_kill_now();
        assert!(!board.take_host_gone());
        assert!(board.take_kill_now());
        assert!(!board.take_kill_now());
        board.set_host_gone();
        assert!(!board.take_kill_now());
        assert!(board.take_host_gone());
        assert!(!board.take_host_gone());
    }

    #[test]
    fn every_status_and_every_end_of_the_server_can_be_stored() {
        let board = board();
        for number in 0..=255 {
            board.set_early_status(number);
            assert_eq!(board.early_status(), Some(number));
            board.set_ended(Ended::Exited(number));
            assert_eq!(board.ended(), Some(Ended::Exited(number)));
            board.set_ended(Ended::Killed(number));
            assert_eq!(board.ended(), Some(Ended::Killed(number)));
        }
    }

    #[test]
    fn no_two_orders_to_suspend_are_equal() {
        let board = board();
        let mut orders = vec![board.suspension()];
        for number in [19, 20, 20, 21, 22, 1, 64, 20].repeat(10) {
            board.order_suspension(number);
            let order = board.suspension();
            assert_eq!(order.signal().map(Signal::number), Some(number));
            assert!(!orders.contains(&order), "{orders:?}");
            orders.push(order);
            if number == 20 {
                board.withdraw_suspension();
                let withdrawn = board.suspension();
                assert_eq!(withdrawn.signal(), None);
                assert!(!orders.contains(&withdrawn), "{orders:?}");
                orders.push(withdrawn);
            }
        }
    }
}
