//! Every system call that treaper makes fails: once, or each time from some point on. Before the server runs, that is
//! an error, and no process is left. After that, no process is left, or survivors are listed. treaper never hangs.
//!
//! strace makes the calls fail, only those of treaper's own processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test, which says how many runs it made"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use common::rng::Rng;
use common::{ACTOR, Run, Scene, TREAPER, proc, seed, skip, sys, until};

/// The errors of each call that treaper makes after its own start.
const CALLS: &[(&str, &[&str])] = &[
    ("accept4", &["ENFILE", "EPERM"]),
    ("bind", &["EACCES", "EPERM"]),
    ("chdir", &["EACCES", "ENOENT"]),
    ("clock_gettime", &["EPERM"]),
    ("clone", &["EAGAIN", "ENOMEM", "EPERM"]),
    ("clone3", &["ENOSYS", "EPERM", "EAGAIN"]),
    ("close", &["EINTR"]),
    ("connect", &["EPERM", "EACCES"]),
    ("dup2", &["EINTR", "EMFILE"]),
    ("dup3", &["EINTR", "EMFILE"]),
    ("faccessat2", &["ENOSYS", "EPERM"]),
    ("fchdir", &["EACCES"]),
    ("fcntl", &["EPERM"]),
    ("fstat", &["ENOMEM"]),
    ("getrandom", &["ENOSYS", "EAGAIN"]),
    ("getcwd", &["ENOENT", "EPERM"]),
    ("getdents64", &["ENOMEM", "EPERM"]),
    ("getpgid", &["EPERM"]),
    ("getpriority", &["EPERM", "ENOSYS"]),
    ("getsid", &["EPERM"]),
    ("ioctl", &["ENOTTY", "EPERM"]),
    ("kill", &["EPERM", "EAGAIN"]),
    ("listen", &["EPERM"]),
    ("lseek", &["EINVAL", "EPERM"]),
    ("mmap", &["ENOMEM"]),
    ("mlock", &["EPERM", "ENOMEM"]),
    ("newfstatat", &["ENOMEM", "EACCES"]),
    ("open", &["EMFILE", "ENOMEM", "EACCES", "EINTR"]),
    ("openat", &["EMFILE", "ENOMEM", "EACCES", "EINTR"]),
    ("pidfd_open", &["ENOSYS", "EMFILE", "EPERM"]),
    ("pidfd_send_signal", &["ENOSYS", "EPERM"]),
    ("pipe2", &["EMFILE", "ENFILE"]),
    ("poll", &["ENOMEM", "EINTR"]),
    ("ppoll", &["ENOMEM", "EINTR", "EPERM"]),
    ("prctl", &["EINVAL", "EPERM"]),
    ("pread64", &["EINTR"]),
    ("prlimit64", &["EPERM"]),
    ("read", &["EINTR", "EAGAIN", "ENOMEM"]),
    ("recvfrom", &["EAGAIN", "ENOMEM"]),
    ("renameat2", &["ENOSYS", "EPERM"]),
    ("rt_sigpending", &["EPERM", "ENOSYS"]),
    ("rt_sigqueueinfo", &["EPERM", "ENOSYS"]),
    ("rt_sigtimedwait", &["EINTR", "EPERM", "ENOSYS"]),
    ("sendto", &["EAGAIN", "EPERM"]),
    ("setpgid", &["EPERM", "EACCES"]),
    ("setsid", &["EPERM"]),
    ("signalfd4", &["EMFILE", "ENOMEM", "ENOSYS"]),
    ("socket", &["EMFILE", "EPERM"]),
    ("socketpair", &["EMFILE", "EPERM"]),
    ("splice", &["ENOSYS", "EPERM", "EAGAIN"]),
    ("stat", &["ENOMEM", "EACCES"]),
    ("statx", &["ENOSYS", "ENOMEM"]),
    ("unlinkat", &["EPERM"]),
    ("wait4", &["EINTR", "EPERM"]),
    ("waitid", &["EPERM", "ENOSYS"]),
    ("write", &["EAGAIN", "EINTR"]),
];

