//! `--report`: one JSON object for each run. It never delays a stop, and never changes a status.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use common::scene::Directory;
use common::{ACTOR, Run, Scene, TREAPER, Wrap, skip, special, sys, until, until_it_rests};
use serde_json::{Value, json};
use treaper::output::ledger::{Ledger, List, Process};
use treaper::plan::machine::State;
use treaper::sys::proc::Name;

/// Checks `value` against `schema`. The error says what is wrong. It knows only the words that the schema of treaper
/// has, and fails at any other.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
    for (word, rule) in schema.as_object().unwrap() {
        let good = match word.as_str() {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let path = rule.as_str().unwrap().strip_prefix('#').unwrap();
                check(root, root.pointer(path).unwrap(), value, at)?;
                true
            }
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|one| is_of(one, value)),
                one => is_of(one, value),
            },
            "minimum" => value.as_f64().is_none_or(|n| n >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|n| n <= rule.as_f64().unwrap()),
            "minItems" => value
                .as_array()
                .is_none_or(|a| a.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value
                .as_array()
                .is_none_or(|a| a.len() as u64 <= rule.as_u64().unwrap()),
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches(rule.as_str().unwrap(), text)),
            "required" => value.as_object().is_none_or(|object| {
                let mut names = rule.as_array().unwrap().iter();
                names.all(|name| object.contains_key(name.as_str().unwrap()))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = schema["properties"].as_object().unwrap();
                object.keys().all(|name| known.contains_key(name))
            }),
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, rule, member, &format!("{at}.{name}"))?;
                    }
                }
                true
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(root, rule, item, &format!("{at}[]"))?;
                }
                true
            }
            _ => panic!("{at}: the test does not know {word}"),
        };
        if !good {
            return wrong(word);
        }
    }
    Ok(())
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the test does not know the type {other}"),
    }
}

/// Matches the few forms of regular expressions that the schema has: `^`, `$`, classes, `+`, `{N}`, `\.`, letters.
fn matches(pattern: &str, text: &str) -> bool {
    let pattern = pattern
        .strip_prefix('^')
        .and_then(|rest| rest.strip_suffix('$'))
        .unwrap();
    let (mut rest, mut text) = (pattern, text);
    while let Some(first) = rest.chars().next() {
        let class: String;
        (class, rest) = match first {
            '[' => {
                let (class, rest) = rest[1..].split_once(']').unwrap();
                (class.to_owned(), rest)
            }
            '\\' => (rest[1..2].to_owned(), &rest[2..]),
            letter => (letter.to_string(), &rest[1..]),
        };
        let (least, most);
        (least, most, rest) = if let Some(rest) = rest.strip_prefix('+') {
            (1, usize::MAX, rest)
        } else if let Some(counted) = rest.strip_prefix('{') {
            let (count, rest) = counted.split_once('}').unwrap();
            let count = count.parse().unwrap();
            (count, count, rest)
        } else {
            (1, 1, rest)
        };
        let count = text
            .chars()
            .take_while(|c| is_in(&class, *c))
            .count()
            .min(most);
        if count < least {
            return false;
        }
        text = &text[count..];
    }
    text.is_empty()
}

fn is_in(class: &str, letter: char) -> bool {
    let class: Vec<char> = class.chars().collect();
    let range = |three: &[char]| three[1] == '-' && (three[0]..=three[2]).contains(&letter);
    class.contains(&letter) || class.windows(3).any(range)
}

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/report.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The objects in the file. Each of them fits the schema.
fn reports(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let schema = schema();
    let read = |line: &str| {
        let report: Value = serde_json::from_str(line).unwrap();
        check(&schema, &schema, &report, "report").unwrap_or_else(|wrong| panic!("{wrong}"));
        report
    };
    text.lines().map(read).collect()
}

/// The only object in the file.
fn report(file: &Path) -> Value {
    let mut reports = reports(file);
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.remove(0)
}

#[test]
fn the_check_sees_what_is_wrong() {
    let directory = Directory::new();
    let file = directory.0.join("report");
    let mut treaper = Command::new(TREAPER);
    treaper
        .arg("--report")
        .arg(&file)
        .arg("true")
        .status()
        .unwrap();
    let (good, schema) = (report(&file), schema());
    for (member, bad) in [
        ("schema", json!(2)),
        ("trigger", json!("boredom")),
        ("exit_status", json!(256)),
        ("server_signal", json!("SIG term")),
        ("wall", json!(-1)),
        ("wall", json!("1")),
        ("start_time", json!("2026-01-01 00:00:00")),
        ("survivors", json!([{ "pid": 1 }])),
        (
            "sigkilled",
            json!([{ "pid": 1, "name": "x", "uid": 0, "state": "S", "more": 1 }]),
        ),
        ("more", json!(1)),
    ] {
        let mut changed = good.clone();
        changed[member] = bad;
        assert!(check(&schema, &schema, &changed, "").is_err(), "{changed}");
    }
    let mut short = good.clone();
    short.as_object_mut().unwrap().remove("lost");
    assert!(check(&schema, &schema, &short, "").is_err());
}

