//! What was asked for about further writers of the server's stdin.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// With a newline.
    Lines,
    /// After as many bytes as its `Content-Length` says.
    Headers,
}

impl Framing {
    pub const NAMES: [(&'static str, Self); 2] =
        [("lines", Self::Lines), ("headers", Self::Headers)];
}

/// What the messages of a source do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Inject,
    /// Each one also begins the cancel drain.
    Cancel,
}

impl Use {
    /// The option that asks for it.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Inject => "--inject",
            Self::Cancel => "--cancel",
        }
    }
}

/// Where further messages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An inherited pipe or socket.
    Descriptor(i32),
    /// A socket that treaper makes.
    Socket(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(number) => write!(f, "fd:{number}"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Everything about further writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    pub sources: Vec<(Use, Source)>,
    /// A member at the top of the JSON object that ends a turn, and its value.
    pub boundaries: Vec<(String, String)>,
    /// How long a cancelled turn may take.
    pub cancel_drain: Duration,
    pub framing: Framing,
    /// Of an injected message, in bytes.
    pub max_message: usize,
}

/// `fd:N` or `unix:PATH`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn source(text: &str) -> Result<Source, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.is_empty() {
            Err("expected the path of a socket after 'unix:'".to_owned())
        } else {
            Ok(Source::Socket(path.into()))
        };
    }
    let number = text
        .strip_prefix("fd:")
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    match number.and_then(|number| number.parse().ok()) {
        Some(0..=2) => Err("0, 1 and 2 are stdin, stdout and stderr".to_owned()),
        Some(number) => Ok(Source::Descriptor(number)),
        None => Err("expected fd:N or unix:PATH".to_owned()),
    }
}

/// `MEMBER=VALUE`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn boundary(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((member, value)) if !member.is_empty() => Ok((member.to_owned(), value.to_owned())),
        _ => Err("expected MEMBER=VALUE, such as type=result".to_owned()),
    }
}

/// The largest size that can be set.
const MAX_SIZE: u64 = 1 << 30;

/// A number of bytes: `65536`, `64K`, `1M`, `1G`.
///
/// # Errors
/// A sentence that says what is expected.
pub fn size(text: &str) -> Result<usize, String> {
    let (number, factor) = match text.as_bytes() {
        [.., b'K'] => (&text[..text.len() - 1], 1 << 10),
        [.., b'M'] => (&text[..text.len() - 1], 1 << 20),
        [.., b'G'] => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a size such as 65536, 64K or 1M".to_owned());
    }
    let size = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor));
    size.filter(|size| (1..=MAX_SIZE).contains(size))
        .and_then(|size| usize::try_from(size).ok())
        .ok_or_else(|| "out of range: from 1 byte to 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_sizes_and_boundaries_are_checked() {
        let parse = source;
        assert_eq!(parse("fd:3"), Ok(Source::Descriptor(3)));
        assert_eq!(parse("unix:/a b"), Ok(Source::Socket("/a b".into())));
        for bad in [
            "",
            "fd:",
            "fd:+3",
            "fd:0",
            "fd:2",
            "fd:-1",
            "fd:99999999999",
            "unix:",
            "/a",
            "tcp:1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for (text, bytes) in [("1", 1), ("64K", 65536), ("1M", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "0",
            "K",
            "1k",
            "-1",
            "+1",
            "2G",
            "1.5M",
            "99999999999999999999G",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(
            boundary("method=turn/completed"),
            pair("method", "turn/completed")
        );
        assert_eq!(boundary("a=b=c"), pair("a", "b=c"));
        assert_eq!(boundary("a="), pair("a", ""));
        for bad in ["", "=b", "a"] {
            assert!(boundary(bad).is_err(), "{bad}");
        }
    }
}
