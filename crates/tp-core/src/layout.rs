//! Every byte offset of the structures that Rust reads or writes, in one place.
//!
//! The XML schemas of the Python package are the source of truth; [`TABLES`] is compared with the
//! compiled schemas by a test, so the two can't drift apart.

/// Size of the superblock at the start of every region, a constant of the layout [WIRE-6-3].
pub const SUPERBLOCK_BYTES: usize = 64;
/// Size of a header slot [WIRE-8.1-1].
pub const SLOT_BYTES: usize = 256;
/// First eight bytes of every region, as a little-endian number (decision B1).
pub const MAGIC: u64 = 0x544F_504C_5348_4D31;
/// The only layout version there is.
pub const LAYOUT_VERSION: u32 = 1;
/// Size of the SBE message header: block length, template, schema, version.
pub const MESSAGE_HEADER_BYTES: usize = 8;
/// Most dimensions a tensor header can carry.
pub const MAX_DIMS: usize = 8;

/// Schema of the wire specification.
pub const CONTROL_SCHEMA_ID: u16 = 900;
/// Schema of the bridge.
pub const BRIDGE_SCHEMA_ID: u16 = 902;
/// Version of every schema.
pub const SCHEMA_VERSION: u16 = 1;

/// One field of a hot structure, relative to the start of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name as in the schema.
    pub name: &'static str,
    /// Byte offset in the block.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// One hot structure.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Name of the message in the schema.
    pub message: &'static str,
    /// Schema id.
    pub schema_id: u16,
    /// Template id.
    pub template_id: u16,
    /// Length of the block.
    pub block_length: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

