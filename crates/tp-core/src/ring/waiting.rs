//! How a reader waits for its next frame.

use std::time::Duration;

use rustix::thread::sched_getcpu;

use super::awaited::Awaited;
use super::elbow_room::ElbowRoom;
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
    room: ElbowRoom,
    /// How long it waited lately.
    usual_ns: u64,
}

impl Waiting {
    /// Looks without pause for `spin` after each frame; or, if `punctual`, is awake when the next frame of a steady stream
    /// is due, and stays awake where frames follow each other at once. Sleeps else.
    pub fn new(spin: Duration, punctual: bool) -> Self {
        let rhythm = punctual.then(Rhythm::default);
        Self { spin, is_lively: true, rhythm, room: ElbowRoom::default(), usual_ns: LONG_NS }
    }

    /// Waits for a frame, or for another ring of its bell; true when one or the other may be there.
    ///
    /// Who gets up before a frame is due has a moment to `rehearse` what it will do with it.
    pub fn wait(&mut self, awaited: &Awaited, timeout: Duration, rehearse: impl FnOnce()) -> bool {
        if self.rhythm.is_none() || !awaited.is_mapped() {
            return self.wait_for_bell(awaited, timeout);
        }
        let start_ns = monotonic_ns();
        let brief_ns = BRIEF_NS.min(timeout.as_nanos() as u64);
        let rang = self.stay_up(awaited, start_ns + brief_ns) || {
            // Nothing is due yet.
            self.room.seek();
            match self.watch(timeout) {
                Some(watch) => self.get_up(watch, awaited, timeout, rehearse),
                None => self.wait_for_bell(awaited, timeout),
            }
        };
        let waited_ns = monotonic_ns().saturating_sub(start_ns).min(LONG_NS);
        self.usual_ns = (7 * self.usual_ns + waited_ns) / 8;
        rang
    }

    /// Looks for a frame that usually comes at once.
    fn stay_up(&self, awaited: &Awaited, until_ns: u64) -> bool {
        self.usual_ns < BRIEF_NS && look_until(|| awaited.may_be_there(), until_ns).is_some()
    }

    /// Like `wait`, but never gets up early: for who hands on whole streams, where CPU time counts for more than some
    /// microseconds.
    pub fn wait_for_bell(&mut self, awaited: &Awaited, timeout: Duration) -> bool {
        if !self.spin.is_zero() && self.is_lively {
            let spin = self.spin.min(timeout);
            if doorbell::spin_until(|| awaited.may_be_there(), spin) {
                return true;
            }
            self.is_lively = spin < self.spin;
            return false;
        }
        let rang = self.sleep(awaited, timeout);
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
    fn sleep(&mut self, awaited: &Awaited, timeout: Duration) -> bool {
        let core = sched_getcpu();
        let rang = awaited.source.doorbell().wait(awaited.seen, timeout);
        if rang {
            self.woken(awaited, core);
        }
        rang
    }

    /// The bell rang for who slept on this core.
    fn woken(&mut self, awaited: &Awaited, core: usize) {
        self.room.woken(core, sched_getcpu());
        // Anything may be written there; the future is not believed.
        let rang_ns = awaited.is_mapped().then(|| awaited.source.doorbell().rang_ns().min(monotonic_ns()));
        wait_while_filled(&[(&awaited.source, awaited.seq)]);
        if let Some(rang_ns) = rang_ns {
            self.note(awaited, |rhythm| rhythm.came(rang_ns));
        }
    }

    /// Notes what became of the frame, if it came: a bell may ring late, or for nothing.
    fn note(&mut self, awaited: &Awaited, note: impl FnOnce(&mut Rhythm)) {
        if let Some(rhythm) = self.rhythm.as_mut().filter(|_| awaited.is_there()) {
            note(rhythm);
        }
    }

    /// Sleeps until shortly before the frame is due, then looks for it; sleeps again if it does not come.
    fn get_up(
        &mut self,
        watch: Watch,
        awaited: &Awaited,
        timeout: Duration,
        rehearse: impl FnOnce(),
    ) -> bool {
        let start_ns = monotonic_ns();
        let nap_ns = watch.alarm_ns.saturating_sub(start_ns);
        if nap_ns >= SHORTEST_SLEEP_NS {
            let core = sched_getcpu();
            let rang = awaited.source.doorbell().wait_punctually(awaited.seen, Duration::from_nanos(nap_ns));
            if let Some(late_ns) = monotonic_ns().checked_sub(watch.alarm_ns) {
                // Also where the bell was heard first: the alarm is at least so late.
                self.rhythm.as_mut().expect("who watches has one").heard_alarm(late_ns);
            }
            if rang {
                self.woken(awaited, core);
                return true;
            }
            if !awaited.may_be_there() {
                rehearse();
            }
        }
        if let Some(away_ns) = look_until(|| awaited.may_be_there(), watch.until_ns) {
            self.room.found(away_ns);
            self.note(awaited, |rhythm| rhythm.found(monotonic_ns()));
            return true;
        }
        self.rhythm.as_mut().expect("who watches has one").missed();
        let passed = Duration::from_nanos(monotonic_ns().saturating_sub(start_ns));
        self.sleep(awaited, timeout.saturating_sub(passed))
    }
}

/// Looks again and again, and gives the core away in between: the writer may be waiting for it. For how long it was away right
/// before it found something; none when it did not.
fn look_until(found: impl Fn() -> bool, until_ns: u64) -> Option<u64> {
    let mut away_ns = 0;
    loop {
        for _ in 0..LOOKS {
            if found() {
                return Some(away_ns);
            }
            std::hint::spin_loop();
        }
        let now_ns = monotonic_ns();
        if now_ns >= until_ns {
            return None;
        }
        std::thread::yield_now();
        away_ns = monotonic_ns() - now_ns;
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
