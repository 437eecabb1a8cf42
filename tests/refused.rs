//! A filter of system calls refuses a call on which the loop rests: one message, no process survives, and the exit
//! status is 125.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, special, sys, until};

// Not actors, since an actor polls as well.
const STUBBORN: &str = "trap '' TERM; setsid sleep 1000 & (setsid sleep 1000 &) ; echo up; wait";

fn start(rules: &[&str], options: &[&str]) -> Run {
    start_in(Scene::new(), rules, options)
}

fn start_in(scene: Scene, rules: &[&str], options: &[&str]) -> Run {
    let server = Wrap::Treaper(options).command(&["sh", "-c", STUBBORN]);
    // As a leader of a session, treaper starts the server without a first leader, whose end it would
    // reap before the server is up.
    let before = [&[ACTOR, "faults"], rules, &["--", "setsid"]].concat();
    let words: Vec<&str> = before
        .into_iter()
        .chain(server.iter().map(String::as_str))
        .collect();
    scene.start(&words)
}

#[test]
fn a_loop_that_cannot_wait_leaves_no_process_and_says_why() {
    for (rule, options, what) in [
        ("ppoll=EPERM", &[][..], "cannot poll"),
        ("ppoll=EPERM", &["--no-guard"], "cannot poll"),
        ("ppoll=EPERM", &["--contain=pidns"], "cannot poll"),
        ("rt_sigtimedwait=EPERM", &[], "cannot wait for signals"),
        (
            "rt_sigtimedwait=EPERM",
            &["--contain=pidns"],
            "cannot wait for signals",
        ),
    ] {
        let scene = Scene::new();
        let file = scene.directory().join("report");
        let report = format!("--report={}", file.display());
        let options = [options, &[report.as_str()]].concat();
        let mut run = start_in(scene, &[rule], &options);
        assert_eq!(run.wait_clean().code(), Some(125), "{rule} {options:?}");
        let report = std::fs::read_to_string(file).unwrap();
        assert!(report.contains("\"exit_status\":125"), "{rule}: {report}");
        let printed = run.stderr();
        assert_eq!(printed.matches(what).count(), 1, "{rule}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{rule}: {printed}");
    }
}

/// Zombies are left, so treaper cannot see that the tree has ended.
#[test]
fn a_loop_that_cannot_reap_gives_up_when_the_time_is_over() {
    let changes = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
    let reap = changes | libc::WNOHANG | libc::__WALL;
    for options in [
        &["--kill-timeout=3s"][..],
        &["--kill-timeout=3s", "--no-guard"],
    ] {
        let mut run = start(&[&format!("waitid:3={reap}=EPERM")], options);
        // The end of the first leader may have made it reap before the server is up.
        until("a server that is up, or a loop that gives up", || {
            run.stdout().contains("up") || run.stderr().contains("cannot wait")
        });
        run.signal(libc::SIGCHLD);
        assert_eq!(run.wait_clean().code(), Some(125), "{options:?}");
        let printed = run.stderr();
        assert!(printed.contains("cannot wait for children"), "{printed}");
        assert!(printed.contains("survivor: "), "{printed}");
    }
}

/// PID 1 adopts all orphans anyway.
#[test]
fn only_pid_1_starts_a_server_where_it_cannot_become_a_subreaper() {
    for is_init in [false, true] {
        if is_init && !sys::is_root() {
            return skip("only root can make a PID namespace with a /proc of its own");
        }
        let scene = Scene::new();
        let scene = if is_init { scene.pidns() } else { scene };
        let set_child_subreaper = format!("prctl:0={}=EPERM", libc::PR_SET_CHILD_SUBREAPER);
        let server = Wrap::Treaper(&["--no-guard"]).command(&["sh", "-c", "exit 3"]);
        let before = [ACTOR, "faults", &set_child_subreaper, "--"].map(str::to_owned);
        let mut run = scene.start(&[&before[..], &server].concat());
        let expected = if is_init { 3 } else { 125 };
        assert_eq!(run.wait_clean().code(), Some(expected), "{}", run.stderr());
        let is_refused = run.stderr().contains("cannot become a subreaper");
        assert_eq!(is_refused, !is_init, "{}", run.stderr());
    }
}

