//! With `--cancel`, stdout passes through the relay: no kind of stdout, and no host that does not read, keeps the relay from
//! passing on input or from following turns.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Run, Scene, Wrap, skip, special, sys, until};
use rustix::pipe::PipeFlags;
use treaper::sys::fd;

const OPTIONS: [&str; 5] = [
    "--turn=method=prompt",
    "--cancel=method=cancel",
    "--cancel-drain=500ms",
    "--grace",
    "200ms",
];
const TURN: &str = "{\"id\":1,\"method\":\"prompt\"}\n";
const CANCEL: &str = "{\"method\":\"cancel\"}\n";
/// Writes without end, and says on stderr what it has read.
const FLOODS: &str = "yes & while read -r line; do echo \"got $line\" >&2; done";

struct Talk {
    run: Run,
    stderr: PathBuf,
}

impl Talk {
    fn start(wrap: &Wrap<'_>, stdout: OwnedFd, script: &str, uid: Option<u32>) -> Talk {
        let mut scene = Scene::new().stdin_pipe().no_capture();
        let stderr = scene.directory().join("stderr");
        let file = File::create(&stderr).unwrap();
        scene = scene.with(|command| {
            command.stdout(stdout).stderr(file);
        });
        if let Some(uid) = uid {
            scene = scene.uid(uid);
        }
        let run = scene.start(&wrap.command(&["sh", "-c", script]));
        Talk { run, stderr }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }

    /// The output is full. Each of 50 requests arrives all the same.
    fn takes_requests(&mut self) {
        until("a flood", || !self.run.named("yes").is_empty());
        common::until_it_rests(self.run.named("yes")[0].pid);
        for number in 1..=50 {
            self.run
                .write_stdin(format!("request {number}\n").as_bytes());
        }
        until("all requests", || {
            self.stderr().contains("got request 50\n")
        });
    }

    fn times_out(mut self) {
        self.takes_requests();
        let couriers = self.run.named("tree-courier").len();
        self.run.write_stdin(TURN.as_bytes());
        self.run.write_stdin(CANCEL.as_bytes());
        let exit = self.run.wait_clean();
        let stderr = self.stderr();
        assert_eq!(exit.code(), Some(124), "{couriers} {stderr}");
    }
}

fn fifo(scene: &common::scene::Directory) -> (File, File) {
    let path = scene.0.join("fifo");
    sys::mkfifo(&path);
    let reader = File::options().read(true).write(true).open(&path).unwrap();
    (reader, File::options().write(true).open(&path).unwrap())
}

#[test]
fn a_host_that_reads_nothing_stops_neither_requests_nor_the_clock_pipe() {
    let (_reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), FLOODS, None);
    talk.takes_requests();
    assert!(talk.run.named("tree-courier").is_empty());
    talk.times_out();
}

#[test]
fn a_host_that_reads_nothing_stops_neither_requests_nor_the_clock_fifo() {
    let directory = common::scene::Directory::new();
    let (_reader, stdout) = fifo(&directory);
    Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), FLOODS, None).times_out();
}

/// Such a FIFO has a reader and a writer as long as one process has it open, so it never ends.
#[test]
fn a_fifo_that_is_open_for_both_directions_stays_open() {
    let directory = common::scene::Directory::new();
    let path = directory.0.join("both");
    sys::mkfifo(&path);
    let both = || File::options().read(true).write(true).open(&path).unwrap();
    let source = format!("unix:{}", directory.0.join("socket").display());

    let (stdin, options) = (both(), ["--stdin=ignore", "--inject", &source]);
    let scene = Scene::new().with(|command| {
        command.stdin(stdin);
    });
    let reads = "read -r line; echo \"got $line\"";
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", reads]));
    assert!(
        !run.ends_within(Duration::from_millis(500)),
        "{}",
        run.stdout()
    );
    let mut writer = UnixStream::connect(directory.0.join("socket")).unwrap();
    writer.write_all(b"line\n").unwrap();
    assert_eq!(run.wait_clean().code(), Some(0));
    assert_eq!(run.stdout(), "got line\n");

    let prints = "echo one; sleep 0.5; echo two";
    let stdout = both();
    let mut run = Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), prints, None).run;
    assert_eq!(run.wait_clean().code(), Some(0));
}

