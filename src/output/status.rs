//! The exit statuses of treaper. Their numbers are only in this file.
#![forbid(unsafe_code)]

use std::fmt;

use crate::sys::signal::Signal;

/// Some processes could not be killed.
pub const SURVIVORS: u8 = 123;
/// A cancelled turn did not end in time.
pub const CANCEL_TIMEOUT: u8 = 124;
/// treaper itself failed or was misused; the server never started.
pub const OWN_FAILURE: u8 = 125;
/// The command was found but is not executable.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    Exited(u8),
    /// The number of the signal.
    Killed(u8),
}

impl Ended {
    /// As in a shell's `$?`: the exit status, or 128 + the number of the signal.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
        }
    }

    /// As one non-zero number, for shared memory.
    #[must_use]
    pub const fn encode(self) -> u32 {
        match self {
            Self::Exited(code) => 0x100 | code as u32,
            Self::Killed(signal) => 0x200 | signal as u32,
        }
    }

    /// The reverse of [`Self::encode`]; `None` for zero.
    #[must_use]
    pub const fn decode(number: u32) -> Option<Self> {
        match number >> 8 {
            1 => Some(Self::Exited(number as u8)),
            2 => Some(Self::Killed(number as u8)),
            _ => None,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exited with status {code}"),
            Self::Killed(number) => match Signal::from_number(number.into()) {
                Some(signal) => write!(f, "was ended by {signal}"),
                None => write!(f, "was ended by signal {number}"),
            },
        }
    }
}

/// The statuses that `--success` maps to 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuccessSet([u64; 4]);

impl SuccessSet {
    /// Adds an exit status.
    pub fn insert(&mut self, code: u8) {
        self.0[usize::from(code / 64)] |= 1 << (code % 64);
    }

    /// The exit status of treaper for the server's `code`.
    #[must_use]
    pub fn map(&self, code: u8) -> u8 {
        if self.0[usize::from(code / 64)] & (1 << (code % 64)) == 0 {
            code
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_decoded_as_it_was_encoded() {
        for n in 0..=255 {
            assert_eq!(
                Ended::decode(Ended::Exited(n).encode()),
                Some(Ended::Exited(n))
            );
        }
        for n in 1..=64 {
            assert_eq!(
                Ended::decode(Ended::Killed(n).encode()),
                Some(Ended::Killed(n))
            );
            assert_eq!(Ended::Killed(n).code(), 128 + n);
        }
        assert_eq!(Ended::decode(0), None);
    }

    #[test]
    fn an_end_is_shown_in_words() {
        for (ended, text) in [
            (Ended::Exited(0), "exited with status 0"),
            (Ended::Killed(15), "was ended by SIGTERM"),
            (Ended::Killed(35), "was ended by SIGRTMIN+1"),
        ] {
            assert_eq!(ended.to_string(), text);
        }
    }

    #[test]
    fn only_what_was_inserted_maps_to_success() {
        let mut set = SuccessSet::default();
        set.insert(143);
        for code in 0..=255 {
            assert_eq!(set.map(code), if code == 143 { 0 } else { code });
        }
    }
}