/// A run in a scene of its own, whose report is in the file `report` of its directory.
fn start(scene: Scene, options: &[&str], tree: &str) -> Run {
    let file = scene.directory().join("report");
    let more = ["--report", file.to_str().unwrap()];
    let mut run = scene.start(&Wrap::Treaper(&[&more, options].concat()).tree(tree));
    run.log.ready("server");
    run
}

fn of(run: &Run) -> Value {
    report(&run.directory().join("report"))
}

/// In both forms of treaper.
const FORMS: [&[&str]; 2] = [&[], &["--no-guard"]];

#[test]
fn processes_that_end_and_move_while_they_are_counted_are_counted_once() {
    // A server that ends at once: its child gets another parent in the middle of the count.
    for _ in 0..40 {
        let mut run = start(
            Scene::new(),
            &["--signal", "KILL"],
            "server[worker,deep:daemon]",
        );
        run.log.ready("worker");
        run.log.ready("deep");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        assert_eq!(of(&run)["signalled"], json!(3));
    }
}

#[test]
fn each_trigger_is_reported_with_what_the_stop_took() {
    for form in FORMS {
        let with = |options: &[&'static str]| [form, options].concat();
        let scene = || Scene::new().stdin_pipe();
        let expect = |run: &Run, trigger: &str| {
            let report = of(run);
            assert_eq!(report["trigger"], trigger, "{report}");
            assert_eq!(report["server_status"], 3, "{report}");
            assert_eq!(report["server_signal"], Value::Null);
            assert_eq!(report["exit_status"], 3);
            assert_eq!(report["command"], ACTOR);
            assert_eq!(report["contain"], "group");
            assert_eq!(report["lost"], Value::Null);
            assert_eq!(report["sigkilled"], json!([]));
            report
        };
        let mut run = start(scene(), &with(&[]), "server:exit=3");
        run.wait_clean();
        let report = expect(&run, "server-exit");
        for member in ["drain", "terminate", "kill", "signalled"] {
            assert_eq!(report[member], Value::Null);
        }
        let mut run = start(scene(), &with(&[]), "server:on=TERM/3[worker,deep:daemon]");
        run.log.ready("worker");
        run.log.ready("deep");
        let server = run.log.ready("server");
        run.signal(libc::SIGTERM);
        run.wait_clean();
        let report = expect(&run, "terminate");
        assert_eq!(
            (&report["signalled"], &report["server_pid"]),
            (&json!(3), &json!(server))
        );
        assert!(report["terminate"].is_number() && report["kill"].is_null());
        let mut run = start(scene(), &with(&[]), "server:on=TERM/3");
        run.signal(libc::SIGHUP);
        run.wait_clean();
        expect(&run, "hangup");
        let drain = ["--stdin=watch", "--drain=200ms"];
        let mut run = start(scene(), &with(&drain), "server:on=TERM/3");
        run.close_stdin();
        run.wait_clean();
        let report = expect(&run, "stdin-eof");
        assert!(report["drain"].as_f64().unwrap() >= 0.2, "{report}");
        let drain = ["--stdout=watch", "--drain=50ms"];
        let mut run = start(scene(), &with(&drain), "server:on=TERM/3");
        drop(run.take_stdout());
        run.wait_clean();
        expect(&run, "stdout-closed");
        let mut run = start(scene(), &with(&["--idle=3s"]), "server:on=TERM/3");
        run.wait_clean();
        expect(&run, "idle");
        let mut watched = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = watched.id().to_string();
        let options = [form, &["--watch-pid", &pid]].concat();
        let mut run = start(scene(), &options, "server:on=TERM/3");
        watched.kill().unwrap();
        watched.wait().unwrap();
        run.wait_clean();
        expect(&run, "watched-exit");
    }
}

#[test]
fn the_death_of_the_host_is_reported_though_no_process_waits() {
    for form in FORMS {
        let scene = Scene::new();
        let file = scene.directory().join("report");
        let options = [form, &["--report", file.to_str().unwrap()]].concat();
        let host = [ACTOR, "host", "--stdin", "null", "--"].map(str::to_owned);
        let command = Wrap::Treaper(&options).tree("server:on=TERM/3");
        let mut run = scene.start(&[&host[..], &command].concat());
        run.log.ready("server");
        run.signal(libc::SIGKILL);
        run.wait_empty();
        let report = report(&file);
        assert_eq!(
            (&report["trigger"], &report["exit_status"]),
            (&json!("parent-exit"), &json!(3))
        );
    }
}

#[test]
fn a_killed_relay_is_reported() {
    for form in FORMS {
        let scene = Scene::new().stdin_pipe();
        let source = format!(
            "--inject=unix:{}",
            scene.directory().join("socket").display()
        );
        let mut run = start(scene, &[form, &[&source]].concat(), "server:on=TERM/3");
        run.log.ready("server");
        run.signal(libc::SIGKILL);
        run.wait_empty();
        let report = of(&run);
        let named = (&report["lost"], &report["trigger"]);
        assert_eq!(named, (&json!(null), &json!("relay-killed")), "{report}");
    }
}

#[test]
fn the_death_of_one_of_the_pair_ends_a_drain_and_is_reported() {
    common::skip::needs("pidns");
    for level in ["--contain=group", "--contain=pidns"] {
        for (lost, trigger) in [("shim", "shim-killed"), ("monitor", "monitor-killed")] {
            let options = ["-v", "--stdin=watch", "--drain=60s", level];
            let mut run = start(Scene::new().stdin_pipe(), &options, "server:on=TERM/3");
            let victim = match lost {
                "shim" => run.shim(),
                _ => run.monitor(),
            };
            run.close_stdin();
            let drains = |run: &mut Run| run.stderr().contains("trigger: stdin-eof");
            until("the drain", || drains(&mut run));
            sys::kill(victim, libc::SIGKILL).unwrap();
            run.wait_empty();
            let report = of(&run);
            let named = (&report["lost"], &report["trigger"]);
            assert_eq!(named, (&json!(lost), &json!(trigger)), "{level}: {report}");
            let stderr = run.stderr();
            // If the monitor was the init of a namespace, the kernel ends the server.
            let by_kernel = level.ends_with("pidns") && lost == "monitor";
            let signal = if by_kernel { "SIGKILL" } else { "SIGTERM" };
            let lines = stderr.lines();
            let reasons = lines.filter(|line| line.contains("was sent to the server"));
            let reasons: Vec<&str> = reasons.collect();
            let [reason] = reasons[..] else {
                panic!("{stderr}")
            };
            assert!(
                reason.starts_with(&format!("treaper: {trigger}: ")),
                "{reason}"
            );
            assert!(
                reason.contains(&format!("so {signal} was sent")),
                "{reason}"
            );
            assert!(!stderr.contains("treaper: stdin-eof: "), "{stderr}");
        }
    }
}

#[test]
fn the_other_one_of_the_pair_reports_the_whole_stop() {
    for (lost, trigger) in [("shim", "shim-killed"), ("monitor", "monitor-killed")] {
        for during in [false, true] {
            let tree = "server:record[worker:setsid:record]";
            let mut run = start(Scene::new(), &["--grace=3s"], tree);
            let worker = run.log.ready("worker");
            let server = run.log.ready("server");
            let victim = match lost {
                "shim" => run.shim(),
                _ => run.monitor(),
            };
            if during {
                run.signal(libc::SIGTERM);
                run.log.wait("server", "signal");
            }
            sys::kill(victim, libc::SIGKILL).unwrap();
            run.wait_empty();
            let report = of(&run);
            assert_eq!(report["lost"], lost, "{report}");
            let expected = if during { "terminate" } else { trigger };
            assert_eq!(report["trigger"], expected, "{report}");
            assert_eq!(
                (&report["server_signal"], &report["exit_status"]),
                (&json!("KILL"), &json!(137))
            );
            assert!(
                report["terminate"].is_number() && report["kill"].is_number(),
                "{report}"
            );
            let mut killed: Vec<i64> = report["sigkilled"]
                .as_array()
                .unwrap()
                .iter()
                .map(|process| process["pid"].as_i64().unwrap())
                .collect();
            killed.sort_unstable();
            let mut expected = [i64::from(server), i64::from(worker)];
            expected.sort_unstable();
            assert_eq!(killed, expected, "{report}");
        }
    }
}

/// With `--kill-mode=mixed`, what outlives the server gets no signal before SIGKILL.
#[test]
fn nothing_is_said_to_have_got_a_signal_that_was_not_sent() {
    for more in [&[][..], &["--no-guard"]] {
        let scene = Scene::new();
        let file = scene.directory().join("report");
        let path = file.to_str().unwrap();
        let options = ["--report", path, "--grace=1s", "--kill-mode=mixed"];
        let options = [&options, more].concat();
        let tree = "server:exit=3[worker:setsid]";
        let mut run = scene.start(&Wrap::Treaper(&options).tree(tree));
        assert_eq!(run.wait_clean().code(), Some(3));
        let (report, stderr) = (report(&file), run.stderr());
        assert_eq!(report["signalled"], Value::Null, "{report}");
        assert!(stderr.contains("after the stop began"), "{stderr}");
        assert!(!stderr.contains("SIGTERM"), "{stderr}");
    }
}

#[test]
fn killed_processes_are_described() {
    for level in ["group", "cgroup", "pidns"] {
        let contain = format!("--contain={level}");
        let scene = Scene::new();
        let file = scene.directory().join("report");
        let options = ["--report", file.to_str().unwrap(), "--grace=1s", &contain];
        // The main thread of the worker has ended, and another one still runs.
        let tree = "server:on=TERM/3[worker:setsid:ignore=TERM:mainless]";
        let mut run = scene.start(&Wrap::Treaper(&options).tree(tree));
        if run.ends_within(Duration::from_secs(1)) && run.wait().code() == Some(125) {
            skip(&run.stderr());
            continue;
        }
        run.log.ready("worker");
        run.signal(libc::SIGTERM);
        assert_eq!(run.wait_clean().code(), Some(3));
        let report = report(&file);
        assert_eq!(report["contain"], level);
        let [killed] = &report["sigkilled"].as_array().unwrap()[..] else {
            panic!("{report}");
        };
        assert_eq!(
            (&killed["name"], &killed["uid"]),
            (&json!("worker"), &json!(sys::euid()))
        );
        assert_eq!(killed["state"], "S");
        assert!(report["kill"].is_number() && report["max_rss"].as_u64().unwrap() > 100_000);
        let [terminate, wall] = ["terminate", "wall"].map(|name| report[name].as_f64().unwrap());
        assert!(terminate >= 0.995 && wall >= terminate, "{report}");
    }
}

#[test]
fn survivors_are_in_the_report_when_treaper_has_exited() {
    let options = ["--grace=100ms", "--kill-timeout=3s"];
    let mut run = start(Scene::new(), &options, "server[worker:ignore=TERM]");
    let worker = run.log.ready("worker");
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &worker.to_string()]);
    if tracer.log.wait("tracer", "tried").text("error") != "none" {
        return skip("tracing a stranger is not allowed here");
    }
    run.signal(libc::SIGTERM);
    let code = run.wait().code();
    let report = of(&run);
    drop(tracer);
    run.wait_empty();
    assert_eq!(
        (code, &report["exit_status"]),
        (Some(123), &json!(123)),
        "{report}"
    );
    let [survivor] = &report["survivors"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!(
        (&survivor["pid"], &survivor["name"]),
        (&json!(worker), &json!("worker"))
    );
    // The monitor, which has stayed, does not write a second one.
    assert_eq!(of(&run), report);
}

