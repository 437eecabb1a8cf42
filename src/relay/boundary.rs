//! Whether a message is the end of a turn: a JSON object with a given member at its top. Pure, and in bounded memory.
#![forbid(unsafe_code)]

use crate::relay::framing::{Framing, Kind};

/// As deep as the usual parsers go. What is deeper is no boundary.
const MAX_DEPTH: usize = 128;

/// A member of an object, and the value that it has.
pub type Member = (String, String);

/// Follows the output of a server, in any pieces.
#[derive(Debug)]
pub struct Output {
    framing: Framing,
    object: Object,
}

impl Output {
    /// At most 64 of `members` are looked at.
    #[must_use]
    pub fn new(kind: Kind, members: &[Member]) -> Self {
        Self {
            framing: Framing::new(kind),
            object: Object::new(members),
        }
    }

    /// How many messages that are a boundary have ended in `bytes`.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let step = self.framing.step(&bytes[at..]);
            if step.is_body {
                self.object.take(&bytes[at..at + step.taken]);
            }
            at += step.taken;
            if step.ends {
                count += usize::from(self.object.is_boundary());
                self.object.reset();
            }
        }
        count
    }

    /// Whether the framing is broken, so that no boundary will be found any more.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.framing.is_broken()
    }
}

/// Where the reader of one JSON text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    /// After `{`.
    FirstKey,
    /// After a comma in an object.
    Key,
    Colon,
    Value,
    /// After `[`.
    FirstValue,
    AfterValue,
    Text {
        is_key: bool,
        escape: Escape,
    },
    /// A number, `true`, `false`, `null`.
    Literal,
    End,
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// Four digits: how many there were, and their value.
    Unicode(u8, u16),
}

/// One JSON text.
#[derive(Debug)]
struct Object {
    wanted: Vec<Member>,
    at: At,
    depth: usize,
    /// One bit for each level: whether it is an object.
    objects: [u64; MAX_DEPTH / 64],
    /// The key, string or literal that is being read, as far as it can matter.
    text: Vec<u8>,
    /// The most that can matter, and one byte.
    room: usize,
    /// The first half of a pair of escapes.
    surrogate: Option<u16>,
    /// The members of `wanted` that have the last key of the top level; one bit each.
    named: u64,
    /// Those that have the value, too.
    equal: u64,
}

impl Object {
    fn new(members: &[Member]) -> Self {
        let wanted: Vec<Member> = members.iter().take(64).cloned().collect();
        let lengths = wanted
            .iter()
            .flat_map(|(name, value)| [name.len(), value.len()]);
        // Every literal that is not a number fits.
        let room = lengths.max().unwrap_or(0).max(32) + 1;
        Self {
            wanted,
            at: At::Start,
            depth: 0,
            objects: [0; MAX_DEPTH / 64],
            text: Vec::with_capacity(room + 4),
            room,
            surrogate: None,
            named: 0,
            equal: 0,
        }
    }

    fn reset(&mut self) {
        (self.at, self.depth) = (At::Start, 0);
        (self.named, self.equal) = (0, 0);
        self.text.clear();
        self.surrogate = None;
    }

