//! Every parser against what it must hold for any input: nothing crashes it, what it accepts is what
//! was written, and it agrees with another reader of the same text.
//!
//! `PROPTEST_CASES=100000` tries longer; a failure is shrunk to the smallest input.
#![allow(
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "a test: short before fast"
)]

#[path = "parsers/files.rs"]
mod files;
#[path = "parsers/other_inits.rs"]
mod other_inits;
#[path = "parsers/values.rs"]
mod values;

use proptest::test_runner::Config;

/// Leaves no file behind: what failed is in the output.
fn config() -> Config {
    Config {
        failure_persistence: None,
        ..Config::default()
    }
}
