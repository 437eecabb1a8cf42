//! What this process got at its start. The server gets the same.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::FdFlags;

use super::proc::{self, Path};
use super::signal::{self, Mask, Signal};
use super::{open, pid, std_fd};

/// Defines the C `main` that calls `$run(&arguments) -> i32`. The start-up code of std ignores
/// SIGPIPE and opens `/dev/null` on closed descriptors, which the server would inherit.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point {
    ($run:path) => {
        #[allow(unsafe_code, reason = "the name `main` is what the C runtime calls")]
        #[unsafe(no_mangle)]
        extern "C" fn main(count: i32, arguments: *const *const ::std::ffi::c_char) -> i32 {
            // SAFETY: the arguments are those that the C runtime passes to `main`.
            let arguments = unsafe { $crate::sys::startup::arguments(count, arguments) };
            $crate::sys::clone::exit_now($run(&arguments))
        }
    };
}

/// The descriptors from 0 to 2 that this process did not get, a bit each.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C runtime calls it before `main` and the start-up code of std. musl passes no arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let is_closed = |fd| rustix::io::fcntl_getfd(std_fd(fd)).is_err();
    let closed = (0..3).map(|fd| u8::from(is_closed(fd)) << fd).sum();
    CLOSED.store(closed, SeqCst);
    SIGPIPE_IGNORED.store(signal::is_ignored(Signal::PIPE), SeqCst);
}

/// The path that this program was executed by; can be relative. See `getauxval(3)`.
pub fn executable() -> Option<&'static OsStr> {
    // SAFETY: takes a number.
    let text = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: if it is there, it is a NUL-terminated string that the kernel has put on the stack.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
    Some(OsStr::from_bytes(text.to_bytes()))
}

/// Copies the arguments of the C `main`.
///
/// # Safety
/// `arguments` points to `count` pointers to NUL-terminated strings that are never freed.
pub unsafe fn arguments(count: i32, arguments: *const *const c_char) -> Vec<OsString> {
    // SAFETY: the caller says so.
    let pointers = unsafe { std::slice::from_raw_parts(arguments, count.max(0) as usize) };
    // SAFETY: a NUL-terminated string.
    let text = |pointer: &*const c_char| unsafe { CStr::from_ptr(*pointer) };
    if let (Some(first), Some(last)) = (pointers.first(), pointers.last()) {
        let _ = PLACE.set(first.addr()..last.addr() + text(last).count_bytes() + 1);
    }
    let copy = |pointer| OsString::from_vec(text(pointer).to_bytes().to_vec());
    pointers.iter().map(copy).collect()
}

/// Where the kernel has put the arguments of this process, one after the other.
static PLACE: OnceLock<Range<usize>> = OnceLock::new();

/// For [`set_names`], if [`arguments`] was not called. See `arg_start` in `proc_pid_stat(5)`.
pub fn find_arguments() {
    let (path, mut buffer) = (Path::of(format_args!("/proc/self/stat")), [0; 1024]);
    let fields = proc::start_of(&path, &mut buffer).unwrap_or_default();
    let fields = std::str::from_utf8(fields).unwrap_or_default();
    let mut bounds = fields.split(' ').skip(47).flat_map(str::parse);
    if let (Some(start), Some(end)) = (bounds.next(), bounds.next()) {
        let _ = PLACE.set(start..end);
    }
}

/// Sets the command name of this process, cut to 15 bytes, and replaces the command line that `ps`
/// and `pkill -f` see, cut to the length of the old one. See `PR_SET_NAME(2const)`.
pub fn set_names(name: &CStr) {
    let _ = rustix::thread::set_name(name);
    let place = PLACE.get().filter(|place| !place.is_empty());
    let Some(place) = place else { return };
    // SAFETY: these bytes are the argument strings that the kernel has put on the stack; they are
    // writable, and there is no other reference to them: treaper uses copies.
    let place = unsafe { std::slice::from_raw_parts_mut(place.start as *mut u8, place.len()) };
    place.fill(0);
    let kept = name.count_bytes().min(place.len() - 1);
    place[..kept].copy_from_slice(&name.to_bytes()[..kept]);
}

