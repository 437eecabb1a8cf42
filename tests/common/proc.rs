//! What `/proc` says about processes, for the tests and the arena.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test support: each user needs another part"
)]

use std::collections::HashMap;
use std::fs;

use crate::sys;

/// A living process, as one reading of its `stat` file showed it.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    pub comm: String,
    pub state: char,
    pub ppid: i32,
    pub pgid: i32,
    pub sid: i32,
    /// The group in the foreground of its terminal; -1: it has none.
    pub tpgid: i32,
    pub start: u64,
}

impl Process {
    /// None if there is no such process.
    pub fn read(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let comm = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
        Some(Process {
            pid,
            comm,
            state: fields.first()?.chars().next()?,
            ppid: number(1)?,
            pgid: number(2)?,
            sid: number(3)?,
            tpgid: number(5)?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it is alive. A zombie is not: it runs nothing, and holds nothing except its pid.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// SIGKILL, through a pidfd of exactly this process: a recycled pid is left alone.
    pub fn kill(&self) {
        let Ok(fd) = sys::pidfd(self.pid) else { return };
        let same = Process::read(self.pid).is_some_and(|now| now.start == self.start);
        if same && self.pid > 1 {
            sys::kill_by_pidfd(&fd);
        }
    }
}

/// Its state as in `ps`; `-` if there is no such process.
pub fn state(pid: i32) -> char {
    Process::read(pid).map_or('-', |process| process.state)
}

/// How often the process has waited for something. `None`: there is no such process.
pub fn waits(pid: i32) -> Option<u64> {
    status(pid, "voluntary_ctxt_switches")?.parse().ok()
}

/// Every process of the machine, also zombies.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// All living descendants of a process, found by one scan. (The `children` files may lack living processes while their
/// siblings end.)
pub fn descendants(root: i32) -> Vec<Process> {
    let all = all();
    let parents: HashMap<i32, i32> = all.iter().map(|p| (p.pid, p.ppid)).collect();
    let is_below = |mut pid: i32| {
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == root => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    all.iter()
        .filter(|p| p.is_alive() && is_below(p.pid))
        .cloned()
        .collect()
}

/// The direct children, also zombies.
pub fn children(parent: i32) -> Vec<Process> {
    all().into_iter().filter(|p| p.ppid == parent).collect()
}

/// One line of `/proc/PID/status`.
pub fn status(pid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The context switches of the process. The number does not change while nothing wakes the process.
pub fn switches(pid: i32) -> u64 {
    ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
        .iter()
        .map(|key| status(pid, key).unwrap().parse::<u64>().unwrap())
        .sum()
}
