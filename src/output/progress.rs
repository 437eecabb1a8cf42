//! What happens in a run, and the words in which it is reported.

use std::ffi::OsStr;
use std::fmt;
use std::time::Duration;

use crate::output::error::{Error, Shown};
use crate::output::stderr;
use crate::plan::event::Trigger;
use crate::sys::pid::Pid;
use crate::sys::proc::Name;
use crate::sys::signal::Signal;
use crate::sys::wait::Ended;

#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The process that becomes the server was started. Its exec may still fail.
    Started {
        name: &'a OsStr,
        pid: i32,
        session: bool,
    },
    /// A signal is forwarded. `None`: a rewrite drops it.
    Forwarding { from: Signal, to: Option<Signal> },
    Reaped {
        pid: i32,
        ended: Ended,
        server: bool,
    },
    /// The server has ended. The rest of the tree gets the stop signal, `signal`.
    StoppingRest { signal: Signal },
    /// The server has ended, and the tree is empty.
    Done { status: u8 },
}

/// The words of a program: those of treaper, or those of the init under whose name it was started.
pub trait Voice {
    /// Reports `step`. This never fails, and does not allocate once the server runs.
    fn report(&self, step: &Step<'_>);

    /// Reports why `command` was not started. Returns the exit status.
    fn report_failure(&self, error: &Error, command: &OsStr) -> u8;
}

/// treaper itself: the steps go to its log.
pub struct Own;

impl Voice for Own {
    fn report(&self, step: &Step<'_>) {
        match *step {
            Step::Started { name, pid, .. } => log::info!("starting '{}', pid {pid}", Shown(name)),
            Step::Forwarding { to: Some(to), .. } => log::debug!("forwarding {to}"),
            Step::Forwarding { from, to: None } => log::debug!("dropped {from}"),
            Step::Reaped { pid, ended, server } if server => {
                log::info!("the server, pid {pid}, {ended}");
            }
            Step::Reaped { pid, ended, .. } => log::debug!("pid {pid} {ended}"),
            Step::StoppingRest { .. } => {}
            Step::Done { status } => {
                log::info!("done: the tree is empty; the server's status is {status}");
            }
        }
    }

    fn report_failure(&self, error: &Error, _: &OsStr) -> u8 {
        stderr::line(format_args!("{error}"));
        error.status
    }
}

/// Logs why a live server, or `whom` if that has exited, got the stop signal, and how to change it.
pub fn stopped_unasked(trigger: Trigger, signal: Signal, whom: &str) {
    let why = match trigger {
        Trigger::ParentExit => "the process that started treaper is gone",
        Trigger::StdinEof => "stdin has closed and the drain has ended",
        Trigger::Hangup => "the terminal is gone or SIGHUP was sent",
        Trigger::WatchedExit => "a process of --watch-pid or --watch-ancestor is gone",
        Trigger::Idle => "nothing was written to the server's stdin for the time of --idle",
        Trigger::StdoutClosed => "stdout has no reader any more and the drain has ended",
        Trigger::CancelTimeout => "a cancelled turn did not end in time",
        Trigger::RelayKilled => "the relay process of treaper was killed",
        Trigger::ShimKilled => "the treaper process that your host started was killed",
        Trigger::MonitorKilled => "the monitor process of treaper was killed",
        // After SIGTERM the reason is known. A server that has ended gets no signal.
        Trigger::Terminate | Trigger::ServerExit => return,
    };
    let change = match trigger {
        Trigger::ParentExit => " (--no-parent changes that)",
        Trigger::StdinEof => " (--stdin and --drain change that)",
        Trigger::Hangup => " (--hup=forward changes that)",
        Trigger::WatchedExit => " (without that option, the server would keep running)",
        Trigger::Idle => " (a longer --idle changes that)",
        Trigger::StdoutClosed => " (--stdout and --drain change that)",
        Trigger::CancelTimeout => " (--cancel-drain changes that)",
        _ => "",
    };
    log::warn!("{trigger}: {why}, so {signal} was sent to {whom}{change}");
}

/// A number of processes, and the names of the first ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named {
    pub first: [Option<(Pid, Name)>; 4],
    pub count: usize,
}

impl Named {
    pub fn add(&mut self, pid: Pid, name: Name) {
        if let Some(slot) = self.first.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((pid, name));
        }
        self.count += 1;
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.first.iter().flatten();
        let shown = named.clone().count();
        let count = self.count.max(shown);
        write!(f, "{count} process{}", if count == 1 { "" } else { "es" })?;
        for (at, (pid, name)) in named.enumerate() {
            write!(f, "{}{name}[{pid}]", if at == 0 { " (" } else { ", " })?;
        }
        f.write_str(match shown {
            0 => "",
            _ if shown < count => ", ...)",
            _ => ")",
        })
    }
}

/// A duration as users write it.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub Duration);

impl Seconds {
    /// `time`, rounded to a tenth of a second if it is a second or more.
    pub fn about(time: Duration) -> Self {
        let millis = time.as_millis() as u64;
        let unit = if millis < 1000 { 1 } else { 100 };
        Self(Duration::from_millis((millis + unit / 2) / unit * unit))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{}s", self.0.as_secs()),
            _ => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}
