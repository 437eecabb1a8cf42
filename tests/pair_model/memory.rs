//! What a process of the model remembers: its registers, its stack and its heap.
//!
//! A process can do only what follows from its memory and from the answers to come. So if two lists of answers have led
//! to the same memory, they are one state, and the search goes on from one of them. Memory that nothing reads any more
//! can differ, and then two states are searched where one would do. It cannot be the other way round.
#![allow(unsafe_code, reason = "an allocator, and the registers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint::black_box;
use std::os::unix::fs::FileExt;

/// Of a process of the model. It keeps less than a thousand bytes.
const ROOM: usize = 1 << 16;
/// Blocks in use at once.
const BLOCKS: usize = 128;

/// The heap of a process of the model: each block is at the lowest address that is free, so that what was freed before
/// does not matter, and what is free is zero.
struct Heap {
    room: [u128; ROOM / 16],
    /// The first and the next address of each block in use, in their order.
    blocks: [(usize, usize); BLOCKS],
    used: usize,
}

thread_local! {
    static HEAP: UnsafeCell<Heap> = const { UnsafeCell::new(Heap { room: [0; ROOM / 16], blocks: [(0, 0); BLOCKS], used: 0 }) };
    /// A process of the model runs on this thread.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// Where its stack begins.
    static BASE: Cell<usize> = const { Cell::new(0) };
}

impl Heap {
    fn take(&mut self, layout: Layout) -> Option<usize> {
        let first = self.room.as_ptr().addr();
        let mut at = first;
        let mut place = 0;
        let aligned = |at: usize| at.next_multiple_of(layout.align());
        for (start, end) in &self.blocks[..self.used] {
            if aligned(at) + layout.size() <= *start {
                break;
            }
            (at, place) = (*end, place + 1);
        }
        let start = aligned(at);
        let end = start + layout.size().max(1);
        if end > first + ROOM || self.used == BLOCKS {
            return None;
        }
        self.blocks.copy_within(place..self.used, place + 1);
        self.blocks[place] = (start, end);
        self.used += 1;
        Some(start)
    }

    fn give_back(&mut self, start: usize) {
        let place = self.blocks[..self.used]
            .iter()
            .position(|block| block.0 == start);
        let Some(place) = place else { return };
        self.blocks.copy_within(place + 1..self.used, place);
        self.used -= 1;
    }

    fn holds(&self, at: usize) -> bool {
        let first = self.room.as_ptr().addr();
        (first..first + ROOM).contains(&at)
    }
}

/// The allocator of the test: what a process of the model allocates is on a heap of its own.
pub struct Allocator;

// SAFETY: the system's, but for a thread on which a process of the model runs. What that thread allocates meanwhile is
// in its own `HEAP`, in blocks that do not overlap, and only that thread uses it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // What a panic prints is not of the process.
        if !RUNS.get() || std::thread::panicking() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        HEAP.with(|heap| {
            let heap = heap.get();
            // SAFETY: of this thread, and nothing that is called here allocates.
            let start = unsafe { &mut *heap }.take(layout);
            // SAFETY: as above.
            let room = unsafe { &raw mut (*heap).room };
            start.map_or(std::ptr::null_mut(), |start| {
                room.cast::<u8>().with_addr(start)
            })
        })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HEAP.with(|heap| {
            let heap = heap.get();
            // SAFETY: as in `alloc`.
            if !unsafe { &*heap }.holds(at.addr()) {
                // SAFETY: the caller's promise, and it is of the system.
                return unsafe { System.dealloc(at, layout) };
            }
            // SAFETY: a block of this size, which nobody uses any more.
            unsafe { at.write_bytes(0, layout.size()) };
            // SAFETY: as in `alloc`.
            unsafe { &mut *heap }.give_back(at.addr());
        });
    }
}

/// Runs a process of the model. The stack of the thread has to be at the same place each time.
pub fn run<T>(process: impl FnOnce() -> T) -> T {
    HEAP.with(|heap| {
        // SAFETY: of this thread; a process that has ended has left nothing that is used.
        let heap = unsafe { &mut *heap.get() };
        heap.room.fill(0);
        heap.used = 0;
    });
    let base = 0_usize;
    BASE.set(std::ptr::from_ref(black_box(&base)).addr());
    clear();
    RUNS.set(true);
    let outcome = process();
    RUNS.set(false);
    outcome
}

/// Something for the test itself, which is not of the process.
pub fn apart<T>(what: impl FnOnce() -> T) -> T {
    let before = RUNS.replace(false);
    let outcome = what();
    RUNS.set(before);
    outcome
}

/// Clears the stack below the caller: what returned functions have left there.
#[inline(never)]
pub fn clear() {
    let mut below = [0_u8; 1 << 14];
    black_box(&mut below);
}

/// The memory of the process that runs.
#[inline(never)]
pub fn digest() -> u128 {
    // More than those of any processor take, at an address that suits the largest.
    let mut registers = [0_u128; 64];
    // SAFETY: it only writes to `registers`; nothing jumps back here.
    unsafe { _setjmp(registers.as_mut_ptr()) };
    apart(|| {
        let lowest = std::ptr::from_ref(black_box(&registers)).addr();
        let mut stack = vec![0; BASE.get() - lowest];
        let memory = File::open("/proc/self/mem").expect("our memory");
        memory
            .read_exact_at(&mut stack, lowest as u64)
            .expect("our stack");
        HEAP.with(|heap| {
            // SAFETY: as in `alloc`.
            let heap = unsafe { &*heap.get() };
            let end = heap.blocks[..heap.used]
                .last()
                .map_or(0, |block| block.1 - heap.room.as_ptr().addr());
            let of = |seed: u8| {
                let mut hasher = DefaultHasher::new();
                (seed, &stack, &heap.room[..end.div_ceil(16)]).hash(&mut hasher);
                hasher.finish()
            };
            u128::from(of(1)) << 64 | u128::from(of(2))
        })
    })
}

unsafe extern "C" {
    /// setjmp(3): here it only writes down the registers.
    fn _setjmp(registers: *mut u128) -> i32;
}
