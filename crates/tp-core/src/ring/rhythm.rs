//! When the next frame of a steady stream is due.
//!
//! Waking a sleeper takes the kernel some ten microseconds, more where its core has gone to rest. Cameras and
//! instruments are punctual, though: who knows when the next frame is due can set an alarm for shortly before, and look
//! without sleeping for the moment that is left. Both the stream and the alarms of this machine have to be regular
//! enough for that; this finds out, and says when to get up.

/// The longest look at a stretch. It takes a core, even if it gives it away to whoever needs it.
const LONGEST_LOOK_NS: u64 = 300_000;
/// The part of the time between two frames that may be spent looking.
const LARGEST_SHARE: u64 = 6;
/// Looking ends so long after the frame was due at the earliest: asleep and awake its time is measured a little differently.
const SLACK_NS: u64 = 10_000;
/// A frame that is further off than this part of the period is not the one that was expected.
const TOLERANCE: u64 = 4;
/// A stream has proved itself after so many punctual frames in a row, and after more where that was a mistake before.
const PROOF: u32 = 8;
const LONGEST_PROOF: u32 = 1024;
/// So many frames came at another time than expected, with no proof in between: the stream has another pace.
const STRIKES: u32 = 3;
/// One look in vain is forgiven after so many that were not.
const WORTH_OF_A_MISS: u32 = 4;
const MOST_CREDIT: u32 = 16;
/// Most of what varies around its mean lies within so many mean deviations of it.
const MOST: u64 = 3;
/// Before anything is known about alarms, and again after so many frames: what made them irregular may be over.
const ALARM: Mean = Mean { mean_ns: 50_000, deviation_ns: 5_000, weight: MEMORY };
const ALARM_TRUST: u32 = 4096;
/// About so many values make a moving mean.
const MEMORY: u64 = 8;

/// A moving mean and the mean deviation from it. Single outliers hardly move it, lasting changes do.
#[derive(Debug, Clone, Copy)]
struct Mean {
    mean_ns: u64,
    deviation_ns: u64,
    /// How many values it is made of, as far as it matters.
    weight: u64,
}

impl Mean {
    /// Anything up to `most_ns`.
    const fn unknown(most_ns: u64) -> Self {
        Self { mean_ns: most_ns, deviation_ns: most_ns, weight: 0 }
    }

    /// As far from the mean as an ordinary value may be.
    const fn reach_ns(&self) -> u64 {
        4 * self.deviation_ns + 1_000
    }

    /// Each new value counts for an eighth, the first ones for more: the first for all, the second for half, and so on.
    fn add(&mut self, value_ns: u64) {
        self.weight = (self.weight + 1).min(MEMORY);
        let weight = self.weight;
        let off = value_ns.abs_diff(self.mean_ns).min(self.reach_ns());
        self.deviation_ns = ((weight - 1) * self.deviation_ns + off) / weight;
        self.mean_ns = if value_ns > self.mean_ns {
            self.mean_ns + off / weight
        } else {
            self.mean_ns - (off / weight).min(self.mean_ns)
        };
    }
}

/// When to be awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Set the alarm for this time (CLOCK_MONOTONIC).
    pub alarm_ns: u64,
    /// Look no longer than this.
    pub until_ns: u64,
}

/// What is known about the times at which frames come, and about this machine's alarms.
#[derive(Debug)]
pub struct Rhythm {
    /// When the next frame is due; 0 before the first.
    due_ns: u64,
    /// 0 before the second.
    period_ns: u64,
    /// How far from their time frames come.
    off_ns: Mean,
    /// How long after its time an alarm is heard.
    late_ns: Mean,
    /// Punctual frames in a row, and how many of them prove the stream.
    streak: u32,
    proof: u32,
    is_proved: bool,
    strikes: u32,
    /// Frames in a row that came a whole period or more after they were due: that is too short, then.
    skips: u32,
    credit: u32,
    /// Frames since alarms were trusted anew.
    trusted: u32,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            due_ns: 0,
            period_ns: 0,
            off_ns: Mean::unknown(0),
            late_ns: ALARM,
            streak: 0,
            proof: PROOF,
            is_proved: false,
            strikes: 0,
            skips: 0,
            credit: 0,
            trusted: 0,
        }
    }
}

