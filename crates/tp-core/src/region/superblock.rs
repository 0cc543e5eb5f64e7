//! The 64 bytes at the start of every region.

use std::fmt;

use crate::bytes::{get, put};
use crate::layout::{
    LAYOUT_VERSION, MAGIC, SLOT_BYTES, SUPERBLOCK_BYTES, payload_offset, slot_offset, superblock as at,
};

/// Which of the two kinds of region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// The header ring.
    HeaderRing,
    /// A payload pool.
    PayloadPool {
        /// As announced.
        pool_id: u16,
        /// As announced.
        stride_bytes: u32,
    },
}

impl RegionKind {
    /// Smallest file that holds `nslots` slots.
    pub const fn required_bytes(self, nslots: u32) -> u64 {
        match self {
            // The offset of the slot behind the last one, in 64 bits even for 2^32 - 1 slots.
            Self::HeaderRing => slot_offset(nslots),
            Self::PayloadPool { stride_bytes, .. } => payload_offset(nslots, stride_bytes),
        }
    }
}

/// What the superblock of a region says, liveness apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Pool stream.
    pub stream_id: u32,
    /// Epoch.
    pub epoch: u64,
    /// Kind of region.
    pub kind: RegionKind,
    /// Number of slots.
    pub nslots: u32,
}

/// The fields that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in the layout")]
pub enum SuperblockField {
    Magic,
    LayoutVersion,
    Epoch,
    StreamId,
    RegionType,
    PoolId,
    Nslots,
    SlotBytes,
    StrideBytes,
}

impl fmt::Display for SuperblockField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Magic => "magic",
            Self::LayoutVersion => "layout_version",
            Self::Epoch => "epoch",
            Self::StreamId => "stream_id",
            Self::RegionType => "region_type",
            Self::PoolId => "pool_id",
            Self::Nslots => "nslots",
            Self::SlotBytes => "slot_bytes",
            Self::StrideBytes => "stride_bytes",
        })
    }
}

/// A field that is not what was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Which field.
    pub field: SuperblockField,
    /// What the file says.
    pub have: u64,
    /// What was announced.
    pub want: u64,
}

impl Superblock {
    /// The bytes of a new region, with `now_ns` as start and activity.
    pub fn encode(&self, pid: u32, now_ns: u64) -> [u8; SUPERBLOCK_BYTES] {
        let mut out = [0; SUPERBLOCK_BYTES];
        // Ring: slots of 256 bytes, no stride. Pool: both are the stride (decision B9).
        let (region_type, pool_id, slot_bytes, stride_bytes) = match self.kind {
            RegionKind::HeaderRing => (1i16, 0, SLOT_BYTES as u32, 0),
            RegionKind::PayloadPool { pool_id, stride_bytes } => (2, pool_id, stride_bytes, stride_bytes),
        };
        put(&mut out, at::MAGIC, MAGIC);
        put(&mut out, at::LAYOUT_VERSION, LAYOUT_VERSION);
        put(&mut out, at::EPOCH, self.epoch);
        put(&mut out, at::STREAM_ID, self.stream_id);
        put(&mut out, at::REGION_TYPE, region_type);
        put(&mut out, at::POOL_ID, pool_id);
        put(&mut out, at::NSLOTS, self.nslots);
        put(&mut out, at::SLOT_BYTES, slot_bytes);
        put(&mut out, at::STRIDE_BYTES, stride_bytes);
        put(&mut out, at::PID, u64::from(pid));
        put(&mut out, at::START_TIMESTAMP_NS, now_ns);
        put(&mut out, at::ACTIVITY_TIMESTAMP_NS, now_ns);
        out
    }

