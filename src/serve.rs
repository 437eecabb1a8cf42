//! Which process does what: the shim and the monitor, one process in both roles, and the heir of a killed monitor.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};

use crate::contain::cgroup::Cgroup;
use crate::contain::{self, Containment, pidns};
use crate::origin::hosts::{self, Hosts, Watched};
use crate::origin::place::Place;
use crate::output::error::Error;
use crate::output::progress::Step;
use crate::output::status::Ended;
use crate::pair::board::{Board, Suspension};
use crate::pair::context::{Context, Request};
use crate::pair::link::{self, Link};
use crate::pair::monitor::Monitor;
use crate::pair::shim::{End, Shim, Way};
use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::plan::supervise;
use crate::settings::config::{StdinMode, StdoutMode};
use crate::spawn;
use crate::streams::notify::Relay;
use crate::streams::watch::Watch;
use crate::sys::arrival::SignalFd;
use crate::sys::clone::{self, Fork, Group, Setup};
use crate::sys::exec::Image;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::Signal;
use crate::sys::{clock, fd, memory, pidfd, prctl, startup, wait};
use crate::tree::{Hold, Server, Told, Tree};

/// Which process starts the server.
enum Role {
    /// The only one. `parent`: the host, if its end is a trigger.
    Alone {
        parent: Option<i32>,
    },
    Monitor {
        shim: Link,
    },
}

/// What the start of the server uses up.
struct Start {
    hosts: Hosts,
    image: Image,
    cgroup: Option<Cgroup>,
}

/// Runs the server, and stops everything that it has started; the exit status of this process.
///
/// # Errors
/// The server was not started.
pub fn run(request: Request<'_>) -> Result<u8, Error> {
    let (context, start, namespace) = prepare(request)?;
    if namespace || request.config.guard && pid::own() != 1 {
        pair(context, start, namespace)
    } else {
        alone(&context, start)
    }
}

/// Everything that can be known or fail before the first child; and whether the monitor gets a PID namespace. Not
/// inlined: its frame is twice as large as that of all that follows, and on a small stack (`ulimit -s 32`) the stop
/// needs the room.
#[inline(never)]
fn prepare(request: Request<'_>) -> Result<(Context<'_>, Start, bool), Error> {
    let Request {
        config,
        manner,
        voice,
        inherited,
    } = request;
    let descriptors = fd::inherited();
    let relay = Relay::open().unwrap_or_else(|error| {
        log::warn!("cannot talk to the service manager: {error}");
        None
    });
    let notify_socket = relay.as_ref().map(|relay| relay.address.as_os_str());
    let image = spawn::prepare(&config.command, notify_socket)?;
    let hosts = hosts::find(config, inherited.sighup_ignored)?;
    adopt_orphans()?;
    hosts.watch_parent()?;
    let place = Place::look(inherited, config, manner.name, descriptors)?;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = contain::prepare(config.contain)?;
    let namespace = matches!(containment, Containment::Pidns);
    let context = Context {
        config,
        manner,
        voice,
        inherited,
        place,
        board,
        relay,
    };
    let start = Start {
        hosts,
        image,
        cgroup: containment.into_cgroup(),
    };
    Ok((context, start, namespace))
}

/// As PID 1 all orphans are ours anyway.
fn adopt_orphans() -> Result<(), Error> {
    prctl::become_subreaper()
        .or_else(|errno| if pid::own() == 1 { Ok(()) } else { Err(errno) })
        .map_err(|errno| Error::kernel("become a subreaper", errno))
}

/// One process in both roles.
fn alone(context: &Context<'_>, start: Start) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: start.hosts.parent,
    };
    let strangers = context.place.strangers.clone();
    let status = server_and_loop(context, start, role, strangers)?;
    context.place.end_as_server(context.board.ended(), status);
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(mut context: Context<'_>, start: Start, namespace: bool) -> Result<u8, Error> {
    // Of ourselves, for the monitor: made before it exists, it cannot be another process's. One in a namespace has a bell.
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
            // The service manager knows the shim alone.
            context.relay = None;
            let shim = ShimEnds {
                pid: shim_pid,
                pidfd: shim_pidfd,
                bell: bell.map(|(_, write)| write),
            };
            monitor(&context, start, shim)
        }
    }
}

/// The shim as it was before the fork, for the monitor.
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
        // It may have died before we armed anything: then there is nobody to serve.
        (None, Some(pid)) if pid::parent() == pid.get() => {
            let trigger = Trigger::ShimKilled;
            let watched = shim.pidfd.map(|fd| Watched { fd, trigger });
            start.hosts.watched.extend(watched);
            Link::Parent(pid)
        }
        (None, _) => {
            return Err(Error::Gone("the shim is gone, so COMMAND was not started"));
        }
    };
    // Children that the shim had before are not ours.
    server_and_loop(context, start, Role::Monitor { shim }, Vec::new())
}

