//! The table of contents: what happens from the arguments to the exit status.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;

use crate::board::Board;
use crate::cli::{self, Parsed};
use crate::config::{self, Config, StdinMode};
use crate::error::Error;
use crate::event::{Event, Trigger};
use crate::guard::{End, Guard};
use crate::hosts::{self, Hosts};
use crate::kill::{Killer, Server};
use crate::linux::{Linux, Role};
use crate::plan::{Plan, State};
use crate::report;
use crate::spawn;
use crate::supervise;
use crate::sys::clone::{self, Fork, Group, Image, Setup};
use crate::sys::fd::{self, Kind};
use crate::sys::pid::{self, Pid};
use crate::sys::signal::{Signal, SignalFd};
use crate::sys::startup::{self, Inherited};
use crate::sys::{clock, pidfd, prctl, proc, tty, wait};
use crate::watch::Watch;

/// Runs treaper; returns the exit status of this process (of the monitor, in the monitor).
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    let inherited = startup::capture();
    let status = start(arguments, &inherited).unwrap_or_else(|error| {
        report::line(format_args!("{error}"));
        error.status
    });
    status.into()
}

fn start(arguments: Vec<OsString>, inherited: &Inherited) -> Result<u8, Error> {
    let args = match cli::parse(arguments).map_err(Error::usage)? {
        Parsed::Run(args) => args,
        Parsed::Print(text) => return print(&text),
    };
    let config = config::resolve(args, std::env::vars_os())?;
    report::init(config.verbosity, config.log.as_deref());
    let image = spawn::prepare(&config.command)?;
    let hosts = hosts::find(&config)?;
    prepare_process(&hosts)?;
    let place = Place::look(inherited, &config)?;
    if config.guard && pid::own() != 1 {
        pair(&config, inherited, place, hosts, image)
    } else {
        alone(&config, inherited, place, hosts, image)
    }
}

fn print(text: &str) -> Result<u8, Error> {
    let mut stdout = std::io::stdout();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written
        .map(|()| 0)
        .map_err(|error| Error::usage(format!("cannot write to stdout: {error}")))
}

/// What holds for this process before it has a child.
fn prepare_process(hosts: &Hosts) -> Result<(), Error> {
    // As PID 1 all orphans are ours anyway.
    prctl::become_subreaper()
        .or_else(|errno| if pid::own() == 1 { Ok(()) } else { Err(errno) })
        .map_err(|errno| Error::kernel("become a subreaper", errno))?;
    let Some(parent) = hosts.parent else {
        return Ok(());
    };
    // SIGCONT, since it reaches us even if we are stopped. A second watch beside the pidfd.
    let _ = prctl::signal_on_parent_exit(Signal::CONT);
    // A parent that died before the call above sends nothing.
    if hosts.gone || pid::parent() != parent {
        return Err(Error::usage(
            "the parent process is gone, so COMMAND was not started",
        ));
    }
    Ok(())
}

/// What was found out about the place that we run in.
struct Place {
    job_control: bool,
    /// The process group that the host made for us.
    group: i32,
    /// Whether, and for which trigger, stdin is polled.
    stdin: Option<Trigger>,
    /// Children that this process had before it was treaper.
    strangers: Vec<i32>,
}

impl Place {
    fn look(inherited: &Inherited, config: &Config) -> Result<Self, Error> {
        let mut strangers = Vec::new();
        if wait::have_children() {
            let _ = proc::children(pid::own(), &mut |child| strangers.push(child));
        }
        Ok(Self {
            job_control: tty::have_controlling_terminal(),
            group: pid::group(),
            stdin: stdin_trigger(inherited, config)?,
            strangers,
        })
    }
}

fn stdin_trigger(inherited: &Inherited, config: &Config) -> Result<Option<Trigger>, Error> {
    let (kind, _) = fd::describe(fd::STDIN);
    Ok(match (config.stdin, kind) {
        (StdinMode::Ignore, _) => None,
        (_, Kind::Terminal) if inherited.sighup_ignored || config.forward_hup => None,
        (_, Kind::Terminal) => Some(Trigger::Hangup),
        // One that had hung up before we started says nothing about a host: it is input, complete.
        (StdinMode::Auto, Kind::Pipe | Kind::Socket) => {
            (!fd::has_hung_up(fd::STDIN)).then_some(Trigger::StdinEof)
        }
        (StdinMode::Watch, Kind::Pipe | Kind::Socket) => Some(Trigger::StdinEof),
        (StdinMode::Auto, Kind::Other) => None,
        (StdinMode::Watch, Kind::Other) => {
            return Err(Error::usage(
                "--stdin=watch: stdin is not a pipe, FIFO or socket",
            ));
        }
    })
}

