//! Waking many readers without making the producer wait for it.
//!
//! Each sleeper that is woken costs the producer some microseconds, and where cores are few the woken run at once, in
//! its place. It therefore wakes only the first few itself and leaves a crowd to a thread of its own process. Readers
//! do not wake each other: one that is stopped or starved of CPU would hold the others up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, getpid};
use rustix::thread::futex;

use crate::doorbell::Doorbell;
use crate::region::Mapping;

/// So many are woken by the producer itself.
pub const FEW: u32 = 2;
/// Stands for a number of sleepers that nobody counted.
pub const CROWD: usize = usize::MAX;
/// Wakes every sleeper.
const ALL: u32 = i32::MAX as u32;

const IDLE: u32 = 0;
const RING: u32 = 1;
const END: u32 = 2;

/// Wakes the sleepers of one ring: few at once, many by and by.
#[derive(Debug)]
pub struct CrowdWaker {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, Pid)>,
}

#[derive(Debug)]
struct Shared {
    ring: Arc<Mapping>,
    /// What the thread is to do.
    order: AtomicU32,
    /// Did more than a few sleep when last looked?
    crowded: AtomicBool,
}

impl CrowdWaker {
    /// For the ring whose superblock is mapped.
    pub fn new(ring: Arc<Mapping>) -> Self {
        let shared = Shared { ring, order: AtomicU32::new(IDLE), crowded: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), thread: None }
    }

    /// Wakes every sleeper. With a few of them, and for the first crowd, that is done on return. How many slept, or
    /// [`CROWD`] when they were not counted.
    #[inline]
    pub fn wake_all(&mut self) -> usize {
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
            let order = self.order.swap(IDLE, Ordering::Acquire);
            if order & END != 0 {
                return;
            }
            if order & RING != 0 && Doorbell::of(&self.ring).wake(ALL) == 0 {
                self.crowded.store(false, Ordering::Relaxed);
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

    use super::*;
    use crate::clock::monotonic_ns;
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
            Doorbell::of(ring).raise(monotonic_ns());
            let start = Instant::now();
            waker.wake_all();
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
}