macro_rules! layout {
    ($(#[$doc:meta])* $module:ident: $message:literal schema $schema:expr, template $template:literal, block $block:literal {
        $($name:ident $field:literal @ $offset:literal + $size:literal;)*
    }) => {
        $(#[$doc])*
        pub mod $module {
            use super::{Field, Table};
            /// Template id.
            pub const TEMPLATE_ID: u16 = $template;
            /// Length of the block.
            pub const BLOCK_LENGTH: usize = $block;
            $(#[doc = concat!("Offset of `", $field, "`.")] pub const $name: usize = $offset;)*
            /// This structure as data.
            pub const TABLE: Table = Table {
                message: $message,
                schema_id: $schema,
                template_id: TEMPLATE_ID,
                block_length: BLOCK_LENGTH,
                fields: &[$(Field { name: $field, offset: $offset, size: $size }),*],
            };
        }
    };
}

layout! {
    /// `ShmRegionSuperblock`, at byte 0 of every region, without a message header.
    superblock: "ShmRegionSuperblock" schema super::CONTROL_SCHEMA_ID, template 50, block 64 {
        MAGIC "magic" @ 0 + 8;
        LAYOUT_VERSION "layoutVersion" @ 8 + 4;
        EPOCH "epoch" @ 12 + 8;
        STREAM_ID "streamId" @ 20 + 4;
        REGION_TYPE "regionType" @ 24 + 2;
        POOL_ID "poolId" @ 26 + 2;
        NSLOTS "nslots" @ 28 + 4;
        SLOT_BYTES "slotBytes" @ 32 + 4;
        STRIDE_BYTES "strideBytes" @ 36 + 4;
        PID "pid" @ 40 + 8;
        START_TIMESTAMP_NS "startTimestampNs" @ 48 + 8;
        ACTIVITY_TIMESTAMP_NS "activityTimestampNs" @ 56 + 8;
    }
}

layout! {
    /// `SlotHeader`, the first 60 bytes of a header slot, without a message header.
    slot: "SlotHeader" schema super::CONTROL_SCHEMA_ID, template 51, block 60 {
        SEQ_COMMIT "seqCommit" @ 0 + 8;
        VALUES_LEN_BYTES "valuesLenBytes" @ 8 + 4;
        PAYLOAD_SLOT "payloadSlot" @ 12 + 4;
        POOL_ID "poolId" @ 16 + 2;
        PAYLOAD_OFFSET "payloadOffset" @ 18 + 4;
        TIMESTAMP_NS "timestampNs" @ 22 + 8;
        META_VERSION "metaVersion" @ 30 + 4;
        PAD "pad" @ 34 + 26;
    }
}

/// Offset in the slot of the length prefix of `headerBytes`.
pub const SLOT_HEADER_BYTES_LENGTH: usize = slot::BLOCK_LENGTH;
/// Offset in the slot of the embedded message header.
pub const SLOT_EMBEDDED_HEADER: usize = SLOT_HEADER_BYTES_LENGTH + 4;
/// Offset in the slot of the tensor header's block.
pub const SLOT_TENSOR: usize = SLOT_EMBEDDED_HEADER + MESSAGE_HEADER_BYTES;
/// The one valid length of `headerBytes` [WIRE-8.2-6].
pub const HEADER_BYTES_LENGTH: u32 = (MESSAGE_HEADER_BYTES + tensor::BLOCK_LENGTH) as u32;

const _: () = assert!(SLOT_TENSOR + tensor::BLOCK_LENGTH == SLOT_BYTES);
// Another number of dimensions is another layout, and readers refuse layouts they don't know [WIRE-8.2-2].
const _: () = assert!(LAYOUT_VERSION == 1 && MAX_DIMS == 8);

layout! {
    /// `TensorHeader`, embedded in the slot behind a message header of its own.
    tensor: "TensorHeader" schema super::CONTROL_SCHEMA_ID, template 52, block 184 {
        DTYPE "dtype" @ 0 + 2;
        MAJOR_ORDER "majorOrder" @ 2 + 2;
        NDIMS "ndims" @ 4 + 1;
        PAD_ALIGN "padAlign" @ 5 + 1;
        PROGRESS_UNIT "progressUnit" @ 6 + 1;
        PROGRESS_STRIDE_BYTES "progressStrideBytes" @ 7 + 4;
        DIMS "dims" @ 11 + 32;
        STRIDES "strides" @ 43 + 32;
        PAD "pad" @ 75 + 109;
    }
}

layout! {
    /// `FrameDescriptor`: one a frame, after the commit.
    descriptor: "FrameDescriptor" schema super::CONTROL_SCHEMA_ID, template 4, block 40 {
        STREAM_ID "streamId" @ 0 + 4;
        EPOCH "epoch" @ 4 + 8;
        SEQ "seq" @ 12 + 8;
        TIMESTAMP_NS "timestampNs" @ 20 + 8;
        META_VERSION "metaVersion" @ 28 + 4;
        TRACE_ID "traceId" @ 32 + 8;
    }
}

layout! {
    /// `FrameProgress`: how much of a frame is there.
    progress: "FrameProgress" schema super::CONTROL_SCHEMA_ID, template 11, block 29 {
        STREAM_ID "streamId" @ 0 + 4;
        EPOCH "epoch" @ 4 + 8;
        SEQ "seq" @ 12 + 8;
        PAYLOAD_BYTES_FILLED "payloadBytesFilled" @ 20 + 8;
        STATE "state" @ 28 + 1;
    }
}

layout! {
    /// `BridgeFrameChunk` as the bridge specification prints it.
    chunk: "BridgeFrameChunk" schema super::BRIDGE_SCHEMA_ID, template 1, block 41 {
        STREAM_ID "streamId" @ 0 + 4;
        EPOCH "epoch" @ 4 + 8;
        SEQ "seq" @ 12 + 8;
        CHUNK_INDEX "chunkIndex" @ 20 + 4;
        CHUNK_COUNT "chunkCount" @ 24 + 4;
        CHUNK_OFFSET "chunkOffset" @ 28 + 4;
        CHUNK_LENGTH "chunkLength" @ 32 + 4;
        PAYLOAD_LENGTH "payloadLength" @ 36 + 4;
        HEADER_INCLUDED "headerIncluded" @ 40 + 1;
    }
}

layout! {
    /// `BridgeFrameChunk` of the newer dialect (decision B10).
    chunk_newer: "BridgeFrameChunk" schema super::BRIDGE_SCHEMA_ID, template 1, block 53 {
        STREAM_ID "streamId" @ 0 + 4;
        EPOCH "epoch" @ 4 + 8;
        SEQ "seq" @ 12 + 8;
        TRACE_ID "traceId" @ 20 + 8;
        CHUNK_INDEX "chunkIndex" @ 28 + 4;
        CHUNK_COUNT "chunkCount" @ 32 + 4;
        CHUNK_OFFSET "chunkOffset" @ 36 + 4;
        CHUNK_LENGTH "chunkLength" @ 40 + 4;
        PAYLOAD_LENGTH "payloadLength" @ 44 + 4;
        PAYLOAD_CRC32C "payloadCrc32c" @ 48 + 4;
        HEADER_INCLUDED "headerIncluded" @ 52 + 1;
    }
}

/// All hot structures, for the comparison with the schemas.
pub const TABLES: &[Table] = &[
    superblock::TABLE,
    slot::TABLE,
    tensor::TABLE,
    descriptor::TABLE,
    progress::TABLE,
    chunk::TABLE,
    chunk_newer::TABLE,
];

/// Byte offset of header slot `index` in the ring file [WIRE-8.1-2].
#[inline]
pub const fn slot_offset(index: u32) -> u64 {
    SUPERBLOCK_BYTES as u64 + index as u64 * SLOT_BYTES as u64
}

/// Byte offset of payload slot `index` in a pool file; 64-bit, pools above 4 GiB are legal (decision M7).
#[inline]
pub const fn payload_offset(index: u32, stride_bytes: u32) -> u64 {
    SUPERBLOCK_BYTES as u64 + index as u64 * stride_bytes as u64
}

/// More slots than anybody needs; a bound against announces that lie, since looking for a frame may visit
/// every slot.
pub const MAX_NSLOTS: u32 = 1 << 20;

/// Is `nslots` a legal number of slots? The index mask needs a power of two [WIRE-3-1].
#[inline]
pub const fn valid_nslots(nslots: u32) -> bool {
    nslots.is_power_of_two() && nslots <= MAX_NSLOTS
}

/// Is `stride_bytes` a power-of-two multiple of 64 [WIRE-15.22-14]? `relaxed` takes any multiple of 64 (decision M12).
#[inline]
pub const fn valid_stride(stride_bytes: u32, relaxed: bool) -> bool {
    stride_bytes >= 64 && (stride_bytes.is_power_of_two() || relaxed && stride_bytes % 64 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: WIRE-6-4, WIRE-8.2-11
    #[test]
    fn slots_start_behind_64_bytes_and_commit_words_are_aligned() {
        // Constants of their own: no block length of a schema takes part.
        assert_eq!((slot_offset(0), slot_offset(1), payload_offset(0, 4096)), (64, 320, 64));
        for index in 0..1024 {
            assert_eq!(slot_offset(index) % 64, 0, "a commit word starts a cache line, so it lies in one");
        }
    }

    #[test]
    fn fields_follow_each_other_without_gaps() {
        for table in TABLES {
            let mut end = 0;
            for field in table.fields {
                assert_eq!(field.offset, end, "{}.{}", table.message, field.name);
                end += field.size;
            }
            assert_eq!(end, table.block_length, "{}", table.message);
        }
    }
}
