//! Which process is the host if a shell, `nohup` or `setsid` is between it and treaper, and what happens if the host
//! ended before treaper looked.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::proc::{self, Process};
use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, sys};

const TREE: &str = "server:on=TERM/3[worker:setsid,deep:daemon:ignore=TERM]";
const QUICK: Wrap = Wrap::Treaper(&["-v", "--drain", "100ms", "--grace", "200ms"]);
/// Long enough for a false alarm to show.
const A_WHILE: Duration = Duration::from_millis(400);
/// A command for `sh -c` that keeps the shell: it runs its arguments, and then another command.
const STAYS: &str = "\"$0\" \"$@\"; exit $?";

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// `before`, then the wrap (treaper, or nothing) and the tree.
fn command(before: &[&str], wrap: Wrap) -> Vec<String> {
    [owned(before), wrap.tree(TREE)].concat()
}

fn all_ready(mut run: Run) -> Run {
    for name in ["server", "worker", "deep"] {
        run.log.ready(name);
    }
    run
}

/// A host with this stdin for its child: `before`, then the wrap and the tree.
fn hosted(stdin: &str, before: &[&str], wrap: Wrap) -> Run {
    let host = [ACTOR, "host", "--stdin", stdin, "--"];
    let run = Scene::new().start(&[owned(&host), command(before, wrap)].concat());
    let mut run = all_ready(run);
    run.log.wait("host", "spawned");
    run
}

fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap();
    path.split(':')
        .any(|dir| std::path::Path::new(dir).join(program).exists())
}

/// The tree is not signalled, and ends after SIGTERM to the shim.
fn lives_on(mut run: Run) {
    let alarm = run.log.comes_within(A_WHILE, "server", "signal");
    assert!(!alarm, "a false alarm: {}", run.stderr());
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    run.wait_empty();
}

#[test]
fn nothing_outlives_a_host_behind_a_shell_that_was_given_a_command() {
    for shell in [
        &["dash", "-c"][..],
        &["bash", "-c"],
        &["bash", "--norc", "-eo", "pipefail", "-c"],
        &["busybox", "sh", "-c"],
        &["zsh", "-fc"],
    ] {
        if !is_there(shell[0]) {
            skip("a shell that is not installed");
            continue;
        }
        for stdin in ["null", "inherit"] {
            let mut run = hosted(stdin, &[shell, &[STAYS]].concat(), QUICK);
            run.signal(libc::SIGKILL);
            run.wait_empty();
            let stderr = run.stderr();
            assert!(stderr.contains("parent-exit"), "{shell:?}: {stderr}");
        }
    }
}

#[test]
fn control_without_treaper_everything_outlives_a_host_behind_a_shell() {
    let mut run = hosted("null", &["sh", "-c", STAYS], Wrap::Bare);
    run.signal(libc::SIGKILL);
    // The shell is the fourth.
    assert_eq!(run.wait().left.len(), 4);
}

#[test]
fn shells_in_shells_hide_nothing() {
    let shells = ["sh", "-c", STAYS, "sh", "-ec", STAYS, "sh", "-c", STAYS];
    let mut run = hosted("null", &shells, QUICK);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
}

