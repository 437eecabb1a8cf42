//! The start: all that can fail before the server, and which processes there are.

use crate::command::Command;
use crate::contain::Containment;
use crate::origin::{hosts, hosts::Watched, place::Place, unit};
use crate::output::error::Error;
use crate::output::report::Report;
use crate::pair::board::Board;
use crate::pair::context::{Context, Prepared, Request};
use crate::plan::event::Trigger;
use crate::streams::idle;
use crate::streams::watch::{Source, Watch};
use crate::sys::{exec, fd, pid};
use crate::tree::spare::Spare;
use crate::{pair, relay};

/// Runs the server, stops its tree, and returns the exit status. Fails if there can be no report.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let mut fds = fd::inherited();
    let config = request.config;
    let to = config.report.as_ref();
    let report = to.map(|to| Report::prepare(to, &mut fds)).transpose()?;
    start(request, report.as_ref(), fds).or_else(|error| {
        let mut exit_status = request.voice.report_failure(&error, &config.command[0]);
        // Another init starts a process that exits so, and maps that status as any other.
        if request.manner.is_other_init && error.cause.is_some() {
            exit_status = config.exit_status(exit_status);
        }
        if let Some(report) = &report {
            report.write(&config.facts(exit_status));
        }
        Ok(exit_status)
    })
}

fn start(request: Request<'_>, report: Option<&Report>, to_server: Vec<i32>) -> Result<u8, Error> {
    let (mut context, mut prepared) = prepare(request, to_server)?;
    context.report = report;
    let _sockets;
    if request.config.writers.are_used() {
        // Before the relay is made: from then on, stdin here comes from the relay.
        prepared.hosts.hold_stdin();
        // What closes files for the relay may keep its end of the line open after it was killed.
        let own = Watched::open(pid::own(), Trigger::RelayKilled).ok();
        let relay = relay::start(request.config, &context.place, prepared.hosts.parent)?;
        (context.front, _sockets) = (Some(relay.0), relay.1);
        // The relay is the parent by now. It has seen that the host lives, and reports its end.
        prepared.hosts.parent = None;
        prepared.hosts.watched.extend(own);
        context.place.strangers.clear();
    }
    context.adopt_orphans()?;
    // First of all: with that process stdin ends, and a launcher that waits for it.
    if let Some(front) = &context.front {
        prepared.watch.add(Source::Front(front.line));
    }
    for host in prepared.hosts.watched.drain(..) {
        prepared.watch.add(Source::Process(host.fd, host.trigger));
    }
    // A relay sees what is written.
    if let (Some(time), None) = (context.config.idle, &context.front) {
        prepared.watch.add_idle(idle::start(time)?);
    }
    // The users of another init expect one process there.
    let is_alone = !request.config.guard || pid::own() == 1 && context.manner.is_other_init;
    let status = if prepared.containment.is_namespace() || !is_alone {
        pair::run(&context, &mut prepared)
    } else {
        pair::run_alone(&context, &mut prepared)
    };
    std::mem::forget((prepared.hosts, prepared.command, prepared.watch));
    status
}

/// Everything that can fail before any process is made. Not inlined, since its stack frame is twice
/// as large as all later ones: on a small stack (`ulimit -s 32`) the stop needs that room.
#[inline(never)]
fn prepare(request: Request<'_>, fds: Vec<i32>) -> Result<(Context<'_>, Prepared), Error> {
    let config = request.config;
    if let Err(errno) = unit::ask_manager() {
        let failed = Error::kernel("ask systemd to accept READY=1 of the server", errno);
        log::warn!("{failed}; the unit needs NotifyAccess=all");
    }
    let command = Command::prepare(&config.command)?;
    if config.finally.is_some() {
        let shell = rustix::fs::access(exec::SHELL, rustix::fs::Access::EXEC_OK);
        shell.map_err(|errno| Error::kernel("execute /bin/sh for --finally", errno))?;
    }
    let mut hosts = hosts::find(config, request.inherited.sighup_ignored)?;
    hosts.watch_parent()?;
    let spare = Spare::prepare(config.spare, config.contain)?;
    let mut place = Place::examine(request.inherited, config, request.manner)?;
    place.server_descriptors = fds;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = Containment::prepare(config.contain)?;
    let mut context = Context::new(request, place, board);
    (context.spare, context.host) = (spare, hosts.host.take());
    let prepared = Prepared {
        hosts,
        command,
        watch: Watch::default(),
        containment,
    };
    Ok((context, prepared))
}
