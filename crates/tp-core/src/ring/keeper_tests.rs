use std::path::Path;
use std::sync::atomic::Ordering;

use super::*;
use crate::clock::monotonic_ns;
use crate::doorbell::Doorbell;
use crate::layout::superblock as at;
use crate::region::{BaseDirs, CreateOptions, RegionError};

struct Ring {
    dir: tempfile::TempDir,
    address: RingAddress,
    bases: BaseDirs,
}

fn ring() -> Ring {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pools = [(1, 64), (2, 4096)].map(|(pool_id, stride_bytes)| Pool { pool_id, stride_bytes }).into();
    let geometry = Geometry { stream_id: 10_000, epoch: 5, nslots: 8, pools };
    let address = create_ring(dir.path(), geometry, CreateOptions::default()).unwrap();
    let bases = BaseDirs::open([dir.path()]).unwrap();
    Ring { dir, address, bases }
}

fn activities(dir: &Path) -> Vec<u64> {
    let activity = |name: &str| {
        let bytes = std::fs::read(dir.join(name)).unwrap();
        u64::from_le_bytes(bytes[at::ACTIVITY_TIMESTAMP_NS..][..8].try_into().unwrap())
    };
    ["header.ring", "1.pool", "2.pool"].map(activity).into()
}

#[test]
fn every_file_is_said_to_be_alive() {
    let r = ring();
    let keeper = RingKeeper::open(&r.address, &r.bases).unwrap();
    for _ in 0..3 {
        let before = monotonic_ns();
        keeper.refresh().unwrap();
        assert!(activities(r.dir.path()).iter().all(|activity| (before..=monotonic_ns()).contains(activity)));
    }
}

#[test]
fn time_stamps_never_go_back_and_nobody_is_woken() {
    let r = ring();
    let keeper = RingKeeper::open(&r.address, &r.bases).unwrap();
    let reader = RingReader::open(&r.address, &r.bases, false).unwrap();
    let ahead = monotonic_ns() + 1_000_000_000_000;
    for (_, superblock) in keeper.superblocks() {
        superblock.writable_word(at::ACTIVITY_TIMESTAMP_NS as u64).store(ahead, Ordering::Relaxed);
    }
    let seen = reader.doorbell().seen();
    keeper.refresh().unwrap();
    assert_eq!(activities(r.dir.path()), [ahead; 3]);
    assert_eq!(Doorbell::of(&keeper.superblocks()[0].1).seen(), seen, "the word that readers wait on");
}

#[test]
fn a_file_that_was_cut_off_is_an_error_and_not_the_end() {
    for name in ["header.ring", "1.pool", "2.pool"] {
        let r = ring();
        let keeper = RingKeeper::open(&r.address, &r.bases).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(r.dir.path().join(name)).unwrap();
        file.set_len(0).unwrap();
        let refused = keeper.refresh().unwrap_err();
        assert!(matches!(&refused, RegionError::Io { path, .. } if path.ends_with(name)), "{refused}");
    }
}

#[test]
fn a_file_that_was_removed_does_no_harm() {
    let r = ring();
    let keeper = RingKeeper::open(&r.address, &r.bases).unwrap();
    std::fs::remove_file(r.dir.path().join("1.pool")).unwrap();
    keeper.refresh().unwrap();
    assert!(RingKeeper::open(&r.address, &r.bases).is_err());
}

#[test]
fn memory_can_be_prepared_without_the_writer() {
    let r = ring();
    let writer = RingWriter::open(&r.address, &r.bases).unwrap();
    let memory = writer.memory();
    assert_eq!(memory.len_bytes(), (64 + 8 * 256) + (64 + 8 * 64) + (64 + 8 * 4096));
    drop(writer);
    memory.prefault().unwrap();
    // Whether so little may be locked depends on the machine; either way it is an answer.
    let _ = memory.lock();
}
