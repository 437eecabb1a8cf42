//! The relay is killed, alone or with another process: nothing is left, and the last output arrives.
//! `RELAY_ROUNDS=300` sets the number of rounds, `RELAY_SEED` repeats the instants of a run.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ACTOR, Run, Scene, TREAPER, Wrap, seed, skip, sys, until, until_state};
use common::{proc, rng::Rng};

const TREE: &str = "server:ignore=TERM[worker:setsid:ignore=TERM,deep:daemon:ignore=TERM]";

fn rounds() -> u64 {
    std::env::var("RELAY_ROUNDS").map_or(4, |text| text.parse().unwrap())
}

fn start(level: &str, command: &[&str]) -> (Run, PathBuf) {
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    let contain = format!("--contain={level}");
    let options = [
        "--inject",
        &source,
        "--turn=method=p",
        "--cancel=method=c",
        &contain,
        "--grace",
        "50ms",
        "--drain",
        "20ms",
    ];
    (scene.start(&Wrap::Treaper(&options).command(command)), path)
}

/// The pid of the relay, which is the process that was started, or of the shim or the monitor.
fn pid_of(run: &Run, name: &str) -> Option<i32> {
    if name == "tree-relay" {
        return Some(run.main);
    }
    // Until the monitor has its name, it has that of the shim.
    let all = run.survivors();
    let below = |pid| all.iter().find(|p| p.ppid == pid);
    let shim = below(run.main)?;
    let found = if name == "treaper" {
        shim
    } else {
        below(shim.pid)?
    };
    (found.comm == name).then_some(found.pid)
}

/// As [`pid_of`]. The server can be there before the process has its name.
fn wait_for(run: &Run, name: &str) -> i32 {
    until(name, || pid_of(run, name).is_some());
    pid_of(run, name).unwrap()
}

fn levels() -> Vec<&'static str> {
    if sys::is_root() {
        vec!["group", "cgroup", "pidns"]
    } else {
        skip("root is needed for --contain=cgroup");
        vec!["group"]
    }
}

#[test]
fn control_without_treaper_the_tree_outlives_its_server() {
    let mut run = Scene::new().stdin_pipe().start(&Wrap::Bare.tree(TREE));
    for name in ["worker", "deep", "server"] {
        run.log.ready(name);
    }
    run.signal(libc::SIGKILL);
    let left = run.wait().left;
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn nothing_is_left_whichever_process_is_killed_and_when() {
    let mut random = Rng::new(seed("RELAY_SEED"));
    for level in levels() {
        for victims in [
            &["tree-relay"][..],
            &["treaper"],
            &["tree-monitor"],
            &["tree-relay", "treaper"],
            &["tree-relay", "tree-monitor"],
            &["treaper", "tree-relay"],
            &["tree-monitor", "tree-relay"],
        ] {
            for round in 0..rounds() {
                let (mut run, path) = start(level, &[ACTOR, "tree", TREE]);
                let time = random.below(15_000);
                sys::pause_for(Duration::from_micros(time));
                let all = ["tree-relay", "treaper", "tree-monitor"];
                // Before the server is started, and with the init of its namespace, the other process of the pair ends at
                // once. It leaves the socket to the relay, which can be killed before it removes it.
                let leaves_it = victims.len() > 1 && victims.last() == Some(&"tree-relay");
                let others = !leaves_it
                    && all
                        .iter()
                        .any(|name| !victims.contains(name) && pid_of(&run, name).is_some());
                let mut killed = false;
                for name in victims {
                    if let Some(pid) = pid_of(&run, name) {
                        killed |= sys::kill(pid, libc::SIGKILL).is_ok();
                    }
                    sys::pause_for(Duration::from_micros(random.below(3000)));
                }
                let described =
                    format!("{victims:?} killed after {time} us, {level}, round {round}");
                if !killed {
                    // They were not there yet.
                    run.signal(libc::SIGTERM);
                }
                let result =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.wait_empty()));
                assert!(result.is_ok(), "{described}");
                // If one is killed while it is alone with the socket, no process is left that removes it.
                assert!(!others || !path.exists(), "{described}");
            }
        }
    }
}

