//! `--doctor`: what this machine and place offer, which level would be chosen, and what that level guarantees.
//!
//! A level is available if the doctor has just started a server with it.
#![forbid(unsafe_code)]

pub mod guarantees;
mod host;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io::Read;
use std::os::fd::AsFd;

use serde_json::{Value, json};

use crate::contain::Level;
use crate::contain::cgroup::Cgroup;
use crate::output::error;
use crate::output::progress::{Own, Voice};
use crate::pair::context::Request;
use crate::relay;
use crate::serve;
use crate::settings::cli;
use crate::settings::config::{Config, DoctorFormat};
use crate::settings::manner::Manner;
use crate::sys::arrival::SignalFd;
use crate::sys::clone::{self, Fork};
use crate::sys::startup::Inherited;
use crate::sys::{Errno, fd, kernel_release, pid, pidfd, prctl, proc, tty, wait};

use guarantees::{NOTES, OTHER_UIDS, plain};

/// One thing that is available or not.
struct Check {
    name: &'static str,
    /// `None`: neither answer is good or bad.
    ok: Option<bool>,
    detail: String,
}

/// One level, and why it is not available.
struct Offer {
    level: Level,
    missing: Option<String>,
}

/// Examines this place. `arguments` and `inherited` are those of this process. Returns the text to be printed, and
/// whether the level that `config` asks for is available.
#[must_use]
pub fn examine(
    config: &Config,
    format: DoctorFormat,
    arguments: &[OsString],
    inherited: &Inherited,
) -> (String, bool) {
    let offers = offers(&|level| try_start(level, arguments, inherited));
    let checks = checks(config, inherited);
    let chosen = config.contain;
    let available = offers
        .iter()
        .any(|offer| offer.level == chosen && offer.missing.is_none());
    let text = match format {
        DoctorFormat::Table => table(&checks, &offers, chosen, available),
        DoctorFormat::Json => format!("{:#}\n", as_json(&checks, &offers, chosen, available)),
    };
    (text, available)
}

fn checks(config: &Config, inherited: &Inherited) -> Vec<Check> {
    let mut checks = features();
    checks.extend(surroundings(config, inherited));
    checks
}

fn yes_no(name: &'static str, result: Result<(), Errno>, detail: &str) -> Check {
    Check {
        name,
        ok: Some(result.is_ok()),
        detail: result.map_or_else(error::describe, |()| detail.to_owned()),
    }
}

/// A check for a feature that Linux has since `version`.
fn since(name: &'static str, result: Result<(), Errno>, version: &str, detail: &str) -> Check {
    match result {
        Err(Errno::NOSYS | Errno::NOTTY | Errno::INVAL) => Check {
            name,
            ok: Some(false),
            detail: format!("missing, as before Linux {version}, or hidden by a filter"),
        },
        other => yes_no(name, other, detail),
    }
}

fn features() -> Vec<Check> {
    let own = pidfd::open(pid::own());
    let info = own
        .as_ref()
        .map_err(|errno| *errno)
        .and_then(|fd| pidfd::parent(fd.as_fd()).map(drop));
    let send = own
        .as_ref()
        .map_err(|errno| *errno)
        .and_then(|fd| pidfd::is_unreaped(fd.as_fd()).map(drop));
    vec![
        since(
            "subreaper",
            prctl::become_subreaper(),
            "3.4",
            "treaper adopts the orphans of the tree",
        ),
        yes_no(
            "signalfd",
            SignalFd::new().map(drop),
            "treaper reads signals by it",
        ),
        since(
            "pidfd_open",
            own.as_ref().map(drop).map_err(|errno| *errno),
            "5.3",
            "treaper watches the host by it",
        ),
        since(
            "pidfd_send_signal",
            send,
            "5.1",
            "a recycled pid is never signalled",
        ),
        since(
            "PIDFD_GET_INFO",
            info,
            "6.13",
            "treaper checks parents without /proc",
        ),
        since(
            "clone3",
            clone::has_clone3(),
            "5.3",
            "the server can be born in a cgroup",
        ),
    ]
}

