//! The process that the host has started becomes the relay with `--inject` or `--turn`: it reads
//! from several writers, writes whole messages, and follows the turns of the server. Treaper goes
//! on in its child, with a pipe or socket of the relay as stdin and, with `--turn`, as stdout.

mod child;
mod connections;
mod family;
pub mod inbox;
mod input;
mod life;
pub mod members;
mod output;
mod socket_file;
pub mod turns;

use std::os::fd::AsFd;
use std::path::Path;

use crate::contain::Level;
use crate::origin::place::Place;
use crate::output::error::{self, Error};
use crate::output::{status, stderr};
use crate::pair::{self, context::Front};
use crate::settings::config::{Config, Writers};
use crate::sys::parent::Parent;
use crate::sys::wait::Ended;
use crate::sys::{Errno, apart, arrival, clone, fd, pid, prctl, proc, signal, startup, stream};
use socket_file::SocketFile;

/// Whether there can be a relay here. To be called before anything is started.
pub fn check(settings: &Writers) -> Result<(), Error> {
    if !settings.are_used() {
        return Ok(());
    }
    let refused = |why: &str| Err(Error::new(format!("{}: {why}", settings.source)));
    if !stream::stdin_can_be_relayed() {
        let hint = match fd::kind(fd::STDIN) {
            fd::Kind::Terminal => "; at a terminal, write: cat | treaper",
            _ => "",
        };
        let why = "stdin is not a pipe, FIFO or stream socket, so the relay cannot pass it on";
        return refused(&format!("{why}{hint}"));
    }
    if settings.follow_turns() && startup::was_closed(fd::STDOUT) {
        return refused("stdout is closed, so no answer can be passed on");
    }
    if !settings.sockets.is_empty() && proc::view().is_err() {
        let why = error::describe(proc::FOREIGN);
        return refused(&format!("cannot check which process connects: {why}"));
    }
    let mut paths = settings.sockets.iter();
    paths.try_for_each(|path| at_path(settings, path, SocketFile::open(path)).map(drop))
}

/// Names the socket that cannot be made.
fn at_path<T>(settings: &Writers, path: &Path, made: Result<T, String>) -> Result<T, Error> {
    let (source, path) = (&settings.source, path.display());
    let unmade = |why| Error::new(format!("{source}: cannot make the socket '{path}': {why}"));
    made.map_err(unmade)
}

/// What treaper knows of the relay, and the sockets, which are removed when they are dropped.
type Started = (Front, Vec<SocketFile>);

/// This process becomes the relay and does not return, but its child does. `parent`: the host, if
/// its end is a trigger. Not inlined: its stack frame has five pages.
#[inline(never)]
pub fn start(config: &Config, place: &Place, parent: Option<Parent>) -> Result<Started, Error> {
    let settings = &config.writers;
    check(settings)?;
    let cannot = |errno| Error::kernel("start the relay", errno);
    // What treaper gets, under these numbers.
    let mut far = Vec::new();
    let mut output = output::Output::default();
    if settings.follow_turns() {
        output = output::Output::start(place, &mut far).map_err(cannot)?;
    }
    let (server, end) = stream::outgoing(fd::kind(fd::STDIN)).map_err(cannot)?;
    far.push((end, fd::STDIN));
    let host = stream::of_standard(fd::STDIN).and_then(|own| own.ok_or(Errno::BADF));
    let host = host.map_err(cannot)?;
    let signals = arrival::signal_fd().map_err(cannot)?;
    let (near_line, line) = stream::line().map_err(cannot)?;
    // If one cannot be made, the others are closed first, and then removed.
    let (mut files, mut others) = (Vec::new(), connections::Connections::default());
    for path in &settings.sockets {
        let made = SocketFile::open(path).and_then(SocketFile::make);
        let (file, listener) = at_path(settings, path, made)?;
        files.push(file);
        let name = format!("unix:{}", path.display());
        others.sources.push((name, listener));
    }
    let input = input::Input::new(host, server, others);
    let (relay, job_control) = (pid::Pid::new(pid::own()), place.job_control);
    match clone::fork(job_control).map_err(cannot)? {
        clone::Fork::Child => {
            if !job_control {
                // The relay gets each signal to the group of the host, and forwards it.
                let _ = prctl::new_group();
            }
            if !config.guard && config.contain != Level::Pidns {
                // Without a monitor, no other process resumes a suspended treaper.
                let _ = prctl::signal_on_parent_exit(signal::Signal::CONT);
            }
            for (stream, number) in &far {
                fd::redirect(stream.as_fd(), *number);
            }
            // The ends of the relay are dropped here, or none of them would close with the relay.
            let line = fd::keep(line);
            Ok((Front { pid: relay, line }, files))
        }
        clone::Fork::Parent(pid) => {
            drop((line, far));
            let relay = life::Relay {
                input,
                output,
                turns: turns::Turns::new(settings),
                idle: config.idle,
                signals,
                child: child::Child {
                    pid,
                    job_control,
                    parent,
                    ended: None,
                },
                line: Some(near_line),
            };
            become_relay(relay, place, files)
        }
    }
}

/// Runs the relay, and ends as treaper has ended.
fn become_relay(mut relay: life::Relay, place: &Place, files: Vec<SocketFile>) -> ! {
    startup::set_names(c"tree-relay");
    let helpers = &mut Vec::new();
    pair::release(&[fd::STDIN, fd::STDOUT], place, helpers);
    if !place.job_control {
        fd::leave_directory();
    }
    // Each writer needs a descriptor.
    fd::raise_limit(fd::Resource::RLIMIT_NOFILE);
    // A message would have to wait for a file system that hangs, and all writers with it.
    stderr::write_apart();
    let ended = relay.run().unwrap_or_else(|errno| {
        log::error!("the relay has failed: {}", error::describe(errno));
        Ended::Exited(status::OWN_FAILURE)
    });
    drop((relay, files));
    stderr::finish_apart();
    apart::wait_for(helpers);
    if let Some(signal) = ended.signal() {
        signal::die_of(signal);
    }
    clone::exit_now(ended.code().into())
}
