//! How far behind the newest frame a reader dares to be.
//!
//! A frame that is overwritten while it is used was read in vain, and so will the next ones be that are as old: the
//! writer is at the reader's heels. Skipping frames before they are read costs nothing; reading them does.

/// So many frames in a row must stay whole before the distance is doubled again. Trying costs a frame read in vain.
const CALM_FRAMES: u32 = 32;
/// One loss may be an accident, such as a pause of the machine. From here on a reader watches its distance all the time.
const WATCHFUL_LEVEL: u32 = 2;

/// What a reader has learned from frames that it lost in use.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Caution {
    /// How often the distance was halved.
    level: u32,
    /// Frames that stayed whole since then.
    calm_frames: u32,
}

impl Caution {
    /// A frame was overwritten while it was in use.
    pub(super) fn frame_was_lost(&mut self, nslots: u64) {
        self.calm_frames = 0;
        if self.level == 0 || self.distance(nslots) > 0 {
            self.level += 1;
        }
    }

    /// A frame stayed whole as long as it was in use.
    pub(super) fn frame_stayed(&mut self) {
        self.calm_frames += 1;
        if self.calm_frames >= CALM_FRAMES {
            *self = Self { level: self.level.saturating_sub(1), calm_frames: 0 };
        }
    }

    /// So many frames behind the newest one a frame stays whole, probably: the older half of the ring is left to the
    /// writer at first, and more of it where that was too little before.
    pub(super) fn distance(&self, nslots: u64) -> u64 {
        (nslots / 2) >> self.level.saturating_sub(1)
    }

    /// Are frames lost again and again?
    pub(super) fn is_watchful(&self) -> bool {
        self.level >= WATCHFUL_LEVEL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_but_the_first_halves_the_distance_until_only_the_newest_frame_is_left() {
        let mut caution = Caution::default();
        let distances = [(); 6].map(|()| {
            caution.frame_was_lost(8);
            (caution.distance(8), caution.is_watchful())
        });
        assert_eq!(distances, [(4, false), (2, true), (1, true), (0, true), (0, true), (0, true)]);
    }

    #[test]
    fn frames_that_stay_double_it_again_even_after_many_losses() {
        let mut caution = Caution::default();
        (0..1000).for_each(|_| caution.frame_was_lost(8));
        let mut after_calm = || {
            (0..CALM_FRAMES - 1).for_each(|_| caution.frame_stayed());
            let before = caution.distance(8);
            caution.frame_stayed();
            (before, caution.distance(8))
        };
        assert_eq!(
            [after_calm(), after_calm(), after_calm(), after_calm()],
            [(0, 1), (1, 2), (2, 4), (4, 4)]
        );
        assert!(!caution.is_watchful());
        caution.frame_was_lost(8);
        (0..CALM_FRAMES - 1).for_each(|_| caution.frame_stayed());
        caution.frame_was_lost(8);
        assert_eq!(caution.distance(8), 2, "a loss begins the count anew");
    }

    #[test]
    fn the_largest_ring_and_the_smallest() {
        let mut caution = Caution::default();
        (0..u64::BITS).for_each(|_| caution.frame_was_lost(1 << 32));
        assert_eq!(caution.distance(1 << 32), 0);
        assert_eq!(Caution::default().distance(1), 0);
    }
}
