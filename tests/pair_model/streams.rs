//! Stdin, and the line to the process in front of treaper.

use treaper::plan::event::Trigger;
use treaper::sys::Errno;

use super::{Event, Kernel};
use crate::actor::{DRAIN, ERR, HUP, IN, MONITOR, Object, Op, Reply, SERVER, SHIM, Scene};

/// What the kernel knows of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Streams {
    /// The other end of stdin is closed.
    pub stdin_closed: bool,
    /// The relay has sent the news that a cancelled turn did not end in time.
    pub has_byte: bool,
    /// That came before the end of a drain.
    pub was_in_time: bool,
    /// The relay is gone.
    pub line_hung_up: bool,
}

impl Kernel {
    /// A call that concerns one of these.
    pub fn do_with_stream(&mut self, op: &Op) -> Reply {
        match *op {
            Op::Send => Reply::Done,
            Op::Receive if std::mem::take(&mut self.streams.has_byte) => {
                Reply::Number(Trigger::CancelTimeout as u64)
            }
            Op::Receive if self.streams.line_hung_up => Reply::Number(0),
            Op::Receive => Reply::Failed(Errno::AGAIN),
            Op::HasHungUp => Reply::Number(self.streams.stdin_closed.into()),
            ref other => panic!("{other:?} concerns no stream"),
        }
    }

    /// What poll reports of `object`.
    pub fn ready(&self, own: u8, object: Object) -> u8 {
        let bit = |is_ready: bool, bits: u8| if is_ready { bits } else { 0 };
        let streams = self.streams;
        match object {
            Object::Signals => bit(self.process(own).pending.iter().any(Option::is_some), IN),
            Object::Process(of) => bit(!self.is_alive(of), IN),
            Object::Bell => bit(!self.is_alive(SHIM), ERR),
            Object::Line => bit(streams.has_byte, IN) | bit(streams.line_hung_up, IN | HUP),
            Object::Stdin => bit(streams.stdin_closed, IN | HUP),
        }
    }

    /// An event of these. Returns whether it can happen now.
    pub fn happens_to_stream(&mut self, scene: &Scene, event: Event) -> bool {
        let treaper_lives = self.is_alive(SHIM) || self.is_alive(MONITOR);
        let started = self.is_alive(SERVER) && treaper_lives;
        match event {
            Event::KillRelay if treaper_lives => {
                self.streams.line_hung_up = true;
                self.note_reason();
                self.happened(Trigger::RelayKilled);
                self.close_stdin(scene);
            }
            Event::TimesOut if started && !self.streams.line_hung_up => {
                self.streams.has_byte = true;
                self.streams.was_in_time = self.reason.is_none_or(|at| self.now < at);
                self.note_reason();
                self.happened(Trigger::CancelTimeout);
            }
            Event::CloseStdin if treaper_lives && !self.streams.stdin_closed => {
                self.close_stdin(scene);
            }
            _ => return false,
        }
        true
    }

    pub fn close_stdin(&mut self, scene: &Scene) {
        if std::mem::replace(&mut self.streams.stdin_closed, true) || !scene.watches_stdin {
            return;
        }
        self.happened(Trigger::StdinEof);
        self.note_reason_at(self.now + DRAIN.as_nanos() as u64);
    }
}