/// These cannot fail with good arguments, or belong to the allocator, which has another way. `readlinkat`
/// of `/proc/self` is tested by `fallbacks.rs`: without it, treaper finds children by millions of calls, which take
/// minutes under strace.
const WITHOUT_FAULT: &[&str] = &[
    "brk",
    "execve",
    "exit",
    "exit_group",
    "getegid",
    "geteuid",
    "getpgrp",
    "getpid",
    "getppid",
    "gettid",
    "getuid",
    "madvise",
    "mremap",
    "munmap",
    "readlink",
    "readlinkat",
    "rt_sigaction",
    "rt_sigprocmask",
    "umask",
    "uname",
];

/// If this one always fails, no process can be signalled: then there is no promise to test.
const ONCE_ONLY: &[&str] = &["kill"];

/// If these always fail, `/proc` cannot be used. `fallbacks.rs` tests that, too: the millions of calls that then find
/// children take minutes under strace.
const PROC: &[&str] = &["open", "openat", "read"];

const TREE: &str = "server:ignore=TERM[a:setsid:ignore=TERM,b:daemon:ignore=TERM]";
const OPTIONS: &[&str] = &["--grace", "30ms", "--kill-timeout", "1500ms"];

fn traced(rules: &[&str], options: &[&str]) -> Run {
    let strace = [
        &["strace", "-f", "-b", "execve", "-qq"],
        rules,
        &["--", TREAPER],
    ]
    .concat();
    let words = [&strace[..], OPTIONS, options, &["--", ACTOR, "tree", TREE]].concat();
    if options != RELAY {
        return Scene::new().start(&words);
    }
    let scene = Scene::new().stdin_pipe();
    let directory = scene.directory().to_owned();
    let in_directory = scene.with(|command| {
        command.current_dir(directory);
    });
    in_directory.start(&words)
}

/// As in a full memory cgroup, where the kernel frees what it can, and the next try succeeds.
#[test]
fn a_relay_that_has_no_memory_for_a_moment_loses_nothing() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let scene = Scene::new().stdin_pipe();
    let socket = format!("--inject=unix:{}", scene.directory().join("s").display());
    // strace leaves what executes another program.
    let strace = "strace -f -b execve -qq -o /dev/null -e";
    let strace: Vec<_> = strace.split(' ').collect();
    let rule = "inject=write:error=ENOMEM:when=1+2";
    let mut run = scene.start(&[&strace[..], &[rule, TREAPER, &socket, "cat"]].concat());
    let lines = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    for line in lines.split_inclusive('\n') {
        run.write_stdin(line.as_bytes());
        until("the line", || {
            run.stdout().ends_with(line) || run.ends_within(Duration::ZERO)
        });
    }
    run.close_stdin();
    assert_eq!(run.wait_clean().code(), Some(0), "{}", run.stderr());
    assert_eq!(run.stdout(), lines, "{}", run.stderr());
}

/// Stops the shim as soon as the tree is ready. Returns whether it ever was.
fn stop_when_ready(run: &mut Run) -> bool {
    let mut ready = false;
    until("a start or an end", || {
        let mut is_ready = |name| !run.log.all(name, "ready").is_empty();
        ready = is_ready("server") && is_ready("b");
        ready || run.ends_within(Duration::ZERO)
    });
    if ready {
        // The only child of strace. It may have ended.
        for shim in proc::children(run.main) {
            let _ = sys::kill(shim.pid, libc::SIGTERM);
        }
    }
    ready
}

