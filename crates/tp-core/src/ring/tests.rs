use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::*;
use crate::bytes::{get, put};
use crate::clock::monotonic_ns;
use crate::drops::{DropCounters, DropReason};
use crate::layout::{
    SLOT_BYTES, SLOT_EMBEDDED_HEADER, SLOT_HEADER_BYTES_LENGTH, SLOT_TENSOR, slot as at, slot_offset,
    superblock, tensor,
};
use crate::region::{Access, BaseDirs, CreateOptions, RegionError, RegionFile, RegionKind, Superblock};
use crate::seqlock::Commit;
use crate::slot::FrameHeader;
use crate::tensor::{Dtype, MajorOrder, ProgressUnit, Tensor};

struct Ring {
    dir: tempfile::TempDir,
    address: RingAddress,
    bases: BaseDirs,
}

fn geometry(nslots: u32, strides: &[u32]) -> Geometry {
    let pools = strides.iter().zip(1..).map(|(stride, pool_id)| Pool { pool_id, stride_bytes: *stride });
    Geometry { stream_id: 10_000, epoch: 5, nslots, pools: pools.collect() }
}

fn ring(nslots: u32, strides: &[u32]) -> Ring {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let address = create_ring(dir.path(), geometry(nslots, strides), CreateOptions::default()).unwrap();
    let bases = BaseDirs::open([dir.path()]).unwrap();
    Ring { dir, address, bases }
}

impl Ring {
    fn writer(&self) -> RingWriter {
        RingWriter::open(&self.address, &self.bases).unwrap()
    }

    fn reader(&self) -> Arc<RingReader> {
        Arc::new(RingReader::open(&self.address, &self.bases, false).unwrap())
    }

    fn snapshot(&self) -> SnapshotReader {
        SnapshotReader::open(&self.address, &self.bases, false).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A second mapping of the header ring, for looking at and changing raw bytes.
    fn raw(&self) -> crate::region::Mapping {
        let g = &self.address.geometry;
        let ring = Superblock {
            stream_id: g.stream_id,
            epoch: g.epoch,
            kind: RegionKind::HeaderRing,
            nslots: g.nslots,
        };
        RegionFile::open(&self.address.header_uri, ring, &self.bases, Access::Write)
            .unwrap()
            .map(Access::Write)
            .unwrap()
    }
}

fn bytes_header(len: u32) -> FrameHeader {
    let tensor = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::None, &[len as i32], &[]).unwrap();
    FrameHeader { tensor, values_len_bytes: len, timestamp_ns: 77, meta_version: 0 }
}

fn publish(writer: &mut RingWriter, payload: &[u8]) -> u64 {
    writer.publish(payload, &bytes_header(payload.len() as u32)).unwrap()
}

fn read(reader: &Arc<RingReader>, seq: u64) -> Result<Vec<u8>, DropReason> {
    let frame = reader.read(seq)?;
    let mut out = vec![0; frame.record().header.values_len_bytes as usize];
    assert!(frame.copy_to(&mut out));
    Ok(out)
}

// req: WIRE-3-1, WIRE-15.22-14, WIRE-15.22-13
#[test]
fn only_sound_geometries_make_a_ring() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |g: Geometry| {
        matches!(create_ring(dir.path(), g, CreateOptions::default()), Err(RegionError::Geometry(_)))
    };
    for nslots in [0, 3, 1000, 1 << 21, 1 << 31, u32::MAX] {
        assert!(refused(geometry(nslots, &[64])), "{nslots}");
    }
    for stride in [0, 32, 96, 192, 4160] {
        assert!(refused(geometry(8, &[stride])), "{stride}");
    }
    assert!(refused(geometry(8, &[])));
    assert!(refused(geometry(8, &[64; MAX_POOLS + 1])));
    let twice = Geometry { pools: vec![Pool { pool_id: 1, stride_bytes: 64 }; 2], ..geometry(8, &[]) };
    assert!(refused(twice));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    for (nslots, stride) in [(1, 64), (8, 128), (1024, 4096)] {
        ring(nslots, &[stride]).writer();
    }
    assert!(geometry(8, &[192]).check(true).is_ok() && geometry(8, &[96]).check(true).is_err());
}

