//! Being awake when the next frame comes, without being awake all the time.
//!
//! Waking a sleeping thread takes longer than everything else that happens to a frame. Streams with a steady rate tell
//! when the next frame is due; a reader that gets up a little before and looks until then finds it at once, and its
//! producer has nobody to wake. What that costs is bounded: a small share of the time between two frames, and nothing
//! at all where frames come irregularly, the machine is busy, or nothing comes.

use std::time::{Duration, Instant};

use crate::clock::monotonic_ns;
use crate::doorbell::Doorbell;

/// Rings before the rate is believed.
const LEARNT_AFTER: u32 = 8;
/// Rates outside of this are not worth it: readers of faster streams don't get to sleep, slower ones drift.
const PERIODS_NS: std::ops::Range<f64> = 100e3..1e9;
/// A stream that was silent for so many frames may go on at another rate.
const MOST_UNHEARD: f64 = 8.0;
/// How much of the new goes into a mean.
const WEIGHT: f64 = 0.125;
/// Deviations that a window allows for, on either side.
const DEVIATIONS: f64 = 2.0;
/// What a window has besides, for what the means don't know.
const SPARE_NS: f64 = 5e3;
/// Looks between two questions for the time, which cost more than a look.
const LOOKS: u32 = 32;
/// So many looks take longer than this only if somebody else had the core meanwhile.
const PREEMPTED_NS: u64 = 50_000;
/// Deviations beyond which a sample counts as one of so many: a single bad moment says little about the next.
const OUTLIER_DEVIATIONS: f64 = 4.0;
/// Below this nothing is an outlier.
const SMALL_NS: f64 = 20e3;
/// Frames that are slept for after looking for one in vain; doubles with each time in a row.
const REST_FRAMES: u32 = 4;
const LONGEST_REST_FRAMES: u32 = 1024;

/// A mean that forgets, and how far values lie from it.
#[derive(Debug, Clone, Copy)]
struct Mean {
    value: f64,
    deviation: f64,
}

impl Mean {
    fn learn(&mut self, sample: f64) {
        let most = (OUTLIER_DEVIATIONS * self.deviation).max(SMALL_NS);
        let error = (sample - self.value).clamp(-most, most);
        self.value += WEIGHT * error;
        self.deviation += WEIGHT * (error.abs() - self.deviation);
    }
}

/// How to wait for the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Asleep, until the bell rings.
    Asleep,
    /// Asleep for a while, then looking without pause.
    Expecting {
        /// How long to sleep.
        sleep: Duration,
        /// When to stop looking, CLOCK_MONOTONIC.
        look_until_ns: u64,
    },
}

/// How looking for a frame ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// It came.
    Found,
    /// It did not come.
    InVain,
    /// Others needed the core.
    Preempted,
}

/// What one reader knows of its stream's rhythm, and of its own sleep.
#[derive(Debug)]
pub struct Anticipation {
    /// The largest part of the time that may go into looking; 0 for none.
    share: f64,
    last_ring_ns: u64,
    rings: u32,
    period: Mean,
    /// How much later than asked for sleeps end.
    late: Mean,
    /// Frames to sleep for before looking is tried again.
    rest: u32,
    next_rest: u32,
}

impl Anticipation {
    /// For a reader that may look for `share` of the time, 0 to 1.
    pub fn new(share: f64) -> Self {
        Self {
            share,
            last_ring_ns: 0,
            rings: 0,
            period: Mean { value: 0.0, deviation: 0.0 },
            late: Mean { value: 60e3, deviation: 10e3 },
            rest: 0,
            next_rest: REST_FRAMES,
        }
    }

    /// Waits until the bell's word differs from `seen`, for at most `timeout`; true when it may have changed.
    pub fn wait(&mut self, bell: Doorbell<'_>, seen: u32, timeout: Duration) -> bool {
        let rang = match self.plan(monotonic_ns()) {
            Waiting::Expecting { sleep, look_until_ns } if sleep < timeout => {
                self.wait_expecting(bell, seen, sleep, look_until_ns)
                    || bell.wait(seen, timeout.saturating_sub(sleep))
            }
            _ => bell.wait(seen, timeout),
        };
        if bell.seen() != seen {
            self.on_ring(bell.stamp_ns());
        }
        rang
    }

