//! A process that waits in the place of the relay, for a stdin or stdout that cannot be used
//! without waiting.
//!
//! A *courier* copies one stream to another one, and waits in each read and write as long as it
//! takes. It ends with the relay.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::output::error;
use crate::relay::inbox::CHUNK;
use crate::relay::words::Words;
use crate::sys::clone::{self, Fork};
use crate::sys::fd::{self, Kind};
use crate::sys::pid::Pid;
use crate::sys::poll::{Events, poll_one};
use crate::sys::shared::Word;
use crate::sys::signal::{self, Signal};
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, pid, prctl};

/// The command name of a courier.
pub const NAME: &CStr = c"tree-courier";

/// stdin or stdout of treaper, as the relay uses it.
#[derive(Debug)]
pub struct HostStream {
    pub stream: Stream,
    /// It copies between the stream and stdin or stdout, and is ended when this is dropped.
    pub courier: Option<Pid>,
}

impl Drop for HostStream {
    fn drop(&mut self) {
        // It is not reaped yet, so its pid is its own. The process that adopts it reaps it: one
        // that waits for a file system does not end by SIGKILL, and the relay never waits.
        if let Some(courier) = self.courier {
            let _ = signal::kill(courier, Signal::KILL);
        }
    }
}

impl HostStream {
    /// The stdin or stdout of this process. To be called in the relay: a courier ends with the
    /// process that starts it.
    pub fn open(number: i32, words: Words) -> Result<Self, Errno> {
        if let Some(stream) = stream::of_standard(number, fd::kind(number)) {
            let courier = None;
            return Ok(Self { stream, courier });
        }
        let standard = stream::copy_of(number)?;
        let (stream, far) = stream::incoming(Kind::Socket)?;
        let (courier, word) = if number == fd::STDIN {
            (start(&standard, &far, None)?, words.stdin_courier)
        } else {
            (
                start(&far, &standard, Some(words.passed))?,
                words.stdout_courier,
            )
        };
        word.set(courier.get() as u64);
        let courier = Some(courier);
        Ok(Self { stream, courier })
    }
}

/// `passed`: where the courier counts what it has written.
fn start(from: &OwnedFd, to: &OwnedFd, passed: Option<Word>) -> Result<Pid, Errno> {
    let relay = pid::own();
    if let Fork::Parent(pid) = clone::fork_plainly()? {
        return Ok(pid);
    }
    prctl::set_name(NAME);
    let _ = prctl::signal_on_parent_exit(Signal::KILL);
    if pid::parent() == relay {
        fd::give_up(fd::STDIN);
        fd::give_up(fd::STDOUT);
        stream::close_all_except(&[from.as_raw_fd(), to.as_raw_fd()]);
        copy(from, to, passed);
    }
    clone::exit_child(0);
}

/// How much one write takes: a write that waits returns only when all of it is written, and
/// progress must show.
const PIECE: usize = 4096;
/// The stream is looked at again after this long, if poll has reported nothing.
const LOOK: Duration = Duration::from_secs(3600);

fn copy(from: &OwnedFd, to: &OwnedFd, passed: Option<Word>) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) =
        wait_for(from, Events::IN, &mut || rustix::io::read(from, &mut bytes))
    {
        let mut left = &bytes[..count];
        while !left.is_empty() {
            let piece = &left[..left.len().min(PIECE)];
            match wait_for(to, Events::OUT, &mut || rustix::io::write(to, piece)) {
                Ok(count) => {
                    left = &left[count..];
                    if let Some(passed) = passed {
                        passed.add(count as u64);
                    }
                }
                Err(Errno::PIPE) => return,
                Err(errno) => {
                    let why = error::describe(errno);
                    log::warn!(
                        "the server's output is lost, since stdout cannot be written: {why}"
                    );
                    return;
                }
            }
        }
    }
}

/// Waits also if a process that shares the stream has set `O_NONBLOCK` on it.
fn wait_for(
    stream: &OwnedFd,
    events: Events,
    call: &mut dyn FnMut() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::AGAIN) => drop(poll_one(stream.as_raw_fd(), events, LOOK)),
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
