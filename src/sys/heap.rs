//! The allocator: first a piece of the program's own memory, then the libc's.
//!
//! A start needs a few KiB for a moment, for which the libc maps and unmaps memory. This allocator saves a dozen system
//! calls, a tenth of the time of a start, and 8 KiB of private memory of the pair. The cargo feature `plain` does
//! without it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 4096;
const PAGES: usize = 16;
const ROOM: usize = PAGES * PAGE;

#[repr(align(4096))]
struct Piece(UnsafeCell<[MaybeUninit<u8>; ROOM]>);

// SAFETY: each block of it is read and written by its owner alone.
unsafe impl Sync for Piece {}

static PIECE: Piece = Piece(UnsafeCell::new([MaybeUninit::uninit(); ROOM]));
/// Where the next block begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// How many living blocks lie in each page, wholly or in part.
static LIVING: [AtomicU16; PAGES] = [const { AtomicU16::new(0) }; PAGES];

/// The allocator. Each block begins where the one before it ends. Only the last one can grow or free its room.
pub struct Heap;

impl Heap {
    /// Where `pointer` lies in the piece, if it does.
    fn offset(pointer: *const u8) -> Option<usize> {
        let offset = (pointer as usize).wrapping_sub(PIECE.0.get() as usize);
        (offset < ROOM).then_some(offset)
    }

    /// Moves the end of the last block from `from` to `to`; false if `from` is not that end, or `to` is too far.
    fn move_end(from: usize, to: usize) -> bool {
        to <= ROOM && NEXT.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }

    fn count(start: usize, len: usize, change: impl Fn(&AtomicU16) -> u16) {
        for page in &LIVING[start / PAGE..(start + len).div_ceil(PAGE)] {
            change(page);
        }
    }

    /// Returns every page without a living block to the kernel. `page_size`: the kernel's, in bytes. See `madvise(2)`,
    /// `MADV_DONTNEED`.
    pub fn release_pages(page_size: usize) {
        // The kernel rounds the length up to its own pages. Larger ones could hold a living block.
        if page_size != PAGE {
            return;
        }
        let used = NEXT.load(Relaxed).div_ceil(PAGE);
        let (mut at, dead) = (0, |page: usize| LIVING[page].load(Relaxed) == 0);
        while at < used {
            let end = (at..used).find(|page| !dead(*page)).unwrap_or(used);
            if end > at {
                let start = PIECE.0.get().cast::<u8>().wrapping_add(at * PAGE);
                // SAFETY: whole pages of the piece in which no block is alive; they become zeros.
                unsafe { libc::madvise(start.cast(), (end - at) * PAGE, libc::MADV_DONTNEED) };
            }
            at = end + 1;
        }
    }
}

// SAFETY: a block of the piece is taken by moving NEXT over it, which only one caller can do, and
// NEXT moves back over it only when its owner frees or shrinks it; so no two living blocks overlap.
// Everything else is the system's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        loop {
            let end = NEXT.load(Relaxed);
            let start = end.next_multiple_of(layout.align());
            if layout.align() > PAGE || layout.size() > ROOM - start.min(ROOM) {
                // SAFETY: the caller's promise is the same.
                return unsafe { System.alloc(layout) };
            }
            if Self::move_end(end, start + layout.size()) {
                Self::count(start, layout.size(), |page| page.fetch_add(1, Relaxed));
                return PIECE.0.get().cast::<u8>().wrapping_add(start);
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if let Some(start) = Self::offset(pointer) {
            Self::count(start, layout.size(), |page| page.fetch_sub(1, Relaxed));
            Self::move_end(start + layout.size(), start);
        } else {
            // SAFETY: not of the piece, so the system made it, for the same layout.
            unsafe { System.dealloc(pointer, layout) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = Self::offset(pointer) else {
            // SAFETY: not of the piece, so the system made it, for the same layout.
            return unsafe { System.realloc(pointer, layout, size) };
        };
        if Self::move_end(start + layout.size(), start + size) {
            Self::count(start, layout.size(), |page| page.fetch_sub(1, Relaxed));
            Self::count(start, size, |page| page.fetch_add(1, Relaxed));
            return pointer;
        }
        // SAFETY: the caller promises that the new size fits this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero, as the caller promises.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are alive, do not overlap, and are at least that long.
            unsafe { std::ptr::copy_nonoverlapping(pointer, new, layout.size().min(size)) };
            // SAFETY: the old block, to which there is no reference any more.
            unsafe { self.dealloc(pointer, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_bytes_while_others_are_freed_grown_or_released() {
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
        let (mut seed, mut beyond) = (1_u32, false);
        for round in 0..3000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = 1 + (seed >> 16) as usize % 700;
            let at = (seed >> 8) as usize % (blocks.len() + 1);
            let fill = round as u8;
            let changed;
            if at == blocks.len() || blocks.len() < 20 {
                // SAFETY: a valid layout of more than no bytes.
                let pointer = unsafe { Heap.alloc(layout(size)) };
                changed = blocks.len();
                blocks.push((pointer, size, fill));
            } else if round % 3 == 0 {
                let (pointer, old, _) = blocks[at];
                // SAFETY: alive, and of that layout.
                let pointer = unsafe { Heap.realloc(pointer, layout(old), size) };
                changed = at;
                blocks[at] = (pointer, size, fill);
            } else {
                let (pointer, size, _) = blocks.swap_remove(at);
                // SAFETY: alive, and of that layout.
                unsafe { Heap.dealloc(pointer, layout(size)) };
                continue;
            }
            let (pointer, size, _) = blocks[changed];
            // SAFETY: alive, and that long.
            unsafe { pointer.write_bytes(fill, size) };
            if round % 100 == 99 {
                Heap::release_pages(PAGE);
            }
            for (pointer, size, fill) in &blocks {
                beyond |= Heap::offset(*pointer).is_none();
                // SAFETY: alive, that long, and written above.
                let text = unsafe { std::slice::from_raw_parts(*pointer, *size) };
                assert!(text.iter().all(|byte| byte == fill), "round {round}");
            }
        }
        assert!(beyond, "the piece was never full");
    }
}