#[test]
fn a_host_that_reads_nothing_stops_neither_requests_nor_the_clock_socket() {
    let (_reader, stdout) = UnixStream::pair().unwrap();
    Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), FLOODS, None).times_out();
}

#[test]
fn a_host_that_reads_nothing_stops_neither_requests_nor_the_clock_terminal() {
    let (_reader, stdout) = special::pty();
    Talk::start(&Wrap::Treaper(&OPTIONS), stdout, FLOODS, None).times_out();
}

#[test]
fn a_host_that_reads_nothing_stops_neither_requests_nor_the_clock_pipe_of_another_user() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let (_reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), FLOODS, Some(65534));
    talk.takes_requests();
    // It can open neither of the two pipes anew.
    assert!(talk.run.named("tree-courier").is_empty());
    talk.times_out();
}

#[test]
fn control_bare_takes_requests_while_its_output_is_full() {
    let (_reader, stdout) = sys::pipe().unwrap();
    Talk::start(&Wrap::Bare, stdout.into(), FLOODS, None).takes_requests();
}

#[test]
fn every_byte_arrives_by_pipes_of_another_user() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let (mut reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(
        &Wrap::Treaper(&OPTIONS),
        stdout.into(),
        "exec cat",
        Some(65534),
    );
    let host = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    let text = b"0123456789abcde\n".repeat(1 << 18);
    talk.run.write_stdin(&text);
    talk.run.close_stdin();
    let exit = talk.run.wait_clean();
    assert_eq!(exit.code(), Some(0), "{}", talk.stderr());
    assert!(host.join().unwrap() == text);
}

/// Each write to such a pipe is a packet, and a read ends with it.
#[test]
fn every_packet_arrives_by_a_pipe_of_another_user() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    let flags = PipeFlags::DIRECT | PipeFlags::CLOEXEC;
    let (stdin, host) = rustix::pipe::pipe_with(flags).unwrap();
    let mut host = File::from(host);
    for line in ["one\n", "two\n", "three\n"] {
        host.write_all(line.as_bytes()).unwrap();
    }
    let scene = Scene::new().uid(65534).with(|command| {
        command.stdin(stdin);
    });
    let reads = "read -r a; read -r b; read -r c; echo \"$a $b $c\"";
    let mut run = scene.start(&Wrap::Treaper(&OPTIONS).command(&["sh", "-c", reads]));
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    assert_eq!(run.stdout(), "one two three\n");
}

#[test]
fn output_arrives_by_a_pipe_of_another_user_where_a_filter_refuses_splice() {
    if !sys::is_root() {
        return skip("only root can have another uid");
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    for error in ["ENOSYS", "EPERM"] {
        let rule = format!("inject=splice:error={error}");
        let strace = "strace -f -b execve -qq -o /dev/null -e".split(' ');
        let mut command: Vec<_> = strace.chain([rule.as_str()]).map(str::to_owned).collect();
        command.extend(Wrap::Treaper(&OPTIONS).command(&["sh", "-c", "read -r a; echo \"$a\""]));
        let mut run = Scene::new().stdin_pipe().uid(65534).start(&command);
        run.write_stdin(b"one\n");
        assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
        assert_eq!(run.stdout(), "one\n", "{error}");
    }
}

/// Prints each line that it reads in one write. Once there are 200, it waits for the end of its stdin, or for SIGTERM.
const PRINTS: &str = "trap 'echo bye; exit 3' TERM; i=0
    while [ $i -lt 200 ]; do read -r line; echo \"$line\"; i=$((i+1)); done
    if read -r more; then while :; do sleep 0.02; done; fi; echo bye; exit 3";

/// The host reads nothing until the end of treaper, and then all of it.
fn prints_lines_that_fit(wrap: &Wrap<'_>) {
    for ends_by_signal in [false, true] {
        let (mut reader, stdout) = sys::pipe().unwrap();
        let mut scene = Scene::new().stdin_pipe().no_capture();
        let stderr = scene.directory().join("stderr");
        let file = File::create(&stderr).unwrap();
        scene = scene.with(|command| {
            command.stdout(stdout).stderr(file);
        });
        let mut run = scene.start(&wrap.command(&["sh", "-c", PRINTS]));
        let mut expected = String::new();
        for number in 0..200 {
            let line = format!("line {number}\n");
            run.write_stdin(line.as_bytes());
            expected += &line;
            // Only then the next one, or two might be passed on by one write.
            until(&format!("room for line {number}"), || {
                fd::unread(reader.as_raw_fd()) == expected.len() as u64
            });
        }
        assert!(run.named("tree-courier").is_empty());
        if ends_by_signal {
            run.write_stdin(b"more\n");
            until("a loop", || !run.named("sleep").is_empty());
            run.signal(libc::SIGTERM);
        } else {
            run.close_stdin();
        }
        let exit = run.wait_clean();
        let said = fs::read_to_string(stderr).unwrap();
        let has_lost = said.contains("lost");
        assert_eq!((exit.code(), has_lost), (Some(3), false), "{said}");
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, expected + "bye\n", "{ends_by_signal}");
    }
}

