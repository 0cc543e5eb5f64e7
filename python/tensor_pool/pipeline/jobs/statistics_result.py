"""What the job *statistics* finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tensor_pool.pipeline.jobs.drift import DriftLimits  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.report.model import Report

__all__ = ["DeadBand", "StatisticsResult", "StatisticsWindow", "StreamStatistics", "TimelinePoint"]


class StatisticsWindow(msgspec.Struct, kw_only=True):
    """One of several parts of a stream with about equally many frames; the first one is the reference."""

    window: int
    first_epoch: int
    first_seq: int
    last_seq: int
    start: str | None
    """Real time of the first frame."""
    frames: int
    mean: float | None
    std: float | None
    """Of all values of all frames."""
    minimum: float | None
    maximum: float | None
    nan_share: float | None
    mean_shift: float | None = None
    """From the mean of the first window, in standard deviations of its values."""
    psi: float | None = None
    """Population stability index against the first window."""
    drifts: bool = False
    why: list[str] = []


class TimelinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Some frames in a row; one alone where they are few."""

    place: int
    """How many frames of the stream come before."""
    seq: int
    mean: float | None
    minimum: float | None
    maximum: float | None


class DeadBand(msgspec.Struct, frozen=True, kw_only=True):
    """Rows or columns of pictures that all have one value, and did not at first."""

    axis: Literal["rows", "columns"]
    first: int
    last: int
    since_epoch: int
    since_seq: int
    """The first frame in which it is."""
    share: float
    """In how many frames of the window where it is most common."""


class StreamStatistics(msgspec.Struct, kw_only=True):
    """Numbers of one stream, over all values of all frames; None where there is no finite value."""

    stream: str
    frames: int = 0
    unreadable: dict[str, int] = {}
    """Frames whose tensor could not be read, by reason."""
    kinds: dict[str, int] = {}
    """How many frames have which type and shape, most common ones first."""
    values: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    nan_share: float | None = None
    inf_share: float | None = None
    constant_frames: int = 0
    """Frames in which all values are the same."""
    drifts: bool = False
    changed_at_seq: int | None = None
    """Where the mean of a stream that drifts changes most: the frame, or the first of some in a row."""
    dead_bands: list[DeadBand] = []
    windows: list[StatisticsWindow] = []
    timeline: list[TimelinePoint] = []


class StatisticsResult(msgspec.Struct, kw_only=True):
    """Numbers of all streams."""

    streams: list[StreamStatistics]
    limits: DriftLimits

    @property
    def has_problems(self) -> bool:
        """Whether a stream drifts."""
        return any(stream.drifts for stream in self.streams)

    def report(self) -> Report:
        """What to show of it."""
        from tensor_pool.pipeline.jobs.statistics_report import statistics_report  # noqa: PLC0415 - needs this file

        return statistics_report(self)
