//! The messages of the data plane that Rust codes itself: `FrameDescriptor` and `FrameProgress`.

use crate::bytes::{get, put};
use crate::layout::{
    CONTROL_SCHEMA_ID, MESSAGE_HEADER_BYTES, SCHEMA_VERSION, Table, descriptor as d, progress as p,
};

/// Bytes of a framed `FrameDescriptor`.
pub const DESCRIPTOR_BYTES: usize = MESSAGE_HEADER_BYTES + d::BLOCK_LENGTH;
/// Bytes of a framed `FrameProgress`.
pub const PROGRESS_BYTES: usize = MESSAGE_HEADER_BYTES + p::BLOCK_LENGTH;

const NULL_U64: u64 = u64::MAX;
const NULL_U32: u32 = u32::MAX;

/// The four numbers before every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Length of the block that follows.
    pub block_length: u16,
    /// Which message.
    pub template_id: u16,
    /// Of which schema.
    pub schema_id: u16,
    /// In which version.
    pub version: u16,
}

impl MessageHeader {
    /// Reads the header of `message`, if it is long enough to have one.
    #[inline]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let head = message.first_chunk::<MESSAGE_HEADER_BYTES>()?;
        Some(Self {
            block_length: get(head, 0),
            template_id: get(head, 2),
            schema_id: get(head, 4),
            version: get(head, 6),
        })
    }

    /// Writes the header of a message of `table` before its block.
    #[inline]
    pub(crate) fn encode(table: &Table, out: &mut [u8]) {
        put(out, 0, table.block_length as u16);
        put(out, 2, table.template_id);
        put(out, 4, table.schema_id);
        put(out, 6, SCHEMA_VERSION);
    }

    /// The block of `message`, when this is a message of schema 900 with `template_id`, at least as long as
    /// ours: a longer block comes from a later version, and what it adds is skipped (decision B13).
    #[inline]
    fn control_block(message: &[u8], template_id: u16, block_length: usize) -> Option<&[u8]> {
        let head = Self::decode(message)?;
        let known = head.schema_id == CONTROL_SCHEMA_ID
            && head.template_id == template_id
            && head.version >= SCHEMA_VERSION
            && usize::from(head.block_length) >= block_length;
        // Fixed-size messages: nothing may follow the block.
        (known && message.len() == MESSAGE_HEADER_BYTES + usize::from(head.block_length))
            .then(|| &message[MESSAGE_HEADER_BYTES..])
    }
}

/// One frame is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameDescriptor {
    /// Pool stream.
    pub stream_id: u32,
    /// Epoch of the regions.
    pub epoch: u64,
    /// Sequence number.
    pub seq: u64,
    /// When the descriptor was sent, if told.
    pub timestamp_ns: Option<u64>,
    /// Version of the metadata, if told.
    pub meta_version: Option<u32>,
    /// Trace, if there is one: 0 and the null of the type both mean none (decision B5).
    pub trace_id: Option<u64>,
}

impl FrameDescriptor {
    /// Writes the framed message.
    #[inline]
    pub fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut out = [0; DESCRIPTOR_BYTES];
        MessageHeader::encode(&d::TABLE, &mut out);
        let block = &mut out[MESSAGE_HEADER_BYTES..];
        put(block, d::STREAM_ID, self.stream_id);
        put(block, d::EPOCH, self.epoch);
        put(block, d::SEQ, self.seq);
        put(block, d::TIMESTAMP_NS, self.timestamp_ns.unwrap_or(NULL_U64));
        put(block, d::META_VERSION, self.meta_version.unwrap_or(NULL_U32));
        put(block, d::TRACE_ID, self.trace_id.unwrap_or(0));
        out
    }

    /// Reads a framed message; none when it is something else.
    #[inline]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let block = MessageHeader::control_block(message, d::TEMPLATE_ID, d::BLOCK_LENGTH)?;
        Some(Self {
            stream_id: get(block, d::STREAM_ID),
            epoch: get(block, d::EPOCH),
            seq: get(block, d::SEQ),
            timestamp_ns: Some(get(block, d::TIMESTAMP_NS)).filter(|t| *t != NULL_U64),
            meta_version: Some(get(block, d::META_VERSION)).filter(|v| *v != NULL_U32),
            trace_id: Some(get(block, d::TRACE_ID)).filter(|t| !matches!(*t, 0 | NULL_U64)),
        })
    }
}

