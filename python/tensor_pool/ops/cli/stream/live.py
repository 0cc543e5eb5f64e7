"""Following a stream as an ordinary consumer, and saying what was measured every now and then."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import click
import msgspec

from tensor_pool.errors import NoDriverError, NoStreamError, TensorPoolError
from tensor_pool.host.aeron import aeron_dir
from tensor_pool.ops.cli import exit_codes, failures
from tensor_pool.ops.cli.asking import open_pool
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber
from tensor_pool.ops.cli.output import print_json, print_record, print_text
from tensor_pool.ops.cli.stream.absence import Absence
from tensor_pool.ops.doctor.finding import counted
from tensor_pool.ops.stream_lookup import find_stream
from tensor_pool.stop_signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool

__all__ = [
    "Gauge",
    "Length",
    "Observed",
    "follow",
    "length_options",
    "nobody_produces",
    "observer",
    "run_gauge",
]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")

_LOOK_S: Final = 0.1
"""How often to look for a stop signal; nobody notices less."""
_PAUSE_S: Final = 1.0
"""So much time without frames is a pause."""
PATIENCE_S: Final = 10.0
"""How long a measurement that ends with a number of frames waits for a producer that is gone."""


class Gauge(Protocol):
    """Measures frames, for the line that is due and for the end."""

    def take(self, frame: Frame, at_ns: int) -> None:
        """Measures a frame that was seen at `at_ns` of the monotonic clock."""
        ...

    def window(self) -> msgspec.Struct:
        """What was measured since the last call."""
        ...

    def total(self) -> msgspec.Struct:
        """What was measured since the start."""
        ...

    def line(self, summary: Any) -> str:
        """A summary for people."""
        ...


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure, and how often to say something."""

    seconds: float | None = None
    count: int | None = None
    window_s: float = 1.0


def length_options(command: CommandT) -> CommandT:
    """Add ``--seconds``, ``--count`` and ``--window`` to a command; it makes a `Length` of them.

    Example:
        >>> @click.command
        ... @length_options
        ... def hz(**length: Any) -> None: ...
        >>> [option.opts[0] for option in hz.params]
        ['--seconds', '--count', '--window']
    """
    options = (
        click.option(
            "--window",
            "window_s",
            type=FiniteFloat(0.1, 3600),
            default=1.0,
            show_default=True,
            metavar="SECONDS",
            help="How much time each line covers.",
        ),
        click.option(
            "--count",
            type=WholeNumber(min=1),
            metavar="N",
            help="End after so many frames. Without --seconds also, with exit code 1, when nobody has "
            f"produced the stream for {PATIENCE_S:g} s.",
        ),
        click.option(
            "--seconds",
            type=FiniteFloat(min=0, max=1e9, min_open=True),
            metavar="SECONDS",
            help="End after so long; without it, at Ctrl-C.",
        ),
    )
    for option in options:
        command = option(command)
    return command


class Observed(NamedTuple):
    """A stream that is looked at."""

    consumer: Consumer
    label: str
    """What to call the stream."""
    is_produced: Callable[[], bool]
    """Asks the driver whether the stream has a producer: a consumer keeps the memory of one that ended."""
    where: str
    """The directory of the media driver, for errors."""


@contextmanager
def observer(config: Config, stream: str, *, timeout_s: float) -> Iterator[Observed]:
    """A consumer that only looks.

    It begins with the newest frame and never skips: frames that it misses are its own, and counted as such.

    Raises:
        NoStreamError: There is no such stream. A consumer by name would make one, and wait for its producer.
    """
    with open_pool(config, timeout_s=timeout_s) as pool:
        known = pool.streams(ended=True)  # that nobody produces it is said later
        where = aeron_dir(config.aeron)
        found = find_stream(known, stream, where=where)
        label = f"{found.name} ({found.stream_id})" if found.name else str(found.stream_id)
        with pool.consumer(found.stream_id, start="latest", max_outstanding_seq_gap=0) as consumer:
            yield Observed(consumer, label, lambda: _is_produced(pool, found.stream_id), where)


