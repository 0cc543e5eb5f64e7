"""Events as their readers see them, and as they travel."""

from __future__ import annotations

import struct
import time
from typing import Any, Final

import msgspec

from tensor_pool.control.values import FrameRef, Value, decode_value, encode_value
from tensor_pool.wire import decode, encode
from tensor_pool.wire.framing import peek
from tensor_pool.wire.messages import EventMessage, Format

__all__ = ["EVENT_TEMPLATE", "MAX_VALUE_BYTES", "Event", "EventForm", "event_message"]

EVENT_TEMPLATE: Final = 1
MAX_VALUE_BYTES: Final = 256 << 10
"""Half of the longest message of a stream with the usual terms."""
_STANDARD_SCHEMA: Final = 905
_SCHEMA_OFFSET: Final = 4


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A command or a status.

    Example:
        >>> Event(tag="service:camera", key="gain", value=2.0, timestamp_ns=0).key
        'gain'
    """

    tag: str
    key: str
    value: Any
    """A `Value`."""
    timestamp_ns: int
    """When it was sent, in nanoseconds since 1970."""
    correlation_id: int = 0
    """What belongs together: a command and its echo. Also a trace id (decision K8)."""
    source: str = ""
    """Where it came from, as Aeron says it; empty for what was not received."""

    @classmethod
    def of(cls, message: EventMessage, source: str = "") -> Event:
        """A message with its value decoded.

        Raises:
            MalformedMessageError: The value is not what its format says.
        """
        return cls(
            tag=message.tag,
            key=message.key,
            value=decode_value(message),
            timestamp_ns=message.timestamp_ns,
            correlation_id=message.correlation_id,
            source=source,
        )


def event_message(
    tag: str,
    key: str,
    value: Value,
    *,
    correlation_id: int = 0,
    format: Format | None = None,  # noqa: A002 - the field's name
    timestamp_ns: int | None = None,
) -> EventMessage:
    """A message to send.

    Raises:
        ValueError: The value does not fit.

    Example:
        >>> event_message("service:camera", "flash", FrameRef(10_000, 1, 42)).ref_seq
        42
    """
    kind, data = encode_value(value, format)
    if len(data) > MAX_VALUE_BYTES:
        raise ValueError(f"a value of {len(data):,} bytes; an event carries up to {MAX_VALUE_BYTES:,}")
    message = EventMessage(
        timestamp_ns=time.time_ns() if timestamp_ns is None else timestamp_ns,
        correlation_id=correlation_id,
        format=kind,
        tag=tag,
        key=key,
        value=data,
    )
    if isinstance(value, FrameRef):
        message = msgspec.structs.replace(
            message, ref_stream_id=value.stream_id, ref_epoch=value.epoch, ref_seq=value.seq
        )
    return message


class EventForm:
    """How events look on the wire: ours, but for the schema id that a deployment may have chosen [B8].

    Example:
        >>> form = EventForm(9050)
        >>> data = form.encode(event_message("service:camera", "gain", 2.0))
        >>> form.decode(data).key, EventForm().decode(data)
        ('gain', None)
    """

    def __init__(self, schema_id: int = _STANDARD_SCHEMA) -> None:
        self.schema_id = schema_id

    @property
    def kind(self) -> tuple[int, int]:
        """Schema and template, for filters."""
        return (self.schema_id, EVENT_TEMPLATE)

    def encode(self, message: EventMessage) -> bytes:
        """The bytes of a message."""
        return self._with_schema(encode(message), self.schema_id)

    def decode(self, data: bytes) -> EventMessage | None:
        """The message; None for bytes of another schema or template [SVC-5-2].

        Raises:
            MalformedMessageError: It is an event, and broken.
        """
        header = peek(data)
        if (header.schema_id, header.template_id) != self.kind:
            return None
        message = decode(self._with_schema(data, _STANDARD_SCHEMA))
        assert isinstance(message, EventMessage)
        return message

    def _with_schema(self, data: bytes, schema_id: int) -> bytes:
        if self.schema_id == _STANDARD_SCHEMA:
            return data
        return data[:_SCHEMA_OFFSET] + struct.pack("<H", schema_id) + data[_SCHEMA_OFFSET + 2 :]
