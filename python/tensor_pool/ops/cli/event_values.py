"""Values of events as people type and read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.control.values import FrameRef
from tensor_pool.wire.messages import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.control.values import Value

__all__ = ["FORMATS", "parse_assignment", "shown"]

FORMATS: Final = [kind.name.lower() for kind in Format]
_TRUTHS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_REF: Final = "ref:"
_HEX: Final = "hex:"
_LONGEST: Final = 120


def parse_assignment(text: str, format_name: str | None = None) -> tuple[str, Value, Format | None]:
    """Reads ``KEY=VALUE``, or ``KEY`` alone for a command that takes nothing.

    Args:
        text: What was typed.
        format_name: One of `FORMATS`, where the look of the value is not enough.

    Raises:
        click.UsageError: The value is not of that format.

    Example:
        >>> parse_assignment("gain=2.5"), parse_assignment("name=7", "string")
        (('gain', 2.5, None), ('name', '7', <Format.STRING: 12>))
    """
    key, equals, typed = text.partition("=")
    if format_name is None:
        return key, _guessed(typed) if equals else None, None
    kind = Format[format_name.upper()]
    try:
        return key, _READERS[kind](typed), kind
    except ValueError as e:
        raise click.UsageError(f"{typed!r} is no {format_name}: {e}") from e


def shown(value: Value) -> str:
    """A value in one line.

    Example:
        >>> shown(True), shown(FrameRef(10_000, 1, 42)), shown(b"ab")
        ('true', 'ref:10000/1/42', 'hex:6162')
    """
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, FrameRef):
        text = f"{_REF}{value}"
    elif isinstance(value, bytes):
        text = _HEX + value[:_LONGEST].hex()
    else:
        text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _guessed(typed: str) -> Value:
    if typed in _TRUTHS:
        return _TRUTHS[typed]
    if _INTEGER.fullmatch(typed):
        return int(typed)
    try:
        if typed.startswith(_REF):
            return _ref(typed)
        if typed.startswith(_HEX):
            return _bytes(typed)
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    try:
        return float(typed)
    except ValueError:
        return typed


def _truth(typed: str) -> bool:
    if typed not in _TRUTHS:
        raise ValueError("true or false")
    return _TRUTHS[typed]


def _nothing(typed: str) -> None:
    if typed:
        raise ValueError("nothing behind the =")


def _ref(typed: str) -> FrameRef:
    return FrameRef.parse(typed.removeprefix(_REF))


def _bytes(typed: str) -> bytes:
    digits = typed.removeprefix(_HEX)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError(f"{digits!r} are no bytes: two hexadecimal digits for each") from None


_READERS: Final[dict[Format, Callable[[str], Any]]] = dict.fromkeys(Format, int) | {
    Format.NOTHING: _nothing,
    Format.FLOAT32: float,
    Format.FLOAT64: float,
    Format.BOOLEAN: _truth,
    Format.BIT: _truth,
    Format.STRING: str,
    Format.BYTES: _bytes,
    Format.REF: _ref,
}
