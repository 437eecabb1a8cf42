//! A monitor that is held, but not killed: the shim does not wait for it for ever.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::family::{child, kill, live, number_next, play};
use common::place::Place;
use common::proc::{Process, state};
use common::scene::{Directory, copy_program};
use common::{
    ACTOR, Run, Scene, TREAPER, Wrap, first_second_of, held, skip, special, sys, unique, until,
    until_state,
};
use treaper::pair::bound::Bound;
use treaper::plan::event::Trigger;
use treaper::plan::machine::{Plan, State};
use treaper::plan::policy::{KillMode, Policy, Until};
use treaper::sys::pid::Pid;

/// The pair, also with a monitor that is the first process of a PID namespace.
fn wraps() -> Vec<Wrap<'static>> {
    let pair = Wrap::Treaper(&["--grace=2s"]);
    if !sys::is_root() {
        skip("pidns without root depends on the machine");
        return vec![pair];
    }
    vec![pair, Wrap::Treaper(&["--contain=pidns", "--grace=2s"])]
}

/// A debugger, or a process of the tree, holds it. It dies by SIGKILL, and its tracer keeps the
/// zombie.
#[test]
fn a_monitor_that_a_tracer_holds_is_killed_and_the_tree_is_stopped() {
    for wrap in wraps() {
        let tree = "server:ignore=TERM[worker:setsid:ignore=TERM]";
        let mut run = Scene::new()
            .start(&wrap.tree(tree))
            .ready(&["server", "worker"]);
        let monitor = run.monitor();
        special::ptrace_stop(monitor).unwrap();
        until("a monitor that is held", || state(monitor) == 't');
        // It has nothing to do.
        assert!(!run.ends_within(Duration::from_secs(6)), "{wrap:?}");
        run.signal(libc::SIGTERM);
        is_stopped_without(&mut run, monitor);
        sys::wait_for(monitor);
    }
}

/// The shim kills the monitor, which is held, and stops the tree. A tracer may keep the monitor as a zombie.
fn is_stopped_without(run: &mut Run, monitor: i32) {
    let exit = run.wait();
    let said = run.stderr();
    assert!(said.contains("was kept from running"), "{exit:?} {said}");
    until("the end of the tree", || {
        run.survivors().iter().all(|process| process.pid == monitor)
    });
}

/// It outlives SIGTERM, and so does a process in a session of its own.
const DEAF: &str = "server:record[worker:setsid:record]";

#[test]
fn without_treaper_a_deaf_tree_is_not_stopped() {
    let mut run = Scene::new().start(&Wrap::Bare.tree(DEAF));
    for name in ["server", "worker"] {
        let pid = run.log.ready(name);
        sys::kill(pid, libc::SIGTERM).unwrap();
        run.log.wait(name, "signal");
    }
    assert!(!run.ends_within(Duration::from_secs(2)));
    assert_eq!(run.survivors().len(), 2);
}

#[test]
fn a_monitor_that_is_held_in_the_middle_of_a_stop_is_killed_and_the_tree_is_stopped() {
    for wrap in wraps() {
        let mut run = Scene::new()
            .start(&wrap.tree(DEAF))
            .ready(&["server", "worker"]);
        let monitor = run.monitor();
        run.signal(libc::SIGTERM);
        run.log.wait("server", "signal");
        special::ptrace_stop(monitor).unwrap();
        is_stopped_without(&mut run, monitor);
        sys::wait_for(monitor);
    }
}

