//! The host that treaper would watch in this place, and whether it would watch stdin.

use std::fmt::Write;

use super::Check;
use crate::origin::hosts::{self, Hosts};
use crate::origin::place;
use crate::plan::event::Trigger;
use crate::settings::config::{Config, StdinMode};
use crate::sys::fd::{self, Kind};
use crate::sys::startup::Inherited;
use crate::sys::{pid, proc};

/// The host, with the launchers in front of it, and stdin. Also, whether the end of each is
/// noticed.
pub fn host_and_stdin(config: &Config, inherited: &Inherited) -> ([Check; 2], [bool; 2]) {
    let found = hosts::find(config, inherited.sighup_ignored);
    let (ok, detail) = match &found {
        Ok(hosts) => describe(config, hosts),
        Err(error) => (Some(false), error.to_string()),
    };
    let is_watched = |hosts: &Hosts| hosts.parent.is_some() || !hosts.watched.is_empty();
    let host = found.as_ref().is_ok_and(is_watched);
    let checks = [("host", ok, detail), stdin(config, inherited, found.ok())];
    let stdin = checks[1].1 == Some(true);
    (checks, [host, stdin])
}

fn describe(config: &Config, hosts: &Hosts) -> (Option<bool>, String) {
    let pids = pids_watched_for(hosts, Trigger::ParentExit);
    let (ok, mut detail) = match hosts.parent {
        Some(parent) => (Some(true), chain(&pids, parent.pid)),
        None if pid::parent() == 0 => (
            Some(false),
            "in another PID namespace: treaper sees only the end of stdin".to_owned(),
        ),
        None if config.parent => (
            None,
            "none: nohup lets the server outlive its host".to_owned(),
        ),
        None => (None, "not watched (--no-parent)".to_owned()),
    };
    let asked = pids_watched_for(hosts, Trigger::WatchedExit);
    if !asked.is_empty() {
        detail += "; also watched: ";
        detail += &asked.into_iter().map(named).collect::<Vec<_>>().join(", ");
    }
    (ok, detail)
}

/// The pids that are watched for this trigger, the nearest first.
fn pids_watched_for(hosts: &Hosts, trigger: Trigger) -> Vec<i32> {
    let watched = hosts.watched.iter();
    let watched = watched.filter(|watched| watched.trigger == trigger);
    watched.map(|watched| watched.pid).collect()
}

/// Names the host, which is the last one of `pids`, and the launchers, which are the others.
/// Without pidfds, `pids` is empty, and the host is `parent`.
fn chain(pids: &[i32], parent: i32) -> String {
    let (host, launchers) = pids.split_last().unwrap_or((&parent, &[]));
    let mut text = named(*host);
    if !launchers.is_empty() {
        let launchers = launchers.iter().rev().map(|pid| named(*pid));
        text += ", behind ";
        text += &launchers.collect::<Vec<_>>().join(", ");
    }
    if let Some(hidden) = hosts::hidden_behind(*host) {
        let name = proc::stat(hidden).map_or_else(
            |_| "NAME".to_owned(),
            |stat| proc::shown_name(hidden, stat.name).to_string(),
        );
        let hidden = named(hidden);
        let _ = write!(
            text,
            ", which leads a session and so hides {hidden}: add --watch-ancestor={name}"
        );
    }
    text
}

fn named(pid: i32) -> String {
    match proc::stat(pid) {
        Ok(stat) => format!("{}[{pid}]", proc::shown_name(pid, stat.name)),
        Err(_) => format!("pid {pid}"),
    }
}

/// What stdin is, and whether its end is a trigger.
fn stdin(config: &Config, inherited: &Inherited, hosts: Option<Hosts>) -> Check {
    let what = match fd::kind(fd::STDIN) {
        Kind::Pipe => "pipe",
        Kind::Socket => "socket",
        Kind::Terminal => "terminal",
        Kind::Other => "no pipe, socket or terminal",
    };
    let is_of_host = || hosts.is_none_or(|hosts| hosts.hold_stdin());
    let (ok, watched) = match place::stdin_trigger(inherited, config) {
        Ok(Some(Trigger::StdinEof)) if config.stdin == StdinMode::Auto && !is_of_host() => {
            let why = "not watched: no process that started treaper holds the other end";
            (None, why.to_owned())
        }
        Ok(Some(_)) => (Some(true), "watched".to_owned()),
        Ok(None) => (None, "not watched".to_owned()),
        Err(error) => (Some(false), error.to_string()),
    };
    ("stdin", ok, format!("{what}, {watched}"))
}
