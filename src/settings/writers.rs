//! What was asked for about several writers of the server's stdin, and about cancelled turns.

use std::path::PathBuf;
use std::time::Duration;

/// How many members a path can name.
pub const MAX_PATH: usize = 16;
/// How often each option that names messages can be given.
pub const MAX_MATCHES: usize = 32;

/// Names messages: JSON objects with this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The names of the members, from the top of the object.
    pub path: Vec<String>,
    /// The text of a string, a number as it is written, `true`, `false` or `null`.
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writers {
    /// The option or the variable that asks for the relay, for messages.
    pub source: String,
    /// The sockets on which other processes give messages for the server's stdin.
    pub sockets: Vec<PathBuf>,
    /// The messages to the server that begin a turn.
    pub turns: Vec<Match>,
    /// The messages to the server that cancel the turn that runs.
    pub cancels: Vec<Match>,
    /// The messages from the server that end a turn. If there are none, the answer of JSON-RPC ends
    /// it.
    pub boundaries: Vec<Match>,
    /// How long a cancelled turn may take.
    pub cancel_drain: Duration,
}

impl Writers {
    /// Whether there is a relay.
    pub fn are_used(&self) -> bool {
        !self.sockets.is_empty() || self.follow_turns()
    }

    /// Whether the relay has to know which turns run. Only then it passes on the server's stdout.
    pub fn follow_turns(&self) -> bool {
        !self.turns.is_empty()
    }
}
