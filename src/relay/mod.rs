//! Several writers of the server's stdin: a third process that reads from all of them, and writes
//! whole messages. It also follows the turns of the server.
//!
//! It exists only with `--inject` or `--cancel`. The process that the host knows makes it before
//! anything else, so it is no process of the tree. The shim and the monitor never read a byte of
//! these streams.

mod connections;
mod courier;
mod handle;
pub mod inbox;
mod input;
pub mod lines;
pub mod members;
mod output;
mod peer;
mod run;
pub mod schedule;
mod socket_file;
pub mod turns;
mod wanted;
mod words;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::output::error::{self, Error};
use crate::output::stderr;
use crate::settings::writers::Writers;
use crate::sys::clone::{self, Fork};
use crate::sys::{Errno, prctl, proc, startup};
use crate::sys::{fd, stream};
use connections::{Connections, ListeningSocket};
use courier::HostStream;
pub use handle::RelayHandle;
use input::Input;
use output::Output;
use peer::Family;
use run::Relay;
use socket_file::{SocketFile, SocketPath};
use turns::Turns;
use words::Words;

/// The command name of the relay.
pub const NAME: &CStr = c"tree-relay";

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
        return Err(Error::Misuse(format!(
            "{source}: stdin is not a pipe, FIFO or stream socket, so the relay cannot pass it on"
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

/// The stdin and stdout of treaper, while those of the server stand in their place.
#[derive(Debug)]
pub struct HostStreams(Vec<(OwnedFd, i32)>);

impl HostStreams {
    /// Puts them back. By now the server has its own.
    pub fn restore(self) {
        redirect(&self.0);
    }
}

/// Puts streams in the place of the standard ones.
fn redirect(streams: &[(OwnedFd, i32)]) {
    for (stream, number) in streams {
        fd::redirect(stream.as_fd(), *number);
    }
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

/// Starts the relay, if there is to be one. Puts the server's stdin in the place of that of treaper
/// and, if turns are followed, its stdout. `strangers`: children from before treaper, which are
/// none of the tree.
///
/// # Errors
/// `EAGAIN`, `EMFILE`, ...; a socket cannot be made.
pub fn start(
    settings: &Writers,
    drain: Duration,
    strangers: &[i32],
) -> Result<Option<(RelayHandle, HostStreams)>, Error> {
    if !settings.are_used() {
        return Ok(None);
    }
    let cannot = |errno| Error::kernel("start the relay", errno);
    let words = Words::shared().map_err(cannot)?;
    let (near_line, line) = stream::line().map_err(cannot)?;
    let copy_of = |number| Ok((stream::copy_of(number).map_err(cannot)?, number));
    let kind = |number| fd::kind(number);
    let (to_server, far) = stream::outgoing(kind(fd::STDIN)).map_err(cannot)?;
    let mut streams = vec![copy_of(fd::STDIN)?];
    let mut server_streams = vec![(far, fd::STDIN)];
    let mut from_server = None;
    if settings.follow_turns() {
        let (near, far) = stream::incoming(kind(fd::STDOUT)).map_err(cannot)?;
        streams.push(copy_of(fd::STDOUT)?);
        server_streams.push((far, fd::STDOUT));
        from_server = Some(near);
    }
    let family = Family::of_this_process(strangers);
    let (files, sources) = make_sockets(settings)?;
    let Fork::Parent(pid) = clone::fork_plainly().map_err(cannot)? else {
        let mut kept = vec![line.as_raw_fd(), to_server.as_raw_fd()];
        kept.extend(from_server.iter().map(AsRawFd::as_raw_fd));
        kept.extend(sources.iter().map(|source| source.listener.as_raw_fd()));
        kept.extend(files.iter().map(SocketFile::folder));
        become_relay(&kept, &files, || {
            let host = HostStream::open(fd::STDIN, words)?;
            let others = Connections::new(sources, family, words);
            let output = from_server.map(|from| {
                let host = HostStream::open(fd::STDOUT, words)?;
                Ok(Output::new(from, host, words))
            });
            Ok(Relay {
                input: Input::new(drain, (host, to_server), others, words),
                output: output.transpose()?,
                turns: Turns::new(settings),
                line,
                is_finishing: false,
                words,
            })
        });
    };
    redirect(&server_streams);
    // The other ends are dropped here: the line would not hang up when the relay ends, and a socket
    // would accept connections.
    let relay = RelayHandle::new(pid, near_line, words, files);
    Ok(Some((relay, HostStreams(streams))))
}

/// Runs in the new process. A signal to the group or the name of the shim does not reach it, and
/// all signals are blocked. It keeps the descriptors `kept` and the standard ones, which `open`
/// opens anew.
fn become_relay(
    kept: &[i32],
    files: &[SocketFile],
    open: impl FnOnce() -> Result<Relay, Errno>,
) -> ! {
    let _ = prctl::new_session();
    startup::set_names(NAME);
    let _ = std::env::set_current_dir("/");
    stream::close_all_except(kept);
    // Messages would have to wait for a file system that hangs, and all writers with them.
    stderr::defer();
    let result = open().and_then(|mut relay| {
        fd::give_up(fd::STDIN);
        fd::give_up(fd::STDOUT);
        // Each writer needs a descriptor.
        fd::raise_limit(fd::Resource::Nofile);
        relay.run()
    });
    if let Err(errno) = result {
        log::error!("the relay has failed: {}", error::describe(errno));
    }
    // The shim and the monitor may both be gone.
    files.iter().for_each(SocketFile::remove);
    stderr::write_deferred();
    clone::exit_child(i32::from(result.is_err()))
}
