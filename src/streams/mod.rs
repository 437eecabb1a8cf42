//! What comes in: signals, ends of processes, hang-ups, and notifications of the server.
#![forbid(unsafe_code)]

pub mod forward;
pub mod idle;
pub mod notify;
pub mod watch;
