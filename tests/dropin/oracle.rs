//! The programs under test: treaper under each name, and the real ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{ACTOR, Run, Scene, TREAPER, signals, skip, unique, until};

/// A program under one of these names: treaper, or the real one.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub is_treaper: bool,
}

/// The result of a run that ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// treaper under `name`.
pub fn treaper_as(name: &str) -> Program {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dropin");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    // Made by a rename, since other tests make the same link at the same time.
    let fresh = directory.join(format!("{name}.{}", unique()));
    std::os::unix::fs::symlink(TREAPER, &fresh).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    Program {
        path,
        is_treaper: true,
    }
}

/// The real program, from Debian's package of its name.
pub fn real(name: &str) -> Option<Program> {
    let path = Path::new("/usr/bin").join(name);
    if path.exists() {
        return Some(Program {
            path,
            is_treaper: false,
        });
    }
    skip(&format!("{name} is not installed: treaper alone is tested"));
    None
}

/// treaper, and the real program if it is available.
pub fn both(name: &str) -> Vec<Program> {
    [Some(treaper_as(name)), real(name)]
        .into_iter()
        .flatten()
        .collect()
}

impl Program {
    pub fn words(&self, words: &[&str]) -> Vec<String> {
        let path = self.path.to_str().unwrap();
        [&[path], words]
            .concat()
            .iter()
            .map(|&w| w.to_owned())
            .collect()
    }

    /// Runs it to its end.
    pub fn outcome(&self, variables: &[(&str, &str)], words: &[&str]) -> Outcome {
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars_os() {
            if ["TREAPER_", "TINI_", "DUMB_INIT_", "CATATONIT_"]
                .iter()
                .any(|start| name.to_string_lossy().starts_with(start))
            {
                command.env_remove(name);
            }
        }
        command.envs(variables.iter().copied());
        let output = command.args(words).stdin(Stdio::null()).output().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts a tree of actors under it; returns when the server is ready.
    pub fn start(&self, options: &[&str], tree: &str) -> Run {
        self.start_in(Scene::new(), options, tree)
    }

    pub fn start_in(&self, scene: Scene, options: &[&str], tree: &str) -> Run {
        let words = [options, &["--", ACTOR, "tree", tree]].concat();
        scene.start(&self.words(&words)).ready(&["server"])
    }

    /// Ends a server that exits with 5 at SIGUSR1. treaper alone stops what the server has left.
    pub fn check_rest(&self, run: &mut Run) {
        run.signal(libc::SIGUSR1);
        let exit = run.wait();
        assert_eq!(exit.code(), Some(5), "{self:?}");
        assert_eq!(exit.left.is_empty(), self.is_treaper, "{self:?}: {exit:?}");
    }

    /// Whether the group of the server gets each signal too, and no process outside of it.
    pub fn check_group(&self, scene: Scene, options: &[&str], grouped: bool) {
        let tree = "server:record[worker:record,other:setsid:record]";
        let mut run = self.start_in(scene, options, tree);
        for name in ["worker", "other"] {
            run.log.ready(name);
        }
        run.signal(libc::SIGUSR1);
        run.log.wait("server", "signal");
        if grouped {
            run.log.wait("worker", "signal");
        }
        run.signal(libc::SIGUSR2);
        run.log.wait_for(2, "server", "signal");
        let sent = [libc::SIGUSR1, libc::SIGUSR2];
        let expected = if grouped { &sent[..] } else { &[] };
        until("the worker's signals", || {
            run.received("worker") == expected
        });
        assert_eq!(run.received("other"), [0; 0], "{self:?} {options:?}");
    }
}

/// What is before a pid in the messages of the three. In a young PID namespace, such as that of a package builder, a pid is
/// as short as other numbers.
const BEFORE_A_PID: &[&str] = &["tini (", "pid '", "pid: '", "pid=", "PID ", "catatonit:"];

/// The text, in which every pid is replaced by the same text: each number of three or more digits, and what follows the words
/// above.
pub fn without_pids(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let is_pid = digits.len() > 2
            || !digits.is_empty() && BEFORE_A_PID.iter().any(|words| out.ends_with(words));
        out.push_str(if is_pid { "#" } else { &digits });
        digits.clear();
        out.push(c);
    }
    out.trim_end_matches('\0').to_owned()
}

/// Sends each of `send`, after the server has logged the one before, and returns all that the server has got. `dropped`
/// are sent as well, and must not arrive.
pub fn exchange(run: &mut Run, send: &[i32], dropped: &[i32]) -> Vec<i32> {
    for signal in dropped {
        run.signal(*signal);
    }
    for (count, signal) in send.iter().enumerate() {
        run.signal(*signal);
        run.log.wait_for(count + 1, "server", "signal");
    }
    run.received("server")
}

/// The signals that each of the inits forwards. Not among them: CHLD, which is about their own children; KILL and STOP,
/// which cannot be caught; the faults, which end tini and catatonit (and so lose their tree); the signals that suspend,
/// which each init treats differently.
pub fn plain_signals() -> Vec<i32> {
    let left_out = [
        "ILL", "TRAP", "ABRT", "BUS", "FPE", "SEGV", "SYS", "CHLD", "TSTP", "TTIN", "TTOU",
        "STKFLT",
    ];
    let left_out: Vec<i32> = left_out.iter().map(|name| signals::number(name)).collect();
    let all = signals::catchable().into_iter();
    all.filter(|n| !left_out.contains(n)).collect()
}
