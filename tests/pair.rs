//! The pair: if the shim or the monitor is killed or suspended, the tree is still stopped.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::AsFd;

use common::proc::{self, Process};
use common::{
    ACTOR, Run, Scene, TREAPER, Wrap, held, hold, is_quiet, skip, sys, until, until_state,
};
use treaper::pair::link::{self, Link};
use treaper::sys::arrival::{Arrival, Origin};
use treaper::sys::signal::Signal;
use treaper::sys::{fd, pid};

/// All of its processes ignore SIGTERM.
const STUBBORN: &str = "server:ignore=TERM[worker*2:setsid:ignore=TERM,deep:daemon:ignore=TERM[\
                        leaf:stopped]]";
const QUICK: Wrap = Wrap::Treaper(&["--grace", "200ms"]);
const PIDNS: Wrap = Wrap::Treaper(&["--grace", "200ms", "--contain=pidns"]);
const ALONE: Wrap = Wrap::Treaper(&["--grace", "200ms", "--no-guard"]);

fn ready(run: &mut Run) {
    for name in ["server", "deep", "leaf"] {
        run.log.ready(name);
    }
    run.log.wait_for(2, "worker", "ready");
}

fn direct(wrap: Wrap) -> Run {
    let mut run = Scene::new().start(&wrap.tree(STUBBORN));
    ready(&mut run);
    run
}

/// Below a host with a process group of its own. Only the pidfd and the parent-death signal report its end.
fn hosted(wrap: Wrap) -> Run {
    let host = [ACTOR, "host", "--stdin", "null", "--own-group", "--"].map(str::to_owned);
    let mut run = Scene::new().start(&[&host[..], &wrap.tree(STUBBORN)].concat());
    ready(&mut run);
    run.log.wait("host", "spawned");
    run
}

#[test]
fn a_killed_shim_leaves_nothing() {
    let mut run = direct(QUICK);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait_empty().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_killed_monitor_leaves_nothing_and_the_shim_exits_with_the_servers_status() {
    let mut run = direct(QUICK);
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
}

/// The monitor is held where it looks for further children after it has reaped the server.
#[test]
fn the_status_is_known_if_the_monitor_is_killed_after_it_has_reaped_the_server() {
    let mut run = Scene::new().start(&QUICK.tree("server:on=USR1/7[worker]"));
    let server = run.log.ready("server");
    run.log.ready("worker");
    let monitor = run.monitor();
    until("a monitor that waits", || is_quiet(monitor));
    let (pid, call) = (monitor.to_string(), libc::SYS_waitid.to_string());
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &pid, &call, "2"]);
    until("a tracer", || {
        !tracer.log.all("tracer", "attached").is_empty()
    });
    sys::kill(server, libc::SIGUSR1).unwrap();
    held(&mut tracer);
    until("a reaped server", || proc::state(server) == '-');
    sys::kill(monitor, libc::SIGKILL).unwrap();
    drop(tracer);
    assert_eq!(run.wait_clean().code(), Some(7), "{}", run.stderr());
}

/// Until the tracer has seen the end of the monitor, the shim does not, but the server is its child.
#[test]
fn the_status_is_known_if_a_tracer_holds_the_killed_monitor_back() {
    let mut run = Scene::new().start(&QUICK.tree("server:on=TERM/3"));
    let server = run.log.ready("server");
    let monitor = run.monitor();
    let tracer = hold(monitor, libc::SYS_ppoll);
    sys::kill(monitor, libc::SIGKILL).unwrap();
    until("a reaped server", || proc::state(server) == '-');
    drop(tracer);
    assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
}