// req: WIRE-6-3, WIRE-7.1-11, WIRE-8.1-1, WIRE-8.1-2, WIRE-8.2-3, WIRE-8.2-6, WIRE-8.2-7, WIRE-8.2-15, WIRE-8.3-3, WIRE-9-1, WIRE-9-7, WIRE-9-8, WIRE-15.18-2
#[test]
fn frames_lie_where_the_layout_says() {
    let r = ring(4, &[4096]);
    let mut writer = r.writer();
    for n in 0..7u8 {
        publish(&mut writer, &[n + 1; 100]);
    }
    let (header, pool) =
        (std::fs::read(r.path("header.ring")).unwrap(), std::fs::read(r.path("1.pool")).unwrap());
    assert_eq!(get::<u16>(&pool, superblock::POOL_ID), r.address.geometry.pools[0].pool_id);
    assert_eq!((header.len(), pool.len()), (64 + 4 * 256, 64 + 4 * 4096));
    for seq in 3..7u64 {
        let index = (seq % 4) as usize;
        let slot = &header[64 + 256 * index..][..SLOT_BYTES];
        assert_eq!(get::<u64>(slot, at::SEQ_COMMIT), seq << 1 | 1);
        assert_eq!(get::<u32>(slot, at::PAYLOAD_SLOT), index as u32);
        assert_eq!((get::<u16>(slot, at::POOL_ID), get::<u32>(slot, at::PAYLOAD_OFFSET)), (1, 0));
        assert_eq!(get::<u32>(slot, SLOT_HEADER_BYTES_LENGTH), 192);
        let embedded: Vec<u16> = (0..4).map(|i| get(slot, SLOT_EMBEDDED_HEADER + 2 * i)).collect();
        assert_eq!(embedded, [184, 52, 900, 1]);
        assert_eq!(&pool[64 + 4096 * index..][..100], &[seq as u8 + 1; 100]);
    }
}

// req: WIRE-9-2, WIRE-9-3, WIRE-9-4
#[test]
fn the_smallest_pool_that_fits_is_taken_and_too_much_is_refused_at_once() {
    let r = ring(4, &[1024, 64, 256]);
    let (mut writer, reader) = (r.writer(), r.reader());
    for (len, pool) in [(0, 1), (64, 1), (65, 2), (256, 2), (257, 0), (1024, 0)] {
        let seq = publish(&mut writer, &vec![7; len]);
        let record = *reader.read(seq).unwrap().record();
        assert_eq!(record.pool, (len > 0).then_some(pool), "{len}");
    }
    let before = writer.next_seq();
    let error = writer.publish(&[0; 1025], &bytes_header(1025)).unwrap_err();
    assert_eq!(error, ClaimError::TooLarge { bytes: 1025, largest: 1024 });
    assert_eq!(
        (writer.next_seq(), reader.peek(before)),
        (before, Commit::committed(2)),
        "no slot was touched"
    );
}

// req: WIRE-8.2-31, WIRE-8.2-32, WIRE-8.2-33
#[test]
fn empty_payloads_commit_and_touch_no_pool() {
    let r = ring(4, &[64]);
    let (mut writer, reader) = (r.writer(), r.reader());
    for _ in 0..6 {
        publish(&mut writer, &[]);
    }
    let frame = reader.read(5).unwrap();
    assert!(frame.payload().is_none() && frame.still_valid());
    let raw = r.raw().load_slot(slot_offset(1));
    assert_eq!(get::<u32>(&raw, at::PAYLOAD_SLOT), 1);
    // The pool it names need not even exist.
    let mut slot = raw;
    put(&mut slot, at::POOL_ID, 99u16);
    r.raw().store_slot(slot_offset(1), &slot);
    assert!(reader.read(5).is_ok());
}

