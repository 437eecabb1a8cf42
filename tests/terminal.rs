//! On a terminal, job control, interrupts and hang-up are as without treaper.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use common::proc::{self, Process, state};
use common::{ACTOR, Run, Scene, Wrap, held, hold, is_quiet, skip, sys, trace, until, until_state};

const WRAPS: [Wrap; 2] = [
    Wrap::Treaper(&["--grace", "300ms"]),
    Wrap::Treaper(&["--no-guard", "--grace", "300ms"]),
];
const PIDNS: Wrap = Wrap::Treaper(&["--contain=pidns", "--grace", "300ms"]);
/// In a PID namespace a process has another pid for the arena than for itself.
const ALL: [Wrap; 3] = [WRAPS[0], WRAPS[1], PIDNS];

fn start(wrap: Wrap, tree: &str) -> (Run, OwnedFd) {
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&wrap.tree(tree));
    run.log.ready("server");
    (run, master)
}

fn press(master: &OwnedFd, key: u8) {
    File::from(master.try_clone().unwrap())
        .write_all(&[key])
        .unwrap();
}

#[test]
fn the_server_is_in_the_group_of_the_job_and_the_monitor_is_not() {
    let (mut run, _master) = start(WRAPS[0], "server");
    let server = Process::read(run.log.ready("server")).unwrap();
    assert_eq!(server.pgid, run.main);
    // It leaves the session after it has started the server.
    let monitor = run.monitor();
    until("a monitor in a session of its own", || {
        Process::read(monitor).unwrap().sid == monitor
    });
}

