//! Decoders of bytes that anybody may have written: no panic, and no verdict that the oracle doesn't share.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tp_core::hot::{FrameDescriptor, FrameProgress, ProgressState};
use tp_core::region::{RegionKind, Superblock};
use tp_core::ring::{Geometry, Pool};
use tp_core::seqlock::{Commit, MAX_SEQ};
use tp_core::slot::{self, FrameHeader, slot_index};
use tp_core::uri::RegionUri;

use super::targets::{self, NSLOTS, POOLS};
use super::tensors::{shapes, units};

/// Changes to a few bytes: random ones, or values at the borders of their types.
#[derive(Debug, Clone)]
struct Damage(Vec<(Index, Vec<u8>)>);

impl Damage {
    fn apply(&self, bytes: &mut [u8]) {
        for (place, patch) in &self.0 {
            let at = place.index(bytes.len());
            for (to, from) in bytes[at..].iter_mut().zip(patch) {
                *to = *from;
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let patch = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..=4),
        select(vec![
            vec![0],
            vec![0xFF],
            vec![1, 0, 0, 0],
            vec![0; 4],
            vec![0xFF; 4],
            vec![0xFF, 0xFF, 0xFF, 0x7F],
            vec![0; 8]
        ]),
    ];
    prop::collection::vec((any::<Index>(), patch), 0..=3).prop_map(Damage)
}

fn geometry() -> Geometry {
    let pools = POOLS.map(|(pool_id, stride_bytes)| Pool { pool_id, stride_bytes }).to_vec();
    Geometry { stream_id: 10_000, epoch: 5, nslots: NSLOTS, pools }
}

/// Headers that a producer could write, with at most 64 bytes behind the last element.
fn headers() -> impl Strategy<Value = FrameHeader> {
    (shapes(), units(), 0..=64u32, any::<u64>(), any::<u32>()).prop_filter_map(
        "not a layout",
        |(shape, unit, more, timestamp_ns, meta_version)| {
            let tensor = shape.tensor(unit).ok()?;
            let values_len_bytes = tensor.extent_bytes() as u32 + more;
            Some(FrameHeader { tensor, values_len_bytes, timestamp_ns, meta_version })
        },
    )
}

/// A slot as a producer leaves it, commit word included.
fn written(header: &FrameHeader, seq: u64) -> [u8; 256] {
    let pool = geometry().pool_for(header.values_len_bytes).unwrap();
    let mut bytes = slot::encode(header, seq, POOLS[pool].0, NSLOTS).unwrap();
    bytes[..8].copy_from_slice(&Commit::committed(seq).0.to_le_bytes());
    bytes
}

/// Chunks of a frame, in both dialects.
fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (any::<u32>(), any::<u64>(), any::<u64>(), any::<bool>(), 0..3u32, 1..4u32, 0..100u32);
    (numbers, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(numbers, payload)| {
        let (stream_id, epoch, seq, newer, index, later, offset) = numbers;
        let (offset, header) = if index == 0 { (0, vec![7; 256]) } else { (offset, vec![]) };
        let length = payload.len() as u32;
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        for n in [if newer { 53u16 } else { 41 }, 1, 902, 1] {
            put(&n.to_le_bytes());
        }
        put(&stream_id.to_le_bytes());
        put(&epoch.to_le_bytes());
        put(&seq.to_le_bytes());
        if newer {
            put(&[9; 8]);
        }
        for n in [index, index + later, offset, length, offset + length] {
            put(&n.to_le_bytes());
        }
        if newer {
            put(&[5; 4]);
        }
        put(&[u8::from(index == 0)]);
        for part in [&header, &payload] {
            put(&(part.len() as u32).to_le_bytes());
            put(part);
        }
        out
    })
}

fn descriptors() -> impl Strategy<Value = FrameDescriptor> {
    let some = (any::<u32>(), any::<u64>(), any::<u64>());
    let optional = (any::<Option<u64>>(), any::<Option<u32>>(), any::<Option<u64>>());
    (some, optional).prop_map(|((stream_id, epoch, seq), (time, version, trace))| FrameDescriptor {
        stream_id,
        epoch,
        seq,
        timestamp_ns: time.filter(|n| *n != u64::MAX),
        meta_version: version.filter(|n| *n != u32::MAX),
        trace_id: trace.filter(|n| *n != 0 && *n != u64::MAX),
    })
}