// req: WIRE-8.3-1, WIRE-8.3-2, WIRE-8.3-10, WIRE-15.21-1, WIRE-15.21-2, WIRE-15.21-3
#[test]
fn a_slot_being_written_is_not_read_and_not_waited_for() {
    let r = ring(2, &[64]);
    let (mut writer, reader) = (r.writer(), r.reader());
    assert_eq!(reader.peek(0), Commit(0));
    let claim = writer.claim(8, None).unwrap();
    assert_eq!(reader.peek(0), Commit::in_progress(0));
    assert_eq!(read(&reader, 0), Err(DropReason::InProgress));
    writer.copy_into(&claim, 0, &[1; 8]);
    writer.commit(&claim, &bytes_header(8)).unwrap();
    assert_eq!(reader.peek(0), Commit::committed(0));
    assert_eq!(read(&reader, 0), Ok(vec![1; 8]));
    publish(&mut writer, &[2; 8]);
    let claim = writer.claim(8, None).unwrap();
    assert_eq!(reader.peek(2), Commit::in_progress(2), "begins before any byte changes");
    assert_eq!(read(&reader, 0), Err(DropReason::Overwritten));
    assert_eq!(read(&reader, 2), Err(DropReason::InProgress));
    assert_eq!(read(&reader, 4), Err(DropReason::Stale));
    writer.abort(&claim).unwrap();
}

// req: WIRE-8.3-11, WIRE-8.3-16, WIRE-8.3-17, WIRE-15.3-2, WIRE-8.3-21
#[test]
fn a_frame_that_changes_while_it_is_read_is_refused() {
    let r = ring(2, &[64]);
    let (mut writer, reader) = (r.writer(), r.reader());
    publish(&mut writer, &[1; 8]);
    let frame = reader.read(0).unwrap();
    let mut out = [0; 8];
    assert!(frame.copy_to(&mut out) && out == [1; 8]);
    publish(&mut writer, &[2; 8]);
    let claim = writer.claim(8, None).unwrap();
    assert!(!frame.still_valid(), "in progress");
    assert!(!frame.copy_to(&mut out));
    writer.commit(&claim, &bytes_header(8)).unwrap();
    assert!(!frame.still_valid(), "a later frame");
    r.raw().word(slot_offset(0)).store(Commit::committed(0).0 + 2 * 2, Ordering::Release);
    assert!(!frame.still_valid());
    assert_eq!(read(&reader, 0), Err(DropReason::Overwritten));
    assert_eq!(read(&reader, 2), Ok(vec![1; 8]), "the commit word decides, nothing else");
}

// req: WIRE-8.3-11, WIRE-15.3-2
#[test]
fn a_slot_that_changes_between_the_two_looks_is_refused_whatever_it_said() {
    let r = ring(2, &[64]);
    let (mut writer, reader) = (r.writer(), r.reader());
    publish(&mut writer, &[1; 8]);
    let spoil = || r.raw().store_slot(slot_offset(0), &[0xFF; SLOT_BYTES]);
    assert!(reader.read_with(0, spoil).is_ok(), "read before, and the word is the same");
    let begin = || r.raw().word(slot_offset(0)).store(Commit::in_progress(2).0, Ordering::Release);
    publish(&mut writer, &[1; 8]);
    assert_eq!(reader.read_with(1, || ()).unwrap().record().seq, 1);
    let next = || r.raw().word(slot_offset(1)).store(Commit::committed(3).0, Ordering::Release);
    assert_eq!(reader.read_with(1, next).unwrap_err(), DropReason::ChangedWhileReading);
    begin();
    assert_eq!(reader.read_with(0, || ()).unwrap_err(), DropReason::Overwritten);
}

// req: WIRE-10.2.2-7
#[test]
fn a_prefix_with_a_wrong_progress_stride_is_refused() {
    let r = ring(2, &[256]);
    let (mut writer, reader) = (r.writer(), r.reader());
    let rows = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::Rows, &[4, 5], &[]).unwrap();
    let header = FrameHeader { tensor: rows, values_len_bytes: 80, timestamp_ns: 1, meta_version: 2 };
    let claim = writer.claim(80, None).unwrap();
    writer.write_header(&claim, &header).unwrap();
    assert_eq!(reader.read_prefix(0, 45).unwrap().usable_bytes, 45, "contiguous: byte by byte");
    for wrong in [0u32, 16] {
        let mut slot = r.raw().load_slot(slot_offset(0));
        put(&mut slot, SLOT_TENSOR + tensor::PROGRESS_STRIDE_BYTES, wrong);
        r.raw().store_slot(slot_offset(0), &slot);
        assert_eq!(reader.read_prefix(0, 45).unwrap_err(), DropReason::ProgressStride, "{wrong}");
    }
}

