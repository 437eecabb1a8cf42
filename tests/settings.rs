//! Options and variables: what they accept, and that nothing is started with a wrong one.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::{Command, Output, Stdio};

use common::{Scene, TREAPER, Wrap, sys};
use treaper::settings::options;

fn output(options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(TREAPER);
    command
        .args(options)
        .args(["--", "sh", "-c", "echo started"])
        .stdin(Stdio::null());
    for (name, value) in variables {
        command.env(name, value);
    }
    command.output().unwrap()
}

fn is_accepted(options: &[&str], variables: &[(&str, &str)]) {
    let out = output(options, variables);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        out.status.code(),
        Some(0),
        "{options:?} {variables:?}: {text}"
    );
    assert_eq!(
        (&out.stdout[..], &*text),
        (&b"started\n"[..], ""),
        "{options:?} {variables:?}"
    );
}

/// The exit status is 125, one line names the culprit, and nothing was started.
fn is_refused(options: &[&str], variables: &[(&str, &str)], culprit: &str) {
    let out = output(options, variables);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        out.status.code(),
        Some(125),
        "{options:?} {variables:?}: {text}"
    );
    assert!(
        out.stdout.is_empty(),
        "{options:?} {variables:?} started it"
    );
    assert_eq!(text.lines().count(), 1, "{options:?} {variables:?}: {text}");
    assert!(text.starts_with("treaper: "), "{text}");
    assert!(text.contains(culprit), "{options:?} {variables:?}: {text}");
}

fn variable(option: &str) -> String {
    format!(
        "TREAPER_{}",
        option
            .trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase()
    )
}

const DURATIONS: &[&str] = &["--drain", "--grace", "--stage", "--kill-timeout"];

const GOOD: &[(&str, &str)] = &[
    ("--signal", "TERM"),
    ("--signal", "SIGINT"),
    ("--signal", "15"),
    ("--signal", "34"),
    ("--signal", "RTMIN"),
    ("--signal", "RTMIN+3"),
    ("--kill-timeout", "100ms"),
    ("--kill-mode", "staged"),
    ("--kill-mode", "tree"),
    ("--kill-mode", "mixed"),
    ("--until", "server"),
    ("--until", "tree"),
    ("--stdin", "auto"),
    ("--stdin", "ignore"),
    ("--stdout", "ignore"),
    ("--stdout", "watch"),
    ("--hup", "auto"),
    ("--hup", "stop"),
    ("--hup", "forward"),
    ("--watch-pid", "1"),
    ("--forward-to", "server"),
    ("--forward-to", "group"),
    ("--forward-to", "tree"),
    ("--rewrite", "USR1:USR2"),
    ("--rewrite", "SIGUSR1:0"),
    ("--rewrite", "10:12"),
    ("--success", "143"),
    ("--success", "TERM"),
    ("--success", "0"),
    ("--success", "255"),
    ("--contain", "group"),
    ("--stderr", "/dev/null"),
    ("--report", "/dev/null"),
];

const BAD: &[(&str, &str)] = &[
    ("--signal", "NOPE"),
    ("--signal", "0"),
    ("--signal", "65"),
    ("--signal", "-1"),
    ("--signal", ""),
    ("--kill-timeout", "0"),
    ("--kill-timeout", "99ms"),
    ("--kill-mode", "all"),
    ("--kill-mode", ""),
    ("--until", "never"),
    ("--stdin", "yes"),
    ("--stdout", "auto"),
    ("--hup", "ignore"),
    ("--watch-pid", "0"),
    ("--watch-pid", "-5"),
    ("--watch-pid", "x"),
    ("--watch-pid", "99999999999"),
    ("--forward-to", "all"),
    ("--rewrite", "USR1"),
    ("--rewrite", "USR1:NOPE"),
    ("--rewrite", "NOPE:USR1"),
    ("--rewrite", ":"),
    ("--success", "256"),
    ("--success", "-1"),
    ("--success", "NOPE"),
    ("--contain", "auto"),
    ("--contain", "jail"),
    ("--stderr", "/etc/passwd/x"),
    ("--idle", "0"),
    ("--report", ""),
    ("--report", "-"),
    ("--report", "fd:"),
    ("--report", "fd:x"),
    ("--report", "fd:+3"),
    ("--report", "fd:1"),
    ("--report", "fd:99999999999"),
    ("--idle", "99ms"),
    ("--idle", "never"),
];