fn once(options: &[&str], to: &str, command: &[&str]) -> Output {
    let mut treaper = Command::new(TREAPER);
    treaper.args(["--report", to]).args(options).arg("--");
    treaper.args(command).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_server_that_was_not_started_is_reported() {
    for form in FORMS {
        let directory = Directory::new();
        let file = directory.0.join("report");
        let to = file.to_str().unwrap();
        let statuses = [&["/no/such/command"][..], &["/etc/passwd"]]
            .map(|command| once(form, to, command).status.code());
        assert_eq!(statuses, [Some(127), Some(126)]);
        let options = [form, &["--watch-pid", "2147483647"]].concat();
        let refused = once(&options, to, &["true"]).status.code();
        assert_eq!(refused, Some(125));
        let reports = reports(&file);
        let found: Vec<&Value> = reports
            .iter()
            .map(|report| &report["exit_status"])
            .collect();
        assert_eq!(found, [&json!(127), &json!(126), &json!(125)]);
        for report in &reports {
            for member in [
                "trigger",
                "server_status",
                "server_signal",
                "server_pid",
                "lost",
            ] {
                assert_eq!(report[member], Value::Null, "{report}");
            }
        }
    }
}

#[test]
fn arguments_are_named_only_if_asked_and_the_file_is_for_its_owner() {
    let directory = Directory::new();
    let file = directory.0.join("report");
    let mut treaper = Command::new(TREAPER);
    // The server finds the directory, and treaper leaves it.
    treaper
        .current_dir(&directory.0)
        .args(["--report", "report"]);
    treaper
        .args(["sh", "-c", "exit 0", "--token=secret"])
        .status()
        .unwrap();
    assert_eq!(report(&file)["command"], "sh");
    assert!(!fs::read_to_string(&file).unwrap().contains("secret"));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let command = ["sh", "-c", "exit 0", "--token=\"\u{1}\\é\n"];
    once(&["--report-arguments"], file.to_str().unwrap(), &command);
    let reports = reports(&file);
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[1]["command"], json!(command));
}

