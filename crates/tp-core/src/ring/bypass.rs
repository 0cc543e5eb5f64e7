//! Whether frames of a ring that would fit into the cache are better written past it.
//!
//! Where the readers run on cores that share a cache with the writer's, they find a frame in it. Where they don't, each
//! line has to be taken back from their cache before it is written again: on an AMD EPYC that took ten times as long as
//! writing to memory, from where the readers fetch a frame as fast as from a cache far away. No file tells which cores
//! somebody else runs on, and the kernel (or the host of a virtual machine) moves them about, so a writer tries both
//! ways now and then, on parts of its frames.

use crate::copy::Locality;

/// Frames that are measured at the end of a trial. All must agree: any one may be interrupted.
const MEASURED: u32 = 2;
/// Of so many rounds through the ring one is a trial. The wrong way may take ten times as long.
const ROUNDS_A_TRIAL: u32 = 16;
/// Small rings aren't tried more often than this one.
const FEWEST_SLOTS: u32 = 4;
/// Parts of a frame that are copied either way: large enough to be measured.
const MAX_PART_BYTES: usize = 64 << 10;
/// And such a part of the frame at most.
const PARTS: usize = 2;
/// The way past the cache must be more than so many times as fast: readers near the writer pay for it.
const WORTH_IT: u64 = 2;

/// What a frame of a trial is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// So many bytes go through the cache, and as many behind them past it.
    pub(super) part_bytes: usize,
    /// How long does either take? Before that every slot must have been written and read in both ways: a line costs
    /// what was done to it the last time.
    pub(super) is_measured: bool,
}

/// What a writer knows of the two ways.
#[derive(Debug)]
pub(super) struct Bypass {
    nslots: u32,
    is_faster: bool,
    /// Frames since the last trial began.
    frames: u32,
    /// Measured frames of this trial that say otherwise.
    doubts: u32,
}

impl Bypass {
    /// For a ring of so many slots.
    pub(super) fn new(nslots: u32) -> Self {
        Self { nslots: nslots.max(FEWEST_SLOTS), is_faster: false, frames: 0, doubts: 0 }
    }

    /// How to copy a frame, or what of it is not for a trial.
    pub(super) fn locality(&self) -> Locality {
        if self.is_faster { Locality::Streaming } else { Locality::Cached }
    }

    /// Takes a way, as after a trial that said so.
    #[cfg(test)]
    pub(super) fn decide(&mut self, is_faster: bool) {
        self.is_faster = is_faster;
    }

    /// For each frame of `len` bytes: is it part of a trial?
    pub(super) fn trial(&mut self, len: usize) -> Option<Trial> {
        let frame = self.frames;
        self.frames = (frame + 1) % self.nslots.saturating_mul(ROUNDS_A_TRIAL);
        let part_bytes = (len / PARTS).min(MAX_PART_BYTES);
        let is_trial = frame < self.nslots + MEASURED;
        is_trial.then_some(Trial { part_bytes, is_measured: frame >= self.nslots })
    }

    /// A measured frame took so long through the cache, and so long past it.
    pub(super) fn measured(&mut self, cached_ns: u64, streamed_ns: u64) {
        let says_otherwise = (cached_ns > WORTH_IT * streamed_ns) != self.is_faster;
        self.doubts += u32::from(says_otherwise);
        if self.frames == self.nslots + MEASURED {
            self.is_faster ^= self.doubts == MEASURED;
            self.doubts = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: (u64, u64) = (1_500, 2_300);
    const FAR: (u64, u64) = (26_000, 2_500);
    const SLOTS: u32 = 8;
    const CYCLE: usize = (SLOTS * ROUNDS_A_TRIAL) as usize;

    /// How each of the next frames is copied; `times` says what its parts take, by its number.
    fn ways(bypass: &mut Bypass, frames: usize, times: impl Fn(usize) -> (u64, u64)) -> Vec<Locality> {
        let mut copied = Vec::new();
        for number in 0..frames {
            if bypass.trial(1 << 20).is_some_and(|trial| trial.is_measured) {
                let (cached_ns, streamed_ns) = times(number);
                bypass.measured(cached_ns, streamed_ns);
            }
            copied.push(bypass.locality());
        }
        copied
    }

    #[test]
    fn a_trial_changes_the_way_and_the_next_one_changes_it_back() {
        let mut bypass = Bypass::new(SLOTS);
        let decided = (SLOTS + MEASURED) as usize - 1;
        let near = ways(&mut bypass, CYCLE, |_| NEAR);
        let far = ways(&mut bypass, CYCLE, |_| FAR);
        let again = ways(&mut bypass, CYCLE, |_| NEAR);
        assert_eq!(near, vec![Locality::Cached; CYCLE]);
        assert_eq!(far[..decided], vec![Locality::Cached; decided]);
        assert_eq!(far[decided..], vec![Locality::Streaming; CYCLE - decided]);
        assert_eq!(again[..decided], vec![Locality::Streaming; decided]);
        assert_eq!(again[decided..], vec![Locality::Cached; CYCLE - decided]);
    }

    #[test]
    fn one_measurement_alone_changes_nothing() {
        let mut bypass = Bypass::new(SLOTS);
        let first = SLOTS as usize;
        for interrupted in [first, first + 1] {
            let times = |number| if number == interrupted { FAR } else { NEAR };
            assert_eq!(ways(&mut bypass, CYCLE, times), vec![Locality::Cached; CYCLE]);
        }
    }

    #[test]
    fn a_way_that_is_hardly_faster_is_not_taken() {
        let mut bypass = Bypass::new(SLOTS);
        assert_eq!(ways(&mut bypass, CYCLE, |_| (4_000, 2_000)), vec![Locality::Cached; CYCLE]);
        assert_eq!(
            ways(&mut bypass, CYCLE, |_| (0, 0)),
            vec![Locality::Cached; CYCLE],
            "a clock that stands still"
        );
    }

    #[test]
    fn frames_are_measured_after_a_whole_round_of_the_ring() {
        for nslots in [1, 4, 64] {
            let mut bypass = Bypass::new(nslots);
            let trials: Vec<_> = (0..16 * 64).map(|_| bypass.trial(1 << 20)).collect();
            let before = trials.iter().position(|t| t.as_ref().is_some_and(|t| t.is_measured)).unwrap();
            assert!(before >= nslots as usize && trials[..before].iter().all(Option::is_some));
            let frames = trials.iter().flatten().count();
            assert!(frames * 8 <= trials.len(), "{frames} of {}", trials.len());
        }
        assert!(Bypass::new(u32::MAX / 2).trial(1 << 20).is_some(), "no overflow");
    }

    #[test]
    fn both_parts_of_a_trial_lie_within_the_frame() {
        for len in [0, 1, 64 << 10, (1 << 20) + 77, 1 << 30] {
            let trial = Bypass::new(SLOTS).trial(len).unwrap();
            assert!(2 * trial.part_bytes <= len && trial.part_bytes <= MAX_PART_BYTES, "{len}");
        }
    }
}
