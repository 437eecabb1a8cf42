//! What each parser must do for any input: it never crashes, it accepts exactly what was written, and it agrees with
//! another reader of the same text.
//!
//! `PROPTEST_CASES=100000` tries longer. A failure is shrunk to the smallest input.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::format_collect,
    reason = "a test: short before fast"
)]

#[path = "parsers/command_line.rs"]
mod command_line;
#[path = "parsers/files.rs"]
mod files;
#[path = "parsers/other_inits.rs"]
mod other_inits;
#[path = "parsers/relay.rs"]
mod relay;
#[path = "parsers/values.rs"]
mod values;

use proptest::test_runner::Config;

/// Writes no file: the output shows what failed.
fn config() -> Config {
    Config {
        failure_persistence: None,
        ..Config::default()
    }
}