/// Where the server stands. Unless it is part of a job, its session is apart from treaper's: busy
/// processes cannot keep treaper from running, since sessions share the processors (autogroup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In the process group of treaper: job control needs it there.
    InJob,
    LeadsSession,
    LeadsGroup,
    /// The leader of both is gone. So `setsid()` and `setpgid(0, 0)` succeed, unlike for a leader.
    LeadsNothing,
}

/// The state that an exec keeps, and that treaper changes for itself.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    pub mask: Mask,
    pub sigchld_ignored: bool,
    pub sighup_ignored: bool,
    /// The server leads the same, as it would without treaper.
    pub standing: Standing,
}

/// Records the inherited state, and makes it safe for treaper. All signals are blocked: none is
/// lost, and none ends treaper. SIGCHLD has its default action: if it were ignored, the statuses of
/// children would be lost. 0 to 2 are open, so no file that treaper opens gets these numbers.
pub fn capture() -> Inherited {
    let mask = signal::set_mask(Mask::ALL);
    let sigchld_ignored = signal::is_ignored(Signal::CHLD);
    if sigchld_ignored {
        signal::set_action(libc::SIGCHLD, libc::SIG_DFL);
    }
    // In a host, std has changed both.
    if !SIGPIPE_IGNORED.load(SeqCst) {
        signal::set_action(libc::SIGPIPE, libc::SIG_DFL);
    }
    fill_standard_descriptors();
    Inherited {
        mask,
        sigchld_ignored,
        sighup_ignored: signal::is_ignored(Signal::HUP),
        standing: match pid::own() {
            own if pid::session(0) == Ok(own) => Standing::LeadsSession,
            own if pid::group() == own => Standing::LeadsGroup,
            _ => Standing::LeadsNothing,
        },
    }
}

/// Whether `fd`, one of 0, 1 and 2, was closed when this process began.
pub fn was_closed(fd: i32) -> bool {
    CLOSED.load(SeqCst) & 1 << fd != 0
}

/// The placeholders are close-on-exec, so for the server these are closed again.
fn fill_standard_descriptors() {
    for fd in (0..3).filter(|fd| was_closed(*fd)) {
        // In a host, std has opened /dev/null there.
        if rustix::io::fcntl_setfd(std_fd(fd), FdFlags::CLOEXEC).is_ok() {
            continue;
        }
        // The lowest free number is `fd`: those below are open by now. Without /dev, an empty file.
        let empty = |_| rustix::fs::memfd_create(c"closed", MemfdFlags::CLOEXEC);
        let opened = open(c"/dev/null", OFlags::RDWR).or_else(empty);
        let _ = opened.map(IntoRawFd::into_raw_fd);
    }
}

pub(super) fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: set by the C runtime before `main`; there is one thread, and it never changes it.
    unsafe { environ }
}

/// Each entry of the environment: the name, `=`, and the value.
pub fn entries() -> impl Iterator<Item = &'static CStr> {
    (0..).map_while(|at| {
        // SAFETY: `environ` is an array that a null pointer ends, and the iterator stops there.
        let place = unsafe { environment().add(at) };
        // SAFETY: as above.
        let entry = unsafe { *place };
        // SAFETY: each entry is a NUL-terminated string that is never changed.
        (!entry.is_null()).then(|| unsafe { CStr::from_ptr(entry) })
    })
}

/// Does not copy the other variables, of which there may be many.
pub fn variables_with(prefix: &str) -> Vec<(OsString, OsString)> {
    let texts = entries().map(CStr::to_bytes);
    let found = texts.filter(|text| text.starts_with(prefix.as_bytes()));
    let found = found.filter_map(|text| {
        let end = text.iter().position(|byte| *byte == b'=')?;
        let copy = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((copy(&text[..end]), copy(&text[end + 1..])))
    });
    found.collect()
}
