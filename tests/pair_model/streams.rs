//! The streams of the relay, its line and its socket.

use std::time::Duration;

use treaper::plan::event::Trigger;
use treaper::sys::Errno;

use super::{Event, Kernel, Life, name};
use crate::actor::{
    CHILD, DRAIN, ERR, HOST, HUP, IN, MONITOR, OUT, OUTSIDE, Object, Op, RELAY, Reply, SERVER,
    SHIM, Scene, Use,
};
use crate::sys::stream::{ANSWER, CANCELLED_TURN, OUTPUT, length};
use crate::sys::wait::ENDED;

/// What the kernel knows of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Streams {
    /// The relay can read a turn and its cancel.
    pub has_turn: bool,
    /// When they were written to the server, if that has not answered.
    pub cancelled: Option<u64>,
    /// The host has closed its end of stdin.
    pub stdin_closed: bool,
    /// The server has closed stdin and stdout.
    pub server_closed: bool,
    pub has_answer: bool,
    /// How often the server has written anything else that the relay has not read.
    pub output: u8,
    /// How many writes the host has room for.
    pub room: u8,
    /// The relay has sent a byte to the pair.
    pub has_byte: bool,
    pub line_hung_up: bool,
    /// The file of the socket is there.
    pub has_socket: bool,
    /// Another process has suspended the relay.
    pub relay_meddled: bool,
    pub relay_hangs: bool,
}

/// How long the shim waits for a relay that passes nothing on, before it sends SIGKILL.
const RELAY_PATIENCE: Duration = Duration::from_secs(7);
/// How long the relay waits for a host that reads nothing.
const HOST_PATIENCE: Duration = Duration::from_secs(5);
/// The pause of either between two looks.
const RELAY_PAUSE: Duration = Duration::from_millis(500);

impl Kernel {
    /// See [`Kernel::is_private`]. `None`: the relay has nothing to do with it.
    pub fn is_private_with_relay(&self, scene: &Scene, own: u8, op: &Op) -> Option<bool> {
        let is_word = |word: u8, names: &[&str]| names.contains(&name(word));
        let relay_lives = self.is_alive(RELAY);
        let relay_rests =
            !self.comes(Event::SuspendRelay) && self.process(RELAY).suspended.is_none();
        // While the monitor lives and stays, the shim adopts no process of the tree.
        let adopts_none = self.is_alive(MONITOR) && self.monitor_stays() && !scene.hopeless;
        let has_adopted = self.descendants(SHIM, false) & (1 << SERVER | 1 << CHILD) != 0;
        Some(match op {
            Op::MakeSocket
            | Op::RemoveSocket
            | Op::HasHungUp
            | Op::State { of: OUTSIDE }
            | Op::Add { count: 0, .. } => true,
            // Only the relay reads, and only one text at a time is there.
            Op::Read { from } | Op::Readable { from } if own == RELAY => match from {
                Object::FromHost => !scene.watches_stdin || !self.streams.has_turn,
                _ => !self.comes(Event::Answer) && (self.has_output() || self.is_server_closed()),
            },
            Op::HangUp => self.streams.line_hung_up || !relay_lives,
            Op::Exists { of: RELAY } => own == SHIM,
            // Shim and monitor look whether it is suspended. It is no child of the monitor.
            Op::State { of: RELAY } => relay_rests,
            Op::Wait {
                of: Some(RELAY),
                take: false,
                ..
            } => own == MONITOR || relay_rests,
            Op::Children { of: SHIM } => own == SHIM && adopts_none,
            // After a look at its children, the shim asks whether the monitor has ended, which matters only if there was a
            // new child.
            Op::State { of: MONITOR } if own == SHIM => !has_adopted,
            Op::Wait {
                of: Some(MONITOR),
                kinds: ENDED,
                take: false,
            } if own == SHIM => {
                !has_adopted && !scene.job_control && !scene.namespace && scene.relay != Use::None
            }
            // The monitor asks for these only during a drain.
            Op::Get { word }
            | Op::Set { word, .. }
            | Op::Swap { word, .. }
            | Op::Add { word, .. }
                if is_word(*word, &["relay.unread", "relay.ended"]) && !scene.watches_stdin =>
            {
                true
            }
            Op::Get { word } if name(*word).starts_with("relay.") => {
                !relay_lives || name(*word).ends_with("_courier")
            }
            Op::Swap { word, value } => {
                return (own == RELAY && self.board[*word as usize] == *value).then_some(true);
            }
            Op::Add { .. } => false,
            _ => return None,
        })
    }

    /// A call that concerns one of these.
    pub fn do_with_stream(&mut self, scene: &Scene, op: &Op) -> Reply {
        match *op {
            Op::Send => {
                self.streams.has_byte = true;
                Reply::Done
            }
            Op::HangUp => {
                self.streams.line_hung_up = true;
                if !self.is_tree_empty() && !scene.hopeless {
                    self.breaks("the relay passes on messages while the tree lives");
                }
                Reply::Done
            }
            Op::HasHungUp => Reply::Number(self.streams.stdin_closed.into()),
            Op::Readable { from } => Reply::Number(match from {
                Object::FromHost if self.streams.has_turn => length(CANCELLED_TURN),
                Object::FromServer => {
                    let answer = if self.streams.has_answer {
                        length(ANSWER)
                    } else {
                        0
                    };
                    answer + u64::from(self.streams.output) * length(OUTPUT)
                }
                _ => 0,
            }),
            Op::Read { from } => self.read(from),
            Op::Write { to } => self
                .pass_on(to)
                .map_or_else(Reply::Failed, |()| Reply::Done),
            Op::MakeSocket => {
                self.streams.has_socket = true;
                Reply::Done
            }
            Op::RemoveSocket => {
                self.streams.has_socket = false;
                Reply::Done
            }
            ref other => panic!("{other:?} concerns no stream"),
        }
    }

