//! Filters of the server's output, such as `exec > >(tee LOG)` in a script: they end after the script, and by themselves.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use common::{Run, Scene, Wrap, sys, until};
use treaper::sys::fd;

/// Runs `script` with bash, in a folder of its own.
fn play(options: Option<&[&str]>, script: &str) -> Run {
    let scene = Scene::new();
    let script = format!("cd {}\n{script}", scene.directory().display());
    let words = ["bash", "-c", &script];
    let wrap = options.map_or(Wrap::Bare, Wrap::Treaper);
    scene.start(&wrap.command(&words))
}

/// This filter passes its line on when the script has ended, and not at once.
const SLOW: &str = "exec > >(IFS= read -r line; IFS= read -r rest; sleep 0.2; echo \"$line\" >out)\necho last; exit 3";

#[test]
fn a_filter_passes_on_the_rest_of_the_output_after_the_script_has_ended() {
    let wraps: [&[&str]; 5] = [
        &[],
        &["--no-guard"],
        &["--contain=pidns"],
        &["--kill-mode=tree"],
        &["--stdin=ignore", "--no-parent"],
    ];
    for options in wraps {
        let mut run = play(Some(options), SLOW);
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
        let log = fs::read_to_string(run.directory().join("out"));
        assert_eq!(log.unwrap_or_default(), "last\n", "{options:?}");
        assert_eq!(run.stderr(), "", "{options:?}");
    }
}

#[test]
fn a_filter_has_time_at_a_terminal_too() {
    let (scene, terminal) = Scene::new().terminal();
    let script = format!("cd {}\n{SLOW}", scene.directory().display());
    let mut run = scene.start(&Wrap::Treaper(&[]).command(&["bash", "-c", &script]));
    assert_eq!(run.wait_clean().code(), Some(3));
    drop(terminal);
    let log = fs::read_to_string(run.directory().join("out"));
    assert_eq!(log.unwrap_or_default(), "last\n");
}

/// The script ends while the new process is still a copy of it, which has both ends of the pipe.
#[test]
fn a_filter_that_has_just_been_started_passes_on_the_output() {
    for _ in 0..20 {
        let mut run = play(Some(&[]), "exec > >(sed s/^/x/ >out); echo hello");
        assert_eq!(run.wait_clean().code(), Some(0));
        let log = fs::read_to_string(run.directory().join("out"));
        assert_eq!(log.unwrap_or_default(), "xhello\n");
    }
}

/// As bash is between the fork and the exec of a filter. On a busy machine it may be too old by the time treaper looks.
#[test]
fn a_new_copy_of_the_script_has_a_moment_to_become_a_filter() {
    let has_written = || {
        let script = "mkfifo never; (read -t 0.1 <>never; echo late >out) & exit 3";
        let mut run = play(Some(&[]), script);
        assert_eq!(run.wait_clean().code(), Some(3));
        run.directory().join("out").exists()
    };
    assert!((0..20).any(|_| has_written()));
}

/// Never reads, and does not end by itself. The script ends when it is there.
fn lookalike(on_term: &str) -> String {
    format!(
        "exec > >(trap '{on_term}' TERM; echo $BASHPID >pid; while :; do sleep 0.05; done)\n\
        until [ -s pid ]; do sleep 0.01; done; exit 3"
    )
}

#[test]
fn a_process_that_only_looks_like_a_filter_is_stopped_a_second_later_at_the_latest() {
    let before = sys::now_ms();
    let mut run = play(Some(&[]), &lookalike("echo TERM >out; exit"));
    assert_eq!(run.wait_clean().code(), Some(3));
    assert!(sys::now_ms() - before >= 1000, "it had no time");
    let log = fs::read_to_string(run.directory().join("out"));
    assert_eq!(log.unwrap_or_default(), "TERM\n");
}

/// A whole second would be over after the SIGKILL.
#[test]
fn the_time_of_filters_is_a_quarter_of_a_short_grace() {
    let mut run = play(Some(&["-v", "--grace=900ms"]), &lookalike(""));
    assert_eq!(run.wait_clean().code(), Some(3));
    let stderr = run.stderr();
    assert!(
        stderr.contains("sent SIGTERM to the rest of the tree"),
        "{stderr}"
    );
    assert!(stderr.contains("had to SIGKILL"), "{stderr}");
}

/// The daemon of `script` writes to `out` at its end, and to `told` if it gets SIGTERM. Its time is short, and a busy
/// machine may not have run it, so one of 20 runs counts.
fn ends_unnamed(script: &str) {
    let wraps: [&[&str]; 3] = [&[], &["--no-guard"], &["--contain=pidns"]];
    for options in wraps {
        let is_clean = |_| {
            let mut run = play(Some(options), script);
            assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
            let read = |name| fs::read_to_string(run.directory().join(name)).unwrap_or_default();
            [read("out"), read("told"), run.stderr()] == ["over\n", "", ""]
        };
        assert!((0..20).any(is_clean), "{options:?}");
    }
}

/// As the server of tmux does, whose last session has ended, and what sudo starts for its command.
#[test]
fn a_daemon_that_ends_with_the_server_is_neither_signalled_nor_named() {
    let script = "mkfifo end; setsid sh -c 'trap \"echo TERM >told\" TERM; read -r _ <end; sleep 0.03; echo over >out' &\n\
                  exec 9>end; exit 3";
    ends_unnamed(script);
}

/// As the telemetry of Next.js, which is sent by a process that the server starts as it exits.
#[test]
fn a_daemon_that_was_just_started_has_time_for_its_errand() {
    let script = "setsid sh -c 'trap \"echo TERM >told\" TERM; sleep 0.5; echo over >out' & exit 3";
    ends_unnamed(script);
}

#[test]
fn control_without_treaper_a_filter_lives_on() {
    let mut run = play(
        None,
        "exec > >(echo $BASHPID >pid; exec sleep 1000)\nuntil [ -s pid ]; do sleep 0.01; done; exit 3",
    );
    assert_eq!(run.wait().code(), Some(3));
    let pid = fs::read_to_string(run.directory().join("pid")).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    assert!(sys::kill(pid, 0).is_ok(), "the filter has ended");
    sys::kill(pid, libc::SIGKILL).unwrap();
    run.wait_empty();
}

/// A child that sleeps, and ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start(stdin: Stdio) -> Self {
        Self(
            Command::new("sleep")
                .arg("1000")
                .stdin(stdin)
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn only_a_pipe_without_a_writer_that_is_not_treapers_own_counts() {
    let over = fd::stdin_is_over;
    let (read, write) = sys::pipe().unwrap();
    let number = fd::pipe(read.as_raw_fd());
    assert!(number.is_some());
    let (child, other) = (Sleeper::start(read.into()), Sleeper::start(Stdio::null()));
    let pid = child.pid();
    assert!(!over(pid, None), "it has a writer");
    drop(write);
    until("a pipe without a writer", || over(pid, None));
    assert!(!over(pid, number), "it is that of treaper");
    assert!(over(pid, number.map(|number| number + 1)));
    assert!(!over(other.pid(), None), "it is no pipe");
    drop(child);
    assert!(!over(pid, None), "it is gone");
}
