//! Bridge chunks: a slice of a frame on its way to another host. Decoding borrows from the packet.

use crate::bytes::get;
use crate::hot::MessageHeader;
use crate::layout::{
    BRIDGE_SCHEMA_ID, MESSAGE_HEADER_BYTES, SCHEMA_VERSION, SLOT_BYTES, chunk as c, chunk_newer as n,
};

/// Most chunks a frame may have.
pub const MAX_CHUNK_COUNT: u32 = 65_535;
/// Longest slice a chunk may carry.
pub const MAX_CHUNK_LENGTH: u32 = 65_535;
/// Longest payload a frame on the bridge may have.
pub const MAX_PAYLOAD_LENGTH: u32 = 1 << 30;

/// Why a packet is not a chunk that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// Another schema, template or version.
    NotAChunk,
    /// Neither of the two block lengths (decision B10).
    BlockLength,
    /// The packet ends early, or bytes follow the message.
    Length,
    /// `chunkIndex`, `chunkCount`, `chunkLength` or `payloadLength` beyond its limit.
    Limits,
    /// The slice does not lie inside the payload.
    Slice,
    /// `payloadBytes` is not `chunkLength` long.
    PayloadBytes,
    /// The header is missing from chunk 0, present elsewhere, or not 256 bytes long.
    Header,
}

/// One slice of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Stream on the bridge.
    pub stream_id: u32,
    /// Epoch at the source.
    pub epoch: u64,
    /// Sequence number.
    pub seq: u64,
    /// Which chunk of `count`.
    pub index: u32,
    /// How many chunks the frame has.
    pub count: u32,
    /// Where the slice lies in the payload.
    pub offset: u32,
    /// Length of the whole payload.
    pub payload_length: u32,
    /// Trace of the frame (newer dialect).
    pub trace_id: Option<u64>,
    /// CRC32C of the whole payload (newer dialect; 0 there means none).
    pub payload_crc32c: Option<u32>,
    /// The slot at the source, in chunk 0.
    pub header: Option<&'a [u8; SLOT_BYTES]>,
    /// The slice.
    pub payload: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads a packet, refusing whatever can't be part of a frame.
    pub fn decode(packet: &'a [u8]) -> Result<Self, ChunkError> {
        let head = MessageHeader::decode(packet).ok_or(ChunkError::Length)?;
        if (head.schema_id, head.template_id, head.version)
            != (BRIDGE_SCHEMA_ID, c::TEMPLATE_ID, SCHEMA_VERSION)
        {
            return Err(ChunkError::NotAChunk);
        }
        let block_length = usize::from(head.block_length);
        let newer = match block_length {
            c::BLOCK_LENGTH => false,
            n::BLOCK_LENGTH => true,
            _ => return Err(ChunkError::BlockLength),
        };
        let (block, rest) =
            packet[MESSAGE_HEADER_BYTES..].split_at_checked(block_length).ok_or(ChunkError::Length)?;
        let (header, rest) = var_data(rest)?;
        let (payload, rest) = var_data(rest)?;
        if !rest.is_empty() {
            return Err(ChunkError::Length);
        }
        let field = |seed: usize, later: usize| get::<u32>(block, if newer { later } else { seed });
        let chunk = Self {
            stream_id: get(block, c::STREAM_ID),
            epoch: get(block, c::EPOCH),
            seq: get(block, c::SEQ),
            index: field(c::CHUNK_INDEX, n::CHUNK_INDEX),
            count: field(c::CHUNK_COUNT, n::CHUNK_COUNT),
            offset: field(c::CHUNK_OFFSET, n::CHUNK_OFFSET),
            payload_length: field(c::PAYLOAD_LENGTH, n::PAYLOAD_LENGTH),
            trace_id: newer.then(|| get(block, n::TRACE_ID)).filter(|t| !matches!(*t, 0 | u64::MAX)),
            payload_crc32c: newer.then(|| get(block, n::PAYLOAD_CRC32C)).filter(|crc| *crc != 0),
            header: header.try_into().ok(),
            payload,
        };
        let length = field(c::CHUNK_LENGTH, n::CHUNK_LENGTH);
        let included: u8 = get(block, if newer { n::HEADER_INCLUDED } else { c::HEADER_INCLUDED });
        chunk.check(length, included, header.len())?;
        Ok(chunk)
    }

    fn check(&self, length: u32, included: u8, header_len: usize) -> Result<(), ChunkError> {
        let counted = (1..=MAX_CHUNK_COUNT).contains(&self.count) && self.index < self.count;
        if !counted || length > MAX_CHUNK_LENGTH || self.payload_length > MAX_PAYLOAD_LENGTH {
            return Err(ChunkError::Limits);
        }
        if self.payload.len() != length as usize {
            return Err(ChunkError::PayloadBytes);
        }
        if u64::from(self.offset) + u64::from(length) > u64::from(self.payload_length) {
            return Err(ChunkError::Slice);
        }
        // The header travels with chunk 0, which starts the payload, and only there.
        let right = match (self.index, included) {
            (0, 1) => header_len == SLOT_BYTES && self.offset == 0,
            (1.., 0) => header_len == 0,
            _ => false,
        };
        if right { Ok(()) } else { Err(ChunkError::Header) }
    }
}

