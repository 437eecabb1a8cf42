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
