//! The processes between us and the point that a walk has reached.
//!
//! A walk needs each of them again when it comes back to its other children, since a child is proven
//! by its parent. Only the lowest ones keep their descriptors, so a tree may be deeper than
//! `RLIMIT_NOFILE`. The others are proven once more on the way back, from the top down. That is sound
//! even if a number belongs to another process by then: a process whose parent is of the tree is of
//! the tree.
#![forbid(unsafe_code)]

use super::Member;

/// More levels than `pid_max` usually allows. If there is no memory for so many, a few pages of them.
const DEPTHS: [usize; 2] = [32 * 1024, 1024];
/// How many of the lowest keep their descriptors: more than trees are deep, and few beside
/// what a process may have open.
const HELD: usize = 32;

/// What is known about a process of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Its number is its own.
    Held,
    /// It was proven, and its descriptor was closed since.
    Released,
    /// It could not be proven again: its children are ours by now.
    Lost,
}

/// A visited process whose children are visited now.
struct Frame<H> {
    member: Member<H>,
    proof: Proof,
    /// Where the children of the one above it begin among the pending.
    outer: u32,
}

/// Proves that a number is that of a process at this depth.
type Prove<'a, H> = dyn FnMut(&mut Path<H>, i32, usize) -> Option<Member<H>> + 'a;

/// The visited processes whose children are visited now, the topmost first.
pub struct Path<H> {
    frames: Vec<Frame<H>>,
}

impl<H> Path<H> {
    /// Without memory there is no room for any: then a walk reaches our own children, and by and by all.
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

    /// False if there is no room.
    pub fn push(&mut self, member: Member<H>, outer: usize) -> bool {
        if self.frames.len() == self.frames.capacity() {
            return false;
        }
        self.frames.push(Frame {
            member,
            proof: Proof::Held,
            outer: outer as u32,
        });
        self.release_above(self.frames.len() - 1);
        true
    }

    /// Where the children of the one above the last begin.
    pub fn pop(&mut self) -> Option<usize> {
        self.frames.pop().map(|frame| frame.outer as usize)
    }

    /// The process at `depth`, if it is proven now.
    pub fn proven(&self, depth: usize) -> Option<&Member<H>> {
        let frame = self.frames.get(depth)?;
        (frame.proof == Proof::Held).then_some(&frame.member)
    }

    /// Proves the last one again if need be, by `prove` (a number, and the depth at which it is); whether it is proven now.
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
        if let Some(above) = depth.checked_sub(HELD) {
            self.release_at(above);
        }
    }

    /// A child of ours has no descriptor, and needs none to be proven.
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
