//! Waking readers without spinning (decision M18).
//!
//! The word is the low half of `activity_timestamp_ns` in the ring's superblock. The producer raises it
//! after commit and descriptor and then calls `FUTEX_WAKE`; readers remember the word *before* they look
//! for frames and sleep only while it is unchanged, so no frame can slip in between. Readers map the
//! region read-only; waiting and waking work there too.
//!
//! The call takes longer than all else about a small frame, and where frames follow each other within microseconds
//! nobody sleeps: a reader stays awake for [`STAY_UP_NS`] after a ring, and a writer that rang less than [`BURST_NS`] ago
//! need not call. The word is a time, so each knows when that was.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{current_timer_slack, futex, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::monotonic_ns;
use crate::layout::superblock as at;
use crate::region::Mapping;

/// Most rings that one call can wait on (the kernel's limit).
pub const MAX_WAIT: usize = 128;
/// Two rings less than this apart are one for the kernel.
pub(crate) const BURST_NS: u64 = 3_000;
/// No reader falls asleep sooner than this after a ring. Longer than a burst, because the writer looks at the clock a little
/// before its word can be seen, and two cores may differ in what they call now.
pub(crate) const STAY_UP_NS: u32 = 6_000;

/// Sleepers that stay up after a ring sleep as one of these, so that the others can be woken alone.
const STAYS_UP: NonZeroU32 = NonZeroU32::new(1).unwrap();
const ANYBODY_ELSE: NonZeroU32 = NonZeroU32::new(!STAYS_UP.get()).unwrap();

/// The activity time stamp before and after it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raise {
    /// Before.
    pub before_ns: u64,
    /// After.
    pub after_ns: u64,
}

/// The doorbell of a ring whose superblock is mapped.
#[derive(Debug, Clone, Copy)]
pub struct Doorbell<'m> {
    mapping: &'m Mapping,
}

impl<'m> Doorbell<'m> {
    /// The doorbell in `ring`'s superblock.
    pub fn of(ring: &'m Mapping) -> Self {
        Self { mapping: ring }
    }

    /// What the kernel waits on. Only the kernel looks at half a word: atomics of two sizes must not meet.
    fn word(&self) -> &'m AtomicU32 {
        // Little-endian: the low half comes first.
        self.mapping.half_word(at::ACTIVITY_TIMESTAMP_NS as u64)
    }

    /// The word now. Remember it before looking for frames.
    #[inline]
    pub fn seen(&self) -> u32 {
        self.mapping.word(at::ACTIVITY_TIMESTAMP_NS as u64).load(Ordering::Acquire) as u32
    }

    /// Raises the activity time stamp to `now_ns`, or by one when the clock has not moved, so that the word
    /// always changes and the time stamp never goes back.
    #[inline]
    pub fn raise(&self, now_ns: u64) -> Raise {
        let activity = self.mapping.writable_word(at::ACTIVITY_TIMESTAMP_NS as u64);
        let raised = |old: u64| {
            let new = now_ns.max(old.wrapping_add(1));
            // A multiple of 4.3 seconds later the low half would be the same.
            if new as u32 == old as u32 { new.wrapping_add(1) } else { new }
        };
        // The driver refreshes the same field, hence the loop; it ends after one round almost always.
        let updated = activity.fetch_update(Ordering::Release, Ordering::Relaxed, |old| Some(raised(old)));
        let before_ns = updated.unwrap_or_else(|never_refused| never_refused);
        Raise { before_ns, after_ns: raised(before_ns) }
    }

    /// Refreshes the activity time stamp without ringing: it only ever grows (decision L8).
    pub fn refresh_activity(&self, now_ns: u64) {
        self.mapping.writable_word(at::ACTIVITY_TIMESTAMP_NS as u64).fetch_max(now_ns, Ordering::Release);
    }

    /// Wakes up to `count` sleepers; how many were woken.
    #[inline]
    pub fn wake(&self, count: u32) -> usize {
        futex::wake(self.word(), futex::Flags::empty(), count).unwrap_or(0)
    }

    /// Wakes all sleepers of other makers, who may have fallen asleep right after a ring. (Our own that wait for several
    /// bells can't be told from them.)
    pub(crate) fn wake_strangers(&self) {
        let _ = futex::wake_bitset(self.word(), futex::Flags::empty(), i32::MAX as u32, ANYBODY_ELSE);
    }

    /// Sleeps until the word differs from `seen`, for at most `timeout`. True when it may have changed.
    ///
    /// Only the kernel looks at the word, so a file that was truncated under the mapping does no harm.
    pub fn wait(&self, seen: u32, timeout: Duration) -> bool {
        wait_for(self.word(), seen, timeout)
    }

    /// When the producer last rang, CLOCK_MONOTONIC; or when the driver last refreshed the time stamp.
    #[inline]
    pub fn rang_ns(&self) -> u64 {
        self.mapping.word(at::ACTIVITY_TIMESTAMP_NS as u64).load(Ordering::Acquire)
    }

    /// Like [`Doorbell::wait`], with a timeout that ends when it should: the kernel adds 50 us otherwise, to save wake-ups.
    pub fn wait_punctually(&self, seen: u32, timeout: Duration) -> bool {
        let slack = current_timer_slack().ok().and_then(NonZeroU64::new);
        // Without it the wait is only less punctual.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let rang = self.wait(seen, timeout);
        let _ = set_current_timer_slack(slack);
        rang
    }

    /// The word and what was seen of it, for waiting on several.
    pub(crate) fn watched(&self, seen: u32) -> Word<'m> {
        (self.word(), seen)
    }
}

