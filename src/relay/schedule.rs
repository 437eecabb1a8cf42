//! Which writer's message goes to the server next. Pure.
#![forbid(unsafe_code)]

/// The place of a writer, as one bit of a word: at most 64 at a time.
pub type Place = u32;

/// The writer of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// stdin.
    Host,
    Writer(Place),
}

/// The order of the turns: after each message of the host, each other writer has one, those that cancel first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    /// The writers that have had a turn since the last message of the host, one bit each.
    served: u64,
    /// The last one that had.
    last: Place,
}

impl Schedule {
    /// The next turn. `host`: it has bytes. `cancel`, `inject`: the writers that have a complete message, one bit each.
    pub fn next(&mut self, host: bool, cancel: u64, inject: u64) -> Option<Turn> {
        let open = |ready: u64| ready & !self.served;
        let (mut ready, mut of) = (open(cancel), cancel);
        if ready == 0 {
            (ready, of) = (open(inject), inject);
        }
        if ready == 0 && host {
            self.served = 0;
            return Some(Turn::Host);
        }
        if ready == 0 {
            // All writers have had their turn, and the host has nothing. So the next round begins.
            self.served = 0;
            of = if cancel == 0 { inject } else { cancel };
            ready = of;
        }
        if of == 0 {
            return None;
        }
        let place = first_after(ready, self.last);
        self.served |= 1 << place;
        self.last = place;
        Some(Turn::Writer(place))
    }
}

/// The first bit after `last`, or else the first one. `bits` is not zero.
fn first_after(bits: u64, last: Place) -> Place {
    let after = if last >= 63 {
        0
    } else {
        bits >> (last + 1) << (last + 1)
    };
    let bits = if after == 0 { bits } else { after };
    bits.trailing_zeros().min(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(
        schedule: &mut Schedule,
        count: usize,
        host: bool,
        cancel: u64,
        inject: u64,
    ) -> Vec<Option<Turn>> {
        (0..count)
            .map(|_| schedule.next(host, cancel, inject))
            .collect()
    }

    #[test]
    fn after_a_message_of_the_host_each_writer_has_one_and_cancel_comes_first() {
        use Turn::{Host, Writer};
        let mut schedule = Schedule::default();
        let found = turns(&mut schedule, 6, true, 0b1000, 0b0011);
        // A round begins with the writer after the last one, so that each writer has its turn.
        assert_eq!(found[0], Some(Writer(3)));
        assert!(
            matches!(found[1..3], [Some(Writer(0)), Some(Writer(1))]),
            "{found:?}"
        );
        assert_eq!(found[3..5], [Some(Host), Some(Writer(3))]);
    }

    #[test]
    fn a_silent_host_keeps_no_writer_waiting() {
        let mut schedule = Schedule::default();
        for _ in 0..3 {
            let mut found = turns(&mut schedule, 3, false, 0, 0b10101);
            found.sort_by_key(|turn| match turn {
                Some(Turn::Writer(place)) => *place,
                _ => 99,
            });
            let expected = [0, 2, 4].map(|place| Some(Turn::Writer(place)));
            assert_eq!(found, expected);
        }
        assert_eq!(schedule.next(false, 0, 0), None);
        assert_eq!(schedule.next(true, 0, 0), Some(Turn::Host));
        assert_eq!(schedule.next(false, 1 << 63, 0), Some(Turn::Writer(63)));
        assert_eq!(schedule.next(false, 1 << 63, 0), Some(Turn::Writer(63)));
    }
}
