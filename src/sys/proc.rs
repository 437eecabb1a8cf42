//! `/proc`, read into buffers on the stack: nothing here allocates.
//! It may be that of another PID namespace (`unshare -pf` without `--mount-proc`, a container that
//! binds the host's), where each number is that of another process. So every read by pid needs a
//! [`View`], and the only way to get one is [`view`], which looks at `/proc/self`.

use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, OFlags, RawDir};

use super::signal::Signal;
use super::{Errno, open, pid};

/// A path as a C string in a fixed buffer. One that is too long is cut off, and does not exist.
pub(super) struct Path([u8; 64]);

impl Path {
    pub(super) fn of(text: std::fmt::Arguments<'_>) -> Self {
        let mut bytes = [0; 64];
        let _ = (&mut bytes[..63]).write_fmt(text);
        Self(bytes)
    }

    fn new(pid: i32, name: &str) -> Self {
        Self::of(format_args!("/proc/{pid}/{name}"))
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// `/proc` is missing, or is that of another PID namespace. Linux itself never returns this error
/// for a read by pid, so it cannot be taken for the end of a process.
pub const FOREIGN: Errno = Errno::NOANO;

/// Proof that `/proc` was that of this PID namespace a moment ago. Do not keep it: another `/proc`
/// may be mounted, and in a new PID namespace it proves nothing.
#[derive(Clone, Copy, Debug)]
pub struct View(());

/// Fails with [`FOREIGN`]. Needs no descriptor.
pub fn view() -> Result<View, Errno> {
    let mut buffer = [0_u8; 16];
    let own = rustix::fs::readlinkat_raw(CWD, c"/proc/self", &mut buffer)
        .is_ok_and(|len| number(&buffer[..len]) == Some(pid::own()));
    own.then_some(View(())).ok_or(FOREIGN)
}

/// Whether process 1 is the machine's init: this number is `PROC_PID_INIT_INO` in `proc_ns.h`.
pub fn is_of_first_namespace() -> bool {
    rustix::fs::stat(c"/proc/self/ns/pid").is_ok_and(|stat| stat.st_ino == 0xEFFF_FFFC)
}

/// The text of a link to an open file, filled up with zero bytes: `pipe:[123]`, `socket:[123]`, or
/// a path, which may be cut off. Unlike `stat`, reading it asks no file system, which might hang.
pub type Target = [u8; 256];

/// To read this many takes about 30 ms.
const MAX_DESCRIPTORS: usize = 10_000;

fn target_at(dir: BorrowedFd<'_>, path: &CStr) -> Result<Target, Errno> {
    let mut target = [0; 256];
    rustix::fs::readlinkat_raw(dir, path, &mut target)?;
    Ok(target)
}

/// The state of a process. See `proc_pid_stat(5)`.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    pub name: Name,
    /// `R`, `S`, `D`, `T` (suspended), `t` (suspended by a tracer), `Z` (zombie), ...; `?` if the
    /// main thread has ended, and the others cannot be read.
    pub state: u8,
    /// Its end has begun, and it has no other threads: the kernel gives it no orphans any more.
    pub exiting: bool,
    /// A fork of its parent that has executed nothing yet.
    pub is_copy: bool,
    /// A thread of the kernel.
    pub is_kernel: bool,
    pub parent: i32,
    pub group: i32,
    /// The foreground group of its controlling terminal; -1 without a terminal.
    pub foreground: i32,
    /// Includes a main thread that has ended before the others.
    threads: u64,
    /// In clock ticks since boot. Together with the pid it identifies one process.
    pub started: u64,
    /// The signals from 1 to 31 that it ignores, one bit each.
    ignored: u64,
}

impl Stat {
    /// Whether the process ignores `signal`, which is not a real-time one.
    pub fn ignores(&self, signal: Signal) -> bool {
        self.ignored >> (signal.number() - 1) & 1 == 1
    }
}

/// A command name: at most 15 bytes, which the process can choose. An unknown one is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; 16],
    len: u8,
}

