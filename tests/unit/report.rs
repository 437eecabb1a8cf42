//! What only `src/output/report.rs` itself can see of its work.

use super::*;

#[test]
fn dates_are_those_of_the_calendar() {
    for (secs, text) in [
        (0, "1970-01-01T00:00:00.007Z"),
        (951_782_399, "2000-02-28T23:59:59.007Z"),
        (951_782_400, "2000-02-29T00:00:00.007Z"),
        (951_868_800, "2000-03-01T00:00:00.007Z"),
        (1_735_689_599, "2024-12-31T23:59:59.007Z"),
        (1_735_689_600, "2025-01-01T00:00:00.007Z"),
        (4_107_542_400, "2100-03-01T00:00:00.007Z"),
    ] {
        assert_eq!(date(Duration::new(secs, 7_000_000)), text);
    }
}

#[test]
fn signals_and_seconds_are_written_as_the_manual_says() {
    let names = [15, 35].map(|number| signal_name(Signal::from_number(number).unwrap()));
    assert_eq!(names, ["TERM", "RTMIN+1"]);
    let time = Duration::from_nanos(1_500_000_999);
    assert_eq!(json!(seconds(time)).to_string(), "1.5");
}
