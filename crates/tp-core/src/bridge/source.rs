//! What a stream is on the host that it comes from.

use super::losses::Lost;
use crate::bytes::get;
use crate::layout::{
    HEADER_BYTES_LENGTH, SLOT_BYTES, SLOT_EMBEDDED_HEADER, SLOT_HEADER_BYTES_LENGTH, slot as at,
};
use crate::seqlock::Commit;
use crate::slot::FrameHeader;
use crate::tensor::Tensor;

/// What a stream's latest announce says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    epoch: u64,
    /// Numbers and strides of its pools.
    pools: Vec<(u16, u32)>,
}

impl Source {
    /// What an announce says.
    pub fn new(epoch: u64, pools: Vec<(u16, u32)>) -> Self {
        Self { epoch, pools }
    }

    /// Its epoch there.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The longest payload that it can have.
    pub fn largest_stride(&self) -> u32 {
        self.pools.iter().map(|pool| pool.1).max().unwrap_or(0)
    }

    /// Reads the slot of a frame, as it was there.
    ///
    /// # Errors
    /// It is not that of this frame, or makes no sense.
    pub fn header(
        &self,
        slot: &[u8; SLOT_BYTES],
        seq: u64,
        payload_length: u32,
    ) -> Result<FrameHeader, Lost> {
        let pool_id: u16 = get(slot, at::POOL_ID);
        let fits = self.pools.iter().any(|(id, stride)| *id == pool_id && payload_length <= *stride);
        let is_right = Commit(get(slot, at::SEQ_COMMIT)).seq() == seq
            && get::<u32>(slot, SLOT_HEADER_BYTES_LENGTH) == HEADER_BYTES_LENGTH
            && get::<u32>(slot, at::PAYLOAD_OFFSET) == 0
            && get::<u32>(slot, at::VALUES_LEN_BYTES) == payload_length;
        if !is_right || !fits {
            return Err(Lost::Header);
        }
        let embedded = slot[SLOT_EMBEDDED_HEADER..].first_chunk().expect("a slot holds a tensor header");
        let tensor = Tensor::decode(embedded, payload_length).map_err(|_| Lost::Header)?;
        Ok(FrameHeader {
            tensor,
            values_len_bytes: payload_length,
            timestamp_ns: get(slot, at::TIMESTAMP_NS),
            meta_version: get(slot, at::META_VERSION),
        })
    }
}