/// The names of the sockets in a folder.
fn sockets_in(folder: &Path) -> Vec<String> {
    let is_socket = |entry: &fs::DirEntry| entry.file_type().unwrap().is_socket();
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .filter(is_socket)
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn the_next_run_removes_what_a_killed_process_left_at_the_start() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let scene = Scene::new().stdin_pipe();
    let path = scene.directory().join("socket");
    let source = format!("unix:{}", path.display());
    // It is killed before the socket has its name.
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2"])
        .args(["-e", "inject=renameat2:signal=KILL", TREAPER])
        .args(["--inject", &source, "true"])
        .stdin(Stdio::piped())
        .status();
    assert_eq!(status.unwrap().signal(), Some(libc::SIGKILL));
    // The name is made of that of the socket, and another version of treaper has to make the same: FNV-1a.
    let left = sockets_in(path.parent().unwrap());
    assert_eq!(left, [".treaper-10f2dcb841372d0c"]);
    let mut run = scene.start(&Wrap::Treaper(&["--inject", &source]).command(&["cat"]));
    until("the socket", || path.exists());
    run.close_stdin();
    run.wait_clean();
    assert_eq!(sockets_in(path.parent().unwrap()), [""; 0]);
}

#[test]
fn a_killed_relay_is_a_reason_to_stop_and_ends_the_servers_input() {
    for more in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        if more == ["--contain=pidns"] && !sys::is_root() {
            continue;
        }
        let scene = Scene::new().stdin_pipe();
        let source = format!("unix:{}", scene.directory().join("socket").display());
        let options = [&["--inject", &source], more].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).command(&[
            ACTOR,
            "tree",
            // A server that ends at SIGTERM may get it before it reads the end of its input. One that ends with the
            // relay, in the same instant, ends by itself.
            "server:eof=7:slow=1000:ignore=TERM",
        ]));
        run.log.ready("server");
        run.signal(libc::SIGKILL);
        run.wait_empty();
        let stderr = run.stderr();
        assert!(stderr.contains("relay-killed"), "{stderr}");
        run.log.wait("server", "eof");
    }
}

/// The end of treaper resumes it. Until then another process has to, as with a suspended treaper.
#[test]
fn a_suspended_relay_ends_with_treaper() {
    for more in [&[][..], &["--no-guard"]] {
        let scene = Scene::new().stdin_pipe();
        let source = format!("unix:{}", scene.directory().join("socket").display());
        let options = [&["--inject", &source], more].concat();
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
        until("a server", || !run.named("cat").is_empty());
        run.signal(libc::SIGSTOP);
        until_state(&[run.main], 'T');
        run.named("cat")[0].kill();
        let exit = run.wait_clean();
        assert_eq!(exit.code(), Some(128 + libc::SIGKILL), "{}", run.stderr());
    }
}

/// Nothing shows the host that what is behind the relay is suspended.
#[test]
fn a_suspended_treaper_behind_a_relay_acts_on_what_stops_it() {
    for more in [&[][..], &["--no-guard"]] {
        for (signal, trigger) in [
            (libc::SIGTERM, "terminate"),
            (libc::SIGKILL, "relay-killed"),
        ] {
            let scene = Scene::new().stdin_pipe();
            let source = format!("unix:{}", scene.directory().join("socket").display());
            let options = [&["--inject", &source, "--report", "fd:2"], more].concat();
            let mut run = scene.start(&Wrap::Treaper(&options).command(&["cat"]));
            until("a server", || !run.named("cat").is_empty());
            // Until it has its name, it is called `treaper`, too.
            run.relay();
            // The only treaper, or the shim.
            let treaper = run.named("treaper")[0].pid;
            sys::kill(treaper, libc::SIGSTOP).unwrap();
            until_state(&[treaper], 'T');
            run.signal(signal);
            run.wait_empty();
            let report = format!("\"trigger\":\"{trigger}\"");
            assert!(run.stderr().contains(&report), "{more:?}: {}", run.stderr());
        }
    }
}

/// It is forwarded, and waits for a suspended server, as without treaper.
#[test]
fn sigint_resumes_no_suspended_treaper_behind_a_relay() {
    let scene = Scene::new().stdin_pipe();
    let source = format!("unix:{}", scene.directory().join("socket").display());
    let mut run = scene.start(&Wrap::Treaper(&["--inject", &source]).command(&["cat"]));
    until("a server", || !run.named("cat").is_empty());
    let (relay, shim) = (run.relay(), run.shim());
    sys::kill(shim, libc::SIGSTOP).unwrap();
    until_state(&[shim], 'T');
    run.signal(libc::SIGINT);
    until("a relay that has passed it on", || common::is_quiet(relay));
    assert_eq!(proc::state(shim), 'T');
    run.signal(libc::SIGTERM);
    run.wait_clean();
}

