//! The start: the grammar, failures of the exec, and that the server gets exactly what treaper was given.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::scene::Directory;
use common::{ACTOR, Scene, TREAPER, Wrap, skip, special, sys, until};

/// Without an arena, for servers that only print and exit.
fn output<S: AsRef<OsStr>>(words: &[S]) -> Output {
    sys::leave_terminal();
    Command::new(TREAPER)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn code<S: AsRef<OsStr>>(words: &[S]) -> i32 {
    output(words).status.code().unwrap()
}

fn stdout<S: AsRef<OsStr>>(words: &[S]) -> String {
    String::from_utf8(output(words).stdout).unwrap()
}

#[test]
fn options_end_at_the_first_word_that_is_not_one() {
    assert_eq!(code(&["sh", "-c", "exit 7"]), 7);
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(code(&["--grace", "5s", "sh", "-c", "exit 7"]), 7);
    assert_eq!(
        code(&["--grace=5s", "-d", "1s", "-k", "tree", "sh", "-c", "exit 7"]),
        7
    );
    assert_eq!(code(&["-g5s", "--no-guard", "--", "sh", "-c", "exit 7"]), 7);
    let echo = "printf '%s|' \"$@\"";
    let tail = ["x", "--grace", "-v", "--", "--help", "--no-such", ""];
    let expected = "--grace|-v|--|--help|--no-such||";
    for before in [
        &[][..],
        &["--"],
        &["--grace", "1s"],
        &["--grace", "1s", "--"],
    ] {
        let words = [before, &["sh", "-c", echo], &tail].concat();
        assert_eq!(stdout(&words), expected, "{before:?}");
    }
}

#[test]
fn a_command_may_begin_with_a_dash_after_the_double_dash() {
    let out = output(&["--", "--no-such-command"]);
    assert_eq!(out.status.code(), Some(127));
    assert_eq!(
        output(&["--no-such-option", "true"]).status.code(),
        Some(125)
    );
}

#[test]
fn arguments_of_any_bytes_arrive() {
    let odd = OsStr::from_bytes(b"a\nb \xff\xfe'\"");
    let words: [&OsStr; 5] = [
        OsStr::new("sh"),
        OsStr::new("-c"),
        OsStr::new("printf %s \"$1\""),
        OsStr::new("x"),
        odd,
    ];
    assert_eq!(output(&words).stdout, odd.as_bytes());
}

#[test]
fn help_and_version_are_printed_and_nothing_is_started() {
    for word in ["-h", "--help", "-V", "--version"] {
        let out = output(&[word, "--", "sh", "-c", "echo started; exit 9"]);
        assert_eq!(out.status.code(), Some(0), "{word}");
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains("treaper"), "{word}: {text}");
        assert!(text.lines().all(|line| line != "started"), "{word}: {text}");
    }
}

#[test]
fn no_command_is_misuse() {
    for words in [&[][..], &["--"], &["--grace", "1s"], &["-v"]] {
        let out = output(words);
        assert_eq!(out.status.code(), Some(125), "{words:?}");
        assert!(out.stdout.is_empty());
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
    }
}

/// One way to start the process whose state is compared.
type Way = (&'static str, fn(Scene) -> Scene);

fn quiet(scene: Scene) -> Scene {
    scene.no_capture().with(|command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    })
}

/// The state under a wrap, without what differs between any two runs.
fn state(wrap: Wrap, way: fn(Scene) -> Scene) -> Vec<String> {
    let scene = way(quiet(Scene::new()));
    let directory = scene.directory().to_string_lossy().into_owned();
    let file = format!("{directory}/state");
    let mut run = scene.start(&wrap.command(&[ACTOR, "state", &file]));
    let exit = run.wait_clean();
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {exit:?}"));
    assert_eq!(exit.code(), Some(0));
    let text = text.replace(&directory, "DIRECTORY");
    // The number of a pseudo terminal differs in each run.
    let terminal = |line: &str| match line.split_once("/dev/pts/") {
        Some((head, tail)) => {
            format!(
                "{head}/dev/pts/N{}",
                tail.trim_start_matches(char::is_numeric)
            )
        }
        None => line.to_owned(),
    };
    let lines = text.lines().filter(|line| !line.starts_with('~'));
    lines.map(terminal).collect()
}

fn is_the_same(ways: &[Way], options: &[&str]) {
    for (name, way) in ways {
        let (bare, within) = (state(Wrap::Bare, *way), state(Wrap::Treaper(options), *way));
        let gone: Vec<_> = bare.iter().filter(|line| !within.contains(line)).collect();
        let new: Vec<_> = within.iter().filter(|line| !bare.contains(line)).collect();
        assert!(
            gone.is_empty() && new.is_empty(),
            "{name}: only bare {gone:#?}, only with treaper {new:#?}"
        );
    }
}

