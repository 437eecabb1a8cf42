//! The message and the status for a COMMAND that cannot be executed: the message names what is missing.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use common::place::Place;
use common::scene::Directory;
use common::{ACTOR, Scene, TREAPER, Wrap, skip, special, sys};

/// The exit status, and the line on stderr.
fn failed(options: &[&str], command: &OsStr) -> (i32, String) {
    let mut treaper = Command::new(TREAPER);
    treaper
        .args(options)
        .arg("--")
        .arg(command)
        .stdin(Stdio::null());
    let output = treaper.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), text.trim_end().to_owned())
}

#[test]
fn a_missing_interpreter_is_named_and_not_the_script() {
    let directory = Directory::new();
    let script = |name: &str, text: &str| directory.program(name, text.as_bytes());
    for (path, missing) in [
        (
            script("windows", "#!/bin/sh\r\nexit 0\r\n"),
            "its interpreter '/bin/sh\\r' does not exist; the lines of this file end with CR LF",
        ),
        (
            script("nowhere", "#! \t/no/such/interpreter -x\n"),
            "its interpreter '/no/such/interpreter' does not exist",
        ),
        (
            script("through", "#!/etc/passwd/x\n"),
            "its interpreter '/etc/passwd/x' does not exist",
        ),
    ] {
        for options in [&[][..], &["--no-guard"]] {
            let (status, text) = failed(options, OsStr::new(&path));
            assert_eq!(text, format!("treaper: cannot execute '{path}': {missing}"));
            assert_eq!(status, 126, "{path}");
        }
    }
}

/// treaper has left the working directory when it reads the first line of the script.
#[test]
fn a_missing_interpreter_of_a_relative_path_is_named() {
    let directory = Directory::new();
    directory.program("no-such-tool", b"#!/no/such/interpreter\n");
    for (name, path) in [("./no-such-tool", "/bin"), ("no-such-tool", "/bin:")] {
        for options in [&[][..], &["--no-guard"]] {
            let mut treaper = Command::new(TREAPER);
            treaper.args(options).args(["--", name]).env("PATH", path);
            treaper.current_dir(&directory.0).stdin(Stdio::null());
            let output = treaper.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            let expected = format!(
                "treaper: cannot execute '{name}': its interpreter '/no/such/interpreter' does not exist\n"
            );
            assert_eq!(text, expected, "{options:?}");
            assert_eq!(output.status.code(), Some(126));
        }
    }
}

#[test]
fn a_missing_interpreter_is_named_in_a_cgroup_too() {
    if Place::new().is_none() {
        return skip("no cgroup v2 that this user may change");
    }
    let directory = Directory::new();
    let path = directory.program("script", b"#!/no/such/interpreter\n");
    let (status, text) = failed(&["--contain=cgroup"], OsStr::new(&path));
    assert!(
        text.contains("interpreter '/no/such/interpreter'"),
        "{text}"
    );
    assert_eq!(status, 126);
}

#[test]
fn a_missing_dynamic_loader_is_named_as_that() {
    let directory = Directory::new();
    let mut elf = fs::read(TREAPER).unwrap();
    // The name is right behind the headers, if there is one.
    let Some(at) = elf[..4096]
        .windows(5)
        .position(|bytes| bytes == b"/lib/" || bytes == b"/lib6")
    else {
        return skip("treaper has no dynamic loader");
    };
    elf[at..at + 5].copy_from_slice(b"/nope");
    let path = directory.program("program", &elf);
    let (status, text) = failed(&[], OsStr::new(&path));
    assert!(
        text.ends_with("the dynamic loader that it names does not exist"),
        "{text}"
    );
    assert_eq!(status, 126);
}

#[test]
fn a_path_through_a_file_is_126_as_in_a_shell() {
    let (status, text) = failed(&[], OsStr::new("/etc/passwd/x"));
    assert_eq!(
        text,
        "treaper: cannot execute '/etc/passwd/x': Not a directory"
    );
    assert_eq!(status, 126);
    let shell = Command::new("bash").args(["-c", "/etc/passwd/x"]).output();
    assert!(shell.is_err() || shell.unwrap().status.code() == Some(126));
}

