//! Several writers of the server's stdin: a third process that reads from all of them, and writes whole messages. It also
//! follows the turns of the server.
//!
//! It exists only with `--inject` or `--cancel`. The process that the host knows makes it before anything else, so it
//! is no process of the tree. The shim and the monitor never read a byte of these streams.
#![forbid(unsafe_code)]

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
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::output::error::{self, Error};
use crate::settings::writers::{Socket, Writers};
use crate::sys::clone::{self, Fork};
use crate::sys::{Errno, prctl, proc, startup};
use crate::sys::{fd, stream};
use connections::{Connections, ListeningSocket};
use courier::HostStream;
pub use handle::RelayHandle;
use peer::Family;
use run::Ends;
use socket_file::{SocketFile, SocketFiles, SocketPath};
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
    let first = settings.sockets.first();
    let source = first.map_or("--cancel", |socket| &socket.source);
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
    for socket in &settings.sockets {
        let checked = SocketPath::open(&socket.path).and_then(|place| place.check());
        checked.map_err(|why| unmade(socket, &why))?;
    }
    Ok(())
}

/// The stdin and stdout of treaper, while those of the server stand in their place.
#[derive(Debug)]
pub struct HostStreams {
    stdin: OwnedFd,
    stdout: Option<OwnedFd>,
}

impl HostStreams {
    /// Puts them back. By now the server has its own.
    pub fn restore(self) {
        fd::redirect(self.stdin.as_fd(), fd::STDIN);
        if let Some(stdout) = &self.stdout {
            fd::redirect(stdout.as_fd(), fd::STDOUT);
        }
    }
}

/// The sockets, made.
fn make_sockets(settings: &Writers) -> Result<(SocketFiles, Vec<ListeningSocket>), Error> {
    let (mut files, mut sources) = (SocketFiles::default(), Vec::new());
    for socket in &settings.sockets {
        let made = SocketPath::open(&socket.path).and_then(SocketPath::make);
        let (file, listener) = made.map_err(|why| unmade(socket, &why))?;
        files.0.push(file);
        let name = format!("unix:{}", socket.path.display());
        sources.push(ListeningSocket { name, listener });
    }
    Ok((files, sources))
}

fn unmade(Socket { path, source }: &Socket, why: &str) -> Error {
    let path = path.display();
    Error::Misuse(format!("{source}: cannot make the socket '{path}': {why}"))
}

/// Starts the relay, if there is to be one. Puts the server's stdin in the place of that of treaper and, if turns are
/// followed, its stdout. `strangers`: children from before treaper, which are none of the tree.
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
    let (line, far) = stream::line().map_err(cannot)?;
    let stdin = stream::copy_of(fd::STDIN).map_err(cannot)?;
    let kind = |number| fd::describe(number).0;
    let (to_server, server_stdin) = stream::outgoing(kind(fd::STDIN)).map_err(cannot)?;
    let (mut stdout, mut from_server, mut server_stdout) = (None, None, None);
    if settings.follow_turns() {
        stdout = Some(stream::copy_of(fd::STDOUT).map_err(cannot)?);
        let (ours, theirs) = stream::incoming(kind(fd::STDOUT)).map_err(cannot)?;
        (from_server, server_stdout) = (Some(ours), Some(theirs));
    }
    let family = Family::of_this_process(strangers);
    let (files, sources) = make_sockets(settings)?;
    let Fork::Parent(pid) = clone::fork_plainly().map_err(cannot)? else {
        let ends = || {
            let host = HostStream::open(fd::STDIN, words.passed)?;
            let output =
                from_server.map(|from| Ok((from, HostStream::open(fd::STDOUT, words.passed)?)));
            Ok(Ends {
                input: (host, to_server),
                output: output.transpose()?,
                others: Connections::new(sources, family, words),
                line: far,
                words,
            })
        };
        become_relay(ends, &files, settings, drain);
    };
    fd::redirect(server_stdin.as_fd(), fd::STDIN);
    if let Some(server_stdout) = &server_stdout {
        fd::redirect(server_stdout.as_fd(), fd::STDOUT);
    }
    // The other ends are dropped here: the line would not hang up when the relay ends, and a socket would accept
    // connections.
    let streams = HostStreams { stdin, stdout };
    Ok(Some((RelayHandle::new(pid, line, words, files), streams)))
}

/// Runs in the new process. A signal to the group or the name of the shim does not reach it, and all signals are
/// blocked.
fn become_relay(
    ends: impl FnOnce() -> Result<Ends, Errno>,
    files: &SocketFiles,
    settings: &Writers,
    drain: Duration,
) -> ! {
    let _ = prctl::new_session();
    prctl::set_name(NAME);
    startup::set_command_line("tree-relay");
    let _ = std::env::set_current_dir("/");
    let done = match ends() {
        Ok(ends) => {
            ends.name_couriers();
            fd::replace_by_stderr(fd::STDIN);
            fd::replace_by_stderr(fd::STDOUT);
            let mut kept = ends.descriptors();
            kept.extend(files.0.iter().map(SocketFile::folder));
            stream::close_all_except(&kept);
            // Each writer needs a descriptor.
            fd::raise_limit();
            run::run(ends, settings, drain)
        }
        Err(errno) => {
            log::error!("cannot start the relay: {}", error::describe(errno));
            false
        }
    };
    // The shim and the monitor may both be gone.
    files.remove();
    clone::exit_child(i32::from(!done))
}
