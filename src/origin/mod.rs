//! Where this run comes from: which process started it, and what treaper was given.
#![forbid(unsafe_code)]

pub mod hosts;
pub mod place;
