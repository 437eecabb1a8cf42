//! What holds the tree together in addition to the subreaper, the process group and the walk.

pub mod cgroup;
pub mod pidns;

use crate::output::error::Error;
use cgroup::Cgroup;

/// `--contain`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The others cost time at each start (`benches/README.md`), or change what the server sees.
    #[default]
    Group,
    Cgroup,
    Pidns,
}

impl Level {
    pub const NAMES: [(&'static str, Self); 3] = [
        ("group", Self::Group),
        ("cgroup", Self::Cgroup),
        ("pidns", Self::Pidns),
    ];

    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// By what, apart from descent, the processes of the tree are known.
#[derive(Default)]
pub enum Containment {
    #[default]
    Group,
    /// The members of this group are of the tree as well.
    Cgroup(Cgroup),
    /// So is every process in the PID namespace of which the monitor is the init.
    Pidns,
}

impl Containment {
    /// In the process that becomes the shim. A PID namespace is entered when the monitor is made.
    /// The error names the cause and the remedy.
    pub fn prepare(level: Level) -> Result<Self, Error> {
        let refused = |why| Error::new(format!("--contain=cgroup cannot be used here: {why}"));
        match level {
            Level::Group => Ok(Self::Group),
            Level::Cgroup => Cgroup::make().map(Self::Cgroup).map_err(refused),
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
