//! The table of contents: what happens from the arguments to the exit status.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsFd;

use crate::board::{Board, Suspension};
use crate::cli::{self, Parsed};
use crate::config::{self, Config, StdinMode};
use crate::contain::cgroup::Cgroup;
use crate::contain::{self, Containment, pidns};
use crate::doctor;
use crate::dropin::{Asked, Program, pause};
use crate::error::{self, Error};
use crate::event::{Event, Trigger};
use crate::guard::{End, Guard, Way};
use crate::hosts::{self, Hosts, Watched};
use crate::job;
use crate::kill::{Killer, Server, Told};
use crate::linux::{Linux, Role, Shim};
use crate::place::Place;
use crate::plan::{Plan, State};
use crate::relay::Relay;
use crate::report;
use crate::spawn;
use crate::status::{self, Ended};
use crate::supervise;
use crate::sys::arrival::SignalFd;
use crate::sys::clone::{self, Fork, Group, Setup};
use crate::sys::exec::Image;
use crate::sys::fd;
use crate::sys::pid::{self, Pid};
use crate::sys::signal::Signal;
use crate::sys::startup::{self, Inherited};
use crate::sys::{clock, memory, pidfd, prctl, wait};
use crate::voice::{self, Step};
use crate::watch::Watch;

/// Runs treaper; returns the exit status of this process (of the monitor, in the monitor).
#[must_use]
pub fn main(arguments: &[OsString]) -> i32 {
    let inherited = startup::capture();
    voice::set_main();
    let name = arguments.first().and_then(|name| Program::named(name));
    let status = match name {
        Some(program) => start_as(program, arguments, &inherited),
        None => start(arguments, &inherited).unwrap_or_else(|error| {
            report::line(format_args!("{error}"));
            error.status()
        }),
    };
    status.into()
}

/// Under the name of another init.
fn start_as(program: Program, arguments: &[OsString], inherited: &Inherited) -> u8 {
    let mut command = OsString::new();
    let status = match program.parse(arguments, std::env::vars_os().collect()) {
        Ok(Asked::Run(config)) => {
            command = config.command.first().cloned().unwrap_or_default();
            begin_to_report(&config);
            serve(&config, inherited)
        }
        Ok(Asked::Pause(config)) => {
            begin_to_report(&config);
            pause::run(&config)
        }
        Ok(Asked::Say(answer)) => Ok(answer.give()),
        Err(error) => Err(error),
    };
    status.unwrap_or_else(|error| program.failed(&error, &command).give())
}

fn start(arguments: &[OsString], inherited: &Inherited) -> Result<u8, Error> {
    let args = match cli::parse(arguments).map_err(Error::Misuse)? {
        Parsed::Run(args) => args,
        Parsed::Print(text) => return print(&text),
    };
    let config = config::resolve(args, startup::variables_with(config::PREFIX).into_iter())?;
    begin_to_report(&config);
    if let Some(format) = config.doctor {
        let start = |level: &str| try_start(level, arguments, inherited);
        let (text, available) = doctor::examine(config.contain, format, &start);
        return print(&text).map(|_| if available { 0 } else { status::OWN_FAILURE });
    }
    serve(&config, inherited)
}

/// A start as any other, of a server that ends at once: treaper itself, which every place has.
fn try_start(level: &str, arguments: &[OsString], inherited: &Inherited) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (mut said, words) = std::io::pipe().map_err(|error| text(&error))?;
    let own = std::env::current_exe().ok();
    let own = own.map(OsString::from).or(arguments.first().cloned());
    let contain = format!("--contain={level}");
    let command = [
        "treaper".into(),
        contain.into(),
        "--".into(),
        own.unwrap_or_default(),
        "--version".into(),
    ];
    let Parsed::Run(args) = cli::parse(&command).map_err(|error| text(&error))? else {
        return Ok(());
    };
    let config = config::resolve(args, std::iter::empty()).map_err(|error| text(&error))?;
    match clone::fork().map_err(error::describe)? {
        Fork::Parent(child) => {
            drop(words);
            let mut said_so = String::new();
            let _ = said.read_to_string(&mut said_so);
            if wait::for_success(child) {
                return Ok(());
            }
            Err(said_so
                .lines()
                .next()
                .unwrap_or("no reason is known")
                .to_owned())
        }
        Fork::Child => {
            if let Ok(null) = std::fs::File::open("/dev/null") {
                fd::redirect(null.as_fd(), fd::STDIN);
            }
            fd::redirect(words.as_fd(), fd::STDOUT);
            fd::redirect(words.as_fd(), fd::STDERR);
            drop((said, words));
            voice::set_main();
            let status = serve(&config, inherited).unwrap_or_else(|error| {
                report::line(format_args!("{error}"));
                error.status()
            });
            clone::exit_child(status.into())
        }
    }
}

