use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// An alarm on this machine.
const LATE_NS: u64 = 20 * US;

/// Numbers from -1 to 1 that look random, the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn around(&mut self, mean_ns: u64, spread_ns: u64) -> u64 {
        mean_ns.saturating_add_signed((self.next() * spread_ns as f64) as i64)
    }
}

/// A reader that waits for frames.
struct Reader {
    rhythm: Rhythm,
    now_ns: u64,
    /// What became of the last frames: found awake, missed although looked for, or waited for asleep.
    found: u32,
    missed: u32,
    asleep: u32,
}

impl Reader {
    fn new() -> Self {
        Self { rhythm: Rhythm::default(), now_ns: 1_000 * MS, found: 0, missed: 0, asleep: 0 }
    }

    /// A frame that comes at this time, with alarms that are so late.
    fn frame(&mut self, at_ns: u64, late_ns: u64) {
        assert!(at_ns >= self.now_ns);
        match self.rhythm.watch(self.now_ns) {
            Some(watch) if watch.alarm_ns + late_ns < at_ns => {
                let look_ns = watch.until_ns.saturating_sub(self.now_ns.max(watch.alarm_ns));
                let most_ns = LONGEST_LOOK_NS.min(self.rhythm.period_ns / LARGEST_SHARE);
                assert!(look_ns <= most_ns + self.rhythm.late_ns.mean_ns, "looks for {look_ns} ns");
                self.rhythm.heard_alarm(late_ns);
                if at_ns <= watch.until_ns {
                    self.found += 1;
                    self.rhythm.found(at_ns);
                } else {
                    self.missed += 1;
                    self.rhythm.missed();
                    self.rhythm.came(at_ns);
                }
            }
            watch => {
                self.asleep += 1;
                if let Some(late_ns) = watch.and_then(|watch| at_ns.checked_sub(watch.alarm_ns)) {
                    self.rhythm.heard_alarm(late_ns);
                }
                self.rhythm.came(at_ns);
            }
        }
        self.now_ns = at_ns;
    }

    /// So many frames at this pace, each of them so far off its time; starts counting anew.
    fn frames(&mut self, count: u32, period_ns: u64, mut off_ns: impl FnMut() -> u64) {
        (self.found, self.missed, self.asleep) = (0, 0, 0);
        let start_ns = self.now_ns;
        for number in 1..=u64::from(count) {
            self.frame(start_ns + number * period_ns + off_ns(), LATE_NS);
        }
    }
}

#[test]
fn frames_of_a_steady_stream_are_found_awake() {
    for period_ns in [MS / 2, MS, 5 * MS, 33 * MS, 1_000 * MS] {
        let (mut reader, mut noise) = (Reader::new(), Noise(period_ns));
        reader.frames(60, period_ns, || noise.around(10 * US, 2 * US));
        assert!(reader.found > 0, "never up with {period_ns} ns");
        reader.frames(1000, period_ns, || noise.around(10 * US, 2 * US));
        assert!(reader.found >= 980, "{} of 1000 with {period_ns} ns", reader.found);
    }
}

#[test]
fn a_steady_stream_is_known_soon() {
    for period_ns in [MS, 5 * MS, 33 * MS] {
        let (mut reader, mut noise) = (Reader::new(), Noise(period_ns));
        reader.frames(24, period_ns, || noise.around(30 * US, 10 * US));
        assert!(reader.found >= 8, "{} of 24 with {period_ns} ns", reader.found);
    }
}

#[test]
fn who_can_not_know_sleeps() {
    let mut noise = Noise(1);
    let mut reader = Reader::new();
    reader.frames(1000, MS, || noise.around(400 * US, 400 * US));
    assert!(
        reader.found + reader.missed <= 20,
        "{} looks at a stream without rhythm",
        reader.found + reader.missed
    );
    let mut reader = Reader::new();
    reader.frames(1000, 50 * US, || 0);
    assert_eq!(reader.asleep, 1000, "sleeping is not worth the while between frames that come so fast");
}

