//! A process that waits in the place of the relay, for a stdout that cannot be written without
//! waiting: a file, a device, or a terminal that cannot be opened anew.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::origin::place::Place;
use crate::output::error;
use crate::pair;
use crate::relay::inbox::CHUNK;
use crate::sys::clone::{self, Fork};
use crate::sys::fd::{self, Kind};
use crate::sys::pid::Pid;
use crate::sys::poll::{Events, poll_one};
use crate::sys::signal::Signal;
use crate::sys::stream::{self, Stream};
use crate::sys::{Errno, apart, pid, prctl};

/// The command name of a courier.
const NAME: &CStr = c"tree-courier";

/// Starts a courier, which copies what is written to the stream to stdout. It ends when the stream
/// does, or with this process.
pub fn start(place: &Place) -> Result<(Stream, Pid), Errno> {
    let standard = stream::copy_of(fd::STDOUT)?;
    let (near, far) = stream::outgoing(Kind::Pipe)?;
    let relay = pid::own();
    if let Fork::Parent(pid) = clone::fork_plainly()? {
        return Ok((near, pid));
    }
    let _ = prctl::new_session();
    let _ = rustix::thread::set_name(NAME);
    let _ = prctl::signal_on_parent_exit(Signal::KILL);
    if pid::parent() == relay {
        let helpers = &mut Vec::new();
        apart::give_up(fd::STDIN, helpers);
        apart::give_up(fd::STDOUT, helpers);
        drop(near);
        pair::release_inherited(place, helpers);
        if let Err(errno) = copy(&far, &standard) {
            let why = error::describe(errno);
            log::warn!("the server's output is lost, since stdout cannot be written: {why}");
        }
    }
    clone::exit_now(0);
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(from, &mut bytes))?;
        if count == 0 {
            return Ok(());
        }
        let mut left = &bytes[..count];
        while !left.is_empty() {
            match rustix::io::write(to, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => {}
                // A process that shares the stream has set `O_NONBLOCK` on it.
                Err(Errno::AGAIN) => drop(poll_one(to.as_raw_fd(), Events::OUT, LOOK)),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// The stream is looked at again after this long, if poll has reported nothing.
const LOOK: Duration = Duration::from_secs(3600);
