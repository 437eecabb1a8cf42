//! In a real shell on a real terminal, `treaper CMD` behaves like `CMD`. Each session is typed twice, the second time
//! with `env` in place of treaper, and what the shell shows is compared.
//!
//! That includes the shell's message about a job that a signal has ended, if the shell prints one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use common::{
    Run, Scene, TREAPER, first_second_over, held, patience, proc, skip, special, sys, trace, until,
};

/// The shells of Debian, with options against start-up files and line editing.
const SHELLS: [&[&str]; 4] = [
    &["bash", "--norc", "--noediting", "-i"],
    &["dash", "-i"],
    &["zsh", "-f", "-i", "+Z"],
    &["fish", "--no-config", "-i"],
];

struct Session {
    run: Run,
    master: File,
    text: String,
    asked: usize,
    /// The variable that holds the status of the last command in this shell.
    last: &'static str,
}

impl Session {
    fn new(shell: &[&str], wrap: &str) -> Session {
        let (scene, master) = Scene::new().terminal();
        let scene = scene
            .env("W", wrap)
            .env("PS1", "")
            .env("TERM", "dumb")
            .env("ENV", "");
        let mut session = Session {
            run: scene.start(shell),
            master: File::from(master),
            text: String::new(),
            asked: 0,
            last: if shell[0] == "fish" { "$status" } else { "$?" },
        };
        session.ask("ulimit -c 0; stty -echo; true");
        session
    }

    fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line. Returns the shell's status of it.
    fn ask(&mut self, line: &str) -> String {
        self.keys(&format!("{line}\n"));
        self.status()
    }

    /// The status of the command that has just ended.
    fn status(&mut self) -> String {
        self.asked += 1;
        let mark = format!("answer-{}=", self.asked);
        // The mark is in two parts, so that the echo of the line is not taken for the answer.
        self.keys(&format!("echo answer''-{}={}.\n", self.asked, self.last));
        self.until_text(&mark, '.')
    }

    /// Reads until `mark` has come. Returns the text after it, up to `end`.
    fn until_text(&mut self, mark: &str, end: char) -> String {
        loop {
            let rest = self.text.split_once(mark).map(|(_, rest)| rest);
            if let Some((answer, _)) = rest.and_then(|rest| rest.split_once(end)) {
                return answer.to_owned();
            }
            let ready = sys::poll(&[(self.master.as_raw_fd(), libc::POLLIN)], Some(patience()));
            assert!(ready[0] != 0, "waited too long for {mark}: {}", self.text);
            let mut buffer = [0; 4096];
            let count = self.master.read(&mut buffer).unwrap();
            self.text
                .push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Waits until a process `name` is in the foreground.
    fn in_front(&self, name: &str) {
        until(&format!("{name} in front"), || {
            let front = special::foreground_group(self.master.as_raw_fd());
            self.run
                .named(name)
                .iter()
                .any(|process| process.pgid == front && process.state != 'T')
        });
    }

    /// Waits until a process `name` and the leader of its job, for which the shell waits, are in one of the `states`.
    fn in_state(&self, name: &str, states: &str) {
        until(&format!("{name} in one of {states}"), || {
            self.run.named(name).iter().any(|process| {
                let leader = proc::Process::read(process.pgid);
                states.contains(process.state)
                    && leader.is_some_and(|leader| states.contains(leader.state))
            })
        });
    }
}

fn installed(shell: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\"", shell])
        .output()
        .unwrap();
    if !found.status.success() {
        skip(&format!("{shell} is not installed"));
    }
    found.status.success()
}

/// Plays a session in each shell, with and without treaper, and compares the results.
fn compare(play: impl Fn(&mut Session) -> Vec<String>) {
    compare_in(&SHELLS, play);
}

/// As [`compare`], in these `shells`.
fn compare_in(shells: &[&[&str]], play: impl Fn(&mut Session) -> Vec<String>) {
    for shell in shells {
        if !installed(shell[0]) {
            continue;
        }
        let expected = play(&mut Session::new(shell, "env"));
        let mut session = Session::new(shell, TREAPER);
        let found = play(&mut session);
        assert_eq!(found, expected, "{shell:?}: {}", session.text);
    }
}

#[test]
fn interrupts_from_the_keyboard() {
    compare(|session| {
        let mut found = Vec::new();
        for key in ["\x03", "\x1c"] {
            session.keys("$W sleep 100\n");
            session.in_front("sleep");
            session.keys(key);
            found.push(session.status());
        }
        found
    });
}

