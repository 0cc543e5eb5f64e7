//! Following a ring: which frame comes next, and what was missed.
//!
//! The ring is the truth (decision M16). A reader looks into the slot of its next sequence number; it
//! needs no message to find a frame. Sequence numbers may be skipped (aborted claims, bridges, rate
//! limiters), so when the slot stays empty and the doorbell has rung since, it looks further ahead.

use super::caution::Caution;
use super::source::Source;
use super::trail::{Jump, Trail};
use crate::drops::{DropCounters, DropReason};
use crate::seqlock::Commit;

/// What a look at the ring found.
#[derive(Debug)]
pub enum Polled<F> {
    /// The next frame.
    Frame(F),
    /// Nothing new.
    Idle,
}

/// How often `poll` goes on beyond the number of slots.
const SPARE_ROUNDS: u64 = 16;
/// How often `poll` looks for a frame further ahead, two passes over all slots each. Once is what an honest ring
/// needs unless its writer laps us again meanwhile; one whose words lie could ask for it at every slot.
const SEARCHES: u32 = 3;
/// So many frames may be overwritten while `poll` copies them. It would be the same for the next ones, and each takes time.
const LOST_COPIES: u32 = 2;

/// A place in a ring.
#[derive(Debug, Default)]
pub struct Cursor {
    next: u64,
    /// The doorbell before the last look that found nothing: wait while it is unchanged.
    bell: u32,
    /// Was the doorbell looked at before the slot was, the last time?
    is_bell_fresh: bool,
    /// The doorbell when nothing was found further ahead; looking again before it rings is pointless.
    searched: Option<u32>,
    gaps: u64,
    /// The frame of which it was told last that it was overwritten while it was in use.
    lost: Option<u64>,
    /// A frame that was taken last, and whether it was lost, as far as that was known.
    fate: Option<(u64, bool)>,
    caution: Caution,
    trail: Trail,
}

impl Cursor {
    /// Starts at frame `next`.
    pub fn at(next: u64) -> Self {
        Self { next, ..Self::default() }
    }

    /// The sequence number that comes next.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// The doorbell's word to wait on: while it is unchanged there is nothing to take.
    pub fn bell<S: Source>(&mut self, source: &S) -> u32 {
        if !self.is_bell_fresh {
            // The last look found a frame and did not ask the doorbell. Now in the right order: bell, then slot.
            let bell = source.bell();
            let is_there = source
                .look(self.next)
                .is_ok_and(|commit| commit.holds(self.next) || self.was_lapped(commit, source));
            // Any other word ends the wait at once.
            self.bell = if is_there { bell.wrapping_sub(1) } else { bell };
            self.is_bell_fresh = true;
        }
        self.bell
    }

    /// Sequence numbers that were never found [WIRE-10.4.1-2].
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Goes to frame `seq`, which may be far from being written; what lies between is not a gap.
    pub fn seek(&mut self, seq: u64) {
        self.go_to(seq);
        self.trail.seek(false);
    }

    /// Goes to frame `seq`, which was seen in the ring, or the one before it was.
    pub fn seek_seen(&mut self, seq: u64) {
        self.go_to(seq);
        self.trail.seek(true);
    }

    fn go_to(&mut self, seq: u64) {
        self.next = seq;
        self.searched = None;
        self.is_bell_fresh = false;
    }

    /// The newest frame that is believed.
    pub fn newest<S: Source>(&mut self, source: &S) -> Option<u64> {
        source.newest_below(self.trail.limit(self.next, source))
    }

    /// How many frames are lost to who reads no more: those that lie there unread, and those overwritten before.
    pub fn unread<S: Source>(&mut self, source: &S) -> u64 {
        let (oldest, newest) = (self.oldest_from(self.next, source), self.newest(source));
        let (Some(oldest), Some(newest)) = (oldest, newest) else { return 0 };
        // However far apart they are, there are no more than fit.
        (newest.saturating_sub(oldest) + 1).min(source.nslots()).saturating_add(oldest - self.next)
    }

    /// The oldest frame from `seq` on that is believed.
    fn oldest_from<S: Source>(&mut self, seq: u64, source: &S) -> Option<u64> {
        source.oldest_of(seq..self.trail.limit(self.next, source))
    }

    /// Look ahead at the next poll even if nobody rang: not every producer rings.
    pub fn search_again(&mut self) {
        self.searched = None;
    }