/// A host whose server is `server`, with a stdin that outlives the host.
fn hosted(scene: Scene, server: &str) -> Run {
    let (read, write) = sys::pipe().unwrap();
    let scene = scene.with(|command| {
        command.stdin(read);
    });
    let script = format!("exec 3<&0; {server} <&3 & wait");
    let mut run = scene.start(&["sh", "-c", &script]);
    run.stdin = Some(write.into());
    until("a server", || !run.named("sleep").is_empty());
    run
}

/// The kernel resumes the child of the host alone, which is the relay.
#[test]
fn what_is_suspended_hides_no_end_of_the_host() {
    for behind_the_relay in [false, true] {
        let scene = Scene::new();
        let source = format!("unix:{}", scene.directory().join("socket").display());
        let mut run = hosted(scene, &format!("{TREAPER} --inject {source} sleep 1000"));
        let relay = run.relay();
        let suspended = if behind_the_relay {
            vec![run.shim(), run.monitor()]
        } else {
            vec![relay]
        };
        for process in &suspended {
            sys::kill(*process, libc::SIGSTOP).unwrap();
        }
        until_state(&suspended, 'T');
        run.signal(libc::SIGKILL);
        run.wait_empty();
        assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
    }
    // The control: without treaper the server outlives its host.
    let mut run = hosted(Scene::new(), "sleep 1000");
    run.signal(libc::SIGKILL);
    run.wait();
    assert_eq!(run.named("sleep").len(), 1);
}

#[test]
fn the_last_output_arrives_when_the_shim_or_the_monitor_is_killed() {
    // It answers the stop signal with more than a pipe holds.
    let script = "trap 'head -c 300000 /dev/zero | tr \"\\0\" x; echo; echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    for victim in ["treaper", "tree-monitor"] {
        let scene = Scene::new().stdin_pipe();
        let source = format!("unix:{}", scene.directory().join("socket").display());
        let options = ["--inject", &source, "--turn=method=p", "--cancel=method=c"];
        let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
        until("ready", || run.stdout() == "ready\n");
        let pid = wait_for(&run, victim);
        sys::kill(pid, libc::SIGKILL).unwrap();
        until("the last output", || run.stdout().ends_with("bye\n"));
        assert_eq!(
            run.stdout().len(),
            "ready\n".len() + 300_001 + "bye\n".len()
        );
        run.wait_empty();
    }
}

#[test]
fn a_process_outside_of_the_tree_that_writes_on_keeps_no_relay_alive() {
    let scene = Scene::new().stdin_pipe();
    let source = format!("unix:{}", scene.directory().join("socket").display());
    let options = ["--inject", &source, "--turn=method=p", "--cancel=method=c"];
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["sleep", "1000"]));
    until("a server", || !run.named("sleep").is_empty());
    let server = run.named("sleep")[0].pid;
    let name = format!("/proc/{server}/fd/1");
    let mut stream = fs::File::options().write(true).open(name).unwrap();
    let flood = std::thread::spawn(move || while stream.write_all(&[b'x'; 4096]).is_ok() {});
    // A host that reads slowly, so that there is always more.
    let mut output = run.take_stdout();
    let host = std::thread::spawn(move || {
        let mut count = 0;
        loop {
            match output.read(&mut [0; 4096]) {
                Ok(0) => return count,
                Ok(more) => count += more,
                Err(_) => {
                    sys::poll(
                        &[(output.as_raw_fd(), libc::POLLIN)],
                        Some(common::patience()),
                    );
                }
            }
            sys::pause_for(Duration::from_millis(2));
        }
    });
    common::until_it_rests(server);
    run.signal(libc::SIGTERM);
    run.wait_empty();
    flood.join().unwrap();
    // The control: it did arrive.
    assert!(host.join().unwrap() > 100_000);
}

#[test]
fn a_host_that_reads_nothing_keeps_no_tree_and_no_relay_alive() {
    let scene = Scene::new().stdin_pipe();
    let source = format!("unix:{}", scene.directory().join("socket").display());
    let options = [
        "--inject",
        &source,
        "--turn=method=p",
        "--cancel=method=c",
        "--grace",
        "200ms",
    ];
    let script = "echo ready; yes";
    let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", script]));
    until("a server", || !run.named("yes").is_empty());
    common::until_it_rests(run.named("yes")[0].pid);
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    run.wait_clean();
    // The relay waits five seconds for a reader.
    let took = sys::now_ms() - before;
    assert!((4000..60_000).contains(&took), "{took} ms");
    let stderr = run.stderr();
    assert!(
        stderr.contains("the end of the server's output is lost"),
        "{stderr}"
    );
}
