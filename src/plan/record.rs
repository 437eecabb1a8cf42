//! The plan in words, from which another process can go on with it.

use core::time::Duration;

use crate::plan::event::Trigger;
use crate::plan::machine::{NEVER, Plan, State, Steps};
use crate::plan::policy::Policy;

/// The most times that a state has.
pub const TIMES: usize = 4;

/// The bit of the head at which the number of the state begins. The lowest byte is the trigger.
const STATE: u32 = 8;
const SERVER_GONE: u64 = 1 << 16;

impl Plan {
    /// The head, and the times of the state in the order of its fields. A new plan is all zeroes.
    pub fn encode(&self) -> (u64, [u64; TIMES]) {
        let (number, times) = match self.state {
            State::Running => (0, [0; TIMES]),
            State::Draining {
                until,
                check,
                unread,
            } => {
                let unread = unread.map_or(0, |unread| unread.saturating_add(1));
                (1, [word(Some(until)), word(check), unread, 0])
            }
            State::Terminating(at) => {
                let times = [at.server, at.rest, at.name, Some(at.kill)];
                (2, times.map(word))
            }
            State::Killing {
                next,
                pause,
                survivors_at: end,
            } => (3, [Some(next), Some(pause), Some(end), None].map(word)),
            State::Done => (4, [0; TIMES]),
            State::Survived => (5, [0; TIMES]),
        };
        let trigger = self.trigger.map_or(0, |trigger| trigger as u64);
        let gone = if self.server_gone { SERVER_GONE } else { 0 };
        (trigger | number << STATE | gone, times)
    }

    /// The reverse of [`Self::encode`]; `None` for words that it has not made.
    pub fn decode(policy: Policy, head: u64, words: [u64; TIMES]) -> Option<Self> {
        let [first, second, third, fourth] = words.map(time);
        let state = match (head & !SERVER_GONE) >> STATE {
            0 => State::Running,
            1 => State::Draining {
                until: first?,
                check: second,
                unread: words[2].checked_sub(1),
            },
            2 => State::Terminating(Steps {
                server: first,
                rest: second,
                name: third,
                kill: fourth?,
            }),
            3 => State::Killing {
                next: first?,
                pause: second?,
                survivors_at: third?,
            },
            4 => State::Done,
            5 => State::Survived,
            _ => return None,
        };
        Some(Self {
            policy,
            state,
            server_gone: head & SERVER_GONE != 0,
            trigger: trigger(head),
        })
    }
}

/// The trigger in the head of a plan.
pub fn trigger(head: u64) -> Option<Trigger> {
    Trigger::from_number(head & 0xff)
}

/// Zero is no time, and the greatest word is [`NEVER`].
pub fn word(time: Option<Duration>) -> u64 {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    time.map_or(0, |time| nanos(time).saturating_add(1))
}

/// The reverse of [`word`].
pub fn time(word: u64) -> Option<Duration> {
    match word {
        u64::MAX => Some(NEVER),
        _ => word.checked_sub(1).map(Duration::from_nanos),
    }
}
