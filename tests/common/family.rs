//! Processes of a scene whose first process is the test itself, in a PID namespace of its own.

use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use super::{IN_PROCESS, PATIENCE, proc, skip, special, sys, until};

/// Runs this in a child, in which all signals are blocked, except the alarm that ends it if it hangs. It has to return
/// true.
pub fn in_a_child(act: impl FnOnce() -> bool) {
    let pid = sys::fork();
    if pid == 0 {
        let every: Vec<i32> = (1..=64).filter(|&it| it != libc::SIGALRM).collect();
        sys::mask(libc::SIG_BLOCK, &every);
        sys::alarm_after(PATIENCE);
        // A panic would only end this thread. It is the last one of the child, which would then exit with status 0.
        let good = panic::catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|why| {
            let why = why.downcast::<String>().unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "in a child: {why}");
            false
        });
        sys::exit(i32::from(!good));
    }
    assert_eq!(sys::wait_for(pid), 0);
}

/// Runs one of the ignored tests of this program as the first process of a PID namespace.
pub fn play(test: &str) {
    play_with(test, &["--mount-proc"]);
}

/// The same, with these `options` of unshare.
pub fn play_with(test: &str, options: &[&str]) {
    skip::needs("pidns");
    let as_user: &[&str] = if sys::is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    let unshare: &[&str] = &["unshare", "--pid", "--fork", "--kill-child"];
    play_under(&[unshare, as_user, options].concat(), test);
}

/// Runs one of the ignored tests of this program by this command, which executes what follows it.
pub fn play_under(command: &[&str], test: &str) {
    let out = Command::new(command[0])
        .args(&command[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .args(IN_PROCESS)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
}

/// A number that forked processes share. It is 0 until it is set.
pub type Cell = &'static AtomicI64;

pub fn cell() -> Cell {
    special::shared_counter(0)
}

pub fn is_set(cell: Cell) -> i32 {
    while cell.load(SeqCst) == 0 {
        sys::pause_for(Duration::from_millis(1));
    }
    cell.load(SeqCst) as i32
}

/// A child that does this. Its pid is stored in the cell, if there is one.
pub fn child(into: Option<Cell>, act: impl FnOnce()) -> i32 {
    let pid = sys::fork();
    if pid == 0 {
        act();
        sys::exit(0);
    }
    if let Some(cell) = into {
        cell.store(pid.into(), SeqCst);
    }
    pid
}

/// Lives until it is killed.
pub fn live() {
    loop {
        sys::pause_for(Duration::from_secs(60));
    }
}

/// Lives, and reaps its children.
pub fn live_and_reap() {
    loop {
        if matches!(sys::wait(0), sys::Waited::NoChildren) {
            sys::pause_for(Duration::from_millis(1));
        }
    }
}

pub fn kill(pid: i32) {
    sys::kill(pid, libc::SIGKILL).unwrap();
}

pub fn gone(pid: i32) {
    until("its number is free", || sys::kill(pid, 0).is_err());
}

pub fn end(children: &[i32]) {
    for &pid in children {
        kill(pid);
        sys::wait_for(pid);
    }
    // The first process of the namespace adopts their orphans.
    while !matches!(sys::wait(libc::WNOHANG), sys::Waited::NoChildren) {
        for process in proc::children(sys::getpid()) {
            process.kill();
        }
    }
}

/// Makes the next process get this pid.
pub fn number_next(pid: i32) {
    let mut text = [0; 16];
    let room = text.len();
    let mut rest = &mut text[..];
    write!(rest, "{}", pid - 1).unwrap();
    let used = room - rest.len();
    sys::write_to(c"/proc/sys/kernel/ns_last_pid", &text[..used]);
}
