//! `--doctor`: what this machine and place offer, which level would be chosen, and what that level
//! guarantees.
//!
//! A level is available if the doctor has just started a server with it.

pub mod guarantees;
mod host;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::system::uname;
use serde_json::{Value, json};

use crate::contain::Level;
use crate::contain::cgroup::Cgroup;
use crate::origin::unit;
use crate::output::error::{self, Error};
use crate::output::progress::{Own, Voice};
use crate::output::report::To;
use crate::pair::context::Request;
use crate::relay;
use crate::settings::cli;
use crate::settings::config::{Config, DoctorFormat};
use crate::settings::manner::Manner;
use crate::start;
use crate::streams::idle;
use crate::sys::clone::{self, Fork};
use crate::sys::startup::Inherited;
use crate::sys::wait::{Change, Ended, Wait};
use crate::sys::{Errno, arrival, exec, fd, pid, pidfd, prctl, proc, tty};
use crate::tree::spare::Spare;

use guarantees::{HOST_ENDS, HOST_ENDS_ALONE, HOST_ENDS_BEHIND, NOTES, OTHER_UIDS, plain};

/// One thing that is available or not: its name; the answer, or `None` if neither answer is good or
/// bad; the detail.
type Check = (&'static str, Option<bool>, String);

/// An event, and what is left after it.
type Left = (&'static str, &'static str);

/// What was found out about this place.
struct Findings {
    checks: Vec<Check>,
    /// Each level, and why it is not available.
    levels: [(&'static str, Result<(), String>); 3],
    chosen: Level,
    /// Whether the chosen level is available.
    available: bool,
    /// What is left at the chosen level.
    left: Vec<Left>,
}

/// Examines this place. `arguments` and `inherited` are those of this process. Returns the text to
/// be printed, and whether the level that `config` asks for is available.
pub fn examine(
    config: &Config,
    format: DoctorFormat,
    arguments: &[OsString],
    inherited: &Inherited,
) -> (String, bool) {
    let chosen = config.contain;
    let levels = Level::NAMES.map(|(name, _)| (name, try_start(name, arguments, inherited)));
    let (of_host, noticed) = host::host_and_stdin(config, inherited);
    let mut checks = of_host.to_vec();
    checks.extend(options(config));
    checks.extend(features());
    checks.extend(surroundings(config));
    let findings = Findings {
        checks,
        available: levels[chosen as usize].1.is_ok(),
        levels,
        chosen,
        left: rows_left(chosen, noticed).collect(),
    };
    let text = match format {
        DoctorFormat::Table => findings.table(),
        DoctorFormat::Json => format!("{:#}\n", findings.as_json()),
    };
    (text, findings.available)
}

fn yes_no(name: &'static str, result: Result<(), Errno>, detail: &str) -> Check {
    let detail = result.map_or_else(error::describe, |()| detail.to_owned());
    (name, Some(result.is_ok()), detail)
}

/// Calls of the kernel, and what treaper does by them.
const FEATURES: [(&str, &str); 6] = [
    ("subreaper", "treaper adopts the orphans of the tree"),
    ("signalfd", "treaper reads signals with it"),
    ("pidfd_open", "treaper watches the host with it"),
    ("pidfd_send_signal", "a recycled pid is never signalled"),
    ("PIDFD_GET_INFO", "treaper checks parents without /proc"),
    ("clone3", "the server can be born in a cgroup"),
];

fn features() -> impl Iterator<Item = Check> {
    let own = pidfd::open(pid::own());
    let by_pidfd = |ask: fn(BorrowedFd<'_>) -> Result<(), Errno>| match &own {
        Ok(fd) => ask(fd.as_fd()),
        Err(errno) => Err(*errno),
    };
    // The answer for each of `FEATURES`, and since which version of Linux it is there.
    let answers = [
        (prctl::become_subreaper(), "3.4"),
        (arrival::signal_fd().map(drop), "2.6.27"),
        (by_pidfd(|_| Ok(())), "5.3"),
        (by_pidfd(|fd| pidfd::is_unreaped(fd).map(drop)), "5.1"),
        (by_pidfd(|fd| pidfd::parent(fd).map(drop)), "6.13"),
        (clone::has_clone3(), "5.3"),
    ];
    let both = FEATURES.into_iter().zip(answers);
    both.map(|((name, detail), (result, version))| match result {
        Err(Errno::NOSYS | Errno::NOTTY | Errno::INVAL) => {
            let missing = format!("missing, as before Linux {version}, or hidden by a filter");
            (name, Some(false), missing)
        }
        other => yes_no(name, other, detail),
    })
}

/// Whether a start with these options would be refused. Nothing is made or opened.
fn options(config: &Config) -> Vec<Check> {
    let mut found = Vec::new();
    let mut add = |name, result: Result<(), String>| {
        let ok = result.is_ok();
        let detail = result.err().unwrap_or_else(|| "possible here".to_owned());
        found.push((name, Some(ok), detail));
    };
    let sentence = |error: Error| reason(&error.to_string()).to_owned();
    if config.writers.are_used() {
        let checked = relay::check(&config.writers).map_err(|error| error.to_string());
        add("several writers", checked);
    } else if config.idle.is_some() {
        add("--idle", idle::open().map(drop).map_err(sentence));
    }
    if !config.spare.is_empty() {
        let prepared = Spare::prepare(config.spare, config.contain).map(drop);
        add("--spare", prepared.map_err(sentence));
    }
    if let Some(path) = &config.stderr {
        add("--stderr", fd::may_append(path).map_err(error::describe));
    }
    if let Some(to) = &config.report {
        let possible = match to {
            To::File(path) => fd::may_append(path),
            To::Descriptor(number) => fd::reserve(*number),
        };
        add("--report", possible.map_err(error::describe));
    }
    if config.finally.is_some() {
        let because = |errno| format!("/bin/sh: {}", error::describe(errno));
        let found = rustix::fs::access(exec::SHELL, rustix::fs::Access::EXEC_OK);
        add("--finally", found.map_err(because));
    }
    found
}

fn surroundings(config: &Config) -> Vec<Check> {
    let proc = proc::view().is_ok();
    let of_proc = if proc {
        "shows the PID namespace of treaper"
    } else {
        "missing, or of another PID namespace: treaper finds only its own children"
    };
    let children = proc::view().and_then(|proc| proc.children(pid::own(), &mut |_| ()));
    let by_children = "treaper walks the tree without a scan of /proc";
    let mut checks = vec![
        ("/proc", Some(proc), of_proc.to_owned()),
        yes_no("children files", children, by_children),
    ];
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        let can_ask = unit::can_ask_manager();
        let detail = if can_ask {
            "treaper asks systemd to accept it from the server"
        } else {
            "treaper cannot ask systemd to accept it, as before systemd 254: add NotifyAccess=all to the unit"
        };
        checks.push(("READY=1", can_ask.then_some(true), detail.to_owned()));
    }
    let processes = if config.guard {
        "shim and monitor guard each other"
    } else {
        "one process, since --no-guard was given; two with --contain=pidns"
    };
    let container = container().unwrap_or("no sign of one");
    let terminal = if tty::have_controlling_terminal() {
        "the server stays in the host's process group, for job control"
    } else {
        "none: the server is in a session apart from the host's"
    };
    let neither = [
        ("two processes", processes),
        ("container", container),
        ("terminal", terminal),
    ];
    checks.extend(neither.map(|(name, detail)| (name, None, detail.to_owned())));
    checks
}

/// The container engine, if it has left a sign: a file or a variable.
fn container() -> Option<&'static str> {
    let exists = |path: &str| std::path::Path::new(path).exists();
    if exists("/.dockerenv") {
        Some("docker")
    } else if exists("/run/.containerenv") {
        Some("podman")
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Some("kubernetes")
    } else {
        std::env::var_os("container").map(|_| "yes")
    }
}

/// Starts a server at the level of this name that ends at once: `treaper --version`, since this
/// program is always there. The error is the reason why that failed. Not by `std::process`, which
/// would make the program 46 kB larger.
fn try_start(level: &str, arguments: &[OsString], inherited: &Inherited) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (mut messages, writer) = UnixStream::pair().map_err(|error| text(&error))?;
    let own = std::env::current_exe().ok();
    let own = own.map(OsString::from).or(arguments.first().cloned());
    let variables = [("TREAPER_CONTAIN".into(), level.into())];
    let command = [own.unwrap_or_default(), "--version".into()];
    let config = cli::from_variables(&variables, &command).map_err(|error| text(&error))?;
    match clone::fork(false).map_err(error::describe)? {
        Fork::Parent(child) => {
            drop(writer);
            let mut log = String::new();
            let _ = messages.read_to_string(&mut log);
            let success = Change::Ended(Ended::Exited(0));
            if Wait::child(child).ended().block() == Ok(Some((child.get(), success))) {
                return Ok(());
            }
            let first = log.lines().next().unwrap_or("the reason is unknown");
            Err(reason(first).to_owned())
        }
        Fork::Child => {
            if let Ok(null) = std::fs::File::open("/dev/null") {
                fd::redirect(null.as_fd(), fd::STDIN);
            }
            fd::redirect(writer.as_fd(), fd::STDOUT);
            fd::redirect(writer.as_fd(), fd::STDERR);
            drop((messages, writer));
            let request = Request {
                config: &config,
                manner: Manner::default(),
                voice: &Own,
                inherited,
            };
            let status = start::run(request)
                .unwrap_or_else(|error| Own.report_failure(&error, OsStr::new("")));
            clone::exit_now(status.into())
        }
    }
}