    /// What the relay reads.
    pub fn read(&mut self, from: Object) -> Reply {
        let closed = self.is_server_closed();
        let streams = &mut self.streams;
        let (text, at_end) = match from {
            Object::FromHost if std::mem::take(&mut streams.has_turn) => {
                (Some(CANCELLED_TURN), false)
            }
            Object::FromHost => (None, streams.stdin_closed),
            Object::FromServer if std::mem::take(&mut streams.has_answer) => {
                streams.cancelled = None;
                (Some(ANSWER), false)
            }
            Object::FromServer if streams.output > 0 => {
                streams.output -= 1;
                (Some(OUTPUT), false)
            }
            _ => (None, closed),
        };
        match text {
            Some(text) => Reply::Number(text),
            None if at_end => Reply::Number(0),
            None => Reply::Failed(Errno::AGAIN),
        }
    }

    /// The relay writes what it has read.
    pub fn pass_on(&mut self, to: Object) -> Result<(), Errno> {
        if to == Object::ToServer {
            if self.is_server_closed() {
                return Err(Errno::PIPE);
            }
            self.streams.cancelled = Some(self.now);
            return Ok(());
        }
        if !self.is_alive(HOST) {
            return Err(Errno::PIPE);
        }
        if self.streams.room == 0 {
            return Err(Errno::AGAIN);
        }
        if self.streams.room < u8::MAX {
            self.streams.room -= 1;
        }
        Ok(())
    }

    pub fn has_output(&self) -> bool {
        self.streams.has_answer || self.streams.output > 0
    }

    /// No process can read the server's stdin or write to its stdout any more.
    pub fn is_server_closed(&self) -> bool {
        let all_gone = |all: [u8; 2]| !all.into_iter().any(|of| self.is_alive(of));
        let started = self.process(SERVER).life != Life::Unborn;
        let gone = all_gone([SERVER, CHILD]) && (started || all_gone([SHIM, MONITOR]));
        self.streams.server_closed || gone
    }

    /// What poll reports of `object`.
    pub fn ready(&self, own: u8, object: Object) -> u8 {
        let bit = |is_ready: bool, bits: u8| if is_ready { bits } else { 0 };
        let streams = self.streams;
        let closed = self.is_server_closed();
        match object {
            Object::Signals => bit(self.process(own).pending.iter().any(Option::is_some), IN),
            Object::Process(of) => bit(!self.is_alive(of), IN),
            Object::Bell => bit(!self.is_alive(SHIM), ERR),
            Object::Line => bit(streams.has_byte, IN) | bit(!self.is_alive(RELAY), IN | HUP),
            Object::FarLine => {
                let is_cut = !self.is_alive(SHIM) && !self.is_alive(MONITOR);
                bit(streams.line_hung_up || is_cut, HUP)
            }
            Object::FromHost => bit(streams.has_turn, IN) | bit(streams.stdin_closed, IN | HUP),
            Object::ToServer => OUT | bit(closed, ERR),
            Object::FromServer => bit(self.has_output(), IN) | bit(closed, IN | HUP),
            Object::ToHost => bit(streams.room > 0, OUT) | bit(!self.is_alive(HOST), ERR),
            Object::Other => 0,
        }
    }

    pub fn close_stdin(&mut self, scene: &Scene) {
        if scene.relay == Use::None || std::mem::replace(&mut self.streams.stdin_closed, true) {
            return;
        }
        if scene.watches_stdin {
            self.happened(Trigger::StdinEof);
            self.note_reason_at(self.now + DRAIN.as_nanos() as u64);
        }
    }

    /// How long shim and relay may wait for the host at the end.
    pub fn relay_time(&self, scene: &Scene) -> Duration {
        let reads: u32 = scene
            .events
            .iter()
            .filter(|(event, _)| *event == Event::HostReads)
            .map(|(_, count)| u32::from(*count))
            .sum();
        let streams = self.streams;
        match scene.relay {
            Use::None => Duration::ZERO,
            _ if streams.relay_hangs && scene.immortal_relay => 2 * RELAY_PATIENCE + RELAY_PAUSE,
            _ if streams.relay_hangs => RELAY_PATIENCE + RELAY_PAUSE,
            _ if !scene.host_reads => (HOST_PATIENCE + RELAY_PAUSE) * (1 + reads),
            _ if streams.relay_meddled && !scene.pidfds => RELAY_PATIENCE + RELAY_PAUSE,
            _ if streams.relay_meddled => RELAY_PAUSE,
            _ => Duration::ZERO,
        }
    }
}
