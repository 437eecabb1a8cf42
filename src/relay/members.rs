//! The messages of a stream that comes in pieces, and the members that tell what they are. Pure.
//! Only strings and brackets are followed: the receiver checks the rest. `serde_json` takes longer,
//! ends at 128 levels, and changes numbers.

use std::borrow::Cow;
use std::ffi::CString;

use crate::relay::inbox::MAX_MESSAGE;
use crate::settings::config::Match;

/// The longest id that is kept, in bytes.
const MAX_ID: usize = 256;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub struct Lines {
    beginning: Vec<u8>,
    /// The line is longer than a message can be, or there is no memory for it.
    is_skipped: bool,
}

impl Lines {
    /// Calls `each` with every line that ends in `bytes`, without its newline, and with the number
    /// of `bytes` up to its end. Returns whether a line that ends there was skipped.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], usize)) -> bool {
        let (mut from, mut has_skipped) = (0, false);
        for end in memchr::memchr_iter(b'\n', bytes) {
            let piece = &bytes[from..end];
            from = end + 1;
            if self.beginning.is_empty() && !self.is_skipped {
                each(piece, from);
                continue;
            }
            self.keep(piece);
            let line = std::mem::take(self);
            has_skipped |= line.is_skipped;
            if !line.is_skipped {
                each(&line.beginning, from);
            }
        }
        self.keep(&bytes[from..]);
        has_skipped
    }

    fn keep(&mut self, bytes: &[u8]) {
        let fits = self.beginning.len() + bytes.len() < MAX_MESSAGE
            && self.beginning.try_reserve(bytes.len()).is_ok();
        self.is_skipped |= !fits;
        if self.is_skipped {
            self.beginning = Vec::new();
        } else {
            self.beginning.extend_from_slice(bytes);
        }
    }
}

/// What a message says of itself. A member that is there twice counts as the last one.
#[derive(Debug, Default)]
pub struct Members {
    /// Which of the wanted members it has, one bit each.
    pub found: u64,
    /// Its `id`, if that is a string (it begins with a quote) or a number, and not too long.
    pub id: Option<Box<[u8]>>,
    /// Whether it has a `result` or an `error`.
    pub is_answer: bool,
}

/// Looks for at most 64 of `wanted`. `None`: there is no whole object at the start of `line`.
pub fn read(line: &[u8], wanted: &[Match]) -> Option<Members> {
    let mut members = Members::default();
    each_member(line, |key, value| {
        find(key, value, wanted, u64::MAX, 0, &mut members.found);
        if says(key, "id") {
            members.id = id(value);
        }
        members.is_answer |= says(key, "result") || says(key, "error");
    })?;
    Some(members)
}

/// Notes in `found` which of `wanted` end in this member, if the first `level` names of their paths
/// have led to it. Only those of `among` are looked for, so each part is read once for each level.
fn find(key: &[u8], value: &[u8], wanted: &[Match], among: u64, level: usize, found: &mut u64) {
    let mut below = 0;
    // Not for each of 64 names.
    let is_escaped = key.contains(&b'\\');
    for (Match { path, value: text }, at) in wanted.iter().zip(0..64) {
        let bit = among & 1 << at;
        let is_named = |name: &String| key == name.as_bytes() || is_escaped && says(key, name);
        if bit == 0 || !path.get(level).is_some_and(is_named) {
            continue;
        }
        *found &= !bit;
        if path.len() > level + 1 {
            below |= bit;
        } else if is_value(value, text) {
            *found |= bit;
        }
    }
    let mut deeper = 0;
    let each = |key: &[u8], value: &[u8]| find(key, value, wanted, below, level + 1, &mut deeper);
    if below != 0 && each_member(value, each).is_some() {
        *found |= deeper;
    }
}

/// The id of the request that this message of MCP cancels. It gets no answer any more.
pub fn unanswered(line: &[u8]) -> Option<Box<[u8]>> {
    memchr::memmem::find(line, b"cancelled")?;
    let (mut cancels, mut request) = (false, None);
    each_member(line, |key, value| {
        cancels |= says(key, "method") && is_value(value, "notifications/cancelled");
        if says(key, "params") {
            let _ = each_member(value, |key, value| {
                if says(key, "requestId") {
                    request = id(value);
                }
            });
        }
    })?;
    request.filter(|_| cancels)
}

/// Calls `each` with every key, without its quotes, and its value, both as they are written.
/// `None`: this is no object, or not all of one.
fn each_member<'a>(object: &'a [u8], mut each: impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    let object = object.trim_ascii_start();
    let mut rest = object.strip_prefix(b"{")?.trim_ascii_start();
    while !rest.starts_with(b"}") {
        let (key, after) = rest.split_at(string_length(rest)?);
        rest = after.trim_ascii_start().strip_prefix(b":")?;
        let (value, after) = rest.split_at(value_length(rest)?);
        each(&key[1..key.len() - 1], value.trim_ascii());
        rest = after.strip_prefix(b",").unwrap_or(after).trim_ascii_start();
    }
    Some(())
}

/// The length of the string at the start, with its quotes.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    bytes.strip_prefix(b"\"")?;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The length of the value at the start, up to the comma or the bracket behind it.
fn value_length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match bytes.get(at)? {
            b',' | b'}' | b']' if depth == 0 => return Some(at),
            b'"' => at += string_length(&bytes[at..])? - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// Whether a value is the string `wanted`, or a number or word that is written like it.
fn is_value(value: &[u8], wanted: &str) -> bool {
    match value {
        [b'"', text @ .., b'"'] => says(text, wanted),
        [b'{' | b'[', ..] => false,
        literal => literal == wanted.as_bytes(),
    }
}

fn id(value: &[u8]) -> Option<Box<[u8]>> {
    let id = match value {
        [b'"', text @ .., b'"'] => [b"\"", &*unescaped(text)?].concat(),
        [b'-' | b'0'..=b'9', ..] => value.to_vec(),
        _ => return None,
    };
    let text = id.strip_prefix(b"\"").unwrap_or(&id);
    (text.len() <= MAX_ID).then(|| id.into())
}

/// Whether a string that is written like this, without quotes, stands for `text`. An escape is six
/// times as long as what it stands for, at most.
fn says(written: &[u8], text: &str) -> bool {
    written == text.as_bytes()
        || written.len() <= 6 * text.len() && unescaped(written).as_deref() == Some(text.as_bytes())
}

/// What a string of JSON says. `None`: it has an escape that JSON does not have.
fn unescaped(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !written.contains(&b'\\') {
        return Some(Cow::Borrowed(written));
    }
    let quoted = [b"\"", written, b"\""].concat();
    let text = serde_json::from_slice(&quoted).map(String::into_bytes);
    // Half of a pair of surrogates, which JavaScript passes on, is no text. As bytes it is read.
    let text = text.or_else(|_| serde_json::from_slice(&quoted).map(CString::into_bytes));
    text.ok().map(Cow::Owned)
}
