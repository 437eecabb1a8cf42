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
pub mod lines;
pub mod members;
mod output;
pub mod schedule;
mod socket_file;
pub mod turns;
mod wanted;

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::origin::place::Place;
use crate::output::error::{self, Error};
use crate::output::{status, stderr};
use crate::pair::context::Front;
use crate::pair::end;
use crate::settings::config::Config;
use crate::settings::writers::Writers;
use crate::sys::clone::{self, Fork};
use crate::sys::fd::Kind;
use crate::sys::pid::{self, Pid};
use crate::sys::stream::{self, Stream};
use crate::sys::wait::Ended;
use crate::sys::{Errno, apart, arrival, fd, prctl, proc, signal, startup};
use child::Child;
use connections::{Connections, ListeningSocket};
use family::Family;
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

/// The sockets, made.
fn make_sockets(settings: &Writers) -> Result<(Vec<SocketFile>, Vec<ListeningSocket>), Error> {
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
    to_server: Stream,
    from_server: Option<Stream>,
    to_host: Option<(Stream, Option<Pid>)>,
    far: Vec<(OwnedFd, i32)>,
}

impl Streams {
    fn make(settings: &Writers, place: &Place) -> Result<Self, Errno> {
        let kind = fd::kind;
        // First of all: a courier keeps no end of another stream.
        let mut to_host = None;
        if settings.follow_turns() {
            to_host = Some(match stream::of_standard(fd::STDOUT)? {
                Some(own) => (own, None),
                None => courier::start(place).map(|(own, pid)| (own, Some(pid)))?,
            });
        }
        let (to_server, far) = stream::outgoing(kind(fd::STDIN))?;
        let mut streams = Self {
            host: stream::of_standard(fd::STDIN)?.ok_or(Errno::BADF)?,
            to_server,
            from_server: None,
            to_host,
            far: vec![(far, fd::STDIN)],
        };
        if settings.follow_turns() {
            let (near, far) = stream::incoming(kind(fd::STDOUT))?;
            streams.far.push((far, fd::STDOUT));
            streams.from_server = Some(near);
        }
        Ok(streams)
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
    parent: Option<i32>,
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
    let turns = Turns::new(settings);
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
            drop(line);
            let Streams {
                host,
                to_server,
                from_server,
                to_host,
                far,
            } = streams;
            drop(far);
            let output = from_server.zip(to_host);
            become_relay(
                Relay {
                    input: Input::new(host, to_server, Connections::new(sources, Family(pid))),
                    output: output.map(|(from, (to, courier))| Output::new(from, to, courier)),
                    turns,
                    idle: config.idle,
                    signals,
                    child: Child::new(pid, place.job_control, parent),
                    line: Some(near_line),
                    is_finishing: false,
                },
                place,
                &files,
            )
        }
    }
}

/// Runs the relay in the process that the host has started, and ends that as treaper has ended.
fn become_relay(mut relay: Relay, place: &Place, files: &[SocketFile]) -> ! {
    startup::set_names(NAME);
    let helpers = &mut Vec::new();
    apart::give_up(fd::STDIN, helpers);
    apart::give_up(fd::STDOUT, helpers);
    end::release_inherited(place, helpers);
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
    drop(relay);
    files.iter().for_each(SocketFile::remove);
    if let Some(signal) = ended.signal() {
        signal::die_of(signal);
    }
    clone::exit_child(ended.code().into())
}
