//! Descriptors: what stdin is, which were inherited, messages that never block.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

pub use nix::sys::resource::Resource;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SendFlags, SocketAddrAny, sockopt};
use rustix::pipe::{PIPE_BUF, PipeFlags};
use rustix::pty::ptsname;

use super::poll::{self, Events, poll_one};
use super::proc::Target;
use super::signal::Signal;
use super::{Errno, arrival, check, open, open_at, peer, pid, proc, std_fd};

pub const STDIN: i32 = 0;
pub const STDOUT: i32 = 1;
pub const STDERR: i32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pipe,
    Socket,
    Terminal,
    /// A file, a device, or a closed descriptor.
    Other,
}

/// Without asking the file system, which might hang. See `AT_STATX_DONT_SYNC` in `statx(2)`.
fn stat_unasked(fd: BorrowedFd<'_>, what: StatxFlags) -> Result<Statx, Errno> {
    // rustix does not name it where it calls the C library, and that is musl.
    const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | DONT_SYNC, what)
}

fn file_type(fd: BorrowedFd<'_>) -> Result<FileType, Errno> {
    let mode = match stat_unasked(fd, StatxFlags::TYPE) {
        Ok(stat) => stat.stx_mode.into(),
        // Before Linux 4.11, or hidden by a filter.
        Err(_) => rustix::fs::fstat(fd)?.st_mode,
    };
    Ok(FileType::from_raw_mode(mode))
}

pub fn kind(fd: i32) -> Kind {
    let fd = std_fd(fd);
    // One that was opened with O_PATH only names its file.
    if rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::PATH)) {
        return Kind::Other;
    }
    // The master of a pseudoterminal hangs up whenever nobody has its other side open.
    let is_terminal = || rustix::termios::isatty(fd) && ptsname(fd, Vec::new()).is_err();
    match file_type(fd) {
        Ok(FileType::Fifo) => Kind::Pipe,
        Ok(FileType::Socket) => Kind::Socket,
        Ok(FileType::CharacterDevice) if is_terminal() => Kind::Terminal,
        _ => Kind::Other,
    }
}

/// Whether one of the processes `pids` has the other end of stdin. Any process may have it if it
/// has a name. `unless_shown`: what counts if `/proc` does not show one of them.
pub fn other_end_is_of(pids: &[i32], unless_shown: bool) -> bool {
    let Ok((proc, own)) = proc::view().and_then(|proc| Ok((proc, proc.target(pid::own(), STDIN)?)))
    else {
        return true;
    };
    let is_pipe = own.starts_with(b"pipe:[");
    if !is_pipe && !is_unnamed_socket() {
        return true;
    }
    let may_be_other_end = |target: &Target, writable| {
        if is_pipe {
            return writable && *target == own;
        }
        target.starts_with(b"socket:[") && *target != own
    };
    let shown = |pid: &i32| proc.any_descriptor(*pid, &may_be_other_end);
    let may_have = |pid: &i32| shown(pid).unwrap_or(unless_shown);
    // `/proc` does not show which socket is the other end; credentials name who has made the pair.
    let has_made_it = |pid: &i32| {
        let maker = peer::credentials(std_fd(STDIN)).map_or(0, |peer| peer.pid());
        *pid == maker || unless_shown && proc.stat(maker).is_err()
    };
    let has_it = |pid: &i32| may_have(pid) && (is_pipe || has_made_it(pid));
    pids.iter().any(has_it)
}

/// Whether stdin is one of a pair of Unix sockets: one that was connected has a name at one end.
fn is_unnamed_socket() -> bool {
    let is_unnamed = |address: SocketAddrAny| {
        address.address_family() == AddressFamily::UNIX
            && address.addr_len() as usize == size_of::<libc::sa_family_t>()
    };
    let stdin = std_fd(STDIN);
    rustix::net::getsockname(stdin).is_ok_and(is_unnamed)
        && rustix::net::getpeername(stdin).is_ok_and(|other| other.is_some_and(is_unnamed))
}

