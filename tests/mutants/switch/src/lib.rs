//! Which of the mutants in a program is on. tests/mutants/run writes the number into the program's file, so the program
//! makes no call to find it, and no process of a test can lose it.

use std::ffi::{CStr, c_int};
use std::ptr::{null_mut, read_volatile, write_volatile};

/// Found in the file by its first bytes. After them: 0 for none, the number of the mutant, or `RECORD`.
#[repr(C)]
struct Switch {
    magic: [u8; 28],
    number: u32,
}

#[used]
#[unsafe(no_mangle)]
static mut MUTANT_SWITCH: Switch = Switch {
    magic: *b"the mutant that is on is no ",
    number: 0,
};

/// No mutant is on. Each one that is passed gets a mark in the file `REACHED`, a byte for each.
const RECORD: u32 = u32::MAX;
const REACHED: &CStr = c"/run/mutants/reached";
const MOST: usize = 1 << 14;

/// The file in memory, once `MAPPED`.
static mut MARKS: *mut u8 = null_mut();
static mut MAPPED: bool = false;

/// Whether this mutant is on.
#[inline(never)]
pub fn on(mutant: u32) -> bool {
    // SAFETY: an aligned number that nobody writes while the program runs.
    let number = unsafe { read_volatile(&raw const MUTANT_SWITCH.number) };
    if number == RECORD {
        mark(mutant as usize);
    }
    number == mutant
}

/// The same where only constant functions may be called. It leaves a mark only after another one has mapped the file.
#[inline(never)]
pub const fn on_const(mutant: u32) -> bool {
    // SAFETY: nobody writes the number while the program runs, and a mark is within the mapping.
    unsafe {
        if MUTANT_SWITCH.number == RECORD && MAPPED && (mutant as usize) < MOST {
            *MARKS.add(mutant as usize) = 1;
        }
        MUTANT_SWITCH.number == mutant
    }
}

#[cold]
fn mark(mutant: usize) {
    // SAFETY: if two threads map the file, it is the same file.
    unsafe {
        if MARKS.is_null() {
            MARKS = map();
            MAPPED = MARKS.addr() != usize::MAX;
        }
        if MAPPED && mutant < MOST {
            write_volatile(MARKS.add(mutant), 1);
        }
    }
}

/// The file, or the address -1 if it cannot be mapped. The caller may be about to read its own errno.
fn map() -> *mut u8 {
    // SAFETY: a valid path, and the address of this thread's errno.
    unsafe {
        let errno: *mut c_int = libc::__errno_location();
        let kept = *errno;
        let file = libc::open(REACHED.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = libc::mmap(null_mut(), MOST, access, libc::MAP_SHARED, file, 0);
        libc::close(file);
        *errno = kept;
        mapped.cast()
    }
}
