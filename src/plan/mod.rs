//! Decisions, which are pure and use `core` alone, and the loop that asks for them.
#![forbid(unsafe_code)]

pub mod event;
pub mod machine;
pub mod policy;
pub mod supervise;