#[test]
fn a_directory_of_path_that_may_not_be_searched_is_named() {
    let directory = Directory::new();
    let closed = directory.0.join("closed");
    fs::create_dir(&closed).unwrap();
    directory.program("closed/hidden", b"#!/bin/sh\n");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let path = format!("/usr/bin:{}:/bin", closed.display());
    let mut scene = Scene::new().env("PATH", &path);
    if sys::is_root() {
        scene = scene.uid(12345);
    }
    let mut run = scene.start(&[TREAPER, "--", "hidden"]);
    assert_eq!(run.wait_clean().code(), Some(127));
    let expected = format!(
        "treaper: cannot find 'hidden' in PATH: treaper is not permitted to search the directory '{}'\n",
        closed.display()
    );
    assert_eq!(run.stderr(), expected);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_directory_of_the_name_of_the_command_does_not_close_its_directory_of_path() {
    let directory = Directory::new();
    fs::create_dir(directory.0.join("tool")).unwrap();
    let scene = Scene::new().env("PATH", directory.0.to_str().unwrap());
    let mut run = scene.start(&[TREAPER, "--", "tool"]);
    assert_eq!(run.wait_clean().code(), Some(127));
    let expected = "treaper: cannot find 'tool': No such file or directory\n";
    assert_eq!(run.stderr(), expected);
}

#[test]
fn a_name_that_is_not_utf8_is_shown_escaped() {
    let (status, text) = failed(&[], OsStr::from_bytes(b"/no/such\xff\xfe\x1b[2J"));
    let expected = "treaper: cannot find '/no/such\\xff\\xfe\\u{1b}[2J': No such file or directory";
    assert_eq!((status, text.as_str()), (127, expected));
}

/// An empty tree could not be told from any other, so there is none.
#[test]
fn nothing_is_started_where_a_filter_refuses_to_wait_for_children() {
    for options in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        let server = Wrap::Treaper(options).command(&["echo", "started"]);
        let before = [ACTOR, "faults", "waitid=EPERM", "--"];
        let words: Vec<&str> = before
            .into_iter()
            .chain(server.iter().map(String::as_str))
            .collect();
        let mut run = Scene::new().start(&words);
        assert_eq!(run.wait_clean().code(), Some(125), "{options:?}");
        assert_eq!(run.stdout(), "", "{options:?}");
        let printed = run.stderr();
        let says = "cannot wait for children: ";
        assert_eq!(printed.matches(says).count(), 1, "{options:?}: {printed}");
        assert_eq!(printed.lines().count(), 1, "{options:?}: {printed}");
    }
}

/// The monitor is killed by its first call, which makes a process group.
#[test]
fn a_monitor_that_is_killed_before_the_start_is_the_reason() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let kill = "inject=setpgid:signal=KILL";
    let strace = [
        "strace",
        "-f",
        "-qq",
        "-b",
        "execve",
        "-o",
        "/dev/null",
        "-e",
        "trace=setpgid",
        "-e",
        kill,
    ];
    let words = [&strace[..], &[TREAPER, "--", "echo", "started"]].concat();
    let mut run = Scene::new().start(&words);
    assert_eq!(run.wait_clean().code(), Some(125));
    let expected = "treaper: the monitor is gone, so COMMAND was not started\n";
    assert_eq!(
        (run.stderr().as_str(), run.stdout().as_str()),
        (expected, "")
    );
}

/// What a new user types.
#[test]
fn a_word_for_a_shell_gets_a_hint() {
    let line = "for a line of a shell, write: treaper sh -c 'LINE'";
    let missing = "No such file or directory";
    for (word, status, text) in [
        (
            "/tmp",
            126,
            "cannot execute '/tmp': Is a directory".to_owned(),
        ),
        (".", 126, "cannot execute '.': Is a directory".to_owned()),
        (
            "a; b",
            127,
            format!("cannot find 'a; b': {missing}; {line}"),
        ),
        ("a|b", 127, format!("cannot find 'a|b': {missing}; {line}")),
        (
            "cd",
            127,
            format!(
                "cannot find 'cd': {missing}; it is a command of the shell, so write: treaper sh -c 'LINE'"
            ),
        ),
        (
            "FOO=1",
            127,
            format!(
                "cannot find 'FOO=1': {missing}; to set a variable, write: treaper env NAME=VALUE COMMAND"
            ),
        ),
        ("no-such", 127, format!("cannot find 'no-such': {missing}")),
        (
            "a b/c",
            127,
            format!("cannot find 'a b/c': {missing}; {line}"),
        ),
    ] {
        for options in [&[][..], &["--no-guard"]] {
            let found = failed(options, OsStr::new(word));
            assert_eq!(found, (status, format!("treaper: {text}")));
        }
    }
}

