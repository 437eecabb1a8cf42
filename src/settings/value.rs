//! How users write values: durations, signals, words.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::output::report::To;
use crate::sys::signal::Signal;

/// The longest duration that can be set: a year.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest `--kill-timeout`. With less, a process that is just ending would be reported as a survivor.
const MIN_KILL_TIMEOUT: Duration = Duration::from_millis(100);
/// A typing error in a unit must not stop each server at once.
const MIN_IDLE: Duration = Duration::from_millis(100);

/// `500ms`, `5s`, `2m`, `1h`, or plain seconds (`5`, `0.5`), exact to the nanosecond.
///
/// Computed in whole numbers: floating point would add 20 KiB of tables to the program.
///
/// # Errors
/// A sentence that says what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 500ms, 5s, 2m or plain seconds".to_owned();
    let end = text
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let nanos_each: u128 = match unit {
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(expected()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(expected());
    }
    let out_of_range = || "out of range: at most 365 days (8760h)".to_owned();
    let nanos = whole.parse::<u64>().map_err(|_| out_of_range())?;
    let nanos = u128::from(nanos) * nanos_each;
    // 18 digits are enough for every unit: further ones are less than a nanosecond.
    let mut places = (0_u128, 1_u128);
    for digit in fraction.bytes().take(18) {
        places = (places.0 * 10 + u128::from(digit - b'0'), places.1 * 10);
    }
    let nanos = nanos + places.0 * nanos_each / places.1;
    match u64::try_from(nanos).map(Duration::from_nanos) {
        Ok(duration) if duration <= MAX_DURATION => Ok(duration),
        _ => Err(out_of_range()),
    }
}

/// As [`duration`], but at least 100 ms: on a busy machine a process takes that long to end after SIGKILL.
///
/// # Errors
/// A sentence that says what is expected.
pub fn kill_timeout(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| {
        if time < MIN_KILL_TIMEOUT {
            Err("out of range: at least 100ms, since a process needs time to end".to_owned())
        } else {
            Ok(time)
        }
    })
}

/// As [`duration`], at least 100 ms.
///
/// # Errors
/// A sentence that says what is expected.
pub fn idle(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| {
        if time < MIN_IDLE {
            Err(
                "out of range: at least 100ms; without this option the host may be silent"
                    .to_owned(),
            )
        } else {
            Ok(time)
        }
    })
}

/// Where a report goes: `fd:N`, or the path of a file.
///
/// # Errors
/// A sentence that says what is expected.
pub fn report(text: &OsStr) -> Result<To, String> {
    let expected = || {
        "expected FILE or fd:N with N of 2 or more, since 0 and 1 belong to the server".to_owned()
    };
    let Some(number) = text.as_bytes().strip_prefix(b"fd:") else {
        let path = Some(text).filter(|text| !text.is_empty());
        return path
            .map(|path| To::File(path.to_owned()))
            .ok_or_else(expected);
    };
    let number = std::str::from_utf8(number).ok();
    let number = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .and_then(|text| text.parse().ok())
        .filter(|number| *number >= 2)
        .map(To::Descriptor)
        .ok_or_else(expected)
}

/// A signal by name or number.
///
/// # Errors
/// A sentence that says what is expected.
pub fn signal(text: &str) -> Result<Signal, String> {
    Signal::parse(text).ok_or_else(|| {
        "expected a signal: a name such as TERM or RTMIN+1, or a number from 1 to 64".to_owned()
    })
}

/// `FROM:TO`. If TO is 0 (`None`), FROM is dropped.
///
/// # Errors
/// A sentence that says what is expected.
pub fn rewrite(text: &str) -> Result<(Signal, Option<Signal>), String> {
    let (from, to) = text
        .split_once(':')
        .ok_or("expected FROM:TO, two signals (TO 0 drops FROM)")?;
    let to = if to == "0" { None } else { Some(signal(to)?) };
    Ok((signal(from)?, to))
}

/// An exit status: 0 to 255, or a signal name for 128 + its number.
///
/// # Errors
/// A sentence that says what is expected.
pub fn status(text: &str) -> Result<u8, String> {
    let expected = || "expected an exit status from 0 to 255, or a signal name".to_owned();
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| expected());
    }
    Signal::parse(text)
        .map(|signal| 128 + signal.number())
        .ok_or_else(expected)
}

/// A process id that can be watched.
///
/// # Errors
/// A sentence that says what is expected.
pub fn pid(text: &str) -> Result<i32, String> {
    text.parse()
        .ok()
        .filter(|pid| *pid > 0 && !text.starts_with('+'))
        .ok_or_else(|| "expected a process id, 1 or more".to_owned())
}

/// The value of a switch in a variable.
///
/// # Errors
/// A sentence that says what is expected.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("expected 1 or 0 (true, false, yes, no, on, off)".to_owned()),
    }
}

/// A filter of messages in `env_logger`'s form, such as `debug` or `treaper::tree::kill=trace,info`. Modules of other
/// crates are refused: they log nothing, so with such a filter there would be no messages at all.
///
/// # Errors
/// A sentence that says what is expected.
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

/// One of a few words.
///
/// # Errors
/// A sentence that lists them.
pub fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("expected one of {}", all.join(", "))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_a_range() {
        for (text, millis) in [
            ("0", 0),
            ("500ms", 500),
            ("5s", 5000),
            ("5", 5000),
            ("0.5", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in [
            "",
            "s",
            "5x",
            "-1",
            "1 s",
            "1e9",
            "inf",
            "nan",
            "5sm",
            "+5",
            ".",
            "1.2.3",
            "9000h",
            "99999999999999999999",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn log_filters_name_levels_and_modules_of_treaper() {
        for good in [
            "debug",
            "OFF",
            "treaper",
            "treaper::tree::kill=trace,info",
            " warn , treaper::tree::reap = debug ,",
            "debug/pid 7",
            ",",
        ] {
            assert_eq!(log_filter(good).as_deref(), Ok(good));
        }
        for bad in [
            "bogus",
            "debug,bogus",
            "treaper=bogus",
            "treaper==debug",
            "treaper=",
            "=debug",
            "hyper=debug",
            "treaperx",
            "1",
            "debug/a/b",
            "debug;info",
        ] {
            assert!(log_filter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rewrites_and_statuses_take_names_and_numbers() {
        assert_eq!(
            rewrite("USR1:0"),
            Ok((Signal::parse("USR1").unwrap(), None))
        );
        assert_eq!(rewrite("15:QUIT"), Ok((Signal::TERM, Signal::parse("3"))));
        for bad in ["", "USR1", "USR1:", ":0", "0:1", "1:65"] {
            assert!(rewrite(bad).is_err(), "{bad}");
        }
        assert_eq!(
            (status("143"), status("TERM"), status("0")),
            (Ok(143), Ok(143), Ok(0))
        );
        for bad in ["256", "", "x", "-1"] {
            assert!(status(bad).is_err(), "{bad}");
        }
    }
}