/// Splits a length-prefixed field off `bytes`.
fn var_data(bytes: &[u8]) -> Result<(&[u8], &[u8]), ChunkError> {
    let (prefix, rest) = bytes.split_first_chunk::<4>().ok_or(ChunkError::Length)?;
    rest.split_at_checked(u32::from_le_bytes(*prefix) as usize).ok_or(ChunkError::Length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::put;

    fn packet(newer: bool, index: u32, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let table = if newer { n::TABLE } else { c::TABLE };
        let mut out = vec![0; MESSAGE_HEADER_BYTES + table.block_length];
        MessageHeader::encode(&table, &mut out);
        let mut set = |name: &str, value: u32| {
            let field = table.fields.iter().find(|f| f.name == name).unwrap();
            let at = MESSAGE_HEADER_BYTES + field.offset;
            if field.size == 1 { put(&mut out, at, value as u8) } else { put(&mut out, at, value) }
        };
        set("chunkIndex", index);
        set("chunkCount", 2);
        set("chunkOffset", index * 64);
        set("chunkLength", payload.len() as u32);
        set("payloadLength", 105);
        set("headerIncluded", u32::from(!header.is_empty()));
        for field in [header, payload] {
            out.extend((field.len() as u32).to_le_bytes());
            out.extend(field);
        }
        out
    }

    #[test]
    fn both_dialects_decode() {
        for newer in [false, true] {
            let first = packet(newer, 0, &[7; 256], &[1; 64]);
            let chunk = Chunk::decode(&first).unwrap();
            assert_eq!(
                (chunk.index, chunk.count, chunk.payload_length, chunk.payload.len()),
                (0, 2, 105, 64)
            );
            assert_eq!(chunk.header, Some(&[7; 256]));
            let second = packet(newer, 1, &[], &[2; 41]);
            let chunk = Chunk::decode(&second).unwrap();
            assert_eq!((chunk.index, chunk.offset, chunk.header, chunk.payload), (1, 64, None, &[2; 41][..]));
        }
    }

    #[test]
    fn any_truncation_is_refused() {
        for newer in [false, true] {
            let whole = packet(newer, 0, &[7; 256], &[1; 64]);
            for len in 0..whole.len() {
                assert!(Chunk::decode(&whole[..len]).is_err(), "{len}");
            }
            let longer = [whole.as_slice(), &[0]].concat();
            assert_eq!(Chunk::decode(&longer), Err(ChunkError::Length));
        }
    }

    // req: BRG-5.2-3, BRG-5.2-6, BRG-5.2-17, BRG-5.2-18, BRG-5.2-19
    #[test]
    fn lies_are_refused() {
        let good = packet(false, 0, &[7; 256], &[1; 64]);
        let at = |offset: usize| MESSAGE_HEADER_BYTES + offset;
        let lie = |offset: usize, value: u32| {
            let mut bytes = good.clone();
            put(&mut bytes, offset, value);
            Chunk::decode(&bytes).err()
        };
        assert_eq!(lie(at(c::CHUNK_INDEX), 2), Some(ChunkError::Limits));
        assert_eq!(lie(at(c::CHUNK_COUNT), 0), Some(ChunkError::Limits));
        assert_eq!(lie(at(c::CHUNK_COUNT), 65_536), Some(ChunkError::Limits));
        assert_eq!(lie(at(c::PAYLOAD_LENGTH), MAX_PAYLOAD_LENGTH + 1), Some(ChunkError::Limits));
        assert_eq!(lie(at(c::CHUNK_LENGTH), 63), Some(ChunkError::PayloadBytes));
        assert_eq!(lie(at(c::CHUNK_LENGTH), u32::MAX), Some(ChunkError::Limits));
        assert_eq!(lie(at(c::PAYLOAD_LENGTH), 63), Some(ChunkError::Slice));
        assert_eq!(lie(at(c::CHUNK_OFFSET), u32::MAX), Some(ChunkError::Slice));
        assert_eq!(lie(at(c::CHUNK_OFFSET), 1), Some(ChunkError::Header));
        assert_eq!(lie(at(c::CHUNK_INDEX), 1), Some(ChunkError::Header));
        assert_eq!(lie(at(c::BLOCK_LENGTH), 255), Some(ChunkError::Length));
        let mut other = good.clone();
        other[0] = 42;
        assert_eq!(Chunk::decode(&other), Err(ChunkError::BlockLength));
        assert_eq!(Chunk::decode(&packet(false, 0, &[], &[1; 64])), Err(ChunkError::Header));
        assert_eq!(Chunk::decode(&packet(false, 1, &[7; 256], &[1; 41])), Err(ChunkError::Header));
        assert_eq!(Chunk::decode(&packet(false, 0, &[7; 255], &[1; 64])), Err(ChunkError::Header));
    }
}