/// The shim, which has a child from before treaper, does not take the tree for such children.
#[test]
fn nothing_is_left_if_a_tracer_holds_the_killed_monitor_back() {
    let wrap = Wrap::Treaper(&["--grace", "200ms"]);
    let mut words = wrap.tree("server:ignore=TERM[worker:ignore=TERM]");
    let script = "exec 3<&0 </dev/null; cat <&3 >/dev/null & exec 3<&-; exec \"$@\"";
    words.splice(0..0, ["sh", "-c", script, "sh"].map(str::to_owned));
    let mut run = Scene::new().stdin_pipe().start(&words);
    let server = run.log.ready("server");
    run.log.ready("worker");
    let (main, monitor) = (run.main, run.monitor());
    let tracer = hold(monitor, libc::SYS_ppoll);
    sys::kill(monitor, libc::SIGKILL).unwrap();
    until("a new parent", || {
        Process::read(server).unwrap().ppid == main
    });
    run.signal(libc::SIGWINCH);
    until("a shim that has looked", || is_quiet(main));
    drop(tracer);
    assert_eq!(run.wait().code(), Some(137), "{}", run.stderr());
    assert!(run.named("actor").is_empty());
    run.close_stdin();
    run.wait_empty();
}

#[test]
fn control_one_process_alone_leaks_when_it_is_killed() {
    let mut run = direct(ALONE);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 5);
    let mut run = direct(Wrap::Bare);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 4);
}

#[test]
fn a_server_whose_monitor_is_killed_gets_the_stop_signal_and_its_grace() {
    let wrap = Wrap::Treaper(&["--grace", "20s"]);
    for kill_shim in [true, false] {
        let mut run = Scene::new().start(&wrap.tree("server:on=TERM/3:slow=300"));
        run.log.ready("server");
        let victim = if kill_shim { run.main } else { run.monitor() };
        sys::kill(victim, libc::SIGKILL).unwrap();
        run.wait_empty();
        run.log.wait("server", "leaving");
        assert_eq!(
            run.log.all("server", "signal").len(),
            1,
            "signalled once: {:?}",
            run.log.lines
        );
    }
}

#[test]
fn a_server_gets_the_stop_signal_when_both_are_killed_at_once() {
    let mut run = Scene::new().start(&QUICK.tree("server:on=TERM/3"));
    run.log.ready("server");
    let monitor = run.monitor();
    sys::kill(run.main, libc::SIGSTOP).unwrap();
    sys::kill(monitor, libc::SIGSTOP).unwrap();
    sys::kill(monitor, libc::SIGKILL).unwrap();
    // It may be gone: the end of the monitor wakes it, and it may have seen the end of the server.
    let _ = sys::kill(run.main, libc::SIGKILL);
    run.log.wait("server", "leaving");
    run.wait_empty();
}

