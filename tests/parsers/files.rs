//! mountinfo, stat, command lines and lists of pids: what other programs and the kernel write.

use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use treaper::contain::cgroup;
use treaper::origin::hosts::shell;
use treaper::sys::proc;
use treaper::sys::signal::Signal;

use crate::config;

/// As the kernel writes a path into mountinfo.
fn escaped(path: &[u8]) -> Vec<u8> {
    let write = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        other => vec![*other],
    };
    path.iter().flat_map(write).collect()
}

/// Such as `/a/b`, with names that need escaping. The root is empty.
fn path(depth: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let name = prop::collection::vec(prop::sample::select(b"ab \\\t07-.".to_vec()), 1..4)
        .prop_filter("a name", |name| !matches!(name.as_slice(), b"." | b".."));
    prop::collection::vec(name, depth).prop_map(|names| {
        let parts = names
            .into_iter()
            .map(|name| [b"/", name.as_slice()].concat());
        parts.flatten().collect()
    })
}

fn or_root(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

fn file_with(text: &[u8]) -> std::fs::File {
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create(c"text", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
    );
    file.write_all(text).unwrap();
    file.rewind().unwrap();
    file
}

proptest! {
    #![proptest_config(config())]

    /// The group is below the mounted part, beside it, or above it.
    #[test]
    fn the_group_is_found_where_the_hierarchy_is_mounted(
        mounted in path(0..3),
        below in path(0..3),
        elsewhere in path(1..3),
        points in (path(1..3), path(1..3)),
        inside in any::<bool>(),
        optional in "( shared:[0-9]| master:1){0,2}",
    ) {
        let own = if inside { [&mounted[..], &below].concat() } else { elsewhere.clone() };
        let line = |root: &[u8], point: &[u8], kind: &str| {
            let options = format!(" rw,nosuid{optional} - {kind} none rw\n");
            [b"30 23 0:26 ", &escaped(or_root(root))[..], b" ", &escaped(point), options.as_bytes()].concat()
        };
        let mounts = [
            line(b"", b"/proc", "proc"),
            line(b"", &points.0, "cgroup"),
            line(&mounted, &points.1, "cgroup2"),
        ].concat();
        let groups = [b"12:pids:/x\n0::", or_root(&own), b"\n"].concat();
        let rest = own.strip_prefix(mounted.as_slice()).filter(|rest| rest.is_empty() || rest[0] == b'/');
        let expected = rest.map(|rest| [&points.1[..], rest].concat());
        let found = cgroup::find(&mounts, &groups).ok();
        let found = found.map(|path| path.as_os_str().as_bytes().to_vec());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_mountinfo_crashes_it(mounts in "([-/ a:\\\\0-9]|cgroup2|\\n){0,60}", groups in "(0::)?(/|\\.\\.|a|\\n){0,8}") {
        if let Ok(path) = cgroup::find(mounts.as_bytes(), groups.as_bytes()) {
            let up = path.as_os_str().as_bytes().split(|byte| *byte == b'/').any(|part| part == b"..");
            prop_assert!(!up || mounts.contains(".."), "{:?}", path);
        }
    }

    /// The process chooses the name, so it may look like the fields after it.
    #[test]
    fn a_stat_is_read_as_it_was_written(
        pid in 1..i32::MAX,
        name in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"() R1".to_vec())], 0..16),
        state in prop::sample::select(b"RSDZTtXI".to_vec()),
        parent in 0..i32::MAX,
        group in 0..i32::MAX,
        foreground in -1..i32::MAX,
        started in any::<u64>(),
        ignored in any::<u64>(),
    ) {
        // Fields 6 and 7, 8, 9 to 21, 22, 23 to 32, 33, and the rest.
        let zeros = |count| vec!["0"; count].join(" ");
        let fields = format!(
            ") {} {parent} {group} 0 0 {foreground} {} {started} {} {ignored} {}\n",
            char::from(state), zeros(13), zeros(10), zeros(19),
        );
        let text = [format!("{pid} (").as_bytes(), &name, fields.as_bytes()].concat();
        let stat = proc::parse_stat(&text).unwrap();
        prop_assert_eq!(stat.name.as_bytes(), &name[..]);
        prop_assert_eq!((stat.state, stat.parent, stat.group, stat.foreground), (state, parent, group, foreground));
        prop_assert_eq!(stat.started, started);
        for number in 1..=31 {
            let signal = Signal::from_number(number).unwrap();
            prop_assert_eq!(stat.ignores(signal), ignored >> (number - 1) & 1 == 1);
        }
        // A text that is cut anywhere causes no crash.
        for length in 0..text.len() {
            let _ = proc::parse_stat(&text[..length]);
        }
    }

    #[test]
    fn no_stat_crashes_it(text in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"() 19".to_vec())], 0..80)) {
        let _ = proc::parse_stat(&text);
    }

    /// Longer than one read, so that a number is cut by its end.
    #[test]
    fn every_number_of_a_list_is_read(numbers in prop::collection::vec(1..i32::MAX, 0..900), mark in "[ \n]") {
        let text: String = numbers.iter().map(|number| format!("{number}{mark}")).collect();
        let file = file_with(text.as_bytes());
        let mut found = Vec::new();
        proc::each_number(file.as_fd(), &mut |number| found.push(number)).unwrap();
        prop_assert_eq!(found, numbers);
    }
}

/// Whether it is the command line of a shell that was given a command.
fn is_launcher(words: &[&str]) -> bool {
    let line: Vec<u8> = words
        .iter()
        .flat_map(|word| word.bytes().chain([0]))
        .collect();
    shell::was_given_a_command(&line)
}

#[test]
fn a_shell_with_a_command_is_found_in_each_spelling() {
    for words in [
        &["sh", "-c", "treaper server"][..],
        &["/bin/sh", "-ec", "x"],
        &["-bash", "-lc", "x"],
        &["bash", "--norc", "--rcfile", "file", "-c", "x"],
        &["bash", "-eo", "pipefail", "-c", "x"],
        &["bash", "-o", "pipefail", "+O", "extglob", "-c", "x"],
        &["/usr/bin/zsh", "-f", "-c", "x"],
        &["busybox", "sh", "-c", "x"],
        &["/bin/busybox", "ash", "-xc", "x"],
        &["fish", "--command=x"],
        &["fish", "-C", "init", "-c", "x"],
    ] {
        assert!(is_launcher(words), "{words:?}");
    }
}

#[test]
fn scripts_interactive_shells_and_other_programs_are_no_launchers() {
    for words in [
        &["sh"][..],
        &["-bash"],
        &["sh", "script.sh", "-c"],
        &["bash", "-e", "script.sh", "-c", "x"],
        &["bash", "-o", "posix", "script.sh"],
        &["bash", "--", "-c"],
        &["sh", "-s", "-", "-c"],
        &["fish", "-C", "init"],
        &["make", "-c"],
        &["python3", "-c", "x"],
        &["busybox", "timeout", "-c"],
        &[],
    ] {
        assert!(!is_launcher(words), "{words:?}");
    }
}