/// A word in shared or private memory, and the value while which to sleep.
pub(crate) type Word<'m> = (&'m AtomicU32, u32);

fn wait_for(word: &AtomicU32, seen: u32, timeout: Duration) -> bool {
    stay_up(&[(word, seen)], timeout).is_none_or(|left| sleep_on(word, seen, left))
}

/// Stays awake while a ring is so recent that the next one may wake nobody. What is left of the time then; none when one
/// of the words may have changed.
fn stay_up(words: &[Word<'_>], timeout: Duration) -> Option<Duration> {
    let is_recent = |(_, seen): &&Word<'_>| {
        // A time that was raised by one where the clock stood still may lie ahead of it.
        (monotonic_ns() as u32).wrapping_sub(*seen).wrapping_add(STAY_UP_NS) < 2 * STAY_UP_NS
    };
    if timeout.is_zero() || !words.iter().any(|word| is_recent(&word)) {
        return Some(timeout);
    }
    let start = Instant::now();
    while words.iter().any(|word| is_recent(&word)) {
        if words.iter().filter(is_recent).any(has_changed) {
            return None;
        }
        // The writer may be waiting for this very core.
        std::thread::yield_now();
    }
    Some(timeout.saturating_sub(start.elapsed()))
}

/// Asks the kernel. (A wait of no time would do so too, and sleep until the timer has noticed that it is over.)
fn has_changed((word, seen): &Word<'_>) -> bool {
    // Nobody is woken and nobody sent elsewhere: what is left is the comparison.
    futex::cmp_requeue(word, futex::Flags::empty(), 0, 0, word, *seen) == Err(Errno::AGAIN)
}

/// Falls asleep at once.
fn sleep_on(word: &AtomicU32, seen: u32, timeout: Duration) -> bool {
    let deadline = deadline(timeout);
    match futex::wait_bitset(word, futex::Flags::empty(), seen, Some(&deadline), STAYS_UP) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => true,
        Err(Errno::TIMEDOUT) => false,
        Err(_) => {
            // The page is gone: nobody can ring any more, and the caller must not spin.
            std::thread::sleep(timeout);
            false
        }
    }
}