    /// Takes the next frame, if there is one. Counts what it had to drop on the way.
    ///
    /// Passes a whole ring of bad frames at once, but comes back even if a writer outruns it for ever
    /// [WIRE-15.21-3]. The doorbell has rung since then: waiting for it ends at once.
    #[inline]
    pub fn poll<S: Source>(&mut self, source: &S, drops: &DropCounters) -> Polled<S::Frame> {
        self.get_ahead_if_late(source);
        let (mut searches_left, mut copies_left) = (SEARCHES, LOST_COPIES);
        for _ in 0..source.nslots() + SPARE_ROUNDS {
            let mut commit = source.look(self.next);
            self.is_bell_fresh = false;
            if !commit.is_ok_and(|commit| commit.holds(self.next)) {
                // The doorbell, which the writer changes with every frame, is looked at only now, and then the slot
                // once more: a frame that is committed after this second look changes the word (decision M18).
                self.bell = source.bell();
                self.is_bell_fresh = true;
                commit = source.look(self.next);
            }
            let commit = match commit {
                Ok(commit) => commit,
                Err(reason) => {
                    drops.count(reason);
                    return Polled::Idle;
                }
            };
            if commit.holds(self.next) {
                let frame = source.take(self.next);
                self.trail.found(source.nslots());
                self.next += 1;
                // Dropped frames are not errors and not tried again [WIRE-15.21-4].
                let reason = match frame {
                    Ok(frame) => return Polled::Frame(frame),
                    Err(reason) => reason,
                };
                drops.count(reason);
                if reason == DropReason::ChangedWhileReading {
                    self.lost(self.next - 1);
                    copies_left -= 1;
                    if copies_left == 0 {
                        break;
                    }
                    self.get_ahead_if_late(source);
                }
                continue;
            }
            // A lap is seen without a bell, so it is worth a search also when nobody rang.
            let lapped = self.was_lapped(commit, source);
            if searches_left == 0 || !lapped && self.searched == Some(self.bell) {
                break;
            }
            searches_left -= 1;
            let found = if lapped { self.resume_after_lap(source) } else { self.skip_missing(source) };
            if !found {
                if self.trail.is_lost(self.next, source) {
                    drops.count(DropReason::Stale);
                    let (next, gaps) = self.trail.way_back(self.next, self.gaps);
                    self.go_to(next);
                    self.gaps = gaps;
                    continue;
                }
                self.searched = Some(self.bell);
                break;
            }
        }
        Polled::Idle
    }

    /// Would `poll` find a frame? Takes nothing and counts nothing; a frame that `poll` then drops counts as found.
    ///
    /// Looks into one slot, and further ahead only where `poll` would.
    pub fn has_next<S: Source>(&mut self, source: &S) -> bool {
        let bell = source.bell();
        if let Ok(commit) = source.look(self.next) {
            if commit.holds(self.next) {
                return true;
            }
            if self.was_lapped(commit, source) || self.searched != Some(bell) {
                if self.oldest_from(self.next, source).is_some() || self.trail.is_lost(self.next, source) {
                    return true;
                }
                self.searched = Some(bell);
            }
        }
        // Nothing there: like after a `poll`, only what rings from now on ends a wait.
        self.bell = bell;
        self.is_bell_fresh = true;
        false
    }

    /// Frame `seq` was overwritten while it was in use. If it was taken last, the writer is at our heels; of one that was
    /// kept for longer nothing follows.
    pub fn lost(&mut self, seq: u64) {
        self.lost = Some(seq);
    }

    /// Where to go on behind frame `last`, the one taken last, if the writer is at our heels: for who chooses frames by
    /// more than the ring.
    pub fn ahead_of<S: Source>(&mut self, last: u64, source: &S) -> Option<u64> {
        let was_lost = self.learn_fate(last, source);
        if was_lost || self.caution.is_watchful() && self.is_too_far_behind(last.saturating_add(1), source) {
            self.likely_to_stay(source)
        } else {
            None
        }
    }

    /// Was frame `last` lost in use? Remembers it for the next ones.
    fn learn_fate<S: Source>(&mut self, last: u64, source: &S) -> bool {
        let was_lost = self.lost == Some(last);
        if self.fate != Some((last, was_lost)) {
            self.fate = Some((last, was_lost));
            if was_lost {
                self.caution.frame_was_lost(source.nslots());
            } else {
                self.caution.frame_stayed();
            }
        }
        was_lost
    }

    /// Is frame `seq` older than those that are likely to stay? One look tells.
    fn is_too_far_behind<S: Source>(&self, seq: u64, source: &S) -> bool {
        let beyond = seq.saturating_add(self.caution.distance(source.nslots()) + 1);
        source.look(beyond).is_ok_and(|commit| commit.is_committed() && commit.seq() >= beyond)
    }

    /// If the writer overwrote what was being read, and will do so again, go where it takes longer to come.
    fn get_ahead_if_late<S: Source>(&mut self, source: &S) {
        let ahead = self.next.checked_sub(1).and_then(|last| self.ahead_of(last, source));
        let found = ahead.filter(|seq| *seq > self.next).and_then(|seq| self.oldest_from(seq, source));
        if let Some(found) = found {
            self.skip_to(found, source);
        }
    }

    /// Does the slot of the awaited frame hold a later one?
    #[inline]
    fn was_lapped<S: Source>(&mut self, commit: Commit, source: &S) -> bool {
        let later = commit.seq();
        later > self.next
            && (later - self.next) & (source.nslots() - 1) == 0
            && later < self.trail.limit(self.next, source)
    }

    /// A frame that will be there for a while.
    fn likely_to_stay<S: Source>(&mut self, source: &S) -> Option<u64> {
        let distance = self.caution.distance(source.nslots());
        self.newest(source).map(|newest| newest.saturating_sub(distance))
    }

