//! The processes between this process and the point that a walk has reached.
//!
//! When the walk comes back to the other children of one of them, it needs that process again,
//! since a child is proven by its parent. Only the lowest processes keep their descriptors, so a
//! tree may be deeper than `RLIMIT_NOFILE`. The others are proven once more on the way back, from
//! the top down. That is sound even if a pid belongs to another process by then: a process whose
//! parent is of the tree is of the tree.

use super::Member;

/// For how many levels there is room: as many as the default of `pid_max`, or fewer if memory is
/// short.
const DEPTHS: [usize; 2] = [32 * 1024, 1024];
/// How many of the lowest processes keep their descriptors: more levels than a usual tree has, and
/// few compared with the limit of open files.
const MAX_HELD: usize = 32;

/// What is known about a process of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It is proven.
    Held,
    /// It was proven, and its descriptor has been closed.
    Released,
    /// It could not be proven again: its children have become children of this process.
    Lost,
}

/// A visited process whose children are visited now.
struct Frame<H> {
    member: Member<H>,
    /// It is spared, so what it has started is spared as well.
    spared: bool,
    proof: Proof,
    /// The index among the pending ones at which the children of the process above it begin.
    outer: u32,
}

/// Proves that a pid is that of the process at this depth.
type Prove<'a, H> = dyn FnMut(&mut Path<H>, i32, usize) -> Option<Member<H>> + 'a;

/// The visited processes whose children are visited now, the topmost first.
pub struct Path<H> {
    frames: Vec<Frame<H>>,
}

impl<H> Path<H> {
    /// Without memory there is room for none. Then a walk visits only the children of this process.
    /// As these end, their orphans become children of this process, so all are visited in the end.
    pub fn new() -> Self {
        let mut frames = Vec::new();
        let _ = DEPTHS
            .into_iter()
            .find(|depth| frames.try_reserve_exact(*depth).is_ok());
        Self { frames }
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the last process is spared.
    pub fn is_spared(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.spared)
    }

    /// False if there is no room.
    pub fn push(&mut self, member: Member<H>, spared: bool, outer: usize) -> bool {
        if self.frames.len() == self.frames.capacity() {
            return false;
        }
        self.frames.push(Frame {
            member,
            spared,
            proof: Proof::Held,
            outer: outer as u32,
        });
        self.release_above(self.frames.len() - 1);
        true
    }

    /// Removes the last process. Returns its `outer`.
    pub fn pop(&mut self) -> Option<usize> {
        self.frames.pop().map(|frame| frame.outer as usize)
    }

    /// The process at `depth`, if it is proven now.
    pub fn proven(&self, depth: usize) -> Option<&Member<H>> {
        let frame = self.frames.get(depth)?;
        (frame.proof == Proof::Held).then_some(&frame.member)
    }

    /// Proves the last process again if its descriptor was closed. Returns whether it is proven
    /// now. `prove` gets a pid and its depth.
    pub fn restore(&mut self, prove: &mut Prove<'_, H>) -> bool {
        let end = self.frames.len();
        let proven = self.frames.iter().rposition(|f| f.proof == Proof::Held);
        let lost = self.frames.last().is_some_and(|f| f.proof == Proof::Lost);
        for depth in proven.map_or(0, |at| at + 1)..end {
            let number = self.frames[depth].member.pid.get();
            let member = if lost {
                None
            } else {
                prove(self, number, depth)
            };
            let Some(member) = member else {
                self.frames[end - 1].proof = Proof::Lost;
                return false;
            };
            self.frames[depth].member = member;
            self.frames[depth].proof = Proof::Held;
            self.release_above(depth);
        }
        true
    }

    fn release_above(&mut self, depth: usize) {
        if let Some(above) = depth.checked_sub(MAX_HELD) {
            self.release_at(above);
        }
    }

    /// A child of this process has no descriptor, and needs none to be proven. Returns whether one
    /// was closed.
    fn release_at(&mut self, depth: usize) -> bool {
        let frame = &mut self.frames[depth];
        let held = frame.member.handle.take().is_some();
        if held {
            frame.proof = Proof::Released;
        }
        held
    }

    /// Closes the topmost descriptor above `depth`; false if there is none.
    pub fn release(&mut self, depth: usize) -> bool {
        let end = depth.min(self.frames.len());
        (0..end).any(|at| self.release_at(at))
    }
}