/// The end of a drain may be far away, and an end that is asked for does not wait for it.
#[test]
fn a_monitor_that_is_held_in_a_drain_is_killed_when_an_end_is_asked_for() {
    for level in ["--contain=group", "--contain=pidns"] {
        if level == "--contain=pidns" && !sys::is_root() {
            skip("pidns without root depends on the machine");
            continue;
        }
        let scene = Scene::new().stdin_pipe();
        let path = scene.directory().join("report");
        let report = ["--report", path.to_str().unwrap()];
        let options = [&["-v", "--drain=60s", "--grace=2s", level], &report[..]].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).tree(DEAF));
        run = run.ready(&["server", "worker"]);
        first_second_of(run.monitor());
        run.close_stdin();
        until("a drain", || run.stderr().contains("draining"));
        let monitor = run.monitor();
        special::ptrace_stop(monitor).unwrap();
        until_state(&[monitor], 't');
        let asked = Instant::now();
        run.signal(libc::SIGTERM);
        is_stopped_without(&mut run, monitor);
        // Much less than the drain.
        assert!(asked.elapsed() < Duration::from_secs(45), "{level}");
        sys::wait_for(monitor);
        let report = std::fs::read_to_string(&path).unwrap();
        let trigger = "\"trigger\":\"terminate\"";
        assert!(report.contains(trigger), "{level}: {report}");
    }
}

/// Killed, but held right before its end. When it is dropped, it ends.
struct Undead(i32);

impl Undead {
    fn make(pid: i32) -> Self {
        special::ptrace_stop_also_at_its_end(pid).unwrap();
        sys::wait_for(pid);
        Self(pid)
    }
}

impl Drop for Undead {
    fn drop(&mut self) {
        special::let_go(self.0);
    }
}

/// Its children do not become those of the shim, and the kernel does not send them their parent-death signal.
#[test]
fn the_server_of_a_monitor_that_cannot_end_has_the_whole_grace_period() {
    let wrap = Wrap::Treaper(&["--grace=30s"]);
    let mut run = Scene::new().start(&wrap.tree("server:on=TERM/3:slow=4000"));
    let (server, monitor) = (run.log.ready("server"), run.monitor());
    let undead = Undead::make(monitor);
    run.signal(libc::SIGTERM);
    run.log.wait("server", "signal");
    assert_eq!(Process::read(server).unwrap().ppid, monitor);
    until("the end of the server", || state(server) == 'Z');
    assert_eq!(run.log.all("server", "leaving").len(), 1);
    drop(undead);
    assert_eq!(run.wait_empty().code(), Some(3));
    let said = run.stderr();
    assert!(said.contains("was kept from running"), "{said}");
}

#[test]
fn a_process_with_the_number_of_a_server_that_was_reaped_is_not_killed() {
    play("scene_recycled_server");
}

/// The monitor has reaped the server, and is held before it can say so.
#[test]
#[ignore = "a scene"]
fn scene_recycled_server() {
    let wrap = Wrap::Treaper(&["--grace=5s"]);
    let mut run = Scene::new().start(&wrap.tree("server:record:on=USR1/0"));
    let (server, monitor) = (run.log.ready("server"), run.monitor());
    run.signal(libc::SIGTERM);
    run.log.wait("server", "signal");
    special::ptrace_stop(monitor).unwrap();
    sys::kill(server, libc::SIGUSR1).unwrap();
    special::go_on_until(monitor, || Process::read(server).is_none()).unwrap();
    let mut stranger = 0;
    until("another process with its number", || {
        number_next(server);
        stranger = child(None, || {
            sys::setsid();
            live();
        });
        let has_it = stranger == server;
        if !has_it {
            kill(stranger);
            sys::wait_for(stranger);
        }
        has_it
    });
    is_stopped_without(&mut run, monitor);
    assert!(Process::read(stranger).unwrap().is_alive());
    kill(stranger);
    assert_eq!(sys::wait_for(stranger), libc::SIGKILL);
    sys::wait_for(monitor);
}

#[test]
fn a_monitor_alone_in_a_frozen_group_is_killed_and_the_tree_is_stopped() {
    for wrap in wraps() {
        for is_frozen in [true, false] {
            let Some(group) = Freezer::make() else {
                return skip("no control group that can be frozen");
            };
            let mut run = Scene::new()
                .start(&wrap.tree(DEAF))
                .ready(&["server", "worker"]);
            let monitor = run.monitor();
            group.write("cgroup.procs", &monitor.to_string()).unwrap();
            if is_frozen {
                group.freeze("1").unwrap();
                until("a frozen group", || group.is_frozen());
                run.signal(libc::SIGTERM);
                is_stopped_without(&mut run, monitor);
            } else {
                run.signal(libc::SIGTERM);
                run.wait_clean();
                let said = run.stderr();
                assert!(!said.contains("kept from running"), "{wrap:?}: {said}");
            }
        }
    }
}