#[test]
fn a_suspended_shim_does_not_hide_the_death_of_the_host() {
    let mut run = hosted(QUICK);
    sys::kill(run.shim(), libc::SIGSTOP).unwrap();
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

#[test]
fn a_suspended_monitor_does_not_hide_the_death_of_the_host() {
    let mut run = hosted(QUICK);
    sys::kill(run.monitor(), libc::SIGSTOP).unwrap();
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

#[test]
fn a_suspended_monitor_does_not_delay_a_terminated_shim() {
    let mut run = direct(QUICK);
    sys::kill(run.monitor(), libc::SIGSTOP).unwrap();
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
}

#[test]
fn a_suspended_monitor_is_resumed_when_the_shim_is_killed() {
    let mut run = direct(QUICK);
    sys::kill(run.monitor(), libc::SIGSTOP).unwrap();
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

#[test]
fn control_without_treaper_the_tree_outlives_its_host() {
    let mut run = hosted(Wrap::Bare);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 5);
}

#[test]
fn sigkill_to_the_group_of_the_host_takes_only_the_shim() {
    let mut run = hosted(QUICK);
    let (shim, monitor) = (run.shim(), run.monitor());
    assert_eq!(sys::pgid(shim), run.main);
    assert_ne!(sys::pgid(monitor), run.main);
    sys::kill_group(run.main, libc::SIGKILL).unwrap();
    run.wait_empty();
}

#[test]
fn the_monitor_is_named_by_itself_and_has_its_own_group() {
    let mut run = direct(QUICK);
    let (shim, monitor) = (run.main, run.monitor());
    let shim = Process::read(shim).unwrap();
    let monitor = Process::read(monitor).unwrap();
    assert_eq!(
        (shim.comm.as_str(), monitor.comm.as_str()),
        ("treaper", "tree-monitor")
    );
    assert_eq!(monitor.ppid, shim.pid);
    assert_eq!(monitor.pgid, monitor.pid);
    assert_eq!(monitor.sid, shim.sid);
    let server = Process::read(run.log.ready("server")).unwrap();
    assert_eq!(server.ppid, monitor.pid);
    // It leads no group, and is in one that is neither that of the host nor that of treaper.
    assert!(![server.pid, monitor.pgid, shim.pgid].contains(&server.pgid));
}

#[test]
fn with_no_guard_there_is_one_process() {
    let mut run = direct(ALONE);
    let server = Process::read(run.log.ready("server")).unwrap();
    assert_eq!(server.ppid, run.main);
    assert!(run.named("tree-monitor").is_empty());
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

#[test]
fn the_death_of_one_during_the_stop_changes_nothing() {
    let wrap = Wrap::Treaper(&["--grace", "3s"]);
    for kill_shim in [true, false] {
        let tree = "server:record[worker:ignore=TERM:daemon]";
        let mut run = Scene::new().start(&wrap.tree(tree));
        run.log.ready("server");
        run.log.ready("worker");
        let monitor = run.monitor();
        run.signal(libc::SIGTERM);
        let signalled = run.log.wait("server", "signal");
        assert_eq!(signalled.number("sig"), i64::from(libc::SIGTERM));
        let victim = if kill_shim { run.main } else { monitor };
        sys::kill(victim, libc::SIGKILL).unwrap();
        let before = sys::now_ms();
        run.wait_empty();
        // The grace period may begin again with the other process, but only once.
        assert!(
            sys::now_ms() - before < 15_000,
            "the stop began again and again"
        );
    }
}

#[test]
fn the_host_can_suspend_and_resume_the_shim_like_any_child() {
    let mut run = direct(QUICK);
    run.signal(libc::SIGSTOP);
    let main = run.main;
    until_state(&[main], 'T');
    assert!(proc::descendants(run.arena()).len() >= 7);
    run.signal(libc::SIGCONT);
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// The monitor handles the SIGCONT before the other signal, whose number is higher.
#[test]
fn the_signal_that_resumes_the_monitor_is_not_for_the_server_if_it_is_rewritten() {
    let wrap = Wrap::Treaper(&["--rewrite=CONT:USR1", "--grace=300ms"]);
    let mut run = Scene::new().start(&wrap.tree("server:on=WINCH/5:on=USR1/6"));
    run.log.ready("server");
    let monitor = run.monitor();
    sys::kill(monitor, libc::SIGSTOP).unwrap();
    sys::kill(monitor, libc::SIGWINCH).unwrap();
    assert_eq!(run.wait_clean().code(), Some(5));
}

/// The group of the server is orphaned, since it leads a session.
#[test]
fn without_a_terminal_only_sigstop_suspends_a_server_without_a_handler() {
    for wrap in [Wrap::Treaper(&[]), Wrap::Treaper(&["--no-guard"])] {
        let mut run = Scene::new().start(&wrap.tree("server:on=USR1/5"));
        let server = run.log.ready("server");
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            sys::kill(server, signal).unwrap();
        }
        // A suspended server would not exit.
        run.signal(libc::SIGUSR1);
        assert_eq!(run.wait_clean().code(), Some(5), "{wrap:?}");
    }
    let mut run = Scene::new().start(&Wrap::Treaper(&[]).tree("server"));
    let server = run.log.ready("server");
    sys::kill(server, libc::SIGSTOP).unwrap();
    until_state(&[server], 'T');
}

const STOP_SIGNALS: [i32; 4] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGSTOP];

/// The end is reported by SIGCONT. The kernel removes a pending SIGCONT when a signal that suspends is sent.
#[test]
fn no_signal_that_suspends_hides_the_end_of_the_monitor_from_the_shim() {
    for signal in STOP_SIGNALS {
        let mut run = direct(QUICK);
        let (shim, monitor) = (run.main, run.monitor());
        let tracer = hold(shim, libc::SYS_rt_sigtimedwait);
        sys::kill(monitor, libc::SIGKILL).unwrap();
        until("a dead monitor", || {
            Process::read(monitor).is_some_and(|p| p.state == 'Z')
        });
        run.signal(signal);
        drop(tracer);
        if signal == libc::SIGSTOP {
            run.signal(libc::SIGCONT);
        }
        assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
    }
}

/// Without pidfds only `getppid()` shows it.
#[test]
fn no_signal_that_suspends_hides_the_end_of_the_parent_from_the_loop() {
    let without = [ACTOR, "faults", "pidfd_open=ENOSYS", "--"].map(str::to_owned);
    for signal in STOP_SIGNALS {
        let mut run = Scene::new().start(&[&without[..], &QUICK.tree(STUBBORN)].concat());
        ready(&mut run);
        let monitor = run.monitor();
        let tracer = hold(monitor, libc::SYS_ppoll);
        sys::kill(run.shim(), libc::SIGKILL).unwrap();
        until("a monitor without its shim", || {
            Process::read(monitor).is_some_and(|p| p.ppid != run.main)
        });
        sys::kill(monitor, signal).unwrap();
        drop(tracer);
        if signal == libc::SIGSTOP {
            sys::kill(monitor, libc::SIGCONT).unwrap();
        }
        run.wait_empty();
    }
}

fn is_suspended(pid: i32) -> bool {
    proc::state(pid) == 'T'
}

/// Suspends both, in this order. Each would resume the other if it were not suspended itself.
fn suspend(first: i32, second: i32) {
    sys::kill(first, libc::SIGSTOP).unwrap();
    sys::kill(second, libc::SIGSTOP).unwrap();
    // The shim may have resumed the monitor in between.
    until("both suspended", || {
        for pid in [first, second] {
            if !is_suspended(pid) {
                sys::kill(pid, libc::SIGSTOP).unwrap();
            }
        }
        is_suspended(first) && is_suspended(second)
    });
}

#[test]
fn a_signal_that_resumes_one_of_the_pair_resumes_the_other() {
    for shim_first in [true, false] {
        for resume_shim in [true, false] {
            for wrap in [QUICK, PIDNS] {
                if matches!(wrap, Wrap::Treaper([.., "--contain=pidns"])) && !sys::is_root() {
                    skip("pidns without root depends on the machine");
                    continue;
                }
                let mut run = direct(wrap);
                let (shim, monitor) = (run.main, run.monitor());
                if shim_first {
                    suspend(shim, monitor);
                } else {
                    suspend(monitor, shim);
                }
                let resumed = if resume_shim { shim } else { monitor };
                sys::kill(resumed, libc::SIGCONT).unwrap();
                until("both resumed", || {
                    !is_suspended(shim) && !is_suspended(monitor)
                });
                // Both do their work.
                let server = run.named("server").remove(0);
                sys::kill(server.pid, libc::SIGKILL).unwrap();
                assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
            }
        }
    }
}

#[test]
fn the_death_of_the_host_resumes_both_of_the_pair() {
    let mut run = hosted(QUICK);
    suspend(run.shim(), run.monitor());
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

#[test]
fn a_suspended_shim_does_not_hide_the_end_of_the_server() {
    let mut run = direct(QUICK);
    let server = run.log.ready("server");
    run.signal(libc::SIGSTOP);
    let main = run.main;
    until_state(&[main], 'T');
    sys::kill(server, libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().code(), Some(128 + libc::SIGKILL));
}

/// A FIFO in the directory of the scene, as a word for a shell. Opening it gives the cue.
fn cue(scene: &Scene) -> String {
    let path = scene.directory().join("cue");
    sys::mkfifo(&path);
    path.to_str().unwrap().to_owned()
}

fn give(cue: &str) {
    drop(std::fs::OpenOptions::new().write(true).open(cue).unwrap());
}

/// `helper & exec treaper ...` makes the helper a child of the shim.
#[test]
fn orphans_of_a_child_from_before_are_not_of_the_tree() {
    let scene = Scene::new();
    let cue = cue(&scene);
    let script = "(read x < $0; setsid sleep 77 & setsid sleep 78 &) & exec \"$@\"";
    let mut words = ["sh", "-c", script, &cue].map(str::to_owned).to_vec();
    words.extend(QUICK.tree(STUBBORN));
    let mut run = scene.start(&words);
    ready(&mut run);
    give(&cue);
    let main = run.main;
    until("two daemons of a helper that is gone", || {
        let left = run.named("sleep");
        let children = proc::children(main);
        left.len() == 2 && left.iter().all(|p| p.ppid == main) && children.len() == 3
    });
    let mut daemons: Vec<i32> = run.named("sleep").iter().map(|p| p.pid).collect();
    // A daemon that has ended is forgotten.
    sys::kill(daemons.pop().unwrap(), libc::SIGKILL).unwrap();
    until("one daemon", || run.named("sleep").len() == 1);
    until("a shim that waits", || is_quiet(main));
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    let exit = run.wait();
    assert_eq!((exit.code(), exit.left), (Some(137), daemons));
}

/// The number of a child from before is free once the shim has reaped it.
#[test]
fn a_process_of_the_tree_with_the_number_of_a_child_from_before_is_stopped() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let scene = Scene::new().pidns();
    let cue = cue(&scene);
    let server = "while [ -d /proc/$H ]; do sleep .01; done; echo $((H - 1)) > \
                  /proc/sys/kernel/ns_last_pid; setsid sleep 77 & echo $! $H; wait";
    // The first process reads the rest of the input, and checks whether there is any.
    let script = "D=$0; export D; sh -c '(read x < $D) & H=$!; export H; echo $H > $D.pid; exec \"$@\"' sh \"$@\"; \
                  [ -d /proc/$(cat $D.pid) ] && echo left || echo gone";
    let mut words = ["sh", "-c", script, &cue].map(str::to_owned).to_vec();
    words.extend(QUICK.command(&["sh", "-c", server]));
    let mut run = scene.start(&words);
    let monitor = run.monitor();
    give(&cue);
    let printed = run.whole_line();
    let numbers: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "the scene shows nothing");
    sys::kill(monitor, libc::SIGKILL).unwrap();
    run.wait_empty();
    assert!(run.stdout().ends_with("gone\n"), "{}", run.stdout());
}

/// The shim remembers the children from before. The monitor is not one of them, also when it has ended.
#[test]
fn a_process_of_the_tree_with_the_number_of_the_monitor_is_stopped() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let scene = Scene::new().pidns();
    let cue = cue(&scene);
    let server = "trap : TERM; echo $PPID > $D.pid; while [ -d /proc/$PPID ]; do sleep .01; done; \
                  echo $((PPID - 1)) > /proc/sys/kernel/ns_last_pid; setsid sleep 77 & \
                  until grep -q sleep /proc/$!/comm; do :; done; echo $! $PPID";
    let script = "D=$0; export D; sh -c '(read x < $D) & exec \"$@\"' sh \"$@\"; \
                  [ -d /proc/$(cat $D.pid) ] && echo left || echo gone";
    let mut words = ["sh", "-c", script, &cue].map(str::to_owned).to_vec();
    words.extend(Wrap::Treaper(&["--grace=60s"]).command(&["sh", "-c", server]));
    let mut run = scene.start(&words);
    let number = format!("{cue}.pid");
    until("a server", || {
        std::fs::read_to_string(&number).is_ok_and(|text| text.ends_with('\n'))
    });
    let (shim, monitor) = (run.shim(), run.monitor());
    // After any signal the shim looks at its children.
    sys::kill(shim, libc::SIGCHLD).unwrap();
    until("a shim that waits", || is_quiet(shim));
    sys::kill(monitor, libc::SIGKILL).unwrap();
    run.wait_empty();
    let printed = run.stdout();
    let lines: Vec<&str> = printed.lines().collect();
    let (child, monitor) = lines[0].split_once(' ').unwrap();
    assert_eq!(child, monitor, "the scene shows nothing");
    assert_eq!(lines[1], "gone", "{printed}");
}

