//! Waking many readers without making the producer wait for it.
//!
//! Each sleeper that is woken costs the producer some microseconds, and where cores are few the woken run at once, in
//! its place. It therefore wakes only the first few itself and leaves a crowd to a thread of its own process. Readers
//! do not wake each other: one that is stopped or starved of CPU would hold the others up.
//!
//! In a burst nobody sleeps, and the producer does not ask the kernel to wake anybody (see `doorbell`). Readers of other
//! makers may not know that they have to stay up; for them the thread rings once more, a moment later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread::JoinHandle;

use rustix::process::{Pid, getpid};
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::clock::monotonic_ns;
use crate::doorbell::{BURST_NS, Doorbell, Raise};
use crate::region::Mapping;

/// So many are woken by the producer itself.
pub const FEW: u32 = 2;
/// Stands for a number of sleepers that nobody counted.
pub const CROWD: usize = usize::MAX;
/// Wakes every sleeper.
const ALL: u32 = i32::MAX as u32;

/// So much later the thread rings for a burst.
const LATER: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

const IDLE: u32 = 0;
const RING: u32 = 1;
const END: u32 = 2;
const RING_LATER: u32 = 4;

/// Wakes the sleepers of one ring: few at once, many by and by.
#[derive(Debug)]
pub struct CrowdWaker {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, Pid)>,
    /// What the word was raised to when it last rang: everybody who slept then was woken.
    rang_ns: u64,
}

#[derive(Debug)]
struct Shared {
    ring: Arc<Mapping>,
    /// What the thread is to do.
    order: AtomicU32,
    /// Did more than a few sleep when last looked?
    crowded: AtomicBool,
    /// Is the thread going to ring, whatever happens? It says no before it does.
    is_promised: AtomicBool,
}

impl CrowdWaker {
    /// For the ring whose superblock is mapped.
    pub fn new(ring: Arc<Mapping>) -> Self {
        let shared = Shared {
            ring,
            order: AtomicU32::new(IDLE),
            crowded: AtomicBool::new(false),
            is_promised: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), thread: None, rang_ns: 0 }
    }

    /// Rings: raises the word to `now_ns` and wakes every sleeper. How many slept, or [`CROWD`] when they were not counted.
    #[inline]
    pub fn ring(&mut self, now_ns: u64) -> usize {
        let raised = Doorbell::of(&self.shared.ring).raise(now_ns);
        let nobody_sleeps = self.is_burst(raised);
        self.rang_ns = raised.after_ns;
        if nobody_sleeps && self.promise_ring() { 0 } else { self.wake_all() }
    }

    /// Was the last ring so recent that nobody can have fallen asleep since?
    ///
    /// Who slept before it was woken by it. Only if it was ours: drivers raise the word too, and wake nobody.
    #[inline]
    fn is_burst(&self, raised: Raise) -> bool {
        if raised.before_ns != self.rang_ns || raised.after_ns.wrapping_sub(raised.before_ns) >= BURST_NS {
            return false;
        }
        // The time counts at which the new word can be seen: who looked for a frame before that may be falling asleep.
        fence(Ordering::SeqCst);
        monotonic_ns().checked_sub(raised.before_ns).is_some_and(|since_ns| since_ns < BURST_NS)
    }

    /// Has the thread ring a moment later, for readers that fall asleep at once. False if there is no thread.
    #[inline]
    fn promise_ring(&mut self) -> bool {
        // The word was raised before this look; what the thread does after its answer wakes who slept on the old one.
        if !self.shared.is_promised.load(Ordering::SeqCst) {
            self.start();
            if self.thread.is_some() {
                self.shared.is_promised.store(true, Ordering::SeqCst);
                self.shared.give(RING_LATER);
            }
        }
        self.thread.is_some()
    }

    /// Wakes every sleeper. With a few of them, and for the first crowd, that is done on return. How many slept, or
    /// [`CROWD`] when they were not counted.
    #[inline]
    fn wake_all(&mut self) -> usize {
        let woken = Doorbell::of(&self.shared.ring).wake(FEW);
        if woken < FEW as usize { woken } else { woken.saturating_add(self.wake_others()) }
    }

    fn wake_others(&mut self) -> usize {
        if self.thread.is_some() && self.shared.crowded.load(Ordering::Relaxed) {
            self.shared.give(RING);
            return CROWD;
        }
        let woken = Doorbell::of(&self.shared.ring).wake(ALL);
        if woken > 0 {
            self.shared.crowded.store(true, Ordering::Relaxed);
            self.start();
        }
        woken
    }

    fn start(&mut self) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("tp-crowd".into()).spawn(move || shared.serve());
            // Without a thread the producer goes on waking everybody itself.
            self.thread = spawned.ok().map(|thread| (thread, getpid()));
        }
    }
}