#[test]
fn nothing_outlives_a_host_behind_a_shell_as_an_unprivileged_user() {
    if !sys::is_root() {
        return skip("only root can become another user");
    }
    let host = [ACTOR, "host", "--stdin", "null", "--"];
    let words = [owned(&host), command(&["sh", "-c", STAYS], QUICK)].concat();
    let mut run = all_ready(Scene::new().uid(65534).start(&words));
    run.log.wait("host", "spawned");
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

#[test]
fn a_shell_in_a_session_of_its_own_may_outlive_its_host() {
    let run = hosted("null", &["setsid", "sh", "-c", STAYS], QUICK);
    run.signal(libc::SIGKILL);
    lives_on(run);
}

#[test]
fn the_shell_itself_is_the_parent_also_in_a_session_of_its_own() {
    let mut run = hosted("null", &["setsid", "sh", "-c", STAYS], QUICK);
    let shell = run.named("sh")[0].pid;
    sys::kill(shell, libc::SIGKILL).unwrap();
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
}

#[test]
fn a_command_behind_nohup_outlives_its_script_every_time() {
    // A script that ends at once, and one that ends long after treaper has looked.
    let ends = "nohup \"$0\" \"$@\" >/dev/null & exit 0";
    let later = "nohup \"$0\" \"$@\" >/dev/null & read -r line";
    for _ in 0..10 {
        let run = Scene::new().start(&command(&["sh", "-c", ends], QUICK));
        lives_on(all_ready(run));
    }
    let scene = Scene::new().stdin_pipe();
    let mut run = all_ready(scene.start(&command(&["sh", "-c", later], QUICK)));
    run.write_stdin(b"end\n");
    run.wait();
    lives_on(run);
}

#[test]
fn the_other_ways_into_the_background_need_only_no_parent() {
    for form in ["(\"$0\" \"$@\" &)", "setsid -f \"$0\" \"$@\" </dev/null"] {
        let script = format!("{form}; read -r line");
        let options = ["-v", "--grace", "200ms", "--no-parent"];
        let words = command(&["sh", "-c", &script], Wrap::Treaper(&options));
        let mut run = Scene::new().stdin_pipe().start(&words);
        run.write_stdin(b"end\n");
        run.wait();
        lives_on(all_ready(run));
    }
}

#[test]
fn control_without_nohup_it_ends_with_its_script() {
    let later = "\"$0\" \"$@\" </dev/null & read -r line";
    let scene = Scene::new().stdin_pipe();
    let mut run = all_ready(scene.start(&command(&["sh", "-c", later], QUICK)));
    run.write_stdin(b"end\n");
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
}

#[test]
fn a_host_that_runs_under_nohup_is_a_host() {
    for before in [&[][..], &["sh", "-c", STAYS]] {
        let host = owned(&["nohup", ACTOR, "host", "--stdin", "null", "--"]);
        let run = Scene::new().start(&[host, command(before, QUICK)].concat());
        let mut run = all_ready(run);
        run.log.wait("host", "spawned");
        run.signal(libc::SIGKILL);
        run.wait_empty();
        assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
    }
}

#[test]
fn nohup_before_a_shell_lets_the_shell_outlive_the_host() {
    let run = hosted("null", &["nohup", "sh", "-c", STAYS], QUICK);
    run.signal(libc::SIGKILL);
    lives_on(run);
    // The shell itself is still the parent.
    let mut run = hosted("null", &["nohup", "sh", "-c", STAYS], QUICK);
    sys::kill(run.named("sh")[0].pid, libc::SIGKILL).unwrap();
    run.wait_empty();
}

/// Kills the host, and runs its arguments after the host was reaped.
const ORPHAN: &str = "kill -9 $PPID; while [ -d /proc/$PPID ]; do :; done; exec \"$0\" \"$@\"";

/// A host with this stdin for its child, which `before` leads to. Treaper starts when that host is gone.
fn orphan_of(stdin: &[&str], before: &[&str]) -> Vec<String> {
    let words = [
        owned(&[ACTOR, "host", "--own-session"]),
        owned(stdin),
        owned(&["--"]),
        owned(before),
        command(&["sh", "-c", ORPHAN], QUICK),
    ];
    words.concat()
}

fn orphaned_before_the_start(host: &[&str]) -> Run {
    let mut run = Scene::new().start(&orphan_of(host, &[]));
    run.wait_empty();
    run
}

#[test]
fn unread_input_does_not_hide_that_the_host_ended_before_the_start() {
    for request in ["", "request\n"] {
        for kind in ["pipe", "socketpair", "tcp"] {
            let host = ["--stdin", kind, "--request", request];
            let mut run = orphaned_before_the_start(&host);
            let stderr = run.stderr();
            assert!(stderr.contains("parent-exit"), "{kind}: {stderr}");
            assert!(run.log.all("server", "ready").is_empty(), "{kind}");
        }
    }
}

#[test]
fn a_subreaper_that_leads_its_session_is_not_taken_for_the_host() {
    // The leader of treaper's session lives on. The process that started treaper has ended. The arena, which started
    // that leader, has adopted treaper.
    let waits = "while read -r _ _ _ parent _ </proc/self/stat; [ $parent = $$ ]; do :; done";
    // Nor does the process at the other end of stdin live any more.
    let orphan = format!("({waits}; read -r _; exec \"$0\" \"$@\") 0<&3 & exit 0");
    let script = format!(": | {{ sh -c '{orphan}' \"$0\" \"$@\" 3<&0; }}; read -r end");
    let scene = Scene::new().stdin_pipe().before_exec(sys::setsid);
    let words = command(&["setsid", "sh", "-c", &script], QUICK);
    let mut run = scene.start(&words);
    common::until("the message", || run.stderr().contains("parent-exit"));
    run.write_stdin(b"end\n");
    run.wait_empty();
    assert!(run.log.all("server", "ready").is_empty());
}

/// The server of a host that lives is not stopped.
fn check_that_it_lives(host: &[&str]) {
    let words = [owned(host), command(&[], QUICK)].concat();
    let mut run = all_ready(Scene::new().start(&words));
    run.log.wait("host", "spawned");
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

/// Such as Node's `detached`, or `setsid`: the session then does not show whether the parent is the host.
#[test]
fn a_host_that_gave_treaper_a_session_of_its_own_is_not_taken_for_dead() {
    let host = [ACTOR, "host", "--stdin", "hungup", "--", "setsid"];
    check_that_it_lives(&host);
}

/// It was born in treaper's session, so it cannot have adopted treaper.
#[test]
fn a_host_that_has_left_the_session_of_treaper_is_not_taken_for_dead() {
    if !is_there("python3") {
        return skip("python3 is not installed");
    }
    let script = "import os, signal, sys\n\
                  gate, stdin = os.pipe(), os.pipe()\n\
                  os.close(stdin[1])\n\
                  if os.fork() == 0:\n    \
                      os.dup2(stdin[0], 0)\n    \
                      os.read(gate[0], 1)\n    \
                      os.execv(sys.argv[1], sys.argv[1:])\n\
                  os.setsid()\n\
                  os.write(gate[1], b'x')\n\
                  signal.pause()";
    // The shell leads the group, so that the host can leave it.
    let host = [
        "setsid",
        "sh",
        "-c",
        "\"$@\"; :",
        "sh",
        "python3",
        "-c",
        script,
    ];
    let words = [owned(&host), command(&[], QUICK)].concat();
    let mut run = all_ready(Scene::new().start(&words));
    let treaper = Process::read(run.shim()).unwrap();
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    sys::kill(treaper.ppid, libc::SIGKILL).unwrap();
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
}

/// Treaper leads a session, and its stdin has hung up. The process that adopts it decides.
#[test]
fn a_dead_host_that_gave_treaper_a_session_is_noticed_if_an_init_has_adopted_treaper() {
    for request in ["", "request\n"] {
        for kind in ["pipe", "socketpair", "tcp"] {
            let words = orphan_of(&["--stdin", kind, "--request", request], &["setsid"]);
            let mut run = Scene::new().reaper_named("systemd").start(&words);
            run.wait_empty();
            assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
            assert!(run.log.all("server", "ready").is_empty(), "{kind}");
        }
    }
    // A subreaper that may be a host.
    lives_on(all_ready(
        Scene::new().start(&orphan_of(&["--stdin", "hungup"], &["setsid"])),
    ));
    // No pipe has hung up.
    let scene = Scene::new().reaper_named("systemd");
    lives_on(all_ready(
        scene.start(&orphan_of(&["--stdin", "null"], &["setsid"])),
    ));
    // The main process of a unit, which systemd has started on a socket. Before systemd 248 it is not named.
    for variable in ["SYSTEMD_EXEC_PID=$$", "INVOCATION_ID=unit"] {
        let scene = Scene::new().reaper_named("systemd");
        let unit = format!("export {variable}; exec \"$0\" \"$@\"");
        let before = ["setsid", "sh", "-c", &unit];
        lives_on(all_ready(
            scene.start(&orphan_of(&["--stdin", "hungup"], &before)),
        ));
    }
}

/// A scene whose process 1 is a shell with the command name `name`, which runs this script.
fn container(name: &str, script: &str, words: &[String]) -> Run {
    let scene = Scene::new().pidns().stdin_pipe();
    let shell = scene.directory().join(name);
    std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
    let first = [shell.to_str().unwrap(), "-c", script, name];
    scene.start(&[owned(&first), words.to_vec()].concat())
}

#[test]
fn the_process_1_of_a_container_is_an_init_or_may_be_a_host() {
    let orphan = orphan_of(&["--stdin", "hungup"], &["setsid"]);
    let starts = "\"$@\" & wait; read -r end";
    for init in ["tini", "bwrap"] {
        let mut run = container(init, starts, &orphan);
        common::until("the message", || run.stderr().contains("parent-exit"));
        run.write_stdin(b"end\n");
        run.wait_empty();
        assert!(run.log.all("server", "ready").is_empty(), "{init}");
    }
    // It may be a host that has closed the stdin of its server.
    let mut run = all_ready(container("app", starts, &orphan));
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    run.write_stdin(b"end\n");
    run.wait_empty();
    let host = [ACTOR, "host", "--stdin", "hungup", "--", "setsid"];
    let words = [owned(&host), command(&[], QUICK)].concat();
    let mut run = all_ready(Scene::new().pidns().start(&words));
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    run.signal(libc::SIGKILL);
    run.wait_empty();
}

/// dumb-init makes a session for its command, and passes on its stdin: a complete input. So does treaper under such a
/// name, which gives up its own stdin.
#[test]
fn an_init_that_has_started_treaper_itself_is_not_taken_for_one_that_has_adopted_it() {
    let setsid = ["-c", "setsid \"$0\" \"$@\"; exit $?"];
    let inits: [(&str, &str, &[&str]); 2] = [
        ("dumb-init", "/bin/sh", &setsid),
        ("tini", TREAPER, &["--"]),
    ];
    for (name, program, options) in inits {
        let words = Wrap::Treaper(&[]).tree("server:eof=6");
        let (read, _) = sys::pipe().unwrap();
        let scene = Scene::new().pidns().with(|command| {
            command.stdin(read);
        });
        let init = scene.directory().join(name);
        std::os::unix::fs::symlink(program, &init).unwrap();
        let first = [&[init.to_str().unwrap()], options].concat();
        let mut run = scene.start(&[owned(&first), words].concat());
        assert_eq!(run.wait_clean().code(), Some(6), "{name}: {}", run.stderr());
    }
}

/// As `g_spawn_async` does it: the process between is gone at once, but its memory has to be freed first, and on a busy
/// machine it waits for a processor before. treaper then has another parent, and no host. The pause only spreads the
/// starts: with less time between them, fewer meet the end of the process between.
#[test]
fn a_host_that_forks_twice_loses_no_server() {
    let text = "if True:
        import os, sys, time
        memory = bytearray(200 << 20)
        memory[::4096] = b'x' * (200 << 8)
        for at in range(40):
            os.environ['AT'] = str(at)
            begun = time.monotonic()
            between = os.fork()
            if between == 0:
                if os.fork() == 0:
                    os.execvp(sys.argv[1], sys.argv[1:])
                until = time.monotonic() + 0.02 * (at % 2)
                while time.monotonic() < until:
                    pass
                os._exit(0)
            os.waitpid(between, 0)
            if time.monotonic() - begun > 0.15:
                print('slow', at, file=sys.stderr, flush=True)
            time.sleep(0.05)";
    if !is_there("python3") {
        return skip("python3 is not installed");
    }
    let shell = ["sh", "-c", STAYS, TREAPER];
    for wrap in [&[][..], &[TREAPER], &[TREAPER, "--no-guard"], &shell] {
        let mut host = Command::new("python3");
        let host = host.args(["-c", text]).args(wrap);
        let out = host.args(["sh", "-c", "sleep 1; echo done $AT"]).output();
        let out = out.unwrap();
        let done = String::from_utf8_lossy(&out.stdout);
        let said = String::from_utf8_lossy(&out.stderr);
        let has = |text: &str, line: String| text.lines().any(|found| found == line);
        // A process between that waits for a processor for longer counts as the host.
        let judged = (0..40).filter(|at| !has(&said, format!("slow {at}")));
        let lost = |at: &i32| !has(&done, format!("done {at}"));
        let (lost, kept): (Vec<_>, Vec<_>) = judged.partition(lost);
        assert!(
            lost.is_empty() && !kept.is_empty(),
            "{wrap:?} {lost:?}: {said}"
        );
    }
}

/// A worker that was forked a moment ago, waits for what it started, or has its own work to do.
#[test]
fn a_copy_of_a_program_that_stays_is_a_host_from_its_first_moment_on() {
    let text = "if True:
        import os, signal, sys
        worker = os.fork()
        if worker == 0:
            if os.fork() == 0:
                os.execvp(sys.argv[2], sys.argv[2:])
            while sys.argv[1] == 'busy':
                pass
            os.wait()
        os.waitpid(worker, 0)
        signal.pause()";
    if !is_there("python3") {
        return skip("python3 is not installed");
    }
    for what in ["busy", "waits"] {
        for wrap in [&[][..], &["sh", "-c", STAYS]] {
            let host = owned(&["python3", "-c", text, what]);
            let words = [host, command(wrap, QUICK)].concat();
            let mut run = all_ready(Scene::new().start(&words));
            let pythons = run.named("python3");
            let is_child = |one: &&Process| pythons.iter().any(|other| other.pid == one.ppid);
            pythons.iter().find(is_child).unwrap().kill();
            common::until("the end of the tree", || run.named("treaper").is_empty());
            assert!(run.named("deep").is_empty(), "{wrap:?}: {}", run.stderr());
            run.signal(libc::SIGKILL);
            run.wait_empty();
        }
    }
}

#[test]
fn the_process_that_started_the_host_may_end() {
    for stdin in ["null", "pipe"] {
        let host = [ACTOR, "host", "--stdin", stdin, "--"];
        let starts = ["sh", "-c", "\"$0\" \"$@\" & read -r line"];
        let words = [owned(&starts), owned(&host), command(&[], QUICK)].concat();
        let mut run = all_ready(Scene::new().stdin_pipe().start(&words));
        run.log.wait("host", "spawned");
        run.write_stdin(b"end\n");
        run.wait();
        lives_on(run);
    }
}

#[test]
fn behind_a_shell_a_server_starts_without_pidfds() {
    let faults = [ACTOR, "faults", "pidfd_open=ENOSYS", "--"];
    let words = [owned(&faults), command(&["sh", "-c", STAYS], QUICK)].concat();
    lives_on(all_ready(Scene::new().start(&words)));
}

/// The host ends after treaper has seen it behind the shell, and before treaper has opened it.
#[test]
fn a_host_behind_a_shell_that_ends_while_treaper_looks_is_gone() {
    let scene = Scene::new();
    let cue = scene.directory().join("cue");
    sys::mkfifo(&cue);
    // This shell does not reap the host, so the host can still be opened.
    let above = "\"$@\" & while :; do read -r line || exit; done";
    let waits = "read -r line <\"$0\"; exec \"$@\"";
    let words = [
        owned(&[
            "sh", "-c", above, "sh", ACTOR, "host", "--stdin", "null", "--",
        ]),
        owned(&["sh", "-c", STAYS, "sh", "-c", waits, cue.to_str().unwrap()]),
        command(&[], QUICK),
    ];
    let mut run = scene.stdin_pipe().start(&words.concat());
    let host = run.log.wait("host", "spawned").pid();
    let mut treaper = 0;
    common::until("a shell that waits", || {
        let is_shell = |pid| Process::read(pid).is_some_and(|p| p.comm == "sh");
        let shells = run.named("sh").into_iter();
        let mut waits = shells.filter(|p| is_shell(p.ppid) && proc::children(p.pid).is_empty());
        treaper = waits.next().map_or(0, |p| p.pid);
        treaper != 0
    });
    // The shell is opened first.
    let (pid, call) = (treaper.to_string(), libc::SYS_pidfd_open.to_string());
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &pid, &call, "2"]);
    common::until("a tracer", || {
        proc::status(treaper, "TracerPid").is_some_and(|pid| pid != "0")
    });
    std::fs::write(&cue, "go on\n").unwrap();
    let tried = tracer.log.wait("tracer", "tried");
    assert_eq!(tried.text("error"), "none", "ptrace is needed");
    sys::kill(host, libc::SIGKILL).unwrap();
    common::until("a dead host that is not reaped", || {
        Process::read(host).is_some_and(|p| p.state == 'Z')
    });
    drop(tracer);
    common::until("a message", || run.stderr().contains("parent-exit"));
    common::until("an end", || run.named("treaper").is_empty());
    let stderr = run.stderr();
    assert!(stderr.contains("COMMAND was not started"), "{stderr}");
}

#[test]
fn a_host_that_left_the_session_later_is_not_taken_for_dead() {
    let host = [ACTOR, "host", "--stdin", "hungup", "--late-session", "--"];
    check_that_it_lives(&host);
}
