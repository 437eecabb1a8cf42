//! Left out: which processes may connect.
pub struct Family;

impl Family {
    pub fn of_this_process(_: &[i32]) -> Self {
        Self
    }
}
