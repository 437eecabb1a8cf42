//! As the project's own, but each process of the model has sets of its own, which are empty when it starts.
use crate::actor;
use crate::sys::pid::Pid;

pub struct PidSet(pub u8);

impl PidSet {
    pub fn contains(&self, pid: Pid) -> bool {
        actor::contains(std::ptr::from_ref(self) as usize, pid.get())
    }

    pub fn insert(&self, pid: Pid) -> bool {
        actor::insert(std::ptr::from_ref(self) as usize, pid.get())
    }
}
