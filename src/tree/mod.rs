//! The tree: how its processes are found, signalled and reaped.
#![forbid(unsafe_code)]

pub mod kill;
pub mod reap;
pub mod walk;
