//! What the test programs share: the arena of a scene, `/proc`, signals, system calls.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program needs another part"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::large_stack_arrays,
    reason = "test support: a failed call has to end the test loudly, by its deadline at the latest"
)]

pub mod arena;
pub mod family;
pub mod held;
mod inherited;
pub mod log;
pub mod place;
pub mod proc;
pub mod rng;
pub mod scene;
pub mod signals;
pub mod skip;
pub mod special;
pub mod sys;

pub use arena::{Exit, Run};
pub use scene::{Scene, Wrap};
pub use skip::skip;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const TREAPER: &str = env!("CARGO_BIN_EXE_treaper");
pub const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// Longer than any step takes on a loaded machine. It only ends a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// How the C library describes an error.
pub fn describe(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap().to_owned()
}

/// Options with which a test program runs a test in its own process. If panics abort, it starts a process for each test.
pub const IN_PROCESS: &[&str] = if cfg!(panic = "abort") {
    &["-Zunstable-options", "--force-run-in-process"]
} else {
    &[]
};

/// Looks again and again until the condition holds. For conditions without an event, such as a process state.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = patience();
    while !so() {
        assert!(Instant::now() < deadline, "waited too long for: {what}");
        sys::pause_for(Duration::from_millis(1));
    }
}

/// Waits until each of these processes is in this state, as in `ps`: `T` is suspended, `S` waits.
pub fn until_state(pids: &[i32], state: char) {
    until(&format!("the state {state} of {pids:?}"), || {
        pids.iter().all(|pid| proc::state(*pid) == state)
    });
}

/// Waits until the process takes no processor time.
pub fn until_it_rests(pid: i32) {
    // The first number is the processor time in nanoseconds. On a loaded machine a busy process may get none for a
    // while.
    let busy = || std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    until("a process that rests", || {
        let before = busy();
        sys::pause_for(Duration::from_millis(500));
        busy() == before
    });
}

/// Waits until the process has waited once more. A process that looks again and again without a pause never waits.
pub fn until_it_pauses(pid: i32) {
    let waits = || proc::status(pid, "voluntary_ctxt_switches").unwrap();
    let before = waits();
    until("a process that pauses", || waits() != before);
}

/// The seed in this variable, or the time. It is printed, so that a run can be repeated.
pub fn seed(variable: &str) -> u64 {
    let seed = std::env::var(variable).map_or_else(|_| sys::now_ms(), |text| text.parse().unwrap());
    eprintln!("{variable}={seed}");
    seed
}

/// A part of a name that no other test has, and no earlier run that was killed and left files: that one may have had
/// the same pid, but not at the same time.
pub fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("{}-{}-{number}", std::process::id(), time.as_nanos())
}

/// Waits until the first second of a treaper, which has started its server, is over: after that an end of stdin is that
/// of a host.
pub fn first_second_over() {
    let now = sys::now_ms();
    until("the first second is over", || sys::now_ms() > now + 1100);
}

/// The same for the process that looks at stdin: the monitor, or the only one. It begins to look when it has started
/// its server, which is ready sooner at times.
pub fn first_second_of(looks: i32) {
    until("a loop that waits", || {
        let own = proc::Process::read(looks).map(|process| process.comm);
        let children = proc::children(looks);
        // The first leader, and the server before its exec, have its own name.
        let has_started = children
            .iter()
            .all(|child| Some(&child.comm) != own.as_ref());
        !children.is_empty() && has_started && is_quiet(looks)
    });
    first_second_over();
}

/// Treaper with these options and this tree, once these of its processes are ready.
pub fn treaper(options: &[&str], tree: &str, ready: &[&str]) -> Run {
    let command = Wrap::Treaper(options).tree(tree);
    Scene::new().start(&command).ready(ready)
}

/// Starts a process that holds `pid` where it next enters this system call, until the returned value is dropped.
pub fn trace(pid: i32, call: libc::c_long) -> Run {
    let mut tracer = Scene::new().start(&[ACTOR, "trace", &pid.to_string(), &call.to_string()]);
    until("a tracer", || {
        let mut has = |what| !tracer.log.all("tracer", what).is_empty();
        has("attached") || has("tried")
    });
    tracer
}

/// Waits until it is held.
pub fn held(tracer: &mut Run) {
    let tried = tracer.log.wait("tracer", "tried");
    assert_eq!(tried.text("error"), "none", "ptrace is needed");
}

/// As [`trace`], for a process that waits in this call.
pub fn hold(pid: i32, call: libc::c_long) -> Run {
    let mut tracer = trace(pid, call);
    held(&mut tracer);
    tracer
}

/// Whether it has handled every signal, and waits for the next one.
pub fn is_quiet(pid: i32) -> bool {
    let waits = proc::Process::read(pid).is_some_and(|process| process.state == 'S');
    waits && proc::status(pid, "ShdPnd").as_deref() == Some("0000000000000000")
}

/// Fills a pipe through another open file, since the blocking mode belongs to the open file.
pub fn fill(pipe: &File) {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut filler = File::options().write(true).open(path).unwrap();
    sys::set_nonblocking(filler.as_raw_fd());
    while filler.write(&[b'x'; 4096]).is_ok() {}
    while filler.write(b"x").is_ok() {}
}