fn begin_to_report(config: &Config) {
    report::init(config.verbosity, config.log.as_deref());
    if !config.unknown_variables.is_empty() {
        let names = config.unknown_variables.join(", ");
        log::warn!("ignored {names}: no option has such a variable; see treaper --help");
    }
}

fn serve(config: &Config, inherited: &Inherited) -> Result<u8, Error> {
    let (job, hosts, image, containment) = get_ready(config, inherited)?;
    let two = config.guard && pid::own() != 1 || matches!(containment, Containment::Pidns);
    if two {
        pair(job, hosts, image, containment)
    } else {
        alone(&job, hosts, image, containment)
    }
}

/// Everything that can be known or fail before the first child. Not inlined: its frame is twice as large as that of
/// all that follows, and on a small stack (`ulimit -s 32`) the stop needs the room.
#[inline(never)]
fn get_ready<'a>(
    config: &'a Config,
    inherited: &'a Inherited,
) -> Result<(Job<'a>, Hosts, Image, Containment), Error> {
    let passed_on = fd::inherited();
    let relay = Relay::open().unwrap_or_else(|error| {
        log::warn!("cannot talk to the service manager: {error}");
        None
    });
    let notify_socket = relay.as_ref().map(|relay| relay.address.as_os_str());
    let image = spawn::prepare(&config.command, notify_socket)?;
    let hosts = hosts::find(config, inherited.sighup_ignored)?;
    prepare_process(&hosts)?;
    let place = Place::look(inherited, config, passed_on)?;
    let board = Board::shared().map_err(|errno| Error::kernel("map memory", errno))?;
    let containment = contain::prepare(config.contain)?;
    let job = Job {
        config,
        inherited,
        place,
        board,
        relay,
    };
    Ok((job, hosts, image, containment))
}

fn print(text: &str) -> Result<u8, Error> {
    let mut stdout = std::io::stdout();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written
        .map(|()| 0)
        .map_err(|error| Error::Unavailable(format!("cannot write to stdout: {error}")))
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
        return Err(Error::Gone(
            "parent-exit: the process that started treaper is gone, so COMMAND was not started; --no-parent starts it",
        ));
    }
    Ok(())
}

/// What is the same for every process of ours that runs the server.
struct Job<'a> {
    config: &'a Config,
    inherited: &'a Inherited,
    place: Place,
    board: Board,
    /// Of the process that the manager knows.
    relay: Option<Relay>,
}

