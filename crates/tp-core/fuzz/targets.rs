//! What is fuzzed: each target decodes bytes that anybody may have written and compares the result with the
//! oracle's. `fuzz_targets/` runs them under libFuzzer, `tests/fuzz_corpora.rs` replays the committed corpora
//! and `tests/properties` feeds them random near-misses. Each returns whether the bytes were accepted.

pub mod assembly;
pub mod oracle;

use tp_core::bytes::get;
use tp_core::chunk::Chunk;
use tp_core::hot::{FrameDescriptor, FrameProgress};
use tp_core::region::{RegionKind, Superblock};
use tp_core::ring::{Geometry, Pool};
use tp_core::slot;
use tp_core::tensor::{TENSOR_HEADER_BYTES, Tensor};
use tp_core::uri::RegionUri;

/// Pools of the ring that slots are read in.
pub const POOLS: [(u16, u32); 2] = [(1, 4096), (2, 65_536)];
/// Slots of that ring.
pub const NSLOTS: u32 = 8;

/// A target: bytes in, accepted or not out; panics where crate and oracle disagree.
pub type Target = fn(&[u8]) -> bool;

/// All targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 7] = [
    ("uri", uri),
    ("superblock", superblock),
    ("slot", slot),
    ("tensor", tensor),
    ("chunk", chunk),
    ("descriptor", descriptor),
    ("assembly", assembly::assembly),
];

/// Region URIs.
pub fn uri(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let parsed = RegionUri::parse(text);
    let found = parsed.as_ref().ok().map(|uri| (uri.path.as_str(), uri.require_hugepages));
    assert_eq!(found, oracle::uri(text), "{text:?}");
    let Ok(uri) = parsed else { return false };
    let formatted =
        RegionUri::format(&uri.path, uri.require_hugepages).expect("what was parsed can be formatted");
    assert_eq!(RegionUri::parse(&formatted), Ok(uri));
    true
}

/// Superblocks: 64 bytes, against what they say of themselves and against a fixed announce.
pub fn superblock(data: &[u8]) -> bool {
    let Some(bytes) = data.first_chunk::<64>() else { return false };
    let pool = (get(bytes, 26), get(bytes, 36));
    let own = (get(bytes, 20), get(bytes, 12), get(bytes, 28));
    let mut accepted = false;
    for (stream_id, epoch, nslots) in [own, (10_000, 5, 1024)] {
        for pool in [None, Some(pool), Some((1, 4096))] {
            let kind = pool.map_or(RegionKind::HeaderRing, |(pool_id, stride_bytes)| {
                RegionKind::PayloadPool { pool_id, stride_bytes }
            });
            let want = Superblock { stream_id, epoch, kind, nslots };
            let found = want.check(bytes).is_ok();
            assert_eq!(found, oracle::superblock(bytes, stream_id, epoch, nslots, pool), "{want:?}");
            assert_eq!(want.check(&want.encode(7, 8)), Ok(()), "what is written can be read");
            accepted |= found;
        }
    }
    accepted
}

/// Slots: 256 bytes, of the frame that their own commit word names.
pub fn slot(data: &[u8]) -> bool {
    let Some(bytes) = data.first_chunk::<256>() else { return false };
    let pools = POOLS.map(|(pool_id, stride_bytes)| Pool { pool_id, stride_bytes });
    let geometry = Geometry { stream_id: 10_000, epoch: 5, nslots: NSLOTS, pools: pools.to_vec() };
    let seq = get::<u64>(bytes, 0) >> 1;
    let (found, wanted) = (slot::decode(bytes, seq, &geometry), oracle::slot(bytes, seq, NSLOTS, &POOLS));
    assert_eq!(found.is_ok(), wanted.is_some(), "{found:?} {wanted:?}");
    let (Ok(record), Some(wanted)) = (found, wanted) else { return false };
    assert_eq!(record.seq, seq);
    assert_eq!(i128::from(record.header.values_len_bytes), wanted.values_len);
    assert_eq!(i128::from(record.header.timestamp_ns), wanted.timestamp_ns);
    assert_eq!(i128::from(record.header.meta_version), wanted.meta_version);
    assert_eq!(record.pool.map(|pool| (pool, i128::from(record.payload_offset))), wanted.place);
    assert_same_layout(&record.header.tensor, &wanted.layout);
    // Written again it is the same frame.
    let pool_id = record.pool.map_or(1, |pool| POOLS[pool].0);
    let again = slot::encode(&record.header, seq, pool_id, NSLOTS).expect("what was read can be written");
    let again = slot::decode(&again, seq, &geometry).expect("what was written can be read");
    assert_eq!((again.pool, again.payload_offset), (record.pool, record.payload_offset));
    assert_eq!(again.header.tensor, record.header.tensor);
    true
}

