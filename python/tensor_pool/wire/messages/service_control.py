"""Schema 905: commands to services and their echo."""

import enum

from tensor_pool.wire.bind import Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.schema import load_schema

__all__ = ["EventMessage", "Format"]


class Format(enum.IntEnum):
    """How to read the value of an event."""

    NOTHING = 0
    UINT8 = 1
    INT8 = 2
    UINT16 = 3
    INT16 = 4
    UINT32 = 5
    INT32 = 6
    UINT64 = 7
    INT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    BOOLEAN = 11
    STRING = 12
    BYTES = 13
    BIT = 14
    REF = 15


@message(load_schema("service_control"), load_schema("service_control_packed"))
class EventMessage(Message, frozen=True):
    """A key and a value for the service named by `tag`; a trace id travels as `correlation_id` (K8)."""

    timestamp_ns: int
    correlation_id: int
    format: Format
    ref_stream_id: int | None = None
    ref_epoch: int | None = None
    ref_seq: int | None = None
    tag: str = ""
    key: str = ""
    value: bytes = b""
