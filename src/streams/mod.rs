//! What comes in: signals, ends of processes and hang-ups.

pub mod forward;
pub mod idle;
pub mod watch;
