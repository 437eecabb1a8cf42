//! What comes in: signals, ends of processes, hang-ups, and notifications of the server.

pub mod forward;
pub mod idle;
pub mod notify;
pub mod watch;