/// The number of the pipe without a name that `fd` is one end of.
pub fn pipe(fd: i32) -> Option<u64> {
    let proc = proc::view().ok()?;
    let target = proc.target(pid::own(), fd).ok()?;
    let number = target.strip_prefix(b"pipe:[")?;
    let number = number.split(|byte| *byte == b']').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Whether process `pid` has a pipe without a writer as stdin, and not the one numbered `other`.
pub fn stdin_is_over(pid: i32, other: Option<u64>) -> bool {
    let path = proc::Path::of(format_args!("/proc/{pid}/fd/0"));
    // This does not open it, and a pipe without a name is of no file system that could wait.
    let place = proc::view().and_then(|_| open(path.as_c_str(), OFlags::PATH));
    let is_another = |own| Some(own) != other;
    let place = place
        .ok()
        .filter(|place| pipe(place.as_raw_fd()).is_some_and(is_another));
    let input = place.and_then(|place| reopen(place.as_raw_fd(), OFlags::NONBLOCK).ok());
    input.is_some_and(|input| poll::has_hung_up(input.as_raw_fd()))
}

/// The unread bytes, at either end of a pipe; 0 if unknown. See `FIONREAD` in `ioctl_pipe(2)`.
pub fn unread(fd: i32) -> u64 {
    rustix::io::ioctl_fionread(std_fd(fd)).unwrap_or(0)
}

/// Whether the other end may be waiting for room, and so in the middle of a write. A full pipe is
/// at least half full in bytes, since two messages in a row do not fit into one page. With messages
/// of 50 bytes a Unix socket is full at a sixteenth of its size. See `pipe(7)`, `socket(7)`.
pub fn may_be_full(fd: i32) -> bool {
    let (size, part) = match kind(fd) {
        Kind::Pipe => (rustix::pipe::fcntl_getpipe_size(std_fd(fd)), 2),
        Kind::Socket => (sockopt::socket_recv_buffer_size(std_fd(fd)), 16),
        Kind::Terminal | Kind::Other => return false,
    };
    size.is_ok_and(|size| unread(fd) * part >= size as u64)
}

/// When `fd` was last written to, in seconds and nanoseconds. See `stx_mtime` in `statx(2)`.
pub fn last_write(fd: i32) -> (i64, u32) {
    let time = stat_unasked(std_fd(fd), StatxFlags::MTIME).map(|stat| stat.stx_mtime);
    time.map_or((0, 0), |time| (time.tv_sec, time.tv_nsec))
}

/// Appends standard error to the file `path` from now on. Unlike a shell's `2>>`, it does not wait
/// for the reader of a FIFO. `ENXIO`: that has none, or it is a socket. See `open(2)`.
pub fn append_stderr_to(path: &OsStr) -> Result<(), Errno> {
    let file = open_to_append(path)?;
    // The server expects a standard error that waits.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    redirect(file.as_fd(), STDERR);
    Ok(())
}

/// Makes a missing file, with mode 0600. Neither this nor a write to it waits.
pub fn open_to_append(path: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)
}

/// Opens and closes the file, except a FIFO, whose reader would see an end.
pub fn can_append(path: &OsStr) -> Result<(), Errno> {
    if is_fifo(path) {
        return rustix::fs::access(path, Access::WRITE_OK);
    }
    open_to_append(path).map(drop)
}

pub fn is_fifo(path: &OsStr) -> bool {
    let mode = rustix::fs::stat(path).map(|stat| stat.st_mode);
    mode.is_ok_and(|mode| FileType::from_raw_mode(mode) == FileType::Fifo)
}

/// As far as can be known without making the file.
pub fn may_append(path: &OsStr) -> Result<(), Errno> {
    let is_missing = rustix::fs::stat(path).err() == Some(Errno::NOENT);
    if !is_missing || path.as_bytes().ends_with(b"/") {
        return can_append(path);
    }
    // That of a plain name is empty.
    let parent = Path::new(".").join(Path::new(path).parent().ok_or(Errno::NOENT)?);
    if let Ok(target) = std::fs::read_link(path) {
        return may_append(parent.join(target).as_os_str());
    }
    rustix::fs::access(&parent, Access::WRITE_OK | Access::EXEC_OK)
}