#[test]
fn a_job_is_suspended_and_resumed_in_front_and_behind() {
    compare(|session| {
        let mut found = Vec::new();
        session.keys("$W sleep 100\n");
        session.in_front("sleep");
        for _ in 0..2 {
            session.keys("\x1a");
            session.in_state("sleep", "T");
            found.push(session.status());
            session.keys("fg\n");
            session.in_front("sleep");
        }
        session.keys("\x1a");
        session.in_state("sleep", "T");
        found.push(session.status());
        found.push(session.ask("bg >/dev/null"));
        session.in_state("sleep", "SR");
        session.keys("fg\n");
        session.in_front("sleep");
        session.keys("\x03");
        found.push(session.status());
        found.push(session.ask("wait"));
        found
    });
}

#[test]
fn a_job_behind_never_takes_the_terminal() {
    // fish has no `%1`.
    compare_in(&SHELLS[..3], |session| {
        let mut found = vec![session.ask("$W sleep 100 &")];
        session.in_state("sleep", "SR");
        found.push(session.ask("true"));
        found.push(session.ask("kill %1"));
        found.push(session.ask("wait"));
        // SIGTTIN suspends a job that reads, until it is in front.
        found.push(session.ask("$W cat &"));
        session.in_state("cat", "T");
        session.keys("fg\n");
        session.in_front("cat");
        session.keys("line-of-input!\n\x04");
        session.until_text("line-of-input", '!');
        found.push(session.status());
        found
    });
}

#[test]
fn pipelines() {
    compare(|session| {
        vec![
            session.ask("echo in | $W cat | $W sed s/in/out-of-it./ | $W cat"),
            session.until_text("out-of", '.'),
            session.ask("$W yes | $W head -1 >/dev/null"),
            session.ask("$W sh -c 'exit 9'"),
            session.ask("$W no-such-command 2>/dev/null"),
            // treaper below treaper: the monitor of the outer one has left the session by then.
            session.ask(
                "true | $W sh -c 'while grep -q tree-monitor /proc/$PPID/comm \
                 && [ $(ps -o sid= -p $PPID) = $(ps -o sid= -p $$) ]; do :; done; \
                 exec $W sh -c \"exit 5\"'",
            ),
        ]
    });
}

/// What has written into it has ended long before: that is the end of the input, and no host's. Also after the first
/// second, in which every end is one of an input.
#[test]
fn a_pipeline_may_go_on_when_its_input_has_ended() {
    compare(|session| {
        session.keys("head -1 | TREAPER_DRAIN=100ms TREAPER_GRACE=100ms $W sh -c \"echo be''gun; cat >/dev/null; echo re''ad; sleep 0.5; echo do''ne.\"\n");
        session.until_text("begun", '\n');
        first_second_over();
        session.keys("line\n");
        session.until_text("read", '\n');
        vec![session.until_text("done", '.'), session.status()]
    });
}

#[test]
fn programs_that_own_the_screen() {
    compare(|session| {
        let mut found = Vec::new();
        // The marks are none that a prompt can have: it may show the user and the home directory.
        for (line, name, mark, keys) in [
            ("$W less /etc/passwd", "less", "root:x:", "q"),
            ("$W vim -u NONE", "vim", "\n~", "\x1b:q!\r"),
            ("$W top", "top", "COMMAND", "q"),
            ("$W python3 -qi", "python3", ">>>", "exit(5)\r"),
            (
                "$W sh -c 'echo in-\"front \"; read x; exit 6'",
                "sh",
                "in-front",
                "\n",
            ),
        ] {
            if !installed(name) {
                continue;
            }
            session.text.clear();
            session.keys(&format!("TERM=vt100 {line}\n"));
            // The program has set up the terminal when it draws. Keys before that are lost.
            session.until_text(mark, ' ');
            session.keys(keys);
            // Keys are also lost before it has restored the terminal.
            until("the shell in front", || {
                special::foreground_group(session.master.as_raw_fd()) == session.run.main
            });
            found.push(session.status());
        }
        found
    });
}

#[test]
fn a_change_of_the_window_size_arrives() {
    compare(|session| {
        session.keys("$W sh -c 'trap \"stty size; exit 4\" WINCH; echo re-\"ady \"; while :; do sleep .05; done'\n");
        session.until_text("re-ady", ' ');
        special::set_window_size(session.master.as_raw_fd(), 33, 77);
        vec![session.until_text("33 ", '7'), session.status()]
    });
}

#[test]
fn a_shell_inside_has_job_control_and_gives_the_terminal_back() {
    compare(|session| {
        session.keys("$W bash --norc --noediting -i\n");
        session.in_front("bash");
        session.keys("sleep 100\n");
        session.in_front("sleep");
        session.keys("\x1a");
        session.in_state("sleep", "T");
        session.keys("jobs\nfg\n");
        session.in_front("sleep");
        session.keys("\x03");
        session.in_front("bash");
        session.keys("exit 8\n");
        until("the shell in front", || {
            special::foreground_group(session.master.as_raw_fd()) == session.run.main
        });
        vec![session.status()]
    });
}