/// The reason in a message: the text after the name of treaper and the option.
fn reason(message: &str) -> &str {
    let message = message.strip_prefix("treaper: ").unwrap_or(message);
    match message.split_once(": ") {
        Some((option, reason)) if option.starts_with("--") => reason,
        _ => message,
    }
}

/// Each event, and what is left after it at the level `chosen` in this place. `host`, `stdin`:
/// whether its end is noticed.
fn rows_left(chosen: Level, [host, stdin]: [bool; 2]) -> impl Iterator<Item = Left> {
    guarantees::ROWS.into_iter().map(move |(event, left)| {
        let left = match event {
            HOST_ENDS_ALONE if !host => "all",
            HOST_ENDS | HOST_ENDS_BEHIND if !host && !stdin => "all",
            OTHER_UIDS if !prctl::uids_out_of_reach() => "none",
            OTHER_UIDS if chosen == Level::Cgroup && !kills_group() => "these",
            _ => left[chosen as usize],
        };
        (event, left)
    })
}

/// The number of the note of a row.
fn note_of((event, left): Left) -> Option<usize> {
    guarantees::number_of_note(event).or(guarantees::number_of_note(left))
}

/// Whether one call can kill a whole cgroup, whatever the uids of its members are.
fn kills_group() -> bool {
    Cgroup::make().is_ok_and(|cgroup| cgroup.kill())
}

