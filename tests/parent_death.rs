//! `parent-exit` and `watched-exit`: they come if and only if the host is really gone.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, sys};

const TREE: &str = "server:on=TERM/3[worker:setsid,deep:daemon:ignore=TERM]";
const QUICK: Wrap = Wrap::Treaper(&["-v", "--drain", "100ms", "--grace", "200ms"]);

/// Long enough for a false alarm to show.
const A_WHILE: Duration = Duration::from_millis(400);

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn start_below(host: &[&str], command: &[String]) -> Run {
    let mut all = words(&[ACTOR, "host"]);
    all.extend(words(host));
    all.push("--".to_owned());
    all.extend_from_slice(command);
    let mut run = Scene::new().start(&all);
    for name in ["server", "worker", "deep"] {
        run.log.ready(name);
    }
    run.log.wait("host", "spawned");
    run
}

fn hosted(wrap: Wrap, host: &[&str]) -> Run {
    start_below(host, &wrap.tree(TREE))
}

/// The host is killed, and all processes end. Its end of a stdin pipe is closed a moment before the host is gone, so
/// either can be seen first.
fn dies_with_its_host(mut run: Run) {
    run.signal(libc::SIGKILL);
    run.wait_empty();
    let stderr = run.stderr();
    assert!(
        stderr.contains("parent-exit") || stderr.contains("stdin-eof"),
        "{stderr}"
    );
}

fn lives_on(run: &mut Run) {
    common::until("no first leader", || {
        run.named("treaper").len() == 1 && run.named("tree-monitor").len() == 1
    });
    let (host, before) = (run.main, run.survivors().len());
    let alarm = run.log.comes_within(A_WHILE, "server", "signal");
    assert!(
        !alarm,
        "a false alarm: {}\n{:#?}",
        run.stderr(),
        run.log.lines
    );
    assert_eq!(
        run.survivors().len(),
        before,
        "a process is gone: {}",
        run.stderr()
    );
    assert!(common::proc::Process::read(host).is_some());
}

#[test]
fn nothing_outlives_a_killed_host() {
    let mut run = hosted(QUICK, &["--stdin", "null"]);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"), "{}", run.stderr());
}

#[test]
fn control_without_treaper_everything_outlives_a_killed_host() {
    let mut run = hosted(Wrap::Bare, &["--stdin", "null"]);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 3);
}

#[test]
fn nothing_outlives_a_host_whose_other_child_holds_stdin_open() {
    let mut run = hosted(QUICK, &["--stdin", "pipe", "--keeper"]);
    let keeper = run.log.ready("keeper");
    run.signal(libc::SIGKILL);
    run.wait();
    common::until("the tree is gone", || {
        run.survivors().iter().all(|p| p.pid == keeper)
    });
    assert_eq!(
        run.survivors().len(),
        1,
        "treaper must not end the keeper of the pipe"
    );
}

#[test]
fn a_host_whose_spawning_thread_ends_keeps_its_server() {
    let mut run = hosted(QUICK, &["--stdin", "pipe", "--thread"]);
    run.log.wait("host", "thread-ended");
    lives_on(&mut run);
    dies_with_its_host(run);
}

#[test]
fn a_host_that_execs_keeps_its_server() {
    let mut run = hosted(QUICK, &["--stdin", "pipe", "--exec"]);
    run.log.ready("newhost");
    lives_on(&mut run);
    dies_with_its_host(run);
}

#[test]
fn a_host_of_another_uid_is_watched_though_its_death_signal_cannot_arrive() {
    if !sys::is_root() {
        return skip("only root can give a host another uid");
    }
    dies_with_its_host(hosted(QUICK, &["--stdin", "null", "--drop-uid", "12345"]));
}

#[test]
fn a_launcher_that_lives_on_hides_nothing() {
    let command = [words(&[ACTOR, "launch", "--"]), QUICK.tree(TREE)].concat();
    for kind in ["pipe", "socketpair", "tcp"] {
        // The keeper has the write end, so only the chain of processes shows the end of the host.
        let mut run = start_below(&["--stdin", kind, "--keeper"], &command);
        let (keeper, launcher) = (run.log.ready("keeper"), run.log.ready("launcher"));
        run.signal(libc::SIGKILL);
        run.wait();
        common::until("the tree is gone", || run.survivors().len() == 1);
        assert_eq!(run.survivors()[0].pid, keeper, "launcher {launcher}");
    }
}

