//! How treaper behaves differently under the name of another init, apart from its options.

use crate::sys::signal::Signal;
use crate::sys::startup::Standing;

/// How treaper behaves apart from its options. The default is that of its own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Whether it has the name of another init: its users expect its exit statuses, and choose the
    /// deadlines themselves.
    pub is_other_init: bool,
    /// The stop signal after the end of the parent. `None`: the same as after every other trigger.
    pub parent_signal: Option<Signal>,
    /// Whether SIGTSTP, SIGTTIN and SIGTTOU also suspend treaper, after they were forwarded.
    pub suspends_with_signals: bool,
    /// What that init lets the server lead. `None`: what treaper leads.
    pub standing: Option<Standing>,
}