fn surroundings(config: &Config, inherited: &Inherited) -> Vec<Check> {
    let children = proc::children(pid::own(), &mut |_| ());
    let mut checks = vec![
        Check {
            name: "/proc",
            ok: Some(proc::is_of_own_namespace()),
            detail: if proc::is_of_own_namespace() {
                "shows the PID namespace of treaper".to_owned()
            } else {
                "missing, or of another PID namespace: treaper finds only its own children"
                    .to_owned()
            },
        },
        yes_no(
            "children files",
            children,
            "treaper walks the tree without a scan of /proc",
        ),
        host::host(config, inherited),
        host::stdin(config, inherited),
    ];
    if config.writers.are_used() {
        let checked = relay::check(&config.writers);
        checks.push(Check {
            name: "several writers",
            ok: Some(checked.is_ok()),
            detail: checked.map_or_else(
                |error| error.to_string(),
                |()| "stdin can be passed on, and the sockets can be made".to_owned(),
            ),
        });
    }
    checks.extend([
        Check {
            name: "two processes",
            ok: None,
            detail: if pid::own() == 1 {
                "PID 1: one process; nothing inside can SIGKILL it".to_owned()
            } else {
                "shim and monitor guard each other".to_owned()
            },
        },
        Check {
            name: "container",
            ok: None,
            detail: container().unwrap_or("no sign of one").to_owned(),
        },
        Check {
            name: "terminal",
            ok: None,
            detail: if tty::have_controlling_terminal() {
                "the server stays in the host's process group, for job control".to_owned()
            } else {
                "none: the server gets a session of its own".to_owned()
            },
        },
    ]);
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

/// Starts a server at the level of this name. The error is the reason why that failed.
type Start<'a> = &'a dyn Fn(&str) -> Result<(), String>;

/// Starts a server that ends at once: `treaper --version`, since this program is always there.
fn try_start(level: &str, arguments: &[OsString], inherited: &Inherited) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (mut messages, writer) =
        std::os::unix::net::UnixStream::pair().map_err(|error| text(&error))?;
    let own = std::env::current_exe().ok();
    let own = own.map(OsString::from).or(arguments.first().cloned());
    let variables = [("TREAPER_CONTAIN".into(), level.into())];
    let command = [own.unwrap_or_default(), "--version".into()];
    let config = cli::from_variables(&variables, &command).map_err(|error| text(&error))?;
    match clone::fork().map_err(error::describe)? {
        Fork::Parent(child) => {
            drop(writer);
            let mut log = String::new();
            let _ = messages.read_to_string(&mut log);
            if wait::for_success(child) {
                return Ok(());
            }
            let first = log.lines().next();
            Err(first.unwrap_or("the reason is unknown").to_owned())
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
            let status = serve::run(request)
                .unwrap_or_else(|error| Own.report_failure(&error, OsStr::new("")));
            clone::exit_child(status.into())
        }
    }
}

fn offers(start: Start<'_>) -> Vec<Offer> {
    let levels = Level::NAMES.into_iter();
    levels
        .map(|(name, level)| Offer {
            level,
            missing: start(name).err().map(|message| reason(&message).to_owned()),
        })
        .collect()
}

/// The reason in a message: the text after the name of treaper and the option.
fn reason(message: &str) -> &str {
    let message = message.strip_prefix("treaper: ").unwrap_or(message);
    match message.split_once(": ") {
        Some((option, reason)) if option.starts_with("--contain=") => reason,
        _ => message,
    }
}

/// Each event, and what is left after it at the level `chosen` on this machine.
fn left(chosen: Level) -> impl Iterator<Item = (&'static str, &'static str)> {
    let column = chosen as usize;
    guarantees::ROWS.into_iter().map(move |(event, left)| {
        let left = match left[column] {
            _ if event == OTHER_UIDS && !prctl::uids_out_of_reach() => "nothing",
            _ if event == OTHER_UIDS && column == 1 && !kills_group() => "these",
            left => left,
        };
        (event, left)
    })
}

/// The number of the note of a row.
fn note_of((event, left): (&str, &str)) -> Option<usize> {
    guarantees::note(event).or(guarantees::note(left))
}

/// Whether one call can kill a whole cgroup, whatever the uids of its members are.
fn kills_group() -> bool {
    Cgroup::make().is_ok_and(|cgroup| cgroup.kill())
}

fn table(checks: &[Check], offers: &[Offer], chosen: Level, available: bool) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(
        text,
        "treaper {version} on Linux {}\n\nThis place",
        kernel_release()
    );
    for check in checks {
        let mark = match check.ok {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let _ = writeln!(text, "  {:18} {mark:4} {}", check.name, check.detail);
    }
    let _ = writeln!(text, "\nLevels of --contain");
    for offer in offers {
        let mark = if offer.missing.is_none() { "yes" } else { "no" };
        let detail = offer.missing.as_deref().unwrap_or("available");
        let _ = writeln!(text, "  {:18} {mark:4} {detail}", offer.level.name());
    }
    let name = chosen.name();
    let verdict = if available { "chosen" } else { "NOT available" };
    let _ = writeln!(
        text,
        "\n{verdict}: {name}. What happens, and what is then left of the tree"
    );
    let rows: Vec<_> = left(chosen).collect();
    for (event, left) in &rows {
        let _ = writeln!(text, "  {event:40} {left}");
    }
    for (number, note) in (1..).zip(NOTES) {
        if rows.iter().any(|row| note_of(*row) == Some(number)) {
            let _ = writeln!(text, "[{number}] {note}");
        }
    }
    text
}

fn as_json(checks: &[Check], offers: &[Offer], chosen: Level, available: bool) -> Value {
    let pairs = |items: Vec<(String, Value)>| Value::Object(items.into_iter().collect());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": kernel_release(),
        "checks": pairs(checks.iter().map(|check| {
            (check.name.to_owned(), json!({ "ok": check.ok, "detail": check.detail }))
        }).collect()),
        "levels": pairs(offers.iter().map(|offer| {
            (offer.level.name().to_owned(), json!({ "available": offer.missing.is_none(), "reason": offer.missing }))
        }).collect()),
        "chosen": chosen.name(),
        "available": available,
        "left": pairs(left(chosen).map(|(event, left)| (plain(event).to_owned(), json!(plain(left)))).collect()),
        "notes": pairs(left(chosen).filter_map(|row| {
            Some((plain(row.0).to_owned(), json!(NOTES.get(note_of(row)? - 1)?)))
        }).collect()),
    })
}
