//! Which program becomes the server does not matter here.
use std::ffi::{OsStr, OsString};

use crate::output::error::Error;
use crate::sys::exec::{Failure, Image, Text};

pub fn prepare(_: &[OsString]) -> Result<Image, Error> {
    Ok(Image)
}

pub fn error(failure: Failure, name: &OsStr, interpreter: Text) -> Error {
    treaper::spawn::error(failure, name, interpreter)
}
