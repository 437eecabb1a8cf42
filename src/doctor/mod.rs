//! `--doctor`: what this machine and place offer, and what the chosen level guarantees. A level is
//! available if the doctor has just started a server with it.

pub mod guarantees;
mod host;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::fd::{AsFd, OwnedFd};

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
use crate::settings::config::{Config, Manner};
use crate::start;
use crate::streams::idle;
use crate::sys::clone::{self, Fork};
use crate::sys::startup::Inherited;
use crate::sys::wait::{Change, Ended, Wait};
use crate::sys::{exec, fd, pid, pidfd, prctl, proc, stream};
use crate::tree::spare::Spare;

use guarantees::{GROUP_ENDS, HOST_ENDS, HOST_ENDS_ALONE, HOST_ENDS_BEHIND, ONE_ENDS};
use guarantees::{NOTES, OTHER_UIDS, UNGUARDED};

/// One thing that is available or not: its name; the answer, `None` if it is not rated; the detail.
type Check = (&'static str, Option<bool>, String);

/// Examines this place. `arguments` and `inherited` are those of this process. Returns the text to
/// be printed, and whether the level that `config` asks for is available.
pub fn examine(config: &Config, arguments: &[OsString], inherited: &Inherited) -> (String, bool) {
    let chosen = config.contain;
    let start = |name| try_start(name, arguments, inherited);
    let levels = Level::NAMES.map(|(name, _)| check(name, start(name), "available"));
    let available = levels[chosen as usize].1 == Some(true);
    let (mut checks, noticed) = host::host_and_stdin(config, inherited);
    checks.extend(options(config));
    checks.extend(surroundings());
    let left = rows_left(config, noticed);
    let text = match config.doctor {
        Some(true) => format!("{:#}\n", as_json(&checks, &levels, chosen, &left)),
        _ => table(&checks, &levels, chosen, &left),
    };
    (text, available)
}

fn check(name: &'static str, result: Result<(), String>, if_ok: &str) -> Check {
    let ok = result.is_ok();
    (name, Some(ok), result.err().unwrap_or(if_ok.to_owned()))
}

/// Whether a start with these options would be refused. Nothing is made.
fn options(config: &Config) -> Vec<Check> {
    let mut found = Vec::new();
    let why = error::why_not_opened;
    if let Some(path) = &config.stderr {
        let possible = fd::may_append(path).map_err(why);
        let mut row = check("--stderr", possible, "possible here");
        // Its reader would see an end if it were opened.
        if row.1 == Some(true) && fd::is_fifo(path) {
            (row.1, row.2) = (None, "possible if a process reads this FIFO".to_owned());
        }
        found.push(row);
    }
    let mut add = |name, result| found.push(check(name, result, "possible here"));
    let sentence = |error: Error| reason(&error.to_string());
    if config.writers.are_used() {
        let checked = relay::check(&config.writers).map_err(|error| error.to_string());
        add("several writers", checked);
    } else if let Some(time) = config.idle {
        add("--idle", idle::start(time).map(drop).map_err(sentence));
    }
    if !config.spare.is_empty() {
        let prepared = Spare::prepare(config.spare, config.contain).map(drop);
        add("--spare", prepared.map_err(sentence));
    }
    match &config.report {
        Some(To::File(path)) => add("--report", fd::may_append(path).map_err(why)),
        Some(To::Descriptor(number)) => add("--report", fd::reserve(*number).map_err(why)),
        None => {}
    }
    if config.finally.is_some() {
        let because = |errno| format!("/bin/sh: {}", error::describe(errno));
        let found = rustix::fs::access(exec::SHELL, rustix::fs::Access::EXEC_OK);
        add("--finally", found.map_err(because));
    }
    found
}

fn surroundings() -> Vec<Check> {
    let proc = proc::view();
    let foreign = "missing, or of another PID namespace: treaper finds only its own children";
    let proc = proc.map(drop).map_err(|_| foreign.to_owned());
    let missing = "missing, as before Linux 5.3, or hidden by a filter";
    let call = |is_there: bool| is_there.then_some(()).ok_or(missing.to_owned());
    let own = pidfd::open(pid::own());
    let can_send = |own: &OwnedFd| pidfd::is_unreaped(own.as_fd()).is_ok();
    let (opens, sends) = (call(own.is_ok()), call(own.as_ref().is_ok_and(can_send)));
    let mut checks = vec![
        check("pidfd_open", opens, "treaper watches the host with it"),
        check("pidfd_send_signal", sends, "no recycled pid is signalled"),
        check("/proc", proc, "shows the PID namespace of treaper"),
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
    checks
}

/// Starts a server at the level of this name that is always there and ends at once: `treaper
/// --version`. Not by `std::process`, which would make the program 46 kB larger.
fn try_start(level: &str, arguments: &[OsString], inherited: &Inherited) -> Result<(), String> {
    let (messages, writer) = stream::line().map_err(error::describe)?;
    let own = std::env::current_exe().ok().map(OsString::from);
    let own = own.or(arguments.first().cloned()).unwrap_or_default();
    let variables = [("TREAPER_CONTAIN".into(), level.into())];
    let config = cli::from_variables(&variables, &[own, "--version".into()]);
    let config = config.map_err(|error| error.to_string())?;
    match clone::fork(false).map_err(error::describe)? {
        Fork::Parent(child) => {
            drop(writer);
            let log = std::io::read_to_string(std::fs::File::from(messages)).unwrap_or_default();
            let first = log.lines().next().unwrap_or("the reason is unknown");
            match Wait::child(child).ended().block() {
                Ok(Some((_, Change::Ended(Ended::Exited(0))))) => Ok(()),
                _ => Err(reason(first)),
            }
        }
        Fork::Child => {
            fd::redirect(writer.as_fd(), fd::STDERR);
            fd::separate_streams();
            drop((messages, writer));
            let status = start::run(Request {
                config: &config,
                manner: Manner::default(),
                voice: &Own,
                inherited,
            })
            .unwrap_or_else(|error| Own.report_failure(&error, OsStr::new("")));
            clone::exit_now(status.into())
        }
    }
}

/// The reason in a message: the text after the name of treaper and the option.
fn reason(message: &str) -> String {
    let message = message.strip_prefix("treaper: ").unwrap_or(message);
    let parts = message.split_once(": ");
    let parts = parts.filter(|(option, _)| option.starts_with("--"));
    parts.map_or(message, |(_, reason)| reason).to_owned()
}

/// Each event, and what is left after it. `host`, `stdin`: whether it shows the end of the host.
fn rows_left(config: &Config, [host, stdin, in_group]: [bool; 3]) -> [[&'static str; 2]; 13] {
    let (chosen, is_unseen) = (config.contain, !host && !stdin);
    // One call kills a whole cgroup, whatever the uids of its members are.
    let kills_group = || Cgroup::make().is_ok_and(|cgroup| cgroup.kill());
    guarantees::ROWS.map(|(event, left)| {
        let left = match event {
            HOST_ENDS_ALONE if !host => "all",
            HOST_ENDS if is_unseen => "all",
            HOST_ENDS_BEHIND if is_unseen => "all [1]",
            GROUP_ENDS if !in_group && is_unseen => "all",
            GROUP_ENDS if in_group && !config.guard => UNGUARDED[chosen as usize],
            ONE_ENDS if !config.guard => UNGUARDED[chosen as usize],
            OTHER_UIDS if !prctl::uids_out_of_reach() => "none",
            OTHER_UIDS if chosen == Level::Cgroup && !kills_group() => "these",
            _ => left[chosen as usize],
        };
        [event, left]
    })
}

fn note_of(row: &[&str; 2]) -> Option<usize> {
    row.iter().find_map(|text| guarantees::split(text).1)
}

fn table(checks: &[Check], levels: &[Check], chosen: Level, left: &[[&str; 2]]) -> String {
    let (version, system) = (env!("CARGO_PKG_VERSION"), uname());
    let kernel = system.release().to_string_lossy();
    let mut text = format!("treaper {version} on Linux {kernel}\n");
    let place = "This place (a line with - is neither good nor bad)";
    for (title, checks) in [(place, checks), ("Levels of --contain", levels)] {
        let _ = writeln!(text, "\n{title}");
        for (name, ok, detail) in checks {
            let mark = ok.map_or("-", |ok| if ok { "yes" } else { "no" });
            let _ = writeln!(text, "  {name:18} {mark:4} {detail}");
        }
    }
    let (name, ok) = (chosen.name(), levels[chosen as usize].1 == Some(true));
    let verdict = if ok { "chosen" } else { "NOT available" };
    let title = "What survives of the tree after each event";
    let _ = writeln!(text, "\n{verdict}: {name}. {title}");
    for [event, left] in left {
        let _ = writeln!(text, "  {event:40} {left}");
    }
    for (number, note) in (1..).zip(NOTES) {
        if left.iter().any(|row| note_of(row) == Some(number)) {
            let _ = writeln!(text, "[{number}] {note}");
        }
    }
    text
}

fn as_json(checks: &[Check], levels: &[Check], chosen: Level, left: &[[&str; 2]]) -> Value {
    let mut all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": uname().release().to_string_lossy(),
        "chosen": chosen.name(),
        "available": levels[chosen as usize].1,
    });
    for (name, ok, detail) in checks {
        all["checks"][name] = json!({ "ok": ok, "detail": detail });
    }
    for (name, ok, detail) in levels {
        let reason = (*ok == Some(false)).then_some(detail);
        all["levels"][name] = json!({ "available": ok, "reason": reason });
    }
    for row in left {
        let [event, left] = row.map(|text| guarantees::split(text).0);
        all["left"][event] = left.into();
        if let Some(number) = note_of(row) {
            all["notes"][event] = NOTES[number - 1].into();
        }
    }
    all
}
