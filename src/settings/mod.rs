//! What was asked for: options, variables, and the name that treaper was started under.
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod given;
pub mod manner;
pub mod value;
