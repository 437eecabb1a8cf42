//! The parent alone. Its two watches are made as in the project.
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use crate::actor;
use crate::output::error::Error;
use crate::plan::event::Trigger;
use crate::settings::config::Config;
use crate::sys::parent::Parent;
use crate::sys::signal::Signal;
use crate::sys::{Errno, fd, pid, pidfd, prctl};

pub const MONITOR: &CStr = c"tree-monitor";

#[derive(Debug)]
pub struct Watched {
    pub pid: i32,
    pub fd: BorrowedFd<'static>,
    pub trigger: Trigger,
}

impl Watched {
    pub fn open(pid: i32, trigger: Trigger) -> Result<Self, Errno> {
        // Here the relay is only a line.
        if trigger == Trigger::RelayKilled {
            return Err(Errno::SRCH);
        }
        let fd = fd::keep(pidfd::open(pid)?);
        Ok(Self { pid, fd, trigger })
    }
}

#[derive(Debug, Default)]
pub struct Hosts {
    pub watched: Vec<Watched>,
    pub parent: Option<Parent>,
    pub host: Option<BorrowedFd<'static>>,
}

impl Hosts {
    pub fn hold_stdin(&self) -> bool {
        true
    }

    pub fn watch_parent(&self) -> Result<(), Error> {
        // With a relay, the parent-death signal is for that.
        if !actor::scene().relay {
            let _ = prctl::signal_on_parent_exit(Signal::CONT);
        }
        if self.parent.is_none_or(Parent::is_gone) {
            return Err(Error::new("parent-exit"));
        }
        Ok(())
    }
}

pub fn find(_: &Config, _: bool) -> Result<Hosts, Error> {
    let pid = pid::parent();
    let mut hosts = Hosts {
        watched: Vec::new(),
        parent: Some(Parent::new(pid)),
        // The server in the model sends nothing to it.
        host: None,
    };
    hosts
        .watched
        .extend(Watched::open(pid, Trigger::ParentExit));
    Ok(hosts)
}