    /// The writer has lapped us. False when nothing is committed further ahead.
    fn resume_after_lap<S: Source>(&mut self, source: &S) -> bool {
        let found =
            self.likely_to_stay(source).and_then(|seq| self.oldest_from(seq.max(self.next + 1), source));
        found.inspect(|seq| self.skip_to(*seq, source)).is_some()
    }

    /// Looks ahead for a committed frame; false when there is none.
    fn skip_missing<S: Source>(&mut self, source: &S) -> bool {
        if self.oldest_from(self.next, source).is_none() {
            return false;
        }
        // The first search may have passed a slot just before its frame was committed and then met a later
        // one. Commits come in order: a second search sees every frame below the one that the first found.
        if let Some(found) = self.oldest_from(self.next, source) {
            self.skip_to(found, source);
        }
        true
    }

    fn skip_to<S: Source>(&mut self, seq: u64, source: &S) {
        self.trail.skipped(Jump { from: self.next, to: seq, gaps: self.gaps }, source);
        self.gaps = self.gaps.saturating_add(seq - self.next);
        self.next = seq;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Four slots. Frames 5 and 6 are committed when the first search has looked at the slot of 5, but not yet at that of 6.
    struct Racing {
        slots: RefCell<[Commit; 4]>,
        raced: Cell<bool>,
    }

    impl Source for Racing {
        type Frame = u64;

        fn bell(&self) -> u32 {
            0
        }

        fn nslots(&self) -> u64 {
            4
        }

        fn look(&self, seq: u64) -> Result<Commit, DropReason> {
            Ok(self.slots.borrow()[seq as usize % 4])
        }

        fn each_commit(&self, mut visit: impl FnMut(Commit)) {
            for index in 0..4 {
                visit(self.look(index).unwrap());
                if index == 1 && !self.raced.replace(true) {
                    self.slots.borrow_mut()[1..3]
                        .copy_from_slice(&[Commit::committed(5), Commit::committed(6)]);
                }
            }
        }

        fn take(&self, seq: u64) -> Result<u64, DropReason> {
            Ok(seq)
        }
    }

    #[test]
    fn frames_committed_behind_the_back_of_a_search_are_not_skipped() {
        let given_up = Commit::in_progress(4);
        let slots = [given_up, Commit::committed(1), Commit::committed(2), Commit::committed(3)];
        let source = Racing { slots: slots.into(), raced: Cell::new(false) };
        let (mut cursor, drops) = (Cursor::at(4), DropCounters::default());
        let mut take = || match cursor.poll(&source, &drops) {
            Polled::Frame(seq) => Some(seq),
            Polled::Idle => None,
        };
        assert_eq!([take(), take(), take()], [Some(5), Some(6), None]);
        assert_eq!(cursor.gaps(), 1);
    }
    /// A writer that is always faster: whatever is looked at is committed, and gone when it is read.
    struct Outrunning;

    impl Source for Outrunning {
        type Frame = ();

        fn bell(&self) -> u32 {
            0
        }

        fn nslots(&self) -> u64 {
            4
        }

        fn look(&self, seq: u64) -> Result<Commit, DropReason> {
            Ok(Commit::committed(seq))
        }

        fn each_commit(&self, _: impl FnMut(Commit)) {}

        fn take(&self, _: u64) -> Result<(), DropReason> {
            Err(DropReason::ChangedWhileReading)
        }
    }

    // req: WIRE-15.21-3
    #[test]
    fn a_writer_that_is_always_faster_does_not_hold_a_reader() {
        let (mut cursor, drops) = (Cursor::default(), DropCounters::default());
        assert!(matches!(cursor.poll(&Outrunning, &drops), Polled::Idle));
        assert_eq!((cursor.next_seq(), drops.late()), (LOST_COPIES.into(), LOST_COPIES.into()));
    }

    /// Every slot claims to hold a frame that is far ahead; only counts how often it is looked through.
    struct Liar {
        searches: Cell<u32>,
        committed: bool,
    }

    impl Source for Liar {
        type Frame = u64;

        fn bell(&self) -> u32 {
            0
        }

        fn nslots(&self) -> u64 {
            1 << 20
        }

        fn look(&self, seq: u64) -> Result<Commit, DropReason> {
            Ok(Commit::in_progress(seq + (1 << 20)))
        }

        fn each_commit(&self, mut visit: impl FnMut(Commit)) {
            self.searches.set(self.searches.get() + 1);
            visit(if self.committed { Commit::committed(1 << 40) } else { Commit::in_progress(1 << 40) });
        }

        fn take(&self, seq: u64) -> Result<u64, DropReason> {
            Ok(seq)
        }
    }

    #[test]
    fn a_ring_that_lies_can_not_make_a_poll_long() {
        for committed in [false, true] {
            let liar = Liar { searches: Cell::new(0), committed };
            assert!(matches!(Cursor::default().poll(&liar, &DropCounters::default()), Polled::Idle));
            assert!(liar.searches.get() <= 2 * SEARCHES, "{} searches", liar.searches.get());
        }
    }
}
