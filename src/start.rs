//! The start: all that can be found out, or can fail, before the server, and which processes there
//! are.

use crate::command::Command;
use crate::contain::Containment;
use crate::origin::hosts;
use crate::origin::place::Place;
use crate::origin::unit;
use crate::output::error::{self, Error};
use crate::output::report::{Facts, Report};
use crate::pair;
use crate::pair::board::Board;
use crate::pair::context::{Context, Prepared, Request};
use crate::relay;
use crate::streams::idle;
use crate::sys::{fd, pid};
use crate::tree::spare::Spare;

/// Runs the server, and stops everything that it has started. Returns the exit status of this
/// process.
///
/// # Errors
/// The server was not started.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let mut inherited = fd::inherited();
    let to = request.config.report.as_ref();
    let report = to.map(|to| Report::prepare(to, &mut inherited));
    let report = report.transpose()?;
    let result = start(request, report.as_ref(), inherited);
    if let (Err(error), Some(report)) = (&result, &report) {
        report.write(&Facts {
            exit_status: error.status(),
            ..request.config.facts()
        });
    }
    result
}

/// `descriptors`: those that the server inherits.
fn start<'a>(
    request: Request<'a>,
    report: Option<&'a Report>,
    descriptors: Vec<i32>,
) -> Result<u8, Error> {
    let (mut context, mut prepared) = prepare(request, report, descriptors)?;
    // With further writers this process goes on as the child of the one that the host has started.
    if request.config.writers.are_used() {
        // From then on stdin is that of the relay.
        prepared.hosts.hold_stdin();
    }
    let relay = relay::start(request.config, &context.place, prepared.hosts.parent)?;
    let (front, _sockets) = relay.unzip();
    if front.is_some() {
        // That process is the parent by now. It has seen that the host lives, and reports the end
        // of it.
        prepared.hosts.parent = None;
        context.place.strangers.clear();
    }
    context.front = front;
    context.adopt_orphans()?;
    // The process in front sees what is written.
    let idle = context.config.idle.filter(|_| context.front.is_none());
    prepared.writes = idle.map(|_| idle::open()).transpose()?;
    // The users of another init expect one process there.
    let is_alone = !request.config.guard || pid::own() == 1 && context.manner.is_other_init;
    if prepared.containment.is_namespace() || !is_alone {
        pair::run(&context, prepared)
    } else {
        pair::run_alone(&context, prepared)
    }
}

/// Everything that can be found out, or can fail, before any process is made. Not inlined, since
/// its stack frame is twice as large as all later ones: on a small stack (`ulimit -s 32`) the stop
/// needs that room.
#[inline(never)]
fn prepare<'a>(
    request: Request<'a>,
    report: Option<&'a Report>,
    descriptors: Vec<i32>,
) -> Result<(Context<'a>, Prepared), Error> {
    let config = request.config;
    if let Err(errno) = unit::ask_manager() {
        let why = error::describe(errno);
        log::warn!(
            "cannot ask systemd to accept READY=1 of the server: {why}; the unit needs NotifyAccess=all"
        );
    }
    let command = Command::prepare(&config.command)?;
    let hosts = hosts::find(config, request.inherited.sighup_ignored)?;
    hosts.watch_parent()?;
    let spare = Spare::prepare(config.spare, config.contain)?;
    let place = Place::examine(request.inherited, config, request.manner, descriptors)?;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = Containment::prepare(config.contain)?;
    let context = Context {
        config,
        manner: request.manner,
        voice: request.voice,
        inherited: request.inherited,
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
