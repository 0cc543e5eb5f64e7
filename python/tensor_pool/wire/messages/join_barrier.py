"""Schema 903: which frames of several inputs belong to one frame of the output."""

import enum

from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.messages.control import ClockDomain
from tensor_pool.wire.schema import load_schema

__all__ = [
    "SequenceMergeMapAnnounce",
    "SequenceMergeMapRequest",
    "SequenceMergeRule",
    "SequenceRule",
    "TimestampMergeMapAnnounce",
    "TimestampMergeMapRequest",
    "TimestampMergeRule",
    "TimestampRule",
    "TimestampSource",
]

_SCHEMA = load_schema("join_barrier")


class SequenceRule(enum.IntEnum):
    """How an input's sequence follows from the output's."""

    OFFSET = 0
    WINDOW = 1


class TimestampRule(enum.IntEnum):
    """How an input's time follows from the output's."""

    OFFSET_NS = 0
    WINDOW_NS = 1


class TimestampSource(enum.IntEnum):
    """Which of a frame's two time stamps counts."""

    DESCRIPTOR = 1
    SLOT = 2


class SequenceMergeRule(GroupEntry, frozen=True):
    """The rule of one input; exactly one of `offset` and `window_size` is given."""

    input_stream_id: int
    rule_type: SequenceRule
    offset: int | None = None
    window_size: int | None = None


@message(_SCHEMA)
class SequenceMergeMapAnnounce(Message, frozen=True):
    """How inputs join by sequence number."""

    out_stream_id: int
    epoch: int
    stale_timeout_ns: int | None = None
    rules: tuple[SequenceMergeRule, ...] = ()


@message(_SCHEMA)
class SequenceMergeMapRequest(Message, frozen=True):
    """Asks for a SequenceMergeMapAnnounce."""

    out_stream_id: int
    epoch: int


class TimestampMergeRule(GroupEntry, frozen=True):
    """The rule of one input; exactly one of `offset_ns` and `window_ns` is given."""

    input_stream_id: int
    rule_type: TimestampRule
    timestamp_source: TimestampSource
    offset_ns: int | None = None
    window_ns: int | None = None


@message(_SCHEMA)
class TimestampMergeMapAnnounce(Message, frozen=True):
    """How inputs join by time."""

    out_stream_id: int
    epoch: int
    stale_timeout_ns: int | None
    clock_domain: ClockDomain
    lateness_ns: int | None = None
    rules: tuple[TimestampMergeRule, ...] = ()


@message(_SCHEMA)
class TimestampMergeMapRequest(Message, frozen=True):
    """Asks for a TimestampMergeMapAnnounce."""

    out_stream_id: int
    epoch: int