/// Publishes one good frame, lets `spoil` change its slot, and says why it is dropped then.
fn spoiled(spoil: impl FnOnce(&mut [u8; SLOT_BYTES])) -> Result<Vec<u8>, DropReason> {
    let r = ring(4, &[64, 256]);
    let mut writer = r.writer();
    let tensor = Tensor::new(Dtype::F32, MajorOrder::Row, ProgressUnit::Rows, &[4, 5], &[]).unwrap();
    let header = FrameHeader { tensor, values_len_bytes: 80, timestamp_ns: 1, meta_version: 2 };
    writer.publish(&[9; 80], &header).unwrap();
    let raw = r.raw();
    let mut slot = raw.load_slot(slot_offset(0));
    spoil(&mut slot);
    raw.store_slot(slot_offset(0), &slot);
    let mapped = read(&r.reader(), 0);
    let copied = r
        .snapshot()
        .read(0, |record| vec![0; record.header.values_len_bytes as usize])
        .map(|(_, bytes)| bytes);
    assert_eq!(mapped, copied, "both ways of reading agree");
    mapped
}

// req: WIRE-8.2-13, WIRE-8.2-14, WIRE-8.2-16, WIRE-8.2-20, WIRE-8.2-22, WIRE-8.2-23, WIRE-8.2-27, WIRE-8.2-28, WIRE-8.3-12, WIRE-8.3-13, WIRE-8.3-14, WIRE-8.3-15, WIRE-10.2.1-13, WIRE-10.2.1-14, WIRE-10.2.1-15, WIRE-15.8-1, WIRE-15.20-3
#[test]
fn every_rule_has_its_own_reason() {
    use DropReason as Why;
    assert_eq!(spoiled(|_| {}), Ok(vec![9; 80]));
    let field = |offset: usize, value: u32| spoiled(move |slot| put(slot, offset, value)).unwrap_err();
    let short = |offset: usize, value: u16| spoiled(move |slot| put(slot, offset, value)).unwrap_err();
    let byte = |offset: usize, value: u8| spoiled(move |slot| slot[offset] = value).unwrap_err();
    let signed =
        |offset: usize, value: i32| spoiled(move |slot| put(slot, SLOT_TENSOR + offset, value)).unwrap_err();
    for length in [191, 0, 193, 1 << 31, u32::MAX] {
        assert_eq!(field(SLOT_HEADER_BYTES_LENGTH, length), Why::HeaderLength);
    }
    assert_eq!(field(at::PAYLOAD_OFFSET, 64), Why::PayloadOffset);
    for slot in [1, 4, u32::MAX] {
        assert_eq!(field(at::PAYLOAD_SLOT, slot), Why::PayloadSlot);
    }
    for pool in [0, 3, u16::MAX] {
        assert_eq!(short(at::POOL_ID, pool), Why::PoolId);
    }
    assert_eq!(field(at::VALUES_LEN_BYTES, 257), Why::ValuesTooLong);
    assert_eq!(field(at::VALUES_LEN_BYTES, u32::MAX), Why::ValuesTooLong);
    assert_eq!(short(at::POOL_ID, 1), Why::ValuesTooLong, "80 bytes in a pool of 64");
    assert_eq!(field(at::VALUES_LEN_BYTES, 79), Why::ExtentBeyondValues);
    assert_eq!(field(at::VALUES_LEN_BYTES, 0), Why::ExtentBeyondValues);
    for (offset, value) in [(0, 183), (2, 51), (4, 901), (6, 99)] {
        assert_eq!(short(SLOT_EMBEDDED_HEADER + offset, value), Why::EmbeddedHeader);
    }
    for dtype in [0, 12, 15, 0xFFFF] {
        assert_eq!(short(SLOT_TENSOR + tensor::DTYPE, dtype), Why::Dtype);
    }
    for order in [0, 3] {
        assert_eq!(short(SLOT_TENSOR + tensor::MAJOR_ORDER, order), Why::MajorOrder);
    }
    for ndims in [0, 9, 255] {
        assert_eq!(byte(SLOT_TENSOR + tensor::NDIMS, ndims), Why::Ndims);
    }
    assert_eq!(byte(SLOT_TENSOR + tensor::PROGRESS_UNIT, 3), Why::ProgressUnit);
    assert_eq!(signed(tensor::PROGRESS_STRIDE_BYTES, 0), Why::ProgressStride);
    assert_eq!(signed(tensor::PROGRESS_STRIDE_BYTES, 16), Why::ProgressStride);
    assert_eq!(signed(tensor::DIMS, -4), Why::NegativeDim);
    assert_eq!(signed(tensor::DIMS, i32::MAX), Why::ExtentBeyondValues);
    assert_eq!(signed(tensor::STRIDES, -20), Why::NegativeStride);
    assert_eq!(signed(tensor::STRIDES, 8), Why::StrideOverlap);
    assert_eq!(signed(tensor::STRIDES + 4, 80), Why::StrideOrder);
}

