"""Errors that can be seen from outside: the media driver's log, and agents whose cycles failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from tensor_pool.runtime.counters import CounterType
from tensor_pool.transport import read_counters
from tensor_pool.transport.driver_errors import read_driver_errors

if TYPE_CHECKING:
    from tensor_pool.transport import CounterReading
    from tensor_pool.transport.driver_errors import DriverError

__all__ = ["ErrorRow", "read_error_rows"]


class ErrorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A distinct error as it is printed; the names are the keys of the JSON output."""

    source: str
    """``media driver``, or the agent whose counter it is."""
    count: int
    first: str | None
    """When it first occurred, in UTC; None where only a count is known."""
    last: str | None
    text: str


def read_error_rows(aeron_dir: str) -> list[ErrorRow]:
    """All errors that the files of a media driver tell of, those that occurred last at the end.

    Raises:
        NoMediaDriverError: The directory holds no media driver's files.
    """
    logged = sorted(read_driver_errors(aeron_dir), key=lambda error: error.last_ms)
    failing = read_counters(aeron_dir, type_id=CounterType.AGENT_ERRORS.type_id)
    return [
        *(_of_agent(reading) for reading in failing if reading.value > 0),
        *map(_of_media_driver, logged),
    ]


def _of_media_driver(error: DriverError) -> ErrorRow:
    return ErrorRow(
        source="media driver",
        count=error.observations,
        first=_time(error.first_ms),
        last=_time(error.last_ms),
        text=error.text.strip(),
    )


def _of_agent(reading: CounterReading) -> ErrorRow:
    agent = reading.label.removesuffix(f": {CounterType.AGENT_ERRORS.label}")
    return ErrorRow(
        source=agent,
        count=reading.value,
        first=None,
        last=None,
        text="duty cycles that ended with an exception; its log has them",
    )


def _time(ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(ms / 1e3, tz=UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a damaged file
        return None