impl Name {
    /// The first 16 bytes of `raw`.
    pub fn new(raw: &[u8]) -> Self {
        let mut bytes = [0; 16];
        let len = raw.len().min(bytes.len());
        bytes[..len].copy_from_slice(&raw[..len]);
        let len = len as u8;
        Self { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.len == 0 {
            return f.write_str("?");
        }
        std::fmt::Display::fmt(&self.as_bytes().escape_ascii(), f)
    }
}

/// The name that users know: the command name, or of Node 24 (`MainThread`) its program.
pub fn shown_name(pid: i32, command: Name) -> Name {
    if command.as_bytes() != b"MainThread" {
        return command;
    }
    let mut path = [0; LONGEST_PATH];
    let program = view().and_then(|view| view.program(pid, &mut path));
    program.map_or(command, |name| Name::new(&name[..name.len().min(15)]))
}

/// By `proc_pid_cgroup(5)`. Not by one large read: its pages would stay with the process.
pub fn is_in_memory_group_of_v1() -> bool {
    let Ok(file) = open(c"/proc/self/cgroup", OFlags::empty()) else {
        return false;
    };
    let is_limited = |part: &[u8]| part.starts_with(b"memory:/") && part[8] != b'\n';
    let mut text = [0; 264];
    while let Ok(len @ 1..) = rustix::io::read(&file, &mut text[8..]) {
        if text[..8 + len].windows(9).any(is_limited) {
            return true;
        }
        text.copy_within(len..len + 8, 0);
    }
    false
}

const LONGEST_PATH: usize = 1024;

/// As much as `buffer` can hold.
pub(super) fn start_of<'a>(path: &Path, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let file = open(path.as_c_str(), OFlags::empty())?;
    let len = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *buffer))?;
    Ok(&buffer[..len])
}

fn before<'a>(ends: &[u8], text: &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte));
    &text[..end.unwrap_or(text.len())]
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Programs that rename themselves keep the old name in front: `tmux: server`, `bazel(folder)`.
fn is_called(text: &[u8], name: &[u8]) -> bool {
    let text = text.strip_prefix(b"/").map_or(text, file_name);
    text == name || file_name(before(b":( ", text)) == name
}

/// As [`View::stat`], or [`FOREIGN`].
pub fn stat(pid: i32) -> Result<Stat, Errno> {
    view()?.stat(pid)
}

