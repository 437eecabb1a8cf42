//! Containment: what holds the tree together in addition to the subreaper, the process group and the walk.
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
    /// The same as `group`. The other levels cost time at each start, as measured (`benches/README.md`), or change what
    /// the server sees, so they are used only if the user asks for them.
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

    /// The name of the level that is chosen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto | Self::Group => "group",
            Self::Cgroup => "cgroup",
            Self::Pidns => "pidns",
        }
    }
}

/// The level of this run, prepared.
#[derive(Debug)]
pub enum Containment {
    Group,
    Cgroup(Cgroup),
    /// Entered when the monitor is made.
    Pidns,
}

impl Containment {
    /// The cgroup, if the level has one.
    #[must_use]
    pub fn into_cgroup(self) -> Option<Cgroup> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            Self::Group | Self::Pidns => None,
        }
    }
}

/// Prepares `level`, in the process that becomes the shim.
///
/// # Errors
/// It cannot be used here: the cause and the remedy.
pub fn prepare(level: Level) -> Result<Containment, Error> {
    match level {
        Level::Auto | Level::Group => Ok(Containment::Group),
        Level::Cgroup => Cgroup::make().map(Containment::Cgroup).map_err(|why| {
            Error::Unavailable(format!("--contain=cgroup cannot be used here: {why}"))
        }),
        Level::Pidns => Ok(Containment::Pidns),
    }
}
