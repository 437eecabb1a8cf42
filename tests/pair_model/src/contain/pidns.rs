//! The fork alone: the set-up of a namespace concerns no other process.
use crate::output::error::Error;
use crate::sys::clone::{self, Fork};

pub fn fork() -> Result<Fork, Error> {
    clone::fork().map_err(|errno| Error::kernel("make a PID namespace", errno))
}