    fn is_boundary(&self) -> bool {
        self.at == At::End && self.equal != 0
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.at = match self.at {
                At::Invalid => return,
                At::Text { is_key, escape } => self.in_text(*byte, is_key, escape),
                At::Literal => self.in_literal(*byte),
                at => self.between(*byte, at),
            };
        }
    }

    fn between(&mut self, byte: u8, at: At) -> At {
        match (at, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') => at,
            (At::FirstKey | At::Key, b'"') => self.begin_text(true),
            (At::FirstKey, b'}') | (At::FirstValue, b']') => self.close(),
            (At::AfterValue, b',') if self.is_object() => At::Key,
            (At::AfterValue, b',') | (At::Colon, b':') => At::Value,
            (At::AfterValue, b'}') if self.is_object() => self.close(),
            (At::AfterValue, b']') if !self.is_object() => self.close(),
            (At::Start | At::Value | At::FirstValue, b'{') => self.open(true),
            (At::Value | At::FirstValue, b'[') => self.open(false),
            (At::Value | At::FirstValue, b'"') => self.begin_text(false),
            (At::Value | At::FirstValue, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.text.clear();
                self.text.push(byte);
                At::Literal
            }
            _ => At::Invalid,
        }
    }

    fn is_object(&self) -> bool {
        let level = self.depth - 1;
        self.objects[level / 64] >> (level % 64) & 1 == 1
    }

    fn open(&mut self, object: bool) -> At {
        if self.depth == 1 {
            // A member that is given twice counts as the last one.
            self.equal &= !self.named;
        }
        if self.depth == MAX_DEPTH {
            return At::Invalid;
        }
        let (word, bit) = (self.depth / 64, 1 << (self.depth % 64));
        self.objects[word] = self.objects[word] & !bit | if object { bit } else { 0 };
        self.depth += 1;
        if object { At::FirstKey } else { At::FirstValue }
    }

    fn close(&mut self) -> At {
        self.depth -= 1;
        if self.depth == 0 {
            At::End
        } else {
            At::AfterValue
        }
    }

    fn begin_text(&mut self, is_key: bool) -> At {
        self.text.clear();
        self.surrogate = None;
        At::Text {
            is_key,
            escape: Escape::None,
        }
    }

    /// Keeps a byte of the text. One that is too long keeps a byte too many, so it equals none of those that are wanted.
    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.text.len() < self.room {
            self.text.push(byte);
        }
    }

    fn in_text(&mut self, byte: u8, is_key: bool, escape: Escape) -> At {
        let text = |escape| At::Text { is_key, escape };
        match (escape, byte) {
            (Escape::None, b'"') if self.surrogate.is_none() => self.end_text(is_key),
            (Escape::None, b'\\') => text(Escape::Begun),
            // Half of a pair has to be followed by the other half.
            (Escape::None, _) if self.surrogate.is_some() => At::Invalid,
            (Escape::None, 0..=0x1f) => At::Invalid,
            (Escape::None, _) => {
                self.keep(byte);
                text(Escape::None)
            }
            (Escape::Begun, b'u') => text(Escape::Unicode(0, 0)),
            (Escape::Begun, _) if self.surrogate.is_some() => At::Invalid,
            (Escape::Begun, _) => {
                let plain = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    _ => return At::Invalid,
                };
                self.keep(plain);
                text(Escape::None)
            }
            (Escape::Unicode(count, value), _) => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    return At::Invalid;
                };
                let value = value << 4 | digit as u16;
                if count < 3 {
                    return text(Escape::Unicode(count + 1, value));
                }
                if self.keep_unit(value) {
                    text(Escape::None)
                } else {
                    At::Invalid
                }
            }
        }
    }

    /// A unit of UTF-16. False if the pair that it belongs to is not one.
    fn keep_unit(&mut self, unit: u16) -> bool {
        let units = match self.surrogate.take() {
            None if (0xd800..0xdc00).contains(&unit) => {
                self.surrogate = Some(unit);
                return true;
            }
            None => [unit, 0],
            Some(first) => [first, unit],
        };
        let units = &units[..=usize::from(units[0] & 0xfc00 == 0xd800)];
        let Some(Ok(char)) = char::decode_utf16(units.iter().copied()).next() else {
            return false;
        };
        for byte in char.encode_utf8(&mut [0; 4]).bytes() {
            self.keep(byte);
        }
        true
    }

    fn end_text(&mut self, is_key: bool) -> At {
        if is_key {
            if self.depth == 1 {
                self.named = self.those(|(name, _)| name.as_bytes() == self.text);
            }
            return At::Colon;
        }
        self.end_value();
        At::AfterValue
    }

    fn end_value(&mut self) {
        if self.depth == 1 {
            let equal = self.those(|(_, value)| value.as_bytes() == self.text);
            self.equal = self.equal & !self.named | equal & self.named;
        }
    }

    fn those(&self, is: impl Fn(&Member) -> bool) -> u64 {
        let bits = self.wanted.iter().zip(0..);
        bits.fold(0, |bits, (member, at)| bits | u64::from(is(member)) << at)
    }

    fn in_literal(&mut self, byte: u8) -> At {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.' => {
                // Of deeper ones only the form matters.
                if self.text.len() < self.room {
                    self.text.push(byte);
                }
                At::Literal
            }
            _ if !self.is_literal() => At::Invalid,
            _ => {
                self.end_value();
                self.between(byte, At::AfterValue)
            }
        }
    }

    /// Whether what was kept is a literal. Of a very long number only the beginning is known.
    fn is_literal(&self) -> bool {
        let text = &self.text[..];
        matches!(text, b"true" | b"false" | b"null")
            || is_number(text)
            || text.len() == self.room
                && text
                    .iter()
                    .all(|byte| !matches!(byte, b'a'..=b'd' | b'f'..=b'z'))
    }
}

/// As RFC 8259 has it.
fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || whole > 1 && text[0] == b'0' {
        return false;
    }
    let mut rest = &text[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            all => all,
        };
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}
