//! Finds out whether a process is of the tree, by its ancestors.
#![forbid(unsafe_code)]

use crate::sys::Errno;
use crate::sys::pid;
use crate::sys::proc::{self, View};

/// The greatest number of ancestors that are looked at.
const ABOVE: usize = 1000;

/// Whether this process is an ancestor of `pid`. It is tried twice, since an orphan can get another parent meanwhile.
///
/// # Errors
/// `ENOENT`, `ESRCH`: it has ended; others of reading `/proc`.
pub fn is_below_us(pid: i32) -> Result<bool, Errno> {
    let view = proc::view()?;
    climb(view, pid).or_else(|_| climb(view, pid))
}

fn climb(view: View, mut pid: i32) -> Result<bool, Errno> {
    for _ in 0..ABOVE {
        if pid == pid::own() {
            return Ok(true);
        }
        if pid == 1 {
            return Ok(false);
        }
        pid = match view.stat(pid)?.parent {
            // The process is being reaped, or its parent is in another PID namespace.
            0 => return Err(Errno::SRCH),
            parent => parent,
        };
    }
    Err(Errno::LOOP)
}
