//! The seqlock under loom: every interleaving, and every stale value that the memory model allows.
//!
//! The real `seqlock.rs` is compiled here against loom's atomics. What the fences are for can't be seen on
//! x86, which keeps stores and loads in order by itself; loom has no such mercy. With both fences no
//! schedule lets a reader accept a mixed frame. Without either one loom finds a schedule that does, which
//! also shows that the model could have noticed (decision M1).

use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Payload;
use loom::thread;

#[allow(dead_code, reason = "the model needs only a part of the real file")]
#[path = "../src/seqlock.rs"]
mod seqlock;

/// A part of the protocol that a model can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    ReleaseFence,
    AcquireFence,
    ReleaseStores,
    AcquireLoads,
}

thread_local! {
    /// What to leave out. Loom runs all threads of a model on the thread that starts it.
    static LEFT_OUT: Cell<Option<Part>> = const { Cell::new(None) };
}

fn left_out(part: Part) -> bool {
    LEFT_OUT.get() == Some(part)
}

/// What `seqlock.rs` takes its atomics from: loom's, less what is left out.
mod sync {
    use loom::sync::atomic;
    pub use loom::sync::atomic::Ordering;

    use super::{Part, left_out};

    pub struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        pub fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, if left_out(Part::ReleaseStores) { Ordering::Relaxed } else { order });
        }

        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(if left_out(Part::AcquireLoads) { Ordering::Relaxed } else { order })
        }
    }

    pub fn fence(order: Ordering) {
        let part = if order == Ordering::Release { Part::ReleaseFence } else { Part::AcquireFence };
        if !left_out(part) {
            atomic::fence(order);
        }
    }
}

use seqlock::{Commit, begin_read, begin_write, commit_write, still};
use sync::AtomicU64;

const NSLOTS: u64 = 2;

/// A slot: the commit word, and a frame that is right only if all its words belong together.
struct Slot {
    word: AtomicU64,
    frame: [Payload; 2],
}

/// A ring that has been filled once.
struct Ring([Slot; NSLOTS as usize]);

/// Every word of frame `seq`.
const fn content(seq: u64) -> u64 {
    100 + seq
}

impl Ring {
    fn filled() -> Self {
        Self([0, 1].map(|seq| Slot {
            word: AtomicU64::new(Commit::committed(seq).0),
            frame: [content(seq); 2].map(Payload::new),
        }))
    }

    fn slot(&self, seq: u64) -> &Slot {
        &self.0[(seq % NSLOTS) as usize]
    }

    fn publish(&self, seq: u64) {
        let slot = self.slot(seq);
        begin_write(&slot.word, seq);
        for word in &slot.frame {
            word.store(content(seq), Relaxed);
        }
        commit_write(&slot.word, seq);
    }

    /// The frame, if the seqlock accepts it.
    fn read(&self, seq: u64) -> Option<[u64; 2]> {
        let slot = self.slot(seq);
        let seen = begin_read(&slot.word);
        if seen != Commit::committed(seq) {
            return None;
        }
        let frame = [0, 1].map(|i: usize| slot.frame[i].load(Relaxed));
        still(&slot.word, seen).then_some(frame)
    }
}

/// What came of a model: how many schedules were tried, and in how many of them a frame was accepted or refused.
#[derive(Debug, Default)]
struct Outcomes {
    schedules: AtomicUsize,
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

/// A writer overwrites both slots while a reader looks for `wanted`.
fn explore(wanted: &'static [u64], outcomes: &'static Outcomes) {
    let count = |counter: &AtomicUsize| counter.fetch_add(1, Relaxed);
    loom::model(move || {
        count(&outcomes.schedules);
        let ring = Arc::new(Ring::filled());
        let writer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || (NSLOTS..2 * NSLOTS).for_each(|seq| ring.publish(seq))
        });
        for seq in wanted {
            match ring.read(*seq) {
                Some(frame) => {
                    assert_eq!(frame, [content(*seq); 2], "torn frame {seq}");
                    count(&outcomes.accepted);
                }
                None => drop(count(&outcomes.refused)),
            }
        }
        writer.join().unwrap();
        for seq in NSLOTS..2 * NSLOTS {
            assert_eq!(ring.read(seq), Some([content(seq); 2]), "frame {seq} is at rest");
        }
    });
}

/// What the reader looks for: frames that are overwritten meanwhile, frames that are just being published, both.
const WANTED: [&[u64]; 6] = [&[0], &[1], &[2], &[0, 2], &[1, 2], &[2, 3]];

// req: WIRE-8.3-5, WIRE-8.3-18, WIRE-15.13-2
#[test]
fn no_schedule_lets_a_reader_accept_a_mixed_frame() {
    for wanted in WANTED {
        let outcomes: &Outcomes = Box::leak(Box::default());
        explore(wanted, outcomes);
        println!("frames {wanted:?}: {outcomes:?}");
        for count in [&outcomes.accepted, &outcomes.refused] {
            assert!(count.load(Relaxed) > 0, "frames {wanted:?}: {outcomes:?} shows nothing");
        }
    }
}

/// The message with which some schedule fails when `part` is left out.
fn failure_without(part: Part) -> Option<String> {
    LEFT_OUT.set(Some(part));
    let outcomes: &Outcomes = Box::leak(Box::default());
    let failed = WANTED.iter().find_map(|wanted| catch_unwind(|| explore(wanted, outcomes)).err());
    LEFT_OUT.set(None);
    failed.map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[track_caller]
fn tears_without(part: Part) {
    let message = failure_without(part).unwrap_or_else(|| panic!("no schedule failed without {part:?}"));
    assert!(message.contains("torn frame"), "{part:?}: {message}");
}

// req: WIRE-8.3-5
#[test]
fn without_the_release_fence_frames_tear() {
    tears_without(Part::ReleaseFence);
}

#[test]
fn without_the_acquire_fence_frames_tear() {
    tears_without(Part::AcquireFence);
}

// req: WIRE-8.3-8, WIRE-15.3-3
#[test]
fn without_release_stores_frames_tear() {
    tears_without(Part::ReleaseStores);
}

// req: WIRE-8.3-9, WIRE-15.3-3
#[test]
fn without_acquire_loads_frames_tear() {
    tears_without(Part::AcquireLoads);
}