    fn wait_expecting(&mut self, bell: Doorbell<'_>, seen: u32, sleep: Duration, look_until_ns: u64) -> bool {
        if !sleep.is_zero() {
            let start = Instant::now();
            if bell.wait(seen, sleep) {
                return true; // earlier than expected
            }
            self.on_slept(sleep, start.elapsed());
        }
        let how = look(bell, seen, look_until_ns);
        self.on_looked(how);
        how == Looked::Found
    }

    /// The bell rang at `stamp_ns`, as the producer's clock tells.
    pub fn on_ring(&mut self, stamp_ns: u64) {
        let mut interval = stamp_ns.saturating_sub(self.last_ring_ns) as f64;
        self.last_ring_ns = stamp_ns;
        // Frames that were there already when they were looked for rang unheard.
        let periods = if self.rings > 1 { (interval / self.period.value).round().max(1.0) } else { 1.0 };
        interval /= periods;
        if self.rings == 0 || periods > MOST_UNHEARD || !PERIODS_NS.contains(&interval) {
            self.rings = 1;
            self.period = Mean { value: 0.0, deviation: 0.0 };
            return;
        }
        if self.rings == 1 {
            self.period = Mean { value: interval, deviation: interval / 4.0 };
        } else {
            self.period.learn(interval);
        }
        self.rings = self.rings.saturating_add(1);
        self.rest = self.rest.saturating_sub(1);
    }

    /// A sleep that was to take `asked` took `slept`.
    pub fn on_slept(&mut self, asked: Duration, slept: Duration) {
        self.late.learn(slept.saturating_sub(asked).as_nanos() as f64);
    }

    /// Looking ended so.
    pub fn on_looked(&mut self, how: Looked) {
        if how == Looked::Found {
            self.next_rest = REST_FRAMES;
        } else {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(LONGEST_REST_FRAMES);
        }
    }

    /// How to wait from `now_ns` on.
    pub fn plan(&self, now_ns: u64) -> Waiting {
        if self.share <= 0.0 || self.rings < LEARNT_AFTER || self.rest > 0 {
            return Waiting::Asleep;
        }
        let unsure = DEVIATIONS * self.period.deviation + SPARE_NS;
        let before = unsure + DEVIATIONS * self.late.deviation;
        if before + unsure > self.share * self.period.value {
            return Waiting::Asleep;
        }
        let (now, due) = (now_ns as f64, self.last_ring_ns as f64 + self.period.value);
        let (look_from, look_until) = (due - before, due + unsure);
        let sleep = look_from - self.late.value - now;
        // A sleep that is too short to end in time is worth looking instead, if that isn't long either.
        if sleep < 0.0 && !(0.0..=self.share * self.period.value).contains(&(look_until - now)) {
            return Waiting::Asleep;
        }
        Waiting::Expecting {
            sleep: Duration::from_nanos(sleep.max(0.0) as u64),
            look_until_ns: look_until as u64,
        }
    }
}