/// As without the relay: the room of a pipe is counted in bytes, not in writes.
#[test]
fn a_pipe_that_is_read_after_the_end_has_room_for_many_short_lines() {
    let patient = [&OPTIONS[..3], &["--grace=20s"]].concat();
    prints_lines_that_fit(&Wrap::Treaper(&patient));
}

#[test]
fn control_bare_a_pipe_has_room_for_many_short_lines() {
    prints_lines_that_fit(&Wrap::Bare);
}

/// The answer behind them would otherwise be read only after the time of the cancelled turn.
#[test]
fn notifications_that_the_host_does_not_read_do_not_hide_the_answer_to_a_cancel() {
    let script = "read -r turn; read -r cancel; i=0
        while [ $i -lt 20 ]; do echo '{\"method\":\"update\"}'; sleep 0.01; i=$((i+1)); done
        echo '{\"id\":1,\"result\":\"cancelled\"}'; cat";
    let options = [&OPTIONS[..], &["--cancel-drain=5s"]].concat();
    let (mut reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&options), stdout.into(), script, None);
    talk.run.write_stdin(TURN.as_bytes());
    talk.run.write_stdin(CANCEL.as_bytes());
    until("the answer", || !talk.run.named("cat").is_empty());
    // Its time would be over by then.
    let ended = talk.run.ends_within(Duration::from_secs(6));
    assert_eq!((ended, &*talk.stderr()), (false, ""));
    talk.run.close_stdin();
    assert_eq!(talk.run.wait_clean().code(), Some(0), "{}", talk.stderr());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 21, "{text}");
    assert!(text.ends_with("cancelled\"}\n"), "{text}");
}

#[test]
fn a_server_that_prints_nothing_loses_its_reader_with_the_host() {
    let (reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), "exec cat", None);
    until("a server", || !talk.run.named("cat").is_empty());
    let server = talk.run.named("cat")[0].pid;
    let output = File::options()
        .write(true)
        .open(format!("/proc/{server}/fd/1"))
        .unwrap();
    drop(reader);
    let found = sys::poll(&[(output.as_raw_fd(), 0)], Some(common::patience()));
    assert_eq!(found[0] & libc::POLLERR, libc::POLLERR);
    assert!(!talk.run.named("tree-relay").is_empty());
    drop(output);
    talk.run.close_stdin();
    talk.run.wait_clean();
}

/// A courier writes to a file.
fn with_a_courier(script: &str) -> (common::scene::Directory, PathBuf, Talk) {
    let directory = common::scene::Directory::new();
    let path = directory.0.join("output");
    let file = File::create(&path).unwrap();
    let talk = Talk::start(&Wrap::Treaper(&OPTIONS), file.into(), script, None);
    until("a courier", || talk.run.named("tree-courier").len() == 1);
    // It is there before treaper looks at the relay.
    until("a server", || {
        ["sh", "cat"]
            .iter()
            .any(|name| !talk.run.named(name).is_empty())
    });
    (directory, path, talk)
}

#[test]
fn a_killed_relay_takes_its_courier_along() {
    // The end of its input is not that of the server, which could be seen first.
    let (_directory, _, mut talk) = with_a_courier("cat; sleep 1000");
    talk.run.signal(libc::SIGKILL);
    talk.run.wait_empty();
    assert!(talk.stderr().contains("relay-killed"), "{}", talk.stderr());
}

