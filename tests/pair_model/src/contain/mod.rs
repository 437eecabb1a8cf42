//! Left out: control groups. The namespace is that of the kernel of the model.
pub mod cgroup;
pub mod pidns;

pub use treaper::contain::Level;

use crate::output::error::Error;
use cgroup::Cgroup;

#[derive(Debug, Default)]
pub enum Containment {
    #[default]
    Group,
    Pidns,
}

impl Containment {
    pub fn prepare(level: Level) -> Result<Self, Error> {
        Ok(match level {
            Level::Group | Level::Cgroup => Self::Group,
            Level::Pidns => Self::Pidns,
        })
    }

    pub const fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    pub const fn is_namespace(&self) -> bool {
        matches!(self, Self::Pidns)
    }
}
