//! The exit statuses of treaper. Their numbers are only in this file.

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

/// The statuses that `--success` maps to 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuccessSet([u64; 4]);

impl SuccessSet {
    /// Adds an exit status.
    pub fn insert(&mut self, code: u8) {
        self.0[usize::from(code / 64)] |= 1 << (code % 64);
    }

    /// The exit status of treaper for the server's `code`.
    pub fn map(&self, code: u8) -> u8 {
        if self.0[usize::from(code / 64)] & (1 << (code % 64)) == 0 {
            code
        } else {
            0
        }
    }
}