#[test]
fn a_suspended_courier_is_resumed() {
    let (_directory, path, mut talk) = with_a_courier("cat");
    let courier = talk.run.named("tree-courier")[0].pid;
    for round in 1..=3 {
        sys::kill(courier, libc::SIGSTOP).unwrap();
        talk.run.write_stdin(b"line\n");
        let lines = || fs::read_to_string(&path).unwrap().matches("line").count();
        until("the line", || lines() == round);
    }
    talk.run.close_stdin();
    assert_eq!(talk.run.wait_clean().code(), Some(0));
}

#[test]
fn a_killed_courier_is_reported_and_the_server_loses_its_reader() {
    let script =
        "trap '' PIPE; while echo line; do sleep 0.02; done 2>/dev/null; echo ended >&2; cat";
    let (_directory, _, mut talk) = with_a_courier(script);
    talk.run.named("tree-courier")[0].kill();
    // The server may see it first: the relay sees a pipe without a reader before it hears of the
    // end of a child.
    until("an error of the server", || {
        talk.stderr().contains("ended\n")
    });
    until("the message", || {
        talk.stderr().contains(
            "the server's output is lost: the process that writes it was ended by SIGKILL",
        )
    });
    talk.run.close_stdin();
    assert_eq!(talk.run.wait_clean().code(), Some(0));
}

#[test]
fn an_error_of_stdout_is_reported_and_reaches_the_server() {
    let script =
        "trap '' PIPE; while echo line; do sleep 0.02; done 2>/dev/null; echo ended >&2; cat";
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), full.into(), script, None);
    until("an error", || talk.stderr().contains("ended"));
    let stderr = talk.stderr();
    assert!(
        stderr.contains("since stdout cannot be written: No space left on device"),
        "{stderr}"
    );
    talk.run.close_stdin();
    talk.run.wait_clean();
}

#[test]
fn a_file_gets_all_of_the_output() {
    let directory = common::scene::Directory::new();
    let path = directory.0.join("output");
    let file = File::create(&path).unwrap();
    let script = "head -c 3000000 /dev/zero; cat";
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), file.into(), script, None);
    talk.run.write_stdin(b"end\n");
    talk.run.close_stdin();
    talk.run.wait_clean();
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), 3_000_004);
    assert!(found.ends_with(b"end\n"));
}

/// Another process may have set `O_NONBLOCK` on a terminal that treaper shares with it.
/// As without a relay: a log that is rotated would stay allocated. The file is also the descriptor 99.
#[test]
fn no_process_keeps_a_file_open_that_only_the_server_or_the_courier_needs() {
    let directory = common::scene::Directory::new();
    let socket = format!("--inject=unix:{}", directory.0.join("socket").display());
    for (options, by_server) in [(&[&*socket][..], 2), (&OPTIONS, 1)] {
        let path = directory.0.join("output");
        let log = File::create(&path).unwrap();
        let (stdout, number) = (log.try_clone().unwrap(), log.as_raw_fd());
        let scene = Scene::new().stdin_pipe().no_capture().with(|command| {
            command.stdout(stdout).stderr(Stdio::null());
        });
        let scene = scene.before_exec(move || sys::dup2(number, 99));
        let mut run = scene.start(&Wrap::Treaper(options).tree("server:on=TERM/3"));
        let server = run.log.ready("server");
        let copies = |pid: i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten();
            let targets = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            targets.filter(|target| *target == path).count()
        };
        // Until it has its name, a courier looks like the shim.
        until("no copy", || {
            [run.relay(), run.shim(), run.monitor()].map(copies) == [0, 0, 0]
        });
        assert_eq!(copies(server), by_server, "{options:?}");
        // What closes the file for the courier has its name, too, and ends at once.
        until("one copy of the only courier", || {
            let couriers = run.named("tree-courier");
            couriers.len() + by_server == 2 && couriers.iter().all(|one| copies(one.pid) == 1)
        });
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
    }
}