/// Any process may trace those of its user, and so may one of the tree.
#[test]
fn a_monitor_that_a_process_of_the_tree_holds_is_killed_and_the_tree_is_stopped() {
    let server = "trap '' TERM; setsid \"$0\" trace $PPID & while :; do sleep 0.2; done";
    let mut wraps = wraps();
    if sys::is_root() && Place::new().is_some() {
        wraps.push(Wrap::Treaper(&["--contain=cgroup", "--grace=2s"]));
    } else {
        skip("no control group that treaper may make");
    }
    for wrap in wraps {
        let mut run = Scene::new().start(&wrap.command(&["sh", "-c", server, ACTOR]));
        let monitor = run.monitor();
        held(&mut run);
        until_state(&[monitor], 't');
        run.signal(libc::SIGTERM);
        is_stopped_without(&mut run, monitor);
    }
}

/// A memory group (v1) without an OOM killer. It gets memory again, and is removed, when it is dropped.
struct Full(String);

impl Full {
    fn make() -> std::io::Result<Self> {
        let path = format!("/sys/fs/cgroup/memory/treaper-test-{}", unique());
        std::fs::create_dir(&path)?;
        let group = Self(path);
        group.write("memory.limit_in_bytes", "24M")?;
        group.write("memory.oom_control", "1")?;
        Ok(group)
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(format!("{}/{name}", self.0), text)
    }

    fn is_full(&self) -> bool {
        let text = std::fs::read_to_string(format!("{}/memory.oom_control", self.0));
        text.unwrap().contains("under_oom 1")
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = self.write("memory.limit_in_bytes", "-1");
        until("an empty group", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// A copy of treaper of which no page is in memory, as in a container that has just been started.
fn cold_treaper(directory: &Directory) -> String {
    let path = directory.0.join("treaper");
    copy_program(TREAPER, &path);
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether the code of all of treaper's processes but the relay is kept in memory: it is locked, and
/// the process sleeps again, so all of it was read.
fn is_locked(run: &Run, count: usize) -> bool {
    let pair = [run.named("treaper"), run.named("tree-monitor")].concat();
    pair.len() == count
        && pair.iter().all(|process| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid));
            let status = status.unwrap_or_default();
            let locked = status.split_once("VmLck:").map(|(_, rest)| rest.trim());
            let sleeps = || Process::read(process.pid).is_some_and(|now| now.state == 'S');
            locked.is_some_and(|size| !size.starts_with("0 ")) && sleeps()
        })
}

#[test]
fn the_code_is_kept_in_memory_also_if_the_run_begins_with_a_drain() {
    let wraps: [&[&str]; 3] = [&[], &["--no-guard"], &["--stdin=watch", "--drain=1h"]];
    for options in wraps {
        // Stdin has ended before the start.
        let words = ["sh", "-c", ": | \"$@\"; exit", "sh", TREAPER];
        let words = [&words[..], options, &["sleep", "1000"]].concat();
        let mut run = Scene::new().start(&words);
        let count = if options == ["--no-guard"] { 1 } else { 2 };
        until("code that is kept", || is_locked(&run, count));
        sys::kill(run.shim(), libc::SIGTERM).unwrap();
        run.wait_empty();
    }
}

/// How many pages the kernel has given it without reading them. See `minflt` in `proc_pid_stat(5)`.
fn pages(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    fields.nth(7).unwrap().parse().unwrap()
}

/// In a full group, the stop would wait for each.
#[test]
fn in_a_memory_group_the_stop_signal_needs_no_new_page() {
    for (options, count) in [(&["--no-guard"][..], 1), (&[], 2)] {
        let Ok(group) = Full::make() else {
            return skip("no memory group whose OOM killer can be turned off");
        };
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0);
        let options = [&["--kill-mode=tree", "--grace=3s"], options].concat();
        let wrapped = Wrap::Treaper(&options).tree(DEAF);
        let words = ["sh", "-c", &enter, "sh"].map(str::to_owned);
        let words = [&words[..], &wrapped].concat();
        let mut run = Scene::new().start(&words).ready(&["server", "worker"]);
        until("code that is kept", || is_locked(&run, count));
        let pair = [run.named("treaper"), run.named("tree-monitor")].concat();
        let pages = || -> Vec<u64> { pair.iter().map(|process| pages(process.pid)).collect() };
        let before = pages();
        run.signal(libc::SIGTERM);
        run.log.wait("worker", "signal");
        until("a treaper that waits", || is_locked(&run, count));
        assert_eq!(before, pages(), "{options:?}");
        run.wait_empty();
    }
}

