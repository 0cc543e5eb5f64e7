"""What lies in shared memory: superblocks, slots and tensor headers.

A superblock and a slot are bare SBE bodies without a message header [WIRE-7.1-1, WIRE-8.2-4]; the tensor
header inside a slot has one. The ring itself is read and written in native code, with the orderings that
other processes need; this module is for tools, tests, and bytes at rest.
"""

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.bind import ShmStructure, bind
from tensor_pool.wire.codec import Codec
from tensor_pool.wire.framing import HEADER_BYTES, MessageHeader, peek
from tensor_pool.wire.schema import load_schema

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "LAYOUT_VERSION",
    "MAGIC",
    "SLOT_BYTES",
    "SUPERBLOCK_BYTES",
    "TENSOR_HEADER_BYTES",
    "ProgressUnit",
    "RegionType",
    "ShmRegionSuperblock",
    "Slot",
    "SlotHeader",
    "TensorHeader",
    "decode_slot",
    "decode_superblock",
    "decode_tensor_header",
    "encode_slot",
    "encode_superblock",
    "encode_tensor_header",
]

MAGIC: Final = 0x544F504C53484D31
"""The first eight bytes of a region, little-endian: ``1MHSLPOT`` in the file (decision B1)."""

LAYOUT_VERSION: Final = 1

SUPERBLOCK_BYTES: Final = 64
"""A constant of the layout, not the block length of a schema [WIRE-6-4]."""

SLOT_BYTES: Final = 256
TENSOR_HEADER_BYTES: Final = 192
"""A tensor header with its message header; it fills a slot from byte 64 to its end [WIRE-8.2-7]."""

_SCHEMA = load_schema("control")


class RegionType(enum.IntEnum):
    """What a region holds [WIRE-7.1-2]."""

    HEADER_RING = 1
    PAYLOAD_POOL = 2


class ProgressUnit(enum.IntEnum):
    """Whether a frame may be used row by row or column by column while it is written."""

    NONE = 0
    ROWS = 1
    COLUMNS = 2


class ShmRegionSuperblock(ShmStructure, frozen=True):
    """The first 64 bytes of a region.

    Example:
        >>> superblock = ShmRegionSuperblock(
        ...     magic=MAGIC, layout_version=LAYOUT_VERSION, epoch=5, stream_id=10000,
        ...     region_type=RegionType.HEADER_RING, pool_id=0, nslots=8, slot_bytes=256, stride_bytes=0,
        ...     pid=4321, start_timestamp_ns=1, activity_timestamp_ns=2)
        >>> encode_superblock(superblock)[:8]
        b'1MHSLPOT'
    """

    magic: int
    layout_version: int
    epoch: int
    stream_id: int
    region_type: RegionType
    pool_id: int
    nslots: int
    slot_bytes: int
    stride_bytes: int
    pid: int
    start_timestamp_ns: int
    activity_timestamp_ns: int


class SlotHeader(ShmStructure, frozen=True):
    """The fixed part of a slot; `header_bytes` is what follows it: a tensor header, or nothing yet."""

    seq_commit: int
    values_len_bytes: int
    payload_slot: int
    pool_id: int
    payload_offset: int
    timestamp_ns: int
    meta_version: int
    header_bytes: bytes = b""


