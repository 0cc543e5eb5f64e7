"""``tpool hz``, ``tpool bw``, ``tpool delay``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from tensor_pool.errors import TensorPoolError
from tensor_pool.ops.absent_numbers import AbsentNumbers
from tensor_pool.ops.cli.asking import timeout_option
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.stream.live import Length, length_options, observer, run_gauge
from tensor_pool.ops.frame_clock import frame_clock
from tensor_pool.ops.meters import Bandwidth, Delays, Intervals, Steps
from tensor_pool.pool.config import ClientSection

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.frame_clock import FrameClock
    from tensor_pool.ops.meters import BandwidthSummary, DelaySummary, IntervalSummary
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame

__all__ = ["BandwidthGauge", "DelayGauge", "IntervalGauge", "bw", "delay", "hz"]

_PATIENCE: Final = 3.0
"""Metadata is repeated once in an interval; on a busy machine it may be late."""
_PAUSE_S: Final = 0.01
_TOLERANCE_NS: Final = 1_000_000
"""A frame may be so far in the future before its clock can't be ours."""


class IntervalGauge:
    """`hz`: intervals between frames, by when they came or by their time stamps.

    Args:
        by_timestamp: Whether their time stamps count.
        absent: Knows which numbers nobody wrote; without it all numbers are frames.
    """

    def __init__(self, *, by_timestamp: bool, absent: AbsentNumbers | None = None) -> None:
        self._by_timestamp = by_timestamp
        self._absent = absent
        self._steps = Steps()
        self._window, self._total = Intervals(), Intervals()

    def take(self, frame: Frame, at_ns: int) -> None:
        """See `Gauge`."""
        step = self._steps.next(
            epoch=frame.epoch,
            seq=frame.seq,
            at_ns=frame.timestamp_ns if self._by_timestamp else at_ns,
            absent=0 if self._absent is None else self._absent.before(frame),
        )
        self._window.add(step)
        self._total.add(step)

    def window(self) -> IntervalSummary:
        """See `Gauge`."""
        done, self._window = self._window, Intervals()
        return done.summary()

    def total(self) -> IntervalSummary:
        """See `Gauge`."""
        return self._total.summary()

    def line(self, summary: IntervalSummary) -> str:
        """See `Gauge`."""
        if summary.rate_hz is None:
            return "one frame"
        missed = f"   missed {summary.missed}" if summary.missed else ""
        if summary.p50_ms is None:
            return f"{summary.rate_hz:.2f} Hz{missed}"
        return (
            f"{summary.rate_hz:.2f} Hz   interval ms: min {summary.min_ms:.3f}  p10 {summary.p10_ms:.3f}  "
            f"p50 {summary.p50_ms:.3f}  p90 {summary.p90_ms:.3f}  max {summary.max_ms:.3f}  "
            f"jitter {summary.jitter_rms_ms:.3f}{missed}"
        )


class BandwidthGauge:
    """`bw`: bytes a second.

    Args:
        absent: Knows which numbers nobody wrote; without it all numbers are frames.
    """

    def __init__(self, *, absent: AbsentNumbers | None = None) -> None:
        self._absent = absent
        self._steps = Steps()
        self._window, self._total = Bandwidth(), Bandwidth()

    def take(self, frame: Frame, at_ns: int) -> None:
        """See `Gauge`."""
        absent = 0 if self._absent is None else self._absent.before(frame)
        step = self._steps.next(epoch=frame.epoch, seq=frame.seq, at_ns=at_ns, absent=absent)
        self._window.add(frame.nbytes, step)
        self._total.add(frame.nbytes, step)

    def window(self) -> BandwidthSummary:
        """See `Gauge`."""
        done, self._window = self._window, Bandwidth()
        return done.summary()

    def total(self) -> BandwidthSummary:
        """See `Gauge`."""
        return self._total.summary()

    def line(self, summary: BandwidthSummary) -> str:
        """See `Gauge`."""
        if summary.bytes_per_s is None:
            return f"one frame of {summary.bytes} bytes"
        missed = f"   missed {summary.missed}" if summary.missed else ""
        return (
            f"{summary.bytes_per_s / 1e6:.3f} MB/s   {summary.rate_hz:.2f} Hz   frame bytes: "
            f"min {summary.min_frame_bytes}  mean {summary.mean_frame_bytes:.0f}  "
            f"max {summary.max_frame_bytes}{missed}"
        )