/// Every second frame of the new pace comes when one of the old pace was due.
#[test]
fn another_pace_is_learned() {
    let mut reader = Reader::new();
    for period_ns in [2 * MS, MS, 5 * MS, MS, 2 * MS, 7 * MS / 2] {
        reader.frames(60, period_ns, || 0);
        reader.frames(100, period_ns, || 0);
        assert!(reader.found >= 98, "{} of 100 with {period_ns} ns", reader.found);
    }
}

#[test]
fn frames_that_nobody_waited_for_change_nothing() {
    let mut reader = Reader::new();
    reader.frames(100, MS, || 0);
    // The program is busy for some periods now and then.
    for number in 0..50 {
        let left_out = number % 4 * MS;
        // It comes back in the middle between two frames.
        let resumed_ns = if left_out > 0 { left_out + MS / 2 } else { 0 };
        let start_ns = reader.now_ns;
        reader.now_ns += resumed_ns;
        (reader.found, reader.missed) = (0, 0);
        reader.frame(start_ns + left_out + MS, LATE_NS);
        // The time of a watch that was missed so has passed.
        assert_eq!((reader.found, reader.missed), (u32::from(left_out == 0), 0));
    }
    reader.frames(100, MS, || 0);
    assert!(reader.found >= 99);
}

#[test]
fn one_late_frame_does_not_make_the_next_ones_early() {
    let mut reader = Reader::new();
    reader.frames(200, MS, || 0);
    for late_ns in [50 * US, 200 * US, 600 * US] {
        let start_ns = reader.now_ns;
        reader.frame(start_ns + MS + late_ns, LATE_NS);
        (reader.found, reader.asleep) = (0, 0);
        for number in 2..=51 {
            reader.frame(start_ns + number * MS, LATE_NS);
        }
        assert!(reader.found >= 48, "{} of 50 after one that was {late_ns} ns late", reader.found);
    }
}

#[test]
fn a_silent_stream_is_looked_for_once() {
    let mut reader = Reader::new();
    reader.frames(100, MS, || 0);
    let watch = reader.rhythm.watch(reader.now_ns).expect("it was steady");
    assert!(reader.rhythm.watch(watch.until_ns).is_none());
    assert!(reader.rhythm.watch(watch.until_ns + 1_000 * MS).is_none());
}

/// The due time is right, and yet nothing comes while it is looked for.
#[test]
fn looks_in_vain_become_rare() {
    let mut reader = Reader::new();
    reader.frames(100, 10 * MS, || 0);
    let mut looks = 0;
    for number in 0..2000 {
        looks += u32::from(reader.rhythm.watch(reader.now_ns).is_some());
        if reader.rhythm.watch(reader.now_ns).is_some() {
            reader.rhythm.missed();
        }
        reader.now_ns += 10 * MS;
        reader.rhythm.came(reader.now_ns + number % 2);
    }
    assert!(looks < 30, "{looks} of 2000");
}

#[test]
fn irregular_alarms_are_no_alarms_until_they_are_tried_again() {
    let (mut reader, mut noise) = (Reader::new(), Noise(7));
    let mut frames = |reader: &mut Reader, count: u32, spread_ns: u64| {
        (reader.found, reader.missed, reader.asleep) = (0, 0, 0);
        for _ in 0..count {
            let at_ns = reader.now_ns + MS;
            reader.frame(at_ns, noise.around(100 * US, spread_ns));
        }
    };
    frames(&mut reader, 500, 100 * US);
    frames(&mut reader, 1000, 100 * US);
    assert_eq!(reader.asleep, 1000);
    frames(&mut reader, ALARM_TRUST, 2 * US);
    frames(&mut reader, 1000, 2 * US);
    assert!(reader.found >= 980, "{} of 1000", reader.found);
}

#[test]
fn times_that_make_no_sense_do_no_harm() {
    let mut noise = Noise(3);
    let mut rhythm = Rhythm::default();
    for number in 0..20_000_u64 {
        let now_ns = 1 << 40;
        match number % 7 {
            0 => rhythm.came(0),
            1 => rhythm.came(now_ns),
            2 => rhythm.missed(),
            3 => rhythm.heard_alarm(now_ns),
            4 => rhythm.found(noise.around(now_ns, now_ns)),
            _ => rhythm.came(noise.around(now_ns, MS)),
        }
        let _ = rhythm.watch(noise.around(now_ns, MS));
    }
}
