//! Waking readers while their frame is still being filled.
//!
//! A sleeper that is woken runs some ten microseconds later. Where a frame takes about as long to fill, ringing at its
//! beginning hides that time: the reader wakes up, sees that its next frame is being written, and waits for it awake.
//! The writer decides by what happened to the frame before: did somebody sleep, and would it have been worth the while?

use std::time::{Duration, Instant};

use super::Source;
use crate::seqlock::Commit;

/// A frame that needs longer than this from its early ring to its commit is not rung for early.
const QUICK_NS: u64 = 50_000;
/// A ring that takes longer than this gave the core away to who was woken by it. On a core that both share an early ring
/// only makes the writer wait until the reader has seen that there is nothing yet.
const INTERRUPTED_NS: u64 = 12_000;
/// So many frames are then not rung for early. After that it is tried again: the two may be apart by now.
const RESPITE: u32 = 64;
/// So long a reader that was woken waits for the frame that is being written.
const PATIENCE: Duration = Duration::from_micros(100);
/// Of a frame that is copied, the rest that is copied while readers wake up.
const REST_BYTES: usize = 256 << 10;
/// Copies that are cut in two are cut between pages.
const PAGE_BYTES: usize = 4096;

/// What the writer knows of the frame before, and of the one that is being filled.
#[derive(Debug)]
pub(super) struct HeadsUp {
    /// Readers that wait awake take a core each, and one must be left for the writer.
    most_readers: usize,
    /// How many slept when the last frame came.
    sleepers: usize,
    was_quick: bool,
    /// When an early ring would have helped the frame that is being filled.
    at_ns: u64,
    woken_early: usize,
    /// Frames that are not rung for early, whatever else speaks for it.
    respite: u32,
}

impl Default for HeadsUp {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { most_readers: cores - 1, sleepers: 0, was_quick: false, at_ns: 0, woken_early: 0, respite: 0 }
    }
}

impl HeadsUp {
    /// Is the time worth to be known? Nobody slept, nobody has to be woken early.
    pub(super) fn matters(&self) -> bool {
        self.sleepers > 0
    }

    /// A frame will soon be complete: is it worth a ring?
    pub(super) fn is_worth_a_ring(&mut self, now_ns: u64) -> bool {
        (self.at_ns, self.woken_early) = (now_ns, 0);
        self.respite = self.respite.saturating_sub(1);
        self.was_quick && self.sleepers <= self.most_readers && self.respite == 0
    }

    /// The early ring woke so many, and was over at `now_ns`.
    pub(super) fn rang(&mut self, woken: usize, now_ns: u64) {
        self.woken_early = woken;
        if woken > 0 && now_ns.saturating_sub(self.at_ns) > INTERRUPTED_NS {
            self.respite = RESPITE;
        }
    }

    /// The frame is complete and was rung for.
    pub(super) fn finished(&mut self, now_ns: u64, woken: usize) {
        // Who was woken early and fell asleep again is one, not two.
        self.sleepers = woken.max(self.woken_early);
        self.was_quick = self.at_ns > 0 && now_ns.saturating_sub(self.at_ns) <= QUICK_NS;
        (self.at_ns, self.woken_early) = (0, 0);
    }
}

/// So many of `len` bytes are copied before the early ring.
pub(super) fn bytes_before_ring(len: usize) -> usize {
    len.saturating_sub(REST_BYTES) / PAGE_BYTES * PAGE_BYTES
}

/// Waits awake while the next frame of one of these readers is being written, for a short time at most.
///
/// For readers that were just woken; each with the frame it looks for.
pub fn wait_while_filled<S: Source>(readers: &[(&S, u64)]) {
    let deadline = Instant::now() + PATIENCE;
    while !readers.iter().any(|(source, next)| source.look(*next).is_ok_and(|commit| commit.holds(*next)))
        && readers.iter().any(|(source, next)| is_being_filled(*source, *next))
        && Instant::now() < deadline
    {
        // Not a mere spin: the writer may be waiting for this very core.
        std::thread::yield_now();
    }
}

