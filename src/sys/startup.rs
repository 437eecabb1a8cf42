//! What this process got at its start. The server gets the same.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{MemfdFlags, Mode, OFlags};

use super::clone::Standing;
use super::pid;
use super::signal::{self, Mask, Signal};

/// Defines the C `main` that calls `$run(&arguments) -> i32`.
///
/// It replaces the start-up code of std, which ignores SIGPIPE and opens `/dev/null` on closed
/// descriptors: the server would inherit both. It also saves 24 system calls, as measured with
/// glibc.
#[macro_export]
macro_rules! entry_point {
    ($run:path) => {
        #[allow(unsafe_code, reason = "the name `main` is what the C runtime calls")]
        #[unsafe(no_mangle)]
        extern "C" fn main(
            count: ::std::ffi::c_int,
            arguments: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: the arguments are those that the C runtime passes to `main`.
            $run(&unsafe { $crate::sys::startup::arguments(count, arguments) })
        }
    };
}

/// The memory that holds the command line, as `ps` shows it: its address and its length.
static COMMAND_LINE: std::sync::OnceLock<(usize, usize)> = std::sync::OnceLock::new();

/// Copies the arguments of the C `main`.
///
/// # Safety
/// `arguments` points to `count` pointers to NUL-terminated strings, which live as long as the
/// process.
pub unsafe fn arguments(count: c_int, arguments: *const *const c_char) -> Vec<OsString> {
    let mut copies = Vec::with_capacity(count.max(0) as usize);
    let mut bounds: Option<(usize, usize)> = None;
    for at in 0..count.max(0) as usize {
        // SAFETY: one of the `count` pointers.
        let pointer = unsafe { arguments.add(at) };
        // SAFETY: as above.
        let pointer = unsafe { *pointer };
        // SAFETY: a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(pointer) };
        let (start, len) = (pointer as usize, text.to_bytes_with_nul().len());
        match &mut bounds {
            None => bounds = Some((start, len)),
            // The kernel puts each one right behind the one before. The length ends at the first
            // that is elsewhere.
            Some((first, all)) if *first + *all == start => *all += len,
            Some(_) => {}
        }
        copies.push(OsString::from_vec(text.to_bytes().to_vec()));
    }
    let _ = COMMAND_LINE.set(bounds.unwrap_or((0, 0)));
    copies
}

/// Replaces the command line that `ps` and `pkill -f` see, cut to the length of the old one.
pub fn set_command_line(text: &str) {
    let Some((start, len)) = COMMAND_LINE.get().copied() else {
        return;
    };
    if start == 0 || len == 0 {
        return;
    }
    let kept = text.len().min(len - 1);
    let at = start as *mut u8;
    // SAFETY: `len` bytes from `start` are the argument strings that the kernel has put on the
    // stack; they are writable, and there is no reference to them: `arguments` has made copies.
    unsafe { std::ptr::write_bytes(at, 0, len) };
    // SAFETY: as above; `kept` is less than `len`.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), at, kept) };
}

/// The state that an exec keeps, and that treaper changes for itself.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    pub mask: Mask,
    pub sigchld_ignored: bool,
    pub sighup_ignored: bool,
    /// What this process leads. The server leads the same, as it would without treaper.
    pub standing: Standing,
}

/// Records the inherited state, and changes it to one that is safe for treaper. All signals are
/// blocked: none is lost, and none ends treaper. SIGCHLD has its default action: if it were
/// ignored, the statuses of children would be lost. The descriptors 0 to 2 are open, so no file
/// that treaper opens gets one of these numbers.
pub fn capture() -> Inherited {
    let mask = signal::set_mask(Mask::ALL);
    let sigchld_ignored = signal::is_ignored(Signal::CHLD);
    if sigchld_ignored {
        signal::set_action(libc::SIGCHLD, libc::SIG_DFL);
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

/// Opens a placeholder on each of 0, 1 and 2 that is closed. It is close-on-exec, so for the server
/// it is closed again.
fn fill_standard_descriptors() {
    for fd in 0..3 {
        // SAFETY: if it is closed, it is only asked for.
        if rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok() {
            continue;
        }
        // The lowest free number is `fd`, since those below are open by now. Without /dev, an empty
        // file in memory.
        let opened = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .or_else(|_| rustix::fs::memfd_create(c"closed", MemfdFlags::CLOEXEC));
        // It stays open.
        let _ = opened.map(IntoRawFd::into_raw_fd);
    }
}

/// The environment of this process: the original array.
pub fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: set by the C runtime before `main`; there is one thread, and it never changes it.
    unsafe { environ }
}

/// Each entry of the environment: the name, `=`, and the value. Copies nothing.
pub(super) fn entries() -> impl Iterator<Item = &'static CStr> {
    (0..).map_while(|at| {
        // SAFETY: `environ` is an array that a null pointer ends, and the iterator stops there.
        let place = unsafe { environment().add(at) };
        // SAFETY: as above.
        let entry = unsafe { *place };
        // SAFETY: each entry is a NUL-terminated string that is never changed.
        (!entry.is_null()).then(|| unsafe { CStr::from_ptr(entry) })
    })
}

/// Each variable whose name begins with `prefix`. Does not copy the others, of which there may be
/// many.
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
