//! Where this run comes from: which process started it, and what treaper was given.

pub mod hosts;
pub mod place;
pub mod unit;