// req: WIRE-8.2-5, WIRE-8.2-18
#[test]
fn padding_means_nothing() {
    let noise = |slot: &mut [u8; SLOT_BYTES]| {
        slot[at::PAD..at::PAD + 26].fill(0xA5);
        slot[SLOT_TENSOR + tensor::PAD..].fill(0x5A);
        slot[SLOT_TENSOR + tensor::PAD_ALIGN] = 0xFF;
        slot[SLOT_TENSOR + tensor::DIMS + 8..SLOT_TENSOR + tensor::STRIDES].fill(0xFF);
    };
    assert_eq!(spoiled(noise), Ok(vec![9; 80]));
}

// req: WIRE-8.2-17, WIRE-8.3-7
#[test]
fn nothing_of_an_earlier_frame_survives_in_a_slot() {
    let r = ring(1, &[256]);
    let mut writer = r.writer();
    r.raw().store_slot(slot_offset(0), &[0xFF; SLOT_BYTES]);
    let wide = Tensor::new(Dtype::U8, MajorOrder::Row, ProgressUnit::Rows, &[2; 8], &[]).unwrap();
    writer
        .publish(
            &[1; 256],
            &FrameHeader { tensor: wide, values_len_bytes: 256, timestamp_ns: 9, meta_version: 9 },
        )
        .unwrap();
    publish(&mut writer, &[2; 6]);
    let slot = r.raw().load_slot(slot_offset(0));
    let mut fresh = crate::slot::encode(&bytes_header(6), 1, 1, 1).unwrap();
    fresh[..8].fill(0);
    assert_eq!(slot, fresh);
}

// req: WIRE-8.3-4
#[test]
fn sequence_numbers_only_grow_and_claims_end_in_order() {
    let r = ring(4, &[64]);
    let mut writer = r.writer();
    let (a, b) = (writer.claim(8, None).unwrap(), writer.claim(8, None).unwrap());
    assert_eq!((a.seq, b.seq), (0, 1));
    assert_eq!(writer.commit(&b, &bytes_header(8)), Err(ClaimError::Open(0)));
    assert_eq!(writer.publish(&[1; 8], &bytes_header(8)), Err(ClaimError::Open(0)));
    writer.commit(&a, &bytes_header(8)).unwrap();
    assert_eq!(writer.commit(&a, &bytes_header(8)), Err(ClaimError::Finished(0)));
    writer.commit(&b, &bytes_header(8)).unwrap();
    assert_eq!(writer.claim(8, Some(1)), Err(ClaimError::Seq { seq: 1, last: 1 }));
    let far = writer.claim(8, Some(100)).unwrap();
    writer.abort(&far).unwrap();
    assert_eq!(writer.abort(&far), Err(ClaimError::Finished(100)));
    assert_eq!(publish(&mut writer, &[1; 8]), 101);
    assert_eq!(writer.claim(8, Some(u64::MAX)), Err(ClaimError::Exhausted(u64::MAX)));
    let claims: Vec<_> = (0..4).map(|_| writer.claim(8, None).unwrap()).collect();
    assert_eq!(writer.claim(8, None), Err(ClaimError::Full(4)));
    claims.iter().for_each(|claim| writer.abort(claim).unwrap());
}