/// Whether the `state` of [`Stat`] is that of a zombie, or of a process that is just being reaped.
pub const fn is_dead(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

/// Whether `pid` is suspended, by job control or by a tracer, or `/proc` does not show that.
/// SIGCONT changes that at once, not when it is delivered.
pub fn may_be_suspended(pid: i32) -> bool {
    match stat(pid) {
        Ok(stat) => matches!(stat.state, b'T' | b't' | b'?'),
        Err(errno) => !matches!(errno, Errno::NOENT | Errno::SRCH),
    }
}

/// As [`View::children`], or [`FOREIGN`]. Without such lists each process is asked for its parent.
pub fn children(pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let view = view()?;
    match view.children(pid, each) {
        Err(Errno::NOSYS) => view.processes(&mut |other| {
            if view.stat(other).is_ok_and(|stat| stat.parent == pid) {
                each(other);
            }
        }),
        listed => listed,
    }
}

/// The child from which `pid` descends, or which it is; 0 for this process. `None`: it does not
/// descend from this process. Tried twice, since orphans move. Fails as [`stat`].
pub fn child_above(pid: i32) -> Result<Option<i32>, Errno> {
    let view = view()?;
    view.child_above(pid).or_else(|_| view.child_above(pid))
}

const MAX_ANCESTORS: usize = 1000;

impl View {
    fn child_above(self, mut pid: i32) -> Result<Option<i32>, Errno> {
        let mut child = 0;
        for _ in 0..MAX_ANCESTORS {
            match pid {
                own if own == pid::own() => return Ok(Some(child)),
                1 => return Ok(None),
                // The last one is being reaped, or its parent is in another PID namespace.
                0 => return Err(Errno::SRCH),
                _ => (child, pid) = (pid, self.stat(pid)?.parent),
            }
        }
        Err(Errno::LOOP)
    }

    /// Opens the directory `/proc/PID`. Like a pidfd, the descriptor always means this one process.
    pub fn open_dir(self, pid: i32) -> Result<OwnedFd, Errno> {
        open(Path::new(pid, "").as_c_str(), OFlags::DIRECTORY)
    }

    /// Reads `/proc/PID/stat`, which has the state of the main thread. If that has ended and the
    /// process has not, the other threads show the state. `ENOENT`, `ESRCH`: gone.
    pub fn stat(self, pid: i32) -> Result<Stat, Errno> {
        let mut stat = read_stat(&Path::new(pid, "stat"))?;
        if stat.state == b'Z' && stat.threads > 1 {
            stat.state = state_of_threads(pid).unwrap_or(b'?');
        }
        stat.exiting &= stat.threads == 1;
        Ok(stat)
    }

    /// As much as `buffer` can hold. Each word ends with a zero byte. See `proc_pid_cmdline(5)`.
    pub fn cmdline(self, pid: i32, buffer: &mut [u8]) -> Result<&[u8], Errno> {
        start_of(&Path::new(pid, "cmdline"), buffer)
    }

    /// As much as `buffer` can hold. See `proc_pid_cgroup(5)`.
    pub fn cgroups(self, pid: i32, buffer: &mut [u8]) -> Result<&[u8], Errno> {
        start_of(&Path::new(pid, "cgroup"), buffer)
    }

    /// The program's file. `EACCES`, `EPERM`: not allowed; `ENOENT`: gone. See `proc_pid_exe(5)`.
    pub fn program(self, pid: i32, buffer: &mut [u8; LONGEST_PATH]) -> Result<&[u8], Errno> {
        let link = Path::new(pid, "exe");
        let len = rustix::fs::readlinkat_raw(CWD, link.as_c_str(), &mut buffer[..])?;
        let path = &buffer[..len];
        // It was replaced by an update while it runs.
        Ok(file_name(path.strip_suffix(b" (deleted)").unwrap_or(path)))
    }

    /// As the `command` name, of which the kernel keeps 15 bytes, the file name of the program, or,
    /// if `reads`, the first argument: that is in the memory of the process, and to read it can wait
    /// forever, if a thread of it has locked its memory in a hung call.
    pub fn has_name(self, pid: i32, command: Name, name: &[u8], reads: bool) -> bool {
        let mut buffer = [0; LONGEST_PATH];
        let is_first = |words| is_called(before(b"\0", words), name);
        is_called(command.as_bytes(), &name[..name.len().min(15)])
            || self.program(pid, &mut buffer) == Ok(name)
            || reads && self.cmdline(pid, &mut buffer).is_ok_and(is_first)
    }

    /// The effective owner of a process. See `stat(2)` on `/proc/PID`.
    pub fn owner(self, pid: i32) -> Result<u32, Errno> {
        rustix::fs::stat(Path::new(pid, "").as_c_str()).map(|s| s.st_uid)
    }

    /// What descriptor `fd` of a process is open on. `EACCES`, `EPERM`: not allowed; `ENOENT`:
    /// gone, or no such descriptor. See `proc_pid_fd(5)`.
    pub fn target(self, pid: i32, fd: i32) -> Result<Target, Errno> {
        let path = Path::of(format_args!("/proc/{pid}/fd/{fd}"));
        target_at(CWD, path.as_c_str())
    }

    /// Whether any descriptor of a process `matches`, given what it is open on, and whether it can
    /// be written to. `EACCES`, `EPERM`: not allowed; `ENOENT`: gone or hidden; `EMFILE`: too many.
    pub fn any_descriptor(
        self,
        pid: i32,
        matches: &dyn Fn(&Target, bool) -> bool,
    ) -> Result<bool, Errno> {
        let dir = open(Path::new(pid, "fd").as_c_str(), OFlags::DIRECTORY)?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&dir, &mut buffer);
        let mut seen = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            // Without `.` and `..`. A descriptor may be closed while the list is read.
            let Ok(target) = target_at(dir.as_fd(), name) else {
                continue;
            };
            // The permissions of the link itself say how the descriptor was opened.
            let link = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
            if matches(&target, link.is_ok_and(|link| link.st_mode & 0o200 != 0)) {
                return Ok(true);
            }
            seen += 1;
            if seen > MAX_DESCRIPTORS {
                return Err(Errno::MFILE);
            }
        }
        // A main thread that has ended before the others shows no descriptors.
        (seen > 0).then_some(false).ok_or(Errno::SRCH)
    }

    /// Calls `each` with every child of `pid`, over all its threads. A list longer than a page can
    /// lack some children if others leave meanwhile: to find all, ask again. `ENOENT`, `ESRCH`:
    /// gone, or a thread is, whose children another one has got; `ENOSYS`: a kernel without
    /// `CONFIG_PROC_CHILDREN`. See `proc_pid_task(5)`, `children`.
    pub fn children(self, pid: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        let tasks = Path::new(pid, "task");
        // Two links are the directory's own, so three mean one thread, which needs no listing.
        if rustix::fs::stat(tasks.as_c_str())?.st_nlink == 3 {
            match children_of_thread(pid, pid, each) {
                Err(Errno::NOENT) => {}
                other => return other,
            }
        }
        let tasks = open(tasks.as_c_str(), OFlags::DIRECTORY)?;
        let (mut seen, mut ended, mut failure) = (false, false, None);
        let mut of_thread = |thread| match children_of_thread(pid, thread, each) {
            Ok(()) => seen = true,
            // The thread may have ended, or the kernel has no such file.
            Err(Errno::NOENT | Errno::SRCH) => ended = true,
            Err(other) => failure = Some(other),
        };
        numbers_in(&tasks, &mut of_thread)?;
        match failure {
            Some(errno) => Err(errno),
            None if !ended => Ok(()),
            None if !seen && self.stat(pid).is_ok() => Err(Errno::NOSYS),
            None => Err(Errno::SRCH),
        }
    }

    /// Calls `each` with the pid of every process that `/proc` shows.
    pub fn processes(self, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
        numbers_in(&open(c"/proc", OFlags::DIRECTORY)?, each)
    }
}