impl Shared {
    fn give(&self, order: u32) {
        self.order.fetch_or(order, Ordering::Release);
        let _ = futex::wake(&self.order, futex::Flags::PRIVATE, 1);
    }

    fn serve(&self) {
        loop {
            let mut order = self.order.swap(IDLE, Ordering::Acquire);
            if order == RING_LATER {
                // Another order ends the pause, as it would have prevented it.
                let _ = futex::wait(&self.order, futex::Flags::PRIVATE, IDLE, Some(&LATER));
                order |= self.order.swap(IDLE, Ordering::Acquire);
            }
            let bell = Doorbell::of(&self.ring);
            if order & RING_LATER != 0 {
                self.is_promised.store(false, Ordering::SeqCst);
                bell.wake_strangers();
            }
            if order & RING != 0 && bell.wake(ALL) == 0 {
                self.crowded.store(false, Ordering::Relaxed);
            }
            if order & END != 0 {
                return;
            }
            // Returns at once when there is an order again.
            let _ = futex::wait(&self.order, futex::Flags::PRIVATE, IDLE, None);
        }
    }
}

impl Drop for CrowdWaker {
    fn drop(&mut self) {
        self.shared.give(END);
        if let Some((thread, owner)) = self.thread.take() {
            // A forked child has the handle, but not the thread.
            if owner == getpid() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::io::Errno;

    use super::*;
    use crate::region::{Access, BaseDirs, CreateOptions, RegionFile, RegionKind, Superblock, create_region};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn ring() -> (tempfile::TempDir, Arc<Mapping>) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("header.ring");
        let ring = Superblock { stream_id: 1, epoch: 1, kind: RegionKind::HeaderRing, nslots: 2 };
        create_region(&path, &ring, CreateOptions::default()).unwrap();
        let bases = BaseDirs::open([dir.path()]).unwrap();
        let uri = format!("shm:file?path={}", path.display());
        let file = RegionFile::open(&uri, ring, &bases, Access::Write).unwrap();
        (dir, Arc::new(file.map(Access::Write).unwrap()))
    }

    /// Lets so many sleep, and rings once.
    fn wake(waker: &mut CrowdWaker, ring: &Arc<Mapping>, sleepers: usize) {
        let asleep = AtomicU32::new(0);
        let seen = Doorbell::of(ring).seen();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..sleepers)
                .map(|_| {
                    scope.spawn(|| {
                        asleep.fetch_add(1, Ordering::SeqCst);
                        assert!(Doorbell::of(ring).wait(seen, PATIENCE), "nobody woke it");
                    })
                })
                .collect();
            while asleep.load(Ordering::SeqCst) < sleepers as u32 {
                std::thread::yield_now();
            }
            // Whoever did not sleep yet finds the word changed.
            std::thread::sleep(Duration::from_millis(20));
            let start = Instant::now();
            waker.ring(monotonic_ns());
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(start.elapsed() < PATIENCE / 2, "they slept until their time was over");
        });
    }

    #[test]
    fn nobody_is_left_asleep_however_many_they_are() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        for sleepers in [0, 1, 2, 3, 12, 12, 3, 1, 2, 12] {
            wake(&mut waker, &ring, sleepers);
        }
        assert!(waker.thread.is_some(), "a crowd has its thread");
    }

    #[test]
    fn few_readers_need_no_thread() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        for sleepers in [0, 1, 2, 2] {
            wake(&mut waker, &ring, sleepers);
        }
        assert!(waker.thread.is_none());
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        wake(&mut waker, &ring, 12);
        drop(waker);
        assert_eq!(Arc::strong_count(&ring), 1, "nobody holds the mapping any more");
    }

    /// Goes to sleep on a bell that it saw; false when it slept for as long as it may.
    type Sleep = fn(&Mapping, u32) -> bool;

    fn stays_up(ring: &Mapping, seen: u32) -> bool {
        Doorbell::of(ring).wait(seen, PATIENCE)
    }

    fn falls_asleep_at_once(ring: &Mapping, seen: u32, patience: Duration) -> bool {
        let (word, seen) = Doorbell::of(ring).watched(seen);
        let patience = Timespec::try_from(patience).unwrap();
        futex::wait(word, futex::Flags::empty(), seen, Some(&patience)) != Err(Errno::TIMEDOUT)
    }

    /// Two frames come quickly after each other, again and again; a reader that is awake for the first one goes to sleep.
    /// How often nobody woke it for the second?
    fn overslept(waker: &mut CrowdWaker, ring: &Mapping, rounds: u32, sleep: Sleep) -> u32 {
        let (ready, frames) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait_until = |done: &dyn Fn() -> bool| {
            while !done() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut overslept = 0;
                for round in 1..=rounds {
                    ready.store(round, Ordering::SeqCst);
                    wait_until(&|| frames.load(Ordering::SeqCst) > 2 * (round - 1));
                    loop {
                        let seen = Doorbell::of(ring).seen();
                        if frames.load(Ordering::SeqCst) == 2 * round {
                            break;
                        }
                        overslept += u32::from(!sleep(ring, seen));
                    }
                }
                overslept
            });
            for round in 1..=rounds {
                wait_until(&|| ready.load(Ordering::SeqCst) == round);
                // Longer than a burst, so that the first ring is heard; then a gap of up to two thirds of one.
                for gap_ns in [2 * BURST_NS, u64::from(round % 40) * BURST_NS / 60] {
                    let start_ns = monotonic_ns();
                    wait_until(&|| monotonic_ns() - start_ns >= gap_ns);
                    frames.fetch_add(1, Ordering::SeqCst);
                    waker.ring(monotonic_ns());
                }
            }
            reader.join().unwrap()
        })
    }

    #[test]
    fn who_stays_up_needs_no_ring_in_a_burst() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        // A thread that believes to have been told already: nobody rings later.
        waker.start();
        waker.shared.is_promised.store(true, Ordering::SeqCst);
        let hasty = |ring: &Mapping, seen| falls_asleep_at_once(ring, seen, Duration::from_millis(5));
        let is_found = (0..500).any(|_| overslept(&mut waker, &ring, 100, hasty) > 0);
        assert!(is_found, "the hunt finds what it hunts for");
        assert_eq!(overslept(&mut waker, &ring, 1_000, stays_up), 0);
    }

    #[test]
    fn who_falls_asleep_in_a_burst_is_woken_a_moment_later() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        let hasty = |ring: &Mapping, seen| falls_asleep_at_once(ring, seen, PATIENCE);
        assert_eq!(overslept(&mut waker, &ring, 200, hasty), 0);
        assert!(waker.thread.is_some(), "there were bursts");
    }

    #[test]
    fn the_ring_after_a_burst_disturbs_nobody_who_stays_up() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        waker.ring(monotonic_ns());
        assert!(waker.promise_ring());
        let seen = Doorbell::of(&ring).seen();
        assert!(!Doorbell::of(&ring).wait(seen, Duration::from_millis(20)), "the word is what it was");
        assert!(!waker.shared.is_promised.load(Ordering::SeqCst), "the thread has rung meanwhile");
    }

    #[test]
    fn only_rings_of_our_own_that_are_just_over_make_a_burst() {
        let (_dir, ring) = ring();
        let mut waker = CrowdWaker::new(Arc::clone(&ring));
        let mut is_burst = |rang_ns: u64, before_ns: u64, after_ns: u64| {
            waker.rang_ns = rang_ns;
            waker.is_burst(Raise { before_ns, after_ns })
        };
        let mut just_rang = |_| {
            let now_ns = monotonic_ns();
            is_burst(now_ns, now_ns, now_ns + 1)
        };
        assert!((0..1000).any(&mut just_rang), "any one look may be interrupted");
        let now_ns = monotonic_ns();
        assert!(!is_burst(now_ns - 5, now_ns, now_ns + 1), "somebody else raised the word");
        assert!(!is_burst(now_ns, now_ns, now_ns + BURST_NS), "it is over");
        let future_ns = now_ns + 1_000_000_000;
        assert!(!is_burst(future_ns, future_ns, future_ns + 1), "a word of another clock");
        let past_ns = monotonic_ns() - 2 * BURST_NS;
        assert!(
            !is_burst(past_ns, past_ns, past_ns + 1),
            "the writer was interrupted after it looked at the clock"
        );
    }
}