fn block_some() {
    sys::mask(
        libc::SIG_BLOCK,
        &[1, 2, 3, 10, 14, 15, 17, 18, 20, 28, 34, 40, 64],
    );
}

fn ignore_some() {
    for signal in [1, 2, 3, 10, 13, 14, 17, 20, 21, 28, 34, 64] {
        sys::ignore(signal, true);
    }
}

const WAYS: &[Way] = &[
    ("nothing special", |scene| scene),
    ("blocked signals", |scene| scene.before_exec(block_some)),
    ("ignored signals", |scene| scene.before_exec(ignore_some)),
    ("SIGPIPE ignored", |scene| {
        scene.before_exec(|| sys::ignore(libc::SIGPIPE, true))
    }),
    ("SIGPIPE default", |scene| {
        scene.before_exec(|| sys::ignore(libc::SIGPIPE, false))
    }),
    ("SIGCHLD ignored", |scene| {
        scene.before_exec(|| sys::ignore(libc::SIGCHLD, true))
    }),
    ("another directory", |scene| {
        scene.with(|command| {
            command.current_dir("/dev");
        })
    }),
    ("an empty environment but for odd names", |scene| {
        let log = scene.directory().join("log");
        scene.with(|command| {
            command
                .env_clear()
                .env("ACTOR_LOG", log)
                .env("x y", "")
                .env("A", "1\n2\x7f");
        })
    }),
    ("limits", |scene| {
        scene.before_exec(|| {
            special::set_limit(libc::RLIMIT_NOFILE, 1000);
            special::set_limit(libc::RLIMIT_CORE, 0);
            special::set_limit(libc::RLIMIT_STACK, 1 << 20);
            special::set_limit(libc::RLIMIT_FSIZE, 1 << 30);
        })
    }),
    ("more descriptors", |scene| {
        scene.before_exec(|| {
            for fd in [3, 4, 7, 63, 255, 800] {
                sys::dup2(2, fd);
            }
        })
    }),
    ("a terminal", |scene| {
        let (scene, master) = scene.terminal();
        // Open in this process until it ends, for as long as the scene may need it.
        std::mem::forget(master);
        scene
    }),
];

#[test]
fn the_server_gets_exactly_what_treaper_was_given() {
    is_the_same(WAYS, &[]);
}

#[test]
fn the_server_gets_exactly_what_treaper_was_given_without_a_guard() {
    is_the_same(WAYS, &["--no-guard"]);
}

#[test]
fn the_server_gets_exactly_what_treaper_was_given_when_everything_is_watched() {
    let pid = std::process::id().to_string();
    is_the_same(
        &WAYS[..4],
        &["--watch-pid", &pid, "--stdout", "watch", "--until", "tree"],
    );
}

/// It takes no more room than treaper's own command line had.
#[test]
fn the_command_line_of_the_monitor_says_what_it_is() {
    for (words, shown) in [
        (&["exec -a t \"$0\" cat"][..], &b"tree-\0"[..]),
        (&["exec \"$0\" cat"], b"tree-monitor\0"),
    ] {
        let command = [&["bash", "-c"], words, &[TREAPER]].concat();
        let mut run = Scene::new().stdin_pipe().start(&command);
        let name = format!("/proc/{}/cmdline", run.monitor());
        until("its name", || {
            std::fs::read(&name).unwrap().starts_with(b"tree-")
        });
        let line = std::fs::read(&name).unwrap();
        assert!(line.starts_with(shown), "{words:?} {line:?}");
        assert!(shown.len() > 6 || line == shown, "{line:?}");
        run.close_stdin();
        run.wait_clean();
    }
}

#[test]
fn closed_standard_descriptors_stay_closed_in_every_combination() {
    const CLOSED: &[Way] = &[
        ("0", |scene| scene.before_exec(|| sys::close(0))),
        ("1", |scene| scene.before_exec(|| sys::close(1))),
        ("2", |scene| scene.before_exec(|| sys::close(2))),
        ("0 1", |scene| scene.before_exec(|| sys::close_range(0, 1))),
        ("1 2", |scene| scene.before_exec(|| sys::close_range(1, 2))),
        ("0 2", |scene| {
            scene.before_exec(|| {
                sys::close(0);
                sys::close(2);
            })
        }),
        ("0 1 2", |scene| {
            scene.before_exec(|| sys::close_range(0, 2))
        }),
    ];
    is_the_same(CLOSED, &[]);
    is_the_same(CLOSED, &["--no-guard"]);
    is_the_same(CLOSED, &["-vv"]);
}