/// The shim signals the server itself, and does not know yet that it has ended.
#[test]
fn a_process_with_the_number_of_a_server_that_has_ended_is_not_signalled() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let scene = Scene::new().pidns();
    let path = scene.directory().join("server");
    // While a process is in the server's session, the number is in use.
    let server = "setsid sh -c 'echo > $S.left; exec sleep 77' & \
                  until [ -s $S.left ]; do sleep .01; done; echo $$ > $S";
    let script = "S=$0; export S; \"$@\" & T=$!; until [ -s $S ]; do sleep .01; done; P=$(cat $S); \
                  while [ -d /proc/$P ]; do sleep .01; done; \
                  echo $((P - 1)) > /proc/sys/kernel/ns_last_pid; sleep 78 & echo $! $P; wait $T";
    let path = path.to_str().unwrap();
    let mut words = ["sh", "-c", script, path].map(str::to_owned).to_vec();
    words.extend(Wrap::Treaper(&["--until=tree"]).command(&["sh", "-c", server]));
    let mut run = scene.start(&words);
    let printed = run.whole_line();
    let (child, number) = printed.trim_end().split_once(' ').unwrap();
    assert_eq!(child, number, "the scene shows nothing");
    let (shim, monitor) = (run.shim(), run.monitor());
    until("two sleeps", || run.named("sleep").len() == 2);
    sys::kill(shim, libc::SIGUSR1).unwrap();
    until("a signal that was taken", || {
        is_quiet(shim) && is_quiet(monitor)
    });
    assert_eq!(run.named("sleep").len(), 2);
    sys::kill(shim, libc::SIGTERM).unwrap();
    run.wait_empty();
}

