//! Cursors against a simple model, over random schedules of a writer and its readers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use proptest::prelude::*;
use tp_core::drops::{DropCounters, DropReason};
use tp_core::region::{BaseDirs, CreateOptions};
use tp_core::ring::{
    AlignedBytes, Borrowed, Claim, Cursor, Geometry, Polled, Pool, RingAddress, RingReader, RingWriter,
    SnapshotReader, Source, create_ring,
};
use tp_core::seqlock::Commit;
use tp_core::slot::{FrameHeader, FrameRecord};
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

const STRIDE: u32 = 64;

/// A step of a schedule.
#[derive(Debug, Clone)]
enum Step {
    Publish,
    /// Claims, leaving the claim open.
    Claim,
    /// Claims after leaving out so many sequence numbers.
    Skip(u64),
    /// Commits the oldest open claim.
    Commit,
    /// Aborts one of the open claims.
    Abort(prop::sample::Index),
    Ring,
    /// Polls at most so many times.
    Poll(usize),
    SearchAgain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Publish),
        2 => Just(Step::Claim),
        1 => (1..40u64).prop_map(Step::Skip),
        2 => Just(Step::Commit),
        1 => any::<prop::sample::Index>().prop_map(Step::Abort),
        3 => Just(Step::Ring),
        3 => (1..12usize).prop_map(Step::Poll),
        1 => Just(Step::SearchAgain),
    ];
    prop::collection::vec(step, 1..80)
}

/// The payload of frame `seq`.
fn content(seq: u64) -> [u8; 16] {
    u128::from(seq).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_le_bytes()
}

fn header() -> FrameHeader {
    let tensor = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &[16], &[]).unwrap();
    FrameHeader { tensor, values_len_bytes: 16, timestamp_ns: 0, meta_version: 0 }
}

/// A frame as either kind of reader returns it.
trait Frame {
    fn record(&self) -> FrameRecord;
    fn payload(&self) -> Vec<u8>;
}

impl Frame for Borrowed {
    fn record(&self) -> FrameRecord {
        *self.record()
    }
    fn payload(&self) -> Vec<u8> {
        let mut out = vec![0; 16];
        assert!(self.copy_to(&mut out), "nobody writes while the reader reads");
        out
    }
}

impl Frame for (FrameRecord, AlignedBytes) {
    fn record(&self) -> FrameRecord {
        self.0
    }
    fn payload(&self) -> Vec<u8> {
        self.1.as_ref().to_vec()
    }
}

/// A reader, and what it has taken.
struct Follower<S> {
    source: S,
    cursor: Cursor,
    drops: DropCounters,
    delivered: Vec<u64>,
    lapped: bool,
}

impl<S: Source<Frame: Frame>> Follower<S> {
    fn new(source: S) -> Self {
        let (cursor, drops) = Default::default();
        Self { source, cursor, drops, delivered: vec![], lapped: false }
    }

    /// The writer is about to use `seq`: does that take a frame away that we have not looked at?
    fn note_claim(&mut self, seq: u64) {
        self.lapped |= seq >= self.cursor.next_seq() + self.source.nslots();
    }

    fn poll(&mut self, times: usize, committed: &BTreeSet<u64>) {
        for _ in 0..times {
            let Polled::Frame(frame) = self.cursor.poll(&self.source, &self.drops) else { break };
            let seq = frame.record().seq;
            assert!(committed.contains(&seq), "{seq} was never committed");
            assert!(self.delivered.last().is_none_or(|last| *last < seq), "{seq} after {:?}", self.delivered);
            assert_eq!(frame.payload(), content(seq));
            self.delivered.push(seq);
        }
        // Each number was delivered, dropped for a reason, or is a gap.
        let dropped: u64 = DropReason::ALL.iter().map(|reason| self.drops.get(*reason)).sum();
        assert_eq!(self.cursor.next_seq(), self.delivered.len() as u64 + dropped + self.cursor.gaps());
    }

    /// Nothing is left to take: the cursor has passed `newest`, the last frame that is still there.
    fn finish(&mut self, committed: &BTreeSet<u64>, newest: Option<u64>) {
        self.cursor.search_again();
        self.poll(usize::MAX, committed);
        if let Some(newest) = newest {
            assert!(
                self.cursor.next_seq() > newest,
                "{newest} was left behind at {}",
                self.cursor.next_seq()
            );
        }
        if !self.lapped {
            assert_eq!(self.delivered, committed.iter().copied().collect::<Vec<_>>());
        }
    }
}

/// A ring with its writer, the model of what was committed, and a reader of each kind.
struct World {
    dir: tempfile::TempDir,
    nslots: u32,
    writer: RingWriter,
    open: Vec<Claim>,
    /// The last claim of each slot.
    claimed: BTreeMap<u64, u64>,
    committed: BTreeSet<u64>,
    mapped: Follower<Arc<RingReader>>,
    copied: Follower<SnapshotReader>,
}

