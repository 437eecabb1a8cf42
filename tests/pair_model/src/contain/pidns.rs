//! The fork alone: the set-up of a namespace concerns no other process.
use crate::output::error::Error;
use crate::sys::clone::{self, Fork};

pub fn fork(in_job: bool) -> Result<Fork, Error> {
    clone::fork(in_job).map_err(|errno| Error::kernel("make a PID namespace", errno))
}
