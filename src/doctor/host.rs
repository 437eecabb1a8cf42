//! The host that treaper would watch in this place, and whether it would watch stdin.

use std::fmt::Write;

use super::Check;
use crate::origin::hosts::{self, Hosts, Watched};
use crate::origin::place;
use crate::plan::event::Trigger;
use crate::settings::config::{Config, StdinMode};
use crate::sys::fd::{self, Kind};
use crate::sys::pid;
use crate::sys::proc::{self, Name};
use crate::sys::startup::Inherited;

/// The host, with the launchers in front of it, and stdin; and whether the end of each is noticed.
pub fn host_and_stdin(config: &Config, inherited: &Inherited) -> ([Check; 2], [bool; 2]) {
    let found = hosts::find(config, inherited.sighup_ignored);
    let (ok, detail) = match &found {
        Ok(hosts) => describe(config, hosts),
        Err(error) => (Some(false), error.to_string()),
    };
    let is_watched = |hosts: &Hosts| hosts.parent.is_some() || !hosts.watched.is_empty();
    let host = found.as_ref().is_ok_and(is_watched);
    let stdin = stdin(config, inherited, found.ok());
    let noticed = [host, stdin.1 == Some(true)];
    ([("host", ok, detail), stdin], noticed)
}

fn describe(config: &Config, hosts: &Hosts) -> (Option<bool>, String) {
    let is_of_parent = |watched: &&Watched| watched.trigger == Trigger::ParentExit;
    let (chain, asked): (Vec<_>, Vec<_>) = hosts.watched.iter().partition(is_of_parent);
    let pids = |list: Vec<&Watched>| -> Vec<i32> { list.iter().map(|each| each.pid).collect() };
    let elsewhere = "in another PID namespace: treaper sees only the end of stdin";
    let nohup = "none: nohup lets the server outlive its host";
    let (ok, mut detail) = match hosts.parent {
        Some(parent) => (Some(true), describe_chain(&pids(chain), parent.pid)),
        None if pid::parent() == 0 => (Some(false), elsewhere.to_owned()),
        None if config.parent => (None, nohup.to_owned()),
        None => (None, "not watched (--no-parent)".to_owned()),
    };
    if !asked.is_empty() {
        let _ = write!(detail, "; also watched: {}", named(pids(asked)));
    }
    (ok, detail)
}

/// Names the host, which is the last one of `pids`, and the launchers, which are the others.
/// Without pidfds, `pids` is empty, and the host is `parent`.
fn describe_chain(pids: &[i32], parent: i32) -> String {
    let (&host, launchers) = pids.split_last().unwrap_or((&parent, &[]));
    let mut text = named([host]);
    if !launchers.is_empty() {
        let _ = write!(text, ", behind {}", named(launchers.iter().rev().copied()));
    }
    if let Some(hidden) = hosts::hidden_behind(host) {
        let name = name(hidden).map_or("NAME".to_owned(), |name| name.to_string());
        let hidden = named([hidden]) + ": add --watch-ancestor=" + &name;
        let _ = write!(text, ", which leads a session and so hides {hidden}");
    }
    text
}

fn named(pids: impl IntoIterator<Item = i32>) -> String {
    let names = pids.into_iter().map(|pid| match name(pid) {
        Some(name) => format!("{name}[{pid}]"),
        None => format!("pid {pid}"),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn name(pid: i32) -> Option<Name> {
    let stat = proc::stat(pid).ok()?;
    Some(proc::shown_name(pid, stat.name))
}

fn stdin(config: &Config, inherited: &Inherited, hosts: Option<Hosts>) -> Check {
    let what = match fd::kind(fd::STDIN) {
        Kind::Pipe => "pipe",
        Kind::Socket => "socket",
        Kind::Terminal => "terminal",
        Kind::Other => "no pipe, socket or terminal",
    };
    let is_of_host = || hosts.is_none_or(|hosts| hosts.hold_stdin());
    let other = "not watched: no process that started treaper holds the other end";
    let (ok, watched) = match place::stdin_trigger(inherited, config) {
        Ok(Some(Trigger::StdinEof)) if config.stdin == StdinMode::Auto && !is_of_host() => {
            (None, other.to_owned())
        }
        Ok(Some(_)) => (Some(true), "watched".to_owned()),
        Ok(None) => (None, "not watched".to_owned()),
        Err(error) => (Some(false), error.to_string()),
    };
    ("stdin", ok, format!("{what}, {watched}"))
}
