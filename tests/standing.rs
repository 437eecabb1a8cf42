//! Where the server stands among sessions and process groups: where it would stand without treaper,
//! whatever the host has done.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::proc::Process;
use common::scene::Directory;
use common::{Run, Scene, TREAPER, skip, sys, until};

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// A child of the test leads no group, so `setsid` becomes the command and does not fork.
fn in_session(words: &[&str]) -> Command {
    command(&[&["setsid"][..], words].concat())
}

fn in_group(words: &[&str]) -> Command {
    let mut command = command(words);
    command.process_group(0);
    command
}

/// As runc and Kubernetes start the first process of a container.
fn as_init(words: &[&str]) -> Command {
    command(&[&["unshare", "-pf", "--mount-proc", "setsid"][..], words].concat())
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Anywhere,
    Terminal,
    Init,
}
use At::{Anywhere, Init, Terminal};

/// How a host starts its child: where, and by which words before the command. Then `ps -o ppid,pgid,sid,tpgid` of the
/// command without treaper, and behind it. Its parent is the `host`, or has to be `treaper`. The group and the session
/// are its `own`, those of a process `above`, or `apart`: of one that is gone. The foreground of the terminal has its
/// group (`front`), or another one; `none`: no terminal.
type Host = (&'static str, At, &'static [&'static str], [&'static str; 2]);

/// Behind treaper it is in a group and a session of its tree, whose leader is gone. So it leads nothing, as without it.
const NOTHING: [&str; 2] = ["host above above none", "treaper apart apart none"];
const SESSION: [&str; 2] = ["host own own none", "treaper own own none"];
const GROUP: [&str; 2] = ["host own above none", "treaper own apart none"];
/// At a terminal treaper leads the group of the job, and the server is in it.
const JOB: [&str; 2] = ["host own above front", "treaper above above front"];
const BACK: [&str; 2] = ["host own above other", "treaper above above other"];
const PART: [&str; 2] = ["host above above front", "treaper above above front"];

const SH: &[&str] = &["sh", "-c", "\"$@\"; exit $?", "sh"];
const JOBS: &[&str] = &["bash", "-mc", "\"$@\"; exit $?", "bash"];
const BACKGROUND: &[&str] = &["bash", "-mc", "\"$@\" & wait $!", "bash"];
const PYTHON_GROUP: &[&str] = &[
    "python3",
    "-c",
    "import os, subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], preexec_fn=os.setpgrp))",
];
const PYTHON: &[&str] = &[
    "python3",
    "-c",
    "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], start_new_session=True))",
];
const NODE: &[&str] = &[
    "node",
    "-e",
    "const [command, ...words] = process.argv.slice(1); require('child_process')
     .spawn(command, words, {detached: true, stdio: 'inherit'}).on('exit', process.exit)",
    "--",
];

const HOSTS: [Host; 11] = [
    ("plain", Anywhere, &[], NOTHING),
    ("a shell", Anywhere, SH, NOTHING),
    ("setsid, systemd, cron", Anywhere, &["setsid"], SESSION),
    ("Python, start_new_session", Anywhere, PYTHON, SESSION),
    ("Node, detached", Anywhere, NODE, SESSION),
    ("setpgid", Anywhere, PYTHON_GROUP, GROUP),
    ("PID 1", Init, &["setsid"], SESSION),
    ("a job", Terminal, &[], JOB),
    ("a job of a shell", Terminal, JOBS, JOB),
    ("a background job", Terminal, BACKGROUND, BACK),
    ("a shell that is a job", Terminal, SH, PART),
];

/// The options, of which the last is for a relay. `None`: without treaper.
const LEVELS: [Option<&str>; 6] = [
    None,
    Some("--contain=group"),
    Some("--no-guard"),
    Some("--contain=cgroup"),
    Some("--contain=pidns"),
    Some("--inject"),
];