#[test]
fn an_option_that_has_taken_the_command_is_named() {
    for (words, text) in [
        (
            &["--report", "true"][..],
            "no COMMAND was given: 'true' is the FILE of --report",
        ),
        (&["--no-guard"], "no COMMAND was given; see treaper --help"),
        (
            &["--grce=1s", "true"],
            "unexpected argument '--grce' found; did you mean --grace?",
        ),
        (
            &["--rewrite=KILL:TERM", "true"],
            "--rewrite: invalid value 'KILL:TERM': SIGKILL and SIGSTOP cannot be rewritten",
        ),
    ] {
        let output = Command::new(TREAPER).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (said, output.status.code()),
            (format!("treaper: {text}\n"), Some(125))
        );
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(TREAPER)
        .arg("--help")
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "treaper: cannot write to stdout: No space left on device\n"
    );
}

/// Behind `unshare --pid`, the next child is the init of another namespace.
#[test]
fn a_monitor_that_would_be_pid_1_says_what_unshare_needs() {
    if !sys::is_root() {
        return skip("only root makes a PID namespace alone");
    }
    for (fork, status, needs_fork) in [(&[][..], 125, true), (&["--fork"], 0, false)] {
        let mut command = Command::new("unshare");
        command.arg("--pid").args(fork).args([TREAPER, "true"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert_eq!(said.contains("unshare needs --fork"), needs_fork, "{said}");
    }
}

/// The end of a command in an environment of so many bytes. An error: it could not be executed.
fn in_an_environment(bytes: usize, words: &[&str]) -> std::io::Result<Output> {
    // The smallest limit is 128 KiB, but a string may not be longer than that.
    let fill = (0..bytes / 1024).map(|at| (format!("FILL{at:04}"), "x".repeat(1015)));
    let rest = ("REST".to_owned(), "x".repeat(bytes % 1024));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/bin:/bin").envs(fill).envs([rest]);
    special::limit_stack(&mut command, 256 << 10);
    command.output()
}

/// treaper itself could be started. Then what fits without it is started by it as well.
#[test]
fn a_command_whose_arguments_do_not_fit_beside_its_environment_is_one_error() {
    let directory = Directory::new();
    // The kernel adds a part of its first line to its arguments.
    let line = format!("#!/bin/sh -{}\necho started\n", "e".repeat(200));
    let script = directory.program("script", line.as_bytes());
    let too_long = format!("treaper: cannot execute '{script}': Argument list too long\n");
    for options in [&[][..], &["--no-guard"], &["--contain=pidns"]] {
        if options.contains(&"--contain=pidns") && !sys::is_root() {
            skip("pidns without root depends on the machine");
            continue;
        }
        for command in [&["echo", "started"][..], &[&*script]] {
            let words = [&[TREAPER], options, &["--"], command].concat();
            let fits = largest_environment(&words);
            for bytes in [fits, fits - 100, fits - 4000] {
                let output = in_an_environment(bytes, &words).unwrap();
                let bare = in_an_environment(bytes, command);
                let expected = match &bare {
                    Ok(bare) => (bare.status.code(), &bare.stdout[..], &b""[..]),
                    Err(_) => (Some(126), &b""[..], too_long.as_bytes()),
                };
                let found = (output.status.code(), &*output.stdout, &*output.stderr);
                assert_eq!(found, expected, "{bytes} {words:?}");
                // Both of them are seen.
                let fails = bytes > fits - 200 && command == [&script];
                assert_eq!(bare.is_err(), fails, "{bytes} {words:?}");
            }
        }
    }
}

/// With one more byte in its environment this command cannot be executed.
fn largest_environment(words: &[&str]) -> usize {
    let (mut fits, mut too_large) = (64 << 10, 160 << 10);
    while too_large - fits > 1 {
        let middle = usize::midpoint(fits, too_large);
        match in_an_environment(middle, words) {
            Ok(_) => fits = middle,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
                too_large = middle;
            }
        }
    }
    fits
}
