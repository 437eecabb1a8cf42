//! Durations, signals, rewrites, statuses, pids, filters: what users write.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use proptest::prelude::*;
use treaper::output::error::Shown;
use treaper::settings::config::Match;
use treaper::settings::value;
use treaper::settings::value::{matching, socket};
use treaper::sys::signal::Signal;

use crate::config;

/// Every spelling of every signal, in capitals and without `SIG`.
fn spellings() -> HashMap<String, u8> {
    let names = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP \
                 TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS";
    let mut all: HashMap<String, u8> = names
        .split_whitespace()
        .map(str::to_owned)
        .zip(1..)
        .collect();
    let more = [
        ("CLD", 17),
        ("POLL", 29),
        ("IOT", 6),
        ("RTMIN", 34),
        ("RTMAX", 64),
    ];
    all.extend(more.map(|(name, number)| (name.to_owned(), number)));
    for n in 0..=30 {
        all.insert(format!("RTMIN+{n}"), 34 + n);
        all.insert(format!("RTMAX-{n}"), 64 - n);
    }
    all
}

/// What the text means, if it means a signal.
fn meaning(text: &str) -> Option<u8> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|number| (1..=64).contains(number));
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    // Zeros in front of the number of a real-time signal change nothing.
    let plain = match name.split_once(['+', '-']) {
        Some((start, number)) if !number.is_empty() => {
            let mark = &name[start.len()..=start.len()];
            let digits = number.trim_start_matches('0');
            format!(
                "{start}{mark}{}",
                if digits.is_empty() { "0" } else { digits }
            )
        }
        _ => name.to_owned(),
    };
    spellings().get(&plain).copied()
}

/// Texts that are nearly signals.
fn like_a_signal() -> impl Strategy<Value = String> {
    let known: Vec<String> = spellings().into_keys().collect();
    let cased =
        (prop::sample::select(known), any::<u32>(), any::<bool>()).prop_map(|(name, bits, sig)| {
            let text = if sig { format!("SIG{name}") } else { name };
            let lower = |(at, c): (usize, char)| {
                if bits >> (at % 32) & 1 == 1 {
                    c.to_ascii_lowercase()
                } else {
                    c
                }
            };
            text.chars().enumerate().map(lower).collect()
        });
    prop_oneof![
        cased,
        "(SIG|sig)?(RTMIN|RTMAX|rtmin)[-+]{0,2}[0-9]{0,3}",
        "[-+ ]?[0-9]{1,3}",
        "\\PC*"
    ]
}

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
        assert_eq!(
            value::duration(text),
            Ok(Duration::from_millis(millis)),
            "{text}"
        );
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
        assert!(value::duration(bad).is_err(), "{bad}");
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
        ",",
    ] {
        assert_eq!(value::log_filter(good).as_deref(), Ok(good));
    }
    for bad in [
        "bogus",
        "debug/pid 7",
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
        assert!(value::log_filter(bad).is_err(), "{bad}");
    }
}

#[test]
fn rewrites_and_statuses_take_names_and_numbers() {
    assert_eq!(
        value::rewrite("USR1:0"),
        Ok((Signal::parse("USR1").unwrap(), None))
    );
    assert_eq!(
        value::rewrite("15:QUIT"),
        Ok((Signal::TERM, Signal::parse("3")))
    );
    for bad in ["", "USR1", "USR1:", ":0", "0:1", "1:65"] {
        assert!(value::rewrite(bad).is_err(), "{bad}");
    }
    assert_eq!(
        (
            value::status("143"),
            value::status("TERM"),
            value::status("0")
        ),
        (Ok(143), Ok(143), Ok(0))
    );
    for bad in ["256", "", "x", "-1"] {
        assert!(value::status(bad).is_err(), "{bad}");
    }
}

#[test]
fn sockets_and_matches_are_checked() {
    assert_eq!(socket("unix:/a b".as_ref()), Ok("/a b".into()));
    for bad in ["", "unix:", "/a", "fd:3", "tcp:1"] {
        assert!(socket(bad.as_ref()).is_err(), "{bad}");
    }
    let found = |path: &[&str], value: &str| {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        let value = value.to_owned();
        Ok(Match { path, value })
    };
    assert_eq!(
        matching("method=session/prompt"),
        found(&["method"], "session/prompt")
    );
    assert_eq!(
        matching("request.subtype=a=b.c"),
        found(&["request", "subtype"], "a=b.c")
    );
    assert_eq!(matching("a="), found(&["a"], ""));
    assert!(matching(&format!("{}a=b", "a.".repeat(15))).is_ok());
    let too_deep = format!("{}a=b", "a.".repeat(16));
    for bad in ["", "=b", "a", "a..b=c", ".a=b", "a.=b", &too_deep] {
        assert!(matching(bad).is_err(), "{bad}");
    }
}

