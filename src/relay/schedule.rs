//! Which writer's message goes to the server next. Pure.
#![forbid(unsafe_code)]

/// The writer of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// stdin.
    Host,
    /// The connection in this place.
    Other(usize),
}

/// The order: after each message of the host, each other writer has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    /// The other writers that have had their message since the last one of the host, one bit each.
    served: u64,
}

impl Schedule {
    /// `host`: it has bytes. `others`: the other writers that have a complete message, one bit each.
    pub fn next(&mut self, host: bool, others: u64) -> Option<Next> {
        let mut waiting = others & !self.served;
        if waiting == 0 {
            self.served = 0;
            if host {
                return Some(Next::Host);
            }
            // The host has nothing, so the next round begins.
            waiting = others;
        }
        if waiting == 0 {
            return None;
        }
        let place = waiting.trailing_zeros();
        self.served |= 1 << place;
        Some(Next::Other(place as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::Next::{Host, Other};
    use super::*;

    #[test]
    fn after_a_message_of_the_host_each_other_writer_has_one() {
        let mut schedule = Schedule::default();
        let mut take = |count: usize, host, others| -> Vec<_> {
            (0..count).map(|_| schedule.next(host, others)).collect()
        };
        let round = [Other(0), Other(3), Host, Other(0), Other(3), Host].map(Some);
        assert_eq!(take(6, true, 0b1001), round);
        // Without the host they take turns all the same, and one that is alone is not kept waiting.
        let round = [Other(1), Other(63), Other(1), Other(63)].map(Some);
        assert_eq!(take(4, false, 1 << 63 | 0b10), round);
        assert_eq!(take(2, false, 0b10), [Other(1), Other(1)].map(Some));
        assert_eq!(take(2, true, 0), [Host, Host].map(Some));
        assert_eq!(take(1, false, 0), [None]);
    }
}