impl Rhythm {
    /// When to be awake for the next frame; none where it is not worth the while, or the time has passed.
    pub fn watch(&self, now_ns: u64) -> Option<Watch> {
        let around_ns = MOST * self.off_ns.mean_ns;
        // Up so early that a late alarm is early enough. It is rarely the one for which the frame is early.
        let ahead_ns = hypotenuse(around_ns, MOST * self.late_ns.deviation_ns);
        let look_ns = ahead_ns + around_ns + SLACK_NS;
        let is_worth_it = look_ns <= LONGEST_LOOK_NS.min(self.period_ns / LARGEST_SHARE);
        let until_ns = self.due_ns + around_ns + SLACK_NS;
        let alarm_ns = self.due_ns.saturating_sub(ahead_ns + self.late_ns.mean_ns);
        (self.is_proved && is_worth_it && now_ns < until_ns).then_some(Watch { alarm_ns, until_ns })
    }

    /// An alarm was heard so long after its time.
    pub fn heard_alarm(&mut self, late_ns: u64) {
        self.late_ns.add(late_ns);
    }

    /// A frame came at this time, while it was looked for.
    pub fn found(&mut self, at_ns: u64) {
        self.credit = (self.credit + 1).min(MOST_CREDIT);
        if self.credit == MOST_CREDIT {
            self.proof = PROOF;
        }
        self.came(at_ns);
    }

    /// Has a frame been found lately by who got up for it?
    #[cfg(test)]
    pub fn has_found_some(&self) -> bool {
        self.credit > 0
    }

    /// Nothing came while it was looked for. Where that happens often the stream has to prove itself again, for longer.
    pub fn missed(&mut self) {
        match self.credit.checked_sub(WORTH_OF_A_MISS) {
            Some(left) => self.credit = left,
            None => {
                (self.is_proved, self.streak, self.credit) = (false, 0, 0);
                self.proof = (2 * self.proof).min(LONGEST_PROOF);
            }
        }
    }

    /// A frame that was waited for came at this time.
    pub fn came(&mut self, at_ns: u64) {
        if self.period_ns == 0 {
            // The first one, or the second: then there is a period.
            self.period_ns = if self.due_ns == 0 { 0 } else { at_ns.saturating_sub(self.due_ns) };
            self.due_ns = at_ns + self.period_ns;
            self.off_ns = Mean::unknown(LONGEST_LOOK_NS.min(self.period_ns / TOLERANCE));
            return;
        }
        // Frames that nobody had to wait for, or that were left out, were due in between.
        let passed = (at_ns.saturating_sub(self.due_ns) + self.period_ns / 2) / self.period_ns;
        let due_ns = self.due_ns + passed * self.period_ns;
        let off_ns = at_ns.abs_diff(due_ns);
        self.skips = if passed > 0 { self.skips + 1 } else { 0 };
        if self.skips == PROOF {
            self.learn_anew(at_ns);
            return;
        }
        if off_ns > self.period_ns / TOLERANCE {
            self.strike(at_ns);
            return;
        }
        self.count_punctual();
        self.off_ns.add(off_ns);
        // Most of the error is this frame's own, the rest shows up again in the next ones; of an outlier even less. With
        // these two parts an estimate follows quickly without swinging.
        let off_ns = off_ns.min(self.off_ns.mean_ns + self.off_ns.reach_ns());
        let (phase, pace) = (off_ns / 4, off_ns / 32);
        if at_ns > due_ns {
            self.period_ns += pace;
            self.due_ns = due_ns + phase + self.period_ns;
        } else {
            self.period_ns -= pace;
            self.due_ns = due_ns - phase + self.period_ns;
        }
    }

    fn count_punctual(&mut self) {
        self.streak += 1;
        if self.streak >= self.proof {
            (self.is_proved, self.streak, self.strikes) = (true, 0, 0);
        }
        self.trusted += 1;
        if self.trusted == ALARM_TRUST {
            (self.late_ns, self.trusted) = (ALARM, 0);
        }
    }

    /// A frame at an unexpected time. One means little; after several the time between them is learned anew. Punctual ones
    /// in between prove nothing: with a wrong period some frames come when they should, every second one, say.
    fn strike(&mut self, at_ns: u64) {
        self.strikes += 1;
        self.streak = 0;
        if self.strikes == STRIKES {
            self.learn_anew(at_ns);
        }
    }

    fn learn_anew(&mut self, at_ns: u64) {
        (self.due_ns, self.period_ns, self.is_proved) = (at_ns, 0, false);
        (self.streak, self.strikes, self.skips) = (0, 0, 0);
    }
}

/// How far off the sum of two values is that have nothing to do with each other.
fn hypotenuse(a_ns: u64, b_ns: u64) -> u64 {
    (a_ns as f64).hypot(b_ns as f64) as u64
}

#[cfg(test)]
#[path = "rhythm_tests.rs"]
mod tests;