/// Embedded tensor headers: 192 bytes, then optionally the length of the payload.
pub fn tensor(data: &[u8]) -> bool {
    let Some((bytes, rest)) = data.split_first_chunk::<TENSOR_HEADER_BYTES>() else { return false };
    let values_len = rest.first_chunk::<4>().map_or(u32::MAX, |len| u32::from_le_bytes(*len));
    let (found, wanted) = (Tensor::decode(bytes, values_len), oracle::tensor(bytes, values_len.into()));
    assert_eq!(found.is_ok(), wanted.is_some(), "{found:?} {wanted:?}");
    let (Ok(tensor), Some(wanted)) = (found, wanted) else { return false };
    assert_same_layout(&tensor, &wanted);
    let mut again = [0; TENSOR_HEADER_BYTES];
    tensor.encode(&mut again).expect("what was read can be written");
    assert_eq!(Tensor::decode(&again, values_len), Ok(tensor), "what was written reads the same");
    true
}

fn assert_same_layout(tensor: &Tensor, wanted: &oracle::Layout) {
    // Strides of dimensions that hold at most one element may exceed 64 bits; the crate saturates.
    let strides: Vec<_> = wanted.strides.iter().map(|stride| (*stride).min(u64::MAX.into())).collect();
    assert_eq!(tensor.shape().iter().map(|dim| i128::from(*dim)).collect::<Vec<_>>(), wanted.shape);
    assert_eq!(tensor.strides().iter().map(|stride| i128::from(*stride)).collect::<Vec<_>>(), strides);
    assert_eq!(i128::from(tensor.dtype as i16), wanted.dtype);
    assert_eq!(i128::from(tensor.order as i16), wanted.order);
    assert_eq!(i128::from(tensor.progress_unit as u8), wanted.progress_unit);
    let element = oracle::element_bytes(wanted.dtype).expect("a dtype that was accepted");
    assert_eq!(i128::from(tensor.extent_bytes()), wanted.extent(element));
}

/// Bridge chunks.
pub fn chunk(data: &[u8]) -> bool {
    let (found, wanted) = (Chunk::decode(data), oracle::chunk(data));
    assert_eq!(found.is_ok(), wanted.is_some(), "{found:?}");
    let (Ok(chunk), Some((header, payload))) = (found, wanted) else { return false };
    assert_eq!((chunk.header.map_or(&[][..], |bytes| bytes), chunk.payload), (header, payload));
    assert!(
        chunk.index < chunk.count
            && chunk.offset as usize + chunk.payload.len() <= chunk.payload_length as usize
    );
    true
}

/// Frame descriptors and frame progress.
pub fn descriptor(data: &[u8]) -> bool {
    let descriptor = FrameDescriptor::decode(data);
    let block = oracle::control_block(data, 4, 40);
    assert_eq!(descriptor.is_some(), block.is_some(), "{descriptor:?}");
    if let (Some(found), Some(block)) = (descriptor, block) {
        assert_eq!(i128::from(found.seq), oracle::number(block, 12, 8));
        let trace = Some(get::<u64>(block, 32)).filter(|id| *id != 0 && *id != u64::MAX);
        assert_eq!(found.trace_id, trace);
        let again = found.encode();
        assert_eq!(FrameDescriptor::decode(&again), Some(found));
        assert_eq!(&again[8..40], &block[..32], "all but the trace, which has two spellings of none");
    }
    let progress = FrameProgress::decode(data);
    let block = oracle::control_block(data, 11, 29).filter(|block| block[28] <= 3);
    assert_eq!(progress.is_some(), block.is_some(), "{progress:?}");
    if let (Some(found), Some(block)) = (progress, block) {
        assert_eq!(&found.encode()[8..], &block[..29]);
    }
    descriptor.is_some() || progress.is_some()
}