impl Findings {
    fn table(&self) -> String {
        let (version, system) = (env!("CARGO_PKG_VERSION"), uname());
        let kernel = system.release().to_string_lossy();
        let mut text = format!(
            "treaper {version} on Linux {kernel}\n\nThis place (a line with - is neither good nor bad)\n"
        );
        for (name, ok, detail) in &self.checks {
            let mark = ok.map_or("-", |ok| if ok { "yes" } else { "no" });
            let _ = writeln!(text, "  {name:18} {mark:4} {detail}");
        }
        let _ = writeln!(text, "\nLevels of --contain");
        for (name, offered) in &self.levels {
            let (mark, detail) = match offered {
                Ok(()) => ("yes", "available"),
                Err(missing) => ("no", missing.as_str()),
            };
            let _ = writeln!(text, "  {name:18} {mark:4} {detail}");
        }
        let (name, available) = (self.chosen.name(), self.available);
        let verdict = if available { "chosen" } else { "NOT available" };
        let _ = writeln!(
            text,
            "\n{verdict}: {name}. What survives of the tree after each event"
        );
        for (event, left) in &self.left {
            let _ = writeln!(text, "  {event:40} {left}");
        }
        for (number, note) in (1..).zip(NOTES) {
            if self.left.iter().any(|row| note_of(*row) == Some(number)) {
                let _ = writeln!(text, "[{number}] {note}");
            }
        }
        text
    }

    fn as_json(&self) -> Value {
        let checks = self.checks.iter();
        let checks =
            checks.map(|(name, ok, detail)| (*name, json!({ "ok": ok, "detail": detail })));
        let levels = self.levels.iter().map(|(name, offered)| {
            let level = json!({ "available": offered.is_ok(), "reason": offered.as_ref().err() });
            (*name, level)
        });
        let left = self.left.iter();
        let notes = left.clone();
        let left = left.map(|(event, left)| (plain(event), plain(left)));
        let notes = notes.filter_map(|row| Some((plain(row.0), *NOTES.get(note_of(*row)? - 1)?)));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": uname().release().to_string_lossy(),
            "checks": checks.collect::<Value>(),
            "levels": levels.collect::<Value>(),
            "chosen": self.chosen.name(),
            "available": self.available,
            "left": left.collect::<Value>(),
            "notes": notes.collect::<Value>(),
        })
    }
}
