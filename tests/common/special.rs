//! The system calls that make a scene special: another uid, a PID namespace, limits, a tracer, a
//! terminal. The rest is in `sys`.
#![allow(
    unsafe_code,
    dead_code,
    clippy::unwrap_used,
    reason = "test support: each user needs another part, and a failed call has to end the test"
)]

use std::io::Result;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::sys;

/// Becomes a user completely: supplementary groups, and the real, effective and saved gid and uid.
pub fn become_uid(uid: u32) -> Result<()> {
    // SAFETY: no groups are read through the null pointer, as their count is 0.
    sys::check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: a plain system call on integers.
    sys::check(unsafe { libc::setresgid(uid, uid, uid) })?;
    // SAFETY: a plain system call on integers.
    sys::check(unsafe { libc::setresuid(uid, uid, uid) })?;
    Ok(())
}

/// In a setuid program: sets all uids to the effective one.
pub fn keep_setuid() {
    let uid = sys::euid();
    // SAFETY: a plain system call on integers.
    unsafe { libc::setresuid(uid, uid, uid) };
}

/// What libc's functions take as a resource: musl's are plain integers.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = libc::c_int;

pub fn set_limit(resource: Resource, soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the limit.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max.min(soft as _);
    // SAFETY: the limit is initialised.
    unsafe { libc::setrlimit(resource, &raw const limit) };
}

/// The limit of the stack for a command: its arguments and its environment may take a quarter of that, or 128 KiB.
pub fn limit_stack(command: &mut Command, bytes: u64) {
    let act = move || {
        set_limit(libc::RLIMIT_STACK, bytes);
        Ok(())
    };
    // SAFETY: plain system calls only.
    unsafe { command.pre_exec(act) };
}

/// The soft limit of another process.
pub fn limit_of(pid: i32, resource: Resource, soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the old limit.
    sys::check(unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) }).unwrap();
    limit.rlim_cur = soft as _;
    // SAFETY: the kernel reads the new limit.
    let set = unsafe { libc::prlimit(pid, resource, &raw const limit, std::ptr::null_mut()) };
    sys::check(set).unwrap();
}

/// A counter in memory that children share, for bombs with a bounded number of forks.
pub fn shared_counter(start: i64) -> &'static std::sync::atomic::AtomicI64 {
    // SAFETY: a fresh anonymous page, never unmapped, page-aligned and zeroed.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the page is valid for the rest of the process and aligned for the atomic.
    let counter: &std::sync::atomic::AtomicI64 = unsafe { &*page.cast() };
    counter.store(start, std::sync::atomic::Ordering::SeqCst);
    counter
}

/// Children forked from now on are in a PID namespace of their own (as root or in a user namespace).
pub fn unshare_pids() -> Result<()> {
    // SAFETY: plain system calls on integers.
    let (uid, gid) = (sys::euid(), unsafe { libc::getegid() });
    if uid != 0 {
        // SAFETY: a plain system call on flags.
        sys::check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    // SAFETY: a plain system call on flags.
    sys::check(unsafe { libc::unshare(libc::CLONE_NEWPID) }).map(drop)
}

/// In the first process of a PID namespace: mounts a `/proc` that shows it, visible only to its children.
pub fn mount_proc() -> Result<()> {
    // SAFETY: a plain system call on flags.
    sys::check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let none = std::ptr::null::<libc::c_char>();
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings are null-terminated literals; no data is passed.
    sys::check(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, std::ptr::null()) })?;
    let proc = c"proc".as_ptr();
    // SAFETY: as above.
    sys::check(unsafe { libc::mount(proc, c"/proc".as_ptr(), proc, 0, std::ptr::null()) })?;
    Ok(())
}

/// Holds another process in a ptrace stop while this process lives.
pub fn ptrace_stop(pid: i32) -> Result<()> {
    // Otherwise the kernel does not say which system call is entered.
    seize(pid, libc::PTRACE_O_TRACESYSGOOD)
}

/// The same. Killed, it is held once more: it does not end, and keeps its children, until [`let_go`].
pub fn ptrace_stop_also_at_its_end(pid: i32) -> Result<()> {
    seize(pid, libc::PTRACE_O_TRACEEXIT)
}

fn seize(pid: i32, options: libc::c_int) -> Result<()> {
    // In a PID namespace of treaper, its monitor is the first process.
    let is_monitor = || std::fs::read("/proc/1/comm").is_ok_and(|name| name == b"tree-monitor\n");
    assert!(
        pid > 1 || pid == 1 && is_monitor(),
        "refusing to trace pid {pid}"
    );
    // SAFETY: seizing takes no address, and options as its data; the kernel checks the permission.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) };
    sys::check(seized as libc::c_int)?;
    // SAFETY: the same.
    let stopped = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) };
    sys::check(stopped as libc::c_int)?;
    Ok(())
}