#[test]
fn the_environment_keeps_the_variables_of_treaper() {
    let scene = Scene::new().env("TREAPER_GRACE", "3s");
    let mut run = scene.start(&Wrap::Treaper(&[]).command(&["sh", "-c", "echo $TREAPER_GRACE"]));
    run.wait_clean();
    assert_eq!(run.stdout(), "3s\n");
}

#[test]
fn a_command_that_is_not_there_is_127_and_one_that_cannot_run_126() {
    let directory = Directory::new();
    let plain = directory.0.join("plain");
    std::fs::write(&plain, "x").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let garbage = directory.program("garbage", b"\x7fELF\0\0\0\0");
    let below = plain.join("below");
    for (command, expected) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/command", 127),
        (plain.to_str().unwrap(), 126),
        (directory.0.to_str().unwrap(), 126),
    ] {
        for guard in [&[][..], &["--no-guard"]] {
            let out = output(&[guard, &["--", command]].concat());
            let text = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(expected), "`{command}`: {text}");
            assert_eq!(text.lines().count(), 1, "`{command}`: {text}");
            assert!(text.starts_with("treaper: "), "`{command}`: {text}");
            assert!(text.contains(command), "`{command}`: {text}");
        }
    }
    // Shells differ in these.
    for path in [below, garbage.into()] {
        let out = output(&["--", path.to_str().unwrap()]);
        assert!(matches!(out.status.code(), Some(126 | 127)), "{out:?}");
    }
}

#[test]
fn a_directory_of_path_that_may_not_be_searched_is_passed_over() {
    let directory = Directory::new();
    let closed = directory.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let path = format!("{}:/usr/bin:/bin", closed.display());
    let run = |command: &str| {
        let mut scene = Scene::new().env("PATH", &path);
        if sys::is_root() {
            scene = scene.uid(12345);
        }
        let mut run = scene.start(&[TREAPER, "--", command]);
        run.wait_clean().code()
    };
    assert_eq!(run("no-such-command-anywhere"), Some(127));
    assert_eq!(run("true"), Some(0));
}

