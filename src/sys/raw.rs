//! System calls without the libc: they leave its `errno` alone.
//!
//! A child that shares the memory of its parent also shares its `errno`. If a call of the child fails, the libc would
//! overwrite an error that the parent is about to read. On architectures without code in this file, the child gets a
//! copy of the memory, so the calls of the libc can be used.

use std::ffi::{c_int, c_long, c_void};

use super::Errno;

/// The arguments of one call. Those that it does not take are 0.
pub type Arguments = [usize; 5];

/// Makes the system call `number`. See `syscall(2)`.
///
/// # Safety
/// As of that call.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: c_long, arguments: Arguments) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the convention of the kernel: it changes rax, rcx and r11. The rest is the caller's promise.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    decode(result)
}

/// Makes the system call `number`. See `syscall(2)`.
///
/// # Safety
/// As of that call.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: c_long, arguments: Arguments) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the convention of the kernel: it changes x0. The rest is the caller's promise.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3], in("x4") arguments[4], options(nostack));
    }
    decode(result)
}

/// Makes the system call `number`. See `syscall(2)`.
///
/// # Safety
/// As of that call.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(number: c_long, arguments: Arguments) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth] = arguments;
    // SAFETY: the caller's promise.
    super::check(unsafe { libc::syscall(number, first, second, third, fourth, fifth) })
        .map(|result| result as usize)
}

/// The first function of a child on a stack of its own. It must not return: there is no caller.
pub type Entry = extern "C" fn(*mut c_void) -> !;

/// Makes a child that begins with `entry(data)` on the stack that `clone` names. Returns its pid. See `clone3(2)`.
///
/// # Errors
/// `ENOSYS` before Linux 5.3, or hidden by a filter, or unknown for this architecture.
///
/// # Safety
/// The flags in `clone` must not let the child break anything of its parent. With `CLONE_VM`, only the child uses the
/// stack, and the stack and `data` live until the exec or the exit of the child.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub unsafe fn clone_onto(
    clone: &mut libc::clone_args,
    entry: Entry,
    data: *mut c_void,
) -> Result<c_int, Errno> {
    let result: isize;
    let (clone, size) = (
        std::ptr::from_mut(clone),
        std::mem::size_of::<libc::clone_args>(),
    );
    // SAFETY: the child begins with the registers of its parent, except for the result and the stack pointer. It never
    // returns to this frame, so it may change all of them. The rest is the caller's promise.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("syscall", "test rax, rax", "jnz 2f",
            "xor ebp, ebp", "mov rdi, r8", "call r9", "ud2", "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") clone, in("rsi") size, in("r8") data, in("r9") entry,
            lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("svc 0", "cbnz x0, 2f",
            "mov x29, xzr", "mov x0, x2", "blr x3", "brk 1", "2:",
            in("x8") libc::SYS_clone3, inlateout("x0") clone as isize => result,
            in("x1") size, in("x2") data, in("x3") entry);
    }
    decode(result).map(|pid| pid as c_int)
}

/// There is no such call for this architecture: makes no child.
///
/// # Errors
/// `ENOSYS`.
///
/// # Safety
/// Always safe.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn clone_onto(
    _: &mut libc::clone_args,
    _: Entry,
    _: *mut c_void,
) -> Result<c_int, Errno> {
    Err(Errno::NOSYS)
}

/// The kernel returns errors as small negative numbers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn decode(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn a_call_that_fails_leaves_the_errno_of_the_libc_alone() {
        // SAFETY: takes a number that no descriptor has.
        let failed = unsafe { libc::close(-1) };
        assert_eq!(failed, -1);
        // SAFETY: a path that is nowhere; no such call can succeed.
        let raw = unsafe { call(libc::SYS_chdir, [c"/no/such".as_ptr() as usize, 0, 0, 0, 0]) };
        assert_eq!(raw, Err(Errno::NOENT));
        assert_eq!(super::super::last_errno(), Errno::BADF);
        // SAFETY: takes nothing.
        let own = unsafe { call(libc::SYS_getpid, [0; 5]) };
        assert_eq!(own, Ok(std::process::id() as usize));
    }
}
