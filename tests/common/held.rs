//! Programs whose exec does not come back: the kernel asks a scanner that gives no answer, or the search of PATH takes
//! minutes. A hung network file system looks the same.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::scene::copy_program;
use super::{ACTOR, patience, sys};

/// A copy of the actor that cannot be executed as long as this lives. Only root can make one.
pub struct Held {
    pub path: PathBuf,
    scanner: OwnedFd,
}

impl Held {
    pub fn new(directory: &Path) -> Option<Held> {
        let path = directory.join("held");
        copy_program(ACTOR, &path);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let kind = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC;
        let events = (libc::O_RDONLY | libc::O_CLOEXEC) as u32;
        #[allow(unsafe_code, reason = "the kernel's interface for scanners")]
        // SAFETY: takes flags, and makes a descriptor.
        let scanner = sys::check(unsafe { libc::fanotify_init(kind, events) }).ok()?;
        let scanner = sys::own(scanner);
        let (add, exec) = (libc::FAN_MARK_ADD, libc::FAN_OPEN_EXEC_PERM);
        let (here, file) = (libc::AT_FDCWD, name.as_ptr());
        #[allow(unsafe_code, reason = "the kernel's interface for scanners")]
        // SAFETY: an open descriptor, and a null-terminated path.
        let marked = unsafe { libc::fanotify_mark(scanner.as_raw_fd(), add, exec, here, file) };
        sys::check(marked).ok()?;
        Some(Held { path, scanner })
    }

    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Waits until a process is about to execute it.
    pub fn wait(&self) {
        let ready = sys::poll(
            &[(self.scanner.as_raw_fd(), libc::POLLIN)],
            Some(patience()),
        );
        assert_ne!(ready[0], 0, "nobody executes {}", self.path.display());
        // The event is not answered, so that process waits. The open descriptor in the event does not matter.
        let mut question = [0; 256];
        let mut scanner = File::from(self.scanner.try_clone().unwrap());
        let read = scanner.read(&mut question);
        assert!(!read.is_err_and(|error| error.kind() != ErrorKind::Interrupted));
    }
}

/// The search for a command in this PATH takes minutes: each of many names leads through a long chain of links.
pub fn slow_path(directory: &Path) -> String {
    std::fs::create_dir(directory.join("d")).unwrap();
    let detour = "d/../".repeat(750);
    let mut target = "d".to_owned();
    // The kernel follows 40 links in one lookup.
    for at in 0..38 {
        let name = format!("link{at}");
        symlink(format!("{detour}{target}"), directory.join(&name)).unwrap();
        target = name;
    }
    symlink(target, directory.join("s")).unwrap();
    ["s"; 30_000].join(":")
}