/// An aborted claim looks the same; then the writer has gone on to the next one.
fn is_being_filled<S: Source>(source: &S, next: u64) -> bool {
    let is_begun = |seq: u64| source.look(seq).is_ok_and(|commit| commit == Commit::in_progress(seq));
    let after = next.wrapping_add(1);
    is_begun(next) && source.look(after).is_ok_and(|commit| commit.seq() != after)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::drops::DropReason;

    const QUICK: u64 = 20_000;
    const SLOW: u64 = QUICK_NS + 1;
    const RING: u64 = 3_000;

    /// One frame: was it rung for early? `sleepers` are woken by whichever ring comes first.
    fn frame(heads_up: &mut HeadsUp, now_ns: &mut u64, fill_ns: u64, sleepers: usize) -> bool {
        *now_ns += 1_000_000;
        let early = heads_up.matters() && heads_up.is_worth_a_ring(*now_ns);
        if early {
            heads_up.rang(sleepers, *now_ns + RING);
        }
        heads_up.finished(*now_ns + fill_ns, if early { 0 } else { sleepers });
        early
    }

    #[test]
    fn early_rings_follow_what_happened_to_the_frame_before() {
        let (mut heads_up, mut now_ns) = (HeadsUp { most_readers: 2, ..HeadsUp::default() }, 0);
        let mut rung = |fill_ns, sleepers| frame(&mut heads_up, &mut now_ns, fill_ns, sleepers);
        assert!(!rung(QUICK, 1), "nobody was known to sleep");
        assert!(!rung(QUICK, 1), "nor how long a frame takes");
        assert!(rung(QUICK, 1) && rung(QUICK, 2) && rung(QUICK, 0));
        assert!(!rung(QUICK, 1), "nobody slept");
        assert!(!rung(QUICK, 1) && rung(SLOW, 1));
        assert!(!rung(QUICK, 1), "the one before was slow");
        assert!(rung(QUICK, 3));
        assert!(!rung(QUICK, 1), "more readers than cores to wait on");
        assert!(rung(QUICK, 1));
    }

    #[test]
    fn who_falls_asleep_again_counts_once() {
        let mut heads_up = HeadsUp { most_readers: 1, sleepers: 1, was_quick: true, ..HeadsUp::default() };
        assert!(heads_up.is_worth_a_ring(1_000));
        heads_up.rang(1, 1_000 + RING);
        heads_up.finished(1_000 + QUICK, 1);
        assert!(heads_up.is_worth_a_ring(2_000));
    }

    #[test]
    fn a_reader_on_the_same_core_is_left_to_sleep_for_a_while() {
        let awaited = || HeadsUp { most_readers: 1, sleepers: 1, was_quick: true, ..HeadsUp::default() };
        let rung_after = |woken, ring_ns: u64| {
            let mut heads_up = awaited();
            assert!(heads_up.is_worth_a_ring(1_000));
            heads_up.rang(woken, 1_000 + ring_ns);
            heads_up.finished(1_000 + QUICK, 1);
            let mut now_ns = 1_000_000;
            (1..).find(|_| frame(&mut heads_up, &mut now_ns, QUICK, 1)).unwrap()
        };
        assert_eq!(rung_after(1, RING), 1, "it woke on another core");
        assert_eq!(rung_after(1, INTERRUPTED_NS + 1), RESPITE, "it ran in the writer's place");
        assert_eq!(rung_after(0, INTERRUPTED_NS + 1), 1, "nobody woke: the writer was held up by others");
    }

    #[test]
    fn the_rest_of_a_copy_begins_at_a_page() {
        for len in [0, 1, REST_BYTES, REST_BYTES + 1, (1 << 20) + 77] {
            let first = bytes_before_ring(len);
            assert!(first % PAGE_BYTES == 0 && len - first <= REST_BYTES + PAGE_BYTES, "{len}");
        }
        assert_eq!(bytes_before_ring(1 << 20), (1 << 20) - REST_BYTES);
    }

    /// Two slots. After some looks the first one changes.
    struct Slots {
        first: (Commit, Commit),
        second: Commit,
        looks_left: Cell<u32>,
    }

    impl Source for Slots {
        type Frame = ();

        fn bell(&self) -> u32 {
            0
        }

        fn nslots(&self) -> u64 {
            2
        }

        fn look(&self, seq: u64) -> Result<Commit, DropReason> {
            if seq % 2 == 1 {
                return Ok(self.second);
            }
            let left = self.looks_left.get();
            self.looks_left.set(left.saturating_sub(1));
            Ok(if left == 0 { self.first.1 } else { self.first.0 })
        }

        fn each_commit(&self, _: impl FnMut(Commit)) {}

        fn take(&self, _: u64) -> Result<(), DropReason> {
            Ok(())
        }
    }

    /// Waits for frame 4; for how long, and did the first slot change meanwhile?
    fn waited(first: (Commit, Commit), second: Commit) -> (Duration, bool) {
        let slots = Slots { first, second, looks_left: Cell::new(9) };
        let start = Instant::now();
        wait_while_filled(&[(&slots, 4)]);
        (start.elapsed(), slots.looks_left.get() == 0)
    }

    #[test]
    fn a_frame_that_is_being_filled_is_waited_for_but_not_for_long() {
        let (old, begun, done) = (Commit::committed(3), Commit::in_progress(4), Commit::committed(4));
        assert!(waited((begun, begun), old).0 >= PATIENCE, "it never ends");
        // Another program may take the core in any of these, but not in all.
        let at_once = |first, second, has_changed| {
            (0..1000).any(|_| {
                let (time, changed) = waited(first, second);
                time < PATIENCE && changed == has_changed
            })
        };
        assert!(at_once((begun, done), old, true), "it was completed");
        assert!(at_once((done, done), old, false), "it is there");
        assert!(at_once((Commit::committed(2), begun), old, false), "nothing was begun");
        assert!(at_once((begun, begun), Commit::in_progress(5), false), "given up: the writer has gone on");
    }
}