/// Only /bin and /usr/bin then, as execvp(3) and the wrappers do: another directory may hold another program of the name.
#[test]
fn without_path_the_program_is_the_one_that_execvp_finds() {
    if !sys::is_root() {
        return common::skip("mounting needs root");
    }
    let script = "mount -t tmpfs none /usr/local/bin && cd /usr/local/bin &&
        printf '#!/bin/sh\\necho another\\n' >uname && chmod 755 uname && uname && exec env -u PATH \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", TREAPER, "uname"]);
    command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let out = command.output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        said,
        "another\nLinux\n",
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn a_program_of_path_that_may_not_be_run_is_126_unless_a_later_one_may() {
    let directory = Directory::new();
    let (first, second) = (directory.0.join("1"), directory.0.join("2"));
    let program = directory.program("thing", b"#!/bin/sh\nexit 5\n");
    for (place, mode) in [(&first, 0o644), (&second, 0o755)] {
        std::fs::create_dir(place).unwrap();
        common::scene::copy_program(&program, place.join("thing"));
        std::fs::set_permissions(place.join("thing"), PermissionsExt::from_mode(mode)).unwrap();
    }
    let run = |path: String| {
        let mut run = Scene::new()
            .env("PATH", &path)
            .start(&[TREAPER, "--", "thing"]);
        run.wait_clean().code()
    };
    assert_eq!(run(first.display().to_string()), Some(126));
    assert_eq!(
        run(format!("{}:{}", first.display(), second.display())),
        Some(5)
    );
}

#[test]
fn a_script_without_an_interpreter_line_runs_as_a_shell_would_run_it() {
    let directory = Directory::new();
    let script = directory.program("script", b"printf '%s|' \"$@\"; exit 7\n");
    let out = output(&[script.as_str(), "a b", "-c"]);
    assert_eq!(out.status.code(), Some(7), "{out:?}");
    assert_eq!(out.stdout, b"a b|-c|");
}

/// With a copy in treaper a pipe would not end, and a file system could not be unmounted.
#[test]
fn treaper_holds_neither_the_descriptors_nor_the_directory_of_its_server() {
    for options in [&[][..], &["--no-guard"]] {
        let scene = Scene::new().stdin_pipe();
        let path = scene.directory().join("fifo");
        sys::mkfifo(&path);
        let mut both = std::fs::OpenOptions::new();
        // Open for reading and writing, so that neither end has to wait for the other.
        let both = both.read(true).write(true).open(&path).unwrap();
        let end = std::fs::File::open(&path).unwrap();
        let before = "exec 3>\"$0\"; cd /dev; exec \"$@\"";
        let server = "echo up; read line; exec 3>&-; read line";
        let words = ["sh", "-c", before, path.to_str().unwrap()].map(str::to_owned);
        let command = Wrap::Treaper(options).command(&["sh", "-c", server]);
        let mut run = scene.start(&[&words[..], &command].concat());
        until("a server", || run.stdout() == "up\n");
        drop(both);
        let ended = |wait| sys::poll(&[(end.as_raw_fd(), libc::POLLIN)], Some(wait))[0] != 0;
        assert!(!ended(Instant::now()), "the server has it");
        run.write_stdin(b"close it\n");
        assert!(ended(common::patience()), "{options:?}: treaper has it");
        let directory = |pid: i32| std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        let own = run.named("treaper").into_iter();
        for process in own.chain(run.named("tree-monitor")) {
            until("a directory let go", || {
                directory(process.pid) == Path::new("/")
            });
        }
        assert_eq!(directory(run.named("sh")[0].pid).to_str(), Some("/dev"));
    }
}

/// A file system that it had open can be unmounted right after it, as after a bare command.
#[test]
fn nothing_of_treaper_holds_a_file_when_it_has_ended() {
    let directory = Directory::new();
    let mut mounts = Command::new("unshare");
    let mounts = mounts.args(["--mount", "mount", "-t", "tmpfs", "tmpfs"]);
    let out = mounts.arg(&directory.0).output().unwrap();
    if !out.status.success() {
        return skip("needs root, to mount a file system");
    }
    let script = "n=0; while [ $((n += 1)) -le 100 ]; do \
        mount -t tmpfs tmpfs \"$0\" && \"$@\" 3>\"$0/other\" >\"$0/output\" && umount \"$0\" || exit 1; done";
    let folder = directory.0.to_str().unwrap();
    for wrap in [&[][..], &[TREAPER], &[TREAPER, "--no-guard"]] {
        let mut scene = Command::new("unshare");
        scene.args(["--mount", "sh", "-c", script, folder]);
        let out = scene.args(wrap).arg("true").output().unwrap();
        assert!(out.status.success(), "{wrap:?}: {out:?}");
    }
}

/// Small machines and some service managers set such limits. A server that runs bare also runs below treaper, and can
/// be stopped.
#[test]
fn a_small_stack_is_enough_for_a_start_and_for_a_stop() {
    let tree =
        "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep 1000; :\" &); echo ready; sleep 1001; :";
    let small = ["sh", "-c", "ulimit -s 28; exec \"$@\"", "sh"];
    for options in [
        &["--grace", "100ms"][..],
        &["--grace", "100ms", "--no-guard"],
    ] {
        let scene = Scene::new().with(|command| {
            let path = std::env::var_os("PATH").unwrap();
            command.env_clear().env("PATH", path);
        });
        let command = Wrap::Treaper(options).command(&["sh", "-c", tree]);
        let mut run = scene.start(&[&small.map(str::to_owned)[..], &command].concat());
        until("a server or an end", || {
            run.stdout() == "ready\n" || run.ends_within(Duration::ZERO)
        });
        run.signal(libc::SIGTERM);
        let code = run.wait_clean().code();
        assert_eq!(
            code,
            Some(128 + libc::SIGKILL),
            "{options:?}: {}",
            run.stderr()
        );
    }
}

/// The first leader of the server's session needs some time here, and the wait for it fails at once.
#[test]
fn a_wait_that_is_interrupted_does_not_mean_that_the_first_leader_is_held() {
    if std::process::Command::new("strace").output().is_err() {
        return common::skip("strace is not installed");
    }
    for error in ["EINTR", "ENOMEM"] {
        let fault = format!("inject=ppoll:error={error}:when=1");
        let strace = ["strace", "-f", "-b", "execve", "-o", "/dev/null"];
        let slow = "inject=clone3:delay_enter=300000";
        let faults = ["-e", "trace=ppoll,clone3", "-e", &fault, "-e", slow];
        let command = [TREAPER, "--", "sh", "-c", "echo started"];
        let mut run = Scene::new().start(&[&strace[..], &faults, &command].concat());
        let (exit, stderr) = (run.wait_empty(), run.stderr());
        assert_eq!(exit.code(), Some(0), "{error}: {stderr}");
        assert_eq!(run.stdout(), "started\n", "{error}: {stderr}");
    }
}
