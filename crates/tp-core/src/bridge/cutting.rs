//! Cutting frames into chunks that travel in one packet each.

use crate::bytes::put;
use crate::chunk::{MAX_CHUNK_COUNT, MAX_CHUNK_LENGTH, MAX_PAYLOAD_LENGTH};
use crate::hot::MessageHeader;
use crate::layout::{MESSAGE_HEADER_BYTES, SLOT_BYTES, chunk as c, chunk_newer as n};

/// What Aeron puts before each message.
const DATA_HEADER_BYTES: u32 = 32;
/// Room that is left in a packet beside the slice (decision R2).
const SPARE_BYTES: u32 = 128;
const LENGTH_BYTES: usize = 4;

/// Which of the two layouts of a chunk is spoken (decision B10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// That of the specification.
    Ours,
    /// With trace and checksum.
    Newer,
}

impl Dialect {
    const fn block_length(self) -> usize {
        match self {
            Self::Ours => c::BLOCK_LENGTH,
            Self::Newer => n::BLOCK_LENGTH,
        }
    }

    /// Bytes of a chunk beside its slice.
    pub const fn overhead(self, with_slot: bool) -> usize {
        let slot = if with_slot { SLOT_BYTES } else { 0 };
        MESSAGE_HEADER_BYTES + self.block_length() + LENGTH_BYTES + slot + LENGTH_BYTES
    }
}

/// How long slices are. Chunk 0 carries the frame's slot too, so its slice is shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Of chunk 0.
    pub first: u32,
    /// Of the others.
    pub later: u32,
}

impl Cut {
    /// Slices that fit packets of `mtu` bytes, and are at most `chunk_bytes` long; none when nothing fits.
    pub fn new(mtu: u32, chunk_bytes: u32, dialect: Dialect) -> Option<Self> {
        let room = |with_slot| mtu.checked_sub(DATA_HEADER_BYTES + dialect.overhead(with_slot) as u32);
        let later = chunk_bytes.min(mtu.checked_sub(SPARE_BYTES)?).min(MAX_CHUNK_LENGTH).min(room(false)?);
        let first = later.min(room(true)?);
        (first > 0).then_some(Self { first, later })
    }

    /// The longest payload that can be cut so.
    pub fn max_payload_bytes(&self) -> u32 {
        let most = u64::from(self.first) + u64::from(MAX_CHUNK_COUNT - 1) * u64::from(self.later);
        most.min(MAX_PAYLOAD_LENGTH.into()) as u32
    }

    /// How many chunks a payload has; an empty one has one (decision R4).
    pub fn count(&self, payload_length: u32) -> u32 {
        1 + payload_length.saturating_sub(self.first).div_ceil(self.later)
    }

    /// Where slice `index` begins, and how long it is.
    pub fn slice(&self, payload_length: u32, index: u32) -> (u32, u32) {
        let (offset, most) = match index {
            0 => (0, self.first),
            _ => (self.first + (index - 1) * self.later, self.later),
        };
        (offset, most.min(payload_length - offset))
    }
}

/// What all chunks of a frame have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOnWire {
    /// The layout.
    pub dialect: Dialect,
    /// Stream on the bridge.
    pub stream_id: u32,
    /// Epoch at the source.
    pub epoch: u64,
    /// Sequence number.
    pub seq: u64,
    /// Length of the payload.
    pub payload_length: u32,
    /// How many chunks there are.
    pub count: u32,
    /// Trace of the frame; only the newer dialect has room for it.
    pub trace_id: u64,
    /// Checksum of the payload, 0 for none; only the newer dialect has room for it.
    pub payload_crc32c: u32,
}

