//! Finds the members of JSON objects, one object a line, that tell what a message is. Pure, and in bounded memory.
//!
//! It follows strings and brackets, and does not check the rest of the grammar: the process that the message is for does
//! that. The text between the few interesting bytes is skipped by `memchr`.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use crate::settings::writers::{MAX_PATH, Match};

/// The longest id that is kept, in bytes.
pub const MAX_ID: usize = 256;
/// An escape is at most six times as long as what it stands for. A pair of quotes is needed to read it.
const ESCAPED: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the object of a line.
    Start,
    /// In the object, and in none of its strings.
    Inside,
    Text,
    /// After a backslash in a string.
    Escape,
    /// After the object, or in a line that has none. Nothing matters up to the next line.
    Rest,
}

/// The last key at the top, if it belongs to JSON-RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    Id,
    Answer,
    Other,
}

/// Follows one stream, in any pieces.
#[derive(Debug)]
pub struct Scanner {
    wanted: Vec<Match>,
    at: At,
    /// How many objects and arrays are open.
    depth: usize,
    /// For each depth: which of `wanted` may have their next member in the object that is open there. One bit each.
    open: [u64; MAX_PATH + 1],
    /// The next string of this object is a key.
    is_key: bool,
    /// Those of `wanted` whose path, up to this depth, leads to the last key.
    named: u64,
    /// Those that have been found with their value.
    found: u64,
    top: Top,
    id: Vec<u8>,
    is_answer: bool,
    /// The string or the literal that is being read, as it is written, and without quotes.
    text: Vec<u8>,
    /// The most that can matter, and one byte.
    room: usize,
}

impl Scanner {
    /// At most 64 of `wanted` are looked for.
    #[must_use]
    pub fn new(wanted: Vec<Match>) -> Self {
        let names = wanted.iter().flat_map(|wanted| &wanted.path);
        let longest = names.map(String::len).max().unwrap_or(0);
        let values = wanted.iter().map(|wanted| wanted.value.len());
        let longest = values.max().unwrap_or(0).max(longest).max(MAX_ID);
        Self {
            wanted,
            at: At::Start,
            depth: 0,
            open: [0; MAX_PATH + 1],
            is_key: false,
            named: 0,
            found: 0,
            top: Top::Other,
            id: Vec::new(),
            is_answer: false,
            text: Vec::new(),
            room: longest * ESCAPED + 1,
        }
    }

    /// Which of the members were found in the object that has just ended, one bit each. A member that is there twice
    /// counts as the last one.
    #[must_use]
    pub const fn found(&self) -> u64 {
        self.found
    }

