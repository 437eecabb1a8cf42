//! Containment: what holds the tree together in addition to the subreaper, the process group and
//! the walk.
//!
//! Each mechanism has a file of its own, which says what it guarantees.

pub mod cgroup;
pub mod pidns;

use crate::output::error::Error;
use cgroup::Cgroup;

/// `--contain`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The other levels cost time at each start, as measured (`benches/README.md`), or change what
    /// the server sees.
    #[default]
    Group,
    Cgroup,
    Pidns,
}

impl Level {
    /// Every level by its name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("group", Self::Group),
        ("cgroup", Self::Cgroup),
        ("pidns", Self::Pidns),
    ];

    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// The level of this run, with what was made for it: by which kernel object, apart from descent,
/// the processes of the tree are known.
#[derive(Debug)]
pub enum Containment {
    /// Descent alone.
    Group,
    /// The members of this group are of the tree as well.
    Cgroup(Cgroup),
    /// The process that starts the server is the init of a PID namespace: every process in it is of
    /// the tree.
    Pidns,
}

impl Containment {
    /// Prepares `level`, in the process that becomes the shim. A PID namespace is entered when the
    /// monitor is made. The error names the cause and the remedy.
    pub fn prepare(level: Level) -> Result<Self, Error> {
        match level {
            Level::Group => Ok(Self::Group),
            Level::Cgroup => Cgroup::make().map(Self::Cgroup).map_err(|why| {
                Error::Unavailable(format!("--contain=cgroup cannot be used here: {why}"))
            }),
            Level::Pidns => Ok(Self::Pidns),
        }
    }

    pub const fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            Self::Group | Self::Pidns => None,
        }
    }

    pub const fn is_namespace(&self) -> bool {
        matches!(self, Self::Pidns)
    }
}