/// Calls `play` for each of `hosts` and each level that is possible here.
fn each<'a>(hosts: impl Iterator<Item = &'a Host>, play: impl Fn(&Host, Option<&str>)) {
    skip::needs("pidns");
    let succeeds = |words: &[&str]| {
        let mut command = command(words);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.output().unwrap().status.success()
    };
    let is_possible = |level: Option<&str>| {
        let option = level.filter(|level| *level != "--inject");
        let possible = option.is_none_or(|option| succeeds(&[TREAPER, option, "true"]));
        if !possible {
            skip(&format!("{option:?} needs root"));
        }
        possible
    };
    let levels: Vec<_> = LEVELS
        .into_iter()
        .filter(|level| is_possible(*level))
        .collect();
    for host in hosts {
        let program = host.2.first().unwrap_or(&"sh");
        if !succeeds(&["sh", "-c", "command -v \"$0\"", program]) {
            skip(&format!("{program} is not installed"));
            continue;
        }
        // A relay refuses a terminal as its stdin.
        let levels = levels
            .iter()
            .filter(|level| host.1 != Terminal || **level != Some("--inject"));
        levels.for_each(|level| play(host, *level));
    }
}

fn start(host: &Host, level: Option<&str>, command: &[&str]) -> (Run, Option<OwnedFd>) {
    let scene = Scene::new();
    let socket = format!("--inject=unix:{}/socket", scene.directory().display());
    let (scene, terminal) = match host.1 {
        Anywhere => (scene.stdin_pipe(), None),
        Init => (scene.stdin_pipe().pidns(), None),
        Terminal => {
            let (scene, master) = scene.terminal();
            (scene, Some(master))
        }
    };
    let option = match level {
        Some("--inject") => Some(&*socket),
        other => other,
    };
    let treaper = option.map(|_| TREAPER);
    let wrap: Vec<&str> = treaper.into_iter().chain(option).collect();
    (scene.start(&[host.2, &wrap, command].concat()), terminal)
}

/// See [`Host`].
fn shown(run: &mut Run) -> String {
    run.log.ready("server");
    let server = run.named("server").remove(0);
    let mut above = vec![Process::read(server.ppid).unwrap()];
    let arena = run.arena();
    while let Some(last) = above.last().filter(|last| last.pid != arena) {
        above.push(Process::read(last.ppid).unwrap());
    }
    let place = |number: i32, of: fn(&Process) -> i32| match number {
        own if own == server.pid => "own",
        _ if above.iter().any(|process| of(process) == number) => "above",
        _ => "apart",
    };
    let parent = match &*above[0].comm {
        "treaper" | "tree-monitor" => "treaper",
        _ => "host",
    };
    let group = place(server.pgid, |process| process.pgid);
    let session = place(server.sid, |process| process.sid);
    let front = match server.tpgid {
        -1 => "none",
        front if front == server.pgid => "front",
        _ => "other",
    };
    format!("{parent} {group} {session} {front}")
}

#[test]
fn the_server_stands_where_it_would_stand_without_treaper() {
    each(HOSTS.iter(), |host, level| {
        let actor = [common::ACTOR, "tree", "server"];
        let (mut run, _terminal) = start(host, level, &actor);
        let expected = host.3[usize::from(level.is_some())];
        assert_eq!(shown(&mut run), expected, "{} {level:?}", host.0);
    });
}

/// What these calls return in this order where `host` has its command, see `setsid(2)` and `setpgid(2)`.
fn outcome(calls: [&str; 3], stands: &str) -> String {
    let own: Vec<bool> = stands.split(' ').map(|word| word == "own").collect();
    let (mut leads_group, mut leads_session) = (own[1], own[2]);
    let call = |name: &str| {
        let is_session = name == "setsid";
        let fails = leads_session || is_session && leads_group;
        leads_group |= !fails;
        leads_session |= !fails && is_session;
        format!("{name}={} ", i32::from(fails))
    };
    calls.map(call).concat()
}