    /// Its `id`, if that is a string (it begins with a quote) or a number, and not too long.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        (!self.id.is_empty()).then_some(&self.id)
    }

    /// Whether it has a `result` or an `error`.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        self.is_answer
    }

    /// Takes bytes up to the end of the next object, or all of them. Returns how many, and whether an object has ended
    /// with the last one.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self.at {
                At::Rest => self.skip_line(rest),
                At::Text => self.take_text(rest),
                At::Inside if !self.is_interesting() => skip_plain(rest),
                At::Start | At::Inside | At::Escape => 0,
            };
            let Some(byte) = bytes.get(at) else { break };
            if matches!(self.at, At::Rest | At::Text) {
                continue;
            }
            at += 1;
            if self.step(*byte) {
                return (at, true);
            }
        }
        (bytes.len(), false)
    }

    fn begin_line(&mut self) {
        (self.at, self.depth) = (At::Start, 0);
    }

    /// How many bytes there are up to the end of the line, with it.
    fn skip_line(&mut self, bytes: &[u8]) -> usize {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            return bytes.len();
        };
        self.begin_line();
        end + 1
    }

    /// Takes what is left of a string, up to an escape.
    fn take_text(&mut self, bytes: &[u8]) -> usize {
        let end = memchr::memchr3(b'"', b'\\', b'\n', bytes);
        self.keep(&bytes[..end.unwrap_or(bytes.len())]);
        let Some(end) = end else { return bytes.len() };
        match bytes[end] {
            b'"' => {
                self.at = At::Inside;
                self.end_text();
            }
            b'\\' => {
                self.keep(b"\\");
                self.at = At::Escape;
            }
            _ => self.begin_line(),
        }
        end + 1
    }

    /// Keeps bytes of a text, if they can matter. One that is too long keeps more than any that is wanted has.
    fn keep(&mut self, bytes: &[u8]) {
        if self.is_interesting() {
            let free = self.room - self.text.len();
            self.text.extend_from_slice(&bytes[..bytes.len().min(free)]);
        }
    }

    /// Whether a member of what is open here can matter.
    const fn is_interesting(&self) -> bool {
        self.depth <= 1 || self.depth <= MAX_PATH && self.open[self.depth] != 0
    }

    /// Takes one byte outside of a string. Returns whether the object has ended.
    fn step(&mut self, byte: u8) -> bool {
        match (self.at, byte) {
            (_, b'\n') => self.begin_line(),
            (At::Escape, _) => {
                self.keep(&[byte]);
                self.at = At::Text;
            }
            (_, b' ' | b'\t' | b'\r') => {}
            (At::Start, b'{') => self.begin_object(),
            (At::Start, _) => self.at = At::Rest,
            (_, b'"') => {
                self.text.clear();
                self.at = At::Text;
            }
            (_, b'{' | b'[') => self.open(byte == b'{'),
            (_, b'}' | b']') => {
                self.end_literal();
                self.is_key = false;
                self.depth -= 1;
                if self.depth == 0 {
                    self.at = At::Rest;
                    return true;
                }
            }
            (_, b',') => {
                self.end_literal();
                self.is_key = true;
            }
            (_, b':') => {
                self.is_key = false;
                self.text.clear();
            }
            _ => self.keep(&[byte]),
        }
        false
    }

    fn begin_object(&mut self) {
        (self.at, self.depth, self.is_key) = (At::Inside, 1, true);
        self.open[1] = mask(self.wanted.len());
        (self.named, self.found) = (0, 0);
        (self.top, self.is_answer) = (Top::Other, false);
        self.id.clear();
        self.text.clear();
    }

    /// A value begins: it replaces an earlier one of the same key.
    fn begin_value(&mut self) {
        self.found &= !self.named;
        if self.depth == 1 {
            self.is_answer |= self.top == Top::Answer;
            if self.top == Top::Id {
                self.id.clear();
            }
        }
    }

    fn open(&mut self, is_object: bool) {
        let mut inside = 0;
        if self.is_interesting() {
            self.begin_value();
            let depth = self.depth;
            if is_object {
                inside = self.named & self.those(|wanted| wanted.path.len() > depth);
            }
        }
        self.depth += 1;
        if let Some(open) = self.open.get_mut(self.depth) {
            *open = inside;
        }
        (self.is_key, self.named) = (is_object, 0);
        self.text.clear();
    }

    fn those(&self, is: impl Fn(&Match) -> bool) -> u64 {
        let bits = self.wanted.iter().zip(0..64);
        bits.fold(0, |bits, (wanted, at)| bits | u64::from(is(wanted)) << at)
    }

    /// A string has ended.
    fn end_text(&mut self) {
        if !self.is_interesting() {
            return;
        }
        let is_key = self.is_key;
        let raw = std::mem::take(&mut self.text);
        let text = unescaped(&raw).filter(|_| raw.len() < self.room);
        if is_key {
            let (depth, text) = (self.depth, text.as_deref());
            let named = self.those(|wanted| {
                let name = wanted.path.get(depth - 1);
                name.is_some_and(|name| Some(name.as_bytes()) == text)
            });
            self.named = named & self.open[depth];
            self.top = match text {
                Some(b"id") => Top::Id,
                Some(b"result" | b"error") => Top::Answer,
                _ => Top::Other,
            };
        } else {
            self.end_value(text.as_deref(), b"\"");
        }
        self.text = raw;
        self.text.clear();
    }

    /// A number, `true`, `false` or `null` may have ended.
    fn end_literal(&mut self) {
        if self.text.is_empty() || !self.is_interesting() {
            return;
        }
        let raw = std::mem::take(&mut self.text);
        self.end_value(Some(&raw[..]).filter(|_| raw.len() < self.room), b"");
        self.text = raw;
        self.text.clear();
    }

    /// `text`: unless it is too long. `quote`: what comes before it in an id, so that 1 and "1" differ.
    fn end_value(&mut self, text: Option<&[u8]>, quote: &[u8]) {
        self.begin_value();
        let Some(text) = text else { return };
        let depth = self.depth;
        let equal = |wanted: &Match| wanted.path.len() == depth && wanted.value.as_bytes() == text;
        self.found |= self.named & self.those(equal);
        let can_be_id = !quote.is_empty() || matches!(text.first(), Some(b'-' | b'0'..=b'9'));
        if depth == 1 && self.top == Top::Id && can_be_id && text.len() <= MAX_ID {
            self.id.extend_from_slice(quote);
            self.id.extend_from_slice(text);
        }
    }
}

/// The lowest `count` bits.
const fn mask(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// How many bytes there are before the next one that matters outside of strings.
fn skip_plain(bytes: &[u8]) -> usize {
    let matters = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'\n');
    bytes.iter().position(matters).unwrap_or(bytes.len())
}

/// What a string of JSON says. `None`: it has an escape that JSON does not have.
fn unescaped(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !raw.contains(&b'\\') {
        return Some(Cow::Borrowed(raw));
    }
    let quoted = [b"\"", raw, b"\""].concat();
    let text: String = serde_json::from_slice(&quoted).ok()?;
    Some(Cow::Owned(text.into_bytes()))
}
