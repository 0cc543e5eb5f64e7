"""A part of a recording, to go through: which streams, from when to when, whatever of it is damaged."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from tensor_pool.errors import ConfigError, MalformedMessageError, RegionError
from tensor_pool.pipeline.record.recording import Recording

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from tensor_pool.pipeline.record.catalogue import SegmentInfo
    from tensor_pool.pipeline.record.place import Place
    from tensor_pool.pipeline.record.recording import RecordedFrame, RecordedStream

__all__ = ["Damage", "Moment", "Selection", "TimeOf", "read_moment"]

_NS: Final = 1_000_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

TimeOf = Literal["event", "recorded"]
"""Which time is meant: when a frame was taken, as far as a clock says so, or when it was recorded."""

Moment: TypeAlias = "str | float | dt.datetime | None"
"""Seconds from the start, or a time; as text too. None for no bound."""


class Damage(NamedTuple):
    """Frames that can't be read."""

    stream: str
    frames: int
    what: str


def read_moment(moment: Moment, start_ns: int) -> int | None:
    """A moment as real time.

    Args:
        moment: Seconds from the start, or a time; one without a zone is of this machine's zone.
        start_ns: When the recording starts.

    Raises:
        ConfigError: It is neither.

    Example:
        >>> read_moment("1.5", start_ns=10), read_moment("1970-01-01T00:00:02.5Z", start_ns=10)
        (1500000010, 2500000000)
        >>> read_moment("soon", start_ns=10)
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: 'soon' is no moment of a recording...
    """
    if moment is None:
        return None
    if isinstance(moment, str):
        moment = _parsed(moment)
    if isinstance(moment, dt.datetime):
        since = moment.astimezone(dt.UTC) - _EPOCH
        return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1_000
    if not math.isfinite(moment) or moment < 0:
        raise _no_moment(moment)
    return start_ns + round(moment * _NS)


def _parsed(text: str) -> float | dt.datetime:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise _no_moment(text) from None


def _no_moment(moment: object) -> ConfigError:
    return ConfigError(
        f"{moment!r} is no moment of a recording",
        hint="seconds from its start, such as 1.5, or a time, such as 2026-05-01T12:00:00+02:00",
    )


class Selection:
    """Some streams of a recording, or all, from one moment to another.

    Args:
        recording: The recording, its directory, or its URI.
        streams: Their names; none for all.
        start: The first moment that belongs to it; None for no bound.
        end: The last one.
        time_of: Which time of frames counts. Frames that no clock dates count as of when they were recorded.

    Raises:
        RegionError: There is no recording, or no such stream.
        ConfigError: The moments make no sense.
    """

    def __init__(
        self,
        recording: Recording | str | os.PathLike[str] | Place,
        streams: Sequence[str] = (),
        *,
        start: Moment = None,
        end: Moment = None,
        time_of: TimeOf = "event",
    ) -> None:
        if isinstance(streams, str):
            raise ConfigError(f"streams={streams!r}", hint="a list of names")
        self.recording: Final = recording if isinstance(recording, Recording) else Recording(recording)
        self.streams: Final[dict[str, RecordedStream]] = {
            name: self.recording[name] for name in (streams or self.recording)
        }
        self._time_of = time_of
        spans = [
            self._span_of(segment)
            for stream in self.streams.values()
            for segment in stream.catalogue.segments
        ]
        earliest = min((first for first, _ in spans), default=0)
        latest = max((last for _, last in spans), default=0)
        first, last = read_moment(start, earliest), read_moment(end, earliest)
        if first is not None and last is not None and first > last:
            raise ConfigError(f"it ends at {end} and starts at {start}", hint="an end after the start")
        self.first_ns: Final = earliest if first is None else max(first, earliest)
        """When it starts, real time."""
        self.last_ns: Final = latest if last is None else min(last, latest)
        self._is_bounded = first is not None or last is not None

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max(0, self.last_ns - self.first_ns) / _NS

    def time_ns(self, frame: RecordedFrame) -> int:
        """When a frame was taken, or when it was recorded."""
        event_ns = frame.event_ns if self._time_of == "event" else None
        return frame.row.recorded_ns if event_ns is None else event_ns

    def frames(self, name: str, on_damage: Callable[[Damage], object]) -> Iterator[RecordedFrame]:
        """The frames and gaps of a stream in their order; a segment that can't be read is passed over.

        Args:
            name: The stream.
            on_damage: Told of what can't be read.
        """
        stream = self.streams[name]
        for segment in stream.catalogue.segments:
            if not self._touches(segment):
                continue
            seen = 0
            try:
                for frame in stream.frames_of(segment, gaps=True):
                    seen += frame.row.kind == "frame"
                    if not self._is_bounded or self.first_ns <= self.time_ns(frame) <= self.last_ns:
                        yield frame
            except (MalformedMessageError, OSError, pa.ArrowException) as e:
                what = e.message if isinstance(e, MalformedMessageError | RegionError) else str(e)
                on_damage(Damage(name, segment.frames - seen, what))

    def merged(self, on_damage: Callable[[Damage], object]) -> Iterator[tuple[int, str, RecordedFrame]]:
        """The frames and gaps of all streams in the order of time; those of a stream never change places.

        Args:
            on_damage: Told of what can't be read.

        Returns:
            Time, stream and frame; the time never goes back.
        """
        return heapq.merge(
            *(self._timed(name, on_damage) for name in self.streams), key=lambda entry: entry[0]
        )

    def _timed(
        self, name: str, on_damage: Callable[[Damage], object]
    ) -> Iterator[tuple[int, str, RecordedFrame]]:
        newest_ns = self.first_ns
        for frame in self.frames(name, on_damage):
            newest_ns = max(newest_ns, self.time_ns(frame))
            yield newest_ns, name, frame

    def _touches(self, segment: SegmentInfo) -> bool:
        """Whether frames of a segment may belong to it; some may be dated by one clock, some by the other."""
        if not self._is_bounded:
            return True
        firsts = [segment.first_recorded_ns, segment.first_event_ns]
        lasts = [segment.last_recorded_ns, segment.last_event_ns]
        first = min(at for at in firsts if at is not None)
        last = max(at for at in lasts if at is not None)
        return first <= self.last_ns and last >= self.first_ns

    def _span_of(self, segment: SegmentInfo) -> tuple[int, int]:
        first, last = segment.first_event_ns, segment.last_event_ns
        if self._time_of == "recorded" or first is None or last is None:
            return segment.first_recorded_ns, segment.last_recorded_ns
        return first, last
