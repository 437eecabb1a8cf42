//! Several writers of the server's stdin: a third process that reads from all of them, and writes whole messages.
//!
//! It exists only with `--inject` or `--cancel`. The process that the host knows makes it before anything else, so it
//! is no process of the tree. The shim and the monitor never read a byte of these streams.
#![forbid(unsafe_code)]

pub mod boundary;
pub mod framing;
mod handle;
pub mod inbox;
mod input;
mod others;
mod output;
mod peer;
mod run;
pub mod schedule;
mod socket_file;
mod words;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::output::error::Error;
use crate::settings::writers::{Source, Use, Writers};
use crate::sys::clone::{self, Fork};
use crate::sys::fd::{self, Kind};
use crate::sys::stream::{self, Given, Stream};
use crate::sys::{prctl, proc, startup};
pub use handle::Handle;
use handle::READY;
use others::{Input, Origin};
use run::Ends;
use socket_file::{Place, SocketFile};
use words::Words;

/// The command name of the relay.
pub const NAME: &CStr = c"tree-relay";

/// The sources, checked before anything is started.
#[derive(Debug)]
pub struct Sources {
    inputs: Vec<Input>,
    sockets: Vec<Unmade>,
}

/// A socket that the relay makes.
#[derive(Debug)]
struct Unmade {
    place: Place,
    /// Which one of the inputs it is.
    input: usize,
    /// The option that asks for it.
    option: &'static str,
}

/// Checks the sources. Those that were inherited are removed from `inherited`, the descriptors that the server gets.
///
/// # Errors
/// A source cannot be used; stdin cannot have further writers.
pub fn open(settings: &Writers, inherited: &mut Vec<i32>) -> Result<Option<Sources>, Error> {
    if settings.sources.is_empty() {
        return Ok(None);
    }
    let stdin = fd::describe(fd::STDIN).0;
    let usable = match stdin {
        Kind::Pipe => stream::look(fd::STDIN) == Given::Pipe,
        Kind::Socket => stream::look(fd::STDIN) == Given::Socket,
        Kind::Terminal | Kind::Other => false,
    };
    if !usable {
        return Err(Error::Misuse(format!(
            "{}: stdin is not a pipe, FIFO or stream socket, so it cannot have further writers",
            settings.sources[0].0.option()
        )));
    }
    let mut sources = Sources {
        inputs: Vec::new(),
        sockets: Vec::new(),
    };
    for (does, source) in &settings.sources {
        let option = does.option();
        let origin = match source {
            Source::Descriptor(number) => {
                Some(Origin::Stream(take_inherited(*number, inherited, option)?))
            }
            Source::Socket(path) => {
                if !proc::is_of_own_namespace() {
                    return Err(Error::Unavailable(format!(
                        "{option}: cannot check who connects to a socket: /proc is missing, or is that of another PID namespace"
                    )));
                }
                sources.sockets.push(Unmade {
                    place: Place::open(path, option)?,
                    input: sources.inputs.len(),
                    option,
                });
                None
            }
        };
        sources.inputs.push(Input {
            name: source.to_string(),
            does: *does,
            origin,
        });
    }
    for does in [Use::Inject, Use::Cancel] {
        let inherited = |input: &&Input| input.does == does && input.origin.is_some();
        let (count, most) = (
            sources.inputs.iter().filter(inherited).count(),
            others::most(does),
        );
        if count > most {
            return Err(Error::Misuse(format!(
                "{}: {count} descriptors were given, and there can be {most} writers at a time",
                does.option()
            )));
        }
    }
    Ok(Some(sources))
}

