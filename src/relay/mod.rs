//! Several writers of the server's stdin: a third process that reads from all of them, and writes whole messages.
//!
//! It exists only if it was asked for. It is made by the process that the host knows, before that makes anything else,
//! and so it is not of the tree. The other two processes never read a byte.
#![forbid(unsafe_code)]

pub mod boundary;
pub mod framing;
pub mod inbox;
mod input;
mod output;
mod peer;
mod run;
pub mod schedule;
mod socket_file;
mod words;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::output::error::Error;
use crate::plan::event::Trigger;
use crate::settings::writers::{Source, Use, Writers};
use crate::sys::clone::{self, Fork};
use crate::sys::fd::{self, Kind};
use crate::sys::pid::{self, Pid};
use crate::sys::poll;
use crate::sys::signal::Signal;
use crate::sys::stream::{self, Given, Stream};
use crate::sys::wait::{self, Change};
use crate::sys::{Errno, clock, memory, pidfd, prctl, proc, startup};
use input::{Input, Origin};
use run::Ends;
use socket_file::{Identity, Place, SocketFile};
use words::Words;

/// The command name of the relay.
pub const NAME: &CStr = c"tree-relay";

/// How long the relay may pass nothing on after the end of the tree: a little longer than its own patience.
const PATIENCE: Duration = Duration::from_secs(7);
/// How often that is looked at.
const PAUSE: Duration = Duration::from_millis(500);

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

