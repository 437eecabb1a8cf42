//! Durations, signals, rewrites, statuses, pids: an accepted value is in range, and means the same in its plain form.
#![no_main]

use treaper::sys::signal::Signal;
use treaper::settings::value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(time) = value::duration(text) {
        assert!(time <= value::MAX_DURATION, "{time:?}");
        let plain = format!("{}.{:09}s", time.as_secs(), time.subsec_nanos());
        assert_eq!(value::duration(&plain), Ok(time));
    }
    if let Ok(time) = value::timeout(text) {
        assert_eq!(value::duration(text), Ok(time));
        assert!(time.as_millis() >= 100, "{time:?}");
    }
    if let Ok(signal) = value::signal(text) {
        is_the_same_by_number(signal);
    }
    if let Ok((from, to)) = value::rewrite(text) {
        [Some(from), to]
            .into_iter()
            .flatten()
            .for_each(is_the_same_by_number);
        assert!(text.contains(':'));
    }
    if let Ok(status) = value::status(text) {
        assert_eq!(value::status(&status.to_string()), Ok(status));
    }
    assert!(value::pid(text).is_ok_and(|pid| pid > 0) || value::pid(text).is_err());
    let _ = value::log_filter(text);
});

fn is_the_same_by_number(signal: Signal) {
    assert!((1..=64).contains(&signal.number()));
    assert_eq!(value::signal(&signal.number().to_string()), Ok(signal));
}
