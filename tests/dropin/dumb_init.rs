//! dumb-init.

use std::time::Duration;

use treaper::sys::clock;

use crate::common::proc::state;
use crate::common::{Scene, first_second_over, signals, until, until_state};
use crate::oracle::{Program, both, exchange, plain_signals, real, treaper_as, without_pids};

const A_WHILE: Duration = Duration::from_millis(400);
/// The two ways to ask for each mode.
const GROUP: (&[&str], &[(&str, &str)]) = (&[], &[]);
const SINGLE: (&[&str], &[(&str, &str)]) = (&["-c"], &[]);
const SINGLE_BY_VARIABLE: (&[&str], &[(&str, &str)]) = (&[], &[("DUMB_INIT_SETSID", "0")]);

fn scene(variables: &[(&str, &str)]) -> Scene {
    variables
        .iter()
        .fold(Scene::new(), |scene, (name, value)| scene.env(name, value))
}

const WAIT: &str = "trap 'exit 3' INT TERM; kill -TERM $PPID; while :; do :; done";
const SUSPEND: &str = "trap '' TSTP; trap 'exit 4' CONT; kill -TSTP $PPID
    until grep -q '^State:.T' /proc/$PPID/status; do :; done; kill -CONT $PPID; while :; do :; done";
/// The second signal has the higher number, so it is handled second: when it has arrived, the first one has been
/// logged.
const GO: &str = "trap 'exit 3' WINCH; kill -TERM $PPID; kill -WINCH $PPID; while :; do :; done";

#[test]
fn statuses_are_those_of_dumb_init() {
    let Some(real) = real("dumb-init") else {
        return;
    };
    for words in [
        &["sh", "-c", "exit 0"][..],
        &["sh", "-c", "exit 2"],
        &["--", "sh", "-c", "exit 255"],
        &["-c", "sh", "-c", "exit 127"],
        &["sh", "-c", "kill -TERM $$"],
        &["sh", "-c", "kill -INT $$"],
        &["sh", "-c", "kill -QUIT $$"],
        &["-v", "sh", "-c", "kill -KILL $$"],
        &["/no/such"],
        &["--", "/no/such"],
        &["-c", "/no/such"],
        &["--single-child", "--", "no-such-command"],
        &["/etc/passwd"],
        &["/"],
        &[],
        &["-v"],
        &["-z", "true"],
        &["--no-such", "true"],
        &["--ver"],
        &["--sing", "true"],
        &["--version=1"],
        &["-V"],
        &["--version"],
        &["-h"],
        &["--help"],
        &["-r"],
        &["-r", "1:32", "true"],
        &["-r", "0:1", "true"],
        &["-r", "TERM:INT", "true"],
        &["-r", "1", "true"],
        &["-r1:31", "--rewrite=31:0", "--rew", "2:3x", "true"],
    ] {
        let expected = real.outcome(&[], words).code;
        let outcome = treaper_as("dumb-init").outcome(&[], words);
        assert_eq!(outcome.code, expected, "{words:?}: {outcome:?}");
    }
}

#[test]
fn complaints_are_those_of_dumb_init() {
    let Some(real) = real("dumb-init") else {
        return;
    };
    let own = treaper_as("dumb-init");
    for words in [
        &[][..],
        &["/no/such"],
        &["-c", "/etc/passwd"],
        &["-z"],
        &["--no-such"],
        &["--ver"],
        &["-r"],
        &["--rewrite"],
        &["--help=1"],
        &["--ver=x"],
        &["--ver="],
        &["--nover=x"],
        &["-V"],
        &["--version"],
        &["-r", "1:32", "true"],
        &["-r", "TERM:INT", "true"],
    ] {
        // Each prints the path by which it was called.
        let printed = |program: &Program| {
            let outcome = program.outcome(&[], words);
            assert_eq!(outcome.stdout, "");
            outcome
                .stderr
                .replace(program.path.to_str().unwrap(), "dumb-init")
        };
        assert_eq!(printed(&own), printed(&real), "{words:?}");
    }
}

/// As getopt_long(3) does it: what is behind the equals sign belongs to the name there.
#[test]
fn an_ambiguous_option_is_named_as_it_was_written() {
    for program in both("dumb-init") {
        for word in ["--ver", "--ver=x", "--ver="] {
            let outcome = program.outcome(&[], &[word, "true"]);
            let named =
                format!(": option '{word}' is ambiguous; possibilities: '--verbose' '--version'\n");
            let first = outcome.stderr.split_inclusive('\n').next().unwrap();
            assert!(first.ends_with(&named), "{program:?}: {outcome:?}");
            assert_eq!(outcome.code, Some(1), "{program:?}: {outcome:?}");
        }
    }
}