/// Otherwise it would lose the terminal. (A leader of a group cannot leave its session, so a shell is the leader.)
#[test]
fn with_no_guard_treaper_stays_in_the_session_of_the_job() {
    let (scene, _master) = Scene::new().terminal();
    let shell = ["sh", "-c", "\"$@\"; exit $?", "sh"].map(str::to_owned);
    let mut run = scene.start(&[&shell[..], &WRAPS[1].tree("server")].concat());
    let (server, treaper) = (run.log.ready("server"), run.shim());
    until("a treaper that waits", || is_quiet(treaper));
    let session_of = |pid| Process::read(pid).unwrap().sid;
    assert_eq!(session_of(treaper), session_of(server));
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_server_once() {
    for wrap in ALL.into_iter().chain([Wrap::Bare]) {
        let (mut run, master) = start(wrap, "server:record");
        press(&master, 3);
        run.log.wait("server", "signal");
        // If a signal comes twice, it has come before the signal of another key.
        press(&master, 28);
        let signalled = run.log.wait_for(2, "server", "signal");
        run.log
            .comes_within(Duration::from_millis(100), "server", "never");
        let told_later = run.log.all("server", "signal");
        let numbers: Vec<_> = told_later.iter().map(|line| line.number("sig")).collect();
        assert_eq!(numbers, [2, 3], "{wrap:?}: {signalled:#?}");
    }
}

/// Each process of treaper is delayed at its start.
#[test]
fn a_key_that_is_pressed_before_the_server_is_there_reaches_it() {
    const STRACE: [&str; 10] = [
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=prctl,signalfd4",
        "-e",
        "inject=prctl:delay_enter=300000",
        "-e",
        "inject=signalfd4:delay_enter=3000000",
    ];
    if std::process::Command::new("strace").output().is_err() {
        return skip("strace is not installed");
    }
    for (wrap, waits) in [
        (WRAPS[0], "treaper"),
        (WRAPS[0], "tree-monitor"),
        (WRAPS[1], "treaper"),
    ] {
        let (scene, master) = Scene::new().terminal();
        let words: Vec<String> = STRACE.map(str::to_owned).to_vec();
        let mut run = scene.start(&[words, wrap.tree("server")].concat());
        // It has blocked all signals, so only the end of its server can end it.
        let blocks_all = |p: &Process| {
            let mask = proc::status(p.pid, "SigBlk").unwrap_or_default();
            mask.starts_with("ffffffff")
        };
        until(waits, || run.named(waits).iter().any(blocks_all));
        press(&master, 3);
        let exit = run.wait_clean();
        assert_eq!(exit.signal(), Some(libc::SIGINT), "{waits}: {wrap:?}");
        assert!(
            run.log.all("server", "ready").is_empty(),
            "{waits}: too late"
        );
    }
}

/// What is pending is not inherited. A key that comes before the kernel makes the monitor, or the server, is for that as
/// well.
#[test]
fn a_key_that_is_pressed_right_before_a_clone_reaches_the_server() {
    // The tracer is no parent of treaper, and does not trace the server.
    const STRACE: [&str; 10] = [
        "strace",
        "-DDD",
        "-f",
        "-bexecve",
        "-o",
        "/dev/null",
        "-e",
        "trace=clone3,clone",
        "-e",
        "inject=clone3,clone:delay_enter=5000000:when=1",
    ];
    if std::process::Command::new("strace").output().is_err() {
        return skip("strace is not installed");
    }
    let clones = |pid: i32| {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let starts = |number: libc::c_long| call.starts_with(&format!("{number} "));
        starts(libc::SYS_clone3) || starts(libc::SYS_clone)
    };
    let play = |wrap: Wrap, parent: &str, key: i32| {
        let (scene, master) = Scene::new().terminal();
        let words: Vec<String> = STRACE.map(str::to_owned).to_vec();
        let mut run = scene.start(&[words, wrap.tree("server")].concat());
        let mut pid = None;
        until("a process that is about to clone", || {
            let named = run.named(parent);
            pid = named.iter().map(|p| p.pid).find(|pid| clones(*pid));
            pid.is_some()
        });
        let (pid, main) = (pid.unwrap(), run.main);
        press(&master, if key == libc::SIGINT { 3 } else { 26 });
        until("a key that is pending", || {
            let pending = proc::status(pid, "ShdPnd").unwrap();
            u64::from_str_radix(&pending, 16).unwrap() & (1 << (key - 1)) != 0
        });
        assert!(clones(pid), "{wrap:?} {parent} {key}: too late");
        // Without its tracer, it goes on at once.
        let tracer = proc::status(pid, "TracerPid").unwrap();
        sys::kill(tracer.parse().unwrap(), libc::SIGKILL).unwrap();
        if key == libc::SIGTSTP {
            until_state(&[main], 'T');
            assert!(run.log.all("server", "ready").is_empty());
            sys::kill_group(main, libc::SIGCONT).unwrap();
            run.log.ready("server");
            press(&master, 3);
        }
        // The tracer is below the arena, too, and ends after what it traced.
        let exit = run.wait_empty();
        assert_eq!(exit.signal(), Some(libc::SIGINT), "{wrap:?} {parent} {key}");
        let ready = !run.log.all("server", "ready").is_empty();
        assert_eq!(ready, key == libc::SIGTSTP, "{wrap:?} {parent}");
    };
    let places = [
        (WRAPS[0], "treaper"),
        (WRAPS[0], "tree-monitor"),
        (WRAPS[1], "treaper"),
        (PIDNS, "treaper"),
        (PIDNS, "tree-monitor"),
    ];
    std::thread::scope(|scope| {
        for (wrap, parent) in places {
            for key in [libc::SIGINT, libc::SIGTSTP] {
                scope.spawn(move || play(wrap, parent, key));
            }
        }
    });
}

#[test]
fn a_server_that_ends_by_the_interrupt_ends_treaper() {
    for wrap in WRAPS {
        let (mut run, master) = start(wrap, "server[worker:ignore=INT+TERM:daemon]");
        run.log.ready("worker");
        press(&master, 3);
        // It ends by the same signal, so that a shell which runs a script ends the script, too.
        assert_eq!(run.wait_clean().signal(), Some(libc::SIGINT), "{wrap:?}");
    }
}

#[test]
fn the_job_is_suspended_and_resumed_as_one() {
    for wrap in ALL.into_iter().chain([Wrap::Bare]) {
        let (mut run, master) = start(wrap, "server");
        let server = run.named("server")[0].pid;
        let main = run.main;
        press(&master, 26);
        until_state(&[main, server], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until_state(&[main, server], 'S');
        // Once more, since it must work more than once.
        press(&master, 26);
        until_state(&[main, server], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        sys::kill(main, libc::SIGTERM).unwrap();
        run.wait_clean();
    }
}

/// The shim resumes the monitor by SIGCONT. That is not for the server, which Ctrl-Z has suspended in the meantime.
#[test]
fn ctrl_z_is_not_undone_when_the_shim_resumes_the_monitor() {
    let (mut run, master) = start(WRAPS[0], "server");
    let (main, monitor) = (run.main, run.monitor());
    let server = run.named("server")[0].pid;
    let shim = hold(main, libc::SYS_rt_sigtimedwait);
    sys::kill(monitor, libc::SIGSTOP).unwrap();
    until_state(&[monitor], 'T');
    press(&master, 26);
    until_state(&[server], 'T');
    drop(shim);
    until_state(&[monitor], 'S');
    until_state(&[main, server], 'T');
    sys::kill_group(main, libc::SIGCONT).unwrap();
    until_state(&[main, server], 'S');
    sys::kill(main, libc::SIGTERM).unwrap();
    run.wait_clean();
}

/// At a terminal, in a job that ignores Ctrl-Z as in a script that has `trap '' TSTP`.
fn start_ignoring_ctrl_z(words: &[String]) -> (Run, OwnedFd) {
    let (scene, master) = Scene::new().terminal();
    let scene = scene.before_exec(|| sys::ignore(libc::SIGTSTP, true));
    (scene.start(words), master)
}

/// A server that resets the signal (an editor, a shell) can be suspended, and
/// so can treaper, which has inherited the same.
#[test]
fn a_server_that_resets_an_ignored_ctrl_z_is_followed() {
    for wrap in WRAPS.into_iter().chain([Wrap::Bare]) {
        let server = ["env", "--default-signal=TSTP", ACTOR, "tree", "server"];
        let (mut run, master) = start_ignoring_ctrl_z(&wrap.command(&server));
        let (main, server) = (run.main, run.log.ready("server"));
        let ignores = || {
            let ignored = proc::status(main, "SigIgn").unwrap();
            u64::from_str_radix(&ignored, 16).unwrap() & (1 << (libc::SIGTSTP - 1)) != 0
        };
        for _ in 0..2 {
            press(&master, 26);
            until_state(&[main, server], 'T');
            sys::kill_group(main, libc::SIGCONT).unwrap();
            until_state(&[main, server], 'S');
        }
        // What treaper has inherited is restored.
        let is_bare = matches!(wrap, Wrap::Bare);
        until("the action from before", || ignores() != is_bare);
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// The control: a server that leaves it ignored is not suspended, and so treaper is not.
#[test]
fn a_ctrl_z_that_all_of_the_job_ignores_suspends_nothing() {
    for wrap in WRAPS.into_iter().chain([Wrap::Bare]) {
        let (mut run, master) = start_ignoring_ctrl_z(&wrap.tree("server:eof=6"));
        run.log.ready("server");
        press(&master, 26);
        press(&master, b'\n');
        press(&master, 4);
        assert_eq!(run.wait_clean().code(), Some(6), "{wrap:?}");
    }
}

/// `/proc` shows such a server as a zombie.
#[test]
fn a_server_whose_main_thread_has_ended_is_suspended_and_resumed() {
    for wrap in ALL {
        let (mut run, master) = start(wrap, "server:mainless");
        let main = run.main;
        let parent = run.named("tree-monitor").pop().map_or(main, |p| p.pid);
        until("a main thread that has ended", || {
            proc::children(parent).iter().all(|p| p.state == 'Z')
        });
        for _ in 0..2 {
            press(&master, 26);
            until_state(&[main], 'T');
            sys::kill_group(main, libc::SIGCONT).unwrap();
            until_state(&[main], 'S');
        }
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// A shell resumes the whole job, so the server gets the shell's SIGCONT before the one that treaper forwards.
#[test]
fn a_late_resumption_does_not_undo_the_next_suspension() {
    let calls = [
        (WRAPS[0], libc::SYS_rt_sigpending),
        (WRAPS[0], libc::SYS_pidfd_send_signal),
        (WRAPS[1], libc::SYS_rt_sigpending),
        (WRAPS[1], libc::SYS_kill),
    ];
    for (wrap, call) in calls {
        let (mut run, master) = start(wrap, "server");
        let (main, server) = (run.main, run.log.ready("server"));
        let mut tracer = trace(main, call);
        sys::kill_group(main, libc::SIGCONT).unwrap();
        held(&mut tracer);
        press(&master, 26);
        until_state(&[server], 'T');
        drop(tracer);
        // By then treaper has sent all its signals.
        until_state(&[main, server], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until("a resumed job", || {
            state(main) != 'T' && state(server) != 'T'
        });
        sys::kill(main, libc::SIGTERM).unwrap();
        run.wait_clean();
    }
}

/// The words that put strace in front of treaper, with faults in these calls. The tracer is no parent of treaper, and does
/// not trace the server.
fn strace(calls: &str, faults: [&str; 2]) -> Option<Vec<String>> {
    std::process::Command::new("strace").output().ok()?;
    let words = ["strace", "-DDD", "-f", "-bexecve", "-o", "/dev/null"].map(str::to_owned);
    let asked = [format!("-etrace={calls}")].into_iter();
    let asked = asked.chain(faults.map(|fault| format!("-einject={fault}")));
    Some(words.into_iter().chain(asked).collect())
}

/// Right after the start the monitor still is in the group of the job, and gets the SIGCONT of a shell, too.
#[test]
fn a_resumption_of_the_whole_job_at_the_start_does_not_undo_the_next_suspension() {
    let faults = [
        "setsid:delay_enter=3000000",
        "ppoll:delay_enter=3000000:when=1",
    ];
    let Some(words) = strace("setsid,ppoll", faults) else {
        return skip("strace is not installed");
    };
    let resumed = |pid| {
        let waiting = proc::status(pid, "ShdPnd").unwrap();
        u64::from_str_radix(&waiting, 16).unwrap() & (1 << (libc::SIGCONT - 1)) != 0
    };
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&[words, WRAPS[0].tree("server")].concat());
    let (main, server) = (run.main, run.log.ready("server"));
    let monitor = run.monitor();
    let session = || Process::read(monitor).unwrap().sid;
    sys::kill_group(main, libc::SIGCONT).unwrap();
    assert!(resumed(monitor) && session() != monitor, "too late");
    until("a monitor in a session of its own", || session() == monitor);
    press(&master, 26);
    until_state(&[server], 'T');
    until("a monitor that waits", || is_quiet(monitor));
    assert_eq!(state(server), 'T');
    sys::kill_group(main, libc::SIGCONT).unwrap();
    until_state(&[server], 'S');
    run.signal(libc::SIGTERM);
    run.wait_empty();
}

/// The shim has passed it on before the monitor leaves the job, and a filter refuses the call that puts it back.
#[test]
fn a_request_to_stop_at_the_start_is_not_lost_if_it_cannot_be_put_back() {
    let faults = ["setsid:delay_enter=3000000", "rt_sigqueueinfo:error=EPERM"];
    let Some(words) = strace("setsid,rt_sigqueueinfo", faults) else {
        return skip("strace is not installed");
    };
    let (scene, master) = Scene::new().terminal();
    let mut run = scene.start(&[words, WRAPS[0].tree("server:on=TERM/3")].concat());
    run.log.ready("server");
    let monitor = run.monitor();
    run.signal(libc::SIGTERM);
    let waiting = || u64::from_str_radix(&proc::status(monitor, "ShdPnd").unwrap(), 16).unwrap();
    until("a signal that waits", || {
        waiting() & (1 << (libc::SIGTERM - 1)) != 0
    });
    assert_ne!(Process::read(monitor).unwrap().sid, monitor, "too late");
    assert_eq!(run.wait_empty().code(), Some(3));
    // Otherwise the shim takes the monitor for one that is held, 5 s later, and says so.
    let mut shown = Vec::new();
    let _ = File::from(master).read_to_end(&mut shown);
    assert_eq!(String::from_utf8_lossy(&shown), "");
}

/// Of two equal signals that wait, the kernel drops the second: that of the shim, while the monitor still has its own.
#[test]
fn a_request_of_the_whole_job_to_stop_at_the_start_is_not_lost() {
    let Some(words) = strace("setsid", ["setsid:delay_enter=3000000"; 2]) else {
        return skip("strace is not installed");
    };
    let (scene, master) = Scene::new().terminal();
    let tree = Wrap::Treaper(&["--grace=100ms"]).tree("server:ignore=TERM");
    let mut run = scene.start(&[words, tree].concat());
    run.log.ready("server");
    let monitor = run.monitor();
    sys::kill_group(run.main, libc::SIGTERM).unwrap();
    assert_ne!(Process::read(monitor).unwrap().sid, monitor, "too late");
    run.wait_empty();
    let mut shown = Vec::new();
    let _ = File::from(master).read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.starts_with("treaper: terminate: had to SIGKILL 1 process"),
        "{shown}"
    );
}

/// The shim is slow: Ctrl-Z comes before it forwards the SIGCONT, and the monitor sees what that does before the shim
/// looks for Ctrl-Z again.
#[test]
fn a_slow_shim_does_not_lose_the_next_suspension() {
    let (mut run, master) = start(WRAPS[0], "server");
    let (main, server) = (run.main, run.log.ready("server"));
    let mut strace = std::process::Command::new("strace");
    let slow = "inject=pidfd_send_signal,rt_sigpending:delay_enter=2000000";
    strace.args(["-qq", "-o", "/dev/null", "-e", slow, "-p"]);
    let strace = strace.arg(main.to_string());
    let Ok(mut strace) = strace.stderr(std::process::Stdio::null()).spawn() else {
        return skip("needs strace");
    };
    until("a tracer", || {
        proc::status(main, "TracerPid").is_some_and(|pid| pid != "0")
            || strace.try_wait().unwrap().is_some()
    });
    if strace.try_wait().unwrap().is_some() {
        return skip("tracing is not allowed here");
    }
    let is_in = |call: libc::c_long| {
        let now = std::fs::read_to_string(format!("/proc/{main}/syscall"));
        now.is_ok_and(|now| now.starts_with(&format!("{call} ")))
    };
    sys::kill_group(main, libc::SIGCONT).unwrap();
    until("a SIGCONT that is about to be sent", || {
        is_in(libc::SYS_pidfd_send_signal)
    });
    press(&master, 26);
    until_state(&[server], 'T');
    until("the next look", || is_in(libc::SYS_rt_sigpending));
    until("the end of that", || !is_in(libc::SYS_rt_sigpending));
    strace.kill().unwrap();
    strace.wait().unwrap();
    until_state(&[main, server], 'T');
    sys::kill_group(main, libc::SIGCONT).unwrap();
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// The monitor has not yet seen that the server was resumed.
#[test]
fn an_order_to_suspend_that_is_out_of_date_is_not_obeyed() {
    for wrap in [WRAPS[0], PIDNS] {
        let (mut run, master) = start(wrap, "server");
        let (main, server, monitor) = (run.main, run.named("server")[0].pid, run.monitor());
        until("a shim that waits", || is_quiet(main));
        let shim_held = hold(main, libc::SYS_rt_sigtimedwait);
        press(&master, 26);
        // SIGCHLD brings the order. From a PID namespace it is SIGCONT.
        let bring = [libc::SIGCHLD, libc::SIGCONT].map(|signal| 1_u64 << (signal - 1));
        until("an order", || {
            let waiting = proc::status(main, "ShdPnd").unwrap();
            let waiting = u64::from_str_radix(&waiting, 16).unwrap();
            bring.iter().any(|bit| waiting & bit != 0)
        });
        let monitor_held = hold(monitor, libc::SYS_ppoll);
        sys::kill_group(main, libc::SIGCONT).unwrap();
        drop(shim_held);
        until("a shim that waits", || is_quiet(main));
        // It may run at this moment.
        assert_ne!(state(server), 'T');
        drop(monitor_held);
        // The next order is obeyed.
        press(&master, 26);
        until_state(&[main, server], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        sys::kill(main, libc::SIGTERM).unwrap();
        run.wait_clean();
    }
}

/// The monitor of a PID namespace has to forward the SIGCONT, and may do so late.
#[test]
fn a_late_monitor_does_not_undo_the_next_suspension() {
    let (mut run, master) = start(PIDNS, "server");
    let (main, server, monitor) = (run.main, run.named("server")[0].pid, run.monitor());
    until("a shim that waits", || is_quiet(main));
    let monitor_held = hold(monitor, libc::SYS_ppoll);
    sys::kill_group(main, libc::SIGCONT).unwrap();
    until("a shim that waits", || is_quiet(main));
    press(&master, 26);
    until_state(&[server], 'T');
    until("a shim that waits", || is_quiet(main));
    drop(monitor_held);
    until_state(&[main, server], 'T');
    // SIGCONT for treaper alone resumes the server as well.
    sys::kill(main, libc::SIGCONT).unwrap();
    until_state(&[main, server], 'S');
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// The monitor of a PID namespace rings for an order after it has written it, and each ring is a SIGCONT.
#[test]
fn a_late_ring_does_not_undo_the_suspension_that_it_reports() {
    let (mut run, master) = start(PIDNS, "server");
    let (main, server, monitor) = (run.main, run.named("server")[0].pid, run.monitor());
    until("a pair that waits", || is_quiet(main) && is_quiet(monitor));
    let mut late = trace(monitor, libc::SYS_write);
    press(&master, 26);
    held(&mut late);
    // Something else wakes the shim, which sees the order.
    sys::kill(main, libc::SIGCHLD).unwrap();
    until_state(&[main, server], 'T');
    drop(late);
    until("a ring", || is_quiet(monitor));
    until_state(&[main, server], 'T');
    sys::kill_group(main, libc::SIGCONT).unwrap();
    until_state(&[main, server], 'S');
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// When a server calls `PTRACE_TRACEME`, the kernel makes treaper its tracer. Then every signal suspends the server.
#[test]
fn a_server_in_a_tracing_stop_neither_suspends_nor_ends_treaper() {
    for wrap in ALL {
        for signal in ["USR1", "TRAP", "TSTP", "STOP"] {
            let tree = format!("server:trapped={signal}[worker:setsid:ignore=TERM]");
            let (scene, _master) = Scene::new().terminal();
            let mut run = scene.start(&wrap.tree(&tree));
            run.log.ready("worker");
            run.log.ready("server");
            until("a server in a tracing stop", || {
                run.named("server").iter().any(|server| server.state == 't')
            });
            // Any effect of the tracing stop on treaper comes before this.
            run.signal(libc::SIGTERM);
            let exit = run.wait_clean();
            assert_eq!(
                (exit.code(), exit.signal()),
                (None, Some(libc::SIGKILL)),
                "{wrap:?} {signal}"
            );
        }
    }
}

/// `/proc` shows such a server in a tracing stop. The kernel reports its suspension to the monitor all the same.
#[test]
fn a_tracer_of_the_server_does_not_hide_its_suspension() {
    for wrap in WRAPS.into_iter().chain([Wrap::Bare]) {
        let (mut run, master) = start(wrap, "server");
        let server = run.log.ready("server");
        let mut strace = std::process::Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-p", &server.to_string()]);
        let Ok(mut strace) = strace.stderr(std::process::Stdio::null()).spawn() else {
            return skip("needs strace");
        };
        let traced = || proc::status(server, "TracerPid").is_some_and(|pid| pid != "0");
        until("a tracer", || {
            traced() || strace.try_wait().unwrap().is_some()
        });
        if !traced() {
            return skip("tracing is not allowed here");
        }
        let main = run.main;
        press(&master, 26);
        let suspended = if matches!(wrap, Wrap::Bare) { 't' } else { 'T' };
        until("a suspended job", || {
            Process::read(main).is_some_and(|p| p.state == suspended)
        });
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until("a resumed job", || {
            let goes_on = Process::read(main).is_some_and(|p| p.state == 'S');
            // Bare, the state is the same before strace lets the SIGTSTP through: then this SIGCONT came too early.
            if !goes_on && matches!(wrap, Wrap::Bare) {
                sys::kill_group(main, libc::SIGCONT).unwrap();
            }
            goes_on
        });
        strace.kill().unwrap();
        strace.wait().unwrap();
        sys::kill(main, libc::SIGTERM).unwrap();
        run.wait_clean();
    }
}

/// A suspended treaper could not notice that the server was resumed: only a shell would resume treaper.
#[test]
fn with_no_guard_a_server_that_another_process_suspends_is_not_followed() {
    for wrap in [WRAPS[1], WRAPS[0]] {
        let (mut run, master) = start(wrap, "server:record");
        let (main, server) = (run.main, run.log.ready("server"));
        // A key that suspends nothing does not matter.
        press(&master, 3);
        run.log.wait("server", "signal");
        until("a treaper that has seen the key", || is_quiet(main));
        let before = proc::switches(main);
        sys::kill(server, libc::SIGSTOP).unwrap();
        until("a look at the suspended server", || {
            proc::switches(main) > before
        });
        sys::kill(server, libc::SIGCONT).unwrap();
        run.signal(libc::SIGUSR1);
        let came = run.log.wait_for(3, "server", "signal");
        let came = came.iter().map(|line| line.number("sig") as i32);
        let mut came: Vec<i32> = came.collect();
        came.sort_unstable();
        let expected = [libc::SIGINT, libc::SIGUSR1, libc::SIGCONT];
        assert_eq!(came, expected, "{wrap:?}");
        run.signal(libc::SIGTERM);
        run.wait_clean();
    }
}

/// The key is long ago, so it is not the reason.
#[test]
fn with_no_guard_a_late_sigstop_after_an_ignored_key_is_not_followed() {
    let (mut run, master) = start(WRAPS[1], "server:record");
    let (main, server) = (run.main, run.log.ready("server"));
    press(&master, 26);
    run.log.wait("server", "signal");
    until("a treaper that has seen the key", || is_quiet(main));
    let seen = sys::now_ms();
    until("the end of 2 s", || sys::now_ms() > seen + 2100);
    let before = proc::switches(main);
    sys::kill(server, libc::SIGSTOP).unwrap();
    until("a look at the suspended server", || {
        proc::switches(main) > before
    });
    // A suspended treaper would not see this.
    sys::kill(server, libc::SIGKILL).unwrap();
    assert_eq!(run.wait_clean().signal(), Some(libc::SIGKILL));
}

/// No shell would resume a server that is suspended during a stop.
#[test]
fn ctrl_z_during_a_stop_does_not_keep_the_server_from_its_end() {
    for options in [&["--grace=60s"][..], &["--grace=60s", "--no-guard"]] {
        let (mut run, master) = start(Wrap::Treaper(options), "server:on=TERM/3:slow=2000");
        run.signal(libc::SIGTERM);
        run.log.wait("server", "signal");
        // It sends SIGCONT after SIGTERM, which undoes an early key. On a busy machine the server may have ended.
        until("a treaper that waits", || {
            let monitor = run.named("tree-monitor");
            let waits = is_quiet(run.main) && monitor.iter().all(|p| is_quiet(p.pid));
            waits || run.named("server").is_empty()
        });
        press(&master, 26);
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
    }
}

/// The process of treaper that reaps the tree, once it has reaped the server and has adopted what is left.
fn reaper_of_the_rest(run: &Run) -> i32 {
    let reaper = run.named("tree-monitor").pop().map_or(run.main, |p| p.pid);
    until("a server that was reaped", || {
        let children = proc::children(reaper);
        let is_there = |name: &str| children.iter().any(|child| child.comm == name);
        is_there("worker") && !is_there("server")
    });
    reaper
}

/// Else the terminal would stay with a job in which nothing runs. Only treaper can tell the shell.
#[test]
fn what_outlives_the_server_is_suspended_and_resumed_with_treaper() {
    for options in [&["--until=tree"][..], &["--until=tree", "--no-guard"]] {
        let (mut run, master) = start(Wrap::Treaper(options), "server:exit=3[worker]");
        let (main, worker) = (run.main, run.log.ready("worker"));
        let reaper = reaper_of_the_rest(&run);
        // Once more, since it must work more than once.
        for _ in 0..2 {
            until("a treaper that waits", || {
                is_quiet(main) && is_quiet(reaper)
            });
            press(&master, 26);
            until_state(&[main, worker], 'T');
            sys::kill_group(main, libc::SIGCONT).unwrap();
            until_state(&[main, worker], 'S');
        }
        sys::kill(worker, libc::SIGTERM).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
    }
}

/// The whole job ignores the key, so no shell would see a stop.
#[test]
fn an_ignored_ctrl_z_does_not_suspend_treaper_without_a_server() {
    for options in [&["--until=tree"][..], &["--until=tree", "--no-guard"]] {
        let (mut run, master) =
            start_ignoring_ctrl_z(&Wrap::Treaper(options).tree("server:exit=3[worker]"));
        let (main, worker) = (run.main, run.log.ready("worker"));
        let reaper = reaper_of_the_rest(&run);
        until("a treaper that waits", || {
            is_quiet(main) && is_quiet(reaper)
        });
        let before = proc::switches(main);
        press(&master, 26);
        until("a treaper that has seen the key", || {
            proc::switches(main) > before && (is_quiet(main) || state(main) == 'T')
        });
        assert_eq!(state(main), 'S', "{options:?}");
        sys::kill(worker, libc::SIGTERM).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
    }
}

/// The order to follow the second suspension is older than the resumption.
#[test]
fn two_suspensions_of_what_outlives_the_server_end_by_one_resumption() {
    for options in [&["--until=tree"][..], &["--until=tree", "--contain=pidns"]] {
        let (mut run, master) = start(Wrap::Treaper(options), "server:exit=3[worker]");
        run.log.ready("worker");
        let (main, monitor) = (run.main, reaper_of_the_rest(&run));
        let worker = run.named("worker")[0].pid;
        until("a treaper that waits", || {
            is_quiet(main) && is_quiet(monitor)
        });
        press(&master, 26);
        until_state(&[main, worker], 'T');
        for (signal, state) in [(libc::SIGCONT, 'S'), (libc::SIGTSTP, 'T')] {
            until("a monitor that waits", || is_quiet(monitor));
            let before = proc::switches(monitor);
            sys::kill(worker, signal).unwrap();
            until_state(&[worker], state);
            until("a monitor that has seen it", || {
                proc::switches(monitor) > before && is_quiet(monitor)
            });
        }
        until_state(&[main], 'T');
        sys::kill_group(main, libc::SIGCONT).unwrap();
        until_state(&[worker], 'S');
        until("a treaper that waits", || {
            is_quiet(main) && is_quiet(monitor)
        });
        assert_eq!(state(main), 'S', "{options:?}");
        sys::kill(worker, libc::SIGTERM).unwrap();
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
    }
}

/// Nor what it has left: treaper is about to end, so no shell will resume it.
#[test]
fn ctrl_z_after_the_end_of_the_server_does_not_keep_the_rest_from_its_end() {
    for options in [
        &["--grace=60s"][..],
        &["--grace=60s", "--no-guard"],
        &["--grace=60s", "--contain=pidns"],
    ] {
        let tree = "server:on=USR1/3[worker:on=TERM/0:slow=2000]";
        let (mut run, master) = start(Wrap::Treaper(options), tree);
        run.log.ready("worker");
        run.signal(libc::SIGUSR1);
        run.log.wait("worker", "signal");
        // It sends SIGCONT after SIGTERM, which undoes an early key. On a busy machine the worker may have ended.
        until("a treaper that waits", || {
            let monitor = run.named("tree-monitor");
            let waits = is_quiet(run.main) && monitor.iter().all(|p| is_quiet(p.pid));
            waits || run.named("worker").is_empty()
        });
        press(&master, 26);
        assert_eq!(run.wait_clean().code(), Some(3), "{options:?}");
        assert_eq!(run.log.all("worker", "leaving").len(), 1, "{options:?}");
    }
}

/// A server in the background would try to read again, and would be suspended again at once.
#[test]
fn a_server_that_sigttin_suspends_during_a_stop_is_not_resumed() {
    for options in [&["--grace=100s"][..], &["--grace=100s", "--no-guard"]] {
        let (mut run, master) = start(Wrap::Treaper(options), "server:ignore=TERM");
        let server = run.log.ready("server");
        let reaper = run.named("tree-monitor").pop().map_or(run.main, |p| p.pid);
        run.signal(libc::SIGTERM);
        wait_to_read(&master, "Ctrl-C kills");
        until("a treaper that waits", || is_quiet(reaper));
        let before = proc::switches(reaper);
        sys::kill(server, libc::SIGTTIN).unwrap();
        until("a look at the suspended server", || {
            proc::switches(reaper) > before && is_quiet(reaper)
        });
        assert_eq!(state(server), 'T', "{options:?}");
        sys::kill(server, libc::SIGKILL).unwrap();
        run.wait_clean();
    }
}

#[test]
fn a_shim_that_is_suspended_with_its_server_acts_after_the_end_of_that() {
    let wrap = Wrap::Treaper(&["--until=tree", "--grace=300ms"]);
    let (mut run, _master) = start(wrap, "server[worker:setsid:ignore=TERM]");
    let (main, server, worker) = (run.main, run.log.ready("server"), run.log.ready("worker"));
    sys::kill(server, libc::SIGSTOP).unwrap();
    until_state(&[main, server], 'T');
    sys::kill(server, libc::SIGKILL).unwrap();
    until("the end of the server", || Process::read(server).is_none());
    assert_ne!(state(worker), '-');
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// Editors do this: they restore the screen first.
#[test]
fn a_server_that_suspends_itself_when_the_keyboard_asks_is_followed() {
    let script = "trap 'kill -STOP $$' TSTP; echo ready; while :; do sleep 60 & wait; done";
    for wrap in WRAPS.into_iter().chain([Wrap::Bare]) {
        let (scene, master) = Scene::new().terminal();
        let run = scene.start(&wrap.command(&["bash", "-c", script]));
        let mut text = String::new();
        while !text.contains("ready") {
            let mut buffer = [0; 64];
            let count = File::from(master.try_clone().unwrap())
                .read(&mut buffer)
                .unwrap();
            text += &String::from_utf8_lossy(&buffer[..count]);
        }
        for _ in 0..2 {
            press(&master, 26);
            let main = run.main;
            until("a suspended job", || {
                state(main) == 'T' && run.named("bash").iter().all(|p| p.state == 'T')
            });
            sys::kill_group(main, libc::SIGCONT).unwrap();
            until("a resumed job", || {
                state(main) == 'S' && run.named("bash").iter().all(|p| p.state == 'S')
            });
        }
    }
}

/// For example `docker exec -it` and `script -c`. No shell could resume the job, so the kernel does not suspend it.
#[test]
fn where_no_shell_could_resume_it_the_keyboard_suspends_nothing() {
    for wrap in WRAPS.into_iter().chain([Wrap::Bare]) {
        let (scene, master) = Scene::new().terminal_without_a_shell();
        let mut run = scene.start(&wrap.tree("server:eof=6"));
        run.log.ready("server");
        press(&master, 26);
        press(&master, b'\n');
        press(&master, 4);
        assert_eq!(run.wait_clean().code(), Some(6), "{wrap:?}");
    }
}

#[test]
fn a_server_in_the_foreground_can_read_the_keyboard() {
    for wrap in ALL {
        let (mut run, master) = start(wrap, "server:eof=6");
        press(&master, b'x');
        press(&master, b'\n');
        press(&master, 4);
        assert_eq!(run.wait_clean().code(), Some(6), "{wrap:?}");
        assert_eq!(run.log.wait("server", "eof").number("bytes"), 2);
    }
}

#[test]
fn a_terminal_that_hangs_up_ends_the_tree() {
    for wrap in ALL {
        let (mut run, master) = start(
            wrap,
            "server:ignore=HUP+TERM[worker:setsid:ignore=HUP+TERM]",
        );
        run.log.ready("worker");
        drop(master);
        run.wait_clean();
    }
}

#[test]
fn a_kill_of_the_whole_job_leaves_nothing() {
    for wrap in [WRAPS[0], PIDNS] {
        let tree = "server:ignore=HUP+TERM[worker:setsid:ignore=HUP+TERM]";
        let (mut run, _master) = start(wrap, tree);
        run.log.ready("worker");
        sys::kill_group(run.main, libc::SIGKILL).unwrap();
        run.wait_empty();
    }
}

#[test]
fn control_without_treaper_the_tree_outlives_its_terminal() {
    let (mut run, master) = start(
        Wrap::Bare,
        "server:ignore=HUP+TERM[worker:setsid:ignore=HUP+TERM]",
    );
    run.log.ready("worker");
    drop(master);
    assert!(!run.ends_within(Duration::from_millis(300)));
    assert_eq!(run.survivors().len(), 2);
}

/// Reads what the terminal shows until `text` is there.
fn wait_to_read(master: &OwnedFd, text: &str) -> String {
    let mut shown = Vec::new();
    let mut terminal = File::from(master.try_clone().unwrap());
    loop {
        let mut buffer = [0; 4096];
        let n = terminal.read(&mut buffer).unwrap();
        shown.extend_from_slice(&buffer[..n]);
        let shown = String::from_utf8_lossy(&shown);
        if shown.contains(text) {
            return shown.into_owned();
        }
    }
}

#[test]
fn a_long_stop_lists_what_it_waits_for_and_ctrl_c_kills_that() {
    for wrap in [
        Wrap::Treaper(&["--grace", "100s"]),
        Wrap::Treaper(&["--no-guard", "--grace", "100s"]),
        // After the message Ctrl-C kills, also if the server ignores or rewrites it.
        Wrap::Treaper(&["--grace", "100s", "--rewrite", "INT:QUIT"]),
        Wrap::Treaper(&["--no-guard", "--grace", "100s", "--rewrite", "INT:0"]),
        Wrap::Treaper(&["--grace", "100s", "--rewrite", "INT:0"]),
        Wrap::Treaper(&["--contain", "pidns", "--grace", "100s"]),
    ] {
        if matches!(wrap, Wrap::Treaper(["--contain", ..])) && !sys::is_root() {
            common::skip("pidns without root depends on the machine");
            continue;
        }
        until("a key that is handled before the message", || {
            lists_what_it_waits_for_until_ctrl_c(wrap)
        });
    }
}

/// Returns false if the machine was too busy for the key that comes before the message.
fn lists_what_it_waits_for_until_ctrl_c(wrap: Wrap) -> bool {
    let (mut run, master) = start(wrap, "server:on=TERM/0[worker:setsid:record]");
    let (server, worker) = (run.log.ready("server"), run.log.ready("worker"));
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    run.log.wait("worker", "signal");
    // Before the message it is like any other key.
    press(&master, 3);
    until("a key that is handled", || common::is_quiet(run.main));
    if sys::now_ms() - before >= 900 {
        while !run.ends_within(Duration::from_millis(100)) {
            press(&master, 3);
        }
        run.wait_clean();
        return false;
    }
    let shown = wait_to_read(&master, "Ctrl-C kills");
    assert!(
        sys::now_ms() - before >= 995,
        "{wrap:?}: too early: {shown}"
    );
    let own_numbers = !matches!(wrap, Wrap::Treaper(["--contain", ..]));
    let expected = [
        format!("waiting for 1 process (worker[{worker}]) to end"),
        // On a busy machine the server may need more than a second.
        format!("waiting for 2 processes (server[{server}], worker[{worker}]) to end"),
    ];
    assert!(
        !own_numbers || expected.iter().any(|text| shown.contains(text)),
        "{wrap:?}: {shown}"
    );
    // The grace period is long, so only the key kills.
    run.signal(libc::SIGUSR1);
    run.signal(libc::SIGINT);
    assert!(!run.ends_within(Duration::from_millis(200)), "{wrap:?}");
    press(&master, 3);
    assert_eq!(run.wait_clean().code(), Some(0), "{wrap:?}");
    assert!(sys::now_ms() - before < 50_000, "{wrap:?}");
    true
}

/// It is a child of treaper, in its group, and not of the tree.
#[test]
fn a_signal_of_a_helper_that_is_older_than_treaper_reaches_the_server() {
    for options in [&[][..], &["--no-guard"]] {
        let (scene, _master) = Scene::new().terminal();
        let go = scene.directory().join("go");
        let helper = format!(
            "(until [ -e {} ]; do sleep 0.05; done; kill -USR1 $$) & exec \"$@\"",
            go.display()
        );
        let shell = ["sh", "-c", &helper, "sh"].map(str::to_owned);
        let tree = Wrap::Treaper(options).tree("server:on=USR1/7");
        let mut run = scene
            .start(&[shell.to_vec(), tree].concat())
            .ready(&["server"]);
        std::fs::write(go, "").unwrap();
        assert_eq!(run.wait_clean().code(), Some(7), "{options:?}");
    }
}

/// The monitor learns of the key by SIGCHLD, which also comes when a process has ended.
#[test]
fn after_the_offer_the_end_of_one_process_kills_no_other() {
    for options in [&["--grace=100s"][..], &["--grace=100s", "--no-guard"]] {
        let tree = "server:on=TERM/0[first:setsid:ignore=TERM:on=USR1/0,last:setsid:ignore=TERM]";
        let (mut run, master) = start(Wrap::Treaper(options), tree);
        let [first, last] = ["first", "last"].map(|name| run.log.ready(name));
        run.signal(libc::SIGTERM);
        wait_to_read(&master, "Ctrl-C kills");
        sys::kill(first, libc::SIGUSR1).unwrap();
        until("its end", || state(first) == '-');
        assert!(!run.ends_within(Duration::from_millis(200)), "{options:?}");
        assert!(Process::read(last).unwrap().is_alive(), "{options:?}");
        press(&master, 3);
        assert_eq!(run.wait_clean().code(), Some(0), "{options:?}");
    }
}

#[test]
fn an_offer_that_is_not_shown_does_not_hold() {
    let wrap = Wrap::Treaper(&["--grace=100s", "--log=error"]);
    let (mut run, master) = start(wrap, "server:record");
    let (server, monitor) = (run.log.ready("server"), run.monitor());
    run.signal(libc::SIGTERM);
    run.log.wait("server", "signal");
    until("a monitor that waits", || is_quiet(monitor));
    // Nothing else wakes it than the time at which it would make the offer.
    let before = proc::switches(monitor);
    until("that time", || proc::switches(monitor) > before);
    until("a monitor that waits", || is_quiet(monitor));
    press(&master, 3);
    run.log.wait_for(2, "server", "signal");
    assert!(!run.ends_within(Duration::from_millis(200)));
    sys::kill(server, libc::SIGKILL).unwrap();
    run.wait_clean();
}

/// Ctrl-C goes to the job that has the foreground: not to one that a shell has put into the
/// background, and not to treaper while its server is a shell with a job of its own in front.
#[test]
fn ctrl_c_is_offered_only_where_it_reaches_treaper() {
    let deaf = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let front = format!("set -m; trap '' TERM; bash -c \"{deaf}\"; :");
    for options in [&["--grace=5s"][..], &["--grace=5s", "--no-guard"]] {
        let wrap = Wrap::Treaper(options);
        let behind = ["bash", "-c", "set -m; \"$@\" & wait", "bash"].map(str::to_owned);
        for words in [
            [&behind[..], &wrap.command(&["bash", "-c", deaf])].concat(),
            wrap.command(&["bash", "-c", &front]),
        ] {
            let (scene, master) = Scene::new().terminal();
            let mut run = scene.start(&words);
            let mut shown = wait_to_read(&master, "ready");
            sys::kill(run.named("treaper")[0].pid, libc::SIGTERM).unwrap();
            shown += &wait_to_read(&master, "had to SIGKILL");
            assert!(shown.contains("to end"), "{words:?}: {shown}");
            assert!(!shown.contains("Ctrl-C"), "{words:?}: {shown}");
            run.wait_empty();
        }
    }
}

/// tmux and other terminals open the next pane where the leader of the foreground job is.
#[test]
fn at_a_terminal_the_process_that_the_shell_knows_stays_in_its_directory() {
    for wrap in ALL.into_iter().chain([Wrap::Bare]) {
        let (run, _master) = start(wrap, "server");
        let directory = |pid| std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        if matches!(wrap, Wrap::Treaper(options) if !options.contains(&"--no-guard")) {
            // It leaves when the server has started, which is ready sooner at times.
            let monitor = run.monitor();
            until("a monitor that has left", || {
                directory(monitor) == Path::new("/")
            });
        }
        until("a process that waits", || is_quiet(run.main));
        assert_eq!(
            directory(run.main),
            std::env::current_dir().unwrap(),
            "{wrap:?}"
        );
    }
}

/// The shell has its prompt back, so Ctrl-C does not reach the job.
#[test]
fn after_the_end_of_the_shim_ctrl_c_is_not_offered() {
    for contain in ["--contain=group", "--contain=pidns"] {
        if contain == "--contain=pidns" && !sys::is_root() {
            common::skip("pidns without root depends on the machine");
            continue;
        }
        let options = ["--grace", "100s", contain];
        let wrap = Wrap::Treaper(&options);
        // Killed before the stop, and during a stop for another reason.
        for during in [false, true] {
            let (mut run, master) = loop {
                let (mut run, master) = start(wrap, "server:record");
                let before = sys::now_ms();
                if during {
                    run.signal(libc::SIGTERM);
                    run.log.wait("server", "signal");
                }
                run.signal(libc::SIGKILL);
                // On a busy machine the monitor may have made the offer before.
                if !during || sys::now_ms() - before < 900 {
                    break (run, master);
                }
            };
            let shown = wait_to_read(&master, "to end");
            let shown = shown + &wait_to_read(&master, "had to SIGKILL");
            assert!(!shown.contains("Ctrl-C"), "{contain} {during}: {shown}");
            run.wait_empty();
        }
    }
}

#[test]
fn the_heir_of_a_stop_takes_ctrl_c_as_well() {
    let wrap = Wrap::Treaper(&["--grace", "100s"]);
    let (mut run, master) = start(wrap, "server:ignore=INT+TERM");
    sys::kill(run.monitor(), libc::SIGKILL).unwrap();
    wait_to_read(&master, "Ctrl-C kills");
    press(&master, 3);
    run.wait_clean();
}