/// Keeps `number`, except 2, from the server. `EBADF`: closed, or read-only. See `fcntl(2)`.
pub fn reserve(number: i32) -> Result<(), Errno> {
    let flags = rustix::io::fcntl_getfd(std_fd(number))?;
    let mode = rustix::fs::fcntl_getfl(std_fd(number))?;
    if mode & OFlags::ACCMODE == OFlags::RDONLY || mode.contains(OFlags::PATH) {
        return Err(Errno::BADF);
    }
    if number <= STDERR {
        return Ok(());
    }
    rustix::io::fcntl_setfd(std_fd(number), flags | FdFlags::CLOEXEC)
}

/// The open descriptors above 2: those inherited, before treaper opens any. None without `/proc`.
pub fn inherited() -> Vec<i32> {
    let mut found = Vec::new();
    // Since Linux 6.2 this size is their number. The usual three need no listing.
    if rustix::fs::stat(c"/proc/self/fd").is_ok_and(|stat| stat.st_size == 3) {
        return found;
    }
    if let Ok(directory) = open(c"/proc/self/fd", OFlags::DIRECTORY) {
        let _ = proc::numbers_in(&directory, &mut |fd| found.push(fd));
        found.retain(|fd| *fd > STDERR && *fd != directory.as_raw_fd());
    }
    found
}

/// Whether a call may wait for a file system without a limit, also with `O_NONBLOCK`: it may be
/// frozen (`fsfreeze`), or served by another machine or process.
pub fn may_wait(fd: i32) -> bool {
    // What has no type is of the kernel alone, such as an eventfd.
    !matches!(
        file_type(std_fd(fd)),
        Ok(FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::Unknown)
    )
}

/// What does not fit at once is lost.
pub fn write_message(bytes: &[u8]) {
    let _ = write_without_waiting(STDERR, bytes);
}

/// Writes all or nothing, but a socket or a device can take a part. Pipes and terminals are opened
/// again: `O_NONBLOCK` is not for the server. `EAGAIN`: there is no room; `EPIPE`: no reader.
pub fn write_without_waiting(number: i32, bytes: &[u8]) -> Result<usize, Errno> {
    let fd = std_fd(number);
    match file_type(fd)? {
        FileType::RegularFile => {
            let before = stat_unasked(fd, StatxFlags::SIZE).map_or(u64::MAX, |stat| stat.stx_size);
            let written = write_at_once(fd, bytes)?;
            let end = || rustix::fs::fstat(fd).map(|stat| stat.st_size as u64);
            // Takes a part back, or the next line would follow it. Not what another process wrote.
            if written < bytes.len() && end() == Ok(before.saturating_add(written as u64)) {
                rustix::fs::ftruncate(fd, before)?;
                rustix::fs::seek(fd, SeekFrom::Start(before))?;
            }
            Ok(written)
        }
        FileType::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        _ => {
            // A long write needs free pages. Any two in a row hold more than a page of bytes, since
            // a write that fits into the last page goes on there.
            let used = 2 * unread(number).next_multiple_of(PIPE_BUF as u64);
            let size = rustix::pipe::fcntl_getpipe_size(fd).map_or(u64::MAX, |size| size as u64);
            if bytes.len() > PIPE_BUF && size < used + bytes.len() as u64 {
                return Err(Errno::AGAIN);
            }
            let can_write = || poll_one(number, Events::OUT, Duration::ZERO).contains(Events::OUT);
            match reopen(number, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
                Ok(own) => write_at_once(own.as_fd(), bytes),
                // Without /proc or a free descriptor. It waits if another writer fills the pipe.
                Err(_) if can_write() => write_at_once(fd, bytes),
                Err(_) => Err(Errno::AGAIN),
            }
        }
    }
}