/// A server that has exited with 3. A process of the tree has its number now. The monitor has adopted that process, so the
/// number belongs to a child of the monitor again.
fn orphan_with_the_number_of_the_server() -> Run {
    let scene = Scene::new().pidns();
    let left = scene.directory().join("left");
    // While a process is in the server's session, the number is in use.
    let server = "export P=$$; setsid sh -c 'echo > $S; while [ -d /proc/$P ]; do sleep .01; done; \
                  (echo $((P - 1)) > /proc/sys/kernel/ns_last_pid; sleep 78 & echo $! $P); exec sleep 77' & \
                  until [ -s $S ]; do sleep .01; done; exit 3";
    // As PID 1 treaper would have no shim.
    let script = "S=$0; export S; \"$@\"; exit $?";
    let mut words = ["sh", "-c", script, left.to_str().unwrap()]
        .map(str::to_owned)
        .to_vec();
    words.extend(Wrap::Treaper(&["--until=tree"]).command(&["sh", "-c", server]));
    let mut run = scene.start(&words);
    let printed = run.whole_line();
    let (child, number) = printed.trim_end().split_once(' ').unwrap();
    assert_eq!(child, number, "the scene shows nothing");
    until("two orphans", || quiet_orphans(&run) == 2);
    run
}

fn quiet_orphans(run: &Run) -> usize {
    let monitor = run.monitor();
    let sleeps = run.named("sleep").into_iter();
    sleeps
        .filter(|p| p.ppid == monitor && is_quiet(p.pid))
        .count()
}

