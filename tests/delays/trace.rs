//! Holds a process at one system call. Only the process that is to be held is traced, and only until it is released:
//! all others run as they do without a tracer.
#![allow(unsafe_code, reason = "ptrace")]

use super::common::sys;

/// One instant in the life of a process: before or after its `count`th call of this number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// `s` is the process that the host has started, `s.1` its first child, `s.1.2` the second child of that.
    pub process: String,
    pub call: u64,
    pub count: usize,
    pub after: bool,
}

impl Window {
    /// Right after a child was reaped.
    pub fn is_wait(&self) -> bool {
        self.after
            && [libc::SYS_wait4, libc::SYS_waitid]
                .map(|n| n as u64)
                .contains(&self.call)
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        let side = if self.after { "after" } else { "before" };
        let (process, count) = (&self.process, self.count);
        write!(out, "{process}:{}:{count}:{side}", call_name(self.call))
    }
}

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

const CALLS: &[(&str, libc::c_long)] = calls!(
    SYS_accept4 SYS_bind SYS_brk SYS_chdir SYS_clone SYS_clone3 SYS_close SYS_connect SYS_dup SYS_dup3
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_execve SYS_exit_group SYS_faccessat SYS_fchmod SYS_fchmodat
    SYS_fcntl SYS_fsync SYS_ftruncate SYS_getdents64 SYS_getegid SYS_geteuid SYS_getpeername SYS_getpgid
    SYS_getpid SYS_getppid SYS_getrandom SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_getuid SYS_ioctl
    SYS_kill SYS_linkat SYS_listen SYS_lseek SYS_madvise SYS_mkdirat SYS_mount SYS_mprotect SYS_mremap
    SYS_munmap SYS_openat SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64
    SYS_prlimit64 SYS_pwritev2 SYS_read SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmsg SYS_renameat2
    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigtimedwait SYS_sendmsg
    SYS_sendto SYS_setpgid SYS_setsid SYS_setsockopt SYS_shutdown SYS_signalfd4 SYS_socket SYS_socketpair SYS_splice
    SYS_statfs SYS_statx SYS_symlinkat SYS_tgkill SYS_uname SYS_unlinkat SYS_unshare SYS_wait4 SYS_waitid SYS_write
    SYS_writev
);
#[cfg(target_arch = "x86_64")]
const OLDER: &[(&str, libc::c_long)] = calls!(
    SYS_access SYS_chmod SYS_dup2 SYS_epoll_wait SYS_fstat SYS_getpgrp SYS_link SYS_mkdir SYS_mmap SYS_newfstatat SYS_open
    SYS_poll SYS_readlink SYS_rename SYS_renameat SYS_rmdir SYS_stat SYS_unlink
);
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(&str, libc::c_long)] = &[];

pub fn call_name(call: u64) -> String {
    let known = CALLS.iter().chain(OLDER).find(|(_, n)| *n as u64 == call);
    known.map_or_else(
        || format!("call-{call}"),
        |(name, _)| name.trim_start_matches("SYS_").to_owned(),
    )
}

/// From here on this process traces `pid`, and all that it forks. Both die together.
pub fn seize(pid: i32) {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: seizing takes no address, and options as its data.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) };
    sys::check(seized as libc::c_int).unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// To the next fork or exec.
    On,
    /// To the next system call, too.
    ToCall,
    /// It stays suspended as job control wants it, until a SIGCONT.
    Listen,
    /// It is not traced any more.
    Free,
}

/// Resumes a process that is in a stop of ptrace. It may have been killed in the meantime, so errors do not matter.
pub fn go(pid: i32, go: Go, signal: i32) {
    let request = match go {
        Go::On => libc::PTRACE_CONT,
        Go::ToCall => libc::PTRACE_SYSCALL,
        Go::Listen => libc::PTRACE_LISTEN,
        Go::Free => libc::PTRACE_DETACH,
    };
    // SAFETY: no address, and the number of a signal.
    unsafe { libc::ptrace(request, pid, 0, signal) };
}

/// The pid of the new process, after a fork.
pub fn forked(pid: i32) -> i32 {
    let mut child: libc::c_ulong = 0;
    // SAFETY: the kernel writes one long through the pointer.
    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut child) };
    child as i32
}

/// Moves this process into a process group of its session, as soon as that is there.
pub fn join_group(group: i32) {
    // SAFETY: a plain system call on integers.
    while unsafe { libc::setpgid(0, group) } < 0 {
        sys::pause_for(std::time::Duration::from_micros(200));
    }
}

/// Signals the group of a job, as its shell does.
pub fn signal_group(group: i32, signal: i32) {
    assert!(group > 1, "refusing to signal process group {group}");
    // SAFETY: a plain system call on integers; the group was checked above.
    unsafe { libc::kill(-group, signal) };
}

/// What can be read from a socket, without taking it. `None` if nothing has come.
pub fn peek(fd: i32, buffer: &mut [u8]) -> Option<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the kernel fills at most the given buffer.
    let n = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(n).ok()
}

/// Sets a variable of the environment.
pub fn set_variable(name: &str, value: &std::path::Path) {
    // SAFETY: only in a forked process, which has one thread.
    unsafe { std::env::set_var(name, value) };
}