/// One number, or numbers with their units.
fn is_duration(text: &str) -> bool {
    let is_number = |text: &str| {
        let parts: Vec<&str> = text.split('.').collect();
        parts.len() <= 2 && parts.iter().all(|part| !part.is_empty())
    };
    let of_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(of_number);
        let number = &rest[..rest.len() - after.len()];
        let unit = after.find(of_number).map_or(after, |end| &after[..end]);
        if !is_number(number) || !["ms", "s", "m", "h", "d"].contains(&unit) {
            return number.len() == text.len() && is_number(number);
        }
        rest = &after[unit.len()..];
    }
    !text.is_empty()
}

proptest! {
    #![proptest_config(config())]

    /// Against fractions of whole numbers, where nothing is rounded before the end.
    #[test]
    fn a_duration_is_exact(whole in "[0-9]{1,8}", fraction in "(\\.[0-9]{1,15})?", unit in "(ms|s|m|h)?") {
        let digits = fraction.trim_start_matches('.');
        let nanos_each: u128 = match unit.as_str() {
            "ms" => 1_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => 1_000_000_000,
        };
        let number: u128 = format!("{whole}{digits}").parse().unwrap();
        let nanos = number * nanos_each / 10_u128.pow(digits.len() as u32);
        let expected = u64::try_from(nanos).ok().map(Duration::from_nanos).filter(|time| *time <= value::MAX_DURATION);
        let text = format!("{whole}{fraction}{unit}");
        prop_assert_eq!(value::duration(&text).ok(), expected, "{}", text);
    }

    #[test]
    fn a_text_that_is_no_duration_is_refused(text in prop_oneof!["[0-9.msh +e-]{0,8}", "\\PC*"]) {
        if !is_duration(&text) {
            prop_assert!(value::duration(&text).is_err(), "{}", text);
            prop_assert!(value::timeout(&text).is_err(), "{}", text);
        }
    }

    #[test]
    fn a_signal_is_one_of_the_known_spellings(text in like_a_signal()) {
        let signal = Signal::parse(&text);
        prop_assert_eq!(signal.map(Signal::number), meaning(&text), "{}", text);
        // Its name means the same signal. The two that the C library keeps for itself have none.
        let named = signal.filter(|signal| !matches!(signal.number(), 32 | 33));
        prop_assert_eq!(named.and_then(|signal| Signal::parse(&signal.to_string())), named);
    }

    #[test]
    fn a_rewrite_is_two_signals(from in like_a_signal(), mark in "[:;]?:?", to in prop_oneof![like_a_signal(), Just("0".to_owned())]) {
        let text = format!("{from}{mark}{to}");
        let expected = text.split_once(':').and_then(|(from, to)| {
            let to = if to == "0" { Some(None) } else { meaning(to).map(Some) };
            let from = meaning(from).filter(|from| ![libc::SIGKILL, libc::SIGSTOP].contains(&i32::from(*from)));
            Some((from?, to?))
        });
        let found = value::rewrite(&text).ok();
        let found = found.map(|(from, to)| (from.number(), to.map(Signal::number)));
        prop_assert_eq!(found, expected, "{}", text);
    }

    #[test]
    fn a_status_is_a_number_or_a_signal(text in prop_oneof![like_a_signal(), "[0-9]{1,4}"]) {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let expected = if is_number { text.parse().ok() } else { meaning(&text).map(|number| 128 + number) };
        prop_assert_eq!(value::status(&text).ok(), expected, "{}", text);
    }

    #[test]
    fn a_pid_is_digits(text in prop_oneof!["[-+ ]?[0-9]{1,11}", "\\PC*"]) {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let expected = text.parse::<i64>().ok().filter(|pid| digits && (1..=i64::from(i32::MAX)).contains(pid));
        prop_assert_eq!(value::pid(&text).ok().map(i64::from), expected, "{}", text);
    }

    /// Otherwise a mistake would be taken for a setting, and everything or nothing would be logged.
    #[test]
    fn a_filter_is_taken_as_a_whole_or_not_at_all(
        parts in prop::collection::vec(("(treaper(::[a-z]{1,4})?=?)?", "(off|warn|DEBUG|bogus|1)?"), 0..4),
    ) {
        let directives: Vec<String> = parts.iter().map(|(module, level)| format!("{module}{level}")).collect();
        let good = parts.iter().all(|(module, level)| match (module.as_str(), level.as_str()) {
            ("", "bogus" | "1") => false,
            (module, level) if module.ends_with('=') => ["off", "warn", "DEBUG"].contains(&level),
            // The level has become a part of the module's name. Without `::` before it, that is another module.
            (module, level) => module.is_empty() || level.is_empty() || module.contains("::"),
        });
        let text = directives.join(",");
        prop_assert_eq!(value::log_filter(&text).is_ok(), good, "{}", text);
    }
}

#[test]
fn a_shown_name_has_no_control_characters() {
    let shown = |name: &[u8]| Shown(OsStr::from_bytes(name)).to_string();
    assert_eq!(shown("/bin/sé rver'".as_bytes()), "/bin/sé rver'");
    assert_eq!(shown(b"a\xff\xc3b\r"), "a\\xff\\xc3b\\r");
    assert_eq!(shown("\u{1b}[2J\u{9b}2J".as_bytes()), "\\u{1b}[2J\\u{9b}2J");
}
