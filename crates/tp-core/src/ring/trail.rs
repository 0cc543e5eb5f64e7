//! The way back from numbers that were lies.
//!
//! Whoever can write to a ring can claim any frame in any slot, and a jump in numbers may well be true: writers skip some.
//! Only what happens afterwards tells. A writer's numbers grow, so a reader that has seen one of them never sees a frame
//! appear that is more than a ring older; if it does, what it has jumped to was a lie, and it goes back to where it was.

use super::source::Source;

/// So many jumps are remembered.
const MOST_JUMPS: usize = 8;

/// A step over more than a whole ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    /// The frame that was awaited.
    pub from: u64,
    /// The frame that was found instead.
    pub to: u64,
    /// Numbers that had been missed before.
    pub gaps: u64,
}

/// Where a cursor came from, as far as that may have to be taken back.
#[derive(Debug, Default)]
pub(super) struct Trail {
    jumps: Vec<Jump>,
    /// Frames that were found since the last jump.
    found: u64,
    /// Was a frame seen that is as new as the awaited one? Who waits for a later frame sees older ones come.
    is_near: bool,
    /// What lay far behind the awaited frame.
    behind: Option<Behind>,
    /// As long as this stands in its slot, nothing from here on is believed.
    lie: Option<u64>,
}

/// Frames that are more than a ring older than the awaited one.
#[derive(Debug, Clone, Copy)]
struct Behind {
    awaited: u64,
    /// Of their numbers; as long as none comes it only shrinks.
    sum: u128,
    /// Where their writer will go on.
    next: u64,
}

impl Behind {
    fn of<S: Source>(awaited: u64, source: &S) -> Self {
        let mut behind = Self { awaited, sum: 0, next: 0 };
        source.each_frame(|seq| {
            if seq.saturating_add(source.nslots()) < awaited {
                behind.sum += u128::from(seq);
                behind.next = behind.next.max(seq + 1);
            }
        });
        behind
    }
}

impl Trail {
    /// Goes elsewhere; `is_near`: to a frame of the ring, or to the one behind it.
    pub fn seek(&mut self, is_near: bool) {
        self.jumps.clear();
        (self.found, self.behind, self.is_near) = (0, None, is_near);
    }

    /// A frame was found where it was awaited. A ring full of them, and the writer is at work there.
    #[inline]
    pub fn found(&mut self, nslots: u64) {
        self.is_near = true;
        self.found += 1;
        if self.found > nslots && !self.jumps.is_empty() {
            self.jumps.clear();
        }
    }

    /// Remembers a jump, if it is one.
    pub fn skipped<S: Source>(&mut self, jump: Jump, source: &S) {
        if jump.to - jump.from <= source.nslots() {
            return;
        }
        self.behind = Some(Behind::of(jump.to.saturating_add(1), source));
        if self.jumps.len() == MOST_JUMPS {
            self.jumps.remove(0);
        }
        self.jumps.push(jump);
        self.found = 0;
    }

    /// The first number that is not believed.
    pub fn limit<S: Source>(&mut self, awaited: u64, source: &S) -> u64 {
        let stands = |lie: &u64| *lie >= awaited && source.look(*lie).is_ok_and(|commit| commit.holds(*lie));
        self.lie = self.lie.filter(stands);
        self.lie.unwrap_or(u64::MAX)
    }

    /// Does the writer work far behind us, where the frame `awaited` isn't there?
    pub fn is_lost<S: Source>(&mut self, awaited: u64, source: &S) -> bool {
        if !self.is_near || !self.is_doubtful(awaited, source) {
            self.behind = None;
            return false;
        }
        let now = Behind::of(awaited, source);
        // Where nothing was that far behind, slots may just have been set back; it takes somebody to go on from there.
        let is_comparable = |before: &Behind| before.awaited == awaited && before.next > 0;
        let before = self.behind.filter(is_comparable).unwrap_or(now);
        self.behind = Some(Behind { sum: before.sum.min(now.sum), ..before });
        now.sum > before.sum
    }

    /// One look tells that nothing is wrong, nearly always: a ring full of frames was found, and the last one is still there,
    /// or a later one in its place.
    fn is_doubtful<S: Source>(&self, awaited: u64, source: &S) -> bool {
        let has_gone_back =
            |last: u64| source.look(last).is_ok_and(|commit| commit.is_committed() && commit.seq() < last);
        self.found <= source.nslots() || awaited.checked_sub(1).is_some_and(has_gone_back)
    }

    /// Where to go on after `is_lost` said so, and how many numbers were missed up to there.
    pub fn way_back(&mut self, awaited: u64, gaps: u64) -> (u64, u64) {
        self.found = 0;
        let jump = self.jumps.pop();
        let behind = self.behind.take();
        self.lie = Some(jump.map_or(awaited.saturating_sub(1), |jump| jump.to));
        match jump {
            Some(jump) => (jump.from, jump.gaps),
            // After a seek there is no way back: on with what has come since.
            None => (behind.map_or(0, |behind| behind.next), gaps),
        }
    }
}
