//! Containment: what holds the tree together beyond "subreaper, process group and walk".
//!
//! Each mechanism has a file of its own, which says what it guarantees.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod pidns;

use crate::output::error::Error;
use cgroup::Cgroup;

/// `--contain`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `group`: the other levels cost time at each start or change what the server sees, as
    /// measured (`benches/README.md`), so they are for those who ask.
    Auto,
    Group,
    Cgroup,
    Pidns,
}

impl Level {
    /// Every level by its name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("group", Self::Group),
        ("cgroup", Self::Cgroup),
        ("pidns", Self::Pidns),
    ];
}

/// What was had.
#[derive(Debug)]
pub enum Containment {
    Group,
    Cgroup(Cgroup),
    /// Entered when the monitor is made.
    Pidns,
}

impl Containment {
    /// The cgroup, if it is one.
    #[must_use]
    pub fn into_cgroup(self) -> Option<Cgroup> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            Self::Group | Self::Pidns => None,
        }
    }
}

/// Gets `level` ready, in the process that will be the shim.
///
/// # Errors
/// It cannot be had here: the cause and the remedy.
pub fn prepare(level: Level) -> Result<Containment, Error> {
    match level {
        Level::Auto | Level::Group => Ok(Containment::Group),
        Level::Cgroup => Cgroup::make().map(Containment::Cgroup).map_err(|why| {
            Error::Unavailable(format!("--contain=cgroup cannot be had here: {why}"))
        }),
        Level::Pidns => Ok(Containment::Pidns),
    }
}