#[test]
fn two_launchers_that_live_on_hide_nothing() {
    let command = [
        words(&[ACTOR, "launch", "--", ACTOR, "launch", "--"]),
        QUICK.tree(TREE),
    ]
    .concat();
    let mut run = start_below(&["--stdin", "pipe", "--keeper"], &command);
    run.log.ready("keeper");
    run.signal(libc::SIGKILL);
    run.wait();
    common::until("the tree is gone", || run.survivors().len() == 1);
}

#[test]
fn a_killed_launcher_is_a_dead_parent() {
    let command = [words(&[ACTOR, "launch", "--"]), QUICK.tree(TREE)].concat();
    let mut run = start_below(&["--stdin", "pipe"], &command);
    sys::kill(run.log.ready("launcher"), libc::SIGKILL).unwrap();
    run.wait_empty();
    assert!(run.stderr().contains("parent-exit"));
}

#[test]
fn no_parent_means_that_the_host_may_go() {
    let wrap = Wrap::Treaper(&["--no-parent", "--grace", "200ms"]);
    let mut run = hosted(wrap, &["--stdin", "null"]);
    let shim = run.shim();
    run.signal(libc::SIGKILL);
    run.wait();
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    assert!(!run.survivors().is_empty());
    sys::kill(shim, libc::SIGTERM).unwrap();
    run.wait_empty();
}

#[test]
fn a_watched_pid_takes_the_server_with_it() {
    let mut other = Scene::new().start(&[ACTOR, "tree", "other"]);
    let mut third = Scene::new().start(&[ACTOR, "tree", "third"]);
    let (pid, third_pid) = (other.log.ready("other"), third.log.ready("third"));
    let (pid, third_pid) = (pid.to_string(), third_pid.to_string());
    let options = [
        "-v",
        "--grace",
        "200ms",
        "--watch-pid",
        third_pid.as_str(),
        "--watch-pid",
        &pid,
    ];
    let mut run = hosted(Wrap::Treaper(&options), &["--stdin", "null"]);
    lives_on(&mut run);
    other.signal(libc::SIGKILL);
    run.wait_clean();
    assert!(run.stderr().contains("watched-exit"));
}

#[test]
fn a_watched_ancestor_takes_the_server_with_it() {
    // Stdin shows nothing, and the launcher, which is the parent, lives on.
    let options = ["-v", "--grace", "200ms", "--watch-ancestor", "host"];
    let command = [
        words(&[ACTOR, "launch", "--"]),
        Wrap::Treaper(&options).tree(TREE),
    ]
    .concat();
    let mut run = start_below(&["--stdin", "null"], &command);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("watched-exit"));
}

/// The nearest ancestor of that name is a copy of the host, which waits for the server.
#[test]
fn a_watched_ancestor_that_left_a_copy_of_itself_between_takes_the_server_with_it() {
    let options = ["-v", "--grace", "200ms", "--watch-ancestor", "host"];
    let mut run = hosted(Wrap::Treaper(&options), &["--stdin", "null", "--copy"]);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("watched-exit"), "{}", run.stderr());
}

/// The command name of Node 24 is `MainThread`. Here it is `host`, of the program `actor`.
#[test]
fn an_ancestor_is_also_known_by_the_file_name_of_its_program() {
    let options = ["-v", "--grace", "200ms", "--watch-ancestor", "actor"];
    let mut run = hosted(Wrap::Treaper(&options), &["--stdin", "null"]);
    run.signal(libc::SIGKILL);
    run.wait_empty();
    assert!(run.stderr().contains("watched-exit"), "{}", run.stderr());
}

/// npm writes its new title, `npm run dev`, into the first word of its command line.
#[test]
fn an_ancestor_is_also_known_by_the_first_word_of_its_title() {
    let treaper = format!("{TREAPER} --watch-ancestor=launcher true; exit $?");
    for title in [
        "launcher run dev",
        "/some/launcher",
        "/some folder/launcher",
    ] {
        let script = "title=$1; shift; exec -a \"$title\" sh -c \"$@\"";
        let words = ["-c", script, "bash", title, &treaper];
        let mut run = Scene::new().start(&[&["bash"][..], &words].concat());
        assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    }
}

