"""``tpool bench``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import click
import msgspec

from tensor_pool.ops.bench.plan import BenchMode, BenchPlan
from tensor_pool.ops.cli.options import FiniteFloat, WholeNumber, config_options, format_option
from tensor_pool.ops.cli.output import print_record
from tensor_pool.runtime import logs
from tensor_pool.stop_signals import unwound_by_sigterm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import Config
    from tensor_pool.ops.bench.bridge_plan import BridgeResult, EndReport
    from tensor_pool.ops.bench.plan import BenchResult, PeerReport
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["bench"]

CommandT = TypeVar("CommandT", bound="Callable[..., Any]")

_MOST_BYTES: Final = 1 << 32
_MOST_PAYLOAD: Final = 1 << 30
"""What a bridge carries in one frame."""


@click.group()
def bench() -> None:
    """Measure how fast this machine could go: two processes, on drivers that nobody else uses."""


def _bench_options(command: CommandT) -> CommandT:
    options = (
        click.option("--loan", is_flag=True, help="Publish slots in place instead of copying frames."),
        click.option(
            "--profile",
            type=click.Choice(["latency", "balanced", "eco"]),
            default="balanced",
            show_default=True,
            help="How processes wait; same as --set client.wake_profile=...",
        ),
        click.option(
            "--slots",
            type=WholeNumber(1, 1 << 20),
            default=64,
            show_default=True,
            metavar="N",
            help="How many frames the ring holds; a power of two.",
        ),
        click.option(
            "--seconds",
            type=FiniteFloat(0.1, 3600),
            default=3.0,
            show_default=True,
            help="How long to measure.",
        ),
        click.option(
            "--bytes",
            "frame_bytes",
            type=WholeNumber(1, _MOST_BYTES),
            default=1 << 20,
            show_default=True,
            metavar="N",
            help="How large a frame is.",
        ),
    )
    for option in options:
        command = option(command)
    return command


@bench.command()
@_bench_options
@click.option(
    "--rate",
    "rate_hz",
    type=FiniteFloat(0.1, 1e6),
    default=500.0,
    show_default=True,
    metavar="HZ",
    help="Frames a second.",
)
@format_option()
@config_options
def latency(config: Config, output_format: OutputFormat, **plan: Any) -> None:
    """Measure the time from the start of publishing a frame until its consumer has it.

    \b
    Examples:
      tpool bench latency --profile latency
      tpool bench latency --bytes 8388608 --rate 100 --format json | jq .p99_us
    """  # noqa: D301 - click's mark for text that stays as it is
    _run(config, output_format, BenchPlan(mode=BenchMode.LATENCY, **plan))


@bench.command()
@_bench_options
@click.option(
    "--rate",
    "rate_hz",
    type=FiniteFloat(0.1, 1e6),
    metavar="HZ",
    help="Frames a second; as fast as it goes when not given.",
)
@format_option()
@config_options
def throughput(config: Config, output_format: OutputFormat, **plan: Any) -> None:
    """Measure how many frames and bytes a second go from one process to another.

    \b
    Examples:
      tpool bench throughput --bytes 655360
      tpool bench throughput --loan --bytes 65536 --seconds 10
    """  # noqa: D301 - see above
    _run(config, output_format, BenchPlan(mode=BenchMode.THROUGHPUT, **plan))


@bench.command()
@click.option(
    "--bytes",
    "frame_bytes",
    type=WholeNumber(1, _MOST_PAYLOAD),
    default=640 << 10,
    show_default=True,
    metavar="N",
    help="How large a frame is.",
)
@click.option(
    "--seconds",
    type=FiniteFloat(0.1, 3600),
    default=2.0,
    show_default=True,
    help="How long to measure, each of the two.",
)
@click.option(
    "--rate",
    "rate_hz",
    type=FiniteFloat(0.1, 1e4),
    default=50.0,
    show_default=True,
    metavar="HZ",
    help="Frames a second while the delay is measured.",
)
@click.option(
    "--slots",
    type=WholeNumber(4, 1 << 20),
    default=16,
    show_default=True,
    metavar="N",
    help="How many frames the rings hold; a power of two.",
)
@click.option(
    "--mtu",
    type=WholeNumber(512, 65_504),
    default=8192,
    show_default=True,
    metavar="N",
    help="Bytes of a packet, a multiple of 32; 1408 passes every network.",
)
@format_option()
@config_options
def bridge(config: Config, output_format: OutputFormat, **plan: Any) -> None:
    """Measure how frames pass a bridge: two processes that talk over UDP on loopback.

    First as fast as it goes, for the throughput, then at a rate, for the delay from the start of publishing a
    frame until a consumer at the other end has it. What the section bridge says is not used.

    \b
    Examples:
      tpool bench bridge
      tpool bench bridge --bytes 8388608 --rate 30 --format json | jq .mib_per_s
    """  # noqa: D301 - see above
    from tensor_pool.bridging.chunk_sizes import slice_sizes  # noqa: PLC0415 - see below
    from tensor_pool.ops.bench.bridge import run_bridge_bench  # noqa: PLC0415
    from tensor_pool.ops.bench.bridge_plan import BridgePlan  # noqa: PLC0415

    asked = BridgePlan(**plan)
    _check_slots(asked.slots)
    if asked.mtu % 32:
        raise click.UsageError(f"--mtu {asked.mtu} is not a multiple of 32")
    most = slice_sizes(asked.mtu, dialect="ours").most_payload_bytes
    if asked.frame_bytes > most:
        raise click.UsageError(
            f"--bytes {asked.frame_bytes} is more than the {most} that packets of {asked.mtu} bytes carry; "
            "try a larger --mtu"
        )
    _be_quiet(config)
    with (
        unwound_by_sigterm(),
        _Progress(f"{asked.frame_bytes} bytes over a bridge", 2 * asked.seconds) as progress,
    ):
        found = run_bridge_bench(config, asked, on_progress=progress.on_report)
    if output_format == "table":
        _print_bridge_for_people(found)
    else:
        print_record(msgspec.structs.asdict(found), output_format)


class _Progress:
    """A bar on a terminal, a line elsewhere."""

    def __init__(self, label: str, seconds: float) -> None:
        self._bar: Any = click.progressbar(length=round(seconds * 10), label=label, file=sys.stderr)

    def on_report(self, report: EndReport) -> None:
        """Shows how much of the time has passed."""
        done = round(sum(phase.seconds for phase in report.phases.values()) * 10)
        self._bar.update(min(done, self._bar.length) - self._bar.pos)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None:
            self._bar.update(self._bar.length - self._bar.pos)
        self._bar.__exit__(*raised)


def _print_bridge_for_people(found: BridgeResult) -> None:
    lost = ", ".join(f"{why} {count}" for why, count in sorted(found.lost.items()))
    click.echo(
        f"throughput  {found.mib_per_s:,.0f} MiB/s, {found.frames_per_s:,.0f} frames/s "
        f"of {found.frame_bytes} bytes in packets of {found.mtu}"
    )
    click.echo(
        f"latency     p50 {_us(found.p50_us)}  p99 {_us(found.p99_us)}  max {_us(found.max_us)}  "
        f"at {found.rate_hz:g} Hz"
    )
    click.echo(
        f"loss        {found.loss:.2%}: {found.received} of {found.published} frames arrived"
        f"{lost and f' ({lost})'}"
    )
    click.echo(f"CPU         sender {found.sender_cpu_s:.2f} s, receiver {found.receiver_cpu_s:.2f} s")


def _check_slots(slots: int) -> None:
    if slots & (slots - 1):
        raise click.UsageError(f"--slots {slots} is not a power of two")


def _be_quiet(config: Config) -> None:
    if not config.is_set("log.level"):
        logs.configure("warning", config.log.format)  # that drivers of its own begin and end is no news


def _run(config: Config, output_format: OutputFormat, plan: BenchPlan) -> None:
    _check_slots(plan.slots)
    from tensor_pool.ops.bench.run import run_bench  # noqa: PLC0415 - help needs none of it

    _be_quiet(config)
    click.echo(
        f"{plan.mode}: {plan.frame_bytes} bytes, {plan.slots} slots, "
        f"{'as fast as it goes' if plan.rate_hz is None else f'{plan.rate_hz:g} Hz'}, {plan.seconds:g} s ...",
        err=True,
    )
    with unwound_by_sigterm():
        found = run_bench(config, plan, on_progress=_print_progress)
    if output_format == "table":
        _print_for_people(found)
    else:
        print_record(msgspec.structs.asdict(found), output_format)


def _print_progress(report: PeerReport) -> None:
    if report.event == "progress" and report.frames:
        click.echo(
            f"  {report.seconds:.0f} s: {report.frames} frames, "
            f"p50 {report.p50_us:.1f} us, p99 {report.p99_us:.1f} us",
            err=True,
        )


def _print_for_people(found: BenchResult) -> None:
    copied = "no copy" if found.loan else "one copy"
    click.echo(
        f"latency     p50 {_us(found.p50_us)}  p99 {_us(found.p99_us)}  p99.9 {_us(found.p999_us)}  "
        f"min {_us(found.min_us)}  max {_us(found.max_us)}"
    )
    click.echo(
        f"throughput  {found.frames_per_s:,.0f} frames/s, {found.gb_per_s:.2f} GB/s with {copied}; "
        f"memcpy {found.memcpy_gb_per_s:.2f} GB/s"
    )
    outside = found.published - found.received - found.missed
    rest = f", {outside} before the first or after the last of these" if outside > 0 else ""
    click.echo(
        f"frames      {found.published} published, {found.received} received, {found.missed} missed "
        f"in {found.seconds:.1f} s{rest}"
    )
    click.echo(
        f"CPU         producer {found.producer_cpu_s:.2f} s, consumer {found.consumer_cpu_s:.2f} s "
        f"(profile {found.profile})"
    )


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"