/// The text is that of treaper, and says so. It has the parts for which programs look, on stderr as in the original.
#[test]
fn help_is_on_stderr() {
    for program in both("dumb-init") {
        let outcome = program.outcome(&[], &["--help"]);
        assert_eq!((outcome.stdout.as_str(), outcome.code), ("", Some(0)));
        let help = outcome.stderr;
        assert!(help.starts_with("dumb-init v1.2.5"), "{help}");
        assert_eq!(help.contains("treaper"), program.is_treaper);
        for option in [
            "-c, --single-child",
            "-r, --rewrite s:r",
            "-v, --verbose",
            "-h, --help",
            "-V, --version",
        ] {
            assert!(help.contains(option), "{help}");
        }
        assert!(help.contains("Usage: ") && help.contains(" [option] command [[arg] ...]"));
    }
}

/// The lines of dumb-init, without pids. Lines about the terminal, which treaper keeps, are left out. A line that the
/// child writes while its parent goes on is put first.
fn printed(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = without_pids(text)
        .lines()
        .filter(|line| line.starts_with("[dumb-init]") && !line.contains("controlling tty"))
        .map(str::to_owned)
        .collect();
    lines.sort_by_key(|line| !line.contains("setsid complete."));
    lines
}

#[test]
fn messages_are_in_the_words_of_dumb_init() {
    let Some(real) = real("dumb-init") else {
        return;
    };
    for (options, variables, command) in [
        (&["-v"][..], &[][..], WAIT),
        (&["--verbose", "-c"], &[], WAIT),
        (&["-v", "-r", "15:2"], &[], WAIT),
        (&["-v", "-c", "-r15:0"], &[], GO),
        (&["-c"], &[("DUMB_INIT_DEBUG", "1")], WAIT),
        (
            &["-v"],
            &[("DUMB_INIT_DEBUG", "1"), ("DUMB_INIT_SETSID", "0")],
            WAIT,
        ),
        // In a pair, the parent of the command is the process that is not suspended.
        (&["-v", "-c"], &[("TREAPER_NO_GUARD", "1")], SUSPEND),
    ] {
        let words = [options, &["sh", "-c", command]].concat();
        let theirs = real.outcome(variables, &words);
        let own = treaper_as("dumb-init").outcome(variables, &words);
        assert_eq!((own.code, &own.stdout), (theirs.code, &theirs.stdout));
        let (own, theirs) = (printed(&own.stderr), printed(&theirs.stderr));
        // A SIGTERM that must not be forwarded. The processes that are left get it anyway.
        let dropped = "[dumb-init] Not forwarding signal 0 to children (ignored).".to_owned();
        if theirs.contains(&dropped) {
            assert!(own.contains(&dropped), "{own:?}");
            continue;
        }
        assert_eq!(own, theirs, "{options:?} {variables:?}");
    }
    // Only the text 1 counts.
    for (value, logs) in [("1", true), ("0", false), ("yes", false)] {
        let outcome = treaper_as("dumb-init").outcome(&[("DUMB_INIT_DEBUG", value)], &["true"]);
        assert_eq!(!outcome.stderr.is_empty(), logs, "{value}: {outcome:?}");
    }
}

#[test]
fn each_signal_reaches_the_server_once() {
    let mut send = plain_signals();
    send.retain(|signal| *signal <= 31);
    send.extend(["ILL", "TRAP", "ABRT", "BUS", "SYS", "TERM", "HUP"].map(signals::number));
    send.retain(|signal| ![4, 8, 11].contains(signal));
    for program in both("dumb-init") {
        for (options, variables) in [GROUP, SINGLE, SINGLE_BY_VARIABLE] {
            let mut run = program.start_in(scene(variables), options, "server:record");
            assert_eq!(
                exchange(&mut run, &send, &[]),
                send,
                "{program:?} {options:?}"
            );
        }
    }
}

#[test]
fn signals_are_rewritten_or_dropped() {
    const TERM: i32 = libc::SIGTERM;
    const INT: i32 = libc::SIGINT;
    const QUIT: i32 = libc::SIGQUIT;
    const CONT: i32 = libc::SIGCONT;
    type Case<'a> = (&'a [&'a str], &'a [i32], &'a [i32], &'a [i32]);
    let cases: [Case<'_>; 6] = [
        (&[], &[], &[TERM, QUIT, CONT, INT], &[TERM, QUIT, CONT, INT]),
        (
            &["-r", "15:2"],
            &[],
            &[TERM, QUIT, CONT, INT],
            &[INT, QUIT, CONT, INT],
        ),
        (
            &["-r15:2", "--rewrite", "2:15", "--rewrite=3:3"],
            &[],
            &[TERM, QUIT, CONT, INT],
            &[INT, QUIT, CONT, TERM],
        ),
        (&["-r", "1:31", "-r", "31:1"], &[], &[1, 31], &[31, 1]),
        (
            &["-r", "15:3", "-r", "2:0", "-r", "28:0"],
            &[INT, libc::SIGWINCH],
            &[TERM, 1],
            &[QUIT, 1],
        ),
        // The last one counts.
        (&["-r", "1:2", "-r", "1:3"], &[], &[1], &[3]),
    ];
    for program in both("dumb-init") {
        for (options, dropped, send, expected) in cases {
            for (mode, variables) in [GROUP, SINGLE, SINGLE_BY_VARIABLE] {
                let options = [mode, options].concat();
                let mut run = program.start_in(scene(variables), &options, "server:record");
                let got = exchange(&mut run, send, dropped);
                assert_eq!(got, expected, "{program:?} {options:?} {variables:?}");
            }
        }
    }
}

