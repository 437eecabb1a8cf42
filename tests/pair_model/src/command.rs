//! Which program becomes the server does not matter here.
use std::ffi::OsString;

use crate::output::error::Error;
use crate::sys::{Errno, exec::Failure};

pub use treaper::command::{error, execute_last};

#[derive(Debug)]
pub struct Command;

impl Command {
    pub fn prepare(_: &[OsString]) -> Result<Self, Error> {
        Ok(Self)
    }

    pub fn execute(&mut self) -> Failure {
        Failure::NotFound(Errno::NOENT)
    }
}
