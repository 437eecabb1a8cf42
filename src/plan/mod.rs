//! Decisions, which are pure and use `core` alone, and the loop that asks for them.

pub mod event;
pub mod machine;
pub mod policy;
pub mod record;