/// How far a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ProgressState {
    /// Not told.
    Unknown = 0,
    /// The slot is being filled from now on.
    Started = 1,
    /// More bytes are there.
    Progress = 2,
    /// All bytes are written; the commit word still decides.
    Complete = 3,
}

/// Part of a frame is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameProgress {
    /// Pool stream.
    pub stream_id: u32,
    /// Epoch of the regions.
    pub epoch: u64,
    /// Sequence number.
    pub seq: u64,
    /// Bytes from the start of the payload that are written.
    pub payload_bytes_filled: u64,
    /// How far it is.
    pub state: ProgressState,
}

impl FrameProgress {
    /// Writes the framed message.
    #[inline]
    pub fn encode(&self) -> [u8; PROGRESS_BYTES] {
        let mut out = [0; PROGRESS_BYTES];
        MessageHeader::encode(&p::TABLE, &mut out);
        let block = &mut out[MESSAGE_HEADER_BYTES..];
        put(block, p::STREAM_ID, self.stream_id);
        put(block, p::EPOCH, self.epoch);
        put(block, p::SEQ, self.seq);
        put(block, p::PAYLOAD_BYTES_FILLED, self.payload_bytes_filled);
        put(block, p::STATE, self.state as u8);
        out
    }

    /// Reads a framed message; none when it is something else, or its state is unknown.
    #[inline]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let block = MessageHeader::control_block(message, p::TEMPLATE_ID, p::BLOCK_LENGTH)?;
        let state = match get::<u8>(block, p::STATE) {
            0 => ProgressState::Unknown,
            1 => ProgressState::Started,
            2 => ProgressState::Progress,
            3 => ProgressState::Complete,
            _ => return None,
        };
        Some(Self {
            stream_id: get(block, p::STREAM_ID),
            epoch: get(block, p::EPOCH),
            seq: get(block, p::SEQ),
            payload_bytes_filled: get(block, p::PAYLOAD_BYTES_FILLED),
            state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: FrameDescriptor = FrameDescriptor {
        stream_id: 10_000,
        epoch: 5,
        seq: 42,
        timestamp_ns: Some(7),
        meta_version: Some(3),
        trace_id: Some(99),
    };

    #[test]
    fn a_descriptor_survives_the_round_trip() {
        let bare = FrameDescriptor { timestamp_ns: None, meta_version: None, trace_id: None, ..FULL };
        for descriptor in [FULL, bare] {
            assert_eq!(FrameDescriptor::decode(&descriptor.encode()), Some(descriptor));
        }
        let bytes = bare.encode();
        assert_eq!(bytes[8 + d::TIMESTAMP_NS..8 + d::META_VERSION + 4], [0xFF; 12]);
        assert_eq!(bytes[8 + d::TRACE_ID..], [0; 8]);
    }

    #[test]
    fn both_nulls_of_the_trace_id_mean_none() {
        let mut bytes = FULL.encode();
        bytes[8 + d::TRACE_ID..].fill(0xFF);
        assert_eq!(FrameDescriptor::decode(&bytes).unwrap().trace_id, None);
    }

    #[test]
    fn later_versions_may_be_longer_but_nothing_may_be_shorter() {
        let mut longer = FULL.encode().to_vec();
        longer.extend([1, 2, 3]);
        assert_eq!(FrameDescriptor::decode(&longer), None, "trailing bytes");
        put(&mut longer, 0, 43u16);
        put(&mut longer, 6, 2u16);
        assert_eq!(FrameDescriptor::decode(&longer), Some(FULL));
        for len in 0..DESCRIPTOR_BYTES {
            assert_eq!(FrameDescriptor::decode(&FULL.encode()[..len]), None, "{len}");
        }
        for (offset, value) in [(0, 39u16), (2, 11), (4, 901), (6, 0)] {
            let mut other = FULL.encode();
            put(&mut other, offset, value);
            assert_eq!(FrameDescriptor::decode(&other), None, "{offset} {value}");
        }
    }

    #[test]
    fn progress_survives_the_round_trip_and_unknown_states_do_not() {
        use ProgressState::*;
        for state in [Unknown, Started, Progress, Complete] {
            let progress = FrameProgress { stream_id: 1, epoch: 2, seq: 3, payload_bytes_filled: 4, state };
            assert_eq!(FrameProgress::decode(&progress.encode()), Some(progress));
        }
        let mut bytes =
            FrameProgress { stream_id: 1, epoch: 2, seq: 3, payload_bytes_filled: 4, state: Started }
                .encode();
        bytes[8 + p::STATE] = 4;
        assert_eq!(FrameProgress::decode(&bytes), None);
    }
}