#[test]
fn every_good_value_is_accepted_as_option_and_as_variable() {
    for (option, value) in GOOD {
        is_accepted(&[&format!("{option}={value}")], &[]);
        is_accepted(&[option, value], &[]);
        is_accepted(&[], &[(&variable(option), value)]);
    }
}

#[test]
fn every_bad_value_is_refused_by_the_name_of_its_option_or_variable() {
    for (option, value) in BAD {
        is_refused(&[&format!("{option}={value}")], &[], option);
        if !value.is_empty() {
            is_refused(&[], &[(&variable(option), value)], &variable(option));
        }
    }
}

#[test]
fn an_empty_variable_is_not_set() {
    for (option, _) in GOOD.iter().chain(BAD) {
        is_accepted(&[], &[(&variable(option), "")]);
    }
    for name in [
        "TREAPER_GRACE",
        "TREAPER_LOG",
        "TREAPER_VERBOSE",
        "TREAPER_NO_GUARD",
        "TREAPER_NO_PARENT",
        "TREAPER_WATCH_ANCESTOR",
    ] {
        is_accepted(&[], &[(name, "")]);
    }
}

#[test]
fn a_stdin_to_be_watched_has_to_be_one_that_can_hang_up() {
    is_refused(&["--stdin=watch"], &[], "--stdin");
    is_refused(&[], &[("TREAPER_STDIN", "watch")], "TREAPER_STDIN");
    let wrap = Wrap::Treaper(&["--stdin=watch"]);
    let mut run = Scene::new()
        .stdin_pipe()
        .start(&wrap.command(&["sh", "-c", "exit 3"]));
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn durations_have_units_and_a_range() {
    for option in DURATIONS {
        let zero = ["0", "0ms"].iter().filter(|_| option != &"--kill-timeout");
        for value in zero.chain(&[
            "5",
            "500ms",
            "5s",
            "2m",
            "1h",
            "1d",
            "365d",
            "1m30s",
            "1h0.5s500ms",
            "0.5",
            "1.5s",
        ]) {
            is_accepted(&[option, value], &[]);
        }
        for value in [
            "",
            "x",
            "5x",
            "-1",
            "s",
            "ms",
            "5 s 3",
            "1m30",
            "30 1m",
            "1mm",
            "366d",
            "1d365d",
            "99999999999999999999",
            "1e3",
            "∞",
        ] {
            is_refused(&[&format!("{option}={value}")], &[], option);
            if !value.is_empty() {
                is_refused(&[], &[(&variable(option), value)], &variable(option));
            }
        }
    }
}

#[test]
fn booleans_are_1_0_true_false_yes_no() {
    for option in ["--no-parent", "--no-guard"] {
        for value in ["1", "0", "true", "false", "yes", "no"] {
            is_accepted(&[], &[(&variable(option), value)]);
        }
        for value in ["maybe", "2"] {
            is_refused(&[], &[(&variable(option), value)], &variable(option));
        }
        is_accepted(&[option], &[]);
    }
}

#[test]
fn lists_are_separated_by_commas_or_blanks() {
    is_accepted(&[], &[("TREAPER_REWRITE", "USR1:USR2,WINCH:0 34:35")]);
    is_accepted(&[], &[("TREAPER_SUCCESS", "3 4,5, TERM")]);
    is_accepted(&[], &[("TREAPER_SUCCESS", "3\t4\n5\n")]);
    is_refused(
        &[],
        &[("TREAPER_REWRITE", "USR1:USR2,WINCH")],
        "TREAPER_REWRITE",
    );
    let out = Command::new(TREAPER)
        .args(["sh", "-c", "exit 5"])
        .env("TREAPER_SUCCESS", "3 4,5")
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(out.code(), Some(0));
}

/// Two parts are added.
#[test]
fn the_parts_of_a_duration_are_added() {
    let read = treaper::settings::value::duration;
    for (text, millis) in [
        ("1m30s", 90_000),
        ("1d1ms", 86_400_001),
        ("1.5h0.5s", 5_400_500),
    ] {
        assert_eq!(read(text), Ok(std::time::Duration::from_millis(millis)));
    }
}

#[test]
fn an_unknown_option_is_refused() {
    is_refused(&["--no-such"], &[], "--no-such");
}

/// Kubernetes makes such variables for a service that is called treaper.
#[test]
fn an_unknown_variable_is_one_warning_and_the_server_starts() {
    let foreign = [
        ("TREAPER_SERVICE_HOST", "10.0.0.1"),
        ("TREAPER_PORT", "tcp://10.0.0.1:80"),
        ("TREAPER_GRAC", ""),
        ("TREAPER_DOCTOR", "json"),
    ];
    for options in [&[][..], &["--no-guard"], &["-vv"]] {
        let out = output(options, &foreign);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(
            (out.status.code(), &out.stdout[..]),
            (Some(0), &b"started\n"[..])
        );
        let naming = |name: &str| text.lines().filter(|line| line.contains(name)).count();
        for (name, _) in foreign {
            assert_eq!(naming(name), 1, "{name}: {text}");
        }
        assert_eq!(naming("TREAPER_"), 1, "{text}");
        if options.first() != Some(&"-vv") {
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
    is_accepted(&[], &[("TREAPERX", "1"), ("XTREAPER_GRACE", "x")]);
    is_accepted(&[], &[("TREAPER_PORT", "x"), ("TREAPER_LOG", "error")]);
}

/// They mean the stdin of the outer server, and its end: `/dev/null` can be neither watched nor passed on, and a socket has
/// one treaper. What says how a stop goes is inherited.
#[test]
fn a_treaper_in_the_tree_does_not_inherit_what_means_the_stdin_of_the_outer_one() {
    let turns = [
        ("TREAPER_TURN", "method=prompt"),
        ("TREAPER_CANCEL", "method=cancel"),
        ("TREAPER_CANCEL_DRAIN", "4s"),
        ("TREAPER_BOUNDARY", "type=result"),
    ];
    let directory = common::scene::Directory::new();
    let source = format!("unix:{}", directory.0.join("socket").display());
    let inject = [("TREAPER_INJECT", &*source)];
    let idle = [("TREAPER_IDLE", "10m")];
    let finally = [("TREAPER_FINALLY", "env | grep ^TREAPER_ >&2")];
    let all = [&turns[..], &inject, &idle, &finally].concat();
    let script = "env | grep ^TREAPER_; \"$0\" echo nested </dev/null; echo status $?";
    for guard in ["0", "1"] {
        let no_guard = ("TREAPER_NO_GUARD", guard);
        for given in [&turns[..2], &turns, &inject, &idle, &finally, &all] {
            let mut scene = Scene::new().stdin_pipe();
            for (name, value) in [&[("TREAPER_GRACE", "3s"), no_guard], given].concat() {
                scene = scene.env(name, value);
            }
            let words = ["sh", "-c", script, TREAPER];
            let mut run = scene.start(&Wrap::Treaper(&[]).command(&words));
            let code = run.wait_clean().code();
            let said = run.stderr();
            let stdout = run.stdout();
            let (kept, rest) = stdout.split_once("nested\n").expect(&said);
            let sorted = |text: &str| {
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines.sort_unstable();
                lines
            };
            let expected = ["TREAPER_GRACE=3s", &format!("TREAPER_NO_GUARD={guard}")];
            assert_eq!(sorted(kept), expected, "{given:?}");
            assert_eq!((code, rest), (Some(0), "status 0\n"), "{given:?}: {said}");
            // The command of --finally gets the same ones.
            let has_finally = given.iter().any(|(name, _)| *name == "TREAPER_FINALLY");
            let expected = if has_finally { &expected[..] } else { &[] };
            assert_eq!(sorted(&said), expected, "{given:?}");
        }
    }
}

#[test]
fn a_filter_of_messages_that_means_nothing_is_refused() {
    for filter in [
        "bogus",
        "debug,bogus",
        "treaper=bogus",
        "hyper=info",
        "debug/a/b",
    ] {
        is_refused(&[], &[("TREAPER_LOG", filter)], "TREAPER_LOG");
    }
    for filter in [
        "warn",
        "error,treaper::tree::kill=warn",
        "off",
        "treaper=error",
    ] {
        is_accepted(&[], &[("TREAPER_LOG", filter)]);
    }
}

/// `--doctor` replaces COMMAND. A word after it must be neither ignored nor run.
#[test]
fn a_command_behind_doctor_is_a_mistake() {
    for (words, culprit) in [
        (&["--doctor", "json"][..], "'json'"),
        (&["--doctor", "--", "json"], "'json'"),
        (&["--doctor", "touch", "json"], "'touch'"),
        (&["--doctor=json", "echo"], "'echo'"),
    ] {
        let out = Command::new(TREAPER).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(
            (out.status.code(), &*out.stdout),
            (Some(125), &b""[..]),
            "{words:?}"
        );
        assert!(text.starts_with("treaper: --doctor: "), "{words:?}: {text}");
        assert!(
            text.contains(culprit) && text.lines().count() == 1,
            "{text}"
        );
    }
}

#[test]
fn a_variable_whose_bytes_are_no_text_is_refused_by_its_name() {
    use std::os::unix::ffi::OsStrExt;
    let value = std::ffi::OsStr::from_bytes(b"\xff5s");
    let out = Command::new(TREAPER)
        .arg("true")
        .env("TREAPER_GRACE", value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(125));
    assert!(
        text.contains("TREAPER_GRACE") && text.lines().count() == 1,
        "{text}"
    );
}

fn takes(options: &[&str], variables: &[(&str, &str)]) -> u64 {
    let mut scene = Scene::new();
    for (name, value) in variables {
        scene = scene.env(name, value);
    }
    let mut run = scene.start(&Wrap::Treaper(options).tree("server:ignore=TERM"));
    run.log.ready("server");
    let before = sys::now_ms();
    run.signal(libc::SIGTERM);
    run.wait_clean();
    sys::now_ms() - before
}

#[test]
fn the_command_line_wins_over_the_variable() {
    let variable = takes(&[], &[("TREAPER_GRACE", "600ms")]);
    assert!((590..30_000).contains(&variable), "{variable} ms");
    let option = takes(&["--grace", "50ms"], &[("TREAPER_GRACE", "60s")]);
    assert!((45..30_000).contains(&option), "{option} ms");
    let plain = takes(&["--grace", "1"], &[]);
    assert!((995..9000).contains(&plain), "{plain} ms");
}

#[test]
fn the_last_of_a_repeated_single_option_wins() {
    let last = takes(&["--grace", "60s", "--grace", "50ms"], &[]);
    assert!((45..30_000).contains(&last), "{last} ms");
}

/// Those that are rarely needed are only listed, in lines that are as full as they can be.
#[test]
fn the_help_has_every_option_once_and_fits_on_a_screen() {
    let output = Command::new(TREAPER).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (explained, rest) = help.split_once("Rarely needed:").unwrap();
    let (listed, _) = rest.split_once("\n\n").unwrap();
    for option in options::all() {
        let is_named = |word: &str| {
            word.strip_prefix(option.long)
                .is_some_and(|end| !end.starts_with(|c: char| c == '-' || c.is_alphanumeric()))
        };
        let in_part = |part: &str| {
            part.split(" --")
                .skip(1)
                .filter(|word| is_named(word))
                .count()
        };
        let expected = if option.rare { (0, 1) } else { (1, 0) };
        assert_eq!(
            (in_part(explained), in_part(listed)),
            expected,
            "{}",
            option.long
        );
    }
    for line in [
        "  -s, --signal <SIGNAL>  ",
        "      --doctor[=<FORMAT>]  ",
        "  -v, --verbose...  ",
    ] {
        assert!(explained.contains(line), "{line:?}: {help}");
    }
    assert!(help.lines().all(|line| line.len() < 100), "{help}");
    let lines: Vec<String> = format!("Rarely needed:{listed}")
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(lines.len() > 1, "{help}");
    for two in lines.windows(2) {
        let next = two[1].split_whitespace().next().unwrap();
        assert!(two[0].len() + 1 + next.len() > 99, "{help}");
    }
}