/// One process in both roles.
fn alone(
    config: &Config,
    inherited: &Inherited,
    place: Place,
    hosts: Hosts,
    mut image: Image,
) -> Result<u8, Error> {
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let role = Role::Alone {
        parent: hosts.parent,
    };
    let status = server_and_loop(config, inherited, &place, hosts, &mut image, board, role)?;
    if place.job_control {
        tty::take_back(place.group);
    }
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(
    config: &Config,
    inherited: &Inherited,
    place: Place,
    hosts: Hosts,
    mut image: Image,
) -> Result<u8, Error> {
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    // Of ourselves, for the monitor: made before it exists, it cannot be another process's.
    let shim_pidfd = pidfd::open(pid::own()).ok();
    let shim = Pid::new(pid::own());
    match clone::fork().map_err(|errno| Error::kernel("start the monitor", errno))? {
        Fork::Parent(monitor) => {
            drop((shim_pidfd, image, hosts.watched));
            let guard = Guard {
                config,
                monitor,
                board,
                parent: hosts.parent,
                job_control: place.job_control,
                sighup_ignored: inherited.sighup_ignored,
                same_pid_namespace: true,
                server: None,
            };
            Ok(shim_main(guard, place))
        }
        Fork::Child => {
            become_monitor(&place)?;
            let mut hosts = hosts;
            if let Some(fd) = shim_pidfd {
                hosts.watched.push(hosts::Watched {
                    fd,
                    trigger: Trigger::ShimKilled,
                });
            }
            let place = Place {
                strangers: Vec::new(),
                ..place
            };
            let role = Role::Monitor { shim };
            // The shim may have died before we armed anything; it must not have left us a server to start.
            if shim.is_some_and(|shim| pid::parent() != shim.get()) {
                return Err(Error::usage("the shim is gone, so COMMAND was not started"));
            }
            server_and_loop(config, inherited, &place, hosts, &mut image, board, role)
        }
    }
}

/// What is different in the monitor: nothing that reaches the shim by group or by name reaches it.
fn become_monitor(place: &Place) -> Result<(), Error> {
    if place.job_control {
        // A session of its own would take the terminal from the server.
        let _ = prctl::new_group();
    } else {
        let _ = prctl::new_session();
    }
    prctl::become_subreaper().map_err(|errno| Error::kernel("become a subreaper", errno))?;
    let _ = prctl::signal_on_parent_exit(Signal::CONT);
    prctl::set_name(c"tree-monitor");
    startup::set_command_line("tree-monitor");
    Ok(())
}

/// Starts the server and runs the loop until the tree is empty.
fn server_and_loop(
    config: &Config,
    inherited: &Inherited,
    place: &Place,
    hosts: Hosts,
    image: &mut Image,
    board: Board,
    role: Role,
) -> Result<u8, Error> {
    let signals = SignalFd::new().map_err(|errno| Error::kernel("make a signalfd", errno))?;
    let setup = Setup {
        inherited,
        group: if place.job_control {
            Group::Join(place.group)
        } else {
            Group::Own
        },
        parent_death_signal: config.signal,
        no_new_privs: config.no_new_privs,
        announce: board.server_word(),
    };
    let name = config.command.first().cloned().unwrap_or_default();
    let server = spawn::start(image, &setup, &name)?;
    // From here on there is no way out but an empty tree.
    log::info!("started '{}', pid {}", name.display(), server.pid);
    let mut linux = Linux {
        config,
        role,
        watch: make_watch(signals, config, place, hosts),
        killer: Killer::new(Some(server), place.strangers.clone()),
        board,
        job_control: place.job_control,
        sighup_ignored: inherited.sighup_ignored,
        pending: None,
        reap_first: false,
        killed: 0,
    };
    let plan = supervise::run(&mut linux, Plan::new(config.plan));
    let status = linux.finish(&plan);
    if plan.state() == State::GivenUp && matches!(role, Role::Monitor { .. }) {
        board.set_leave_with(status);
        linux.call_shim();
        linux.reap_to_the_end();
    }
    Ok(status)
}

fn make_watch(signals: SignalFd, config: &Config, place: &Place, hosts: Hosts) -> Watch {
    let mut watch = Watch::new(signals);
    for watched in hosts.watched {
        watch.add_process(watched.fd, watched.trigger);
    }
    // Our copies of stdin and stdout must not keep a pipe alive that the server has given up.
    match place.stdin {
        Some(trigger) => watch.add_standard(fd::STDIN, trigger),
        None => fd::give_up(fd::STDIN),
    }
    if config.watch_stdout {
        watch.add_standard(fd::STDOUT, Trigger::StdoutClosed);
    } else {
        fd::give_up(fd::STDOUT);
    }
    watch
}

/// The shim: guards the monitor, and stops the tree itself if that is killed.
fn shim_main(mut guard: Guard<'_>, place: Place) -> u8 {
    fd::give_up(fd::STDIN);
    fd::give_up(fd::STDOUT);
    let status = match guard.run() {
        End::Leave(status) => status,
        End::TakeOver => take_over(&guard, place.strangers),
    };
    if place.job_control {
        tty::take_back(place.group);
    }
    status
}

fn take_over(guard: &Guard<'_>, strangers: Vec<i32>) -> u8 {
    let board = guard.board;
    // Unless it is our child by now, somebody else may have its pid.
    let server = board.server().map(|pid| Server {
        pid,
        pidfd: None,
        leads_group: !guard.job_control,
        reaped: board.ended().is_some() || !wait::is_child(pid),
    });
    let plan = board.resume(guard.config.plan, clock::now());
    let mut linux = Linux {
        config: guard.config,
        role: Role::Heir,
        watch: Watch::signals_only(),
        killer: Killer::new(server, strangers),
        board,
        job_control: guard.job_control,
        sighup_ignored: guard.sighup_ignored,
        pending: Some(Event::Trigger(Trigger::MonitorKilled)),
        reap_first: true,
        killed: 0,
    };
    let plan = supervise::run(&mut linux, plan);
    linux.finish(&plan)
}
