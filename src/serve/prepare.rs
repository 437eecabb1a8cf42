//! What comes before the monitor and the server: everything that can be found out, or can fail.

use crate::command::Command;
use crate::contain::Containment;
use crate::origin::hosts::{self, Hosts};
use crate::origin::place::Place;
use crate::origin::unit;
use crate::output::error::{self, Error};
use crate::output::report::Report;
use crate::pair::board::Board;
use crate::pair::context::{Context, Request};
use crate::relay::{self, HostStreams};
use crate::streams::idle;
use crate::sys::writes::Writes;
use crate::sys::{pid, prctl};
use crate::tree::spare::Spare;

/// What is prepared for the start of the server.
pub struct Prepared {
    pub hosts: Hosts,
    pub command: Command,
    pub containment: Containment,
    /// What the host writes to stdin, for `--idle`.
    pub writes: Option<Writes>,
    /// Those of treaper, if the relay has put others in their place for the server.
    pub streams: Option<HostStreams>,
}

/// Everything that can be found out, or can fail, before there is a monitor or a server. Only the
/// relay is made here. Not inlined, since its stack frame is twice as large as all later ones: on a
/// small stack (`ulimit -s 32`) the stop needs that room.
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
    adopt_orphans()?;
    hosts.watch_parent()?;
    relay::check(&config.writers)?;
    let spare = Spare::prepare(config.spare, config.contain)?;
    let mut place = Place::examine(inherited, config, manner, descriptors)?;
    let writes = config.idle.map(|_| idle::open()).transpose()?;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = Containment::prepare(config.contain)?;
    let started = relay::start(&config.writers, config.policy.drain, &place.strangers)?;
    let (handle, streams) = started.unzip();
    // A child of this process, and not of the tree.
    place
        .strangers
        .extend(handle.iter().map(|relay| relay.pid.get()));
    let context = Context {
        config,
        manner,
        voice,
        inherited,
        place,
        board,
        report,
        relay: handle,
        spare,
    };
    let prepared = Prepared {
        hosts,
        command,
        containment,
        writes,
        streams,
    };
    Ok((context, prepared))
}

/// From now on this process adopts the orphans among its descendants. PID 1 does so anyway.
fn adopt_orphans() -> Result<(), Error> {
    prctl::become_subreaper()
        .or_else(|errno| if pid::own() == 1 { Ok(()) } else { Err(errno) })
        .map_err(|errno| Error::kernel("become a subreaper", errno))
}
