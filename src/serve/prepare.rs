//! What comes before the monitor and the server: everything that can be found out, or can fail.

use crate::command::Command;
use crate::contain::Containment;
use crate::origin::hosts::{self, Hosts};
use crate::origin::place::Place;
use crate::origin::unit;
use crate::output::error::{self, Error};
use crate::output::report::Report;
use crate::pair::board::Board;
use crate::pair::context::{Context, Front, Request};
use crate::streams::idle;
use crate::sys::writes::Writes;
use crate::sys::{pid, prctl};
use crate::tree::spare::Spare;

/// What is prepared for the start of the server.
pub struct Prepared {
    pub hosts: Hosts,
    pub command: Command,
    pub containment: Containment,
    /// What is written to the server's stdin, for `--idle`.
    pub writes: Option<Writes>,
}

/// Everything that can be found out, or can fail, before any process is made. Not inlined, since
/// its stack frame is twice as large as all later ones: on a small stack (`ulimit -s 32`) the stop
/// needs that room.
#[inline(never)]
pub fn prepare<'a>(
    request: Request<'a>,
    report: Option<&'a Report>,
    descriptors: Vec<i32>,
) -> Result<(Context<'a>, Prepared), Error> {
    let Request {
        config,
        manner,
        voice,
        inherited,
    } = request;
    if let Err(errno) = unit::ask_manager() {
        let why = error::describe(errno);
        log::warn!(
            "cannot ask systemd to accept READY=1 of the server: {why}; the unit needs NotifyAccess=all"
        );
    }
    let command = Command::prepare(&config.command)?;
    let hosts = hosts::find(config, inherited.sighup_ignored)?;
    hosts.watch_parent()?;
    let spare = Spare::prepare(config.spare, config.contain)?;
    let place = Place::examine(inherited, config, manner, descriptors)?;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = Containment::prepare(config.contain)?;
    let context = Context {
        config,
        manner,
        voice,
        inherited,
        place,
        board,
        report,
        front: None,
        spare,
    };
    let prepared = Prepared {
        hosts,
        command,
        containment,
        writes: None,
    };
    Ok((context, prepared))
}

impl Prepared {
    /// What has to be done in the process that becomes the shim, or the only one. `front`: another
    /// process of treaper that is the parent of this one by now. It has seen that the host lives,
    /// and reports the end of it.
    pub fn settle(&mut self, context: &mut Context<'_>, front: Option<Front>) -> Result<(), Error> {
        if front.is_some() {
            self.hosts.parent = None;
            context.place.strangers.clear();
        }
        context.front = front;
        adopt_orphans()?;
        self.writes = context.config.idle.map(|_| idle::open()).transpose()?;
        Ok(())
    }
}

/// From now on this process adopts the orphans among its descendants. PID 1 does so anyway.
fn adopt_orphans() -> Result<(), Error> {
    prctl::become_subreaper()
        .or_else(|errno| if pid::own() == 1 { Ok(()) } else { Err(errno) })
        .map_err(|errno| Error::kernel("become a subreaper", errno))
}
