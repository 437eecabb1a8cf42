//! `--doctor`: what this place offers, for people and for programs. The status says whether the level that was asked
//! for can be used.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::unix::fs::OpenOptionsExt;

use common::{ACTOR, Run, Scene, TREAPER, Wrap, sys, until};
use serde_json::Value;

const USER: u32 = 65534;
const LEVELS: [&str; 3] = ["group", "cgroup", "pidns"];

/// Its output, and its exit status.
fn ask(scene: Scene, options: &[&str]) -> (String, Option<i32>) {
    let words = [&[TREAPER], options].concat();
    let mut run = scene.start(&words);
    let code = run.wait_clean().code();
    assert_eq!(run.stderr(), "", "{options:?}");
    (run.stdout(), code)
}

fn json(scene: Scene, options: &[&str]) -> (Value, Option<i32>) {
    let (text, code) = ask(scene, &[&["--doctor=json"], options].concat());
    (serde_json::from_str(&text).unwrap(), code)
}

#[test]
fn the_table_names_every_check_level_and_event() {
    let (text, code) = ask(Scene::new(), &["--doctor"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    let (report, _) = json(Scene::new(), &[]);
    for part in ["checks", "levels", "left"] {
        for key in report[part].as_object().unwrap().keys() {
            assert!(text.contains(key.as_str()), "{key}: {text}");
        }
    }
}

/// The host and stdin come first, because only the doctor shows them.
#[test]
fn the_table_begins_with_the_host_and_stdin() {
    let (text, _) = ask(Scene::new(), &["--doctor"]);
    let lines: Vec<&str> = text.lines().skip(1).take(4).collect();
    let starts = [
        "",
        "This place (a line with - is neither good nor bad)",
        "  host  ",
        "  stdin  ",
    ];
    let pairs = lines.iter().zip(starts);
    assert!(pairs.clone().count() == 4, "{text}");
    assert!(
        pairs
            .into_iter()
            .all(|(line, start)| line.starts_with(start)),
        "{text}"
    );
}

/// As Node 24, whose command name is that of its thread.
#[test]
fn a_host_named_as_a_thread_is_shown_by_its_program() {
    for (name, shown) in [("MainThread", "actor"), ("another", "another")] {
        let words = [TREAPER, "--doctor=json"];
        let mut run = Scene::new().reaper_named(name).start(&words);
        run.wait_clean();
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let expected = format!("{shown}[{}]", run.arena());
        assert_eq!(report["checks"]["host"]["detail"], expected);
    }
}

#[test]
fn the_json_has_what_a_program_decides_by() {
    let (report, code) = json(Scene::new(), &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel"], kernel.trim());
    assert_eq!(report["chosen"], "group");
    assert_eq!(report["available"], true);
    for check in ["pidfd_send_signal", "pidfd_open", "/proc", "host"] {
        assert!(report["checks"][check]["ok"].is_boolean(), "{check}");
        assert!(report["checks"][check]["detail"].is_string(), "{check}");
    }
    for level in LEVELS {
        assert!(report["levels"][level]["available"].is_boolean(), "{level}");
    }
    assert_eq!(report["levels"]["group"]["available"], true);
}

/// Only where there is a service manager, and with the line for its unit if treaper cannot ask it.
#[test]
fn a_unit_for_an_older_systemd_gets_the_line_that_it_needs() {
    let older = "unset MEMORY_PRESSURE_WATCH";
    let newer = "export MEMORY_PRESSURE_WATCH=/dev/null";
    let socket = "export NOTIFY_SOCKET=/run/systemd/notify";
    for (lines, ok, detail) in [
        (format!("unset NOTIFY_SOCKET; {newer}"), Value::Null, None),
        (
            format!("{socket}; {older}"),
            Value::Null,
            Some("add NotifyAccess=all to the unit"),
        ),
        (
            format!("{socket}; {newer}"),
            Value::Bool(true),
            Some("asks systemd to accept it"),
        ),
    ] {
        let line = format!("{lines}; SYSTEMD_EXEC_PID=$$ exec \"$0\" --doctor=json");
        let mut run = Scene::new().start(&["sh", "-c", &line, TREAPER]);
        assert_eq!(run.wait_clean().code(), Some(0));
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let check = &report["checks"]["READY=1"];
        assert_eq!(check["ok"], ok, "{lines}");
        assert_eq!(check["detail"].is_string(), detail.is_some(), "{lines}");
        let said = check["detail"].as_str().unwrap_or_default();
        assert!(said.contains(detail.unwrap_or_default()), "{said}");
    }
}

#[test]
fn the_status_says_whether_a_level_can_be_used_and_a_start_agrees() {
    for user in [None, sys::is_root().then_some(USER)] {
        let scene = || user.map_or_else(Scene::new, |uid| Scene::new().uid(uid));
        for level in LEVELS {
            let contain = format!("--contain={level}");
            let (report, code) = json(scene(), &[&contain]);
            let available = report["levels"][level]["available"] == true;
            assert_eq!(report["chosen"], level);
            assert_eq!(report["available"], available, "{level}");
            assert_eq!(code, Some(if available { 0 } else { 125 }), "{level}");
            // A start works if and only if the doctor says so.
            let wrap = [contain.as_str()];
            let mut run = scene().start(&Wrap::Treaper(&wrap).command(&["true"]));
            assert_eq!(run.wait_clean().code(), code, "{level}: {}", run.stderr());
            let reason = report["levels"][level]["reason"].as_str();
            assert_eq!(reason.is_none(), available, "{level}");
            assert!(run.stderr().contains(reason.unwrap_or_default()), "{level}");
        }
    }
}

#[test]
fn a_user_without_a_group_of_its_own_gets_the_reason() {
    if !sys::is_root() {
        return common::skip("needs a user without a group of its own");
    }
    let (report, code) = json(Scene::new().uid(USER), &["--contain=cgroup"]);
    assert_eq!(code, Some(125));
    let reason = report["levels"]["cgroup"]["reason"].as_str().unwrap();
    assert!(reason.contains("Delegate=yes"), "{reason}");
    let (root, _) = json(Scene::new(), &[]);
    let (user, _) = json(Scene::new().uid(USER), &[]);
    let others = "processes of another uid";
    assert_eq!(root["left"][others], "none");
    assert_ne!(user["left"][others], "none");
}

#[test]
fn a_row_with_an_exception_has_its_note_and_no_other_row_has() {
    let sigkill = "processes that SIGKILL cannot end";
    let launchers = "the same, behind npx, make, sh -c";
    let (report, _) = json(Scene::new(), &[]);
    let note = |row: &str| report["notes"][row].as_str().unwrap_or("none").to_owned();
    assert!(note(sigkill).starts_with("They are in uninterruptible sleep"));
    assert!(note(launchers).starts_with("If stdin is not a pipe"));
    assert_eq!(note("the server itself is SIGKILLed"), "none");
    let (text, _) = ask(Scene::new(), &["--doctor"]);
    let notes: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert!(
        notes.iter().any(|line| line.starts_with("[7] They are in")),
        "{text}"
    );
    // Only a cgroup has this exception.
    assert!(notes.iter().all(|line| !line.starts_with("[6]")), "{text}");
}

#[test]
fn a_reason_does_not_name_the_option_again() {
    let faults = |rule: &str, level: &str| {
        let words = [ACTOR, "faults", rule, "--", TREAPER, "--doctor=json"];
        let mut run = Scene::new().start(&words);
        run.wait_empty();
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let reason = report["levels"][level]["reason"].as_str();
        reason.unwrap_or_default().to_owned()
    };
    let reason = faults("open~/proc/self/mountinfo=EACCES", "cgroup");
    assert!(
        reason.starts_with("cannot read /proc/self/mountinfo: "),
        "{reason}"
    );
    let reason = faults("socketpair=EMFILE", "group");
    assert_eq!(reason, common::describe(libc::EMFILE));
    // Any other message is the reason as a whole.
    let reason = faults("signalfd4=ENOMEM", "group");
    let no_memory = common::describe(libc::ENOMEM);
    assert_eq!(reason, format!("cannot make a signalfd: {no_memory}"));
    let words = [
        ACTOR,
        "faults",
        "signalfd4=ENOMEM",
        "--",
        TREAPER,
        "--doctor",
    ];
    let mut run = Scene::new().start(&words);
    run.wait_empty();
    let text = run.stdout();
    let rows = text.lines().filter(|line| line.ends_with(&reason));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.split_whitespace().take(2).collect())
        .collect();
    assert!(rows.contains(&vec!["group", "no"]), "{text}");
}

#[test]
fn as_pid_1_it_reports_that_no_process_outside_can_be_watched() {
    let (report, code) = json(Scene::new().pidns(), &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["checks"]["host"]["ok"], false);
    assert_eq!(report["checks"]["/proc"]["ok"], true);
}

#[test]
fn it_leaves_no_group_behind() {
    let Some(place) = common::place::Place::new() else {
        return common::skip("no cgroup v2 that this user may change");
    };
    ask(place.scene(), &["--doctor"]);
    assert!(place.groups().is_empty());
}

/// A command for `sh -c` that keeps the shell.
const STAYS: &str = "\"$0\" \"$@\"; exit $?";

/// What the doctor says of the host and of stdin, and the pid of the host, which starts `before` and then the doctor.
fn hosted(stdin: &str, before: &[&str], options: &[&str]) -> (String, String, i32) {
    hosted_by(&[ACTOR], stdin, before, options)
}

/// The same, with these words before those of the host.
fn hosted_by(
    actor: &[&str],
    stdin: &str,
    before: &[&str],
    options: &[&str],
) -> (String, String, i32) {
    let host = ["host", "--stdin", stdin, "--"];
    let treaper = [TREAPER, "--doctor=json"];
    let words = [actor, &host, before, &treaper, options].concat();
    let mut run = Scene::new().start(&words);
    let host = run.log.wait("host", "spawned").pid();
    // The host exits when the doctor has.
    run.wait_clean();
    let report: Value = serde_json::from_str(&run.stdout()).unwrap();
    let detail = |check: &str| {
        let detail = report["checks"][check]["detail"].as_str();
        detail.unwrap().to_owned()
    };
    (detail("host"), detail("stdin"), host)
}

#[test]
fn the_host_is_named_with_the_launchers_in_front_of_it() {
    let (named, stdin, host) = hosted("null", &[], &[]);
    assert_eq!(named, format!("host[{host}]"));
    assert_eq!(stdin, "no pipe, socket or terminal, not watched");
    let (named, stdin, host) = hosted("pipe", &["sh", "-c", STAYS], &[]);
    assert!(
        named.starts_with(&format!("host[{host}], behind sh[")),
        "{named}"
    );
    assert_eq!(stdin, "pipe, watched");
    let (_, stdin, _) = hosted("pipe", &[], &["--stdin=ignore"]);
    assert_eq!(stdin, "pipe, not watched");
    let (_, stdin, _) = hosted("socketpair", &[], &[]);
    assert_eq!(stdin, "socket, watched");
}

#[test]
fn what_cannot_be_watched_although_it_was_asked_for_is_named() {
    let (named, stdin, host) = hosted("null", &[], &["--stdin=watch", "--watch-ancestor=nobody"]);
    assert!(
        named.starts_with("cannot find an ancestor named 'nobody'")
            && named.contains(&format!("host[{host}]")),
        "{named}"
    );
    assert!(stdin.ends_with("so it cannot be watched"), "{stdin}");
}

#[test]
fn a_host_that_a_session_hides_is_named_with_the_option_that_watches_it() {
    let shell = ["setsid", "sh", "-c", STAYS];
    let (named, _, host) = hosted("null", &shell, &[]);
    let hidden = format!("hides host[{host}]: add --watch-ancestor=host");
    assert!(
        named.starts_with("sh[") && named.ends_with(&hidden),
        "{named}"
    );
    let (named, _, host) = hosted("null", &shell, &["--watch-ancestor=host"]);
    assert!(
        named.ends_with(&format!("; also watched: host[{host}]")),
        "{named}"
    );
    // This one is no shell, so it is the host itself.
    let (named, _, host) = hosted_by(&["setsid", "-w", ACTOR], "null", &[], &[]);
    assert_eq!(named, format!("host[{host}]"));
}

#[test]
fn where_no_host_is_watched_the_reason_is_named() {
    let (named, _, _) = hosted("null", &["nohup"], &[]);
    assert_eq!(named, "none: nohup lets the server outlive its host");
    let (named, _, _) = hosted("null", &[], &["--no-parent"]);
    assert_eq!(named, "not watched (--no-parent)");
}

const HOST: &str = "the host ends, crashes or is SIGKILLed";
const ALONE: &str = "the same, but stdin stays open";
const GROUP: &str = "the host's process group is SIGKILLed";

/// A child of the shell holds the other end, as in a pipeline. So the end of stdin says nothing about the host, and if
/// nothing else is watched, all processes are left when the host ends.
#[test]
fn a_pipe_whose_other_end_no_host_holds_is_not_watched_unless_it_is_asked_for() {
    let pipe = "exec 3< <(exec sleep 1000); pid=$!; \"$@\" <&3; kill $pid; wait $pid";
    let watched = |options: &[&str]| {
        let words = ["bash", "-c", pipe, "bash", TREAPER, "--doctor=json"];
        let mut run = Scene::new().start(&[&words[..], options].concat());
        run.wait_clean();
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let stdin = report["checks"]["stdin"]["detail"].as_str().unwrap();
        let left = report["left"][HOST].as_str().unwrap();
        (stdin.to_owned(), left.to_owned())
    };
    let alone = ["--no-parent", "--no-guard"];
    let (stdin, left) = watched(&alone);
    let other = "pipe, not watched: no process that started treaper holds the other end";
    assert_eq!((&*stdin, &*left), (other, "all"));
    let (stdin, left) = watched(&[&alone[..], &["--stdin=watch"]].concat());
    assert_eq!((&*stdin, &*left), ("pipe, watched", "all"));
}

/// A run of treaper below a host, and what the doctor has said about the event that it gets.
struct Case {
    what: String,
    run: Run,
    left: String,
    /// The triggers that the lines on the host and on stdin allow.
    triggers: Vec<&'static str>,
}

/// Treaper, started by a host that leads its group, with these options and a word of a shell.
fn below_host(keeper: bool, watched: &str, options: &[&str], rest: &[&str]) -> Run {
    let line = format!("exec \"$0\" {watched} \"$@\"");
    let host = [ACTOR, "host", "--own-group", "--stdin", "pipe"];
    let keeper: &[&str] = if keeper { &["--keeper"] } else { &[] };
    let shell = ["--", "sh", "-c", &line, TREAPER];
    Scene::new().start(&[&host, keeper, &shell, options, rest].concat())
}

/// For each combination of what is watched, with one process and with two, that is left which the rows say.
#[test]
fn what_is_left_after_the_end_of_the_host_or_of_its_group_is_what_the_doctor_says() {
    let mut asked = Vec::new();
    for parent in [&[][..], &["--no-parent"]] {
        for stdin in [&[][..], &["--stdin=ignore"]] {
            for guard in [&[][..], &["--no-guard"]] {
                for watched in [
                    "",
                    "--watch-pid=$PPID",
                    "--watch-pid=1",
                    "--watch-ancestor=host",
                    "\"--watch-ancestor=$(cat /proc/1/comm)\"",
                ] {
                    let options = [parent, stdin, guard].concat();
                    let run = below_host(false, watched, &options, &["--doctor=json"]);
                    asked.push((options, watched, run));
                }
            }
        }
    }
    let tree = "server:on=TERM/3[other:setsid]";
    let start = ["--grace=200ms", "--drain=100ms", "--", ACTOR, "tree", tree];
    let mut cases = Vec::new();
    for (options, watched, mut run) in asked {
        run.wait_clean();
        let report: Value = serde_json::from_str(&run.stdout()).unwrap();
        let line = |check: &str| report["checks"][check]["detail"].as_str().unwrap();
        let mut triggers = vec!["shim-killed"];
        for (trigger, is_possible) in [
            ("parent-exit", line("host").starts_with("host[")),
            ("watched-exit", line("host").contains("also watched: host[")),
            ("stdin-eof", line("stdin") == "pipe, watched"),
        ] {
            triggers.extend(is_possible.then_some(trigger));
        }
        let left = &report["left"];
        assert_eq!(left[HOST], left["the same, behind npx, make, sh -c"]);
        for row in [HOST, ALONE, GROUP] {
            let run = below_host(row == ALONE, watched, &options, &start);
            cases.push(Case {
                what: format!("{row}: {options:?} {watched}"),
                run,
                left: left[row].as_str().unwrap().to_owned(),
                triggers: triggers.clone(),
            });
        }
    }
    for case in &mut cases {
        case.run.log.ready("server");
        case.run.log.ready("other");
    }
    common::first_second_over();
    for Case { what, run, .. } in &cases {
        if what.starts_with(GROUP) {
            sys::kill_group(run.main, libc::SIGKILL).unwrap();
        } else {
            run.signal(libc::SIGKILL);
        }
    }
    let gone = |run: &Run, name: &str| run.named(name).is_empty();
    for case in &mut cases {
        let (what, run) = (&case.what, &mut case.run);
        match case.left.as_str() {
            "none" => until(what, || gone(run, "server") && gone(run, "other")),
            "some" => until(what, || gone(run, "server")),
            _ => continue,
        }
        let said = run.stderr();
        let triggers = &case.triggers;
        let is_allowed = |line: &str| triggers.iter().any(|name| line.contains(name));
        assert!(said.lines().all(is_allowed), "{what}: {said}");
    }
    // By now all others have ended: a stop of these would have, too.
    for Case {
        what, run, left, ..
    } in &cases
    {
        let alive = [!gone(run, "server"), !gone(run, "other")];
        let expected = match left.as_str() {
            "none" => [false, false],
            "some" => [false, true],
            _ => [true, true],
        };
        assert_eq!(alive, expected, "{what}: {left}");
    }
    for left in ["none", "some", "all"] {
        let count = cases.iter().filter(|case| case.left == left).count();
        assert!(count > 4, "{left}: {count}");
    }
}

/// An option that a start refuses is a row that says no, and no other one is.
#[test]
fn a_row_says_whether_a_start_with_an_option_would_be_refused() {
    let directory = common::scene::Directory::new();
    let good = directory.0.join("file");
    let [good, folder] = [&good, &directory.0].map(|path| path.to_str().unwrap());
    let path = |name: &str| directory.0.join(name).to_str().unwrap().to_owned();
    let [unread, read, socket, new] = ["unread", "read", "socket", "new"].map(path);
    for fifo in [&unread, &read] {
        sys::mkfifo(fifo.as_ref());
    }
    let missing = directory.0.join("missing");
    let missing = missing.to_str().unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut reader = std::fs::OpenOptions::new();
    let reader = reader.read(true).custom_flags(libc::O_NONBLOCK);
    let _reader = reader.open(&read).unwrap();
    // Links to files that a start could make, or could not.
    let [link, dangling] = ["link", "dangling"].map(path);
    std::os::unix::fs::symlink("linked", &link).unwrap();
    std::os::unix::fs::symlink("no/such/file", &dangling).unwrap();
    // Of a FIFO only a start can say whether it has a reader.
    for (row, option, possible, expected) in [
        ("--idle", "--idle=1h", Some(false), false),
        ("--spare", "--spare=tmux", Some(true), true),
        ("--stderr", &format!("--stderr={good}"), Some(true), true),
        ("--stderr", &format!("--stderr={new}"), Some(true), true),
        ("--stderr", "--stderr=/no/such/file", Some(false), false),
        // Only a folder could have this name.
        (
            "--stderr",
            &format!("--stderr={missing}/"),
            Some(false),
            false,
        ),
        (
            "--report",
            &format!("--report={missing}/"),
            Some(false),
            false,
        ),
        ("--stderr", "--stderr=", Some(false), false),
        (
            "--stderr",
            &format!("--stderr={folder}"),
            Some(false),
            false,
        ),
        (
            "--stderr",
            &format!("--stderr={socket}"),
            Some(false),
            false,
        ),
        ("--stderr", &format!("--stderr={unread}"), None, false),
        ("--stderr", &format!("--stderr={read}"), None, true),
        ("--report", &format!("--report={good}"), Some(true), true),
        (
            "--report",
            &format!("--report={folder}"),
            Some(false),
            false,
        ),
        (
            "--report",
            &format!("--report={socket}"),
            Some(false),
            false,
        ),
        ("--report", &format!("--report={unread}"), Some(true), true),
        ("--report", &format!("--report={link}"), Some(true), true),
        (
            "--report",
            &format!("--report={dangling}"),
            Some(false),
            false,
        ),
        ("--report", "--report=fd:700", Some(false), false),
        ("--finally", "--finally=true", Some(true), true),
    ] {
        let (report, _) = json(Scene::new(), &[option]);
        let found = &report["checks"][row];
        assert_eq!(found["ok"].as_bool(), possible, "{option}: {found}");
        // stdin of a scene is /dev/null.
        let command = Wrap::Treaper(&[option]).command(&["true"]);
        let mut run = Scene::new().start(&command);
        let started = run.wait_clean().code() == Some(0);
        assert_eq!(started, expected, "{option}: {}", run.stderr());
        let reason = found["detail"].as_str().unwrap();
        assert!(
            started || possible.is_none() || run.stderr().contains(reason),
            "{reason}"
        );
        let (report, _) = json(Scene::new(), &[]);
        assert!(report["checks"].get(row).is_none(), "{row}");
    }
    if sys::is_root() {
        let options = ["--contain=cgroup", "--spare=tmux"];
        let (report, _) = json(Scene::new(), &options);
        assert_eq!(report["checks"]["--spare"]["ok"], false);
    }
}

/// It would be known only at the end of the run.
#[test]
fn a_descriptor_that_cannot_be_written_to_is_no_place_for_a_report() {
    let opened = |write: bool, flags: i32| {
        let mut file = std::fs::OpenOptions::new();
        let file = file.read(true).write(write).custom_flags(flags);
        file.open("/dev/null").unwrap()
    };
    for (file, expected) in [
        (opened(false, 0), false),
        (opened(false, libc::O_PATH), false),
        (opened(true, 0), true),
    ] {
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let scene = || Scene::new().before_exec(move || sys::set_cloexec(number, false));
        for prefix in ["fd:", "/dev/fd/"] {
            let option = format!("--report={prefix}{number}");
            let (report, _) = json(scene(), &[&option]);
            let row = &report["checks"]["--report"];
            assert_eq!(row["ok"], expected, "{option}: {row}");
            let command = Wrap::Treaper(&[&option]).command(&["true"]);
            let mut run = scene().start(&command);
            let started = run.wait_clean().code() == Some(0);
            assert_eq!(started, expected, "{option}: {}", run.stderr());
            let reason = row["detail"].as_str().unwrap();
            let has_named = started || reason == common::describe(libc::EBADF);
            assert!(
                has_named && (started || run.stderr().contains(reason)),
                "{reason}"
            );
        }
    }
}

/// A bind mount hides the shell.
#[test]
fn without_a_shell_the_command_of_finally_is_refused_by_both() {
    if !sys::is_root() {
        return common::skip("needs root, to hide /bin/sh");
    }
    let hide = "mount --bind /dev/null /bin/sh && exec \"$0\" \"$@\"";
    let start = |words: &[&str]| {
        let before = ["unshare", "-m", "sh", "-c", hide, TREAPER];
        let mut run = Scene::new().start(&[&before, words].concat());
        (run.wait_clean().code(), run.stdout(), run.stderr())
    };
    let (_, text, _) = start(&["--doctor=json", "--finally=true"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let why = common::describe(libc::EACCES);
    let row = &report["checks"]["--finally"];
    assert_eq!(
        (&row["ok"], &row["detail"]),
        (&false.into(), &format!("/bin/sh: {why}").into())
    );
    let (code, started, said) = start(&["--finally=true", "echo", "started"]);
    let expected = format!("treaper: cannot execute /bin/sh for --finally: {why}\n");
    assert_eq!((code, &*started, &*said), (Some(125), "", &*expected));
    let (code, started, _) = start(&["echo", "started"]);
    assert_eq!((code, &*started), (Some(0), "started\n"));
}

#[test]
fn a_row_says_whether_further_writers_are_possible() {
    let path =
        |scene: &Scene, name: &str| format!("unix:{}", scene.directory().join(name).display());
    let row = |scene: Scene, source: &str| {
        let (mut report, _) = json(scene, &["--inject", source]);
        report["checks"]["several writers"].take()
    };
    let scene = Scene::new().stdin_pipe();
    let source = path(&scene, "socket");
    let found = row(scene, &source);
    assert_eq!(found["ok"], true);
    assert_eq!(found["detail"], "possible here");
    let scene = Scene::new().stdin_pipe();
    let source = path(&scene, "none/socket");
    let found = row(scene, &source);
    assert_eq!(found["ok"], false);
    let detail = found["detail"].as_str().unwrap();
    assert!(detail.contains("its folder: No such file"), "{detail}");
    // Without the option there is no such row.
    let (report, _) = json(Scene::new().stdin_pipe(), &[]);
    assert!(report["checks"].get("several writers").is_none());
}