/// The state of a suspended thread, or else of any living one.
fn state_of_threads(pid: i32) -> Result<u8, Errno> {
    let mut found = b'Z';
    let threads = open(Path::new(pid, "task").as_c_str(), OFlags::DIRECTORY)?;
    numbers_in(&threads, &mut |thread| {
        let path = Path::of(format_args!("/proc/{pid}/task/{thread}/stat"));
        // A thread that has ended meanwhile cannot be read.
        let state = read_stat(&path).map_or(b'Z', |stat| stat.state);
        if !is_dead(state) && !matches!(found, b'T' | b't') {
            found = state;
        }
    })?;
    Ok(found)
}

fn read_stat(path: &Path) -> Result<Stat, Errno> {
    parse_stat(start_of(path, &mut [0; 512])?).ok_or(Errno::IO)
}

/// The name is in parentheses and can contain some, so it ends at the last one.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let start = text.iter().position(|b| *b == b'(')? + 1;
    let end = text.iter().rposition(|b| *b == b')')?;
    let name = Name::new(text.get(start..end)?);
    let mut fields = text.get(end + 2..)?.split(|b| *b == b' ');
    let state = *fields.next()?.first()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    // Without the session and the terminal.
    let foreground = number(fields.nth(2)?)?;
    let mut after = |fields_between| fields.nth(fields_between).and_then(number).unwrap_or(0);
    // Fields 9, 20, 22 and 33 of the manual page, after field 8.
    let flags = after(0);
    Some(Stat {
        name,
        state,
        exiting: flags & 4 != 0,           // PF_EXITING
        is_copy: flags & 0x40 != 0,        // PF_FORKNOEXEC
        is_kernel: flags & 0x20_0000 != 0, // PF_KTHREAD
        parent,
        group,
        foreground,
        threads: after(10),
        started: after(1),
        ignored: after(10),
    })
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn children_of_thread(pid: i32, thread: i32, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let path = Path::of(format_args!("/proc/{pid}/task/{thread}/children"));
    each_number(open(path.as_c_str(), OFlags::empty())?.as_fd(), each)
}

/// Calls `each` with every number of a list such as `children` or `cgroup.procs`.
pub fn each_number(file: BorrowedFd<'_>, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let mut buffer = [0_u8; 4096];
    let mut current = 0_i32;
    loop {
        let len = rustix::io::retry_on_intr(|| rustix::io::read(file, &mut buffer))?;
        for byte in &buffer[..len] {
            if byte.is_ascii_digit() {
                let digit = i32::from(byte - b'0');
                current = current.saturating_mul(10).saturating_add(digit);
            } else if current != 0 {
                each(current);
                current = 0;
            }
        }
        // The kernel writes numbers until the next one, with its separator, does not fit. So more
        // room than for the longest one means the end.
        if len < buffer.len() - "2147483647\n".len() {
            return Ok(());
        }
    }
}

/// Calls `each` with every name in a directory that is a number.
pub(super) fn numbers_in(dir: &OwnedFd, each: &mut dyn FnMut(i32)) -> Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Some(pid) = number(entry?.file_name().to_bytes()) {
            each(pid);
        }
    }
    Ok(())
}