#[test]
fn an_orphan_of_the_tree_with_the_number_of_the_server_is_not_signalled() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let mut run = orphan_with_the_number_of_the_server();
    let (shim, monitor) = (run.shim(), run.monitor());
    sys::kill(shim, libc::SIGUSR1).unwrap();
    until("a signal that was taken", || {
        is_quiet(shim) && is_quiet(monitor)
    });
    // A process that gets the signal ends.
    assert_eq!(quiet_orphans(&run), 2);
    sys::kill(shim, libc::SIGTERM).unwrap();
    run.wait_empty();
}

#[test]
fn without_the_monitor_such_an_orphan_is_not_taken_for_the_server() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let mut run = orphan_with_the_number_of_the_server();
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().code(), Some(3), "{}", run.stderr());
}

/// The orphans of a child from before are adopted by the shim. One of them may get the number of a server that has ended.
#[test]
fn an_adopted_process_with_the_number_of_the_server_does_not_change_the_exit_status() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let scene = Scene::new().pidns();
    let path = scene.directory().join("server");
    let server = "setsid sh -c 'echo > $S.left; while [ ! -e $S.end ]; do sleep .05; done' & \
                  until [ -s $S.left ]; do sleep .01; done; echo $$ > $S; exit 3";
    // As PID 1 treaper would have no shim.
    let script = "S=$0; export S; mkfifo $S.fifo; sh -c '\
                  (until [ -s $S ]; do sleep .01; done; P=$(cat $S); while [ -d /proc/$P ]; do sleep .01; done; \
                  echo $((P - 1)) > /proc/sys/kernel/ns_last_pid; cat $S.fifo & echo $! $P) & exec \"$@\"' sh \"$@\"; \
                  exit $?";
    let name = path.to_str().unwrap();
    let mut words = ["sh", "-c", script, name].map(str::to_owned).to_vec();
    words.extend(Wrap::Treaper(&["--until=tree"]).command(&["sh", "-c", server]));
    let mut run = scene.start(&words);
    let printed = run.whole_line();
    let (child, number) = printed.trim_end().split_once(' ').unwrap();
    assert_eq!(child, number, "the scene shows nothing");
    // It is adopted, and then it ends.
    let shim = run.shim();
    until("an orphan", || {
        run.named("cat").iter().any(|cat| cat.ppid == shim)
    });
    std::fs::write(format!("{name}.fifo"), "").unwrap();
    until("its end", || run.named("cat").is_empty());
    std::fs::write(format!("{name}.end"), "").unwrap();
    assert_eq!(run.wait_clean().code(), Some(3));
}

