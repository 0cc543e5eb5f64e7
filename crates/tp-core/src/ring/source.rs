//! What readers see of a ring, whichever way they read it.

use std::ops::Range;
use std::sync::Arc;

use super::reader::{Borrowed, RingReader};
use crate::drops::DropReason;
use crate::seqlock::Commit;

/// What a cursor follows.
pub trait Source {
    /// What a frame is read as.
    type Frame;
    /// The doorbell's word.
    fn bell(&self) -> u32;
    /// Slots of the ring.
    fn nslots(&self) -> u64;
    /// The commit word of the slot that `seq` would use.
    fn look(&self, seq: u64) -> Result<Commit, DropReason>;
    /// Shows `visit` the commit word of every slot, in order.
    fn each_commit(&self, visit: impl FnMut(Commit));
    /// Reads frame `seq`.
    fn take(&self, seq: u64) -> Result<Self::Frame, DropReason>;

    /// Shows `visit` the sequence number of every frame that is committed, in the slot where it belongs.
    fn each_frame(&self, mut visit: impl FnMut(u64)) {
        let (last_slot, mut slot) = (self.nslots() - 1, 0);
        self.each_commit(|commit| {
            if commit.is_committed() && commit.seq() & last_slot == slot {
                visit(commit.seq());
            }
            slot += 1;
        });
    }

    /// The highest sequence number that is committed.
    fn newest(&self) -> Option<u64> {
        self.newest_below(u64::MAX)
    }

    /// The highest one below `limit`.
    fn newest_below(&self, limit: u64) -> Option<u64> {
        let mut newest = None;
        self.each_frame(|seq| newest = newest.max((seq < limit).then_some(seq)));
        newest
    }

    /// The lowest sequence number of these that is committed.
    fn oldest_of(&self, range: Range<u64>) -> Option<u64> {
        let mut oldest = range.end;
        self.each_frame(|seq| {
            if seq >= range.start && seq < oldest {
                oldest = seq;
            }
        });
        (oldest < range.end).then_some(oldest)
    }
}

impl Source for Arc<RingReader> {
    type Frame = Borrowed;

    fn bell(&self) -> u32 {
        self.doorbell().seen()
    }

    fn nslots(&self) -> u64 {
        self.geometry().nslots.into()
    }

    fn look(&self, seq: u64) -> Result<Commit, DropReason> {
        Ok(self.peek(seq))
    }

    fn each_commit(&self, visit: impl FnMut(Commit)) {
        self.commits().for_each(visit);
    }

    fn take(&self, seq: u64) -> Result<Borrowed, DropReason> {
        self.read(seq)
    }
}
