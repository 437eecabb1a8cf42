//! Where the server stands among sessions and process groups: where it would stand without treaper,
//! whatever the host has done.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{TREAPER, skip, sys, until};

/// One way in which a host starts its child.
type Host = (&'static str, fn(&[&str]) -> Command);

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn with_shell(words: &[&str]) -> Command {
    let script = "\"$@\"; exit $?";
    command(&[&["sh", "-c", script, "sh"][..], words].concat())
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

const HOSTS: [Host; 5] = [
    ("plain", command),
    ("a shell", with_shell),
    ("start_new_session, detached, systemd, cron", in_session),
    ("process_group", in_group),
    ("PID 1", as_init),
];

/// What is put in front of the command.
const LEVELS: [&[&str]; 4] = [
    &[TREAPER],
    &[TREAPER, "--no-guard"],
    &[TREAPER, "--contain=cgroup"],
    &[TREAPER, "--contain=pidns"],
];

fn is_possible(level: &[&str]) -> bool {
    command(&[level, &["true"]].concat())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// What `host` and the process behind `level` see: whether it leads its session, whether it leads
/// its group, whether it has a terminal, and the exit status of `setsid sh -c 'exit 7'` there.
fn standing(host: &Host, level: &[&str]) -> (bool, bool, bool, Option<i32>) {
    let run = |tail: &[&str]| {
        let words = [level, tail].concat();
        (host.1)(&words).stdin(Stdio::null()).output().unwrap()
    };
    let out = run(&["cat", "/proc/self/stat"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let (pid, rest) = text
        .split_once(" (cat) ")
        .unwrap_or_else(|| panic!("{text}"));
    let fields: Vec<&str> = rest.split(' ').collect();
    let [group, session, terminal] = [2, 3, 4].map(|at| fields[at]);
    let status = run(&["setsid", "sh", "-c", "exit 7"]).status.code();
    (session == pid, group == pid, terminal != "0", status)
}

#[test]
fn the_server_leads_what_it_would_lead_without_treaper() {
    sys::leave_terminal();
    let mut compared = 0;
    for host in &HOSTS {
        let is_ready = (host.1)(&["true"]).stderr(Stdio::null()).status();
        if !is_ready.unwrap().success() {
            assert!(!sys::is_root(), "{}", host.0);
            skip::skip(&format!("{}: needs root", host.0));
            continue;
        }
        let bare = standing(host, &[]);
        for level in LEVELS.iter().filter(|level| is_possible(level)) {
            assert_eq!(standing(host, level), bare, "{} {level:?}", host.0);
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared}");
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
    let share = |host: &Host, words: &[&str]| {
        let words = [words, &["cat", "/proc/self/autogroup"]].concat();
        let output = host.1(&words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().split_once(' ').unwrap().1.to_owned()
    };
    // Alone, the command prints the value.
    let own = command(&["nice"]).output().unwrap().stdout;
    let own: i32 = String::from_utf8(own).unwrap().trim().parse().unwrap();
    let (before, after) = (format!("nice {own}"), format!("nice {}", (own + 7).min(19)));
    let nice = ["nice", "-n", "7"];
    for level in &LEVELS[..2] {
        let niced = [&nice[..], level].concat();
        until("its share", || share(&HOSTS[0], level) == before);
        for host in [&HOSTS[0], &HOSTS[3]] {
            // Without root, the kernel allows it only once in 100 ms.
            until("a smaller share", || share(host, &niced) == after);
        }
        // Alone in its session, the command has all of its share also without treaper.
        assert_eq!(share(&HOSTS[2], &nice), "nice 0");
        assert_eq!(share(&HOSTS[2], &niced), "nice 0", "{level:?}");
    }
}
