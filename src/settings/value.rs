//! How users write values. Each error says what is expected.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::output::report::To;
use crate::settings::config::Match;
use crate::sys::signal::{Signal, digits};

/// The longest duration that can be set: a year.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// `500ms`, `5s`, `2m`, `1h`, `1d`, such parts joined (`1m30s`), or plain seconds (`5`, `0.5`).
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let (mut rest, mut nanos) = (text, 0_u128);
    loop {
        let after = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
        let next = after.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let number = &rest[..rest.len() - after.len()];
        let unit = &after[..after.len() - next.len()];
        rest = next;
        let nanos_each = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "" if number.len() == text.len() => 1_000_000_000,
            _ => return Err(EXPECTED),
        };
        nanos = nanos.saturating_add(nanos_of(number, nanos_each)?);
        if rest.is_empty() {
            break;
        }
    }
    let time = u64::try_from(nanos).map(Duration::from_nanos).ok();
    let time = time.filter(|time| *time <= MAX_DURATION);
    time.ok_or(OUT_OF_RANGE)
}

const EXPECTED: &str = "expected a duration such as 500ms, 5s, 1m30s or plain seconds";
const OUT_OF_RANGE: &str = "out of range: at most 365d";

/// A decimal number of units. Floating point would add 20 KiB of tables to the program.
fn nanos_of(number: &str, nanos_each: u128) -> Result<u128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(EXPECTED);
    }
    // 18 digits are enough for every unit: further ones are less than a nanosecond.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let [Ok(whole), Ok(part)] = [whole, fraction].map(str::parse::<u64>) else {
        return Err(OUT_OF_RANGE);
    };
    let [whole, part] = [whole, part].map(|count| u128::from(count) * nanos_each);
    Ok(whole + part / 10_u128.pow(fraction.len() as u32))
}

/// As [`duration`], but at least 100 ms: a process takes that long to end after SIGKILL, and a
/// typing error in a unit must not stop each server at once.
pub fn timeout(text: &str) -> Result<Duration, &'static str> {
    let time = Some(duration(text)?).filter(|time| *time >= Duration::from_millis(100));
    time.ok_or("out of range: at least 100ms")
}

/// `fd:N`, or the path of a file. A path of a descriptor (`>(COMMAND)` of a shell) is that.
pub fn report(text: &OsStr) -> Result<To, &'static str> {
    let forms = ["fd:", "/dev/fd/", "/proc/self/fd/"];
    let number_of = |form: &str| text.as_bytes().strip_prefix(form.as_bytes());
    let is_path = !["", "-", "/dev/stdout"].iter().any(|other| text == *other);
    let to = match forms.into_iter().find_map(number_of) {
        None => is_path.then(|| To::File(text.to_owned())),
        Some(number) => {
            let number = std::str::from_utf8(number).ok().and_then(digits);
            number.filter(|number| *number >= 2).map(To::Descriptor)
        }
    };
    to.ok_or("expected FILE or fd:N with N of 2 or more, since 0 and 1 belong to the server")
}

pub fn signal(text: &str) -> Result<Signal, &'static str> {
    Signal::parse(text)
        .ok_or("expected a signal: a name such as TERM or RTMIN+1, or a number from 1 to 64")
}

/// `FROM:TO`. If TO is 0 (`None`), FROM is dropped.
pub fn rewrite(text: &str) -> Result<(Signal, Option<Signal>), &'static str> {
    let parts = text.split_once(':');
    let (from, to) = parts.ok_or("expected FROM:TO, two signals (TO 0 drops FROM)")?;
    let to = if to == "0" { None } else { Some(signal(to)?) };
    match signal(from)? {
        Signal::KILL | Signal::STOP => Err("SIGKILL and SIGSTOP cannot be rewritten"),
        from => Ok((from, to)),
    }
}

/// An exit status: 0 to 255, or a signal name for 128 + its number.
pub fn status(text: &str) -> Result<u8, &'static str> {
    let of_signal = || Signal::parse(text).map(|signal| 128 + signal.number());
    let status = digits(text).or_else(of_signal);
    status.ok_or("expected an exit status from 0 to 255, or a signal name")
}

pub fn pid(text: &str) -> Result<i32, &'static str> {
    let pid = digits(text).filter(|pid| *pid > 0);
    pid.ok_or("expected a process id, 1 or more")
}

pub fn command_name(text: &OsStr) -> Result<OsString, &'static str> {
    let is_name = !text.is_empty() && !text.as_bytes().contains(&b'/');
    let name = is_name.then(|| text.to_owned());
    name.ok_or("expected the name of a command, without its path")
}

/// `unix:PATH`.
pub fn socket(text: &OsStr) -> Result<PathBuf, &'static str> {
    match text.as_bytes().strip_prefix(b"unix:") {
        Some(path) if !path.is_empty() => Ok(OsStr::from_bytes(path).into()),
        _ => Err("expected unix:PATH"),
    }
}

/// `PATH=VALUE`, which names messages.
pub fn matching(text: &str) -> Result<Match, &'static str> {
    let (path, value) = text.split_once('=').unwrap_or_default();
    let path: Vec<String> = path.split('.').map(str::to_owned).collect();
    let (value, is_whole) = (value.to_owned(), !path.contains(&String::new()));
    match path.len() {
        _ if !is_whole => Err("expected PATH=VALUE, such as method=session/prompt"),
        17.. => Err("a path has at most 16 members"),
        _ => Ok(Match { path, value }),
    }
}

/// The value of a switch in a variable.
pub fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected 1 or 0 (true, false, yes, no, on, off)"),
    }
}

/// How much is logged: 0, 1, or 2 and more.
pub fn verbosity(text: &str) -> Result<u8, &'static str> {
    let count = text.parse().map(|count: u8| count.min(2));
    count.map_err(|_| "expected 0, 1 or 2")
}

/// A filter of messages in `env_logger`'s form, such as `treaper::tree::kill=trace,info`. Other
/// crates are refused: a filter of them alone would hide all messages.
pub fn log_filter(text: &str) -> Result<String, &'static str> {
    let is_level = |text: &str| text.trim().parse::<log::LevelFilter>().is_ok();
    let is_module = |text: &str| matches!(text.trim().split("::").next(), Some("treaper"));
    let mut directives = text.split(',').filter(|text| !text.trim().is_empty());
    let good = directives.all(|directive| match directive.split_once('=') {
        Some((module, level)) => is_module(module) && is_level(level),
        None => is_level(directive) || is_module(directive),
    });
    good.then(|| text.to_owned()).ok_or(
        "expected levels (off, error, warn, info, debug, trace), for modules treaper::NAME=LEVEL",
    )
}
