//! What a reader waits for.

use super::any::AnyReader;
use super::source::Source;

/// The next frame of a reader, and what it last saw of the bell.
#[derive(Debug, Clone)]
pub struct Awaited {
    /// Where it will be.
    pub source: AnyReader,
    /// Its number.
    pub seq: u64,
    /// The bell, before it was looked for.
    pub seen: u32,
}

impl Awaited {
    /// Looking at a ring that is not mapped takes a system call each time, and its memory must not be touched at all.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.source, AnyReader::Mapped(_))
    }

    /// Is it committed?
    pub(super) fn is_there(&self) -> bool {
        self.source.look(self.seq).is_ok_and(|commit| commit.holds(self.seq))
    }

    /// Is it committed, or did the bell ring? The frame is there before its bell rings; a bell may ring for a later one.
    pub(super) fn may_be_there(&self) -> bool {
        self.is_there() || self.source.bell() != self.seen
    }
}
