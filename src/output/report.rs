//! `--report`: one JSON object about the run. It is written when the tree is empty, or when treaper
//! gives up on survivors. If that fails, a message says so, and the exit status does not change.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::output::error::{self, Error, Shown};
use crate::output::ledger::{Ledger, List, Process};
use crate::plan::event::Trigger;
use crate::sys::signal::Signal;
use crate::sys::wait::{self, Ended};
use crate::sys::{Errno, clock, fd};

/// The memory that must be available before the report is made: more than it needs with all of its
/// lists full. An allocation that fails later would end the process.
const ROOM: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    File(OsString),
    /// An inherited one.
    Descriptor(i32),
}

pub struct Report {
    /// With an absolute path: treaper leaves its working directory later.
    to: To,
    pub ledger: Ledger,
    /// When the run began, on both clocks.
    time: SystemTime,
    started: Duration,
}

/// What is known at the end, in addition to the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    pub trigger: Option<Trigger>,
    pub server_pid: Option<i32>,
    pub server_ended: Option<Ended>,
    pub exit_status: u8,
    /// The exit status of its command.
    pub finally: Option<u8>,
    pub command: &'a [OsString],
    /// Whether the arguments are reported: they often contain passwords and tokens.
    pub arguments: bool,
    pub contain: &'static str,
    /// In bytes.
    pub memory_peak: Option<u64>,
}

impl Report {
    /// Removes the descriptor of the report from `inherited`, those that the server inherits. To be
    /// called before treaper opens any descriptor.
    pub fn prepare(to: &To, inherited: &mut Vec<i32>) -> Result<Self, Error> {
        let prepared = match to {
            To::File(path) => std::path::absolute(path)
                .map_err(|_| Errno::NOENT)
                .and_then(|path| fd::can_append(path.as_os_str()).map(|()| To::File(path.into()))),
            To::Descriptor(number) => {
                inherited.retain(|known| known != number);
                fd::reserve(*number).map(|()| To::Descriptor(*number))
            }
        };
        let prepared = prepared.map_err(|errno| {
            let why = error::why_not_opened(errno);
            let text = format!("--report or TREAPER_REPORT: cannot write to {to}: {why}");
            Error::new(text)
        })?;
        let ledger = Ledger::shared().map_err(|errno| Error::kernel("map memory", errno))?;
        Ok(Self {
            to: prepared,
            ledger,
            time: SystemTime::now(),
            started: clock::now(),
        })
    }

    /// Unless another process of treaper has written it.
    pub fn write(&self, facts: &Facts<'_>) {
        if let (0, Err(why)) = (self.ledger.written.get(), self.try_write(facts)) {
            log::error!("cannot write the report to {}: {why}", self.to);
        }
    }

    fn try_write(&self, facts: &Facts<'_>) -> Result<(), String> {
        let room = Vec::<u8>::new().try_reserve_exact(ROOM);
        room.map_err(|_| error::describe(Errno::NOMEM))?;
        let line = format!("{}\n", self.object(facts, clock::now())).into_bytes();
        // Late, since a kill after it loses the report. The other process must not hang, too.
        if self.ledger.written.replace(1) != 0 {
            return Ok(());
        }
        let written = match &self.to {
            To::File(path) => {
                let file = fd::open_to_append(path).map_err(error::why_not_opened)?;
                fd::write_without_waiting(file.as_raw_fd(), &line)
            }
            To::Descriptor(number) => fd::write_without_waiting(*number, &line),
        };
        match written {
            Ok(len) if len == line.len() => Ok(()),
            Ok(len) => Err(format!("there was room for {len} of {} bytes", line.len())),
            Err(Errno::AGAIN) => Err("the pipe or socket is full".to_owned()),
            Err(errno) => Err(error::describe(errno)),
        }
    }

    fn object(&self, facts: &Facts<'_>, now: Duration) -> Value {
        let [drain, terminate, kill] = self.ledger.steps(now);
        let ([user, system], max_rss) = wait::usage();
        let exited = facts.server_ended.filter(|ended| ended.signal().is_none());
        let name = |signal: Signal| signal.to_string().trim_start_matches("SIG").to_owned();
        let server_signal = facts.server_ended.and_then(Ended::signal).map(name);
        let mut words = facts.command.iter().map(|word| word.to_string_lossy());
        let command = if facts.arguments {
            words.collect()
        } else {
            json!(words.next())
        };
        let describe = |process: Process| {
            let (pid, uid, state) = (process.pid, process.uid, char::from(process.state));
            let name = String::from_utf8_lossy(process.name.as_bytes());
            json!({ "pid": pid, "name": name, "uid": uid, "state": state.to_string() })
        };
        let list = |list| self.ledger.list(list).map(describe).collect::<Value>();
        // humantime panics at the dates before and after these.
        let end_of_9999 = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let time = self.time.clamp(UNIX_EPOCH, end_of_9999);
        json!({
            "schema": 1,
            "trigger": facts.trigger.map(Trigger::name),
            "server_status": exited.map(Ended::code),
            "server_signal": server_signal,
            "exit_status": facts.exit_status,
            "command": command,
            "server_pid": facts.server_pid,
            "start_time": humantime::format_rfc3339_millis(time).to_string(),
            "wall": seconds(now.saturating_sub(self.started)),
            "drain": drain.map(seconds),
            "terminate": terminate.map(seconds),
            "kill": kill.map(seconds),
            "cpu_user": seconds(user),
            "cpu_system": seconds(system),
            "max_rss": max_rss,
            "memory_peak": facts.memory_peak,
            "signalled": self.ledger.signalled(),
            "sigkilled": list(List::Sigkilled),
            "survivors": list(List::Survivors),
            "spared": list(List::Spared),
            "contain": facts.contain,
            "lost": self.ledger.lost(),
            "finally": facts.finally,
        })
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "'{}'", Shown(path)),
            Self::Descriptor(number) => write!(f, "fd:{number}"),
        }
    }
}

/// Seconds, rounded to a microsecond.
fn seconds(time: Duration) -> f64 {
    Duration::from_micros(time.as_micros() as u64).as_secs_f64()
}