/// As the other inits do.
#[test]
fn with_the_name_of_another_init_a_server_starts_where_it_cannot_become_a_subreaper() {
    let set_child_subreaper = format!("prctl:0={}=EPERM", libc::PR_SET_CHILD_SUBREAPER);
    for name in ["tini", "dumb-init", "catatonit"] {
        let scene = Scene::new();
        let path = scene.directory().join(name);
        std::os::unix::fs::symlink(TREAPER, &path).unwrap();
        let before = [ACTOR, "faults", &set_child_subreaper, "--"];
        let command = [path.to_str().unwrap(), "--", "sh", "-c", "exit 3"];
        let mut run = scene.start(&[&before[..], &command].concat());
        assert_eq!(run.wait_clean().code(), Some(3), "{name} {}", run.stderr());
        let said = "cannot become a subreaper: Operation not permitted, so orphans are not adopted";
        assert!(run.stderr().contains(said), "{name} {}", run.stderr());
    }
}

#[test]
fn a_limit_of_processes_is_named_with_what_is_needed() {
    for options in [&[][..], &["--no-guard"]] {
        let before = [ACTOR, "faults", "clone3=EAGAIN", "--"].map(str::to_owned);
        let server = Wrap::Treaper(options).command(&["true"]);
        let mut run = Scene::new().start(&[&before[..], &server].concat());
        assert_eq!(run.wait_clean().code(), Some(125));
        let stderr = run.stderr();
        assert!(
            stderr.contains("needs room for three more processes"),
            "{stderr}"
        );
    }
}

/// Together with its first leader, the server needs room for two. The limit is for all processes of a user, so each run
/// has one of its own.
#[test]
fn with_a_real_limit_of_processes_the_server_leads_nothing_or_is_not_started() {
    if !sys::is_root() {
        return skip("each run needs a uid of its own");
    }
    let wraps = [
        (Wrap::Bare, 0),
        (Wrap::Treaper(&["--no-guard"]), 2),
        (Wrap::Treaper(&[]), 3),
    ];
    for (number, (wrap, needed)) in (0..).zip(wraps) {
        for room in 0..4 {
            let limit = move || special::set_limit(libc::RLIMIT_NPROC, 1 + u64::from(room));
            let scene = Scene::new().uid(54_400 + 10 * number + room);
            let command = wrap.command(&["cat", "/proc/self/stat"]);
            let mut run = scene.before_exec(limit).start(&command);
            let code = run.wait_clean().code();
            let text = format!("{wrap:?}, room {room}: {}{}", run.stdout(), run.stderr());
            if room < needed {
                assert!(text.contains("needs room for three more"), "{text}");
                assert_eq!(code, Some(125), "{text}");
                continue;
            }
            assert_eq!(code, Some(0), "{text}");
            let shown = run.stdout();
            let fields: Vec<&str> = shown.split(' ').collect();
            let (pid, group, session) = (fields[0], fields[4], fields[5]);
            assert!(pid != group && pid != session, "{text}");
        }
    }
}

#[test]
fn control_without_the_filter_the_server_runs() {
    let mut run = start(&["clone3=ENOSYS"], &["--grace=100ms"]);
    until("a server that is up", || run.stdout().contains("up"));
    run.signal(libc::SIGTERM);
    assert_eq!(run.wait_clean().code(), Some(137));
}

#[test]
fn control_bare_the_tree_survives() {
    let mut run = Scene::new().start(&["sh", "-c", STUBBORN]);
    until("a server that is up", || run.stdout().contains("up"));
    sys::kill(run.main, libc::SIGKILL).unwrap();
    assert!(run.wait().left.len() >= 2);
}
