//! What no option sets: how treaper differs when it has the name of another init.
#![forbid(unsafe_code)]

use crate::sys::signal::Signal;

/// Whose name treaper was started under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    #[default]
    Own,
    /// Users of another init expect its exit statuses, and stop it with their own patience.
    OtherInit,
}

/// How treaper behaves apart from its options; the default is its own manner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    pub name: Name,
    /// The stop signal after the end of the parent. `None`: the same one as after every other trigger.
    pub parent_signal: Option<Signal>,
    /// Whether SIGTSTP, SIGTTIN and SIGTTOU also suspend treaper, after they were forwarded.
    pub suspends_with_signals: bool,
}