#[test]
fn a_terminal_that_is_read_slowly_gets_all_of_the_output() {
    for shared_flag in [false, true] {
        let (reader, stdout) = special::pty();
        if shared_flag {
            sys::set_nonblocking(stdout.as_raw_fd());
        }
        // A terminal changes no zero byte.
        let script = "head -c 200000 /dev/zero";
        let talk = Talk::start(&Wrap::Treaper(&OPTIONS), stdout, script, None);
        let host = std::thread::spawn(move || {
            let (mut reader, mut count) = (File::from(reader), 0);
            // After the last byte it is an error.
            while let Ok(more) = reader.read(&mut [0; 2048]) {
                count += more;
                sys::pause_for(Duration::from_millis(120));
            }
            count
        });
        let Talk { mut run, stderr } = talk;
        let exit = run.wait_clean();
        let stderr = fs::read_to_string(stderr).unwrap();
        assert_eq!(exit.code(), Some(0), "{shared_flag}: {stderr}");
        assert_eq!(host.join().unwrap(), 200_000, "{shared_flag}: {stderr}");
    }
}

/// Also if the server itself has ended before the stop, and if that end was the reason.
#[test]
fn after_a_stop_the_relay_gives_up_on_a_host_that_reads_nothing() {
    let floods = "yes & exit 0";
    let deaf = "trap '' TERM; yes & exit 0";
    for (options, script) in [
        (&["--until=tree"][..], floods),
        (&["--until=tree", "--no-guard"], floods),
        (&["--until=tree", "--kill-mode=mixed"], floods),
        (&["--grace=6s"], deaf),
    ] {
        let options = [&OPTIONS[..], options].concat();
        let (_reader, stdout) = sys::pipe().unwrap();
        let mut talk = Talk::start(&Wrap::Treaper(&options), stdout.into(), script, None);
        until("a flood", || !talk.run.named("yes").is_empty());
        until("the end of the server", || talk.run.named("sh").is_empty());
        common::until_it_rests(talk.run.named("yes")[0].pid);
        talk.run.signal(libc::SIGTERM);
        talk.run.wait_clean();
        assert!(
            talk.stderr().contains("output is lost"),
            "{options:?} {}",
            talk.stderr()
        );
    }
}

/// The server ends by itself in a drain, and leaves a process behind. The host pauses for longer than
/// the relay waits after a stop.
#[test]
fn the_output_of_a_server_that_exits_in_a_drain_arrives_however_late_it_is_read() {
    // More than one pipe holds, and less than two, as the relay may have taken little from the second one.
    let script = "cat >/dev/null; head -c 100000 /dev/zero; sleep 1000 & exit 0";
    let (mut reader, stdout) = sys::pipe().unwrap();
    let mut talk = Talk::start(&Wrap::Treaper(&OPTIONS), stdout.into(), script, None);
    until("the server", || !talk.run.named("cat").is_empty());
    // An earlier end would be that of a complete input.
    common::first_second_over();
    talk.run.close_stdin();
    until("the end of the server", || talk.run.named("sh").is_empty());
    // That the relay does not give up, as it would after 5 s, is no event.
    std::thread::sleep(Duration::from_secs(6));
    let mut output = Vec::new();
    reader.read_to_end(&mut output).unwrap();
    assert_eq!(talk.run.wait_clean().code(), Some(0), "{}", talk.stderr());
    assert_eq!(output.len(), 100_000, "{}", talk.stderr());
}

/// Nobody reads the output, so the relay gives up some seconds after the end of the tree.
#[test]
fn treaper_ends_by_the_signal_of_the_server_only_after_the_relay() {
    let (_reader, stdout) = sys::pipe().unwrap();
    let scene = Scene::new().stdin_pipe().no_capture();
    let scene = scene.with(|command| {
        command.stdout(stdout).stderr(std::process::Stdio::null());
    });
    // As the main process of a unit, treaper ends by the signal that has ended the server.
    let unit = ["sh", "-c", "SYSTEMD_EXEC_PID=$$ exec \"$@\"", "sh"];
    let options = [&OPTIONS[..], &["--no-guard"]].concat();
    let command = Wrap::Treaper(&options).command(&["yes"]);
    let words: Vec<_> = unit.map(str::to_owned).into_iter().chain(command).collect();
    let mut run = scene.start(&words);
    until("a flood", || !run.named("yes").is_empty());
    common::until_it_rests(run.named("yes")[0].pid);
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().signal(), Some(libc::SIGTERM));
}