/// What is different in the monitor: nothing that reaches the shim by group or by name reaches it.
fn become_monitor(place: &Place) -> Result<(), Error> {
    // A group of its own, and no session: a new one waits for its turn behind every busy one of the
    // machine (the scheduler's autogroup). With job control it leaves when it has started the server.
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
    } = start;
    let (signals, server) = start_server(context, image, cgroup.as_ref())?;
    // From here on there is no way out but an empty tree, whether the server's exec has come back or not.
    if context.place.job_control && matches!(role, Role::Monitor { .. }) {
        // To the kernel a parent in another group of the session is a shell that will continue what the
        // terminal stops. We do not; so where there is no shell, nothing may be stopped. See `setpgid(2)`.
        let _ = prctl::new_session();
    }
    context.place.release_inherited();
    let mut watch = make_watch(signals, context, hosts, cgroup.as_ref());
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
    let mut monitor = match role {
        Role::Alone { parent } => Monitor::alone(context, parent, watch, tree),
        Role::Monitor { shim } => Monitor::of_pair(context, shim, watch, tree),
    };
    memory::release();
    let plan = supervise::run(&mut monitor, Plan::new(context.place.settings));
    check_start(context, &plan)?;
    let status = monitor.finish(&plan);
    if plan.state() == State::GivenUp && monitor.release_shim(status) {
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
    let server = spawn::start(image, setup, cgroup, name)?;
    let pid = server.pid.get();
    let session = group == Group::Own;
    context.voice.report(&Step::Started { name, pid, session });
    Ok((signals, server))
}

/// After the loop: whether there ever was a server. If not, its end is no news, and its status says nothing.
fn check_start(context: &Context<'_>, plan: &Plan) -> Result<(), Error> {
    match context.board.failure() {
        Some(failure) if plan.state() == State::Done => {
            let interpreter = context.board.interpreter();
            Err(spawn::error(failure, context.command(), interpreter))
        }
        Some(_) | None => Ok(()),
    }
}

fn make_watch(
    signals: SignalFd,
    context: &Context<'_>,
    hosts: Hosts,
    cgroup: Option<&Cgroup>,
) -> Watch {
    let mut watch = Watch::new(signals);
    for watched in hosts.watched {
        watch.add_process(watched.fd, watched.trigger);
    }
    // Our copies of stdin and stdout must not keep a pipe alive that the server has given up.
    match context.place.stdin {
        Some(trigger) => watch.add_stdin(trigger, context.config.stdin == StdinMode::Auto),
        None => fd::replace_by_stderr(fd::STDIN),
    }
    if context.config.stdout == StdoutMode::Watch {
        watch.add_stdout();
    } else {
        fd::replace_by_stderr(fd::STDOUT);
    }
    if let Some(cgroup) = cgroup {
        watch.add_cgroup_events(cgroup.events.as_fd());
    }
    watch
}

/// The shim: guards the monitor, and stops the tree itself if that is killed.
fn shim(
    context: &Context<'_>,
    start: Start,
    monitor: Pid,
    bell: Option<OwnedFd>,
) -> Result<u8, Error> {
    // The shim keeps no pidfd of the host, and starts nothing.
    let (parent, cgroup) = (start.hosts.parent, start.cgroup);
    drop((start.hosts, start.image));
    let mut shim = Shim {
        context,
        monitor,
        parent,
        bell,
        server: None,
        way: Way::Direct,
        obeyed: Suspension::default(),
        strangers: Some(context.place.strangers.clone()).filter(|strangers| !strangers.is_empty()),
    };
    fd::replace_by_stderr(fd::STDIN);
    fd::replace_by_stderr(fd::STDOUT);
    context.place.release_inherited();
    memory::release();
    let status = match shim.run() {
        End::Exit(status) => {
            shim.finish();
            status
        }
        End::MonitorKilled => heir(shim, context, cgroup)?,
    };
    context.place.end_as_server(context.board.ended(), status);
    Ok(status)
}

/// The shim after the end of the monitor: it stops the tree.
fn heir(shim: Shim<'_>, context: &Context<'_>, cgroup: Option<Cgroup>) -> Result<u8, Error> {
    let board = context.board;
    let has_bell = shim.bell.is_some();
    if has_bell && board.ended().is_none() {
        // The monitor was the init of a namespace: with it the kernel has killed all.
        board.set_ended(Ended::Killed(Signal::KILL.number()));
    }
    let strangers = shim.strangers.unwrap_or_default();
    // Unless it is our child by now, somebody else may have its pid.
    let server = board.server().map(|pid| Server {
        pid,
        pidfd: None,
        leads_group: !context.place.job_control,
        reaped: board.ended().is_some() || !wait::is_child(pid) || strangers.contains(&pid.get()),
        suspended: None,
        told: if board.server_told() {
            Told::ByUs
        } else {
            Told::PerhapsByKernel
        },
    });
    let tree = Tree::new(server, strangers, hold_of(cgroup));
    let mut monitor = Monitor::heir(context, tree, has_bell);
    let plan = board.resume(context.place.settings, clock::now());
    let plan = supervise::run(&mut monitor, plan);
    check_start(context, &plan)?;
    Ok(monitor.finish(&plan))
}

fn hold_of(cgroup: Option<Cgroup>) -> Hold {
    cgroup.map_or(Hold::Descent, Hold::Cgroup)
}
