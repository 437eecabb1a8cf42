//! Named words of memory that a parent and its forked children share.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{Errno, check};

/// Makes a struct of [`Word`]s, [`Flag`]s and [`Words`] in one mapping. Each is 0 at first, which
/// the pair of shim and monitor takes for "not yet".
macro_rules! shared_words {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* $field_vis:vis $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$field_doc])* $field_vis $field: $type,)+
        }

        impl $name {
            /// Maps zeroed words that this process shares with children that it forks later.
            pub fn shared() -> Result<Self, $crate::sys::Errno> {
                let size = 0 $(+ <$type>::SIZE)+;
                let mut rest = $crate::sys::shared::map(size)?;
                let fields = (|| Some(Self { $($field: <$type>::split_from(&mut rest)?,)+ }))();
                fields.ok_or($crate::sys::Errno::NOMEM)
            }
        }
    };
}
pub(crate) use shared_words;

#[derive(Clone, Copy, Debug)]
pub struct Word(&'static AtomicU64);

impl Word {
    pub(crate) const SIZE: usize = 1;

    pub(crate) fn split_from(rest: &mut &'static [AtomicU64]) -> Option<Self> {
        let (word, after) = rest.split_first()?;
        *rest = after;
        Some(Self(word))
    }

    pub const fn atomic(self) -> &'static AtomicU64 {
        self.0
    }

    pub fn get(self) -> u64 {
        self.0.load(SeqCst)
    }

    pub fn set(self, value: u64) {
        self.0.store(value, SeqCst);
    }

    pub fn replace(self, value: u64) -> u64 {
        self.0.swap(value, SeqCst)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Flag(Word);

impl Flag {
    pub(crate) const SIZE: usize = Word::SIZE;

    pub(crate) fn split_from(rest: &mut &'static [AtomicU64]) -> Option<Self> {
        Word::split_from(rest).map(Self)
    }

    pub fn get(self) -> bool {
        self.0.get() != 0
    }

    pub fn set(self, value: bool) {
        self.0.set(value.into());
    }

    /// Whether it was set since the last call.
    pub fn take(self) -> bool {
        self.0.replace(0) != 0
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Words<const N: usize>(&'static [AtomicU64; N]);

impl<const N: usize> Words<N> {
    pub(crate) const SIZE: usize = N;

    pub(crate) fn split_from(rest: &mut &'static [AtomicU64]) -> Option<Self> {
        let (words, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(Self(words))
    }

    /// The word at `at`; 0 if there is none.
    pub fn get(self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(SeqCst))
    }

    pub fn set(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, SeqCst);
        }
    }
}

/// `count` zeroed words. They are never unmapped. See `mmap(2)`, `MAP_SHARED | MAP_ANONYMOUS`.
pub(crate) fn map(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let size = count * size_of::<AtomicU64>();
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
    check(at as libc::c_long)?;
    // SAFETY: fresh, zeroed, page-aligned memory of this size that is never unmapped; zero is a
    // valid atomic, and atomics are all that is ever made of it.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), count) })
}
