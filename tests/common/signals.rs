//! Names and sets of signals, as the tests and the actor write them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test support: each user needs another part"
)]

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The first real-time signal that the C library leaves to programs, and the last. musl needs three for itself.
pub const RTMIN: i32 = if cfg!(target_env = "musl") { 35 } else { 34 };
pub const RTMAX: i32 = 64;

/// A name without `SIG`, or a number.
pub fn number(text: &str) -> i32 {
    let known = NAMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|&(_, number)| number);
    known.unwrap_or_else(|| text.parse().unwrap())
}

/// A list as in the text of a tree: `TERM+HUP+34`.
pub fn list(text: &str) -> Vec<i32> {
    text.split('+')
        .filter(|word| !word.is_empty())
        .map(number)
        .collect()
}

/// The name without `SIG`; the number for real-time ones.
pub fn name(number: i32) -> String {
    let known = NAMES.iter().find(|&&(_, n)| n == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Every signal that a program can catch, except for those of the C library.
pub fn catchable() -> Vec<i32> {
    (1..=31)
        .filter(|&n| n != 9 && n != 19)
        .chain(RTMIN..=RTMAX)
        .collect()
}

/// Signals whose default action ends a process.
pub fn ending() -> Vec<i32> {
    let harmless = [17, 18, 19, 20, 21, 22, 23, 28];
    (1..=31)
        .filter(|n| !harmless.contains(n))
        .chain(RTMIN..=RTMAX)
        .collect()
}