/// A server that is a job at a terminal may even call `setsid()`: without treaper it leads a group.
#[test]
fn the_server_may_lead_a_session_and_a_group_where_it_does_not_lead_one() {
    let script = "
import os, sys
def fails(name):
    try: getattr(os, name)(*[0, 0] if name == 'setpgid' else [])
    except PermissionError: return True
open(sys.argv[1], 'w').write(''.join('%s=%d ' % (name, bool(fails(name))) for name in sys.argv[2:]))";
    if command(&["python3", "-V"]).output().is_err() {
        return skip("python3 is not installed");
    }
    // The others differ only in the program.
    let hosts = HOSTS
        .iter()
        .filter(|host| host.2.len() < 2 || host.3 == GROUP);
    each(hosts, |host, level| {
        for calls in [
            ["setsid", "setpgrp", "setpgid"],
            ["setpgid", "setpgrp", "setsid"],
        ] {
            let directory = Directory::new();
            let file = directory.0.join("calls");
            let python = ["python3", "-c", script, file.to_str().unwrap()];
            let (mut run, _terminal) = start(host, level, &[&python[..], &calls].concat());
            assert_eq!(run.wait().code(), Some(0), "{} {level:?}", host.0);
            let expected = outcome(calls, host.3[usize::from(level.is_some())]);
            let said = std::fs::read_to_string(&file).unwrap();
            assert_eq!(said, expected, "{} {level:?}", host.0);
        }
    });
}

/// Many servers take process 1 as their parent for the end of their host.
#[test]
fn as_pid_1_treaper_is_not_the_parent_of_the_server() {
    let parent_behind = |name: &str, options: &[&str]| {
        let shell = ["bash", "-c", "exec -a \"$@\"", "bash", name, TREAPER];
        let command = ["--", "sh", "-c", "echo $PPID"];
        let words = [&shell[..], options, &command].concat();
        as_init(&words).output().unwrap()
    };
    let ready = as_init(&["true"]).stderr(Stdio::null()).status().unwrap();
    if !ready.success() {
        assert!(!sys::is_root());
        return skip::skip("a PID namespace needs root");
    }
    let parents = [
        ("treaper", &[][..], false),
        ("treaper", &["--no-guard"], true),
        ("tini", &[], true),
    ];
    for (name, options, is_init) in parents {
        let out = parent_behind(name, options);
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(text.trim() == "1", is_init, "{name} {options:?}: {text}");
    }
}

/// The scheduler divides processor time between sessions, so a nice value alone has no effect beyond
/// the session of the server.
#[test]
fn the_servers_session_has_the_share_that_its_nice_value_asks_for() {
    if std::fs::metadata("/proc/self/autogroup").is_err() {
        return skip("needs a kernel with autogroup");
    }
    sys::leave_terminal();
    let share = |host: fn(&[&str]) -> Command, words: &[&str]| {
        let words = [words, &["cat", "/proc/self/autogroup"]].concat();
        let output = host(&words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().split_once(' ').unwrap().1.to_owned()
    };
    // Alone, the command prints the value.
    let own = command(&["nice"]).output().unwrap().stdout;
    let own: i32 = String::from_utf8(own).unwrap().trim().parse().unwrap();
    let (before, after) = (format!("nice {own}"), format!("nice {}", (own + 7).min(19)));
    let nice = ["nice", "-n", "7"];
    for level in [&[TREAPER][..], &[TREAPER, "--no-guard"]] {
        let niced = [&nice[..], level].concat();
        until("its share", || share(command, level) == before);
        for host in [command as fn(&[&str]) -> Command, in_group] {
            // Without root, the kernel allows it only once in 100 ms.
            until("a smaller share", || share(host, &niced) == after);
        }
        // Alone in its session, the command has all of its share also without treaper.
        assert_eq!(share(in_session, &nice), "nice 0");
        assert_eq!(share(in_session, &niced), "nice 0", "{level:?}");
    }
}