/// In such a group treaper walks the tree once, long before a stop. With the delay, the daemon is there by then.
#[test]
fn a_name_that_a_daemon_has_at_the_start_spares_nothing() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let Ok(group) = Full::make() else {
        return skip("no memory group whose OOM killer can be turned off");
    };
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0);
    // strace leaves what executes another program.
    let strace = "strace -f -b execve -qq -o /dev/null -e inject=mlock:delay_enter=500000:when=1";
    let strace: Vec<_> = strace.split(' ').collect();
    let tree = "server:on=TERM/3[keeper:setsid:becomes=other:ignore=TERM]";
    let treaper = [
        TREAPER,
        "--no-guard",
        "--spare=keeper",
        "--grace=1s",
        ACTOR,
        "tree",
        tree,
    ];
    let words = [&["sh", "-c", &enter, "sh"], &strace[..], &treaper].concat();
    let mut run = Scene::new().start(&words).ready(&["server", "keeper"]);
    let keeper = run.log.ready("keeper");
    until("code that is kept", || is_locked(&run, 1));
    sys::kill(keeper, libc::SIGUSR1).unwrap();
    run.log.wait("keeper", "became");
    sys::kill(run.named("treaper")[0].pid, libc::SIGTERM).unwrap();
    assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
}

/// Each page that the stop touches for the first time would have to wait for memory.
#[test]
fn in_a_full_memory_group_the_tree_is_stopped() {
    let wraps: [&[&str]; 5] = [
        &[],
        &["--no-guard"],
        &["--contain=pidns"],
        &["--inject=unix:socket"],
        &["bare"],
    ];
    for server in [
        "read go; trap '' TERM; setsid sleep 1000 & exec tail /dev/zero",
        "read go; trap '' TERM; setsid sleep 1000 & tail /dev/zero; :",
    ] {
        for options in wraps {
            let Ok(group) = Full::make() else {
                return skip("no memory group whose OOM killer can be turned off");
            };
            let directory = Directory::new();
            let treaper = cold_treaper(&directory);
            let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0);
            let is_bare = options == ["bare"];
            let wrap = if is_bare {
                vec![]
            } else {
                vec![&*treaper, "--grace=1s"]
            };
            let options: &[&str] = if is_bare { &[] } else { options };
            let words = ["sh", "-c", &enter, "sh"];
            let words = [&words[..], &wrap, options, &["sh", "-c", server]].concat();
            let place = directory.0.clone();
            let scene = Scene::new().stdin_pipe().with(move |command| {
                command.current_dir(place);
            });
            let mut run = scene.start(&words);
            let count = if options == ["--no-guard"] { 1 } else { 2 };
            until("code that is kept", || is_bare || is_locked(&run, count));
            run.write_stdin(b"go\n");
            until("a full group", || group.is_full());
            run.signal(libc::SIGTERM);
            if is_bare {
                let ended = run.ends_within(Duration::from_secs(2));
                assert!(!ended, "the scene shows nothing");
                assert!(run.survivors().len() >= 2);
            } else {
                run.wait_empty();
            }
        }
    }
}

/// A control group (v2) that can be frozen. It is thawed and removed when it is dropped.
struct Freezer(String);