// req: WIRE-8.3-4
#[test]
fn a_later_writer_goes_on_behind_the_newest_frame() {
    let r = ring(4, &[64]);
    assert_eq!(r.writer().next_seq(), 0, "a fresh ring");
    for next in [1, 2, 3, 4, 5, 6] {
        publish(&mut r.writer(), &[1]);
        assert_eq!(r.writer().next_seq(), next);
    }
    r.writer().claim(1, Some(100)).unwrap();
    assert_eq!(r.writer().next_seq(), 101, "numbers that were only claimed are used up, too");
}

#[test]
fn the_last_sequence_number_is_not_followed_by_the_first() {
    let r = ring(4, &[64]);
    let (mut writer, last) = (r.writer(), crate::seqlock::MAX_SEQ);
    let claim = writer.claim(1, Some(last)).unwrap();
    writer.commit(&claim, &bytes_header(1)).unwrap();
    assert!(r.reader().read(last).is_ok());
    for seq in [None, Some(last + 1)] {
        assert_eq!(writer.claim(1, seq), Err(ClaimError::Exhausted(last + 1)));
    }
    assert_eq!(r.reader().peek(0), Commit(0), "no slot was touched");
}

#[test]
fn a_header_that_does_not_fit_costs_neither_a_slot_nor_a_number() {
    let r = ring(4, &[64]);
    let (mut writer, reader) = (r.writer(), r.reader());
    let lying = FrameHeader { values_len_bytes: 7, ..bytes_header(8) };
    assert_eq!(writer.publish(&[0; 8], &bytes_header(9)), Err(ClaimError::Length { length: 9, claimed: 8 }));
    assert_eq!(writer.publish(&[0; 8], &lying), Err(ClaimError::Extent { need: 8, length: 7 }));
    assert_eq!((writer.next_seq(), reader.peek(0)), (0, Commit(0)));
}

#[test]
fn a_header_must_fit_its_claim() {
    let r = ring(4, &[64]);
    let mut writer = r.writer();
    let claim = writer.claim(8, None).unwrap();
    assert_eq!(writer.commit(&claim, &bytes_header(9)), Err(ClaimError::Length { length: 9, claimed: 8 }));
    let lying = FrameHeader { values_len_bytes: 7, ..bytes_header(8) };
    assert!(matches!(writer.commit(&claim, &lying), Err(ClaimError::Extent { .. })));
    writer.commit(&claim, &bytes_header(8)).unwrap();
}

// req: WIRE-10.2.2-5, WIRE-10.2.2-6, WIRE-10.2.2-14, WIRE-10.2.2-15
#[test]
fn prefixes_of_frames_in_progress_are_provisional() {
    let r = ring(8, &[256]);
    let (mut writer, reader) = (r.writer(), r.reader());
    let claim = writer.claim(64, Some(19)).unwrap();
    assert_eq!(reader.read_prefix(19, 10).unwrap_err(), DropReason::HeaderLength, "no header yet");
    writer.write_header(&claim, &bytes_header(64)).unwrap();
    writer.copy_into(&claim, 0, &[3; 40]);
    let prefix = reader.read_prefix(19, 40).unwrap();
    let mut out = [0xEE; 64];
    assert!(prefix.copy_to(&mut out));
    assert_eq!((&out[..40], &out[40..]), (&[3; 40][..], &[0xEE; 24][..]), "not a byte more");
    assert_eq!(reader.read_prefix(19, 1 << 40).unwrap().usable_bytes, 64);
    assert_eq!(reader.read(19).unwrap_err(), DropReason::InProgress);
    writer.commit(&claim, &bytes_header(64)).unwrap();
    assert!(prefix.copy_to(&mut out), "committing changes only the lowest bit");
    assert_eq!(reader.read_prefix(11, 1).unwrap_err(), DropReason::Overwritten);
    assert_eq!(reader.read_prefix(27, 1).unwrap_err(), DropReason::Stale);

    for (unit, usable) in [(ProgressUnit::None, 0), (ProgressUnit::Rows, 64)] {
        let padded = Tensor::new(Dtype::U8, MajorOrder::Row, unit, &[4, 20], &[32, 1]).unwrap();
        let header = FrameHeader { tensor: padded, values_len_bytes: 128, timestamp_ns: 0, meta_version: 0 };
        let claim = writer.claim(128, None).unwrap();
        writer.write_header(&claim, &header).unwrap();
        assert_eq!(reader.read_prefix(claim.seq, 70).unwrap().usable_bytes, usable, "{unit:?}");
        writer.commit(&claim, &header).unwrap();
    }
}

