//! How treaper behaves differently under the name of another init, apart from its options.

use crate::sys::signal::Signal;
use crate::sys::startup::Standing;

/// The kind of name under which treaper was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guise {
    #[default]
    Own,
    /// That of another init: its users expect its exit statuses, and choose the deadlines
    /// themselves.
    OtherInit,
}

/// How treaper behaves apart from its options. The default is that of its own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    pub guise: Guise,
    /// The stop signal after the end of the parent. `None`: the same as after every other trigger.
    pub parent_signal: Option<Signal>,
    /// Whether SIGTSTP, SIGTTIN and SIGTTOU also suspend treaper, after they were forwarded.
    pub suspends_with_signals: bool,
    /// What that init lets the server lead. `None`: what treaper leads.
    pub standing: Option<Standing>,
}
