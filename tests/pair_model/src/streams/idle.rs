//! Left out: `--idle` is a source of one more trigger.
use std::convert::Infallible;
use std::time::Duration;

use crate::output::error::Error;
use crate::sys::poll::Writes;

#[derive(Debug)]
pub struct Idle(Infallible);

pub fn open() -> Result<Writes, Error> {
    Err(Error::Gone("left out"))
}

impl Idle {
    pub fn start(writes: Writes, _: Duration) -> Self {
        match writes.0 {}
    }
    pub fn fd(&self) -> i32 {
        match self.0 {}
    }
    pub fn take_writes(&mut self) {
        match self.0 {}
    }
    pub fn set_running(&mut self, _: bool) {
        match self.0 {}
    }
    pub fn stand_still(&mut self) {
        match self.0 {}
    }
    pub fn ends_at(&self) -> Option<Duration> {
        match self.0 {}
    }
    pub fn is_over(&mut self) -> bool {
        match self.0 {}
    }
}