// req: WIRE-15.22-19, WIRE-15.13-1
#[test]
fn one_bad_region_spoils_all() {
    let r = ring(4, &[64, 128, 256]);
    std::fs::OpenOptions::new().write(true).open(r.path("2.pool")).unwrap().set_len(100).unwrap();
    assert!(matches!(RingReader::open(&r.address, &r.bases, false), Err(RegionError::TooShort { .. })));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(r.dir.path().to_str().unwrap()), "nothing stays mapped");
    let r = ring(4, &[64, 128]);
    let fewer = RingAddress { pool_uris: r.address.pool_uris[..1].to_vec(), ..r.address.clone() };
    assert!(matches!(RingReader::open(&fewer, &r.bases, false), Err(RegionError::Geometry(_))));
    let swapped =
        RingAddress { pool_uris: r.address.pool_uris.iter().rev().cloned().collect(), ..r.address.clone() };
    assert!(matches!(RingReader::open(&swapped, &r.bases, false), Err(RegionError::Superblock { .. })));
}

#[test]
fn pools_above_four_gibibytes_work() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let g = geometry(8, &[1 << 30]);
    let sparse = CreateOptions { allocate: false, ..CreateOptions::default() };
    let address = create_ring(dir.path(), g, sparse).unwrap();
    let bases = BaseDirs::open([dir.path()]).unwrap();
    let mut writer = RingWriter::open(&address, &bases).unwrap();
    let reader = Arc::new(RingReader::open(&address, &bases, false).unwrap());
    for seq in 0..8u8 {
        publish(&mut writer, &[seq + 1; 16]);
    }
    for seq in 0..8u8 {
        assert_eq!(read(&reader, seq.into()), Ok(vec![seq + 1; 16]), "each in its own slot");
    }
}

#[test]
fn a_truncated_file_ends_a_snapshot_reader_with_a_reason_not_a_signal() {
    let r = ring(4, &[4096]);
    let mut writer = r.writer();
    publish(&mut writer, &[1; 4096]);
    let snapshot = r.snapshot();
    let get = || {
        snapshot.read(0, |record| vec![0; record.header.values_len_bytes as usize]).map(|(_, bytes)| bytes)
    };
    assert_eq!(get(), Ok(vec![1; 4096]));
    std::fs::OpenOptions::new().write(true).open(r.path("1.pool")).unwrap().set_len(100).unwrap();
    assert_eq!(get(), Err(DropReason::Truncated));
    std::fs::OpenOptions::new().write(true).open(r.path("header.ring")).unwrap().set_len(0).unwrap();
    assert_eq!(get(), Err(DropReason::Truncated));
    assert_eq!((snapshot.bell_seen(), snapshot.newest()), (None, None));
    assert!(
        !snapshot.doorbell().wait(0, std::time::Duration::from_millis(2)),
        "the kernel says no, without a signal"
    );
}

#[test]
fn views_keep_the_mapping_alive() {
    let r = ring(4, &[64]);
    let mut writer = r.writer();
    publish(&mut writer, &[5; 64]);
    let frame = r.reader().read(0).unwrap();
    drop((writer, r));
    let payload = frame.payload().unwrap();
    // SAFETY: `frame` holds the ring, and with it the mapping.
    assert_eq!(unsafe { std::slice::from_raw_parts(payload, 64) }, [5; 64]);
}

#[path = "cursor_tests.rs"]
mod cursors;
#[path = "trail_tests.rs"]
mod trails;

