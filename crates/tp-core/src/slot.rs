//! A header slot: 256 bytes in shared memory that describe one frame.

use crate::bytes::{get, put};
use crate::drops::DropReason;
use crate::layout::{
    HEADER_BYTES_LENGTH, SLOT_BYTES, SLOT_EMBEDDED_HEADER, SLOT_HEADER_BYTES_LENGTH, payload_offset,
    slot as at,
};
use crate::ring::Geometry;
use crate::tensor::{TENSOR_HEADER_BYTES, Tensor};

/// What a producer says about a frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    /// What the bytes mean.
    pub tensor: Tensor,
    /// Length of the payload.
    pub values_len_bytes: u32,
    /// Capture time of the payload.
    pub timestamp_ns: u64,
    /// Version of the metadata that applies; 0 without metadata (decision B16).
    pub meta_version: u32,
}

/// Where a checked frame lies, and what it is.
#[derive(Debug, Clone, Copy)]
pub struct FrameRecord {
    /// Sequence number.
    pub seq: u64,
    /// What the producer says about it.
    pub header: FrameHeader,
    /// Which pool of the geometry holds the payload; none for an empty one [WIRE-8.2-32].
    pub pool: Option<usize>,
    /// Byte offset of the payload in the pool's file.
    pub payload_offset: u64,
}

/// The slot of frame `seq`, commit word excluded (it stays 0: the seqlock owns it).
///
/// Every byte is written afresh, so nothing of an earlier frame survives [WIRE-8.3-7].
pub fn encode(
    header: &FrameHeader,
    seq: u64,
    pool_id: u16,
    nslots: u32,
) -> Result<[u8; SLOT_BYTES], DropReason> {
    let mut slot = [0; SLOT_BYTES];
    put(&mut slot, at::VALUES_LEN_BYTES, header.values_len_bytes);
    put(&mut slot, at::PAYLOAD_SLOT, slot_index(seq, nslots));
    put(&mut slot, at::POOL_ID, pool_id);
    put(&mut slot, at::PAYLOAD_OFFSET, 0u32);
    put(&mut slot, at::TIMESTAMP_NS, header.timestamp_ns);
    put(&mut slot, at::META_VERSION, header.meta_version);
    put(&mut slot, SLOT_HEADER_BYTES_LENGTH, HEADER_BYTES_LENGTH);
    let (_, embedded) =
        slot.split_last_chunk_mut::<TENSOR_HEADER_BYTES>().expect("a slot holds a tensor header");
    header.tensor.encode(embedded)?;
    Ok(slot)
}

/// Reads and checks the slot of frame `seq`; the commit word has been looked at already.
pub fn decode(slot: &[u8; SLOT_BYTES], seq: u64, geometry: &Geometry) -> Result<FrameRecord, DropReason> {
    if get::<u32>(slot, SLOT_HEADER_BYTES_LENGTH) != HEADER_BYTES_LENGTH {
        return Err(DropReason::HeaderLength);
    }
    if get::<u32>(slot, at::PAYLOAD_OFFSET) != 0 {
        return Err(DropReason::PayloadOffset);
    }
    let index = slot_index(seq, geometry.nslots);
    if get::<u32>(slot, at::PAYLOAD_SLOT) != index {
        return Err(DropReason::PayloadSlot);
    }
    let values_len_bytes: u32 = get(slot, at::VALUES_LEN_BYTES);
    let pool_id: u16 = get(slot, at::POOL_ID);
    // The pool of an empty payload is never touched, so it need not exist.
    let pool = match (values_len_bytes, geometry.pools.iter().position(|pool| pool.pool_id == pool_id)) {
        (0, _) => None,
        (_, None) => return Err(DropReason::PoolId),
        (_, some) => some,
    };
    let stride_bytes = pool.map_or(0, |pool| geometry.pools[pool].stride_bytes);
    if values_len_bytes > stride_bytes {
        return Err(DropReason::ValuesTooLong);
    }
    let embedded = slot[SLOT_EMBEDDED_HEADER..].first_chunk().expect("a slot holds a tensor header");
    let header = FrameHeader {
        tensor: Tensor::decode(embedded, values_len_bytes)?,
        values_len_bytes,
        timestamp_ns: get(slot, at::TIMESTAMP_NS),
        meta_version: get(slot, at::META_VERSION),
    };
    Ok(FrameRecord { seq, header, pool, payload_offset: payload_offset(index, stride_bytes) })
}

/// Which slot frame `seq` lives in [WIRE-10.2.1-12].
#[inline]
pub const fn slot_index(seq: u64, nslots: u32) -> u32 {
    (seq & (nslots as u64 - 1)) as u32
}
