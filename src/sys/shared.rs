//! A few words of memory that parent and forked children share.

use std::sync::atomic::AtomicU64;

use super::{Errno, check};

/// Maps `N` zeroed words that this process shares with children that it forks later. They are never unmapped. See
/// `mmap(2)`, `MAP_SHARED | MAP_ANONYMOUS`.
///
/// # Errors
/// `ENOMEM`.
pub fn words<const N: usize>() -> Result<&'static [AtomicU64; N], Errno> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let size = size_of::<[AtomicU64; N]>();
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
    check(at as libc::c_long)?;
    // SAFETY: fresh, zeroed, page-aligned memory that is never unmapped; zero is a valid atomic,
    // and atomics are all that is ever made of it.
    Ok(unsafe { &*at.cast::<[AtomicU64; N]>() })
}
