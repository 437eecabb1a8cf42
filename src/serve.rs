//! Which process does what: the shim and the monitor, or one process in both roles. The *heir* is the shim after the
//! monitor was killed: from then on it runs the loop.
#![forbid(unsafe_code)]

pub mod pause;
mod prepare;

use std::os::fd::{AsFd, OwnedFd};

use crate::contain::cgroup::Cgroup;
use crate::contain::pidns;
use crate::origin::hosts::{self, Hosts, Watched};
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::output::ledger::Lost;
use crate::output::progress::{Step, Voice};
use crate::output::report::{Facts, Report};
use crate::output::status::Ended;
use crate::pair::context::Context;
use crate::pair::link::{self, Link};
use crate::pair::monitor::{Monitor, Role};
use crate::pair::shim::{End, Shim};
use crate::plan::event::{Event, Trigger};
use crate::plan::machine::{Plan, State};
use crate::plan::supervise;
use crate::settings::config::{Config, StdinMode, StdoutMode};
use crate::settings::manner::Manner;
use crate::spawn;
use crate::streams::idle::Idle;
use crate::streams::watch::Watch;
use crate::sys::arrival::SignalFd;
use crate::sys::clone::{self, Fork, Group, Setup};
use crate::sys::exec::Image;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::Signal;
use crate::sys::startup::{self, Inherited};
use crate::sys::writes::Writes;
use crate::sys::{clock, fd, pidfd, prctl, wait};
use crate::tree::{Hold, Server, StopSent, Tree};
use prepare::{Start, prepare};

/// What the user asked for, and the state in which this process was started.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub config: &'a Config,
    pub manner: Manner,
    pub voice: &'a dyn Voice,
    pub inherited: &'a Inherited,
}

/// Runs the server, and stops everything that it has started. Returns the exit status of this process.
///
/// # Errors
/// The server was not started.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let mut inherited = fd::inherited();
    let report = match &request.config.report {
        Some(to) => Some(Report::prepare(to, &mut inherited)?),
        None => None,
    };
    let result = serve(request, report.as_ref(), inherited);
    if let (Err(error), Some(report)) = (&result, &report) {
        report.write(&Facts {
            exit_status: error.status(),
            ..request.config.facts()
        });
    }
    result
}

/// `descriptors`: those that the server inherits.
fn serve<'a>(
    request: Request<'a>,
    report: Option<&'a Report>,
    descriptors: Vec<i32>,
) -> Result<u8, Error> {
    let (context, start, namespace) = prepare(request, report, descriptors)?;
    if namespace || request.config.guard && pid::own() != 1 {
        pair(context, start, namespace)
    } else {
        alone(&context, start)
    }
}

/// One process in both roles.
fn alone(context: &Context<'_>, start: Start) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: start.hosts.parent,
    };
    let strangers = context.place.strangers.clone();
    let status = server_and_loop(context, start, role, strangers)?;
    finish_relay(context);
    end_as_server(context, status);
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(mut context: Context<'_>, start: Start, namespace: bool) -> Result<u8, Error> {
    // A pidfd of this process, for the monitor. It is opened before the fork, so it cannot be that of another process.
    // A monitor in a namespace of its own has the bell instead.
    let shim_pidfd = if namespace {
        None
    } else {
        pidfd::open(pid::own()).ok()
    };
    let shim_pid = Pid::new(pid::own());
    let bell = if namespace {
        Some(link::bell().map_err(|errno| Error::kernel("make a pipe", errno))?)
    } else {
        None
    };
    context.place.keep_early_keys();
    let forked = if namespace {
        pidns::fork()?
    } else {
        clone::fork().map_err(|errno| Error::kernel("start the monitor", errno))?
    };
    match forked {
        Fork::Parent(monitor) => {
            drop(shim_pidfd);
            shim(&context, start, monitor, bell.map(|(read, _)| read))
        }
        Fork::Child => {
            // The service manager only knows the shim.
            context.notifier = None;
            let shim = ShimEnds {
                pid: shim_pid,
                pidfd: shim_pidfd,
                bell: bell.map(|(_, write)| write),
            };
            monitor(&context, start, shim)
        }
    }
}

/// What the monitor knows of the shim, from before the fork.
struct ShimEnds {
    pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
    /// If the monitor is in a PID namespace of its own.
    bell: Option<OwnedFd>,
}

