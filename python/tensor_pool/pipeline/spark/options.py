"""The options of the format ``tensorpool``, checked before anything is read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.record.filesystems import refuse_credentials
from tensor_pool.pipeline.record.span import EVERYTHING, Span
from tensor_pool.pipeline.spark.live_pool import Connection
from tensor_pool.pipeline.spark.option_values import LARGEST, LONGEST_S, Ranges, convert_options
from tensor_pool.pipeline.spark.schema import Payload  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.pipeline.record.named_frames import NamedFrames

__all__ = ["MOST_FRAMES", "SourceOptions", "parse_options"]

MOST_FRAMES: Final = 10_000
"""So many may be named in one query."""
_NS: Final = 1_000_000_000


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to read.

    ======================  ============  ====================================================================
    option                  default       meaning
    ======================  ============  ====================================================================
    ``mode``                recording     ``recording``: what was recorded; ``live``: the ring of a pool
    ``path``                              the recording: a directory or a URI that pyarrow understands
    ``stream``              all           one stream, or several with commas between them
    ``payload``             ref           ``ref``: where tensors lie; ``bytes``: the tensors themselves
    ``startSeq, endSeq``    all           which frames by number, both included
    ``frames``              all           exactly these frames of a recording, ``STREAM/EPOCH/SEQ`` with
                                          commas between them, and the gaps that they lie in
    ``startTs, endTs``      all           which frames by real time: nanoseconds, or ISO 8601
    ``partitionBytes``      64 MiB        about how many bytes of tensors a task gets
    ``filterPushdown``      false         leave out segments that a query's filters leave out; only for tables
                                          that are used in one query, see `FilteringReader`
    ``failOnDataLoss``                    whether what is missing ends the query (default for recordings), or
                                          is told in rows only (default for live streams)
    ``maxFramesPerTrigger``               at most so many frames in one batch of a stream
    ``maxBytesPerTrigger``                at most so many bytes of tensors in one batch of a stream
    ``waitSeconds``         60            how long a streaming query waits for a stream that is not there, or
                                          not any more
    ``startingOffsets``     latest        live: begin with the newest frame, or with the ``oldest`` one
    ``aeronDir``                          live: the directory of the media driver
    ``config``                            live: the path of a ``tensor-pool.toml``
    ``settings``                          live: keys of the configuration with their values, as JSON
    ======================  ============  ====================================================================
    """

    mode: Literal["recording", "live"] = "recording"
    path: str = ""
    stream: tuple[str, ...] = ()
    payload: Payload = "ref"
    startSeq: int = 0  # noqa: N815 - options of Spark look like that
    endSeq: int = EVERYTHING.last_seq  # noqa: N815
    startTs: int = EVERYTHING.first_ns  # noqa: N815
    endTs: int = EVERYTHING.last_ns  # noqa: N815
    frames: tuple[tuple[int, int, int], ...] = ()
    partitionBytes: int = 64 << 20  # noqa: N815
    filterPushdown: bool = False  # noqa: N815
    failOnDataLoss: bool | None = None  # noqa: N815
    maxFramesPerTrigger: int | None = None  # noqa: N815
    maxBytesPerTrigger: int | None = None  # noqa: N815
    waitSeconds: float = 60.0  # noqa: N815
    startingOffsets: Literal["latest", "oldest"] = "latest"  # noqa: N815
    aeronDir: str = ""  # noqa: N815
    config: str = ""
    settings: str = ""

    @property
    def fails_on_loss(self) -> bool:
        """Whether missing data ends a query."""
        return self.mode == "recording" if self.failOnDataLoss is None else self.failOnDataLoss

    @property
    def connection(self) -> Connection:
        """Which pool."""
        return Connection(aeron_dir=self.aeronDir, config=self.config, settings=self.settings)

    @property
    def named(self) -> NamedFrames | None:
        """The frames that are asked for one by one; None for all."""
        if not self.frames:
            return None
        from tensor_pool.pipeline.record.named_frames import NamedFrames  # noqa: PLC0415 - most name none

        return NamedFrames(self.frames)

    @property
    def span(self) -> Span:
        """Which frames are asked for."""
        return Span(first_seq=self.startSeq, last_seq=self.endSeq, first_ns=self.startTs, last_ns=self.endTs)


_RANGES: Final[Ranges] = {
    "startSeq": (0, LARGEST),
    "endSeq": (0, LARGEST),
    "startTs": (-LARGEST, LARGEST),
    "endTs": (-LARGEST, LARGEST),
    "partitionBytes": (1, LARGEST),
    "maxFramesPerTrigger": (1, LARGEST),
    "maxBytesPerTrigger": (1, LARGEST),
    "waitSeconds": (0, LONGEST_S),
}
_NAMES: Final = {name.lower(): name for name in SourceOptions.__struct_fields__}


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options as given to Spark; names in any case.

    Raises:
        ConfigError: One is unknown, or its value makes no sense; says what would.

    Example:
        >>> parse_options({"PATH": "run", "stream": "a, b", "startTs": "1970-01-01T00:00:01Z"}).stream
        ('a', 'b')
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = _NAMES.get(key.lower())
        if name is None:
            raise ConfigError(f"unknown option {key!r}", hint=f"there are {', '.join(_NAMES.values())}")
        values[name] = _value(name, text)
    options = convert_options(values, SourceOptions, _RANGES)
    if options.maxFramesPerTrigger is not None and options.maxBytesPerTrigger is not None:
        raise ConfigError("two limits for one trigger", hint="maxFramesPerTrigger or maxBytesPerTrigger")
    if options.mode == "live" and not options.stream:
        raise ConfigError("no stream", hint='.option("stream", "camera-1"); `tpool streams` lists them')
    if options.mode == "recording" and not options.path:
        raise ConfigError("no recording", hint='.load("recordings/") names its directory or URI')
    if options.mode == "live" and options.frames:
        raise ConfigError("frames of a live stream", hint="frames are named in recordings; record the stream")
    refuse_credentials(options.path)
    return options


def _value(name: str, text: str) -> Any:
    if name == "stream":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name in {"startTs", "endTs"} and not text.lstrip("-").isdecimal():
        return _iso_ns(name, text)
    if name == "frames":
        return _frames(text)
    return text


def _frames(text: str) -> list[tuple[int, int, int]]:
    from tensor_pool.control.values import FrameRef  # noqa: PLC0415 - most queries name none

    try:
        found: list[tuple[int, int, int]] = [
            FrameRef.parse(part.strip()) for part in text.split(",") if part.strip()
        ]
    except ValueError as e:
        raise ConfigError(f"option frames: {e}", hint="such as 10000/3/42, 10000/3/57") from None
    if not 1 <= len(found) <= MOST_FRAMES:
        raise ConfigError(f"option frames names {len(found):,}", hint=f"1 to {MOST_FRAMES:,} frames")
    return found


def _iso_ns(name: str, text: str) -> int:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"option {name}={text!r}", hint="nanoseconds, or a time like 2026-11-15T12:00:00Z"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1_000