/// Somebody sleeps between frames: from some frame on the bell rings before it is complete.
#[test]
fn a_sleeper_is_woken_while_its_frame_is_filled() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return; // never early where the reader would wait on the writer's only core
    }
    let r = ring(8, &[4096]);
    let (mut writer, reader) = (r.writer(), r.reader());
    let (header, is_over) = (bytes_header(8), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                reader.doorbell().wait(reader.doorbell().seen(), Duration::from_millis(100));
            }
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        let rang_early = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(1));
            let claim = writer.claim(8, None).unwrap();
            let before = reader.doorbell().seen();
            writer.ring_ahead();
            let rang = reader.doorbell().seen() != before;
            writer.commit(&claim, &header).unwrap();
            writer.ring_all(monotonic_ns());
            rang
        })
        .take_while(|_| Instant::now() < deadline)
        .any(|rang| rang);
        is_over.store(true, Ordering::Relaxed);
        assert!(rang_early, "half a minute of frames, and none was rung for early");
    });
}

#[test]
fn nobody_is_woken_early_where_nobody_sleeps() {
    let r = ring(8, &[1 << 20]);
    let (mut writer, reader) = (r.writer(), r.reader());
    for _ in 0..20 {
        let claim = writer.claim(8, None).unwrap();
        let before = reader.doorbell().seen();
        writer.ring_ahead();
        assert_eq!(reader.doorbell().seen(), before);
        writer.commit(&claim, &bytes_header(8)).unwrap();
        writer.ring_all(monotonic_ns());
    }
}

/// Parts of the first frames go through the cache and past it, and so do those of a trial later on.
#[test]
fn large_frames_are_whole_whichever_way_they_are_copied() {
    const SLOTS: u32 = 4;
    let ring = ring(SLOTS, &[1 << 19]);
    let (mut writer, reader) = (ring.writer(), ring.reader());
    for n in 0..40 * SLOTS {
        writer.bypass_cache(n / 7 % 2 == 1);
        let len = [64 << 10, (64 << 10) - 1, (128 << 10) + 1, 300_001, 1 << 19][n as usize % 5];
        let payload: Vec<u8> =
            (0..len).map(|at: usize| (at * 7 + at / 4096 + n as usize * 31) as u8).collect();
        let seq = publish(&mut writer, &payload);
        assert!(read(&reader, seq).unwrap() == payload, "frame {n} of {len} bytes");
    }
}

/// Lines that say it already are not written again; whatever differs anywhere is.
#[test]
fn a_slot_says_what_its_frame_is_whatever_it_said_before() {
    let tensor = |dtype, order, unit, dims: &[i32], strides: &[i32]| {
        Tensor::new(dtype, order, unit, dims, strides).unwrap()
    };
    let (row, none) = (MajorOrder::Row, ProgressUnit::None);
    let tensors = [
        tensor(Dtype::U8, row, none, &[48], &[]),
        tensor(Dtype::U8, row, none, &[48], &[]), // the same again
        tensor(Dtype::U16, MajorOrder::Column, none, &[4, 6], &[]),
        tensor(Dtype::U8, row, ProgressUnit::Rows, &[4, 4], &[8, 1]),
        tensor(Dtype::U8, row, none, &[1, 1, 1, 1, 1, 1, 2, 3], &[]),
        tensor(Dtype::F64, row, none, &[6], &[]),
    ];
    let ring = ring(1, &[64, 128]);
    let (mut writer, reader, raw) = (ring.writer(), ring.reader(), ring.raw());
    for n in 0..tensors.len() * tensors.len() {
        // Every one after every other.
        for tensor in [tensors[n / tensors.len()], tensors[n % tensors.len()]] {
            let header = FrameHeader {
                tensor,
                values_len_bytes: if n % 3 == 0 { 48 } else { 100 },
                timestamp_ns: n as u64 / 2,
                meta_version: n as u32 / 5,
            };
            let seq = writer.publish(&vec![7; header.values_len_bytes as usize], &header).unwrap();
            let pool_id = if header.values_len_bytes <= 64 { 1 } else { 2 };
            let wanted = crate::slot::encode(&header, seq, pool_id, 1).unwrap();
            assert_eq!(raw.load_slot(slot_offset(0)), wanted, "frame {seq}");
            assert_eq!(reader.read(seq).unwrap().record().header.tensor, tensor, "frame {seq}");
        }
    }
}
