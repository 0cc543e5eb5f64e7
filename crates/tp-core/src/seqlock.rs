//! The commit word of a slot: a seqlock that readers never write.
//!
//! The word holds `seq << 1`, plus one once the frame is committed [WIRE-8.3-1]. All memory orderings of
//! the protocol live in this file (decision M1). Release stores and acquire loads alone are not enough:
//! a release store doesn't keep *later* payload writes behind it, and an acquire load doesn't keep
//! *earlier* payload reads before it. The two fences do, and `tests/loom.rs` fails without either.

use crate::sync::{AtomicU64, Ordering, fence};

/// The largest sequence number that fits beside the commit bit.
pub const MAX_SEQ: u64 = u64::MAX >> 1;

/// A value of the commit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit(pub u64);

impl Commit {
    /// The word while frame `seq` is being written.
    #[inline]
    pub const fn in_progress(seq: u64) -> Self {
        Self(seq << 1)
    }

    /// The word once frame `seq` is complete.
    #[inline]
    pub const fn committed(seq: u64) -> Self {
        Self(seq << 1 | 1)
    }

    /// Sequence number in the word.
    #[inline]
    pub const fn seq(self) -> u64 {
        self.0 >> 1
    }

    /// Is the frame complete?
    #[inline]
    pub const fn is_committed(self) -> bool {
        self.0 & 1 == 1
    }

    /// Is this the word of the complete frame `seq`? Never beyond [`MAX_SEQ`], whatever is asked for.
    #[inline]
    pub const fn holds(self, seq: u64) -> bool {
        self.is_committed() && self.seq() == seq
    }
}

/// Writer, first step: marks the slot as being written, before any other byte of it changes [WIRE-8.3-5].
#[inline]
pub fn begin_write(word: &AtomicU64, seq: u64) {
    word.store(Commit::in_progress(seq).0, Ordering::Release);
    fence(Ordering::Release);
}

/// Writer, last step: publishes what was written [WIRE-8.3-8].
#[inline]
pub fn commit_write(word: &AtomicU64, seq: u64) {
    word.store(Commit::committed(seq).0, Ordering::Release);
}

/// Reader, first step: the word before anything of the slot is read [WIRE-8.3-9].
#[inline]
pub fn begin_read(word: &AtomicU64) -> Commit {
    Commit(word.load(Ordering::Acquire))
}

/// Reader, last step: the word after everything was read [WIRE-8.3-11].
#[inline]
pub fn end_read(word: &AtomicU64) -> Commit {
    fence(Ordering::Acquire);
    Commit(word.load(Ordering::Acquire))
}

/// Reader, last step: is the word still `seen`, after everything was read?
#[inline]
pub fn still(word: &AtomicU64, seen: Commit) -> bool {
    end_read(word) == seen
}
