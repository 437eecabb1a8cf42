//! The watch, called directly: which state of stdin and stdout is a trigger, and which is not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::family::in_a_child;
use common::scene::Directory;
use common::{special, sys, until};
use treaper::plan::event::Trigger;
use treaper::streams::idle;
use treaper::streams::watch::{Source, Watch, Woken};
use treaper::sys::signal::{self, Signal};
use treaper::sys::{arrival, clock, fd};

/// A watch, and the writer of what is now the stdin of this process.
fn watch() -> (Watch, File) {
    let (read, write) = sys::pipe().unwrap();
    sys::dup2(read.as_raw_fd(), fd::STDIN);
    let mut watch = Watch::default();
    watch.add(Source::Signals(arrival::signal_fd().unwrap()));
    (watch, write)
}

/// What the watch reports now.
fn trigger(watch: &mut Watch) -> Option<Trigger> {
    match watch.wait(Some(Duration::ZERO)) {
        Some(Woken::Trigger(trigger)) => Some(trigger),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_end_that_the_watch_sees_in_the_first_second_is_that_of_a_complete_input() {
    in_a_child(|| {
        let mut took = Duration::MAX;
        // A busy machine may need more than a second for that.
        while took >= Duration::from_secs(1) {
            let (mut watch, writer) = watch();
            let before = clock::now();
            watch.add_stdin(Trigger::StdinEof, true);
            watch.set_running(true);
            assert_eq!(trigger(&mut watch), None);
            drop(writer);
            let found = trigger(&mut watch);
            took = clock::now().saturating_sub(before);
            assert!(found.is_none() || took >= Duration::from_secs(1));
            assert_eq!(trigger(&mut watch), None);
            assert!(found.is_some() || !watch.stdin_is_back());
        }
        true
    });
}

#[test]
fn an_end_of_a_watched_stdin_is_reported_once() {
    in_a_child(|| {
        for (meaning, lenient) in [
            (Trigger::StdinEof, false),
            (Trigger::Hangup, true),
            (Trigger::Hangup, false),
        ] {
            let (mut watch, writer) = watch();
            watch.add_stdin(meaning, lenient);
            assert_eq!(trigger(&mut watch), None);
            drop(writer);
            assert_eq!(trigger(&mut watch), Some(meaning), "{lenient}");
            assert_eq!(trigger(&mut watch), None);
        }
        true
    });
}

#[test]
fn a_watched_stdin_is_back_if_a_writer_came_since_its_end() {
    in_a_child(|| {
        // Some kernels do not keep the time of the last write to a pipe without a name.
        let directory = Directory::new();
        let fifo = directory.0.join("fifo");
        sys::mkfifo(&fifo);
        let open = |options: &mut OpenOptions| options.write(true).open(&fifo).unwrap();
        let (mut watch, _) = watch();
        let writer = open(OpenOptions::new().read(true));
        sys::dup2(File::open(&fifo).unwrap().as_raw_fd(), fd::STDIN);
        watch.add_stdin(Trigger::StdinEof, false);
        assert_eq!(trigger(&mut watch), None);
        assert!(!watch.stdin_is_back());
        drop(writer);
        assert_eq!(trigger(&mut watch), Some(Trigger::StdinEof));
        assert!(!watch.stdin_is_back());

        let mut writer = open(&mut OpenOptions::new());
        assert!(watch.stdin_is_back());
        drop(writer);
        assert!(!watch.stdin_is_back());
        let before = fd::last_write(fd::STDIN);
        writer = open(&mut OpenOptions::new());
        until("a later time", || {
            writer.write_all(b"x").unwrap();
            fd::last_write(fd::STDIN) != before
        });
        drop(writer);
        assert!(watch.stdin_is_back());

        watch.set_running(false);
        assert_eq!(trigger(&mut watch), None);
        watch.set_running(true);
        assert!(!watch.stdin_is_back());
        assert_eq!(trigger(&mut watch), Some(Trigger::StdinEof));
        true
    });
}

#[test]
fn a_stdout_that_the_watch_has_lost_says_nothing_of_stdin() {
    in_a_child(|| {
        let (mut watch, _writer) = watch();
        let (read, write) = sys::pipe().unwrap();
        sys::dup2(write.as_raw_fd(), fd::STDOUT);
        watch.add_stdin(Trigger::StdinEof, false);
        watch.add_stdout();
        assert_eq!(trigger(&mut watch), None);
        drop(read);
        assert_eq!(trigger(&mut watch), Some(Trigger::StdoutClosed));
        assert!(!watch.stdin_is_back());
        assert_eq!(trigger(&mut watch), None);
        watch.set_running(true);
        assert_eq!(trigger(&mut watch), Some(Trigger::StdoutClosed));
        true
    });
}

#[test]
fn the_clock_of_idle_that_is_watched_stands_during_a_drain() {
    in_a_child(|| {
        let (mut watch, _writer) = watch();
        let idle = idle::start(Duration::ZERO).unwrap();
        assert_eq!(trigger(&mut watch), None);
        watch.add_idle(idle);
        assert_eq!(trigger(&mut watch), Some(Trigger::Idle));
        watch.set_running(false);
        assert_eq!(trigger(&mut watch), None);
        watch.set_running(true);
        assert_eq!(trigger(&mut watch), Some(Trigger::Idle));
        true
    });
}

/// The kernel polls no more descriptors than the process may have.
#[test]
fn a_watch_without_a_poll_still_gets_signals() {
    in_a_child(|| {
        let (mut watch, _writer) = watch();
        watch.add_stdin(Trigger::StdinEof, false);
        special::set_limit(libc::RLIMIT_NOFILE, 1);
        assert_eq!(trigger(&mut watch), None);
        signal::kill_self(Signal::TERM);
        let woken = watch.wait(None);
        matches!(woken, Some(Woken::Signal(arrival)) if arrival.signal == Signal::TERM)
    });
}
