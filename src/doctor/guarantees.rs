//! The guarantees: what is left of the tree after an event, at each level of containment.
//! `--doctor` prints this table, and `tests/docs.rs` writes it into README.md and the manual.

/// Depends on the privileges of treaper.
pub const OTHER_UIDS: &str = "processes of another uid";
/// The end of the host shows these three, and that of stdin the first and the last one.
pub const HOST_ENDS: &str = "the host ends, crashes or is SIGKILLed";
pub const HOST_ENDS_ALONE: &str = "the same, but stdin stays open";
pub const HOST_ENDS_BEHIND: &str = "the same, behind npx, make, sh -c";
pub const GROUP_ENDS: &str = "the host's process group is SIGKILLed";
pub const ONE_ENDS: &str = "the shim or the monitor is SIGKILLed";

/// The rest of the tree is left if both processes of treaper are gone.
pub const UNGUARDED: [&str; 3] = ["some [3]", "some [3]", "none"];

/// Each event, and what is left after it with `group`, `cgroup` and `pidns`. A number in brackets
/// refers to a note. Each row fits into the 80 columns of a manual.
pub const ROWS: [(&str, [&str; 3]); 13] = [
    (HOST_ENDS, ["none"; 3]),
    (HOST_ENDS_ALONE, ["none"; 3]),
    (HOST_ENDS_BEHIND, ["none [1]"; 3]),
    ("docker/kubectl exec -it: client is gone", ["all [2]"; 3]),
    (GROUP_ENDS, ["none"; 3]),
    ("the server itself is SIGKILLed", ["none"; 3]),
    (ONE_ENDS, ["none"; 3]),
    ("both SIGKILLed before the stop is over", UNGUARDED),
    ("with --no-guard, treaper is SIGKILLed", UNGUARDED),
    ("daemons, ignored SIGTERM, fork bombs", ["none"; 3]),
    (OTHER_UIDS, ["these [4]", "none [5]", "none"]),
    (
        "started by others (docker run, D-Bus)",
        ["these", "these [6]", "these"],
    ),
    ("processes that SIGKILL cannot end", ["these [7]"; 3]),
];

pub const NOTES: [&str; 7] = [
    "If stdin is not a pipe, a script, setsid, npx or make can hide the host; sudo and su always can. Add --watch-ancestor NAME.",
    "The engine keeps the terminal open, so nothing shows that the client is gone. --idle TIME stops the server.",
    "Only the server gets the stop signal, from the kernel. Processes that this does not end survive.",
    "None if treaper has CAP_KILL (root). With --no-new-privs there are no such processes.",
    "Except a process that the server moves out of a group delegated to its user. --no-new-privs prevents that.",
    "Except processes that are put into the control group of the tree.",
    "They are in uninterruptible sleep, or a debugger outside of the tree holds them. They are listed, and the exit status is 123.",
];

/// `text` without the number of its note, and that number.
pub fn split(text: &str) -> (&str, Option<usize>) {
    let (plain, mark) = text.split_once(" [").unwrap_or((text, ""));
    (plain, mark.trim_end_matches(']').parse().ok())
}
