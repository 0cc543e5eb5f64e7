"""How fast, how even, how late: what the frames of a stream add up to.

Meters take numbers and know no clock and no stream, so tests feed them what they like. Each covers whatever
it was fed since it was made: one for every line that is printed, and one for the whole.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from tensor_pool.runtime import Histogram

__all__ = [
    "Bandwidth",
    "BandwidthSummary",
    "Delays",
    "DelaySummary",
    "Intervals",
    "IntervalSummary",
    "Step",
    "Steps",
]

_NS_PER_S: Final = 1e9
_NS_PER_MS: Final = 1e6
_NS_PER_US: Final = 1e3


class Step(NamedTuple):
    """From one frame to the next that was seen."""

    frames: int
    """How many frames further; more than 1 when some were missed."""
    elapsed_ns: int


class Steps:
    """Turns frames into steps; the first frame of an epoch makes none.

    Example:
        >>> steps = Steps()
        >>> steps.next(epoch=5, seq=10, at_ns=0), steps.next(epoch=5, seq=12, at_ns=300)
        (None, Step(frames=2, elapsed_ns=300))
    """

    def __init__(self) -> None:
        self._last: tuple[int, int, int] | None = None

    def next(self, *, epoch: int, seq: int, at_ns: int, absent: int = 0) -> Step | None:
        """The step to a frame.

        Args:
            epoch: The frame's.
            seq: Its number.
            at_ns: Its time.
            absent: How many of the numbers since the last frame nobody wrote: they are no frames.
        """
        last, self._last = self._last, (epoch, seq, at_ns)
        if last is None or last[0] != epoch or seq <= last[1]:
            return None
        return Step(max(1, seq - last[1] - absent), max(0, at_ns - last[2]))


class IntervalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How fast and how even; None where too few frames came."""

    frames: int
    """Frames that were seen."""
    missed: int
    """Frames between them that were not."""
    rate_hz: float | None
    """Of the producer: missed frames count."""
    min_ms: float | None
    p10_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    max_ms: float | None
    jitter_rms_ms: float | None
    """Root mean square of the intervals' distance from their mean."""


class Intervals:
    """Times between frames. An interval over a missed frame counts for the rate, and not as an interval.

    Example:
        >>> intervals = Intervals()
        >>> for ms in (9, 10, 11):
        ...     intervals.add(Step(1, ms * 1_000_000))
        >>> summary = intervals.summary()
        >>> summary.rate_hz, summary.min_ms, summary.jitter_rms_ms
        (100.0, 9.0, 0.816)
    """

    def __init__(self) -> None:
        self._frames = 0
        self._missed = 0
        self._stepped = 0
        self._span_ns = 0
        self._single_ns = 0
        self._squares_ns2 = 0
        self._histogram = Histogram()

    def add(self, step: Step | None) -> None:
        """Counts a frame and the step to it."""
        self._frames += 1
        if step is None:
            return
        self._stepped += step.frames
        self._span_ns += step.elapsed_ns
        self._missed += step.frames - 1
        if step.frames == 1:
            self._histogram.record(step.elapsed_ns)
            # Exactly, in integers: the jitter of an even stream is far below a bucket of the histogram.
            self._single_ns += step.elapsed_ns
            self._squares_ns2 += step.elapsed_ns**2

    def summary(self) -> IntervalSummary:
        """What it comes to."""
        histogram = self._histogram
        count = histogram.count
        p10, p50, p90 = histogram.percentiles([10, 50, 90])
        variance = (count * self._squares_ns2 - self._single_ns**2) / count**2 if count else 0.0

        def ms(value_ns: float) -> float | None:
            return round(value_ns / _NS_PER_MS, 3) if count else None

        return IntervalSummary(
            frames=self._frames,
            missed=self._missed,
            rate_hz=round(self._stepped * _NS_PER_S / self._span_ns, 3) if self._span_ns else None,
            min_ms=ms(histogram.min_ns),
            p10_ms=ms(p10),
            p50_ms=ms(p50),
            p90_ms=ms(p90),
            max_ms=ms(histogram.max_ns),
            jitter_rms_ms=ms(math.sqrt(max(0.0, variance))),
        )


class BandwidthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many bytes; None where too few frames came."""

    frames: int
    missed: int
    bytes: int
    """Of the frames that were seen."""
    rate_hz: float | None
    bytes_per_s: float | None
    """Of the producer: missed frames count as large as the others are on average."""
    min_frame_bytes: int | None
    mean_frame_bytes: float | None
    max_frame_bytes: int | None


class Bandwidth:
    """Bytes of frames.

    Example:
        >>> bandwidth = Bandwidth()
        >>> bandwidth.add(1_000, None)
        >>> bandwidth.add(3_000, Step(1, 10_000_000))
        >>> bandwidth.summary().bytes_per_s, bandwidth.summary().max_frame_bytes
        (200000.0, 3000)
    """

    def __init__(self) -> None:
        self._frames = 0
        self._missed = 0
        self._bytes = 0
        self._stepped = 0
        self._span_ns = 0
        self._smallest: int | None = None
        self._largest: int | None = None

    def add(self, nbytes: int, step: Step | None) -> None:
        """Counts a frame and the step to it."""
        self._frames += 1
        self._bytes += nbytes
        self._smallest = nbytes if self._smallest is None else min(nbytes, self._smallest)
        self._largest = nbytes if self._largest is None else max(nbytes, self._largest)
        if step is not None:
            self._missed += step.frames - 1
            self._stepped += step.frames
            self._span_ns += step.elapsed_ns

    def summary(self) -> BandwidthSummary:
        """What it comes to."""
        rate_hz = self._stepped * _NS_PER_S / self._span_ns if self._span_ns else None
        mean = self._bytes / self._frames if self._frames else None
        return BandwidthSummary(
            frames=self._frames,
            missed=self._missed,
            bytes=self._bytes,
            rate_hz=None if rate_hz is None else round(rate_hz, 3),
            bytes_per_s=None if rate_hz is None or mean is None else round(rate_hz * mean, 1),
            min_frame_bytes=self._smallest,
            mean_frame_bytes=None if mean is None else round(mean, 1),
            max_frame_bytes=self._largest,
        )


class DelaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """How late; None when no frame came."""

    frames: int
    min_us: float | None
    mean_us: float | None
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float | None


class Delays:
    """Times from a frame's time stamp until it was seen.

    Example:
        >>> delays = Delays()
        >>> delays.add(25_000)
        >>> delays.summary().p50_us
        25.0
    """

    def __init__(self) -> None:
        self._histogram = Histogram()

    def add(self, delay_ns: int) -> None:
        """Counts a frame; what comes out negative is 0, within the error of the clock."""
        self._histogram.record(delay_ns)

    def summary(self) -> DelaySummary:
        """What it comes to."""
        found = self._histogram.summary()

        def us(value_ns: float) -> float | None:
            return round(value_ns / _NS_PER_US, 1) if found.count else None

        return DelaySummary(
            frames=found.count,
            min_us=us(found.min_ns),
            mean_us=us(found.mean_ns),
            p50_us=us(found.p50_ns),
            p99_us=us(found.p99_ns),
            p999_us=us(found.p999_ns),
            max_us=us(found.max_ns),
        )
