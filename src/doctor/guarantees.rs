//! The guarantees: what is left of the tree after an event, at each level of containment.
//!
//! `--doctor` prints this table, and `tests/docs.rs` writes it into README.md and the manual.
#![forbid(unsafe_code)]

/// One row: an event, and what is left after it with `group`, `cgroup` and `pidns`. A number in brackets refers to a
/// note. Each row fits into the 80 columns of a manual.
pub type Row = (&'static str, [&'static str; 3]);

/// The event of a row that depends on the privileges of treaper.
pub const OTHER_UIDS: &str = "processes of another uid";

pub const ROWS: [Row; 12] = [
    ("the host ends, crashes or is SIGKILLed", ["nothing"; 3]),
    ("the same, but stdin stays open", ["nothing"; 3]),
    ("the same, behind npx, make, sh -c [1]", ["nothing"; 3]),
    ("the host's process group is SIGKILLed", ["nothing"; 3]),
    ("the server itself is SIGKILLed", ["nothing"; 3]),
    ("the shim or the monitor is SIGKILLed", ["nothing"; 3]),
    (
        "both SIGKILLed before the stop is over",
        ["some [2]", "some [2]", "nothing"],
    ),
    (
        "with --no-guard, treaper is SIGKILLed",
        ["some [2]", "some [2]", "nothing"],
    ),
    ("daemons, ignored SIGTERM, fork bombs", ["nothing"; 3]),
    (OTHER_UIDS, ["these [3]", "nothing [4]", "nothing"]),
    (
        "started by others (docker exec, D-Bus)",
        ["these", "these [5]", "these"],
    ),
    ("processes that SIGKILL cannot end", ["these [6]"; 3]),
];

/// The notes, from 1 on.
pub const NOTES: [&str; 6] = [
    "A shell in a session of its own (setsid, Node's detached) hides the host: add --watch-ancestor NAME.",
    "Processes that ignore the stop signal, or did not get it. The kernel sends it to the server alone.",
    "Nothing if treaper runs as root. With --no-new-privs there are no such processes.",
    "Except a process that the server moves out of a group delegated to its user. --no-new-privs prevents that.",
    "Except processes that are put into the control group of the tree.",
    "They are in uninterruptible sleep, or a debugger outside of the tree holds them. They are listed, and the exit status is 123.",
];

/// `text` without the number of its note.
#[must_use]
pub fn plain(text: &str) -> &str {
    text.split(" [").next().unwrap_or(text)
}

/// The number of the note at the end of `text`.
#[must_use]
pub fn number_of_note(text: &str) -> Option<usize> {
    let (_, mark) = text.rsplit_once(" [")?;
    mark.trim_end_matches(']').parse().ok()
}
