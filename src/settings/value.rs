//! How users write values: durations, signals, words. Each error is a sentence that says what is
//! expected.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::output::report::To;
use crate::settings::writers::{MAX_PATH, Match};
use crate::sys::signal::{Signal, digits};

/// The longest duration that can be set: a year.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest one where 0 makes no sense.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// `500ms`, `5s`, `2m`, `1h`, `1d`, such parts joined (`1m30s`), or plain seconds (`5`, `0.5`),
/// exact to the nanosecond.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (mut rest, mut nanos) = (text, 0_u128);
    loop {
        let number = leading(rest, |c| c == '.' || c.is_ascii_digit());
        let unit = leading(&rest[number.len()..], |c| c.is_ascii_alphabetic());
        rest = &rest[number.len() + unit.len()..];
        let nanos_each = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "" if number.len() == text.len() => 1_000_000_000,
            _ => return Err(EXPECTED.to_owned()),
        };
        nanos = nanos.saturating_add(nanos_of(number, nanos_each)?);
        if rest.is_empty() {
            break;
        }
    }
    match u64::try_from(nanos).map(Duration::from_nanos) {
        Ok(duration) if duration <= MAX_DURATION => Ok(duration),
        _ => Err(OUT_OF_RANGE.to_owned()),
    }
}

const EXPECTED: &str = "expected a duration such as 500ms, 5s, 1m30s or plain seconds";
const OUT_OF_RANGE: &str = "out of range: at most 365d";

/// What `text` begins with.
fn leading(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c: char| !belongs(c)).unwrap_or(text.len());
    &text[..end]
}

/// A decimal number of units. Computed in whole numbers: floating point would add 20 KiB of tables
/// to the program.
fn nanos_of(number: &str, nanos_each: u128) -> Result<u128, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(EXPECTED.to_owned());
    }
    let whole = whole.parse::<u64>().map_err(|_| OUT_OF_RANGE)?;
    // 18 digits are enough for every unit: further ones are less than a nanosecond.
    let mut places = (0_u128, 1_u128);
    for digit in fraction.bytes().take(18) {
        places = (places.0 * 10 + u128::from(digit - b'0'), places.1 * 10);
    }
    Ok(u128::from(whole) * nanos_each + places.0 * nanos_each / places.1)
}

/// As [`duration`], but at least 100 ms: a process takes that long to end after SIGKILL, and a
/// typing error in a unit must not stop each server at once.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < MIN_TIMEOUT {
        return Err("out of range: at least 100ms".to_owned());
    }
    Ok(time)
}

/// Where a report goes: `fd:N`, or the path of a file.
pub fn report(text: &OsStr) -> Result<To, String> {
    let to = match text.as_bytes().strip_prefix(b"fd:") {
        None => Some(To::File(text.to_owned())).filter(|_| !text.is_empty() && text != "-"),
        Some(number) => {
            let number = std::str::from_utf8(number).ok().and_then(digits);
            number.filter(|number| *number >= 2).map(To::Descriptor)
        }
    };
    to.ok_or_else(|| {
        "expected FILE or fd:N with N of 2 or more, since 0 and 1 belong to the server".to_owned()
    })
}

/// A signal by name or number.
pub fn signal(text: &str) -> Result<Signal, String> {
    Signal::parse(text).ok_or_else(|| {
        "expected a signal: a name such as TERM or RTMIN+1, or a number from 1 to 64".to_owned()
    })
}

/// `FROM:TO`. If TO is 0 (`None`), FROM is dropped.
pub fn rewrite(text: &str) -> Result<(Signal, Option<Signal>), String> {
    let (from, to) = text
        .split_once(':')
        .ok_or("expected FROM:TO, two signals (TO 0 drops FROM)")?;
    let to = if to == "0" { None } else { Some(signal(to)?) };
    let from = signal(from)?;
    if matches!(from, Signal::KILL | Signal::STOP) {
        return Err(format!("no process can treat {from} as another signal"));
    }
    Ok((from, to))
}

/// An exit status: 0 to 255, or a signal name for 128 + its number.
pub fn status(text: &str) -> Result<u8, String> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let signal = || Signal::parse(text).map(|signal| 128 + signal.number());
    let status = if is_number { digits(text) } else { signal() };
    status.ok_or_else(|| "expected an exit status from 0 to 255, or a signal name".to_owned())
}

/// A process id that can be watched.
pub fn pid(text: &str) -> Result<i32, String> {
    let pid = digits(text).filter(|pid| *pid > 0);
    pid.ok_or_else(|| "expected a process id, 1 or more".to_owned())
}

pub fn command_name(text: &OsStr) -> Result<OsString, String> {
    if text.is_empty() || text.as_bytes().contains(&b'/') {
        return Err("expected the name of a command, without its path".to_owned());
    }
    Ok(text.to_owned())
}

/// A socket: `unix:PATH`.
pub fn socket(text: &OsStr) -> Result<PathBuf, String> {
    match text.as_bytes().strip_prefix(b"unix:") {
        Some(path) if !path.is_empty() => Ok(OsStr::from_bytes(path).into()),
        _ => Err("expected unix:PATH".to_owned()),
    }
}

/// `PATH=VALUE`, which names messages.
pub fn matching(text: &str) -> Result<Match, String> {
    let expected = || "expected PATH=VALUE, such as method=session/prompt".to_owned();
    let (path, value) = text.split_once('=').ok_or_else(expected)?;
    let path: Vec<String> = path.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err(expected());
    }
    if path.len() > MAX_PATH {
        return Err(format!("a path has at most {MAX_PATH} members"));
    }
    let value = value.to_owned();
    Ok(Match { path, value })
}

/// The value of a switch in a variable.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected 1 or 0 (true, false, yes, no, on, off)".to_owned()),
    }
}

/// How much is logged: 0, 1, or 2 and more.
pub fn verbosity(text: &str) -> Result<u8, String> {
    let count = text.parse().map_err(|_| "expected 0, 1 or 2");
    Ok(count.map(|count: u8| count.min(2))?)
}

/// A filter of messages in `env_logger`'s form, such as `debug` or
/// `treaper::tree::kill=trace,info`. Modules of other crates are refused: they log nothing, so with
/// such a filter there would be no messages at all.
pub fn log_filter(text: &str) -> Result<String, String> {
    let is_level = |text: &str| text.trim().parse::<log::LevelFilter>().is_ok();
    let is_module = |text: &str| matches!(text.trim().split("::").next(), Some("treaper"));
    let (directives, pattern) = text.split_once('/').unwrap_or((text, ""));
    let mut directives = directives.split(',').filter(|text| !text.trim().is_empty());
    let good = directives.all(|directive| match directive.split_once('=') {
        Some((module, level)) => is_module(module) && is_level(level),
        None => is_level(directive) || is_module(directive),
    });
    if good && !pattern.contains('/') {
        return Ok(text.to_owned());
    }
    Err(
        "expected levels (off, error, warn, info, debug, trace), for modules treaper::NAME=LEVEL"
            .to_owned(),
    )
}