    /// Is `bytes` the superblock that was announced [WIRE-15.1-1..6, WIRE-15.1-8, WIRE-15.1-9]?
    pub fn check(&self, bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<(), Mismatch> {
        use SuperblockField::*;
        let wanted = self.encode(0, 0);
        let same = |field, offset: usize, size: usize| {
            let read = |block: &[u8]| (0..size).fold(0, |n, i| n | u64::from(block[offset + i]) << (8 * i));
            let (have, want) = (read(bytes), read(&wanted));
            if have == want { Ok(()) } else { Err(Mismatch { field, have, want }) }
        };
        same(Magic, at::MAGIC, 8)?;
        same(LayoutVersion, at::LAYOUT_VERSION, 4)?;
        same(Epoch, at::EPOCH, 8)?;
        same(StreamId, at::STREAM_ID, 4)?;
        same(RegionType, at::REGION_TYPE, 2)?;
        same(PoolId, at::POOL_ID, 2)?;
        same(Nslots, at::NSLOTS, 4)?;
        // The ring's stride and the pools' slot size are undefined: others write what they like (decision B9).
        match self.kind {
            RegionKind::HeaderRing => same(SlotBytes, at::SLOT_BYTES, 4),
            RegionKind::PayloadPool { .. } => same(StrideBytes, at::STRIDE_BYTES, 4),
        }
    }
}

/// The process that made a region; informational (decision L10).
pub fn pid(bytes: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    get(bytes, at::PID)
}

/// When a region was last said to be alive, CLOCK_MONOTONIC.
pub fn activity_timestamp_ns(bytes: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    get(bytes, at::ACTIVITY_TIMESTAMP_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Superblock =
        Superblock { stream_id: 10_000, epoch: 5, kind: RegionKind::HeaderRing, nslots: 8 };
    const POOL: Superblock =
        Superblock { kind: RegionKind::PayloadPool { pool_id: 3, stride_bytes: 4096 }, ..RING };

    // req: WIRE-7.1-1, WIRE-7.1-2, WIRE-7.1-6, WIRE-7.1-10, WIRE-6-1, WIRE-6-2, WIRE-15.14-1
    #[test]
    fn the_bytes_are_those_of_the_layout() {
        let ring = RING.encode(4321, 77);
        assert_eq!(&ring[..8], b"1MHSLPOT");
        assert_eq!(&ring[8..12], &[1, 0, 0, 0]);
        assert_eq!((ring[24], ring[26], ring[27]), (1, 0, 0));
        assert_eq!((pid(&ring), activity_timestamp_ns(&ring)), (4321, 77));
        assert_eq!(get::<u64>(&ring, at::START_TIMESTAMP_NS), 77);
        let pool = POOL.encode(4321, 77);
        assert_eq!((pool[24], pool[26]), (2, 3));
        assert_eq!((get::<u32>(&pool, 32), get::<u32>(&pool, 36)), (4096, 4096));
    }

    // req: WIRE-7.1-7, WIRE-7.1-8, WIRE-8.2-2, WIRE-15.1-1, WIRE-15.1-2, WIRE-15.1-3, WIRE-15.1-4, WIRE-15.1-5, WIRE-15.1-6, WIRE-15.13-1
    #[test]
    fn every_bit_of_a_validated_field_counts() {
        for (block, ignored) in [(RING, at::STRIDE_BYTES..at::PID), (POOL, at::SLOT_BYTES..at::STRIDE_BYTES)]
        {
            let good = block.encode(1, 2);
            assert_eq!(block.check(&good), Ok(()));
            for bit in 0..SUPERBLOCK_BYTES * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                let tolerated = ignored.contains(&(bit / 8)) || bit / 8 >= at::PID;
                assert_eq!(block.check(&bad).is_ok(), tolerated, "{block:?} bit {bit}");
            }
        }
    }

    #[test]
    fn sizes_are_computed_in_64_bits() {
        assert_eq!(RegionKind::HeaderRing.required_bytes(8), 64 + 8 * 256);
        let pool = RegionKind::PayloadPool { pool_id: 1, stride_bytes: 1 << 31 };
        assert_eq!(pool.required_bytes(1 << 31), 64 + (1 << 62));
    }
}
