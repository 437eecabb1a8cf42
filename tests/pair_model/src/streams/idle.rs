//! Left out: `--idle` is a source of one more trigger.
use std::time::Duration;

use crate::output::error::Error;
use crate::sys::poll::Writes;

#[derive(Debug)]
pub struct Idle {
    pub writes: Writes,
}

pub fn start(_: Duration) -> Result<Idle, Error> {
    Err(Error::new("left out"))
}

impl Idle {
    pub fn take_writes(&mut self) {
        self.writes.never()
    }
    pub fn set_running(&mut self, _: bool) {
        self.writes.never()
    }
    pub fn stand_still(&mut self) {
        self.writes.never()
    }
    pub fn ends_at(&self) -> Option<Duration> {
        self.writes.never()
    }
    pub fn is_over(&mut self) -> bool {
        self.writes.never()
    }
}
