"""What events carry, as Python values."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.messages import Format

if TYPE_CHECKING:
    from tensor_pool.wire.messages import EventMessage

__all__ = ["FrameRef", "Value", "decode_value", "encode_value"]

_NUMBERS: Final = {
    Format.UINT8: "<B",
    Format.INT8: "<b",
    Format.UINT16: "<H",
    Format.INT16: "<h",
    Format.UINT32: "<I",
    Format.INT32: "<i",
    Format.UINT64: "<Q",
    Format.INT64: "<q",
    Format.FLOAT32: "<f",
    Format.FLOAT64: "<d",
}
_TRUTHS: Final = {b"\x00": False, b"\x01": True}
_MAX_INT64: Final = 2**63 - 1


class FrameRef(NamedTuple):
    """A frame that an event is about.

    Example:
        >>> FrameRef.parse("10000/3/42")
        FrameRef(stream_id=10000, epoch=3, seq=42)
    """

    stream_id: int
    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.stream_id}/{self.epoch}/{self.seq}"

    @classmethod
    def parse(cls, text: str) -> FrameRef:
        """Reads ``STREAM/EPOCH/SEQ``.

        Raises:
            ValueError: The text is something else.
        """
        parts = text.split("/")
        limits = (2**32 - 2, 2**64 - 2, 2**64 - 2)  # one more means that there is none
        if len(parts) != len(limits) or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"{text!r} is no frame: STREAM/EPOCH/SEQ, such as 10000/3/42")
        numbers = [int(part) for part in parts]
        if any(number > limit for number, limit in zip(numbers, limits, strict=True)):
            raise ValueError(f"{text!r} is no frame: a number is too large")
        return cls(*numbers)


Value: TypeAlias = bool | int | float | str | bytes | FrameRef | None
"""What an event may carry."""


def encode_value(value: Value, format: Format | None = None) -> tuple[Format, bytes]:  # noqa: A002
    """The format and the bytes of a value; those of a `FrameRef` are empty, since it has fields of its own.

    Args:
        value: What to send.
        format: How to send a number, where it matters; 64 bits otherwise.

    Raises:
        ValueError: The value does not fit the format, or no format fits it.

    Example:
        >>> encode_value(1.5)[0].name, encode_value("on"), encode_value(65, Format.UINT8)
        ('FLOAT64', (<Format.STRING: 12>, b'on'), (<Format.UINT8: 1>, b'A'))
    """
    usual, data = _usual(value)
    if format is None or format is usual:
        return usual, data
    layout = _NUMBERS.get(format)
    if layout is not None and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return format, struct.pack(layout, value)
        except (struct.error, OverflowError) as e:
            raise ValueError(f"{value} is no {format.name}: {e}") from e
    if format is Format.BIT and isinstance(value, bool):
        return format, data
    raise ValueError(f"{value!r} can't be sent as {format.name}")


def _usual(value: Value) -> tuple[Format, bytes]:
    data = b""
    match value:
        case None:
            kind = Format.NOTHING
        case bool():
            kind, data = Format.BOOLEAN, b"\x01" if value else b"\x00"
        case int():
            kind = Format.INT64 if value <= _MAX_INT64 else Format.UINT64
            try:
                data = struct.pack(_NUMBERS[kind], value)
            except struct.error as e:
                raise ValueError(f"{value} does not fit into 64 bits") from e
        case float():
            kind, data = Format.FLOAT64, struct.pack("<d", value)
        case str():
            kind, data = Format.STRING, value.encode()
        case FrameRef():
            kind = Format.REF
        case bytes():
            kind, data = Format.BYTES, value
        case _:
            raise ValueError(f"an event can't carry a {type(value).__name__}")
    return kind, data


def decode_value(event: EventMessage) -> Value:
    """The value of an event.

    An empty value with all three fields of a reference is a reference, whatever its format says [K7].

    Raises:
        MalformedMessageError: The bytes are not what the format says.
    """
    data, kind = event.value, event.format
    ref = _ref(event)
    if kind is Format.REF or (ref is not None and not data):
        if ref is None:
            raise MalformedMessageError("a REF event names no frame: stream, epoch and seq must all be there")
        return ref
    if kind is Format.NOTHING:
        if data:
            raise MalformedMessageError(f"an event of NOTHING carries {len(data)} bytes")
        return None
    layout = _NUMBERS.get(kind)
    if layout is not None:
        if len(data) != struct.calcsize(layout):
            raise MalformedMessageError(f"{len(data)} bytes are no {kind.name}")
        number: int | float = struct.unpack(layout, data)[0]
        return number
    if kind in (Format.BOOLEAN, Format.BIT):
        if data not in _TRUTHS:
            raise MalformedMessageError(f"{data[:8]!r} is neither true nor false: one byte, 0 or 1")
        return _TRUTHS[data]
    if kind is Format.BYTES:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise MalformedMessageError(f"a STRING is not UTF-8 at byte {e.start}") from e


def _ref(event: EventMessage) -> FrameRef | None:
    parts = (event.ref_stream_id, event.ref_epoch, event.ref_seq)
    if any(part is None for part in parts):
        return None
    return FrameRef(*parts)  # type: ignore[arg-type]