/// Looks again and again, for at most `duration`, until `changed` says so; takes the whole core meanwhile.
pub fn spin_until(changed: impl Fn() -> bool, duration: Duration) -> bool {
    /// The clock is asked only now and then: that costs more than a look.
    const LOOKS: u32 = 32;
    let deadline = Instant::now() + duration;
    loop {
        for _ in 0..LOOKS {
            if changed() {
                return true;
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= deadline {
            return false;
        }
    }
}

/// Sleeps until one of the words differs from what was seen, for at most `timeout`. True when one may have changed.
///
/// Beyond [`MAX_WAIT`] rings, and on kernels without `futex_waitv`, the words are waited on in short turns.
pub fn wait_any(bells: &[(Doorbell<'_>, u32)], timeout: Duration) -> bool {
    let words: Vec<_> = bells.iter().map(|(bell, seen)| bell.watched(*seen)).collect();
    wait_words(&words, timeout)
}

/// Like [`wait_any`], for any words.
pub(crate) fn wait_words(words: &[Word<'_>], timeout: Duration) -> bool {
    match words {
        [] => {
            std::thread::sleep(timeout);
            false
        }
        [(word, seen)] => wait_for(word, *seen, timeout),
        _ => stay_up(words, timeout)
            .is_none_or(|left| wait_together(words, left).unwrap_or_else(|| wait_in_turns(words, left))),
    }
}

/// All at once; none when the kernel can't.
fn wait_together(words: &[Word<'_>], timeout: Duration) -> Option<bool> {
    if words.len() > MAX_WAIT {
        return None;
    }
    let waiter = |(word, seen): &Word<'_>| {
        let mut waiter = futex::Wait::new();
        waiter.val = u64::from(*seen);
        waiter.uaddr = futex::WaitPtr::new(std::ptr::from_ref(*word).cast_mut().cast());
        waiter.flags = futex::WaitFlags::SIZE_U32;
        waiter
    };
    let waiters: Vec<_> = words.iter().map(waiter).collect();
    let deadline = deadline(timeout);
    match futex::waitv(&waiters, futex::WaitvFlags::empty(), Some(&deadline), futex::ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Some(true),
        Err(Errno::TIMEDOUT) => Some(false),
        // Not before Linux 5.16, or one of the pages is gone.
        Err(_) => None,
    }
}

/// One word after the other, a millisecond each.
fn wait_in_turns(words: &[Word<'_>], timeout: Duration) -> bool {
    const TURN: Duration = Duration::from_millis(1);
    let start = Instant::now();
    let mut turns = words.iter().cycle();
    while let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if words.iter().any(has_changed) {
            return true;
        }
        let (word, seen) = turns.next().expect("a cycle has no end");
        sleep_on(word, *seen, left.min(TURN));
    }
    false
}

/// By CLOCK_MONOTONIC.
fn deadline(timeout: Duration) -> Timespec {
    let (tv_sec, tv_nsec) = (timeout.as_secs().min(1 << 40) as _, timeout.subsec_nanos().into());
    clock_gettime(ClockId::Monotonic) + Timespec { tv_sec, tv_nsec }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Access, BaseDirs, CreateOptions, RegionFile, RegionKind, Superblock, create_region};

    struct Bell {
        _dir: tempfile::TempDir,
        writer: Mapping,
        reader: Mapping,
    }

    fn bell() -> Bell {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("header.ring");
        let ring = Superblock { stream_id: 1, epoch: 1, kind: RegionKind::HeaderRing, nslots: 2 };
        create_region(&path, &ring, CreateOptions::default()).unwrap();
        let bases = BaseDirs::open([dir.path()]).unwrap();
        let uri = format!("shm:file?path={}", path.display());
        let file = RegionFile::open(&uri, ring, &bases, Access::Write).unwrap();
        let (writer, reader) = (file.map(Access::Write).unwrap(), file.map_superblock(Access::Read).unwrap());
        Bell { _dir: dir, writer, reader }
    }

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_word_always_changes_and_never_goes_back() {
        let b = bell();
        let bell = Doorbell::of(&b.writer);
        let activity = || b.writer.word(at::ACTIVITY_TIMESTAMP_NS as u64).load(Ordering::Relaxed);
        for now in [activity() + 10, activity(), 0, activity() + 5, activity() + (3 << 32)] {
            let (before, seen) = (activity(), bell.seen());
            bell.raise(now);
            assert!(activity() > before && activity() >= now && bell.seen() != seen);
        }
        let before = activity();
        bell.refresh_activity(0);
        assert_eq!(activity(), before);
    }

    #[test]
    #[should_panic(expected = "read-only")]
    fn readers_cannot_raise_it() {
        Doorbell::of(&bell().reader).raise(1);
    }

    #[test]
    fn a_ring_between_looking_and_sleeping_is_not_missed() {
        let b = bell();
        let seen = Doorbell::of(&b.reader).seen();
        Doorbell::of(&b.writer).raise(0);
        assert!(Doorbell::of(&b.reader).wait(seen, LONG), "returns at once");
        assert!(!Doorbell::of(&b.reader).wait(Doorbell::of(&b.reader).seen(), SHORT), "times out");
    }

    #[test]
    fn raising_tells_what_was_there_and_what_is() {
        let b = bell();
        let activity = || b.writer.word(at::ACTIVITY_TIMESTAMP_NS as u64).load(Ordering::Relaxed);
        for now_ns in [0, activity() + 100, activity() + (1 << 32)] {
            let before_ns = activity();
            let raised = Doorbell::of(&b.writer).raise(now_ns);
            assert_eq!(raised, Raise { before_ns, after_ns: activity() });
        }
    }

    #[test]
    fn nobody_falls_asleep_right_after_a_ring() {
        let (b, other) = (bell(), bell());
        let bells = [Doorbell::of(&b.reader), Doorbell::of(&other.reader)];
        for many in [1, 2] {
            let awake_ns = || {
                let rang_ns = Doorbell::of(&b.writer).raise(monotonic_ns()).after_ns;
                let words: Vec<_> = bells[..many].iter().map(|bell| bell.watched(bell.seen())).collect();
                assert!(stay_up(&words, LONG).is_some_and(|left| left < LONG), "nobody rang again");
                monotonic_ns() - rang_ns
            };
            let shortest_ns = (0..200).map(|_| awake_ns()).min().unwrap();
            // Timers are late by 50 us: whoever slept meanwhile stayed away for longer.
            assert!((STAY_UP_NS.into()..40_000).contains(&shortest_ns), "{shortest_ns} ns");
        }
    }

    #[test]
    fn who_stays_up_sees_the_next_ring() {
        let b = bell();
        let bell = Doorbell::of(&b.reader);
        let seen = bell.seen();
        let is_seen = |_| {
            Doorbell::of(&b.writer).raise(monotonic_ns());
            let recent = [bell.watched(bell.seen())];
            Doorbell::of(&b.writer).raise(monotonic_ns());
            stay_up(&recent, LONG).is_none()
        };
        assert!((0..1000).any(is_seen), "any one look may be interrupted");
        assert_eq!(
            stay_up(&[bell.watched(seen)], LONG),
            Some(LONG),
            "an old ring: the kernel says so at once"
        );
        assert!(bell.wait(seen, LONG));
    }

    #[test]
    fn sleepers_on_a_read_only_mapping_are_woken() {
        let b = bell();
        let seen = Doorbell::of(&b.reader).seen();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| Doorbell::of(&b.reader).wait(seen, LONG));
            // Ring until somebody was asleep: then the wake-up was real.
            while Doorbell::of(&b.writer).wake(1) == 0 && !sleeper.is_finished() {
                std::thread::yield_now();
            }
            Doorbell::of(&b.writer).raise(0);
            Doorbell::of(&b.writer).wake(1);
            assert!(sleeper.join().unwrap());
        });
    }

    #[test]
    fn spinning_sees_a_ring_that_wakes_nobody() {
        let b = bell();
        let seen = Doorbell::of(&b.reader).seen();
        let changed = || Doorbell::of(&b.reader).seen() != seen;
        assert!(!spin_until(changed, SHORT));
        std::thread::scope(|scope| {
            let spinner = scope.spawn(|| spin_until(changed, LONG));
            Doorbell::of(&b.writer).raise(0);
            assert!(spinner.join().unwrap());
        });
    }

    #[test]
    fn looking_at_many_bells_takes_no_sleep_for_each() {
        let bells: Vec<_> = (0..MAX_WAIT + 72).map(|_| bell()).collect();
        let words: Vec<_> =
            bells.iter().map(|b| Doorbell::of(&b.reader)).map(|b| b.watched(b.seen())).collect();
        let look = || {
            let start = Instant::now();
            assert!(!words.iter().any(has_changed));
            start.elapsed()
        };
        let shortest = (0..20).map(|_| look()).min().unwrap();
        assert!(shortest < Duration::from_micros(50) * words.len() as u32 / 4, "{shortest:?}");
        Doorbell::of(&bells[3].writer).raise(0);
        assert!(has_changed(&words[3]) && !has_changed(&words[4]));
    }

    #[test]
    fn any_of_many_bells_ends_the_wait() {
        for many in [3, MAX_WAIT + 1] {
            let bells: Vec<_> = (0..many).map(|_| bell()).collect();
            let seen = || -> Vec<_> {
                bells.iter().map(|b| (Doorbell::of(&b.reader), Doorbell::of(&b.reader).seen())).collect()
            };
            assert!(!wait_any(&seen(), SHORT));
            let before = seen();
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| wait_any(&before, LONG));
                Doorbell::of(&bells[many - 1].writer).raise(0);
                while !sleeper.is_finished() {
                    Doorbell::of(&bells[many - 1].writer).wake(u32::MAX >> 1);
                    std::thread::yield_now();
                }
                assert!(sleeper.join().unwrap());
            });
        }
        assert!(!wait_any(&[], SHORT));
    }
}