/// Opens the sources, and takes those that were inherited off `inherited`, which are the server's descriptors.
///
/// # Errors
/// A source cannot be used; stdin cannot have further writers.
pub fn open(settings: &Writers, inherited: &mut Vec<i32>) -> Result<Option<Sources>, Error> {
    if settings.sources.is_empty() {
        return Ok(None);
    }
    let option = |does| match does {
        Use::Inject => "--inject",
        Use::Cancel => "--cancel",
    };
    let stdin = fd::describe(fd::STDIN).0;
    let usable = match stdin {
        Kind::Pipe => stream::look(fd::STDIN) == Given::Pipe,
        Kind::Socket => stream::look(fd::STDIN) == Given::Socket,
        Kind::Terminal | Kind::Other => false,
    };
    if !usable {
        return Err(Error::Misuse(format!(
            "{}: stdin is not a pipe, FIFO or stream socket, so it cannot have further writers",
            option(settings.sources[0].0)
        )));
    }
    let mut sources = Sources {
        inputs: Vec::new(),
        sockets: Vec::new(),
    };
    for (does, source) in &settings.sources {
        let option = option(*does);
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
    Ok(Some(sources))
}

fn remove(files: &[SocketFile]) {
    for file in files {
        file.remove();
    }
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

/// Our stdin and stdout, while the server's stand in their place.
#[derive(Debug)]
pub struct HostStreams {
    stdin: OwnedFd,
    stdout: Option<OwnedFd>,
}

impl HostStreams {
    /// Puts them back, once the server has its own.
    pub fn restore(self) {
        fd::redirect(self.stdin.as_fd(), fd::STDIN);
        if let Some(stdout) = &self.stdout {
            fd::redirect(stdout.as_fd(), fd::STDOUT);
        }
    }
}

/// The relay, as shim and monitor know it.
#[derive(Debug)]
pub struct Handle {
    pub pid: Pid,
    /// The process that has started it.
    top: i32,
    pidfd: Option<OwnedFd>,
    line: OwnedFd,
    words: Words,
    files: Vec<SocketFile>,
}

impl Sources {
    /// Starts the relay, and puts the server's stdin, and its stdout with a boundary, in the place of ours.
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
        let mut handle = Handle {
            pid,
            top: pid::own(),
            // Our child, and not reaped: it is this process.
            pidfd: pidfd::of(pid).ok(),
            line,
            words,
            files: Vec::new(),
        };
        handle.files = handle.receive_files(self.sockets)?;
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

/// The new process: nothing that reaches the shim by group or by name reaches it. All signals are blocked.
fn become_relay(mut ends: Ends, sockets: Vec<Unmade>, settings: &Writers, drain: Duration) -> ! {
    let _ = prctl::new_session();
    prctl::set_name(NAME);
    startup::set_command_line("tree-relay");
    // Not the shim, which the host may kill at any time: the relay removes its sockets then.
    let Some(files) = make_sockets(sockets, &mut ends) else {
        clone::exit_child(1);
    };
    let _ = std::env::set_current_dir("/");
    fd::replace_by_stderr(fd::STDIN);
    fd::replace_by_stderr(fd::STDOUT);
    let mut kept = kept(&ends);
    kept.extend(files.iter().map(SocketFile::folder));
    stream::close_all_except(&kept);
    memory::release();
    let done = run::run(ends, settings, drain);
    // Neither the shim nor the monitor may be left to do that.
    remove(&files);
    clone::exit_child(i32::from(!done))
}

/// What the relay sends first if its sockets are there: this byte, and which files they are. Otherwise the reason.
const READY: u8 = b'.';

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
                remove(&files);
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

impl Handle {
    /// Is readable when there is news, and hangs up when the relay has ended.
    #[must_use]
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// What the news is, if it is a reason to stop.
    #[must_use]
    pub fn news(&self) -> Option<Trigger> {
        if self.words.has_timed_out() {
            Some(Trigger::CancelTimeout)
        } else if self.words.is_done() {
            None
        } else {
            Some(Trigger::RelayKilled)
        }
    }

    /// Resumes the relay if it is suspended: then nothing would reach the server. For the process that has started it,
    /// after its children were looked at: that takes the news of a suspension, and `/proc` still shows it.
    pub fn keep_awake(&self) {
        let shown = proc::stat(self.pid.get()).is_ok_and(|stat| matches!(stat.state, b'T' | b't'));
        let reported = || matches!(wait::job_change(self.pid), Some(Change::Suspended(_)));
        if let Some(pidfd) = &self.pidfd
            && (shown || reported())
        {
            let _ = pidfd::send(pidfd.as_fd(), Signal::CONT);
        }
    }

    /// How many bytes of stdin are on their way to the server.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.words.unread()
    }

    /// Whether the server's stdin has ended for good.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.words.has_ended()
    }

    /// How many messages of other writers were written to the server, and how often one was discarded.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        self.words.counts()
    }

    /// The tree is gone. The relay passes on what is left of its output, and ends.
    pub fn hang_up(&self) {
        stream::hang_up(self.line.as_fd());
    }

    /// After the end of the tree: waits until the relay has passed on what is left, and removes the sockets. Only the
    /// process that has started it waits.
    pub fn finish(&self) {
        self.hang_up();
        if pid::own() == self.top {
            self.wait();
        }
        remove(&self.files);
    }

    /// Waits for the sockets that the relay makes.
    fn receive_files(&self, sockets: Vec<Unmade>) -> Result<Vec<SocketFile>, Error> {
        let mut files = Vec::new();
        if sockets.is_empty() {
            return Ok(files);
        }
        let mut first = [0];
        if !self.receive(&mut first) {
            self.wait();
            for socket in &sockets {
                socket.place.clean();
            }
            return Err(Error::Gone(
                "the relay was killed, so COMMAND was not started",
            ));
        }
        if first[0] != READY {
            let mut text = vec![first[0]];
            while self.receive(&mut first) {
                text.push(first[0]);
            }
            return Err(Error::Misuse(String::from_utf8_lossy(&text).into_owned()));
        }
        for socket in sockets {
            let mut bytes = [0; Identity::SIZE];
            if self.receive(&mut bytes) {
                files.push(SocketFile::new(socket.place, Identity::of_bytes(&bytes)));
            }
        }
        Ok(files)
    }

    /// Waits until the relay has sent so many bytes. False: it has ended.
    fn receive(&self, mut bytes: &mut [u8]) -> bool {
        while !bytes.is_empty() {
            match stream::receive(self.line.as_fd(), bytes) {
                Ok(count @ 1..) => bytes = &mut bytes[count..],
                Err(Errno::AGAIN | Errno::INTR) => {
                    let mut one = [libc::pollfd {
                        fd: self.line.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    }];
                    if poll::poll(&mut one, Some(PAUSE)) == Ok(0) {
                        self.keep_awake();
                    }
                }
                Ok(0) | Err(_) => return false,
            }
        }
        true
    }

    fn wait(&self) {
        let (mut passed, mut since) = (self.words.passed(), clock::now());
        while !self.is_gone(PAUSE) {
            if self.words.passed() != passed {
                (passed, since) = (self.words.passed(), clock::now());
            }
            let signal = if clock::now() > since + PATIENCE {
                Signal::KILL
            } else {
                // It may have been suspended.
                Signal::CONT
            };
            if let Some(pidfd) = &self.pidfd {
                let _ = pidfd::send(pidfd.as_fd(), signal);
            } else if signal == Signal::KILL {
                return;
            }
        }
        // Unless it was reaped, its number is its own.
        if self
            .pidfd
            .as_ref()
            .is_some_and(|pidfd| pidfd::is_unreaped(pidfd.as_fd()) == Ok(true))
        {
            let _ = wait::child(self.pid);
        }
    }

    /// Whether it is gone within this time.
    fn is_gone(&self, time: Duration) -> bool {
        let end = clock::now() + time;
        loop {
            // Where there is no pidfd, the line hangs up a moment before the end.
            let (fd, events) = match &self.pidfd {
                Some(pidfd) => (pidfd.as_raw_fd(), libc::POLLIN),
                None => (self.line.as_raw_fd(), 0),
            };
            let mut one = [libc::pollfd {
                fd,
                events,
                revents: 0,
            }];
            let left = end.saturating_sub(clock::now());
            let _ = poll::poll(&mut one, Some(left));
            if one[0].revents & (libc::POLLIN | libc::POLLHUP) != 0 {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.finish();
    }
}