/// There is one message, the status is that of the server, and treaper does not wait.
fn is_one_message(output: &Output, to: &str, why: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let expected = format!("treaper: cannot write the report to {to}: {why}\n");
    assert_eq!((&*text, output.status.code()), (&*expected, Some(7)));
}

/// A place that cannot be opened is an error before the start.
fn is_not_started(output: &Output, to: &str, why: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let expected = format!("treaper: --report or TREAPER_REPORT: cannot write to {to}: {why}\n");
    assert_eq!((&*text, output.status.code()), (&*expected, Some(125)));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_reader_of_a_fifo_gets_the_report_and_no_end_before() {
    let directory = Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let mut reader = Command::new("cat");
    let reader = reader.arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    until_it_rests(reader.id() as i32);
    let output = once(&[], fifo.to_str().unwrap(), &["sh", "-c", "exit 7"]);
    let read = reader.wait_with_output().unwrap().stdout;
    let report: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(
        (output.status.code(), &report["server_status"]),
        (Some(7), &json!(7))
    );
}

/// A process that closes a file for treaper is not one of the tree.
#[test]
fn a_file_as_a_stream_adds_no_process_to_the_tree() {
    for form in FORMS {
        let directory = Directory::new();
        let file = directory.0.join("report");
        let out = fs::File::create(directory.0.join("out")).unwrap();
        for _ in 0..10 {
            let mut treaper = Command::new(TREAPER);
            treaper
                .args(form)
                .arg("--report")
                .arg(&file)
                .arg("true")
                .stdin(fs::File::open(&file).unwrap_or_else(|_| out.try_clone().unwrap()))
                .stdout(out.try_clone().unwrap());
            assert!(treaper.status().unwrap().success());
        }
        for report in reports(&file) {
            assert_eq!(report["signalled"], Value::Null, "{report}");
            assert_eq!(report["terminate"], Value::Null, "{report}");
        }
    }
}

/// In the tree the number would be that of another file.
#[test]
fn a_treaper_in_the_tree_does_not_inherit_the_descriptor_of_the_report() {
    let (mut read, write) = sys::pipe().unwrap();
    let number = write.as_raw_fd();
    let seen = "echo \"in the tree: $TREAPER_REPORT $TREAPER_GRACE\"";
    let [fd, path, long] =
        ["fd:", "/dev/fd/", "/proc/self/fd/"].map(|form| format!("{form}{number}"));
    for (value, inherited) in [
        (&*fd, ""),
        (&path, ""),
        (&long, ""),
        ("fd:2", "fd:2"),
        ("/dev/fd/2", "/dev/fd/2"),
    ] {
        let scene = Scene::new().before_exec(move || sys::set_cloexec(number, false));
        let scene = scene
            .env("TREAPER_REPORT", value)
            .env("TREAPER_GRACE", "1s");
        let mut run = scene.start(&Wrap::Treaper(&[]).command(&["sh", "-c", seen]));
        assert_eq!(run.wait_clean().code(), Some(0));
        assert_eq!(run.stdout(), format!("in the tree: {inherited} 1s\n"));
    }
    drop(write);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_report_that_cannot_be_written_is_one_message_and_changes_no_status() {
    let directory = Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let folder = directory.0.to_str().unwrap();
    for form in FORMS {
        for (to, why) in [
            ("/dev/full", "No space left on device"),
            // It is not opened at the start: a reader would see an end.
            (
                fifo.to_str().unwrap(),
                "no process reads this FIFO, or it is a socket",
            ),
        ] {
            let output = once(form, to, &["sh", "-c", "exit 7"]);
            is_one_message(&output, &format!("'{to}'"), why);
        }
        for (to, why) in [
            (folder, "Is a directory"),
            ("/no/such/file", "No such file or directory"),
        ] {
            let output = once(form, to, &["echo", "started"]);
            is_not_started(&output, &format!("'{to}'"), why);
        }
        let output = once(form, "fd:700", &["echo", "started"]);
        is_not_started(&output, "fd:700", "Bad file descriptor");
        // A working directory that was removed has no path, so the file has none either.
        let gone = directory.0.join("gone");
        std::fs::create_dir(&gone).unwrap();
        let script = "rmdir ../gone && exec \"$0\" \"$@\"";
        let mut treaper = Command::new("sh");
        treaper
            .args(["-c", script, TREAPER])
            .args(form)
            .args(["--report", "file", "--", ACTOR, "exit", "7"])
            .current_dir(&gone);
        let output = treaper.stdin(Stdio::null()).output().unwrap();
        is_not_started(&output, "'file'", "No such file or directory");
    }
}

#[test]
fn a_full_pipe_and_a_full_socket_are_one_message_as_well() {
    let (_read, pipe) = sys::pipe().unwrap();
    // Through another open file of the same pipe, since the blocking mode belongs to the open file.
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut filler = OpenOptions::new().write(true).open(path).unwrap();
    sys::set_nonblocking(filler.as_raw_fd());
    while filler.write(&[b'x'; 4096]).is_ok() {}
    while filler.write(b"x").is_ok() {}
    let (_near, mut socket) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[b'x'; 4096]).is_ok() {}
    while socket.write(b"x").is_ok() {}
    socket.set_nonblocking(false).unwrap();
    for full in [OwnedFd::from(pipe), OwnedFd::from(socket)] {
        let to = format!("fd:{}", full.as_raw_fd());
        let mut run = on(&full, &["sh", "-c", "exit 7"]);
        assert_eq!(run.wait_clean().code(), Some(7));
        let why = "the pipe or socket is full";
        let expected = format!("treaper: cannot write the report to {to}: {why}\n");
        assert_eq!(run.stderr(), expected);
    }
}

#[test]
fn a_file_at_its_size_limit_and_a_pipe_without_a_reader_end_nothing() {
    let (read, write) = sys::pipe().unwrap();
    drop(read);
    let mut run = on(&write.into(), &["sh", "-c", "exit 7"]);
    assert_eq!(run.wait_clean().code(), Some(7));
    let stderr = run.stderr();
    assert!(
        stderr.ends_with(": Broken pipe\n") && stderr.lines().count() == 1,
        "{stderr}"
    );
}

/// The next report would follow a half of this one, or the hole that it has left.
#[test]
fn a_report_beyond_the_size_limit_of_its_file_spoils_no_other_line() {
    let directory = Directory::new();
    let file = directory.0.join("report");
    let opened = |append: bool| {
        fs::write(&file, "good\n").unwrap();
        let mut file = OpenOptions::new().append(append).write(true).open(&file);
        std::io::Seek::seek(file.as_mut().unwrap(), std::io::SeekFrom::End(0)).unwrap();
        file.unwrap()
    };
    for (room, why) in [
        (5, ": File too large\n"),
        (15, ": there was room for 10 of "),
    ] {
        for (by_path, append) in [(true, true), (false, true), (false, false)] {
            let descriptor = opened(append);
            let number = descriptor.as_raw_fd();
            let to = if by_path {
                file.display().to_string()
            } else {
                format!("fd:{number}")
            };
            let wrap = ["--report", &to];
            let start = |room: u64| {
                let scene = Scene::new().before_exec(move || {
                    sys::set_cloexec(number, by_path);
                    special::set_limit(libc::RLIMIT_FSIZE, room);
                });
                let mut run = scene.start(&Wrap::Treaper(&wrap).command(&["sh", "-c", "exit 7"]));
                assert_eq!(run.wait_clean().code(), Some(7));
                run.stderr()
            };
            let stderr = start(room);
            assert!(
                stderr.contains(why) && stderr.lines().count() == 1,
                "{stderr}"
            );
            assert_eq!(fs::read(&file).unwrap(), b"good\n", "{to}, {append}");
            assert_eq!(start(1 << 20), "");
            let text = fs::read_to_string(&file).unwrap();
            let report = text.strip_prefix("good\n").unwrap();
            let report: Value = serde_json::from_str(report).expect(&text);
            assert_eq!(report["server_status"], 7);
        }
    }
}

/// 300 words make a report of 11 kB, which a pipe with fewer free pages would take a part of.
#[test]
fn a_pipe_without_room_for_all_gets_nothing() {
    let directory = Directory::new();
    let fifo = directory.0.join("fifo");
    sys::mkfifo(&fifo);
    let words = vec!["a word of thirty two characters."; 300];
    let command = [&["sh", "-c", "exit 7"][..], &words].concat();
    // The second one leaves 34 kB, in one page.
    for (size, count) in [(4096, 15), (2100, 15), (0, 0)] {
        for by_path in [true, false] {
            let mut pipe = OpenOptions::new();
            let pipe = pipe.read(true).write(true).open(&fifo).unwrap();
            for _ in 0..count {
                (&pipe).write_all(&vec![b'x'; size]).unwrap();
            }
            let number = pipe.as_raw_fd();
            let to = if by_path {
                fifo.display().to_string()
            } else {
                format!("fd:{number}")
            };
            let options = ["--report", &to, "--report-arguments"];
            let scene = Scene::new().before_exec(move || sys::set_cloexec(number, false));
            let mut run = scene.start(&Wrap::Treaper(&options).command(&command));
            assert_eq!(run.wait_clean().code(), Some(7));
            let stderr = run.stderr();
            sys::set_nonblocking(number);
            let mut text = vec![0; 1 << 20];
            let read = (&pipe).read(&mut text).unwrap();
            if count == 0 {
                assert!(serde_json::from_slice::<Value>(&text[..read]).is_ok());
                assert_eq!(stderr, "");
            } else {
                assert_eq!(read, size * count, "{to}: {stderr}");
                assert!(stderr.contains("the pipe or socket is full"), "{stderr}");
            }
        }
    }
}

/// Reports to an inherited descriptor.
fn on(descriptor: &OwnedFd, command: &[&str]) -> Run {
    let number = descriptor.as_raw_fd();
    let to = format!("fd:{number}");
    let scene = Scene::new().before_exec(move || sys::set_cloexec(number, false));
    scene.start(&Wrap::Treaper(&["--report", &to]).command(command))
}

#[test]
fn the_server_does_not_get_the_descriptor_of_the_report() {
    let (mut read, write) = sys::pipe().unwrap();
    let number = write.as_raw_fd();
    let script = format!("test -e /proc/self/fd/{number} && exit 1; exit 0");
    let write = OwnedFd::from(write);
    let mut run = on(&write, &["sh", "-c", &script]);
    assert_eq!(run.wait_clean().code(), Some(0));
    drop((run, write));
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["command"], text.lines().count()),
        (&json!("sh"), 1)
    );
}

