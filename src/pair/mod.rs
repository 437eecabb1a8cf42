//! The two processes of treaper, and what they share.

pub mod board;
pub mod context;
pub mod link;
pub mod monitor;
pub mod shim;
