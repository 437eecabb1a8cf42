//! Under the name of another init treaper behaves as that init, except that no process is left.
//!
//! Each check also runs on the real program, if its package is available: treaper has to do the same. If treaper
//! differs on purpose, the test says so and why. This includes what the suites of tini and dumb-init check: statuses
//! (`-e`, exec failures), forwarding and rewriting, process groups, suspension, reaping, signal masks, usage texts, the
//! working directory, a terminal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod catatonit;
mod dumb_init;
mod oracle;
mod terminal;
mod tini;

// The shared modules use this name, which the actor has, too.
use common::sys;

#[test]
fn an_error_of_treaper_itself_is_in_the_form_of_each_init() {
    for (name, start) in [
        ("tini", "[FATAL tini ("),
        ("dumb-init", "[dumb-init] cannot"),
        ("catatonit", "ERROR (catatonit:"),
    ] {
        let program = oracle::treaper_as(name).words(&["--", "true"]);
        let words = [common::ACTOR, "faults", "signalfd4=ENOMEM", "--"].map(str::to_owned);
        let mut run = common::Scene::new().start(&[&words[..], &program].concat());
        assert_eq!(run.wait_clean().code(), Some(1), "{name}");
        let text = run.stderr();
        let no_memory = common::describe(libc::ENOMEM);
        let end = format!("cannot make a signalfd: {no_memory}\n");
        assert!(text.starts_with(start) && text.ends_with(&end), "{text}");
    }
}

/// execvp(3) says which error counts: EACCES, which is also that of a directory, or else the last one. treaper under its
/// own name says what a shell says.
#[test]
fn a_name_that_path_does_not_have_fails_as_with_each_init() {
    let directory = common::scene::Directory::new();
    std::fs::create_dir(directory.0.join("tool")).unwrap();
    let has_directory = directory.0.to_str().unwrap();
    for name in ["tini", "dumb-init", "catatonit"] {
        let Some(real) = oracle::real(name) else {
            continue;
        };
        let own = oracle::treaper_as(name);
        for path in [
            has_directory,
            &format!("{has_directory}:/etc/passwd"),
            &format!("/etc/passwd:{has_directory}:/no/such"),
            "/no/such:/etc/passwd",
            "/etc/passwd:/no/such",
        ] {
            // Without a PID namespace of its own, tini warns unless it has this variable.
            let variables = [("PATH", path), ("TINI_SUBREAPER", "")];
            let [own, theirs] = [&own, &real].map(|program| {
                let outcome = program.outcome(&variables, &["--", "tool"]);
                (outcome.code, oracle::without_pids(&outcome.stderr))
            });
            assert_eq!(own, theirs, "{name}: {path}");
        }
    }
}

/// No directory is searched for it: each directory itself would be found, which cannot be executed.
#[test]
fn an_empty_word_is_a_command_that_is_not_there_as_with_each_init() {
    for (name, status, text) in [
        ("tini", 127, "[FATAL tini (#)] exec  failed: "),
        ("dumb-init", 2, "[dumb-init] : "),
        ("catatonit", 1, "ERROR (catatonit:#): failed to exec pid1: "),
    ] {
        let expected = format!("{text}{}\n", common::describe(libc::ENOENT));
        for program in oracle::both(name) {
            for words in [&["--", ""][..], &["--", "", "word"], &[""]] {
                let outcome = program.outcome(&[("TINI_SUBREAPER", "")], words);
                let said = oracle::without_pids(&outcome.stderr);
                let found = (outcome.code, &*outcome.stdout, &*said);
                let expected = (Some(status), "", &*expected);
                assert_eq!(found, expected, "{program:?} {words:?}");
            }
        }
    }
}

#[test]
fn a_report_has_the_status_with_which_each_init_exits() {
    let directory = common::scene::Directory::new();
    for (name, words, status) in [
        ("tini", &["--", "/etc/passwd/x"][..], 1),
        ("tini", &["-e", "1", "--", "/etc/passwd/x"], 0),
        ("dumb-init", &["/no/such"], 2),
        ("catatonit", &["/no/such"], 1),
    ] {
        let file = directory.0.join(common::unique());
        let variables = [("TREAPER_REPORT", file.to_str().unwrap())];
        let outcome = oracle::treaper_as(name).outcome(&variables, words);
        assert_eq!(outcome.code, Some(status), "{name}: {outcome:?}");
        let report = std::fs::read_to_string(&file).unwrap();
        let member = format!("\"exit_status\":{status},");
        assert!(report.contains(&member), "{name}: {report}");
    }
}