fn monitor(context: &Context<'_>, mut start: Start, shim: ShimEnds) -> Result<u8, Error> {
    become_monitor(&context.place)?;
    let shim = match (shim.bell, shim.pid) {
        (Some(write), _) => Link::Bell(write),
        // A shim that ended before the parent-death signal was set causes no signal, so its pid is compared.
        (None, Some(pid)) if pid::parent() == pid.get() => {
            let (trigger, shim_pid) = (Trigger::ShimKilled, pid.get());
            let watched = shim.pidfd.map(|fd| Watched {
                pid: shim_pid,
                fd,
                trigger,
            });
            start.hosts.watched.extend(watched);
            Link::Parent(pid)
        }
        (None, _) => {
            if let Some(report) = context.report {
                report.ledger.set_lost(Lost::Shim);
            }
            return Err(Error::Gone("the shim is gone, so COMMAND was not started"));
        }
    };
    // Other children of the shim are not children of the monitor, so it has no strangers.
    server_and_loop(context, start, Role::Monitor { shim }, Vec::new())
}

/// Separates the monitor from the shim: signals to the shim's group or by its name do not reach the monitor.
fn become_monitor(place: &Place) -> Result<(), Error> {
    // A process group of its own, but no session: the scheduler divides processor time between sessions (autogroup), so
    // a new one would wait behind every busy one. With job control the monitor leaves the session later, after it has
    // started the server.
    if !place.job_control {
        let _ = prctl::new_group();
    }
    prctl::become_subreaper().map_err(|errno| Error::kernel("become a subreaper", errno))?;
    let _ = prctl::signal_on_parent_exit(Signal::CONT);
    prctl::set_name(hosts::MONITOR);
    startup::set_command_line("tree-monitor");
    Ok(())
}

/// Starts the server and runs the loop until the tree is empty.
fn server_and_loop(
    context: &Context<'_>,
    start: Start,
    role: Role,
    strangers: Vec<i32>,
) -> Result<u8, Error> {
    let Start {
        hosts,
        image,
        cgroup,
        writes,
        streams,
    } = start;
    let (signals, server) = start_server(context, image, cgroup.as_ref())?;
    if let Some(streams) = streams {
        streams.restore();
    }
    // From here on the only way out is an empty tree, whether the server's exec is done or not.
    if context.place.job_control && matches!(role, Role::Monitor { .. }) {
        // The kernel takes a parent in another group of the same session for a shell, which resumes what the terminal
        // suspends. The monitor does not do that, so it leaves the session. Then the kernel suspends the job only if
        // there is a shell that can resume it. See `setpgid(2)`.
        let _ = prctl::new_session();
    }
    context.place.release_inherited();
    let mut watch = make_watch(signals, context, hosts, writes, cgroup.as_ref());
    let hold = if let Role::Monitor {
        shim: Link::Bell(bell),
    } = &role
    {
        watch.add_bell(bell.as_fd());
        Hold::Namespace
    } else {
        hold_of(cgroup)
    };
    let tree = Tree::new(Some(server), strangers, hold);
    let mut monitor = Monitor::new(context, role, watch, tree);
    let plan = supervise::run(&mut monitor, Plan::new(context.place.policy), None);
    if let Some(relay) = &context.relay {
        relay.hang_up();
    }
    check_start(context, &plan)?;
    let status = monitor.finish(&plan);
    monitor.write_report(&plan, status);
    if plan.state() == State::Survived && monitor.release_shim(status) {
        monitor.reap_to_the_end();
    }
    Ok(status)
}

fn start_server(
    context: &Context<'_>,
    image: Image,
    cgroup: Option<&Cgroup>,
) -> Result<(SignalFd, Server), Error> {
    let signals = SignalFd::new().map_err(|errno| Error::kernel("make a signalfd", errno))?;
    let group = context.place.server_group();
    let setup = Setup {
        inherited: *context.inherited,
        group,
        parent_death_signal: context.config.signal,
        no_new_privs: context.config.no_new_privs,
        announce: context.board.server_word(),
        failure: context.board.failure_word(),
        interpreter: context.board.interpreter(),
    };
    let (name, cgroup) = (context.command(), cgroup.map(|cgroup| cgroup.dir.as_fd()));
    context.place.keep_early_keys();
    let (pid, pidfd) = spawn::start(image, &setup, cgroup, name)?;
    let session = group == Group::Own;
    context.voice.report(&Step::Started {
        name,
        pid: pid.get(),
        session,
    });
    Ok((signals, Server::new(pid, pidfd, session)))
}