fn progress() -> impl Strategy<Value = FrameProgress> {
    use ProgressState::*;
    (any::<(u32, u64, u64, u64)>(), select(vec![Unknown, Started, Progress, Complete])).prop_map(
        |((stream_id, epoch, seq, payload_bytes_filled), state)| FrameProgress {
            stream_id,
            epoch,
            seq,
            payload_bytes_filled,
            state,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // req: WIRE-9-7, WIRE-10.2.1-12
    #[test]
    fn slots_are_read_back_as_written(header in headers(), seq in 0..=MAX_SEQ) {
        let bytes = written(&header, seq);
        let record = slot::decode(&bytes, seq, &geometry()).unwrap();
        prop_assert_eq!((record.seq, record.header.tensor), (seq, header.tensor));
        prop_assert_eq!(record.header.values_len_bytes, header.values_len_bytes);
        prop_assert_eq!((record.header.timestamp_ns, record.header.meta_version), (header.timestamp_ns, header.meta_version));
        prop_assert_eq!(u64::from(slot_index(seq, NSLOTS)), seq % u64::from(NSLOTS));
        prop_assert!(targets::slot(&bytes), "the oracle accepts it too");
    }

    #[test]
    fn damaged_slots_are_judged_as_the_oracle_judges_them(header in headers(), seq in 0..=MAX_SEQ, damage in damage()) {
        let mut bytes = written(&header, seq);
        damage.apply(&mut bytes);
        targets::slot(&bytes);
        let tensor = [&bytes[64..], &header.values_len_bytes.to_le_bytes()[..]].concat();
        targets::tensor(&tensor);
    }

    #[test]
    fn random_bytes_harm_no_decoder(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, target) in targets::TARGETS {
            target(&bytes);
        }
    }

    // req: WIRE-15.13-1
    #[test]
    fn damaged_superblocks_are_judged_as_the_oracle_judges_them(
        stream_id in any::<u32>(), epoch in any::<u64>(), nslots in any::<u32>(),
        pool in any::<Option<(u16, u32)>>(), damage in damage(),
    ) {
        let kind = pool.map_or(RegionKind::HeaderRing, |(pool_id, stride_bytes)| RegionKind::PayloadPool { pool_id, stride_bytes });
        let want = Superblock { stream_id, epoch, kind, nslots };
        let mut bytes = want.encode(1, 2);
        prop_assert!(want.check(&bytes).is_ok() && targets::superblock(&bytes));
        damage.apply(&mut bytes);
        let accepted = targets::oracle::superblock(&bytes, stream_id, epoch, nslots, pool);
        prop_assert_eq!(want.check(&bytes).is_ok(), accepted);
        targets::superblock(&bytes);
    }

    #[test]
    fn damaged_chunks_are_judged_as_the_oracle_judges_them(packet in chunks(), damage in damage(), keep in any::<Index>()) {
        prop_assert!(targets::chunk(&packet));
        let mut damaged = packet.clone();
        damage.apply(&mut damaged);
        targets::chunk(&damaged);
        prop_assert!(!targets::chunk(&packet[..keep.index(packet.len())]), "cut short");
    }

    #[test]
    fn messages_are_read_back_as_written(descriptor in descriptors(), progress in progress(), damage in damage()) {
        prop_assert_eq!(FrameDescriptor::decode(&descriptor.encode()), Some(descriptor));
        prop_assert_eq!(FrameProgress::decode(&progress.encode()), Some(progress));
        prop_assert_eq!(FrameProgress::decode(&descriptor.encode()), None);
        for message in [&mut descriptor.encode()[..], &mut progress.encode()[..]] {
            prop_assert!(targets::descriptor(message));
            damage.apply(message);
            targets::descriptor(message);
        }
    }

    // req: WIRE-15.22-1, WIRE-15.22-5, WIRE-15.22-11
    #[test]
    fn paths_survive_a_uri_or_are_refused(path in "/[!-~]{0,40}|\\PC{0,20}|/x{4090,4200}", huge in any::<bool>()) {
        let text = format!("shm:file?path={path}{}", if huge { "|require_hugepages=true" } else { "" });
        let formatted = RegionUri::format(&path, huge);
        if targets::oracle::uri(&text) == Some((&path, huge)) {
            prop_assert_eq!(formatted.as_ref(), Ok(&text));
            prop_assert_eq!(RegionUri::parse(&text), Ok(RegionUri { path, require_hugepages: huge }));
        } else {
            prop_assert!(formatted.is_err(), "{:?}", formatted);
        }
    }

    #[test]
    fn texts_like_uris_are_judged_as_the_oracle_judges_them(
        text in "(shm:file\\?path=){0,2}(/|[!-~ ]{0,3}){0,4}(\\|(require_hugepages=(true|false|[a-zA-Z]{0,3})|path=|[a-z]{0,3}=?)){0,2}",
    ) {
        targets::uri(text.as_bytes());
    }
}