/// Looks at the bell without pause until it rings or the time has come.
fn look(bell: Doorbell<'_>, seen: u32, until_ns: u64) -> Looked {
    let mut last_ns = monotonic_ns();
    loop {
        for _ in 0..LOOKS {
            if bell.seen() != seen {
                return Looked::Found;
            }
            std::hint::spin_loop();
        }
        let now_ns = monotonic_ns();
        if now_ns >= until_ns {
            return Looked::InVain;
        }
        if now_ns - last_ns > PREEMPTED_NS {
            return Looked::Preempted;
        }
        last_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    fn steady(share: f64, rings: u64) -> (Anticipation, u64) {
        let mut anticipation = Anticipation::new(share);
        for ring in 1..=rings {
            anticipation.on_ring(ring * PERIOD_NS);
        }
        (anticipation, rings * PERIOD_NS)
    }

    fn expecting(waiting: Waiting) -> Option<(u64, u64)> {
        match waiting {
            Waiting::Asleep => None,
            Waiting::Expecting { sleep, look_until_ns } => Some((sleep.as_nanos() as u64, look_until_ns)),
        }
    }

    #[test]
    fn a_steady_stream_is_expected_around_its_next_frame() {
        let (anticipation, last_ns) = steady(0.1, 100);
        let now_ns = last_ns + 100_000;
        let (sleep_ns, until_ns) = expecting(anticipation.plan(now_ns)).unwrap();
        let due_ns = last_ns + PERIOD_NS;
        assert!((now_ns + sleep_ns..=until_ns).contains(&due_ns));
        assert!(
            until_ns - (now_ns + sleep_ns) < 2 * PERIOD_NS / 10,
            "looks for a small part of the time only"
        );
    }

    #[test]
    fn looking_takes_no_more_than_its_share() {
        let (mut anticipation, last_ns) = steady(0.1, 100);
        for _ in 0..100 {
            anticipation.on_slept(Duration::ZERO, Duration::ZERO);
        }
        let (sleep_ns, until_ns) = expecting(anticipation.plan(last_ns)).unwrap();
        assert!(until_ns - (last_ns + sleep_ns) <= PERIOD_NS / 10);
    }

    #[test]
    fn who_may_not_look_sleeps() {
        let (anticipation, last_ns) = steady(0.0, 100);
        assert_eq!(anticipation.plan(last_ns), Waiting::Asleep);
    }

    #[test]
    fn a_few_frames_are_no_rhythm() {
        let (anticipation, last_ns) = steady(0.1, u64::from(LEARNT_AFTER) - 1);
        assert_eq!(anticipation.plan(last_ns), Waiting::Asleep);
    }

    #[test]
    fn frames_that_come_when_they_like_are_slept_for() {
        let mut anticipation = Anticipation::new(0.1);
        let mut now_ns = 0;
        for ring in 0..200 {
            now_ns += if ring % 3 == 0 { PERIOD_NS / 3 } else { 2 * PERIOD_NS };
            anticipation.on_ring(now_ns);
            assert_eq!(anticipation.plan(now_ns), Waiting::Asleep);
        }
    }

    #[test]
    fn a_stream_that_fell_silent_is_slept_for_and_learnt_anew() {
        let (mut anticipation, last_ns) = steady(0.1, 100);
        assert_eq!(anticipation.plan(last_ns + 2 * PERIOD_NS), Waiting::Asleep);
        anticipation.on_ring(last_ns + 10_000_000_000);
        assert_eq!(anticipation.plan(last_ns + 10_000_000_000), Waiting::Asleep);
    }

    #[test]
    fn looking_in_vain_is_rarer_each_time() {
        let (mut anticipation, mut last_ns) = steady(0.1, 100);
        for how in [Looked::InVain, Looked::Preempted] {
            let before = anticipation.next_rest;
            anticipation.on_looked(how);
            assert_eq!(anticipation.next_rest, 2 * before);
            for _ in 0..before {
                assert_eq!(anticipation.plan(last_ns), Waiting::Asleep);
                last_ns += PERIOD_NS;
                anticipation.on_ring(last_ns);
            }
            assert_ne!(anticipation.plan(last_ns), Waiting::Asleep);
        }
        anticipation.on_looked(Looked::Found);
        assert_eq!(anticipation.next_rest, REST_FRAMES);
    }

    #[test]
    fn a_machine_whose_sleeps_end_any_time_is_not_worth_it() {
        let (mut anticipation, last_ns) = steady(0.1, 100);
        for sleep in 0..200 {
            let late = Duration::from_micros(if sleep % 2 == 0 { 1 } else { 900 });
            anticipation.on_slept(Duration::ZERO, late);
        }
        assert_eq!(anticipation.plan(last_ns), Waiting::Asleep);
    }
}