/// The monitor resumes the shim by SIGCONT, which must not be forwarded to the server.
#[test]
fn a_server_that_is_stopped_gets_the_stop_signal_and_no_other() {
    for options in [&["--grace=2s"][..], &["--grace=2s", "--no-guard"]] {
        let mut run = Scene::new().start(&Wrap::Treaper(options).tree("server:record"));
        run.log.ready("server");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let signalled = run.log.all("server", "signal");
        let signalled: Vec<i64> = signalled.iter().map(|line| line.number("sig")).collect();
        assert_eq!(signalled, [i64::from(libc::SIGTERM)], "{options:?}");
    }
}

/// The kernel reports the death of a parent by SIGCONT, which must not be forwarded either. Another signal may arrive
/// before it.
#[test]
fn a_server_that_is_stopped_after_the_death_of_a_parent_gets_the_stop_signal_and_no_other() {
    let scene = Scene::new();
    let inbox = format!(
        "--inject=unix:{}",
        scene.directory().join("inbox").display()
    );
    let relay = ["--grace", "2s", &inbox];
    let patient = Wrap::Treaper(&["--grace", "2s"]);
    let alone = Wrap::Treaper(&["--grace", "2s", "--no-guard"]);
    let pidns = Wrap::Treaper(&["--grace", "2s", "--contain=pidns"]);
    let host = |stdin| [ACTOR, "host", "--stdin", stdin, "--"].map(str::to_owned);
    let (host, with_pipe) = (host("null"), host("pipe"));
    let cases = [patient, alone, pidns].map(|wrap| (wrap, &host[..]));
    let others = [(patient, &[][..]), (Wrap::Treaper(&relay), &with_pipe)];
    for (wrap, host) in cases.into_iter().chain(others) {
        for first in [None, Some(libc::SIGCHLD)] {
            let mut run = Scene::new().start(&[host, &wrap.tree("server:record")].concat());
            run.log.ready("server");
            if !host.is_empty() {
                run.log.wait("host", "spawned");
            }
            if let Some(first) = first {
                let child = match wrap {
                    Wrap::Treaper(options) if options.contains(&&*inbox) => run.relay(),
                    // The shim resumes a suspended monitor.
                    _ if host.is_empty() => continue,
                    _ => run.shim(),
                };
                sys::kill(child, libc::SIGSTOP).unwrap();
                until_state(&[child], 'T');
                sys::kill(child, first).unwrap();
            }
            run.signal(libc::SIGKILL);
            run.wait_empty();
            assert_eq!(
                run.received("server"),
                [libc::SIGTERM],
                "{wrap:?} {host:?} {first:?}"
            );
        }
    }
}