fn take_inherited(number: i32, inherited: &mut Vec<i32>, option: &str) -> Result<Stream, Error> {
    let unusable =
        |why: &str| Error::Misuse(format!("{option}: cannot read from fd:{number}: {why}"));
    let given = stream::look(number);
    let at = inherited.iter().position(|fd| *fd == number);
    match (given, at) {
        (Given::Closed, _) => Err(unusable("it is closed")),
        (Given::Unusable, _) => Err(unusable(
            "it is neither a pipe that can be read from nor a connected stream socket",
        )),
        (Given::Pipe | Given::Socket, None) => {
            Err(unusable("it is given twice, or was not inherited"))
        }
        (Given::Pipe | Given::Socket, Some(at)) => {
            inherited.remove(at);
            Ok(stream::adopt(number, given))
        }
    }
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

impl Sources {
    /// Starts the relay. Puts the server's stdin in the place of that of treaper and, with a boundary, its stdout.
    ///
    /// # Errors
    /// `EAGAIN`, `EMFILE`, ...; a socket cannot be made.
    pub fn start(
        self,
        settings: &Writers,
        drain: Duration,
    ) -> Result<(Handle, HostStreams), Error> {
        let cannot = |errno| Error::kernel("start the relay", errno);
        let words = Words::shared().map_err(cannot)?;
        let (line, far) = stream::line().map_err(cannot)?;
        let (stdin, stdout) = (fd::describe(fd::STDIN).0, fd::describe(fd::STDOUT).0);
        let host_input = stream::copy_of(fd::STDIN).map_err(cannot)?;
        let (to_server, server_stdin) = stream::outgoing(stdin).map_err(cannot)?;
        let between = !settings.boundaries.is_empty();
        let (mut output, mut server_stdout) = (None, None);
        if between {
            let host_output = stream::copy_of(fd::STDOUT).map_err(cannot)?;
            let (from_server, theirs) = stream::incoming(stdout).map_err(cannot)?;
            output = Some((from_server, host_output));
            server_stdout = Some(theirs);
        }
        let forked = clone::fork_plainly().map_err(cannot)?;
        let Fork::Parent(pid) = forked else {
            let ends = Ends {
                input: (Stream::new(host_input, stdin), to_server),
                output: output.map(|(from, to)| (from, Stream::new(to, stdout))),
                others: self.inputs,
                line: far,
                words,
            };
            become_relay(ends, self.sockets, settings, drain);
        };
        // Otherwise the line would not hang up when the relay ends.
        drop(far);
        let mut handle = Handle::new(pid, line, words);
        handle.receive_files(
            self.sockets
                .into_iter()
                .map(|socket| socket.place)
                .collect(),
        )?;
        fd::redirect(server_stdin.as_fd(), fd::STDIN);
        if let Some(server_stdout) = &server_stdout {
            fd::redirect(server_stdout.as_fd(), fd::STDOUT);
        }
        let streams = HostStreams {
            stdin: host_input,
            stdout: output.map(|(_, to)| to),
        };
        Ok((handle, streams))
    }
}

/// Runs in the new process. A signal to the group or the name of the shim does not reach it, and all signals are
/// blocked.
fn become_relay(mut ends: Ends, sockets: Vec<Unmade>, settings: &Writers, drain: Duration) -> ! {
    let _ = prctl::new_session();
    prctl::set_name(NAME);
    startup::set_command_line("tree-relay");
    // The host may kill the shim at any time. Then the relay removes the sockets, so the relay makes them.
    let Some(files) = make_sockets(sockets, &mut ends) else {
        clone::exit_child(1);
    };
    let _ = std::env::set_current_dir("/");
    fd::replace_by_stderr(fd::STDIN);
    fd::replace_by_stderr(fd::STDOUT);
    let mut kept = kept(&ends);
    kept.extend(files.iter().map(SocketFile::folder));
    stream::close_all_except(&kept);
    // Each writer needs a descriptor.
    fd::raise_limit();
    let done = run::run(ends, settings, drain);
    // The shim and the monitor may both be gone.
    socket_file::remove(&files);
    clone::exit_child(i32::from(!done))
}

/// Makes the sockets, and reports that to the shim. `None`: one of them cannot be made.
fn make_sockets(sockets: Vec<Unmade>, ends: &mut Ends) -> Option<Vec<SocketFile>> {
    let mut files = Vec::new();
    let mut report = vec![READY];
    for Unmade {
        place,
        input,
        option,
    } in sockets
    {
        match place.make(option) {
            Ok((identity, listener)) => {
                ends.others[input].origin = Some(Origin::Listener(listener));
                report.extend(identity.to_bytes());
                files.push(SocketFile::new(place, identity));
            }
            Err(error) => {
                stream::send(ends.line.as_fd(), error.to_string().as_bytes());
                socket_file::remove(&files);
                return None;
            }
        }
    }
    if !files.is_empty() {
        stream::send(ends.line.as_fd(), &report);
    }
    Some(files)
}

fn kept(ends: &Ends) -> Vec<i32> {
    let mut kept = vec![
        ends.input.0.as_raw_fd(),
        ends.input.1.as_raw_fd(),
        ends.line.as_raw_fd(),
    ];
    if let Some((from, to)) = &ends.output {
        kept.extend([from.as_raw_fd(), to.as_raw_fd()]);
    }
    for input in &ends.others {
        kept.extend(input.origin.as_ref().map(|origin| match origin {
            Origin::Stream(stream) => stream.as_raw_fd(),
            Origin::Listener(listener) => listener.as_raw_fd(),
        }));
    }
    kept
}