impl Job<'_> {
    fn world(&self, role: Role, watch: Watch, killer: Killer) -> Linux<'_> {
        Linux {
            config: self.config,
            role,
            watch,
            killer,
            board: self.board,
            relay: self.relay.as_ref(),
            job_control: self.place.job_control,
            alone: job::Alone::default(),
            manager: self.place.manager,
            forward_hup: self.place.forward_hup,
            pending: None,
            reap_first: false,
            reap_again: false,
            look_again: false,
            killed: 0,
            hangup_asked: false,
            unasked: None,
            stopping_since: None,
        }
    }

    fn name(&self) -> &OsStr {
        let name = self.config.command.first();
        name.map_or(OsStr::new(""), |name| name)
    }

    /// After the loop: whether there ever was a server. If not, its end is no news, and its status says nothing.
    fn check_start(&self, plan: &Plan) -> Result<(), Error> {
        match self.board.failure() {
            Some(failure) if plan.state() == State::Done => {
                let interpreter = self.board.interpreter();
                Err(spawn::error(failure, self.name(), interpreter))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// One process in both roles.
fn alone(job: &Job<'_>, hosts: Hosts, image: Image, containment: Containment) -> Result<u8, Error> {
    let role = Role::Alone {
        parent: hosts.parent,
    };
    let status = server_and_loop(job, hosts, image, containment.into_cgroup(), role)?;
    job.place.leave(job.board, status);
    Ok(status)
}

/// The shim, and in its child the monitor.
fn pair(
    mut job: Job<'_>,
    mut hosts: Hosts,
    image: Image,
    containment: Containment,
) -> Result<u8, Error> {
    let own_namespace = matches!(containment, Containment::Pidns);
    let cgroup = containment.into_cgroup();
    // Of ourselves, for the monitor: made before it exists, it cannot be another process's.
    let shim_pidfd = pidfd::open(pid::own()).ok();
    let shim_pid = Pid::new(pid::own());
    let bell = if own_namespace {
        Some(fd::bell().map_err(|errno| Error::kernel("make a pipe", errno))?)
    } else {
        None
    };
    job.place.keep_early_keys();
    let forked = if own_namespace {
        pidns::fork()?
    } else {
        clone::fork().map_err(|errno| Error::kernel("start the monitor", errno))?
    };
    match forked {
        Fork::Parent(monitor) => {
            drop((shim_pidfd, image, hosts.watched));
            let guard = Guard {
                config: job.config,
                monitor,
                board: job.board,
                relay: job.relay.as_ref(),
                parent: hosts.parent,
                job_control: job.place.job_control,
                forward_hup: job.place.forward_hup,
                bell: bell.map(|(read, _)| read),
                server: None,
                way: Way::Direct,
                obeyed: Suspension::default(),
                strangers: Some(std::mem::take(&mut job.place.strangers))
                    .filter(|strangers| !strangers.is_empty()),
            };
            shim_main(guard, &job, cgroup)
        }
        Fork::Child => {
            become_monitor(&job.place)?;
            job.relay = None;
            // With a bell, that tells it.
            if let Some(fd) = shim_pidfd.filter(|_| bell.is_none()) {
                let trigger = Trigger::ShimKilled;
                hosts.watched.push(Watched { fd, trigger });
            }
            let shim = match (bell, shim_pid) {
                (Some((_, write)), _) => Shim::Bell(write),
                // It may have died before we armed anything: then there is nobody to serve.
                (None, Some(pid)) if pid::parent() == pid.get() => Shim::Pid(pid),
                (None, _) => {
                    let text = "the shim is gone, so COMMAND was not started";
                    return Err(Error::Gone(text));
                }
            };
            // Children that the shim had before are not ours.
            job.place.strangers.clear();
            server_and_loop(&job, hosts, image, cgroup, Role::Monitor { shim })
        }
    }
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
    job: &Job<'_>,
    hosts: Hosts,
    image: Image,
    cgroup: Option<Cgroup>,
    role: Role,
) -> Result<u8, Error> {
    let (signals, server) = start_server(job, image, cgroup.as_ref())?;
    // From here on there is no way out but an empty tree, whether the server's exec has come back or not.
    if job.place.job_control && matches!(role, Role::Monitor { .. }) {
        // To the kernel a parent in another group of the session is a shell that will continue what the
        // terminal stops. We do not; so where there is no shell, nothing may be stopped. See `setpgid(2)`.
        let _ = prctl::new_session();
    }
    job.place.let_go();
    let mut watch = make_watch(signals, job, hosts, cgroup.as_ref());
    let mut killer = Killer::new(Some(server), job.place.strangers.clone(), cgroup);
    if let Role::Monitor {
        shim: Shim::Bell(bell),
    } = &role
    {
        watch.add_bell(bell.as_fd());
        killer = killer.of_namespace();
    }
    let mut linux = job.world(role, watch, killer);
    memory::give_back();
    let plan = supervise::run(&mut linux, Plan::new(job.place.settings));
    job.check_start(&plan)?;
    let status = linux.finish(&plan);
    if plan.state() == State::GivenUp && linux.leave_shim(status) {
        linux.reap_to_the_end();
    }
    Ok(status)
}

fn start_server(
    job: &Job<'_>,
    image: Image,
    cgroup: Option<&Cgroup>,
) -> Result<(SignalFd, Server), Error> {
    let signals = SignalFd::new().map_err(|errno| Error::kernel("make a signalfd", errno))?;
    let group = job.place.server_group();
    let setup = Setup {
        inherited: *job.inherited,
        group,
        parent_death_signal: job.config.signal,
        no_new_privs: job.config.no_new_privs,
        announce: job.board.server_word(),
        failure: job.board.failure_word(),
        interpreter: job.board.interpreter(),
    };
    let (name, cgroup) = (job.name(), cgroup.map(|cgroup| cgroup.dir.as_fd()));
    job.place.keep_early_keys();
    let server = spawn::start(image, setup, cgroup, job.board, name)?;
    let pid = server.pid.get();
    let session = group == Group::Own;
    voice::tell(&Step::Started { name, pid, session });
    Ok((signals, server))
}

fn make_watch(signals: SignalFd, job: &Job<'_>, hosts: Hosts, cgroup: Option<&Cgroup>) -> Watch {
    let mut watch = Watch::new(signals);
    for watched in hosts.watched {
        watch.add_process(watched.fd, watched.trigger);
    }
    // Our copies of stdin and stdout must not keep a pipe alive that the server has given up.
    match job.place.stdin {
        Some(trigger) => watch.add_stdin(trigger, job.config.stdin == StdinMode::Auto),
        None => fd::give_up(fd::STDIN),
    }
    if job.config.watch_stdout {
        watch.add_stdout();
    } else {
        fd::give_up(fd::STDOUT);
    }
    if let Some(cgroup) = cgroup {
        watch.add_cgroup_events(cgroup.events.as_fd());
    }
    watch
}

/// The shim: guards the monitor, and stops the tree itself if that is killed.
fn shim_main(mut guard: Guard<'_>, job: &Job<'_>, cgroup: Option<Cgroup>) -> Result<u8, Error> {
    fd::give_up(fd::STDIN);
    fd::give_up(fd::STDOUT);
    job.place.let_go();
    memory::give_back();
    let status = match guard.run() {
        End::Leave(status) => {
            guard.finish();
            status
        }
        End::TakeOver => take_over(guard, job, cgroup)?,
    };
    job.place.leave(job.board, status);
    Ok(status)
}

fn take_over(guard: Guard<'_>, job: &Job<'_>, cgroup: Option<Cgroup>) -> Result<u8, Error> {
    let board = job.board;
    if guard.bell.is_some() && board.ended().is_none() {
        // The monitor was the init of a namespace: with it the kernel has killed all.
        board.set_ended(Ended::Killed(Signal::KILL.number()));
    }
    let has_bell = guard.bell.is_some();
    let strangers = guard.strangers.unwrap_or_default();
    // Unless it is our child by now, somebody else may have its pid.
    let server = board.server().map(|pid| Server {
        pid,
        pidfd: None,
        leads_group: !job.place.job_control,
        board,
        reaped: board.ended().is_some() || !wait::is_child(pid) || strangers.contains(&pid.get()),
        suspended: None,
        told: if board.server_told() {
            Told::ByUs
        } else {
            Told::PerhapsByKernel
        },
    });
    let killer = Killer::new(server, strangers, cgroup);
    let mut linux = job.world(Role::Heir, Watch::signals_only(), killer);
    // The pid of a server in a namespace that is gone is somebody else's here.
    linux.relay = linux.relay.filter(|_| !has_bell);
    linux.pending = Some(Event::Trigger(Trigger::MonitorKilled));
    linux.reap_first = true;
    let plan = supervise::run(&mut linux, board.resume(job.place.settings, clock::now()));
    job.check_start(&plan)?;
    Ok(linux.finish(&plan))
}