/// Such a path is what a shell makes of `>(COMMAND)`. A file that is opened there would be another one than the descriptor,
/// which the server would inherit, so the command would see no end.
#[test]
fn a_path_of_a_descriptor_means_the_descriptor() {
    for form in FORMS {
        for prefix in ["/dev/fd/", "/proc/self/fd/"] {
            for by_variable in [false, true] {
                let (mut read, write) = sys::pipe().unwrap();
                let number = write.as_raw_fd();
                let to = format!("{prefix}{number}");
                let script = format!("test -e /proc/self/fd/{number} && exit 1; exit 7");
                let mut scene = Scene::new().before_exec(move || sys::set_cloexec(number, false));
                let option = format!("--report={to}");
                let mut options = form.to_vec();
                if by_variable {
                    scene = scene.env("TREAPER_REPORT", &to);
                } else {
                    options.push(&option);
                }
                let mut run = scene.start(&Wrap::Treaper(&options).command(&["sh", "-c", &script]));
                let code = run.wait_clean().code();
                assert_eq!((code, &*run.stderr()), (Some(7), ""), "{options:?} {to}");
                drop(write);
                let mut text = String::new();
                read.read_to_string(&mut text).unwrap();
                let report: Value = serde_json::from_str(&text).expect(&text);
                assert_eq!(report["server_status"], 7, "{report}");
            }
        }
    }
}