impl Freezer {
    fn make() -> Option<Self> {
        let mut roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter();
        let root = roots.find(|root| Path::new(root).join("cgroup.controllers").exists())?;
        let path = format!("{root}/treaper-freeze-{}", unique());
        std::fs::create_dir(&path).ok().map(|()| Self(path))
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(format!("{}/{name}", self.0), text)
    }

    fn freeze(&self, text: &str) -> std::io::Result<()> {
        self.write("cgroup.freeze", text)
    }

    fn is_frozen(&self) -> bool {
        let events = std::fs::read_to_string(format!("{}/cgroup.events", self.0));
        events.unwrap().contains("frozen 1")
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = self.freeze("0");
        until("an empty group", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// Both were held. The shim may be the first one to run again.
#[test]
fn after_a_pause_of_all_of_treaper_the_monitor_goes_on() {
    let Some(group) = Freezer::make() else {
        return skip("no control group that can be frozen");
    };
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0);
    let server = "trap '' TERM; echo up; while :; do sleep 0.2; done";
    let words = ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec();
    let command = Wrap::Treaper(&["--grace=1s"]).command(&["sh", "-c", server]);
    let words = [words, command].concat();
    let mut runs: Vec<Run> = (0..8).map(|_| Scene::new().start(&words)).collect();
    for run in &mut runs {
        until("the server", || run.stdout() == "up\n");
        run.signal(libc::SIGTERM);
    }
    group.freeze("1").unwrap();
    // Longer than the grace period, and than a monitor may be late.
    sys::pause_for(Duration::from_secs(8));
    group.freeze("0").unwrap();
    for run in &mut runs {
        assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
        let said = run.stderr();
        assert!(said.contains("had to SIGKILL"), "{said}");
        assert!(!said.contains("kept from running"), "{said}");
    }
}

const POLICY: Policy = Policy {
    drain: Duration::ZERO,
    grace: Duration::ZERO,
    stage: None,
    kill_timeout: Duration::ZERO,
    kill_mode: KillMode::Staged,
    until: Until::Server,
    manager_has_deadline: false,
    at_terminal: false,
};

/// A busy machine is no reason.
#[test]
fn a_process_that_waits_for_the_processor_is_not_held() {
    for (script, is_held) in [("while :; do :; done", false), ("read line", true)] {
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let number = child.id() as i32;
        let state_now = if is_held { 'S' } else { 'R' };
        until("its state", || {
            Process::read(number).is_some_and(|it| it.comm == "sh" && it.state == state_now)
        });
        let pid = Pid::new(number).unwrap();
        let (mut bound, now) = (Bound::default(), Duration::from_secs(9));
        bound.ask(Trigger::Terminate, Duration::ZERO);
        bound.late_at(&Plan::new(POLICY), Duration::ZERO, now);
        let first = bound.is_held(pid, now);
        let next = bound.late_at(&Plan::new(POLICY), Duration::ZERO, now);
        let second = bound.is_held(pid, now);
        // Before what can fail.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!first, "{script}: one look is not enough");
        assert_eq!(next, Some(Duration::from_secs(10)), "a second later");
        assert_eq!(second, is_held, "{script}");
        let found = [now, now].map(|now| bound.is_held(pid, now));
        assert_eq!(found, [false, false], "one that is gone");
    }
}

/// Then it has only to write the report and to wait for the command of `--finally`, and to exit.
#[test]
fn a_monitor_without_a_tree_is_late_some_seconds_after_the_end_or_after_that_command() {
    let second = Duration::from_secs;
    for state in [State::Done, State::Survived] {
        let plan = Plan {
            state,
            ..Plan::new(POLICY)
        };
        let mut bound = Bound::default();
        let mut late_at = |finally, now| bound.late_at(&plan, second(finally), second(now));
        assert_eq!(late_at(0, 9), Some(second(13)));
        assert_eq!(late_at(0, 10), Some(second(13)), "from the first look");
        assert_eq!(late_at(20, 11), Some(second(24)));
    }
}