#[test]
fn without_an_ancestor_of_that_name_nothing_is_started() {
    let command = Wrap::Treaper(&["--watch-ancestor", "nobody"]).command(&["echo", "started"]);
    for (scene, reason) in [
        (Scene::new(), "there are "),
        (
            Scene::new().pidns(),
            "there is none in this PID namespace\n",
        ),
    ] {
        let mut run = scene.start(&command);
        assert_eq!(run.wait_clean().code(), Some(125));
        let text = format!("cannot find an ancestor named 'nobody' (--watch-ancestor): {reason}");
        assert!(run.stderr().contains(&text), "{}", run.stderr());
        assert_eq!(run.stdout(), "");
    }
}

#[test]
fn a_watched_ancestor_is_the_nearest_of_that_name_and_another_program_above_may_end() {
    let options = ["-v", "--grace", "200ms", "--watch-ancestor", "host"];
    let nearest = words(&[ACTOR, "host", "--stdin", "inherit", "--"]);
    let command = [nearest, Wrap::Treaper(&options).tree(TREE)].concat();
    let mut run = start_below(&["--stdin", "null"], &command);
    run.log.wait_for(2, "host", "spawned");
    run.signal(libc::SIGKILL);
    run.wait();
    assert!(!run.log.comes_within(A_WHILE, "server", "signal"));
    sys::kill(run.shim(), libc::SIGTERM).unwrap();
    run.wait_empty();
}

#[test]
fn control_without_treaper_everything_outlives_a_host_that_left_a_copy_of_itself() {
    let mut run = hosted(Wrap::Bare, &["--stdin", "null", "--copy"]);
    run.signal(libc::SIGKILL);
    assert_eq!(run.wait().left.len(), 4);
}

#[test]
fn a_watched_pid_that_is_gone_already_is_an_error_before_the_start() {
    let mut other = Scene::new().start(&[ACTOR, "exit", "0"]);
    let pid = other.main.to_string();
    other.wait_empty();
    let options = ["--grace", "200ms", "--watch-pid", &pid];
    let wrap = Wrap::Treaper(&options);
    let mut run = Scene::new().start(&wrap.tree("server:on=TERM/3"));
    assert_eq!(run.wait_clean().code(), Some(125));
    let stderr = run.stderr();
    assert!(
        stderr.contains("--watch-pid") && stderr.contains(&pid),
        "{stderr}"
    );
    assert!(run.log.all("server", "ready").is_empty());
}

#[test]
fn a_watched_ancestor_that_does_not_exist_is_an_error_before_the_start() {
    let words = [
        TREAPER,
        "--watch-ancestor",
        "no-such-name",
        ACTOR,
        "tree",
        "server",
    ];
    let mut run = Scene::new().start(&words);
    let exit = run.wait_clean();
    let stderr = run.stderr();
    assert_eq!(exit.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("no-such-name") && stderr.lines().count() == 1,
        "{stderr}"
    );
    // The arena is an actor, too.
    let arena = format!("there are actor[{}], ", run.arena());
    assert!(
        stderr.contains(&arena) && stderr.contains("[1]"),
        "{stderr}"
    );
    assert!(run.log.all("server", "ready").is_empty());
}

#[test]
fn term_and_hup_blocked_or_chld_ignored_by_the_host_change_nothing() {
    for host in [
        &["--stdin", "null", "--block", "TERM+HUP"][..],
        &["--stdin", "null", "--ignore", "CHLD"],
        &[
            "--stdin",
            "null",
            "--block",
            "CHLD+TERM+HUP+ALRM",
            "--ignore",
            "CHLD+PIPE",
        ],
    ] {
        dies_with_its_host(hosted(QUICK, host));
        let run = hosted(QUICK, host);
        sys::kill(run.shim(), libc::SIGTERM).unwrap();
        let mut run = run;
        run.wait_empty();
    }
}

/// To treaper, the kernel announces the end of its host by SIGCONT, which is forwarded otherwise.
#[test]
fn what_announces_the_end_of_the_host_is_not_for_the_server() {
    for options in [
        &["--rewrite=CONT:USR1"][..],
        &["--rewrite=CONT:USR1", "--no-guard"],
    ] {
        let command = Wrap::Treaper(options).tree("server:record:on=TERM/3");
        let mut run = Scene::new().start(&[words(&[ACTOR, "host", "--"]), command].concat());
        run.log.ready("server");
        run.log.wait("host", "spawned");
        run.signal(libc::SIGKILL);
        run.wait_empty();
        let received = run.received("server");
        assert!(
            received.contains(&libc::SIGTERM),
            "{options:?}: {received:?}"
        );
        assert!(
            !received.contains(&libc::SIGUSR1),
            "{options:?}: {received:?}"
        );
    }
}
