//! How a reader waits for its next frame.

use std::time::Duration;

use super::any::AnyReader;
use super::cursor::Source;
use super::heads_up::wait_while_filled;
use super::rhythm::{Rhythm, Watch};
use crate::clock::monotonic_ns;
use crate::doorbell;

/// An alarm is set this long before its time at least; else the time is spent looking.
const SHORTEST_SLEEP_NS: u64 = 10_000;
/// Where frames are usually waited for no longer than this, falling asleep and being woken would take as long, and cost the
/// writer more: it is then looked for that long first.
const BRIEF_NS: u64 = 30_000;
/// Longer waits count as much.
const LONG_NS: u64 = 1_000_000;
/// Between two looks at the clock.
const LOOKS: u32 = 8;

/// How a reader waits, and how it fares.
#[derive(Debug)]
pub struct Waiting {
    /// Look without pause for so long before sleeping.
    spin: Duration,
    /// A stream that fell silent is not worth a core.
    is_lively: bool,
    /// For who gets up before a frame is due.
    rhythm: Option<Rhythm>,
    /// How long it waited lately.
    usual_ns: u64,
}

impl Waiting {
    /// Looks without pause for `spin` after each frame; or, if `punctual`, is awake when the next frame of a steady stream
    /// is due, and stays awake where frames follow each other at once. Sleeps else.
    pub fn new(spin: Duration, punctual: bool) -> Self {
        Self { spin, is_lively: true, rhythm: punctual.then(Rhythm::default), usual_ns: LONG_NS }
    }

    /// Waits for frame `next`, or for another ring of a bell that was `seen`; true when one or the other may be there.
    pub fn wait(&mut self, source: &AnyReader, next: u64, seen: u32, timeout: Duration) -> bool {
        if self.rhythm.is_none() || !is_mapped(source) {
            return self.wait_for_bell(source, next, seen, timeout);
        }
        let start_ns = monotonic_ns();
        let brief_ns = BRIEF_NS.min(timeout.as_nanos() as u64);
        let rang = self.stay_up(source, next, seen, start_ns + brief_ns)
            || match self.watch(timeout) {
                Some(watch) => self.get_up(watch, source, next, seen, timeout),
                None => self.wait_for_bell(source, next, seen, timeout),
            };
        let waited_ns = monotonic_ns().saturating_sub(start_ns).min(LONG_NS);
        self.usual_ns = (7 * self.usual_ns + waited_ns) / 8;
        rang
    }

    /// Looks for a frame that usually comes at once.
    fn stay_up(&self, source: &AnyReader, next: u64, seen: u32, until_ns: u64) -> bool {
        self.usual_ns < BRIEF_NS && look_until(|| is_there(source, next) || source.bell() != seen, until_ns)
    }

    /// Like `wait`, but never gets up early: for who hands on whole streams, where CPU time counts for more than some
    /// microseconds.
    pub fn wait_for_bell(&mut self, source: &AnyReader, next: u64, seen: u32, timeout: Duration) -> bool {
        if !self.spin.is_zero() && self.is_lively {
            let spin = self.spin.min(timeout);
            // The frame is there before its bell rings.
            if doorbell::spin_until(|| is_there(source, next) || source.bell() != seen, spin) {
                return true;
            }
            self.is_lively = spin < self.spin;
            return false;
        }
        let rang = self.sleep(source, next, seen, timeout);
        self.is_lively |= rang;
        rang
    }

    /// Whether and when to be awake within `timeout`.
    fn watch(&self, timeout: Duration) -> Option<Watch> {
        let rhythm = self.rhythm.as_ref()?;
        let now_ns = monotonic_ns();
        rhythm.watch(now_ns).filter(|watch| watch.alarm_ns < now_ns + timeout.as_nanos() as u64)
    }

    /// Sleeps until the bell rings.
    fn sleep(&mut self, source: &AnyReader, next: u64, seen: u32, timeout: Duration) -> bool {
        let rang = source.doorbell().wait(seen, timeout);
        if rang {
            self.woken(source, next);
        }
        rang
    }

    fn woken(&mut self, source: &AnyReader, next: u64) {
        // Anything may be written there; the future is not believed.
        let rang_ns = is_mapped(source).then(|| source.doorbell().rang_ns().min(monotonic_ns()));
        wait_while_filled(&[(source, next)]);
        if let Some(rang_ns) = rang_ns {
            self.note(source, next, |rhythm| rhythm.came(rang_ns));
        }
    }

    /// Notes what became of the frame, if it came: a bell may ring late, or for nothing.
    fn note(&mut self, source: &AnyReader, next: u64, note: impl FnOnce(&mut Rhythm)) {
        if let Some(rhythm) = self.rhythm.as_mut().filter(|_| is_there(source, next)) {
            note(rhythm);
        }
    }

    /// Sleeps until shortly before the frame is due, then looks for it; sleeps again if it does not come.
    fn get_up(&mut self, watch: Watch, source: &AnyReader, next: u64, seen: u32, timeout: Duration) -> bool {
        let start_ns = monotonic_ns();
        let nap_ns = watch.alarm_ns.saturating_sub(start_ns);
        if nap_ns >= SHORTEST_SLEEP_NS {
            let rang = source.doorbell().wait_punctually(seen, Duration::from_nanos(nap_ns));
            if let Some(late_ns) = monotonic_ns().checked_sub(watch.alarm_ns) {
                // Also where the bell was heard first: the alarm is at least so late.
                self.rhythm.as_mut().expect("who watches has one").heard_alarm(late_ns);
            }
            if rang {
                self.woken(source, next);
                return true;
            }
        }
        if look_until(|| is_there(source, next) || source.bell() != seen, watch.until_ns) {
            self.note(source, next, |rhythm| rhythm.found(monotonic_ns()));
            return true;
        }
        self.rhythm.as_mut().expect("who watches has one").missed();
        let passed = Duration::from_nanos(monotonic_ns().saturating_sub(start_ns));
        self.sleep(source, next, seen, timeout.saturating_sub(passed))
    }
}

/// Looking at a ring that is not mapped takes a system call each time, and its memory must not be touched at all.
fn is_mapped(source: &AnyReader) -> bool {
    matches!(source, AnyReader::Mapped(_))
}

fn is_there(source: &AnyReader, next: u64) -> bool {
    source.look(next).is_ok_and(|commit| commit.holds(next))
}

/// Looks again and again, and gives the core away in between: the writer may be waiting for it.
fn look_until(found: impl Fn() -> bool, until_ns: u64) -> bool {
    loop {
        for _ in 0..LOOKS {
            if found() {
                return true;
            }
            std::hint::spin_loop();
        }
        if monotonic_ns() >= until_ns {
            return false;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
