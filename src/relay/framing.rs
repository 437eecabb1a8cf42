//! Where a message ends: with a newline, or after as many bytes as its header says. Pure.
#![forbid(unsafe_code)]

pub use crate::settings::writers::Framing as Kind;

/// A header block that is longer is broken: a client writes two short lines.
const MAX_HEADER: usize = 8 * 1024;
/// What is kept of a line of the header. It is enough for the one line that matters.
const KEPT: usize = 64;

/// Follows one stream of messages. It takes any pieces of the stream, and keeps no message.
#[derive(Clone, Copy, Debug)]
pub struct Framing(State);

#[derive(Clone, Copy, Debug)]
enum State {
    /// `begun`: the last byte was not the end of a line.
    Line {
        begun: bool,
    },
    Header(Header),
    Body {
        left: u64,
    },
    Broken,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    line: [u8; KEPT],
    /// Of the line, without its end; also what was not kept.
    len: usize,
    /// The last byte was a carriage return.
    returned: bool,
    /// Of the whole block, so far.
    size: usize,
    body: Option<u64>,
}

impl Header {
    const NEW: Self = Self {
        line: [0; KEPT],
        len: 0,
        returned: false,
        size: 0,
        body: None,
    };
}

/// What [`Framing::step`] has taken: bytes of one part of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub taken: usize,
    /// They belong to the content, and not to a header.
    pub is_body: bool,
    /// The last one is the last one of its message.
    pub ends: bool,
}

/// What was found in a piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The end of the first message: the number of bytes up to it.
    End(usize),
    /// The message goes on.
    Open,
    Broken,
}

impl Framing {
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self(match kind {
            Kind::Lines => State::Line { begun: false },
            Kind::Headers => State::Header(Header::NEW),
        })
    }

    /// Whether no message has begun since the last one has ended.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        match &self.0 {
            State::Line { begun } => !*begun,
            State::Header(header) => header.size == 0,
            State::Body { .. } | State::Broken => false,
        }
    }

    /// Whether the stream does not follow the rules. Nothing is known of where its messages end from there on.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        matches!(self.0, State::Broken)
    }

    /// Takes bytes of one part of a message: at least one, unless `bytes` is empty.
    pub fn step(&mut self, bytes: &[u8]) -> Step {
        match &mut self.0 {
            State::Line { begun } => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                *begun = end.is_none() && (*begun || !bytes.is_empty());
                Step {
                    taken: end.map_or(bytes.len(), |at| at + 1),
                    is_body: true,
                    ends: end.is_some(),
                }
            }
            State::Header(header) => {
                let mut taken = 0;
                let mut after = Next::Header;
                for byte in bytes {
                    taken += 1;
                    after = header.take(*byte);
                    if after != Next::Header {
                        break;
                    }
                }
                let ends = after == Next::Body(0);
                match after {
                    Next::Header => {}
                    Next::Broken => self.0 = State::Broken,
                    Next::Body(0) => *header = Header::NEW,
                    Next::Body(left) => self.0 = State::Body { left },
                }
                Step {
                    taken,
                    is_body: false,
                    ends,
                }
            }
            State::Body { left } => {
                let taken = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                let ends = *left == 0;
                if ends {
                    self.0 = State::Header(Header::NEW);
                }
                Step {
                    taken,
                    is_body: true,
                    ends,
                }
            }
            State::Broken => Step {
                taken: bytes.len(),
                is_body: false,
                ends: false,
            },
        }
    }

    /// Takes `bytes` up to the end of the first message.
    pub fn take(&mut self, bytes: &[u8]) -> Found {
        let mut at = 0;
        while at < bytes.len() {
            let step = self.step(&bytes[at..]);
            at += step.taken;
            if step.ends {
                return Found::End(at);
            }
        }
        if self.is_broken() {
            Found::Broken
        } else {
            Found::Open
        }
    }
}

/// What follows a byte of a header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Header,
    /// So many bytes.
    Body(u64),
    Broken,
}

impl Header {
    fn take(&mut self, byte: u8) -> Next {
        self.size += 1;
        if self.size > MAX_HEADER || self.returned != (byte == b'\n') {
            return Next::Broken;
        }
        match byte {
            b'\r' => self.returned = true,
            b'\n' if self.len == 0 => return self.body.map_or(Next::Broken, Next::Body),
            b'\n' => {
                if !self.end_line() {
                    return Next::Broken;
                }
                (self.len, self.returned) = (0, false);
            }
            _ => {
                if let Some(place) = self.line.get_mut(self.len) {
                    *place = byte;
                }
                self.len += 1;
            }
        }
        Next::Header
    }

    /// Reads the line. False if it is none of a header.
    fn end_line(&mut self) -> bool {
        let line = &self.line[..self.len.min(KEPT)];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return false;
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        if name.is_empty() || !name.iter().all(is_name) {
            return false;
        }
        if !name.eq_ignore_ascii_case(b"content-length") {
            return true;
        }
        let value = value.trim_ascii();
        let number = std::str::from_utf8(value).ok().and_then(|text| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| digits)
        });
        // Two lines that differ would let two readers see two messages.
        let agrees = self.body.is_none_or(|body| Some(body) == number);
        self.body = number;
        self.len <= KEPT && agrees && number.is_some()
    }
}
