//! The host that treaper would watch in this place, and whether it would watch stdin.

use std::fmt::Write;

use super::Check;
use crate::origin::hosts::{self, Hosts, Watched};
use crate::origin::place;
use crate::plan::event::Trigger;
use crate::settings::config::{Config, StdinMode};
use crate::sys::fd::{self, Kind};
use crate::sys::startup::Inherited;
use crate::sys::{pid, proc};

/// The host and stdin; whether each of them shows its end; whether treaper is in its process group.
pub fn host_and_stdin(config: &Config, inherited: &Inherited) -> (Vec<Check>, [bool; 3]) {
    let found = hosts::find(config, inherited.sighup_ignored);
    let (ok, detail) = match &found {
        Ok(hosts) => describe(config, hosts),
        Err(error) => (Some(false), error.to_string()),
    };
    // Also if its end is no trigger.
    let mut chain = Hosts::default();
    hosts::find_parent(&mut chain, false);
    let host = chain.watched.last().map_or(pid::parent(), |host| host.pid);
    let hidden = hosts::hidden_behind(host);
    let shows_end = found.as_ref().is_ok_and(|hosts| {
        let mut pids = hosts.watched.iter().map(|watched| watched.pid);
        hosts.parent.is_some() || pids.any(|pid| pid == host || Some(pid) == hidden)
    });
    let is_of_host = found.as_ref().map_or(true, Hosts::hold_stdin);
    let stdin = stdin(config, inherited, is_of_host);
    let in_group = host != 0 && pid::group_of(host) == Ok(pid::group());
    let noticed = [shows_end, is_of_host && stdin.1 == Some(true), in_group];
    (vec![("host", ok, detail), stdin], noticed)
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
        let hidden = named([hidden]) + ": add --watch-ancestor=" + &name(hidden);
        let _ = write!(text, ", which leads a session and so hides {hidden}");
    }
    text
}

fn named(pids: impl IntoIterator<Item = i32>) -> String {
    let names = pids.into_iter().map(|pid| format!("{}[{pid}]", name(pid)));
    names.collect::<Vec<_>>().join(", ")
}

fn name(pid: i32) -> String {
    let shown = proc::stat(pid).map(|stat| proc::shown_name(pid, stat.name));
    shown.map_or("?".to_owned(), |name| name.to_string())
}

fn stdin(config: &Config, inherited: &Inherited, is_of_host: bool) -> Check {
    let what = match fd::kind(fd::STDIN) {
        Kind::Pipe => "pipe",
        Kind::Socket => "socket",
        Kind::Terminal => "terminal",
        Kind::Other => "no pipe, socket or terminal",
    };
    let other = "not watched: no process that started treaper holds the other end";
    let (ok, watched) = match place::stdin_trigger(inherited, config) {
        Ok(Some(_)) if config.stdin == StdinMode::Auto && !is_of_host => (None, other.to_owned()),
        Ok(Some(_)) => (Some(true), "watched".to_owned()),
        Ok(None) => (None, "not watched".to_owned()),
        Err(error) => (Some(false), error.to_string()),
    };
    ("stdin", ok, format!("{what}, {watched}"))
}
