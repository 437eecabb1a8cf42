//! Tests that cannot run here. Rust's test harness knows no result between passed and failed, so a test that returns
//! early counts as passed. `skip` therefore reports it beside the harness.

use std::fs::OpenOptions;
use std::io::Write;

use super::{special, sys};

/// Names a file to which each skip adds a line. `tests/run` counts them.
const LIST: &str = "SKIPPED_TESTS";
/// Set where everything is installed (`.ci/run`): there a skip without an excuse fails its test.
const FORBID: &str = "FORBID_SKIPS";

/// Why a skip is not a mistake in the set-up of the machine.
struct Excuse {
    /// A part of the reason that the test gives.
    reason: &'static str,
    /// Whether the cause is present.
    holds: fn() -> bool,
}

const EXCUSES: &[Excuse] = &[
    // Without root there is no other uid, no mount, no control group that was not delegated, no foreign tracer.
    Excuse {
        reason: "root",
        holds: || !sys::is_root(),
    },
    Excuse {
        reason: "uid of its own",
        holds: || !sys::is_root(),
    },
    Excuse {
        reason: "group",
        holds: || !sys::is_root(),
    },
    Excuse {
        reason: "--contain=",
        holds: || !sys::is_root(),
    },
    Excuse {
        reason: "tracing a stranger",
        holds: || !sys::is_root(),
    },
    // It has the threads of the kernel.
    Excuse {
        reason: "the PID namespace of the machine",
        holds: || !special::is_kernel_thread(2),
    },
    // A feature of the kernel, which cannot be installed.
    Excuse {
        reason: "before Linux 6.5 ",
        holds: || special::kernel() < (6, 5),
    },
    Excuse {
        reason: "before Linux 6.14",
        holds: || special::kernel() < (6, 14),
    },
];

/// What tests need that some builders of packages forbid: `tests/run --offline` leaves these tests out there.
const NEEDS: &str = include_str!("../needs");

/// Checks that `tests/needs` says that this test needs it.
///
/// # Panics
/// If it does not. Such a test would fail for a builder of packages, and nowhere else. Builders are not root.
pub fn needs(what: &str) {
    if sys::is_root() {
        return;
    }
    let thread = std::thread::current();
    // Each test runs in a thread that has its name.
    let Some(test) = thread.name() else {
        return;
    };
    let needed = format!("{what} {test}");
    assert!(
        NEEDS.lines().any(|line| line == needed),
        "tests/needs has no line `{needed}`"
    );
}

/// Reports why a test does nothing, or leaves something out.
///
/// # Panics
/// If skips are forbidden and nothing excuses this one.
pub fn skip(why: &str) {
    let excused = EXCUSES
        .iter()
        .any(|e| why.contains(e.reason) && (e.holds)());
    let forbidden = std::env::var_os(FORBID).is_some_and(|value| !value.is_empty());
    assert!(
        excused || !forbidden,
        "skipped where {FORBID} is set: {why}"
    );
    report(why);
}

fn report(why: &str) {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // The name without the hash that cargo adds to it.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("{program} {test}: {why}\n");
    // Not by `eprintln!`, whose text the harness shows only for failed tests.
    let _ = std::io::stderr().write_all(format!("skipped: {line}").as_bytes());
    if let Some(list) = std::env::var_os(LIST) {
        let mut list = OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)
            .unwrap();
        // One write, since other tests append at the same time.
        list.write_all(line.as_bytes()).unwrap();
    }
}
