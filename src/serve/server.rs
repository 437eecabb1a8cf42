//! The start of the server, in the process that runs the loop.

use std::os::fd::AsFd;

use crate::command;
use crate::output::error::Error;
use crate::output::progress::Step;
use crate::pair::context::Context;
use crate::pair::link::Link;
use crate::pair::monitor::{Monitor, Role};
use crate::plan::event::Trigger;
use crate::serve::prepare::Prepared;
use crate::settings::config::StdinMode;
use crate::streams::idle::Idle;
use crate::streams::watch::Watch;
use crate::sys::arrival::{self, SignalFd};
use crate::sys::clone::{self, Setup, Standing};
use crate::sys::exec::Failure;
use crate::sys::{fd, prctl};
use crate::tree::{Server, Tree};

/// Starts the server. Returns what runs the loop.
///
/// # Errors
/// No process could be made.
pub fn start<'a>(
    context: &'a Context<'a>,
    prepared: Prepared,
    role: Role,
    strangers: Vec<i32>,
) -> Result<Monitor<'a>, Error> {
    let Prepared {
        hosts,
        mut command,
        containment,
        writes,
    } = prepared;
    let signals = SignalFd::new().map_err(|errno| Error::kernel("make a signalfd", errno))?;
    let standing = context.place.standing;
    let setup = Setup {
        inherited: *context.inherited,
        standing,
        parent_death_signal: context.config.signal,
        no_new_privs: context.config.no_new_privs,
        announce: context.board.server_word(),
        leader: context.board.leader_word(),
        failure: context.board.failure_word(),
    };
    let (name, cgroup) = (context.command(), containment.cgroup());
    let inside = cgroup.map(|cgroup| cgroup.dir.as_fd());
    let spawned = clone::spawn(&setup, inside, || command.execute())
        .map_err(|errno| command::error(Failure::Clone(errno), name, &context.place.directory))?;
    context.voice.report(&Step::Started {
        name,
        pid: spawned.pid.get(),
        session: standing == Standing::LeadsSession,
    });
    // From here on the only way out is an empty tree, whether the server's exec is done or not.
    fd::raise_limit(fd::Resource::RLIMIT_CPU);
    if context.place.job_control && matches!(role, Role::Monitor { .. }) {
        // The kernel takes a parent in another group of the same session for a shell, which resumes
        // what the terminal suspends. The monitor does not do that, so it leaves the session. Then
        // the kernel suspends the job only if there is a shell that can resume it. See
        // `setpgid(2)`.
        let _ = prctl::new_session();
        // The shim has got the SIGCONT of the whole job as well, and forwards it. This one would be
        // late, and undo a Ctrl-Z that came since then.
        arrival::forget_resumption();
    }
    context.place.release_inherited();
    if matches!(role, Role::Monitor { .. }) || !context.place.job_control {
        context.place.release_directory();
    }
    let mode = context.config.stdin;
    let mut stdin = context.place.stdin;
    if stdin == Some(Trigger::StdinEof) && mode == StdinMode::Auto && !hosts.hold_stdin() {
        log::info!("stdin is not watched: no process that started treaper has its other end");
        stdin = None;
    }
    let mut watch = Watch::new(signals);
    for watched in hosts.watched {
        watch.add_process(watched.fd, watched.trigger);
    }
    // Before stdin, which ends with that process.
    if let Some(front) = &context.front {
        watch.add_front(front.line.as_fd());
    }
    // treaper's copies of stdin and stdout must not keep a pipe open that the server has closed.
    match stdin {
        Some(trigger) => watch.add_stdin(trigger, mode == StdinMode::Auto),
        // treaper needs its copy of stdin to ask how many bytes are unread.
        None if writes.is_some() => {}
        None => fd::give_up(fd::STDIN),
    }
    if context.config.stdout {
        watch.add_stdout();
    } else {
        fd::give_up(fd::STDOUT);
    }
    if let Some(cgroup) = cgroup {
        watch.add_cgroup_events(cgroup.events.as_fd());
    }
    if let Some((writes, time)) = writes.zip(context.config.idle) {
        watch.add_idle(Idle::start(writes, time));
    }
    if let Role::Monitor {
        shim: Link::Bell(bell),
    } = &role
    {
        watch.add_bell(bell.as_fd());
    }
    let server = Server::new(spawned, standing);
    let ledger = context.report.map(|report| report.ledger);
    let tree = Tree::new(Some(server), strangers, containment, ledger);
    Ok(Monitor::new(context, role, watch, tree))
}