/// How often one process makes each call: (by the loader at first, in all).
fn counts(options: &[&str]) -> Option<BTreeMap<String, (usize, usize)>> {
    if Command::new("strace").arg("-V").output().is_err() {
        skip("needs strace");
        return None;
    }
    let file = Scene::new();
    let path = file.directory().join("trace");
    let mut run = traced(&["-o", path.to_str().unwrap()], options);
    assert!(stop_when_ready(&mut run), "{}", run.stderr());
    run.wait_empty();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut by_process: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut loader: BTreeMap<String, usize> = BTreeMap::new();
    let mut begun = false;
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        let name = rest.split('(').next().unwrap().to_owned();
        if !rest.contains('(') || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        // It blocks all signals: the first call of treaper itself.
        begun |= name == "rt_sigprocmask";
        let count = by_process.entry((pid, name.clone())).or_default();
        *count += 1;
        if !begun {
            loader.insert(name, *count);
        }
    }
    let mut all: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for ((_, name), count) in by_process {
        let before = loader.get(&name).copied().unwrap_or(0);
        let entry = all.entry(name).or_insert((before, 0));
        entry.1 = entry.1.max(count);
    }
    Some(all)
}

fn is_known(name: &str) -> bool {
    CALLS.iter().any(|(known, _)| *known == name) || WITHOUT_FAULT.contains(&name)
}

const LEVELS: &[&[&str]] = &[
    &[],
    &["--no-guard"],
    &["--contain=pidns"],
    &["--contain=cgroup"],
];

/// With a relay in both directions.
const RELAY: &[&str] = &["--inject=unix:socket", "--turn=a=b", "--cancel=a=c"];

