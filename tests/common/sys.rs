//! The system calls of the tests, shared by the actor and the test programs: the only place here
//! with `unsafe`. Nothing in it can signal pid 0, 1 or a negative pid by mistake.
#![allow(
    unsafe_code,
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test support: each user needs another part, and a failed call has to end the test"
)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use libc::c_int;

/// The error number of a failed call.
pub fn check(result: c_int) -> Result<c_int> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Forks. Returns 0 in the child. Callers have one thread, or exec at once in the child.
pub fn fork() -> i32 {
    try_fork().unwrap()
}

/// As `fork`, but returns the error if a limit refuses it.
pub fn try_fork() -> Result<i32> {
    // SAFETY: the child of a single-threaded process may go on; no lock is held by another thread.
    check(unsafe { libc::fork() })
}

/// Ends this process without the exit handlers of the runtime.
pub fn exit(status: i32) -> ! {
    // SAFETY: `_exit` takes any status and does not return.
    unsafe { libc::_exit(status) }
}

/// Ends this thread alone, also if it is the main thread.
pub fn exit_thread() -> ! {
    // SAFETY: nothing is left that the thread owns.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!();
}

/// Replaces this process; returns only the error.
pub fn exec<S: AsRef<OsStr>>(argv: &[S]) -> Error {
    let words: Vec<CString> = argv
        .iter()
        .map(|word| CString::new(word.as_ref().as_bytes()).unwrap())
        .collect();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the array is null-terminated and lives, as its strings do, over the call.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    Error::last_os_error()
}

/// Signals one process. A pid of 1 or less is a mistake in the test, and is never passed to the kernel.
pub fn kill(pid: i32, signal: c_int) -> Result<()> {
    assert!(pid > 1, "refusing to signal pid {pid}");
    // SAFETY: a plain system call on integers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Signals one process group, which is not that of the caller.
pub fn kill_group(group: i32, signal: c_int) -> Result<()> {
    assert!(
        group > 1 && group != pgid(0),
        "refusing to signal process group {group}"
    );
    // SAFETY: a plain system call on integers; the group was checked above.
    check(unsafe { libc::kill(-group, signal) }).map(drop)
}

/// Queues a signal that carries a value.
pub fn queue(pid: i32, signal: c_int, value: usize) -> Result<()> {
    assert!(pid > 1, "refusing to signal pid {pid}");
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: the value is an opaque number, never dereferenced.
    check(unsafe { libc::sigqueue(pid, signal, value) }).map(drop)
}

/// Raises a signal in this process.
pub fn raise(signal: c_int) {
    // SAFETY: a plain call on an integer.
    unsafe { libc::raise(signal) };
}

pub fn pgid(pid: i32) -> i32 {
    // SAFETY: a plain system call on an integer.
    unsafe { libc::getpgid(pid) }
}

pub fn sid(pid: i32) -> i32 {
    // SAFETY: a plain system call on an integer.
    unsafe { libc::getsid(pid) }
}

pub fn getpid() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getpid() }
}

pub fn getppid() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getppid() }
}

pub fn euid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

pub fn is_root() -> bool {
    euid() == 0
}

pub fn setsid() {
    // SAFETY: a plain system call.
    unsafe { libc::setsid() };
}

pub fn setpgid() {
    // SAFETY: a plain system call: this process becomes the leader of its own group.
    unsafe { libc::setpgid(0, 0) };
}

pub fn subreaper() {
    // SAFETY: this operation reads one integer argument.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }).unwrap();
}

pub fn pdeathsig(signal: c_int) {
    // SAFETY: this operation reads one integer argument.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).unwrap();
}

pub fn get_pdeathsig() -> c_int {
    let mut signal: c_int = 0;
    // SAFETY: the kernel writes one int through the pointer.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    signal
}