/// The line `done` comes behind the end of what the command reads, while a process of the host still lives.
#[test]
fn a_command_behind_a_shells_bracket_gets_the_report_and_its_end() {
    let directory = Directory::new();
    let file = directory.0.join("report");
    let script = "\"$0\" --report=>(cat >\"$1\"; echo done >>\"$1\") sh -c 'exit 7'; exit $?";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, TREAPER]).arg(&file);
    let Ok(output) = bash.stdin(Stdio::null()).output() else {
        return skip("needs bash");
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((&*text, output.status.code()), ("", Some(7)));
    // bash does not wait for it.
    let read = || fs::read_to_string(&file).unwrap_or_default();
    until("the end of the command", || read().ends_with("done\n"));
    let text = read();
    let report: Value = serde_json::from_str(text.strip_suffix("done\n").unwrap()).expect(&text);
    assert_eq!(report["server_status"], 7, "{report}");
}

/// There it would be mixed with the output of the server.
#[test]
fn stdout_is_no_place_for_a_report_however_it_is_written() {
    for form in FORMS {
        for to in ["-", "fd:1", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let output = once(form, to, &["echo", "started"]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{to}: {text}");
            assert!(output.stdout.is_empty(), "{to}");
            let is_one = text.lines().count() == 1 && text.contains("--report");
            assert!(is_one && text.contains(&format!("'{to}'")), "{text}");
        }
    }
}

#[test]
fn a_descriptor_that_cannot_be_written_to_is_an_error_before_the_start() {
    let opened = |write: bool, flags: i32| {
        let mut file = OpenOptions::new();
        let file = file.read(true).write(write).custom_flags(flags);
        OwnedFd::from(file.open("/dev/null").unwrap())
    };
    let (read_end, _write_end) = sys::pipe().unwrap();
    for form in FORMS {
        for (what, descriptor, is_good) in [
            ("read-only", &opened(false, 0), false),
            ("only a place", &opened(false, libc::O_PATH), false),
            (
                "the wrong end",
                &read_end.try_clone().unwrap().into(),
                false,
            ),
            ("read and write", &opened(true, 0), true),
        ] {
            let number = descriptor.as_raw_fd();
            for prefix in ["fd:", "/dev/fd/"] {
                let to = format!("{prefix}{number}");
                let options = [form, &["--report", &to]].concat();
                let scene = Scene::new().before_exec(move || sys::set_cloexec(number, false));
                let mut run = scene.start(&Wrap::Treaper(&options).command(&["echo", "started"]));
                let code = run.wait_clean().code();
                let said = format!(
                    "treaper: --report or TREAPER_REPORT: cannot write to fd:{number}: Bad file descriptor\n"
                );
                let expected = if is_good {
                    (Some(0), "started\n", "")
                } else {
                    (Some(125), "", &*said)
                };
                let found = (code, &*run.stdout(), &*run.stderr());
                assert_eq!(found, expected, "{what}: {options:?}");
            }
        }
    }
}

/// How many processes a list of the ledger has, at most.
const MAX_LISTED: i32 = 256;

fn process(pid: i32) -> Process {
    Process {
        pid,
        uid: (pid % 2 == 0).then_some(u32::MAX - 1),
        state: b'S',
        name: Name::new(b"fifteen bytes x"),
    }
}

#[test]
fn each_list_keeps_its_processes_once_and_as_many_as_it_holds() {
    let ledger = Ledger::shared().unwrap();
    let most = 4 * 1024 * 1024;
    for pid in most - MAX_LISTED..most {
        ledger.add(List::Sigkilled, &process(pid));
        ledger.add(List::Sigkilled, &process(pid));
    }
    ledger.add(List::Sigkilled, &process(7));
    ledger.add(List::Survivors, &process(9));
    let kept: Vec<Process> = ledger.list(List::Sigkilled).collect();
    let expected = (most - MAX_LISTED..most).map(process);
    assert_eq!(kept, expected.collect::<Vec<_>>());
    assert_eq!(
        ledger.list(List::Survivors).collect::<Vec<_>>(),
        [process(9)]
    );
}

#[test]
fn a_step_lasts_until_the_next_one_that_was_reached() {
    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }
    let ledger = Ledger::shared().unwrap();
    assert_eq!(ledger.steps(secs(9)), [None; 3]);
    let draining = State::Draining {
        until: secs(3),
        check: None,
        unread: None,
    };
    ledger.set_state(draining, secs(1));
    ledger.set_state(State::Running, secs(2));
    assert_eq!(ledger.steps(secs(9)), [None; 3]);
    ledger.set_state(draining, secs(3));
    let killing = State::Killing {
        next: secs(5),
        pause: secs(0),
        survivors_at: secs(9),
    };
    ledger.set_state(killing, secs(5));
    ledger.set_state(killing, secs(6));
    let steps = [Some(secs(2)), None, Some(secs(4))];
    assert_eq!(ledger.steps(secs(9)), steps);
    // What follows the stop is none of its steps.
    ledger.set_state(State::Done, secs(7));
    let steps = [Some(secs(2)), None, Some(secs(2))];
    assert_eq!(ledger.steps(secs(9)), steps);
}

#[test]
fn signals_times_and_the_date_are_written_as_the_manual_says() {
    let directory = Directory::new();
    let file = directory.0.join("report");
    let before = SystemTime::now() - Duration::from_millis(1);
    for signal in ["15", "35"] {
        let kill = format!("kill -{signal} $$");
        once(&[], file.to_str().unwrap(), &["sh", "-c", &kill]);
    }
    let reports = reports(&file);
    let signals = [0, 1].map(|at| reports[at]["server_signal"].clone());
    assert_eq!(signals, ["TERM", "RTMIN+1"]);
    for report in reports {
        let date = report["start_time"].as_str().unwrap();
        let date = humantime::parse_rfc3339(date).unwrap();
        assert!(date >= before && date <= SystemTime::now(), "{report}");
        let wall = report["wall"].to_string();
        // A microsecond is the last digit.
        assert!(wall.split('.').nth(1).unwrap().len() <= 6, "{wall}");
    }
}