class TensorHeader(ShmStructure, frozen=True):
    """Element type, order and shape of a frame; `dims` and `strides` are unused from `ndims` on."""

    dtype: Dtype
    major_order: MajorOrder
    ndims: int
    progress_unit: ProgressUnit
    progress_stride_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A slot, decoded; one that was never written has no tensor header.

    Example:
        >>> decode_slot(bytes(256)).tensor_header is None
        True
    """

    header: SlotHeader
    tensor_message_header: MessageHeader | None
    tensor_header: TensorHeader | None


_SUPERBLOCK = Codec(ShmRegionSuperblock, bind(ShmRegionSuperblock, _SCHEMA.messages["ShmRegionSuperblock"]))
_SLOT = Codec(SlotHeader, bind(SlotHeader, _SCHEMA.messages["SlotHeader"]))
_TENSOR = Codec(TensorHeader, bind(TensorHeader, _SCHEMA.messages["TensorHeader"]))

# All four numbers are exact for the embedded header (decision B13).
_TENSOR_LAYOUT = _SCHEMA.messages["TensorHeader"]
_TENSOR_MESSAGE_HEADER = MessageHeader(
    block_length=_TENSOR_LAYOUT.block_length,
    template_id=_TENSOR_LAYOUT.template_id,
    schema_id=_TENSOR_LAYOUT.schema_id,
    version=_TENSOR_LAYOUT.version,
)


def decode_superblock(buffer: "ReadableBuffer") -> ShmRegionSuperblock:
    """Decodes the superblock at the start of a region; what follows it does not matter.

    Raises:
        MalformedMessageError: Shorter than 64 bytes, a wrong magic [WIRE-7.1-7] or an unknown region type.
    """
    data = memoryview(buffer).cast("B")[:SUPERBLOCK_BYTES].tobytes()
    magic = int.from_bytes(data[:8], "little")
    if magic != MAGIC:
        raise MalformedMessageError(
            f"a region starts with the number {MAGIC:#x}, not {magic:#x}",
            hint="is this a header.ring or a .pool file?",
        )
    superblock, _ = _SUPERBLOCK.decode(data, 0, _SUPERBLOCK.block_length)
    return superblock


def encode_superblock(superblock: ShmRegionSuperblock) -> bytes:
    """The 64 bytes of a superblock.

    Raises:
        MalformedMessageError: A value that does not fit its field.
    """
    return _SUPERBLOCK.encode(superblock)


def decode_slot(buffer: "ReadableBuffer") -> Slot:
    """Decodes a slot of 256 bytes; padding may hold anything [WIRE-8.2-5].

    Raises:
        MalformedMessageError: Another size, a `header_bytes` length other than 192 [WIRE-8.3-12] or 0 (never
            written), or a tensor header that is not one.
    """
    data = memoryview(buffer).tobytes()
    if len(data) != SLOT_BYTES:
        raise MalformedMessageError(f"a slot has {SLOT_BYTES} bytes, not {len(data)}")
    header, end = _SLOT.decode(data, 0, _SLOT.block_length)
    if not header.header_bytes:
        return Slot(header, None, None)
    if end != SLOT_BYTES:
        raise MalformedMessageError(
            f"a slot's header takes {TENSOR_HEADER_BYTES} bytes, not {len(header.header_bytes)}"
        )
    return Slot(header, peek(header.header_bytes), decode_tensor_header(header.header_bytes))


def encode_slot(header: SlotHeader) -> bytes:
    """The 256 bytes of a slot.

    Args:
        header: Its fields; `header_bytes` is what `encode_tensor_header` returns, or empty.

    Raises:
        MalformedMessageError: A value that does not fit its field, or `header_bytes` of another size.
    """
    if len(header.header_bytes) not in (0, TENSOR_HEADER_BYTES):
        raise MalformedMessageError(
            f"a slot's header takes {TENSOR_HEADER_BYTES} bytes, not {len(header.header_bytes)}"
        )
    return _SLOT.encode(header).ljust(SLOT_BYTES, b"\0")


def decode_tensor_header(buffer: "ReadableBuffer") -> TensorHeader:
    """Decodes a tensor header with its message header, 192 bytes.

    Only the form is checked: listed element types, orders and units. Whether shape and strides make sense is
    for the reader of the ring to judge.

    Raises:
        MalformedMessageError: Another size, another message header, or an unlisted value [WIRE-15.8-1].
    """
    data = memoryview(buffer).tobytes()
    if len(data) != TENSOR_HEADER_BYTES:
        raise MalformedMessageError(f"a tensor header takes {TENSOR_HEADER_BYTES} bytes, not {len(data)}")
    header = peek(data)
    if header != _TENSOR_MESSAGE_HEADER:
        raise MalformedMessageError(f"not the header of a TensorHeader: {header}")
    tensor, _ = _TENSOR.decode(data, HEADER_BYTES, header.block_length)
    return tensor


def encode_tensor_header(tensor: TensorHeader) -> bytes:
    """The 192 bytes of a tensor header with its message header [WIRE-8.2-6].

    Raises:
        MalformedMessageError: A value that does not fit its field.
    """
    return _TENSOR_MESSAGE_HEADER.to_bytes() + _TENSOR.encode(tensor)
