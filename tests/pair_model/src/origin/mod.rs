//! The host is the parent, and nothing else is found out.
pub mod hosts;
pub mod place;
pub mod unit;
