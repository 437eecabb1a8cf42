//! The library for hosts written in Rust: `dispatch`, `command` and `find`. `tests/rust_host/run` kills such hosts.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::scene::{Directory, copy_program};
use common::{Scene, skip, sys};

const HOST: &str = env!("CARGO_BIN_EXE_embedding");

/// What the host prints, and its exit status.
fn outcome(host: &mut Command) -> (String, Option<i32>) {
    let output = host.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8(printed).unwrap(), output.status.code())
}

#[test]
fn a_program_runs_behind_treaper_in_the_executable_of_the_host() {
    // The second parent of the program is the one that the host has started.
    let script = "sed -n 's/^Name:.//p' /proc/$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' /proc/$PPID/stat)/status; exit 7";
    let result = outcome(Command::new(HOST).args(["run", "sh", "-c", script]));
    assert_eq!(result, ("treaper\n".into(), Some(7)));
}

#[test]
fn nothing_that_the_program_has_started_stays_and_without_treaper_it_does() {
    let leave = [
        "sh",
        "-c",
        "setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 3",
    ];
    let mut bare = Scene::new().start(&leave);
    assert_eq!(bare.wait().code(), Some(3));
    assert_eq!(bare.survivors().len(), 1);
    let mut run = Scene::new().start(&[&[HOST, "run"], &leave[..]].concat());
    assert_eq!(run.wait_clean().code(), Some(3));
}

#[test]
fn only_a_first_argument_that_is_the_mark_starts_treaper() {
    let host = |name: &str, words: &[&str]| outcome(Command::new(HOST).arg0(name).args(words));
    for (name, words) in [
        ("treaper", &["--treaper"] as &[_]),
        ("treaper", &["x", "y"]),
        ("treaper", &["x", "--treaper", "true"]),
        ("treaper", &["--", "true"]),
        ("host", &[]),
    ] {
        let printed = format!("a host with {} words\n", words.len());
        assert_eq!(host(name, words), (printed, Some(0)), "{name} {words:?}");
    }
    for name in ["treaper", "other"] {
        let words = ["--treaper", "sh", "-c", "exit 5"];
        assert_eq!(host(name, &words), (String::new(), Some(5)));
    }
}

/// Otherwise it would start the host again and again, or act as another init.
#[test]
fn another_name_for_the_program_starts_no_second_host() {
    for name in ["other", "", "tini"] {
        let mut host = Command::new(HOST);
        let host = host.args(["run", "sh", "-c", "echo $0; exit 7"]);
        let result = outcome(host.env("ARG0", name));
        assert_eq!(result, ("sh\n".to_owned(), Some(7)), "{name:?}");
    }
}

#[test]
fn a_host_whose_file_was_deleted_can_start_programs() {
    let directory = Directory::new();
    let copy = directory.0.join("host");
    copy_program(HOST, &copy);
    let result = outcome(Command::new(&copy).args(["deleted", "sh", "-c", "exit 7"]));
    assert_eq!(result, (String::new(), Some(7)));
    assert!(!copy.exists());
}

/// Its command name is a field of `/proc/self/stat`, beside that of the place of the arguments.
#[test]
fn a_host_whose_name_has_a_blank_can_start_programs() {
    let directory = Directory::new();
    let copy = directory.0.join("my host");
    copy_program(HOST, &copy);
    let mut host = Command::new(&copy);
    let host = host.args(["--treaper", "sh", "-c", "exit 7"]);
    assert_eq!(outcome(host), (String::new(), Some(7)));
}

/// Neither process of the pair runs it.
#[test]
fn an_exit_handler_runs_once_in_the_host() {
    let mut host = Command::new(HOST);
    let host = host.args(["run", "sh", "-c", "exit 7"]);
    let result = outcome(host.env("EXIT_HANDLER", "1"));
    assert_eq!(result, ("an exit handler\n".into(), Some(7)));
}

#[test]
fn a_host_without_proc_can_start_programs() {
    if !sys::is_root() {
        return skip("only root can mount something");
    }
    let script = "mount -t tmpfs none /proc && ARG0=other exec \"$0\" run sh -c 'exit 7'";
    let mut host = Command::new("unshare");
    let (printed, status) = outcome(host.args(["--mount", "sh", "-c", script, HOST]));
    assert_eq!(status, Some(7), "{printed}");
}

#[test]
fn beside_other_threads_and_without_dispatch_there_is_an_error() {
    let mut host = Command::new(HOST);
    let (printed, status) = outcome(host.args(["run", "true"]).env("EARLY_THREAD", "1"));
    assert!(
        printed.contains("cannot run beside other threads"),
        "{printed}"
    );
    assert_eq!(status, Some(125));
    let result = outcome(
        Command::new(HOST)
            .args(["run", "true"])
            .env("NO_DISPATCH", "1"),
    );
    assert_eq!(result, ("NotADirectory\n".into(), Some(0)));
}

#[test]
fn find_gives_the_first_installed_program_of_the_absolute_directories() {
    let directory = Directory::new();
    let place = |name: &str| directory.0.join(name).join("treaper");
    for (name, mode) in [
        ("relative", 0o755),
        ("data", 0o644),
        ("good", 0o711),
        ("later", 0o755),
    ] {
        fs::create_dir(directory.0.join(name)).unwrap();
        fs::write(place(name), "").unwrap();
        fs::set_permissions(place(name), Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir_all(place("folder")).unwrap();
    fs::create_dir(directory.0.join("empty")).unwrap();
    let find = |names: &[&str]| {
        let absolute = |name: &&str| match *name {
            "relative" => name.into(),
            name => directory.0.join(name),
        };
        let path = std::env::join_paths(names.iter().map(absolute)).unwrap();
        outcome(
            Command::new(HOST)
                .arg("find")
                .env("PATH", path)
                .current_dir(&directory.0),
        )
        .0
    };
    let good = format!("Some({:?})\n", place("good"));
    assert_eq!(
        find(&["empty", "relative", "folder", "data", "good", "later"]),
        good
    );
    assert_eq!(find(&["relative", "data", "folder"]), "None\n");
    let unset = outcome(Command::new(HOST).arg("find").env_remove("PATH")).0;
    assert_eq!(unset, "None\n");
}
