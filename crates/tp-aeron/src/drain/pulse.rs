//! Messages that go out by themselves, again and again: keepalives.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Shared;
use crate::error::{Error, OfferError};
use crate::images::monotonic_ns;
use crate::publication::ExclusivePublication;
use crate::sync::lock;

const WHAT: &str = "pulse";
/// A refused message is offered again this many times a period at most, for half a period.
const ATTEMPTS_A_PERIOD: u32 = 16;
/// What a pulse that was stopped waits for.
const NEVER: Duration = Duration::from_secs(3600);

/// What a pulse sends.
#[derive(Debug, Clone)]
pub struct PulseMessage {
    /// The message.
    pub bytes: Vec<u8>,
    /// Where the time of sending goes, as a little-endian 64-bit number of monotonic nanoseconds.
    pub timestamp_offset: Option<usize>,
}

/// When the next message is due, and until when it is tried.
#[derive(Debug)]
struct Schedule {
    period: Duration,
    /// None until the first look.
    due: Option<Instant>,
    retry_at: Option<Instant>,
}

/// What to do with a message that was offered.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    /// May succeed a moment later.
    Refused,
    /// Will not succeed a moment later either.
    Failed,
}

impl Schedule {
    fn new(period: Duration) -> Self {
        Self { period, due: None, retry_at: None }
    }

    /// Whether to offer now.
    fn is_due(&mut self, now: Instant) -> bool {
        now >= self.retry_at.unwrap_or(*self.due.get_or_insert(now))
    }

    /// Notes how an offer ended; false when the message of this period was given up.
    fn note(&mut self, now: Instant, outcome: &Outcome) -> bool {
        let due = self.due.unwrap_or(now);
        let again = now + self.period / ATTEMPTS_A_PERIOD;
        if *outcome == Outcome::Refused && again <= due + self.period / 2 {
            self.retry_at = Some(again);
            return true;
        }
        self.retry_at = None;
        // In step with the first one, unless the process was stopped for so long that steps were missed.
        let next = due + self.period;
        self.due = Some(if next > now { next } else { now + self.period });
        *outcome == Outcome::Sent
    }

    /// When to look again.
    fn next(&self, now: Instant) -> Instant {
        self.retry_at.or(self.due).unwrap_or(now)
    }
}

struct State {
    schedule: Schedule,
    message: PulseMessage,
    sent: u64,
    failed: u64,
    last_sent_ns: Option<u64>,
    stopped: bool,
}

/// The part of a pulse that the drain's thread works with.
pub(super) struct Beat {
    publication: ExclusivePublication,
    state: Mutex<State>,
}

impl Beat {
    pub(super) fn new(
        publication: ExclusivePublication,
        message: PulseMessage,
        period: Duration,
    ) -> Result<Self, Error> {
        let refuse = |text: String| Err(Error::InvalidArgument(text));
        let (length, max) = (message.bytes.len(), publication.constants().max_message_bytes);
        if length > max {
            return refuse(format!("a message of {length} bytes; the publication takes at most {max}"));
        }
        let ends = message.timestamp_offset.map(|offset| offset.checked_add(8));
        if ends.is_some_and(|end| end.is_none_or(|end| end > length)) {
            return refuse(format!("a time stamp at {:?} of {length} bytes", message.timestamp_offset));
        }
        if period.is_zero() {
            return refuse("a pulse without a period".to_owned());
        }
        let schedule = Schedule::new(period);
        let state = State { schedule, message, sent: 0, failed: 0, last_sent_ns: None, stopped: false };
        Ok(Self { publication, state: Mutex::new(state) })
    }

    /// Sends the message if it is due; tells when to look again.
    pub(super) fn beat(&self, now: Instant) -> Instant {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.stopped {
            return now + NEVER;
        }
        if !state.schedule.is_due(now) {
            return state.schedule.next(now);
        }
        // Read as late as can be: readers judge by it how long ago this process showed life.
        let now_ns = u64::try_from(monotonic_ns()).unwrap_or(0);
        if let Some(offset) = state.message.timestamp_offset {
            state.message.bytes[offset..offset + 8].copy_from_slice(&now_ns.to_le_bytes());
        }
        let outcome = match self.publication.offer(&state.message.bytes) {
            Ok(_) => Outcome::Sent,
            Err(OfferError::NotConnected | OfferError::BackPressured | OfferError::AdminAction) => {
                Outcome::Refused
            }
            Err(_) => Outcome::Failed,
        };
        if outcome == Outcome::Sent {
            state.sent += 1;
            state.last_sent_ns = Some(now_ns);
        }
        if !state.schedule.note(now, &outcome) {
            state.failed += 1;
        }
        state.schedule.next(now)
    }

    /// When this returns no more messages go out.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
    }
}

/// A message that goes out by itself until this is stopped or dropped.
pub struct Pulse {
    beat: Arc<Beat>,
    drain: Arc<Shared>,
}

impl Pulse {
    pub(super) fn new(beat: Arc<Beat>, drain: Arc<Shared>) -> Self {
        Self { beat, drain }
    }

    fn read<T>(&self, what: impl FnOnce(&State) -> T, otherwise: T) -> T {
        if self.drain.owner.is_current() { what(&lock(&self.beat.state)) } else { otherwise }
    }

    /// Messages sent.
    pub fn sent(&self) -> u64 {
        self.read(|state| state.sent, 0)
    }

    /// Periods in which no message could be sent.
    pub fn failed(&self) -> u64 {
        self.read(|state| state.failed, 0)
    }

    /// When the last message was sent, in monotonic nanoseconds.
    pub fn last_sent_ns(&self) -> Option<u64> {
        self.read(|state| state.last_sent_ns, None)
    }

    /// Whether it was stopped, by its owner or with the drain.
    pub fn is_stopped(&self) -> bool {
        self.read(|state| state.stopped, true)
    }

    /// Sends no more; when this returns, the last message is out. Does nothing when called again.
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn stop(&self) -> Result<(), Error> {
        self.drain.owner.check(WHAT)?;
        self.beat.stop();
        self.drain.forget_pulse(&self.beat);
        Ok(())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(160);
    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn the_first_is_due_at_once_and_the_others_in_step() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        assert!(schedule.is_due(start));
        assert!(schedule.note(start, &Outcome::Sent));
        assert!(!schedule.is_due(start + PERIOD - STEP));
        // A bit late: the next one is in step with the first.
        assert!(schedule.is_due(start + PERIOD + STEP));
        assert!(schedule.note(start + PERIOD + STEP, &Outcome::Sent));
        assert_eq!(schedule.next(start), start + 2 * PERIOD);
    }

    #[test]
    fn a_refused_message_is_tried_for_half_a_period() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        let mut attempts = 0;
        let mut now = start;
        while schedule.is_due(now) {
            attempts += 1;
            if !schedule.note(now, &Outcome::Refused) {
                break;
            }
            now = schedule.next(now);
        }
        assert_eq!((attempts, now - start), (9, PERIOD / 2));
        assert_eq!(schedule.next(now), start + PERIOD);
    }

    #[test]
    fn a_failure_waits_for_the_next_period() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        assert!(schedule.is_due(start));
        assert!(!schedule.note(start, &Outcome::Failed));
        assert_eq!(schedule.next(start), start + PERIOD);
    }

    #[test]
    fn missed_periods_are_not_made_up_for() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        assert!(schedule.is_due(start));
        schedule.note(start, &Outcome::Sent);
        let late = start + 5 * PERIOD + STEP;
        assert!(schedule.is_due(late));
        schedule.note(late, &Outcome::Sent);
        assert_eq!(schedule.next(late), late + PERIOD);
    }
}