/// The end of the shim is known by its pidfd, before its number can mean another process.
#[test]
fn a_process_with_the_number_of_the_shim_that_has_ended_is_not_resumed() {
    if !sys::is_root() {
        return skip("only root can set the next process number");
    }
    let script = "\"$@\" & T=$!; wait $T; echo $((T - 1)) > /proc/sys/kernel/ns_last_pid; \
                  sleep 78 & echo $! $T; exec sleep 79";
    let mut words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    words.extend(QUICK.tree("server"));
    let mut run = Scene::new().pidns().start(&words);
    let server = run.log.ready("server");
    assert!(server > 0);
    let (shim, monitor) = (run.shim(), run.monitor());
    let tracer = hold(monitor, libc::SYS_ppoll);
    sys::kill(shim, libc::SIGKILL).unwrap();
    let printed = run.whole_line();
    let (child, number) = printed.trim_end().split_once(' ').unwrap();
    assert_eq!(child, number, "the scene shows nothing");
    until("two sleeps", || run.named("sleep").len() == 2);
    let other = run.named("sleep").into_iter().find(|p| p.pid != run.main);
    let other = other.unwrap().pid;
    sys::kill(other, libc::SIGSTOP).unwrap();
    until_state(&[other], 'T');
    drop(tracer);
    until("the end of the tree", || {
        run.named("tree-monitor").is_empty()
    });
    assert!(is_suspended(other));
}

#[test]
fn the_monitor_sees_the_end_of_the_shim() {
    let parent = |pid| Link::Parent(pid, None);
    assert!(!parent(pid::parent()).is_gone());
    // Another process has adopted the monitor.
    assert!(parent(pid::own()).is_gone());
    assert!(Link::Gone.is_gone());
    let (heard, rung) = fd::resuming_pipe().unwrap();
    let bell = Link::Bell(rung);
    assert!(!bell.is_gone());
    assert!(
        !fd::empty(heard.as_fd(), &mut |_| {}),
        "the monitor still has it"
    );
    drop(heard);
    assert!(bell.is_gone());
}

/// All others may be meant for the server.
#[test]
fn only_the_sigcont_of_a_bell_or_of_a_child_is_from_the_monitor() {
    for (signal, origin, expected) in [
        (Signal::CONT, Origin::ChildOrDescriptor, true),
        (Signal::CONT, Origin::Kernel, false),
        (Signal::CONT, Origin::Outside, false),
        (Signal::TERM, Origin::ChildOrDescriptor, false),
    ] {
        let arrival = Arrival {
            signal,
            origin,
            value: None,
        };
        assert_eq!(link::is_from_monitor(&arrival), expected, "{arrival:?}");
    }
}

/// The monitor makes its process group before it asks for the death of the shim.
#[test]
fn a_monitor_whose_shim_was_killed_at_once_starts_no_server() {
    if std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_err()
    {
        return skip("needs strace");
    }
    let slow = "inject=setpgid:delay_enter=1000000";
    let words = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        slow,
        TREAPER,
        "cat",
    ];
    let mut run = Scene::new().stdin_pipe().start(&words);
    let pair = || run.named("treaper");
    until("a monitor", || pair().len() == 2);
    let shim = pair().into_iter().find(|one| one.ppid == run.main).unwrap();
    shim.kill();
    run.wait_empty();
    let printed = run.stderr();
    assert!(
        printed.contains("the shim is gone, so COMMAND was not started"),
        "{printed}"
    );
}
