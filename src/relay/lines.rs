//! The lines of a stream that is passed on in pieces. Pure.

use crate::relay::inbox::MAX_MESSAGE;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub struct Lines {
    beginning: Vec<u8>,
    /// The line is longer than a message can be, or there is no memory for it. It is skipped.
    is_skipped: bool,
    /// Such a line has ended.
    has_skipped: bool,
}

impl Lines {
    /// Calls `each` with every line that ends in `bytes`, without its newline, and with the number
    /// of `bytes` up to its end.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], usize)) {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let piece = &bytes[from..end];
            from = end + 1;
            if self.beginning.is_empty() && !self.is_skipped {
                each(piece, from);
                continue;
            }
            self.keep(piece);
            let whole = std::mem::take(self);
            self.has_skipped = whole.has_skipped || whole.is_skipped;
            if !whole.is_skipped {
                each(&whole.beginning, from);
            }
        }
        self.keep(&bytes[from..]);
    }

    /// Whether a line was skipped since the last call.
    pub fn take_skipped(&mut self) -> bool {
        std::mem::take(&mut self.has_skipped)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let fits = self.beginning.len() + bytes.len() < MAX_MESSAGE
            && self.beginning.try_reserve(bytes.len()).is_ok();
        self.is_skipped |= !fits;
        if self.is_skipped {
            self.beginning = Vec::new();
        } else {
            self.beginning.extend_from_slice(bytes);
        }
    }
}
