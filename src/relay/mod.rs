//! Several writers of the server's stdin: a process in front of treaper reads from all of them, and
//! writes whole messages. It also follows the turns of the server.
//!
//! It exists only with `--inject` or `--turn`. The process that the host has started becomes the
//! relay, and treaper goes on in its child, as it would without a relay: with a pipe or socket of
//! the relay as its stdin and, with `--turn`, as its stdout.

mod child;
mod connections;
mod courier;
mod family;
pub mod inbox;
mod input;
mod life;
pub mod members;
mod output;
mod socket_file;
pub mod turns;
mod wanted;

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::origin::place::Place;
use crate::output::error::{self, Error};
use crate::output::{status, stderr};
use crate::pair::{self, context::Front};
use crate::settings::config::Config;
use crate::settings::writers::Writers;
use crate::sys::clone::{self, Fork};
use crate::sys::fd::Kind;
use crate::sys::parent::Parent;
use crate::sys::pid::{self, Pid};
use crate::sys::stream::{self, Stream};
use crate::sys::wait::Ended;
use crate::sys::{Errno, apart, arrival, fd, prctl, proc, signal, startup};
use child::Child;
use connections::{Connections, ListeningSocket};
use input::Input;
use life::Relay;
use output::Output;
use socket_file::{SocketFile, SocketPath};
use turns::Turns;

/// The command name of the relay.
const NAME: &CStr = c"tree-relay";

/// Whether there can be a relay here. To be called before anything is started.
///
/// # Errors
/// stdin cannot have further writers; a socket cannot be made.
pub fn check(settings: &Writers) -> Result<(), Error> {
    if !settings.are_used() {
        return Ok(());
    }
    let source = &settings.source;
    if !stream::stdin_can_be_relayed() {
        let hint = match fd::kind(fd::STDIN) {
            Kind::Terminal => "; at a terminal, write: cat | treaper",
            _ => "",
        };
        return Err(Error::Misuse(format!(
            "{source}: stdin is not a pipe, FIFO or stream socket, so the relay cannot pass it on{hint}"
        )));
    }
    if settings.follow_turns() && startup::was_closed(fd::STDOUT) {
        let why = "stdout is closed, so no answer can be passed on";
        return Err(Error::Misuse(format!("{source}: {why}")));
    }
    if !settings.sockets.is_empty() && proc::view().is_err() {
        return Err(Error::Unavailable(format!(
            "{source}: cannot check which process connects: /proc is missing, or is that of another PID namespace"
        )));
    }
    for path in &settings.sockets {
        SocketPath::open(path).map_err(|why| unmade(source, path, &why))?;
    }
    Ok(())
}

fn make_sockets(settings: &Writers) -> Result<(Vec<SocketFile>, Vec<ListeningSocket>), Error> {
    // If one cannot be made, the others are closed first, in the reverse order, and then removed.
    let (mut files, mut sources) = (Vec::new(), Vec::new());
    for path in &settings.sockets {
        let made = SocketPath::open(path).and_then(SocketPath::make);
        let (file, listener) = made.map_err(|why| unmade(&settings.source, path, &why))?;
        files.push(file);
        let name = format!("unix:{}", path.display());
        sources.push(ListeningSocket { name, listener });
    }
    Ok((files, sources))
}

fn unmade(source: &str, path: &Path, why: &str) -> Error {
    let path = path.display();
    Error::Misuse(format!("{source}: cannot make the socket '{path}': {why}"))
}

/// The streams of the relay, and their other ends, which treaper gets.
struct Streams {
    host: Stream,
    server: Stream,
    output: Option<Output>,
    far: Vec<(OwnedFd, i32)>,
}

impl Streams {
    fn make(settings: &Writers, place: &Place) -> Result<Self, Errno> {
        let (mut output, mut far) = (None, Vec::new());
        if settings.follow_turns() {
            // First of all: a courier keeps no end of another stream.
            let (to, courier) = match stream::of_standard(fd::STDOUT)? {
                Some(own) => (own, None),
                None => courier::start(place).map(|(own, pid)| (own, Some(pid)))?,
            };
            let (from, end) = stream::incoming(fd::kind(fd::STDOUT))?;
            output = Some(Output::new(from, to, courier));
            far.push((end, fd::STDOUT));
        }
        let (server, end) = stream::outgoing(fd::kind(fd::STDIN))?;
        far.push((end, fd::STDIN));
        let host = stream::of_standard(fd::STDIN)?.ok_or(Errno::BADF)?;
        Ok(Self {
            host,
            server,
            output,
            far,
        })
    }
}

/// If there is to be a relay, this process becomes the relay and does not return. Its child returns
/// what it knows of the relay, and the sockets, which are removed when they are dropped. `parent`:
/// the host, if its end is a trigger.
///
/// # Errors
/// `EAGAIN`, `EMFILE`, ...; a socket cannot be made.
pub fn start(
    config: &Config,
    place: &Place,
    parent: Option<Parent>,
) -> Result<Option<(Front, Vec<SocketFile>)>, Error> {
    let settings = &config.writers;
    if !settings.are_used() {
        return Ok(None);
    }
    check(settings)?;
    let cannot = |errno| Error::kernel("start the relay", errno);
    let streams = Streams::make(settings, place).map_err(cannot)?;
    let signals = arrival::signal_fd().map_err(cannot)?;
    let (near_line, line) = stream::line().map_err(cannot)?;
    let (files, sources) = make_sockets(settings)?;
    let relay = Pid::new(pid::own());
    match clone::fork(place.job_control).map_err(cannot)? {
        Fork::Child => {
            if !place.job_control {
                // The relay gets each signal to the group of the host, and forwards it.
                let _ = prctl::new_group();
            }
            for (stream, number) in &streams.far {
                fd::redirect(stream.as_fd(), *number);
            }
            // The ends of the relay are dropped here. Otherwise they would not hang up with it, and
            // the sockets would accept connections.
            Ok(Some((Front { pid: relay, line }, files)))
        }
        Fork::Parent(pid) => {
            drop((line, streams.far));
            let others = Connections::new(sources, pid);
            let relay = Relay {
                input: Input::new(streams.host, streams.server, others),
                output: streams.output,
                turns: Turns::new(settings),
                idle: config.idle,
                signals,
                child: Child::new(pid, place.job_control, parent),
                line: Some(near_line),
                is_finishing: false,
            };
            become_relay(relay, place, files)
        }
    }
}

/// Runs the relay in the process that the host has started, and ends that as treaper has ended.
fn become_relay(mut relay: Relay, place: &Place, files: Vec<SocketFile>) -> ! {
    startup::set_names(NAME);
    let helpers = &mut Vec::new();
    apart::give_up(fd::STDIN, helpers);
    apart::give_up(fd::STDOUT, helpers);
    pair::release_inherited(place, helpers);
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
    if let Some(signal) = ended.signal() {
        signal::die_of(signal);
    }
    clone::exit_now(ended.code().into())
}