def _is_produced(pool: Pool, stream_id: int) -> bool:
    with suppress(NoDriverError):  # a driver that is gone has taken all leases with it
        return any(one.stream_id == stream_id and one.state == "live" for one in pool.streams())
    return False


def follow(
    consumer: Consumer,
    take: Callable[[Frame, int], object],
    show: Callable[[], object],
    length: Length,
    *,
    absence: Absence,
) -> None:
    """Hands frames to `take`, and calls `show` once a window, until a stop signal or the end of `length`.

    Only frames that come from now on: when the others came nobody knows. Ends too when the producer's
    `absence` gets too long.
    """
    with StopSignals() as stop:
        consumer.latest()
        now = time.monotonic()
        end = None if length.seconds is None else now + length.seconds
        next_show, next_look, taken = now + length.window_s, now + _LOOK_S, 0
        while (end is None or now < end) and taken != length.count:
            until = min(next_show, next_look, *([] if end is None else [end]))
            frame = consumer.poll(timeout=max(0.0, until - now))
            if frame is not None:
                take(frame, time.monotonic_ns())
                taken += 1
            now = time.monotonic()
            if frame is not None:
                absence.frame_came(now)
            if now >= next_show:
                next_show += length.window_s * (1 + (now - next_show) // length.window_s)
                show()
            if now >= next_look:
                next_look = now + _LOOK_S
                if stop.wait(timeout_s=0) or absence.is_too_long(now):
                    return


def run_gauge(observed: Observed, gauge: Gauge, length: Length, output_format: OutputFormat) -> int:
    """Measures and prints: lines while it goes on, a summary at the end; the exit code.

    Args:
        observed: Whose frames are measured.
        gauge: Measures them.
        length: How long.
        output_format: How it is printed.
    """
    if output_format == "json" and length.seconds is None and length.count is None:
        raise click.UsageError(
            "a JSON document must have an end; add --count or --seconds, or take --format jsonl"
        )
    started = time.monotonic()
    patience_s = None if length.count is None or length.seconds is not None else PATIENCE_S
    absence = Absence(observed.is_produced, observed.label, patience_s=patience_s)

    def show() -> None:
        summary = gauge.window()
        if output_format == "jsonl":
            print_record({"kind": "window", **_row(summary, time.monotonic() - started)}, "jsonl")
        elif output_format == "table" and getattr(summary, "frames"):  # noqa: B009
            print_text(gauge.line(summary))
        elif output_format == "table" and not absence.is_said:
            click.echo("no frame")
        sys.stdout.flush()

    follow(observed.consumer, gauge.take, show, length, absence=absence)
    total, seconds = gauge.total(), time.monotonic() - started
    frames: int = getattr(total, "frames")  # noqa: B009 - every summary has it
    if output_format == "json":
        print_json(_row(total, seconds))
    elif output_format == "jsonl":
        print_record({"kind": "total", **_row(total, seconds)}, "jsonl")
    elif frames:
        # A rate is that of the frames between which nothing ended; with pauses there are fewer than it says.
        rate_hz: float | None = getattr(total, "rate_hz", None)
        came = ", while they came" if rate_hz and seconds - frames / rate_hz > _PAUSE_S else ""
        print_text(f"in all, {counted(frames, 'frame')} in {seconds:.1f} s{came}: {gauge.line(total)}")
    if absence.is_over or not frames:
        return failures.report(_silence(observed, seconds))
    return exit_codes.OK


def nobody_produces(observed: Observed, *, hint: str) -> NoStreamError:
    """What a command says of a stream that is known and has no producer."""
    return NoStreamError(f"nobody produces {observed.label} now", where=observed.where, hint=hint)


def _silence(observed: Observed, seconds: float) -> TensorPoolError:
    if not observed.is_produced():
        return nobody_produces(observed, hint="start its producer; with --seconds it is waited for that long")
    return TensorPoolError(
        f"no frame of {observed.label} came within {seconds:.1f} s",
        where=observed.where,
        hint="its producer is there and publishes nothing; measure longer, or see what it waits for",
    )


def _row(summary: msgspec.Struct, seconds: float) -> dict[str, Any]:
    return {"seconds": round(seconds, 3), **msgspec.structs.asdict(summary)}