/// After the loop: the error, if the exec of the server has failed. Then the status of the new process means nothing.
fn check_start(context: &Context<'_>, plan: &Plan) -> Result<(), Error> {
    match context.board.failure() {
        Some(failure) if plan.state() == State::Done => {
            let interpreter = context.board.interpreter();
            Err(spawn::error(failure, context.command(), interpreter))
        }
        Some(_) | None => Ok(()),
    }
}

fn make_watch<'a>(
    signals: SignalFd,
    context: &'a Context<'_>,
    hosts: Hosts,
    writes: Option<Writes>,
    cgroup: Option<&Cgroup>,
) -> Watch<'a> {
    let mut watch = Watch::new(signals);
    for watched in hosts.watched {
        watch.add_process(watched.fd, watched.trigger);
    }
    // treaper's copies of stdin and stdout must not keep a pipe open that the server has closed.
    match context.place.stdin {
        Some(trigger) => watch.add_stdin(trigger, context.config.stdin == StdinMode::Auto),
        // treaper needs its copy of stdin to ask how many bytes are unread.
        None if writes.is_some() => {}
        None => fd::replace_by_stderr(fd::STDIN),
    }
    if context.config.stdout == StdoutMode::Watch {
        watch.add_stdout();
    } else {
        fd::replace_by_stderr(fd::STDOUT);
    }
    if let Some(relay) = &context.relay {
        watch.add_relay(relay);
    }
    if let Some(cgroup) = cgroup {
        watch.add_cgroup_events(cgroup.events.as_fd());
    }
    if let Some((writes, time)) = writes.zip(context.config.idle) {
        watch.add_idle(Idle::start(writes, time, context.relay.as_ref()));
    }
    watch
}

/// The shim: guards the monitor, and stops the tree itself if the monitor is killed.
fn shim(
    context: &Context<'_>,
    start: Start,
    monitor: Pid,
    bell: Option<OwnedFd>,
) -> Result<u8, Error> {
    // The shim keeps no pidfd of the host, and starts nothing.
    let (parent, cgroup) = (start.hosts.parent, start.cgroup);
    drop((start.hosts, start.image, start.writes, start.streams));
    let mut shim = Shim::new(context, monitor, parent, bell);
    fd::replace_by_stderr(fd::STDIN);
    fd::replace_by_stderr(fd::STDOUT);
    context.place.release_inherited();
    let status = match shim.run() {
        End::Exit(status) => {
            shim.finish();
            status
        }
        End::MonitorKilled => heir(shim, context, cgroup)?,
    };
    finish_relay(context);
    end_as_server(context, status);
    Ok(status)
}

fn end_as_server(context: &Context<'_>, status: u8) {
    let board = context.board;
    context
        .place
        .end_as_server(board.ended(), board.in_foreground(), status);
}

/// What the tree has written last is passed on before this process ends.
fn finish_relay(context: &Context<'_>) {
    if let Some(relay) = &context.relay {
        relay.finish();
    }
}

/// The shim after the monitor was killed: it stops the tree.
fn heir(shim: Shim<'_>, context: &Context<'_>, cgroup: Option<Cgroup>) -> Result<u8, Error> {
    let board = context.board;
    let has_bell = shim.has_bell();
    if has_bell && board.ended().is_none() {
        // The monitor was the init of a namespace. With it the kernel has killed all processes in it.
        board.set_ended(Ended::Killed(Signal::KILL.number()));
    }
    let strangers = shim.into_strangers();
    // If it is not a child of this process by now, its pid may belong to another process.
    let server = board.server().map(|pid| Server {
        pid,
        pidfd: None,
        leads_group: !context.place.job_control,
        reaped: board.ended().is_some() || !wait::is_child(pid) || strangers.contains(&pid.get()),
        suspended: None,
        stop_sent: if board.stop_sent() {
            StopSent::ByTreaper
        } else {
            StopSent::PerhapsByKernel
        },
    });
    let tree = Tree::new(server, strangers, hold_of(cgroup));
    let mut monitor = Monitor::heir(context, tree, has_bell);
    let plan = board.resume(context.place.policy, clock::now());
    let killed = Event::Trigger(Trigger::MonitorKilled);
    let plan = supervise::run(&mut monitor, plan, Some(killed));
    check_start(context, &plan)?;
    let status = monitor.finish(&plan);
    monitor.write_report(&plan, status);
    Ok(status)
}

fn hold_of(cgroup: Option<Cgroup>) -> Hold {
    cgroup.map_or(Hold::Descent, Hold::Cgroup)
}
