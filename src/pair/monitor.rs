//! The life of the monitor: a child of the shim that starts the server, and runs the loop.

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use super::context::{Context, Prepared};
use super::link::Link;
use super::supervisor::{Role, Supervisor};
use crate::output::{error::Error, progress::Step, stderr};
use crate::plan::event::Trigger;
use crate::plan::machine::{Plan, State};
use crate::streams::{forward::Route, watch::Source};
use crate::sys::clone::{self, Setup};
use crate::sys::signal::Signal;
use crate::sys::startup::{self, Standing};
use crate::sys::{apart, arrival, exec::Failure, fd, pid, prctl};
use crate::tree::{Server, Tree};
use crate::{command, origin::hosts, settings::config::StdinMode};

/// `shim` is from before the fork. Returns the exit status of the monitor.
pub fn run(context: &Context<'_>, prepared: &mut Prepared, shim: Link) -> Result<u8, Error> {
    // Signals to the shim's group or by its name do not reach the monitor. It gets no session: the
    // scheduler divides processor time between sessions (autogroup), so a new one would wait behind
    // every busy one. With job control it leaves group and session once the server is started.
    if !context.place.job_control {
        let _ = prctl::new_group();
    }
    context.adopt_orphans()?;
    let _ = prctl::signal_on_parent_exit(Signal::CONT);
    startup::set_names(hosts::MONITOR);
    // A shim that ended before the parent-death signal was set causes none, so its pid is compared.
    if !matches!(shim, Link::Bell(_)) && shim.is_gone() {
        context.record_loss(Trigger::ShimKilled);
        return Err(Error::new(match pid::own() {
            1 => "the monitor would be PID 1, so COMMAND was not started; unshare needs --fork",
            _ => "the shim is gone, so COMMAND was not started",
        }));
    }
    // Other children of the shim are not children of the monitor, so it has no strangers.
    let mut supervisor = start_server(context, prepared, Role::Monitor(shim), Vec::new())?;
    let (plan, status) = supervisor.run(Plan::new(context.policy()), None)?;
    let stays = plan.state == State::Survived && supervisor.release_shim();
    stderr::write_deferred();
    if stays {
        supervisor.reap_to_the_end();
    }
    Ok(status)
}

/// Starts the server, in the monitor or the only process. Returns what runs the loop.
pub fn start_server<'a>(
    context: &'a Context<'a>,
    prepared: &mut Prepared,
    role: Role,
    mut strangers: Vec<i32>,
) -> Result<Supervisor<'a>, Error> {
    let (config, place) = (context.config, &context.place);
    let signals = arrival::signal_fd().map_err(|errno| Error::kernel("make a signalfd", errno))?;
    let is_alone = matches!(role, Role::Alone);
    let setup = Setup {
        inherited: *context.inherited,
        leaves: (!is_alone || !place.job_control).then_some(&*place.directory),
        standing: place.standing,
        parent_death_signal: config.signal,
        no_new_privs: config.no_new_privs,
        announce: context.board.server.atomic(),
        leader: context.board.leader.atomic(),
        failure: context.board.failure.atomic(),
    };
    let (name, cgroup) = (&context.config.command[0], prepared.containment.cgroup());
    let inside = cgroup.map(|cgroup| cgroup.dir.as_fd());
    let spawned = clone::spawn(&setup, inside, || prepared.command.execute())
        .map_err(|errno| command::error(Failure::Clone(errno), name, &place.directory))?;
    if place.job_control && !is_alone {
        // The kernel takes a parent in another group of the same session for a shell, which resumes
        // what the terminal suspends. So the monitor leaves the session. See `setpgid(2)`.
        let _ = prctl::new_session();
        // The shim has got the signals to the whole job as well. A SIGCONT would be late here, and
        // undo a Ctrl-Z that came since then; `kill 0` of the server would go to the host.
        arrival::forget_job(&|sent| matches!(context.rules().route(sent), Route::Trigger(_)));
    }
    context.voice.report(&Step::Started {
        name,
        pid: spawned.pid.get(),
        session: place.standing == Standing::LeadsSession,
    });
    // From here on the only way out is an empty tree, whether the server's exec is done or not.
    fd::raise_limit(fd::Resource::RLIMIT_CPU);
    super::release(&[], place, &mut strangers);
    let is_auto = config.stdin == StdinMode::Auto;
    let mut stdin = place.stdin;
    if stdin == Some(Trigger::StdinEof) && is_auto && !prepared.hosts.hold_stdin() {
        log::info!("stdin is not watched: no process that started treaper holds the other end");
        stdin = None;
    }
    let (mut watch, pipe) = (mem::take(&mut prepared.watch), fd::pipe(fd::STDIN));
    watch.add(Source::Signals(signals));
    // treaper's copies of stdin and stdout must not keep a pipe open that the server has closed.
    match stdin {
        Some(trigger) => watch.add_stdin(trigger, is_auto),
        // treaper needs its copy of stdin to ask how many bytes are unread.
        None if config.idle.is_some() && context.front.is_none() => {}
        None => apart::give_up(fd::STDIN, &mut strangers),
    }
    if config.stdout {
        watch.add_stdout();
    } else {
        apart::give_up(fd::STDOUT, &mut strangers);
    }
    if let Some(cgroup) = cgroup {
        watch.add(Source::Cgroup(cgroup.events.as_raw_fd()));
    }
    if let Role::Monitor(Link::Bell(bell)) = &role {
        watch.add(Source::Bell(bell.as_raw_fd()));
    }
    let server = Server::new(spawned, place.standing);
    let containment = mem::take(&mut prepared.containment);
    let mut tree = Tree::new(Some(server), strangers, containment);
    tree.stdin = pipe;
    let parent = prepared.hosts.parent.filter(|_| is_alone);
    Ok(Supervisor::new(context, role, parent, watch, tree))
}