/// Opens the file of a descriptor anew, with flags for this process alone. See `proc_pid_fd(5)`.
pub(super) fn reopen(number: i32, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = proc::Path::of(format_args!("/proc/self/fd/{number}"));
    open(path.as_c_str(), flags)
}

/// Leaves it open until this process, and each that is forked from it, has ended.
pub fn keep(fd: OwnedFd) -> BorrowedFd<'static> {
    OwnedFd::as_fd(Box::leak(Box::new(fd)))
}

/// Leaves the working directory, which could otherwise not be unmounted. See `chdir(2)`.
pub fn leave_directory() {
    let _ = rustix::process::chdir("/");
}

/// Lets this process use as much of `resource` as it may. See `getrlimit(2)`.
pub fn raise_limit(resource: Resource) {
    // Not by rustix, which panics if a filter refuses the call.
    if let Ok((_, most)) = nix::sys::resource::getrlimit(resource) {
        let _ = nix::sys::resource::setrlimit(resource, most, most);
    }
}

/// See `write(2)`. Without a reader, or at the size limit (`RLIMIT_FSIZE`), the kernel sends a
/// signal to this process. It is removed here: forwarded, it would end the server.
pub fn write_at_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let written = rustix::io::write(fd, bytes);
    match written {
        Err(Errno::PIPE) => arrival::remove_own(Signal::PIPE),
        Err(Errno::FBIG) => arrival::remove_own(Signal::XFSZ),
        _ => {}
    }
    written
}

/// Makes the standard descriptor `to` a copy of `from`. See `dup2(2)`.
pub fn redirect(from: BorrowedFd<'_>, to: i32) {
    let _ = match to {
        STDIN => rustix::stdio::dup2_stdin(from),
        STDOUT => rustix::stdio::dup2_stdout(from),
        _ => rustix::stdio::dup2_stderr(from),
    };
}

/// Stdin becomes empty, and stdout the same as stderr.
pub fn separate_streams() {
    let null = open(c"/dev/null", OFlags::empty());
    redirect(null.as_ref().map_or(std_fd(STDERR), AsFd::as_fd), STDIN);
    redirect(std_fd(STDERR), STDOUT);
}

pub fn write_file(dir: BorrowedFd<'_>, path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open_at(dir, path, OFlags::WRONLY)?;
    rustix::io::retry_on_intr(|| rustix::io::write(&file, text)).map(drop)
}

pub fn write_number(dir: BorrowedFd<'_>, path: &CStr, number: i32) -> Result<(), Errno> {
    let text = proc::Path::of(format_args!("{number}"));
    write_file(dir, path, text.as_c_str().to_bytes())
}

pub fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open_at(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

/// Without `.` and `..`. Allocates.
pub fn directories_in(dir: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A pipe: at a write, the kernel sends SIGCONT to this process. See `F_SETSIG` in `fcntl(2)`.
pub fn resuming_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    const F_SETSIG: i32 = 10; // As `<linux/fcntl.h>` defines it.
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let signal = Signal::CONT.number().into();
    for (command, value) in [(libc::F_SETOWN, pid::own()), (F_SETSIG, signal)] {
        // Not by rustix, which lacks both commands.
        // SAFETY: takes numbers.
        check(unsafe { libc::fcntl(read.as_raw_fd(), command, value) }.into())?;
    }
    rustix::fs::fcntl_setfl(&read, OFlags::ASYNC | OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// The next byte sends the signal again. Returns whether the other end of the pipe is closed.
pub fn empty(pipe: BorrowedFd<'_>, each: &mut dyn FnMut(u8)) -> bool {
    let mut bytes = [0; 512];
    // As much as a pipe can hold. What comes meanwhile sends the signal, and so does its end.
    for _ in 0..128 {
        match rustix::io::read(pipe, &mut bytes) {
            Ok(0) => return true,
            Ok(count) => bytes[..count].iter().copied().for_each(&mut *each),
            Err(_) => break,
        }
    }
    false
}