#[test]
fn a_key_of_the_terminal_suspends_the_server_and_dumb_init() {
    for program in both("dumb-init") {
        let mut run = program.start(&[], "server:record");
        let server = run.log.ready("server");
        for (count, name) in ["TSTP", "TTIN", "TTOU"].into_iter().enumerate() {
            run.signal(signals::number(name));
            until_state(&[run.main, server], 'T');
            run.signal(libc::SIGCONT);
            until("both go on", || {
                state(run.main) != 'T' && state(server) != 'T'
            });
            run.log.wait_for(count + 1, "server", "signal");
        }
        // SIGSTOP has suspended the server, so it has only seen SIGCONT.
        assert_eq!(run.received("server"), [libc::SIGCONT; 3], "{program:?}");
    }
}

#[test]
fn a_single_child_gets_the_signal_itself_and_so_does_one_with_a_rewrite() {
    let rewrites = ["-r", "20:1", "-r", "21:15", "-r", "22:2"];
    for program in both("dumb-init") {
        for (options, expected) in [(&["-c"][..], [20, 21, 22]), (&rewrites, [1, 15, 2])] {
            let mut run = program.start(options, "server:record");
            for (count, send) in [20, 21, 22].into_iter().enumerate() {
                run.signal(send);
                let signalled = run.log.wait_for(2 * count + 1, "server", "signal");
                assert_eq!(
                    signalled[2 * count].number("sig"),
                    i64::from(expected[count])
                );
                until_state(&[run.main], 'T');
                run.signal(libc::SIGCONT);
                let signalled = run.log.wait_for(2 * count + 2, "server", "signal");
                assert_eq!(
                    signalled[2 * count + 1].number("sig"),
                    i64::from(libc::SIGCONT)
                );
            }
        }
    }
}

#[test]
fn the_whole_group_is_signalled_or_the_single_child() {
    for program in both("dumb-init") {
        for (mode, variables, grouped) in [
            (GROUP.0, GROUP.1, true),
            (SINGLE.0, SINGLE.1, false),
            (SINGLE_BY_VARIABLE.0, SINGLE_BY_VARIABLE.1, false),
            // Only the text 0 counts.
            (&[], &[("DUMB_INIT_SETSID", "no")], true),
        ] {
            program.check_group(scene(variables), mode, grouped);
        }
    }
}

/// dumb-init sends SIGTERM to the group of a child that has ended, and does not wait; with `--single-child` it does not
/// send it. treaper sends it to all, also to processes that have left the group, and waits.
#[test]
fn processes_left_by_the_server_are_stopped() {
    for program in both("dumb-init") {
        for (mode, stop) in [
            (&[][..], libc::SIGTERM),
            (&["-c"], libc::SIGTERM),
            (&["-r15:2"], libc::SIGINT),
        ] {
            let tree = "server:on=USR1/5[worker:record:on=TERM/0:on=INT/0:slow=50,other:setsid:record:on=TERM/0:on=INT/0]";
            let mut run = program.start(mode, tree);
            run.log.ready("worker");
            run.log.ready("other");
            program.check_rest(&mut run);
            if program.is_treaper {
                let signalled = run.received("worker");
                assert!(signalled.contains(&stop), "{mode:?}: {signalled:?}");
                let signalled = run.received("other");
                assert!(signalled.contains(&stop), "{mode:?}: {signalled:?}");
            }
        }
    }
}

/// `cmd &` of a shell ignores SIGINT. The usual grace would be 10 s, and dumb-init does not wait at all.
#[test]
fn a_rest_that_ignores_the_rewritten_signal_is_not_waited_for_long() {
    for program in both("dumb-init") {
        let tree = "server:on=USR1/5[worker:setsid:ignore=INT]";
        let mut run = program.start(&["-r15:2"], tree);
        run.log.ready("worker");
        let end = clock::now() + Duration::from_secs(9);
        program.check_rest(&mut run);
        assert!(clock::now() < end, "{program:?}");
    }
}

#[test]
fn stdin_and_the_parent_do_not_matter() {
    for program in both("dumb-init") {
        let mut run = program.start_in(Scene::new().stdin_pipe(), &[], "server");
        run.log.ready("server");
        first_second_over();
        run.close_stdin();
        assert!(!run.ends_within(A_WHILE), "{program:?}");
    }
}

#[test]
fn the_server_keeps_the_directory_that_dumb_init_leaves() {
    for program in both("dumb-init") {
        let scene = Scene::new().with(|command| {
            command.current_dir("/dev");
        });
        let mut run = program.start_in(scene, &[], "server");
        let directory = |pid: i32| std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        let server = run.log.ready("server");
        assert_eq!(directory(server).to_str(), Some("/dev"));
        until("a directory let go", || {
            directory(run.main).to_str() == Some("/")
        });
        if program.is_treaper {
            let monitor = run.monitor();
            until("the monitor's too", || {
                directory(monitor).to_str() == Some("/")
            });
        }
    }
}