/// Ends the tracing of a process that this thread holds.
pub fn let_go(pid: i32) {
    // SAFETY: no address and no signal is passed.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) };
}

/// The number of the call that a traced process has stopped in, if it is entering one. See ptrace(2), PTRACE_GET_SYSCALL_INFO;
/// musl has no struct for it.
pub fn entered_call(pid: i32) -> Option<u64> {
    let get_syscall_info = 0x420e;
    // The kind, which is 1 for an entry, padding and the architecture; two pointers; the number; arguments.
    let mut info = [0u64; 16];
    let size = size_of_val(&info);
    // SAFETY: the kernel fills at most `size` bytes of a live array.
    unsafe { libc::ptrace(get_syscall_info, pid, size, &raw mut info) };
    (info[0].to_ne_bytes()[0] == 1).then_some(info[3])
}

/// Holds another process, which this one has suspended by [`ptrace_stop`], where it enters the system call `number` for
/// the `count`th time. It has done everything before that call, and sees what happens meanwhile only after it.
pub fn hold_at(pid: i32, number: u64, mut count: usize) -> Result<()> {
    go_on_until(pid, || {
        count -= usize::from(entered_call(pid) == Some(number));
        count == 0
    })
}

/// Lets a process that this thread holds go on, from one begin or end of a system call to the next one, until `so`.
pub fn go_on_until(pid: i32, mut so: impl FnMut() -> bool) -> Result<()> {
    loop {
        sys::wait_for(pid);
        if so() {
            return Ok(());
        }
        // SAFETY: no address and no signal is passed.
        let next = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0) };
        sys::check(next as libc::c_int)?;
    }
}

/// Makes the parent, which does not know it, the tracer of this process. Then suspends it by `signal`.
pub fn trap_for_parent(signal: libc::c_int) {
    // SAFETY: this request takes nothing.
    let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    sys::check(traced as libc::c_int).unwrap();
    sys::raise(signal);
}

/// Makes the terminal the controlling one of this session.
pub fn take_terminal(fd: RawFd) -> Result<()> {
    // SAFETY: this operation takes an integer.
    sys::check(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }).map(drop)
}

/// Moves this process into a group of its own, and makes that the foreground group of the terminal.
pub fn foreground_job(fd: RawFd) {
    sys::setpgid();
    let old = sys::mask(libc::SIG_BLOCK, &[libc::SIGTTOU]);
    // SAFETY: plain system calls on integers.
    sys::check(unsafe { libc::tcsetpgrp(fd, sys::getpid()) }).unwrap();
    sys::restore_mask(&old);
}

/// Sets the window size, as a terminal emulator does when its window changes.
pub fn set_window_size(fd: RawFd, rows: u16, columns: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: a live struct of the size that the call expects.
    sys::check(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size) }).unwrap();
}

/// The process group in the foreground of the terminal.
pub fn foreground_group(fd: RawFd) -> i32 {
    // SAFETY: a plain system call on an integer.
    unsafe { libc::tcgetpgrp(fd) }
}

/// A pseudo terminal: master and slave, both closed on exec.
pub fn pty() -> (OwnedFd, OwnedFd) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: a plain system call on flags.
    let master = sys::own(sys::check(unsafe { libc::posix_openpt(flags) }).unwrap());
    // SAFETY: the descriptor is a pty master.
    sys::check(unsafe { libc::grantpt(master.as_raw_fd()) }).unwrap();
    // SAFETY: the same.
    sys::check(unsafe { libc::unlockpt(master.as_raw_fd()) }).unwrap();
    // SAFETY: TIOCGPTPEER takes open flags and gives a descriptor.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    (master, sys::own(sys::check(slave).unwrap()))
}

/// The version of the kernel: its first two numbers.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

/// Whether `pid` is a thread of the kernel: `PF_KTHREAD` is among its flags.
pub fn is_kernel_thread(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat
        .split(' ')
        .nth(8)
        .and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & 0x20_0000 != 0)
}

/// Both ends of a connection of MPTCP over the loopback device. `None`: this kernel has none.
pub fn mptcp() -> Option<(OwnedFd, OwnedFd)> {
    let socket = || {
        // SAFETY: a plain system call on integers.
        let made = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP) };
        // SAFETY: the kernel has just made it.
        (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })
    };
    let (listener, near) = (std::net::TcpListener::from(socket()?), socket()?);
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the address lives over the calls, and its size is that of its type.
    sys::check(unsafe { libc::bind(listener.as_raw_fd(), (&raw const address).cast(), size) })
        .unwrap();
    // SAFETY: a plain system call on integers.
    sys::check(unsafe { libc::listen(listener.as_raw_fd(), 1) }).unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = libc::sockaddr_in {
        sin_port: port.to_be(),
        ..address
    };
    // SAFETY: as with bind.
    sys::check(unsafe { libc::connect(near.as_raw_fd(), (&raw const to).cast(), size) }).unwrap();
    Some((near, listener.accept().unwrap().0.into()))
}
