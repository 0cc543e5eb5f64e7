"""Schema 900: announces, descriptors, progress, quality of service, and metadata."""

import builtins
import enum

from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.schema import load_schema

__all__ = [
    "ClockDomain",
    "ConsumerConfig",
    "ConsumerHello",
    "ControlResponse",
    "DataSourceAnnounce",
    "DataSourceMeta",
    "FrameDescriptor",
    "FrameProgress",
    "FrameProgressState",
    "MetaAttribute",
    "MetaBlobAnnounce",
    "MetaBlobChunk",
    "MetaBlobComplete",
    "Mode",
    "PayloadPool",
    "QosConsumer",
    "QosProducer",
    "ResponseCode",
    "ShmPoolAnnounce",
]

_SCHEMA = load_schema("control")


class ClockDomain(enum.IntEnum):
    """Which clock `announce_timestamp_ns` was read from [WIRE-10.1.1-3]."""

    MONOTONIC = 1
    REALTIME_SYNCED = 2


class Mode(enum.IntEnum):
    """Whether a consumer gets every descriptor or at most so many a second."""

    STREAM = 1
    RATE_LIMITED = 2


class FrameProgressState(enum.IntEnum):
    """How far a frame that is being written has come."""

    UNKNOWN = 0
    STARTED = 1
    PROGRESS = 2
    COMPLETE = 3


class ResponseCode(enum.IntEnum):
    """The answer to a request [WIRE-15.17-1 to -5]; the same in schemas 900, 901 and 906."""

    OK = 0
    UNSUPPORTED = 1
    INVALID_PARAMS = 2
    REJECTED = 3
    INTERNAL_ERROR = 4


class PayloadPool(GroupEntry, frozen=True):
    """A pool of payload slots of one size, in announces, attach responses and discovery results."""

    pool_id: int
    pool_nslots: int
    stride_bytes: int
    region_uri: str


@message(_SCHEMA)
class ShmPoolAnnounce(Message, frozen=True):
    """Where the regions of a stream's current epoch are; sent about once a second.

    Example:
        >>> announce = ShmPoolAnnounce(
        ...     stream_id=10000, producer_id=7, epoch=5, announce_timestamp_ns=1,
        ...     announce_clock_domain=ClockDomain.MONOTONIC, layout_version=1, header_nslots=8,
        ...     header_slot_bytes=256, header_region_uri="shm:file?path=/dev/shm/header.ring",
        ...     payload_pools=(PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),))
        >>> announce.payload_pools[0].stride_bytes
        4096
    """

    stream_id: int
    producer_id: int
    epoch: int
    announce_timestamp_ns: int
    announce_clock_domain: ClockDomain
    layout_version: int
    header_nslots: int
    header_slot_bytes: int
    payload_pools: tuple[PayloadPool, ...]
    header_region_uri: str


@message(_SCHEMA)
class ConsumerHello(Message, frozen=True):
    """A consumer introduces itself and may ask for streams of its own.

    A stream of its own is asked for with a channel and an id; an empty channel and id 0 ask for nothing
    [WIRE-10.1.3-6].
    """

    stream_id: int
    consumer_id: int
    supports_shm: bool
    supports_progress: bool
    mode: Mode
    max_rate_hz: int = 0
    expected_layout_version: int = 0
    progress_interval_us: int | None = None
    progress_bytes_delta: int | None = None
    progress_major_delta_units: int | None = None
    descriptor_stream_id: int = 0
    control_stream_id: int = 0
    descriptor_channel: str = ""
    control_channel: str = ""


@message(_SCHEMA)
class ConsumerConfig(Message, frozen=True):
    """The answer to a hello: which streams the consumer reads; an empty channel assigns none."""

    stream_id: int
    consumer_id: int
    use_shm: bool
    mode: Mode
    descriptor_stream_id: int = 0
    control_stream_id: int = 0
    payload_fallback_uri: str = ""
    descriptor_channel: str = ""
    control_channel: str = ""


@message(_SCHEMA)
class FrameDescriptor(Message, frozen=True):
    """A frame was committed; everything about it is in its slot.

    `trace_id` is None for no trace, which stands as 0 on the wire [WIRE-10.2.1-2].
    """

    stream_id: int
    epoch: int
    seq: int
    timestamp_ns: int | None = None
    meta_version: int | None = None
    trace_id: int | None = None


@message(_SCHEMA)
class FrameProgress(Message, frozen=True):
    """How many bytes of a frame that is being written are already there."""

    stream_id: int
    epoch: int
    seq: int
    payload_bytes_filled: int
    state: FrameProgressState


@message(_SCHEMA)
class QosConsumer(Message, frozen=True):
    """What a consumer has seen and lost, about once a second."""

    stream_id: int
    consumer_id: int
    epoch: int
    last_seq_seen: int
    drops_gap: int
    drops_late: int
    mode: Mode


@message(_SCHEMA)
class QosProducer(Message, frozen=True):
    """How far a producer is, about once a second."""

    stream_id: int
    producer_id: int
    epoch: int
    current_seq: int
    watermark: int | None = None


@message(_SCHEMA)
class DataSourceAnnounce(Message, frozen=True):
    """The name of a stream, and which version of its metadata is current."""

    stream_id: int
    producer_id: int
    epoch: int
    meta_version: int
    name: str = ""
    summary: str = ""


class MetaAttribute(GroupEntry, frozen=True):
    """One piece of metadata; `format` is a media type that says how to read `value`."""

    key: str
    format: str
    value: bytes


@message(_SCHEMA)
class DataSourceMeta(Message, frozen=True):
    """The metadata of a stream in one version."""

    stream_id: int
    meta_version: int
    timestamp_ns: int
    attributes: tuple[MetaAttribute, ...] = ()


@message(_SCHEMA)
class ControlResponse(Message, frozen=True):
    """Success or failure of a request."""

    correlation_id: int
    code: ResponseCode
    error_message: str = ""


@message(_SCHEMA)
class MetaBlobAnnounce(Message, frozen=True):
    """A large piece of metadata follows in chunks; `checksum` is CRC32C, 0 for none (decision B11)."""

    stream_id: int
    meta_version: int
    blob_type: int
    total_len: int
    checksum: int = 0


@message(_SCHEMA)
class MetaBlobChunk(Message, frozen=True):
    """A piece of a large piece of metadata, at most 64 KiB."""

    stream_id: int
    meta_version: int
    chunk_offset: int
    bytes: builtins.bytes


@message(_SCHEMA)
class MetaBlobComplete(Message, frozen=True):
    """All chunks were sent."""

    stream_id: int
    meta_version: int
    checksum: int = 0
