//! Left out.
use std::convert::Infallible;
use std::os::fd::OwnedFd;

use crate::sys::Errno;
use crate::sys::pid::Pid;

#[derive(Debug)]
pub struct Cgroup {
    pub dir: OwnedFd,
    pub events: OwnedFd,
    never: Infallible,
}

impl Cgroup {
    pub fn is_populated(&self) -> Result<bool, Errno> {
        match self.never {}
    }
    pub fn memory_peak(&self) -> Option<u64> {
        match self.never {}
    }
    pub fn expel(&self, _: &[i32]) {
        match self.never {}
    }
    pub fn kill(&self) -> bool {
        match self.never {}
    }
    pub fn members(&self, _: &mut dyn FnMut(Pid)) {
        match self.never {}
    }
}
