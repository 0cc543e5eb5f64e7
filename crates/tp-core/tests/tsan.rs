//! A writer and readers as threads on one mapping, for ThreadSanitizer (`make tsan`).
//!
//! ThreadSanitizer sees one address space, and takes two mappings of one file for different memory; so all
//! threads share a mapping here, below `RingWriter` and `RingReader`, with the seqlock, the slot accessors
//! and the copies that those use. Assembly is invisible to it: `make tsan` turns on `portable-copy`. Any
//! access to shared memory that is not atomic is a report, and fails the run. As an ordinary test it shows
//! that no thread accepts a torn frame.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tp_core::copy::Locality;
use tp_core::doorbell::Doorbell;
use tp_core::drops::{DropCounters, DropReason};
use tp_core::layout::{SLOT_BYTES, payload_offset, slot_offset};
use tp_core::region::{
    Access, BaseDirs, CreateOptions, Mapping, RegionFile, RegionKind, Superblock, create_region,
};
use tp_core::ring::{Geometry, Pool};
use tp_core::seqlock::{self, Commit};
use tp_core::slot::{self, FrameHeader, slot_index};
use tp_core::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

const NSLOTS: u32 = 2;
const STRIDE: u32 = 1024;
const BYTES: usize = 1000;
const FRAMES: u64 = 20_000;
const READERS: usize = 3;

/// The two regions of a ring, each mapped once.
struct Regions {
    header: Mapping,
    pool: Mapping,
    geometry: Geometry,
    _dir: tempfile::TempDir,
}

impl Regions {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let bases = BaseDirs::open([dir.path()]).unwrap();
        let map = |name: &str, kind| {
            let path = dir.path().join(name);
            let superblock = Superblock { stream_id: 1, epoch: 1, kind, nslots: NSLOTS };
            create_region(&path, &superblock, CreateOptions::default()).unwrap();
            let uri = format!("shm:file?path={}", path.display());
            RegionFile::open(&uri, superblock, &bases, Access::Write).unwrap().map(Access::Write).unwrap()
        };
        let (pool_id, stride_bytes) = (1, STRIDE);
        Self {
            header: map("header.ring", RegionKind::HeaderRing),
            pool: map("1.pool", RegionKind::PayloadPool { pool_id, stride_bytes }),
            geometry: Geometry {
                stream_id: 1,
                epoch: 1,
                nslots: NSLOTS,
                pools: vec![Pool { pool_id, stride_bytes }],
            },
            _dir: dir,
        }
    }

    fn publish(&self, seq: u64) {
        let index = slot_index(seq, NSLOTS);
        let word = self.header.word(slot_offset(index));
        let tensor =
            Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &[BYTES as i32], &[]).unwrap();
        let header = FrameHeader {
            tensor,
            values_len_bytes: BYTES as u32,
            timestamp_ns: seq,
            meta_version: seq as u32,
        };
        let payload = [seq as u8; BYTES];
        seqlock::begin_write(word, seq);
        // SAFETY: the payload is an array.
        unsafe {
            self.pool.copy_in(payload_offset(index, STRIDE), payload.as_ptr(), BYTES, Locality::Cached)
        };
        self.header.store_slot(slot_offset(index), &slot::encode(&header, seq, 1, NSLOTS).unwrap());
        seqlock::commit_write(word, seq);
        let bell = Doorbell::of(&self.header);
        bell.raise(seq);
        bell.wake(1);
    }

    /// The newest frame: its number, and its bytes if they were whole.
    fn read_newest(&self) -> Option<(u64, Result<[u8; BYTES], DropReason>)> {
        let words = (0..NSLOTS).map(|index| seqlock::begin_read(self.header.word(slot_offset(index))));
        let seen = words.filter(|commit| commit.is_committed()).max_by_key(|commit| commit.seq())?;
        Some((seen.seq(), self.read(seen)))
    }

    fn read(&self, seen: Commit) -> Result<[u8; BYTES], DropReason> {
        let index = slot_index(seen.seq(), NSLOTS);
        let word = self.header.word(slot_offset(index));
        if seqlock::begin_read(word) != seen {
            return Err(DropReason::Overwritten);
        }
        let bytes: [u8; SLOT_BYTES] = self.header.load_slot(slot_offset(index));
        let record = slot::decode(&bytes, seen.seq(), &self.geometry);
        let mut payload = [0; BYTES];
        // SAFETY: the target is an array.
        unsafe {
            self.pool.copy_out(
                payload_offset(index, STRIDE),
                payload.as_mut_ptr(),
                BYTES,
                Locality::for_read(BYTES),
            )
        };
        if !seqlock::still(word, seen) {
            return Err(DropReason::ChangedWhileReading);
        }
        let record = record.expect("a header that did not change is whole");
        assert_eq!((record.header.timestamp_ns, record.header.meta_version), (seen.seq(), seen.seq() as u32));
        Ok(payload)
    }
}

/// One writer and all readers, until the last frame was read by each; how many reads were good and how many late.
fn share_a_ring() -> (u64, u64) {
    let regions = Regions::new();
    let (drops, accepted) = (DropCounters::default(), AtomicU64::new(0));
    let read_all = || {
        loop {
            let bell = Doorbell::of(&regions.header);
            let seen = bell.seen();
            match regions.read_newest() {
                Some((seq, Ok(payload))) => {
                    assert_eq!(payload, [seq as u8; BYTES], "frame {seq} is torn");
                    accepted.fetch_add(1, Relaxed);
                    if seq + 1 == FRAMES {
                        return;
                    }
                }
                Some((_, Err(reason))) => drops.count(reason),
                None => drop(bell.wait(seen, Duration::from_millis(1))),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..READERS).for_each(|_| drop(scope.spawn(read_all)));
        scope.spawn(|| (0..FRAMES).for_each(|seq| regions.publish(seq)));
    });
    (accepted.into_inner(), drops.late())
}

#[test]
fn threads_share_a_ring_without_a_race() {
    // A busy machine may run the threads one after the other: only reads that came too late show that they met.
    let (accepted, late) =
        (0..50).map(|_| share_a_ring()).find(|(_, late)| *late > 0).expect("threads that meet");
    println!("{accepted} accepted, {late} late");
    assert!(accepted >= READERS as u64);
}