/// The outer shell only knows the group of the job. The inner one has made its own.
#[test]
fn a_shell_inside_that_was_suspended_gets_the_terminal_again() {
    compare(|session| {
        session.keys("$W bash --norc --noediting -i\n");
        session.in_front("bash");
        session.keys("suspend\n");
        until("the shell in front", || {
            special::foreground_group(session.master.as_raw_fd()) == session.run.main
        });
        session.keys("fg\n");
        session.keys("echo lev''el=$SHLVL.\n");
        let level = session.until_text("level=", '.');
        session.keys("exit 8\n");
        until("the shell in front", || {
            special::foreground_group(session.master.as_raw_fd()) == session.run.main
        });
        vec![level, session.status()]
    });
}

/// The shell has not taken the terminal back yet when the job behind ends: the group in front has no process left.
#[test]
fn a_job_behind_that_ends_leaves_the_terminal_to_the_shell() {
    compare_in(&SHELLS[..1], |session| {
        session.ask("$W sleep 100 &");
        until("a job behind", || !session.run.named("sleep").is_empty());
        session.keys("tail -f /dev/null\n");
        session.in_front("tail");
        let terminal = session.master.as_raw_fd();
        let front = special::foreground_group(terminal);
        let mut shell = trace(session.run.main, libc::SYS_ioctl);
        sys::kill(front, libc::SIGKILL).unwrap();
        held(&mut shell);
        let sleep = session.run.named("sleep").remove(0);
        let job = sleep.pgid;
        sys::kill(sleep.pid, libc::SIGTERM).unwrap();
        until("the end of the job", || proc::state(job) == 'Z');
        let taken = special::foreground_group(terminal) != front;
        drop(shell);
        vec![format!("taken: {taken}"), session.status()]
    });
}

/// A shell of a script does not take it back itself.
#[test]
fn the_end_of_a_shell_inside_that_had_the_terminal_gives_it_back() {
    for (wrap, given_back) in [(TREAPER, true), ("env", false)] {
        let mut session = Session::new(SHELLS[0], wrap);
        session.keys("sh -c '$W bash --norc --noediting -i; read -r line; echo \"read=$line.\"'\n");
        let outer = session.run.main;
        let terminal = session.master.as_raw_fd();
        let mut inner = 0;
        // Until the script is executed, its process is another bash in front.
        until("the script", || !session.run.named("sh").is_empty());
        until("the inner shell in front", || {
            let front = special::foreground_group(terminal);
            let shells = session.run.named("bash").into_iter();
            let mut shells = shells.filter(|p| p.pid == front && p.pid != outer);
            inner = shells.next().map_or(0, |p| p.pid);
            inner != 0
        });
        // It leads a group in which no other process is.
        let script = session.run.named("sh")[0].pgid;
        sys::kill(inner, libc::SIGKILL).unwrap();
        // While it ends, it may still take what is typed.
        until("its end", || {
            !session.run.named("bash").iter().any(|p| p.pid == inner)
        });
        if given_back {
            session.keys("text\n");
            assert_eq!(session.until_text("read=", '.'), "text");
        } else {
            session.in_state("sh", "T");
            assert_ne!(special::foreground_group(terminal), script);
        }
    }
}

#[test]
fn the_shell_names_the_signal_that_ended_a_job() {
    compare_in(&SHELLS[..1], |session| {
        session.text.clear();
        session.keys("$W sleep 100\n");
        session.in_front("sleep");
        let sleep = session.run.named("sleep")[0].pid;
        sys::kill(sleep, libc::SIGTERM).unwrap();
        let status = session.status();
        let named = session.text.contains("Terminated");
        vec![status, format!("named: {named}")]
    });
}

#[test]
fn a_closed_terminal_ends_everything_with_treaper_and_not_without() {
    for (wrap, ended) in [(TREAPER, true), ("env", false)] {
        let mut session = Session::new(SHELLS[0], wrap);
        session.keys("$W sh -c 'trap \"\" HUP TERM; setsid sleep 100 & exec sleep 100' \n");
        session.in_front("sleep");
        until("both", || session.run.named("sleep").len() == 2);
        let Session {
            mut run, master, ..
        } = session;
        drop(OwnedFd::from(master));
        if ended {
            run.wait_empty();
        } else {
            assert!(!run.ends_within(Duration::from_millis(300)));
            assert!(!run.named("sleep").is_empty());
        }
    }
}