class DelayGauge:
    """`delay`: from time stamp to arrival."""

    def __init__(self, clock: FrameClock, *, stream: str) -> None:
        self._clock = clock
        self._read_ns = clock.read_ns
        self._stream = stream
        self._window, self._total = Delays(), Delays()

    def take(self, frame: Frame, at_ns: int) -> None:  # noqa: ARG002 - the frame's clock counts
        """See `Gauge`.

        Raises:
            TensorPoolError: The frame is of the future: its clock is not the one that it seems to be.
        """
        delay_ns = self._read_ns() - frame.timestamp_ns
        if delay_ns < -(_TOLERANCE_NS + self._clock.error_ns):
            raise TensorPoolError(
                f"frame {frame.seq} of {self._stream} is {-delay_ns / 1e9:.3f} s in the future: "
                f"its time stamp is not of the clock {self._clock.domain} of this host",
                hint="`tpool hz` measures without time stamps",
            )
        self._window.add(delay_ns)
        self._total.add(delay_ns)

    def window(self) -> DelaySummary:
        """See `Gauge`."""
        done, self._window = self._window, Delays()
        return done.summary()

    def total(self) -> DelaySummary:
        """See `Gauge`."""
        return self._total.summary()

    def line(self, summary: DelaySummary) -> str:
        """See `Gauge`."""
        return (
            f"delay us: p50 {summary.p50_us:.1f}  p99 {summary.p99_us:.1f}  p99.9 {summary.p999_us:.1f}  "
            f"min {summary.min_us:.1f}  mean {summary.mean_us:.1f}  max {summary.max_us:.1f}"
        )


@click.command()
@click.argument("stream")
@click.option(
    "--by",
    type=click.Choice(["arrival", "timestamp"]),
    default="arrival",
    show_default=True,
    help="Whether intervals are those between frames as they come here, or between their time stamps.",
)
@length_options
@timeout_option
@format_option()
@config_options
@click.pass_context
def hz(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    stream: str,
    by: str,
    timeout_s: float,
    **length: Any,
) -> None:
    """Measure how fast and how evenly the frames of STREAM (a name or an id) come, until Ctrl-C.

    Reads as an ordinary consumer, which nobody else notices. A producer that ends is waited for. Exit codes:
    0 when frames came, 1 when none, or fewer than --count and the producer is gone.

    \b
    Examples:
      tpool hz camera-1
      tpool hz camera-1 --seconds 10 --format json | jq .jitter_rms_ms
    """  # noqa: D301 - click's mark for text that stays as it is
    with observer(config, stream, timeout_s=timeout_s) as observed:
        gauge = IntervalGauge(by_timestamp=by == "timestamp", absent=AbsentNumbers(observed.consumer))
        code = run_gauge(observed, gauge, Length(**length), output_format)
    ctx.exit(code)


@click.command()
@click.argument("stream")
@length_options
@timeout_option
@format_option()
@config_options
@click.pass_context
def bw(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    stream: str,
    timeout_s: float,
    **length: Any,
) -> None:
    """Measure how many bytes a second STREAM (a name or an id) carries, until Ctrl-C.

    \b
    Examples:
      tpool bw camera-1
      tpool bw camera-1 --seconds 10 --format json | jq .bytes_per_s
    """  # noqa: D301 - see above
    with observer(config, stream, timeout_s=timeout_s) as observed:
        gauge = BandwidthGauge(absent=AbsentNumbers(observed.consumer))
        code = run_gauge(observed, gauge, Length(**length), output_format)
    ctx.exit(code)


@click.command()
@click.argument("stream")
@length_options
@timeout_option
@format_option()
@config_options
@click.pass_context
def delay(
    ctx: click.Context,
    /,
    *,
    config: Config,
    output_format: OutputFormat,
    stream: str,
    timeout_s: float,
    **length: Any,
) -> None:
    """Measure how old the frames of STREAM (a name or an id) are when they come, until Ctrl-C.

    That is the time from a frame's time stamp until this command sees it, with all that lies between:
    exposure, the copy into shared memory, waking up. Refused where the time stamps are of a clock that can't
    be read on this host; `tpool info` tells which one it is.

    \b
    Examples:
      tpool delay camera-1
      tpool delay camera-1 --count 1000 --format json | jq .p99_us
    """  # noqa: D301 - see above
    with observer(config, stream, timeout_s=timeout_s) as observed:
        patience_s = _PATIENCE * _metadata_interval_s(config)
        clock = _clock_of(observed.consumer, observed.label, patience_s=patience_s)
        gauge = DelayGauge(clock, stream=observed.label)
        code = run_gauge(observed, gauge, Length(**length), output_format)
    ctx.exit(code)


def _metadata_interval_s(config: Config) -> float:
    return config[ClientSection].metadata_interval_ms / 1000


def _clock_of(consumer: Consumer, label: str, *, patience_s: float) -> FrameClock:
    """The clock of the frames, as soon as the producer has said which one it is."""
    deadline = time.monotonic() + patience_s
    while not consumer.metadata.complete and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    clock = frame_clock(consumer.metadata, stream=label)
    if clock.is_assumed and consumer.mapped:  # who is not there can't say which, and that is said at the end
        click.echo(f"{label} does not say which clock dates its frames; monotonic is assumed", err=True)
    return clock
