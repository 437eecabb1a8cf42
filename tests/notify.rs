//! `Type=notify`: the server's messages to a service manager that accepts only those of the main process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::family::play_under;
use common::proc::{self, Process};
use common::{ACTOR, TREAPER, patience, special, sys, until, until_state};
use treaper::streams::notify::Notifier;
use treaper::sys::clock;
use treaper::sys::notify::{Message, Sockets};
use treaper::sys::pid::Pid;

/// An address at which there is no manager.
const NOBODY: &str = "@treaper-nobody";

/// All modes that can be used here.
fn modes() -> Vec<&'static str> {
    let runs = |mode: &&str| {
        let mut command = Command::new(TREAPER);
        command.args([mode, "--", "true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let last = Some("--contain=pidns").filter(runs);
    ["", "--no-guard"].into_iter().chain(last).collect()
}

/// A socket that adds the sender's pid to each message, as systemd's does.
struct Manager(Sockets);

impl Manager {
    fn new() -> Self {
        // The address to which it would send does not matter.
        Self(Sockets::open(&"@nobody".into()).unwrap())
    }

    fn next(&self) -> Message {
        let mut message = None;
        until("a message", || {
            message = self.0.peek();
            message.is_some()
        });
        self.0.discard();
        message.unwrap()
    }

    /// treaper with a shell as its server, as the main process of a unit. In `script`, `$0` is the actor.
    fn command(&self, main_pid: &str, mode: &str, script: &str) -> Command {
        let line =
            format!("SYSTEMD_EXEC_PID={main_pid} exec \"$0\" {mode} -- sh -c '{script}' \"$1\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &line, TREAPER, ACTOR])
            .env("NOTIFY_SOCKET", self.0.address().unwrap())
            .env_remove("MEMORY_PRESSURE_WATCH");
        command
    }

    /// Fills the queue.
    fn fill(&self) {
        let filler = Sockets::open(&self.0.address().unwrap()).unwrap();
        while filler.send(&Message::new(b"FILLER=1")).is_ok() {}
    }

    /// The first message after those that [`Self::fill`] has sent.
    fn next_behind_fillers(&self) -> Message {
        loop {
            let message = self.next();
            if text(&message) != "FILLER=1" {
                return message;
            }
        }
    }

    fn start(&self, main_pid: &str, mode: &str, script: &str) -> (Child, BufReader<ChildStdout>) {
        Self::started(self.command(main_pid, mode, script))
    }

    fn start_with(
        &self,
        change: impl Fn(&mut Command),
        mode: &str,
        script: &str,
    ) -> (Child, BufReader<ChildStdout>) {
        let mut command = self.command("$$", mode, script);
        change(&mut command);
        Self::started(command)
    }

    fn started(mut command: Command) -> (Child, BufReader<ChildStdout>) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        (child, stdout)
    }
}

fn text(message: &Message) -> &str {
    std::str::from_utf8(message.text()).unwrap()
}

/// Each `notify` of the actor stays until this.
fn go_on(child: &mut Child) {
    child.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
}

fn line(stdout: &mut BufReader<ChildStdout>) -> String {
    if stdout.buffer().is_empty() {
        let wanted = [(stdout.get_ref().as_raw_fd(), libc::POLLIN)];
        let came = sys::poll(&wanted, Some(patience()));
        assert_ne!(came, [0], "waited too long for a line");
    }
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    text.trim_end().to_owned()
}

fn stop(child: &Child) {
    let pid = child.id() as i32;
    sys::kill(pid, libc::SIGSTOP).unwrap();
    until_state(&[pid], 'T');
}

/// As many messages have come as were sent, in their order.
fn numbered(manager: &Manager, count: usize, mode: &str) {
    for number in 1..=count {
        assert_eq!(text(&manager.next()), format!("WORD={number}"), "{mode}");
    }
}

#[test]
fn messages_of_the_tree_come_from_the_main_process() {
    let manager = Manager::new();
    for mode in modes() {
        let script = r#""$0" notify READY=1; setsid "$0" notify "STATUS=in a session of its own""#;
        let (mut child, _stdout) = manager.start("$$", mode, script);
        for expected in ["READY=1", "STATUS=in a session of its own"] {
            let message = manager.next();
            assert_eq!(text(&message), expected, "{mode}");
            assert_eq!(message.sender, child.id() as i32, "{mode}");
            go_on(&mut child);
        }
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn treaper_stays_the_main_process() {
    let manager = Manager::new();
    let script = r#""$0" notify "MAINPID=$$" "MAINPID=$$
READY=1
MAINPIDFDID=7" "$(printf "READY=1\rMAINPID=$$\rSTATUS=a\\\\b")" "$(printf "\\\\MA\\\\INPID=$$\nSTATUS=c")" WATCHDOG=1"#;
    let (mut child, _stdout) = manager.start("$$", "", script);
    assert_eq!(text(&manager.next()), "READY=1\n");
    assert_eq!(text(&manager.next()), "READY=1\rSTATUS=a\\b");
    assert_eq!(text(&manager.next()), "STATUS=c");
    assert_eq!(text(&manager.next()), "WATCHDOG=1");
    go_on(&mut child);
    assert!(child.wait().unwrap().success());
}

#[test]
fn messages_of_other_processes_are_not_passed_on() {
    let manager = Manager::new();
    for mode in modes() {
        let script = r#"echo "$NOTIFY_SOCKET"; read go; "$0" notify READY=1"#;
        let (mut child, mut stdout) = manager.start("$$", mode, script);
        let stranger = Sockets::open(&line(&mut stdout).into()).unwrap();
        stranger.send(&Message::new(b"STATUS=mine")).unwrap();
        go_on(&mut child);
        assert_eq!(text(&manager.next()), "READY=1", "{mode}");
        go_on(&mut child);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_message_that_treaper_cannot_hold_is_dropped_with_a_word_and_the_next_one_comes() {
    let manager = Manager::new();
    let script = r#""$0" notify "STATUS=$(head -c 5000 /dev/zero | tr "\\0" x)" READY=1"#;
    let mut command = manager.command("$$", "", script);
    command.stderr(Stdio::piped());
    let (mut child, _stdout) = Manager::started(command);
    assert_eq!(text(&manager.next()), "READY=1");
    go_on(&mut child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        words.contains("too long, or too many descriptors"),
        "{words}"
    );
}

/// More messages than one batch have come before treaper looked: no further signal reports the rest.
#[test]
fn messages_that_came_during_a_suspension_are_not_lost() {
    let manager = Manager::new();
    for mode in modes() {
        let script = r#"echo up; read go; "$0" notify $(seq -f WORD=%g 10)"#;
        let (mut child, mut stdout) = manager.start("$$", mode, script);
        assert_eq!(line(&mut stdout), "up");
        stop(&child);
        go_on(&mut child);
        assert_eq!(line(&mut stdout), "sent");
        sys::kill(child.id() as i32, libc::SIGCONT).unwrap();
        numbered(&manager, 10, mode);
        go_on(&mut child);
        assert!(child.wait().unwrap().success());
    }
}

/// No signal can be queued, and no timer made.
fn without_queued_signals(command: &mut Command) {
    #[allow(unsafe_code, reason = "the one way to run code between fork and exec")]
    // SAFETY: two plain system calls.
    unsafe {
        command.pre_exec(|| {
            special::set_limit(libc::RLIMIT_SIGPENDING, 0);
            Ok(())
        });
    }
}

#[test]
fn a_manager_that_does_not_read_delays_the_message_and_nothing_else() {
    let manager = Manager::new();
    let limits: [fn(&mut Command); 2] = [|_| {}, without_queued_signals];
    for (mode, limit) in modes()
        .into_iter()
        .flat_map(|mode| limits.map(|l| (mode, l)))
    {
        manager.fill();
        let script = r#"trap "echo signalled" USR1; exec 3<&0; "$0" notify READY=1 <&3 & until wait; do :; done"#;
        let (mut child, mut stdout) = manager.start_with(limit, mode, script);
        assert_eq!(line(&mut stdout), "sent");
        sys::kill(child.id() as i32, libc::SIGUSR1).unwrap();
        assert_eq!(line(&mut stdout), "signalled", "{mode}");
        assert_eq!(text(&manager.next_behind_fillers()), "READY=1", "{mode}");
        go_on(&mut child);
        assert!(child.wait().unwrap().success());
    }
}

/// Since systemd 254, treaper asks the manager to accept messages of the server. Here the manager's queue is full.
#[test]
fn a_newer_manager_with_a_full_queue_gets_the_messages_from_treaper() {
    let manager = Manager::new();
    for mode in modes() {
        manager.fill();
        let newer = |command: &mut Command| {
            command.env("MEMORY_PRESSURE_WATCH", "/dev/null");
        };
        let script = r#"echo up; "$0" notify READY=1"#;
        let (mut child, mut stdout) = manager.start_with(newer, mode, script);
        assert_eq!(line(&mut stdout), "up", "{mode}");
        let message = manager.next_behind_fillers();
        assert_eq!(text(&message), "READY=1", "{mode}");
        assert_eq!(message.sender, child.id() as i32, "{mode}");
        go_on(&mut child);
        assert!(child.wait().unwrap().success());
    }
}

/// More messages than one batch, from a server that has ended before treaper looked.
#[test]
fn the_last_messages_are_passed_on() {
    let manager = Manager::new();
    // A server in another PID namespace has no pid here, so its messages cannot be recognized after its end.
    for mode in modes().into_iter().filter(|mode| !mode.ends_with("pidns")) {
        let script = r#"echo $$; read go; exec "$0" notify $(seq -f WORD=%g 10) </dev/null"#;
        let (mut child, mut stdout) = manager.start("$$", mode, script);
        let server: i32 = line(&mut stdout).parse().unwrap();
        stop(&child);
        go_on(&mut child);
        until("the end of the server", || {
            Process::read(server).is_none_or(|process| process.state == 'Z')
        });
        sys::kill(child.id() as i32, libc::SIGCONT).unwrap();
        assert!(child.wait().unwrap().success());
        numbered(&manager, 10, mode);
    }
}

/// The shim stops the tree then, and goes on with this.
#[test]
fn messages_that_are_sent_after_the_end_of_the_monitor_are_passed_on() {
    let manager = Manager::new();
    let script = r#"trap "$0 notify STOPPING=1; exit 3" TERM; echo up; until read go; do :; done"#;
    let (mut child, mut stdout) = manager.start("$$", "--grace=60s", script);
    assert_eq!(line(&mut stdout), "up");
    let monitor = proc::children(child.id() as i32).remove(0);
    sys::kill(monitor.pid, libc::SIGKILL).unwrap();
    assert_eq!(text(&manager.next()), "STOPPING=1");
    go_on(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// They are sent faster than they are read, and none is lost.
#[test]
fn many_messages_all_arrive() {
    let manager = Manager::new();
    for mode in modes() {
        let script = r#"exec 3<&0; for n in 1 2 3 4 5; do "$0" notify $(seq -f WORD=%g 200) <&3 & done; wait"#;
        let (mut child, _stdout) = manager.start("$$", mode, script);
        for _ in 0..1000 {
            assert!(text(&manager.next()).starts_with("WORD="));
        }
        for _ in 0..5 {
            go_on(&mut child);
        }
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_treaper_that_is_not_the_main_process_passes_nothing_on() {
    let manager = Manager::new();
    let address = manager.0.address().unwrap();
    for main_pid in ["1", ""] {
        for newer in [None, Some("/dev/null")] {
            let mut command = manager.command(main_pid, "", r#"echo "$NOTIFY_SOCKET""#);
            if let Some(file) = newer {
                command.env("MEMORY_PRESSURE_WATCH", file);
            }
            let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert_eq!(printed.trim_end(), address.to_str().unwrap());
            assert!(manager.0.peek().is_none());
        }
    }
}

/// Since systemd 254 treaper need not pass anything on.
#[test]
fn a_newer_manager_is_asked_to_accept_messages_of_the_server() {
    let manager = Manager::new();
    let address = manager.0.address().unwrap();
    let output = manager
        .command("$$", "", r#"echo "$NOTIFY_SOCKET""#)
        .env("MEMORY_PRESSURE_WATCH", "/dev/null")
        .output()
        .unwrap();
    let message = manager.next();
    assert_eq!(text(&message), "NOTIFYACCESS=all");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), address.to_str().unwrap());
}

#[test]
fn the_server_runs_also_if_the_manager_cannot_be_reached() {
    for address in ["/no/such/socket", NOBODY, "vsock:2:1", "@", ""] {
        for newer in [None, Some("/dev/null")] {
            let manager = Manager::new();
            let script = r#"[ -z "$NOTIFY_SOCKET" ] || "$0" notify READY=1 2>/dev/null; exit 7"#;
            let mut command = manager.command("$$", "", script);
            command
                .env("NOTIFY_SOCKET", address)
                .stderr(Stdio::null())
                .stdin(Stdio::null());
            if let Some(file) = newer {
                command.env("MEMORY_PRESSURE_WATCH", file);
            }
            assert_eq!(command.status().unwrap().code(), Some(7), "{address}");
        }
    }
}

/// Runs one of the ignored tests as the main process of a unit whose manager has this address.
fn play(manager: &OsStr, more: &[&str], test: &str) {
    let script = r#"unset MEMORY_PRESSURE_WATCH; SYSTEMD_EXEC_PID=$$ exec env "$@""#;
    let socket = format!("NOTIFY_SOCKET={}", manager.to_str().unwrap());
    play_under(&[&["sh", "-c", script, "sh", &socket], more].concat(), test);
}

/// The pid of a child that has sent this to the notifier, and was reaped.
fn sent_by_a_child(notifier: &Notifier, text: &[u8]) -> i32 {
    let pid = sys::fork();
    if pid == 0 {
        let socket = Sockets::open(&notifier.address).unwrap();
        sys::exit(i32::from(socket.send(&Message::new(text)).is_err()));
    }
    sys::wait_for(pid);
    pid
}

#[test]
fn a_notifier_waits_before_it_sends_again() {
    let manager = Manager::new();
    manager.fill();
    play(&manager.0.address().unwrap(), &[], "scene_full_queue");
}

#[test]
#[ignore = "a scene"]
fn scene_full_queue() {
    let notifier = Notifier::open().unwrap().unwrap();
    let own = Sockets::open(&notifier.address).unwrap();
    own.send(&Message::new(b"READY=1")).unwrap();
    assert_eq!(notifier.retry_at(), None);
    let before = clock::now();
    notifier.send_messages(None);
    let pause = notifier.retry_at().unwrap().saturating_sub(before);
    assert!(pause >= Duration::from_millis(10), "{pause:?}");
}

#[test]
fn a_notifier_forgets_messages_if_its_manager_is_gone() {
    play(NOBODY.as_ref(), &[], "scene_no_manager");
}

#[test]
#[ignore = "a scene"]
fn scene_no_manager() {
    let notifier = Notifier::open().unwrap().unwrap();
    let own = Sockets::open(&notifier.address).unwrap();
    own.send(&Message::new(b"READY=1")).unwrap();
    notifier.send_messages(None);
    assert_eq!(notifier.retry_at(), None);
}

#[test]
fn a_notifier_is_an_error_if_a_newer_manager_cannot_be_asked() {
    play(
        NOBODY.as_ref(),
        &["MEMORY_PRESSURE_WATCH=/dev/null"],
        "scene_not_asked",
    );
}

#[test]
#[ignore = "a scene"]
fn scene_not_asked() {
    assert!(Notifier::open().is_err());
}

#[test]
fn a_notifier_knows_only_the_server_after_its_end() {
    let manager = Manager::new();
    play(&manager.0.address().unwrap(), &[], "scene_ended_sender");
    assert_eq!(text(&manager.next()), "STATUS=mine");
    assert!(manager.0.peek().is_none());
}

#[test]
#[ignore = "a scene"]
fn scene_ended_sender() {
    let notifier = Notifier::open().unwrap().unwrap();
    sent_by_a_child(&notifier, b"STATUS=of a process that is gone");
    notifier.send_messages(Some(Pid::new(sys::getpid()).unwrap()));
    let server = sent_by_a_child(&notifier, b"STATUS=mine");
    notifier.send_messages(Some(Pid::new(server).unwrap()));
}