pub fn set_comm(name: &str) {
    let name = CString::new(name).unwrap();
    // SAFETY: the kernel reads at most 16 bytes of a null-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Ignores a signal (`true`), or resets it to its default action.
pub fn ignore(signal: c_int, ignored: bool) {
    // SAFETY: no handler is installed, only a disposition.
    unsafe {
        libc::signal(
            signal,
            if ignored {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            },
        )
    };
}

pub fn is_ignored(signal: c_int) -> bool {
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the disposition into a valid sigaction.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

pub fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a local value.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in signals {
        // SAFETY: the set was initialised above; a wrong number is refused.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// `how`: `SIG_BLOCK`, `SIG_UNBLOCK` or `SIG_SETMASK`. Returns the mask from before.
pub fn mask(how: c_int, signals: &[c_int]) -> libc::sigset_t {
    let set = signal_set(signals);
    let mut old = signal_set(&[]);
    // SAFETY: both sets are initialised.
    unsafe { libc::pthread_sigmask(how, &raw const set, &raw mut old) };
    old
}

pub fn restore_mask(set: &libc::sigset_t) {
    // SAFETY: the set is initialised; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, std::ptr::null_mut()) };
}

/// Takes one of these (blocked) signals: number, code, sender and value. `None` after the timeout.
pub fn take_signal(signals: &[c_int], timeout: Duration) -> Option<(c_int, c_int, i32, usize)> {
    let set = signal_set(signals);
    let time = timespec(timeout);
    // SAFETY: an all-zero siginfo is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: all three point to initialised values.
    let signal = unsafe { libc::sigtimedwait(&raw const set, &raw mut info, &raw const time) };
    // SAFETY: the kernel filled both for a signal that was sent; else they are zero.
    (signal > 0).then(|| (signal, info.si_code, sender(&info), value(&info)))
}

fn value(info: &libc::siginfo_t) -> usize {
    // SAFETY: reading a union of plain integers; unset parts were zeroed.
    unsafe { info.si_value() }.sival_ptr as usize
}

/// The pid in a siginfo.
pub fn sender(info: &libc::siginfo_t) -> i32 {
    // SAFETY: reading a union of plain integers; unset parts were zeroed.
    unsafe { info.si_pid() }
}

/// What one wait found.
pub enum Waited {
    Nobody,
    NoChildren,
    Status(i32, c_int),
}

/// Waits for any child, also for cloned ones.
pub fn wait(flags: c_int) -> Waited {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one int through the pointer.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, flags | libc::__WALL) };
        match pid {
            0 => return Waited::Nobody,
            -1 if Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Waited::NoChildren,
            pid => return Waited::Status(pid, status),
        }
    }
}

/// Waits for one child, also where the kernel reaps it. Returns its status, or -1 if the kernel has reaped it.
pub fn wait_for(pid: i32) -> c_int {
    let mut status = -1;
    // SAFETY: the kernel writes one int through the pointer.
    unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    status
}

/// A file descriptor that is readable when the process is gone.
pub fn pidfd(pid: i32) -> Result<OwnedFd> {
    // SAFETY: a plain system call on integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = check(fd as c_int)?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// SIGKILL to exactly the process that the pidfd was opened for.
pub fn kill_by_pidfd(fd: &OwnedFd) {
    let (fd, info) = (fd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: no siginfo is given, and the descriptor names one process.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, info, 0) };
}

/// A descriptor that is readable when one of these (blocked) signals is pending.
pub fn signalfd(signals: &[c_int]) -> OwnedFd {
    let set = signal_set(signals);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    own(check(unsafe { libc::signalfd(-1, &raw const set, flags) }).unwrap())
}

/// The next pending signal, if any.
pub fn read_signalfd(fd: &OwnedFd) -> Option<c_int> {
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: an all-zero value is valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer has the given size.
    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size) };
    (n == size as isize).then_some(info.ssi_signo as c_int)
}

pub fn mkfifo(path: &std::path::Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is null-terminated.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).unwrap();
}

/// Writes to an existing file, with plain system calls only: for hooks between fork and exec.
pub fn write_to(path: &std::ffi::CStr, text: &[u8]) {
    // SAFETY: the path is null-terminated.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) }).unwrap();
    // SAFETY: the buffer has the given length.
    let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
    assert_eq!(written, text.len() as isize);
    close(fd);
}

/// How many bytes a pipe holds.
pub fn pipe_size(fd: RawFd) -> usize {
    // SAFETY: a plain system call on integers.
    check(unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) }).unwrap() as usize
}

pub fn page_size() -> usize {
    // SAFETY: a plain call with an integer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Lets a pipe hold a megabyte, if the system allows it.
pub fn widen_pipe(fd: RawFd) {
    // SAFETY: a plain system call on integers.
    unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, 1 << 20) };
}

/// Polls until one of `(fd, events)` reports, or until the deadline. Returns what each has reported.
pub fn poll(fds: &[(RawFd, i16)], deadline: Option<Instant>) -> Vec<i16> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|&(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        })
        .collect();
    loop {
        // Rounded up, since a poll that ends early would be repeated again and again. Not ppoll, which some scenes
        // refuse.
        let time = deadline.map_or(-1, |at| {
            let left = at.saturating_duration_since(Instant::now());
            i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        // SAFETY: the list lives over the call.
        let n = unsafe { libc::poll(list.as_mut_ptr(), list.len() as _, time) };
        if n >= 0 || Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return list.iter().map(|entry| entry.revents).collect();
        }
    }
}