impl FrameOnWire {
    /// Writes everything of chunk `index` but its slice, which is `length` bytes from `offset` on; where that goes.
    ///
    /// # Panics
    /// When `out` is shorter than the chunk.
    pub fn encode<'a>(
        &self,
        out: &'a mut [u8],
        index: u32,
        (offset, length): (u32, u32),
        slot: Option<&[u8; SLOT_BYTES]>,
    ) -> &'a mut [u8] {
        let table = match self.dialect {
            Dialect::Ours => &c::TABLE,
            Dialect::Newer => &n::TABLE,
        };
        MessageHeader::encode(table, out);
        let (block, rest) = out[MESSAGE_HEADER_BYTES..].split_at_mut(self.dialect.block_length());
        put(block, c::STREAM_ID, self.stream_id);
        put(block, c::EPOCH, self.epoch);
        put(block, c::SEQ, self.seq);
        let included = u8::from(slot.is_some());
        let at = match self.dialect {
            Dialect::Ours => {
                put(block, c::HEADER_INCLUDED, included);
                c::CHUNK_INDEX
            }
            Dialect::Newer => {
                put(block, n::TRACE_ID, self.trace_id);
                put(block, n::PAYLOAD_CRC32C, self.payload_crc32c);
                put(block, n::HEADER_INCLUDED, included);
                n::CHUNK_INDEX
            }
        };
        // In both dialects these five follow each other.
        for (place, value) in [index, self.count, offset, length, self.payload_length].into_iter().enumerate()
        {
            put(block, at + 4 * place, value);
        }
        let slot: &[u8] = slot.map_or(&[], |slot| slot);
        put(rest, 0, slot.len() as u32);
        rest[LENGTH_BYTES..LENGTH_BYTES + slot.len()].copy_from_slice(slot);
        let rest = &mut rest[LENGTH_BYTES + slot.len()..];
        put(rest, 0, length);
        &mut rest[LENGTH_BYTES..LENGTH_BYTES + length as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Chunk;

    // req: BRG-5.2-12, BRG-5.2-13, BRG-5.2-14
    #[test]
    fn every_chunk_fits_its_packet() {
        for dialect in [Dialect::Ours, Dialect::Newer] {
            for mtu in [400, 1408, 1500, 8192, 9000, 65_504] {
                let cut = Cut::new(mtu, u32::MAX, dialect).unwrap();
                let most = (mtu - DATA_HEADER_BYTES) as usize;
                assert!(cut.first as usize + dialect.overhead(true) <= most, "{mtu}");
                assert!(cut.later as usize + dialect.overhead(false) <= most, "{mtu}");
            }
        }
        let ours = Cut::new(1408, 10_000, Dialect::Ours).unwrap();
        assert_eq!((ours.first, ours.later), (1063, 1280), "mtu - 345 and mtu - 128 (decision R2)");
        assert_eq!(Cut::new(345, 1000, Dialect::Ours), None);
        assert_eq!(Cut::new(0, 1000, Dialect::Ours), None);
        assert_eq!(Cut::new(9000, 0, Dialect::Ours), None);
    }

    // req: BRG-5.2-2, BRG-5.2-8, BRG-5.2-9
    #[test]
    fn slices_follow_each_other_and_are_all_of_the_payload() {
        for cut in [Cut { first: 10, later: 100 }, Cut { first: 100, later: 100 }, Cut { first: 1, later: 1 }]
        {
            for length in [0, 1, 9, 10, 11, 100, 109, 110, 111, 210, 1000] {
                let mut end = 0;
                for index in 0..cut.count(length) {
                    let (offset, slice) = cut.slice(length, index);
                    assert_eq!(offset, end);
                    assert!(slice > 0 || length == 0);
                    end += slice;
                }
                assert_eq!(end, length);
            }
            let most = cut.max_payload_bytes();
            assert_eq!(cut.count(most), MAX_CHUNK_COUNT);
            assert_eq!(cut.count(most + 1), MAX_CHUNK_COUNT + 1);
        }
    }

    #[test]
    fn chunks_decode_as_they_were_encoded() {
        let slot = [7; SLOT_BYTES];
        for dialect in [Dialect::Ours, Dialect::Newer] {
            let frame = FrameOnWire {
                dialect,
                stream_id: 9,
                epoch: u64::MAX - 1,
                seq: 1 << 40,
                payload_length: 130,
                count: 2,
                trace_id: 77,
                payload_crc32c: 88,
            };
            for (index, slice, slot) in [(0, (0, 30), Some(&slot)), (1, (30, 100), None)] {
                let mut out = vec![0xAA; dialect.overhead(slot.is_some()) + slice.1 as usize];
                frame.encode(&mut out, index, slice, slot).fill(index as u8 + 1);
                let chunk = Chunk::decode(&out).unwrap();
                assert_eq!((chunk.stream_id, chunk.epoch, chunk.seq), (9, u64::MAX - 1, 1 << 40));
                assert_eq!((chunk.index, chunk.count, chunk.offset), (index, 2, slice.0));
                assert_eq!((chunk.payload_length, chunk.header), (130, slot));
                assert_eq!(chunk.payload, vec![index as u8 + 1; slice.1 as usize]);
                let extra = (dialect == Dialect::Newer).then_some(77);
                assert_eq!((chunk.trace_id, chunk.payload_crc32c), (extra, extra.map(|_| 88)));
            }
        }
    }
}
