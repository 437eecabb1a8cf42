//! The two processes of treaper, and what they share.
#![forbid(unsafe_code)]

pub mod board;
pub mod context;
pub mod link;
pub mod monitor;
pub mod shim;