/// Waits for the end of a process that need not be a child.
pub fn wait_gone(pid: i32, deadline: Instant) -> bool {
    match pidfd(pid) {
        Ok(fd) => poll(&[(fd.as_raw_fd(), libc::POLLIN)], Some(deadline))[0] != 0,
        Err(_) => true,
    }
}

fn timespec(time: Duration) -> libc::timespec {
    // With 64-bit time, 32-bit processors have padding in it.
    // SAFETY: an all-zero value is valid.
    let mut spec: libc::timespec = unsafe { std::mem::zeroed() };
    spec.tv_sec = time.as_secs() as _;
    spec.tv_nsec = (time.as_nanos() % 1_000_000_000) as _;
    spec
}

/// A pause that belongs to a scene (a chain that moves on every 2 ms). Never use it to wait for something.
pub fn pause_for(time: Duration) {
    let time = timespec(time);
    // SAFETY: the time lives over the call; the remaining time is not asked for.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// The kernel sends SIGALRM to this process after this time.
pub fn alarm_after(time: Duration) {
    // The interval, which is none, and the time. The kernel takes longs on each processor. The function of libc is missing in
    // older versions of the crate.
    let timer = [
        0,
        0,
        time.as_secs() as libc::c_long,
        libc::c_long::from(time.subsec_micros() as i32),
    ];
    let none = std::ptr::null_mut::<libc::c_long>();
    // SAFETY: the times live over the call; the old ones are not asked for.
    let result =
        unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, timer.as_ptr(), none) };
    check(result as i32).unwrap();
}

/// Milliseconds of the clock that all processes share.
pub fn now_ms() -> u64 {
    let mut time = timespec(Duration::ZERO);
    // SAFETY: the kernel fills the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Makes descriptor `to` a copy of `from` that stays open over an exec.
pub fn dup2(from: RawFd, to: RawFd) {
    // SAFETY: a plain system call on integers; the callers own both numbers.
    check(unsafe { libc::dup2(from, to) }).unwrap();
}

/// Sends in such a way that the kernel reports on the socket's error queue when it no longer needs the buffer.
pub fn send_zerocopy(fd: RawFd, text: &'static [u8]) {
    let (on, size): (c_int, _) = (1, size_of::<c_int>() as libc::socklen_t);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ZEROCOPY);
    // SAFETY: the option's value lives over the call.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const on).cast(), size) }).unwrap();
    // SAFETY: the buffer is static, so the kernel may use it for any time.
    let sent = unsafe { libc::send(fd, text.as_ptr().cast(), text.len(), libc::MSG_ZEROCOPY) };
    assert_eq!(sent, text.len() as isize);
}

/// Each message that is sent on this TCP socket adds a report to its error queue.
pub fn time_stamps(fd: RawFd) {
    let flags = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let size = size_of_val(&flags) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
    // SAFETY: the option's value lives over the call.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const flags).cast(), size) }).unwrap();
}

pub fn close(fd: RawFd) {
    // SAFETY: only for descriptors that no Rust value owns (inherited ones).
    unsafe { libc::close(fd) };
}

pub fn close_range(from: RawFd, to: RawFd) {
    // SAFETY: as `close`, for a range of inherited descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, from as u32, to as u32, 0) };
}

pub fn set_cloexec(fd: RawFd, on: bool) {
    // SAFETY: a plain system call on integers.
    unsafe { libc::fcntl(fd, libc::F_SETFD, if on { libc::FD_CLOEXEC } else { 0 }) };
}

pub fn set_nonblocking(fd: RawFd) {
    let flags = status_flags(fd) | libc::O_NONBLOCK;
    // SAFETY: a plain system call on integers.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
}

pub fn is_nonblocking(fd: RawFd) -> bool {
    status_flags(fd) & libc::O_NONBLOCK != 0
}

/// The flags of the open file, which all copies of the descriptor share.
fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: a plain system call on integers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

/// The flags of the descriptor. `None` if it is closed.
pub fn fd_flags(fd: RawFd) -> Option<c_int> {
    // SAFETY: a plain system call on integers.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }).ok()
}

/// Both ends of a new pipe, to read and to write, close-on-exec.
pub fn pipe() -> Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: an array of two, which the kernel fills.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((own(ends[0]).into(), own(ends[1]).into()))
}

/// Leaves the terminal at which a contributor may have started the tests: there treaper starts a server differently. Not if
/// this process leads the session, which would end with its terminal.
pub fn leave_terminal() {
    // SAFETY: a plain system call on integers.
    let leads = unsafe { libc::getsid(0) } == std::process::id() as i32;
    if let Some(terminal) = File::open("/dev/tty").ok().filter(|_| !leads) {
        // SAFETY: a plain system call on integers.
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY as _) };
    }
}

/// Wraps an inherited descriptor.
pub fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller got the number from its parent and owns it from here on.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