impl World {
    fn new(nslots: u32) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let pools = vec![Pool { pool_id: 1, stride_bytes: STRIDE }];
        let geometry = Geometry { stream_id: 1, epoch: 1, nslots, pools };
        let address: RingAddress = create_ring(dir.path(), geometry, CreateOptions::default()).unwrap();
        let bases = BaseDirs::open([dir.path()]).unwrap();
        Self {
            nslots,
            writer: RingWriter::open(&address, &bases).unwrap(),
            open: vec![],
            claimed: BTreeMap::new(),
            committed: BTreeSet::new(),
            mapped: Follower::new(Arc::new(RingReader::open(&address, &bases, false).unwrap())),
            copied: Follower::new(SnapshotReader::open(&address, &bases, false).unwrap()),
            dir,
        }
    }

    fn claim(&mut self, seq: Option<u64>) {
        let wanted = seq.unwrap_or(self.writer.next_seq());
        let oldest = self.open.first().map_or(wanted, |claim| claim.seq);
        let claim = self.writer.claim(16, seq);
        assert_eq!(claim.is_ok(), wanted - oldest < self.nslots.into(), "{wanted} while {oldest} is open");
        if let Ok(claim) = claim {
            self.mapped.note_claim(claim.seq);
            self.copied.note_claim(claim.seq);
            self.claimed.insert(claim.seq % u64::from(self.nslots), claim.seq);
            self.open.push(claim);
        }
    }

    fn commit(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let claim = self.open.remove(0);
        self.writer.copy_into(&claim, 0, &content(claim.seq));
        self.writer.commit(&claim, &header()).unwrap();
        self.committed.insert(claim.seq);
        self.check_place(claim.seq);
    }

    /// The frame lies in the slot that its number names, in the ring and in the pool.
    fn check_place(&self, seq: u64) {
        let index = seq & u64::from(self.nslots - 1);
        let (mut word, mut payload_slot, mut payload) = ([0; 8], [0; 4], [0; 16]);
        let ring = File::open(self.dir.path().join("header.ring")).unwrap();
        ring.read_exact_at(&mut word, 64 + 256 * index).unwrap();
        ring.read_exact_at(&mut payload_slot, 64 + 256 * index + 12).unwrap();
        let pool = File::open(self.dir.path().join("1.pool")).unwrap();
        pool.read_exact_at(&mut payload, 64 + u64::from(STRIDE) * index).unwrap();
        assert_eq!(u64::from_le_bytes(word), seq << 1 | 1);
        assert_eq!(u64::from(u32::from_le_bytes(payload_slot)), index);
        assert_eq!(payload, content(seq));
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Publish if self.open.is_empty() => {
                self.claim(None);
                self.commit();
            }
            Step::Publish | Step::Claim => self.claim(None),
            Step::Skip(by) => self.claim(Some(self.writer.next_seq() + by)),
            Step::Commit => self.commit(),
            Step::Abort(which) => {
                if !self.open.is_empty() {
                    let claim = self.open.remove(which.index(self.open.len()));
                    self.writer.abort(&claim).unwrap();
                }
            }
            Step::Ring => self.writer.ring(1),
            Step::Poll(times) => {
                self.mapped.poll(*times, &self.committed);
                self.copied.poll(*times, &self.committed);
            }
            Step::SearchAgain => {
                self.mapped.cursor.search_again();
                self.copied.cursor.search_again();
            }
        }
    }
}

proptest! {
    // req: WIRE-8.3-4, WIRE-9-7, WIRE-15.18-2
    #[test]
    fn cursors_take_every_frame_once_and_account_for_the_rest(slots in 0..=4u32, steps in steps()) {
        let mut world = World::new(1 << slots);
        for step in &steps {
            world.run(step);
        }
        let newest = world.claimed.values().filter(|seq| world.committed.contains(seq)).max().copied();
        world.mapped.finish(&world.committed, newest);
        world.copied.finish(&world.committed, newest);
        prop_assert_eq!(&world.mapped.delivered, &world.copied.delivered);
        prop_assert_eq!(world.mapped.cursor.gaps(), world.copied.cursor.gaps());
    }
}

// req: WIRE-15.3-1
#[test]
fn a_slot_that_goes_back_is_not_read_again() {
    let mut world = World::new(4);
    for _ in 0..6 {
        world.claim(None);
        world.commit();
    }
    world.mapped.poll(usize::MAX, &world.committed);
    world.copied.poll(usize::MAX, &world.committed);
    let before = (world.mapped.delivered.clone(), world.copied.delivered.clone());
    assert_eq!(before.0.last(), Some(&5));
    let ring = File::options().write(true).open(world.dir.path().join("header.ring")).unwrap();
    for (slot, seq) in [(1, 1), (2, 2), (3, 0)] {
        ring.write_all_at(&Commit::committed(seq).0.to_le_bytes(), 64 + 256 * slot).unwrap();
    }
    world.writer.ring(1);
    world.mapped.poll(usize::MAX, &world.committed);
    world.copied.poll(usize::MAX, &world.committed);
    assert_eq!((world.mapped.delivered, world.copied.delivered), before);
    assert_eq!(world.mapped.source.read(5).unwrap_err(), DropReason::Stale);
}