#[test]
fn the_table_names_every_call_that_is_made() {
    let mut unknown = BTreeSet::new();
    for options in [LEVELS[0], LEVELS[1], RELAY] {
        let Some(counts) = counts(options) else {
            return;
        };
        let counted = counts.into_iter().filter(|(_, (before, all))| all > before);
        unknown.extend(counted.map(|(name, _)| name).filter(|name| !is_known(name)));
    }
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

/// What is wrong with a run in which a call has failed; `None` if nothing is.
fn judge(rules: &[&str], options: &[&str]) -> Option<String> {
    let words = rules.iter().flat_map(|rule| ["-e", rule]);
    let words: Vec<&str> = ["-o", "/dev/null"].into_iter().chain(words).collect();
    let mut run = traced(&words, options);
    let ready = stop_when_ready(&mut run);
    let exit = run.wait();
    let code = exit.code();
    let named = |run: &mut Run| code == Some(123) && run.stderr().contains("surviv");
    if !exit.left.is_empty() && !named(&mut run) {
        return Some(format!(
            "left {:?}, code {code:?}: {}",
            exit.left,
            run.stderr()
        ));
    }
    let stderr = run.stderr();
    let started = !run.log.all("server", "ready").is_empty();
    // malloc of musl has only mmap. If it gets no memory before the start, the standard library aborts.
    let no_memory = stderr.contains("memory allocation of ");
    let aborted = cfg!(target_env = "musl") && code.is_none() && no_memory;
    if !started && !aborted && (code == Some(0) || code.is_none()) {
        return Some(format!("no server, but {exit:?}: {stderr}"));
    }
    // The message cannot be written, or it cannot be found out whether it can be without waiting.
    let unheard =
        |rule: &&str| rule.starts_with("inject=write:") || rule.starts_with("inject=fstat:");
    let mute = rules.iter().any(unheard);
    if !started && stderr.is_empty() && code != Some(137) && !mute {
        return Some(format!("no server and no word: {exit:?}"));
    }
    if ready && ![123, 125, 137].contains(&code.unwrap_or(-1)) {
        return Some(format!("{exit:?}: {stderr}"));
    }
    None
}

fn each_call_fails(options: &[&str], once: bool) {
    let Some(counts) = counts(options) else {
        return;
    };
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for (name, errors) in CALLS {
        let Some(&(before, all)) = counts.get(*name) else {
            continue;
        };
        if !once && (ONCE_ONLY.contains(name) || PROC.contains(name)) {
            continue;
        }
        for at in before + 1..=all {
            let error = errors[at % errors.len()];
            if !once && error == "EINTR" {
                // Not each time: it is right to try an interrupted call again.
                continue;
            }
            let on = if once { "" } else { "+" };
            let rule = format!("inject={name}:error={error}:when={at}{on}");
            runs += 1;
            let judged = std::panic::catch_unwind(|| judge(&[&rule], options));
            if let Some(what) = judged.unwrap_or(Some("a hang".to_owned())) {
                wrong.push(format!("{rule}: {what}"));
            }
        }
    }
    eprintln!("{runs} runs with {options:?}");
    assert!(runs > 20, "{options:?}: {runs} runs are not all calls");
    assert!(
        wrong.is_empty(),
        "{options:?}, {}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Two calls fail, each once: every kind of call with every other, at instants that the seed chooses. With each of
/// them alone all is right. Every `part`th pair is played.
fn two_calls_fail(options: &[&str], part: usize) {
    let Some(counts) = counts(options) else {
        return;
    };
    let mut random = Rng::new(seed("FAULTS_SEED"));
    let known = |name: &str| {
        counts
            .get(name)
            .copied()
            .filter(|(before, all)| before < all)
    };
    let made: Vec<_> = CALLS
        .iter()
        .filter_map(|(name, errors)| Some((name, errors, known(name)?)))
        .collect();
    let pairs = made.iter().enumerate();
    let pairs =
        pairs.flat_map(|(at, first)| made[at + 1..].iter().map(move |other| (first, other)));
    let offset = random.below(part as u64) as usize;
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for (first, other) in pairs.skip(offset).step_by(part) {
        let mut rule = |(name, errors, (before, all)): &(_, &&[&str], (usize, usize))| {
            let at = before + 1 + random.below((all - before) as u64) as usize;
            format!("inject={name}:error={}:when={at}", random.pick(errors))
        };
        let rules: [String; 2] = [rule(first), rule(other)];
        let rules = rules.each_ref().map(String::as_str);
        runs += 1;
        let judged = std::panic::catch_unwind(|| judge(&rules, options));
        if let Some(what) = judged.unwrap_or(Some("a hang".to_owned())) {
            wrong.push(format!("{rules:?}: {what}"));
        }
    }
    eprintln!("{runs} pairs with {options:?}");
    // Some calls are made at one machine and not at another.
    let kinds = made.len();
    assert!(kinds >= 15, "{options:?}: only {kinds} kinds of calls");
    assert!(
        wrong.is_empty(),
        "{options:?}, {}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Those that can be used here.
fn levels() -> impl Iterator<Item = &'static [&'static str]> {
    let has_cgroup = common::place::Place::new().is_some();
    LEVELS.iter().copied().filter(move |options| {
        let here = match options.first() {
            Some(&"--contain=pidns") => sys::is_root(),
            Some(&"--contain=cgroup") => has_cgroup,
            _ => true,
        };
        if !here {
            skip(&format!("{options:?} cannot be used here"));
        }
        here
    })
}

#[test]
fn each_call_may_fail_once() {
    levels().for_each(|options| each_call_fails(options, true));
}

#[test]
fn each_call_may_fail_from_some_point_on() {
    levels().for_each(|options| each_call_fails(options, false));
}

#[test]
fn each_call_may_fail_with_a_relay() {
    each_call_fails(RELAY, true);
    each_call_fails(RELAY, false);
}

#[test]
fn two_calls_may_fail() {
    levels().for_each(|options| two_calls_fail(options, 12));
}

#[test]
#[ignore = "minutes: all pairs. FAULTS_SEED chooses the instants"]
fn any_two_calls_may_fail() {
    levels().for_each(|options| two_calls_fail(options, 1));
}

#[test]
fn control_a_fault_is_felt() {
    if counts(LEVELS[0]).is_none() {
        return;
    }
    let rule = "inject=signalfd4:error=EMFILE:when=1";
    let mut run = traced(&["-o", "/dev/null", "-e", rule], LEVELS[0]);
    assert!(!stop_when_ready(&mut run), "the server was started");
    assert_eq!(run.wait_clean().code(), Some(125));
    assert!(run.stderr().contains("signalfd"), "{}", run.stderr());
}
