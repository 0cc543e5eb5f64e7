"""``tpool tap``."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from tensor_pool.ops.cli.options import (
    FiniteFloat,
    StreamIdOrName,
    WholeNumber,
    config_options,
    format_option,
)
from tensor_pool.ops.cli.output import print_json, print_record
from tensor_pool.ops.doctor.finding import counted
from tensor_pool.stop_signals import until_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensor_pool.config import Config
    from tensor_pool.ops.cli.output import OutputFormat
    from tensor_pool.ops.tap import Tap, Tapped
    from tensor_pool.transport import Client

__all__ = ["tap"]

_SOURCES: Final = (
    "control",
    "announce",
    "descriptor",
    "qos",
    "metadata",
    "meta",
    "service_control",
    "service_status",
    "bridge",
)
_SHORTEST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.02
_LONGEST_LINE: Final = 400


@click.command()
@click.argument("sources", nargs=-1, type=click.Choice(_SOURCES), metavar="[SOURCE]...")
@click.option(
    "--stream",
    "streams",
    type=StreamIdOrName(0, 2**32 - 1),
    multiple=True,
    metavar="STREAM",
    help="Only of this stream: an id, or a name that the SHM driver knows.",
)
@click.option("--type", "types", multiple=True, metavar="NAME", help="Only messages of this name.")
@click.option(
    "--channel",
    metavar="CHANNEL",
    help="Of bridge: where chunks travel; the payload channels of [bridge] when not given.",
)
@click.option(
    "--stream-id",
    "aeron_stream_id",
    type=WholeNumber(-(2**31), 2**31 - 1),
    metavar="N",
    help="Of bridge: the Aeron stream of that channel; bridge.payload_stream_id when not given.",
)
@click.option("--count", type=WholeNumber(min=1), metavar="N", help="End after so many messages.")
@click.option("--seconds", type=FiniteFloat(min=0, max=1e9, min_open=True), help="End after so many seconds.")
@format_option()
@config_options
def tap(
    config: Config,
    output_format: OutputFormat,
    *,
    sources: tuple[str, ...],
    streams: tuple[int | str, ...],
    types: tuple[str, ...],
    channel: str | None,
    aeron_stream_id: int | None,
    count: int | None,
    seconds: float | None,
) -> None:
    """Show the messages that pass by, decoded, until Ctrl-C, --count or --seconds.

    SOURCE is control, announce, descriptor, qos, metadata (or meta), service_control or service_status; all
    of them when none is given. Listening disturbs nobody: a tap that is too slow loses messages, and says at
    the end how often. Messages that are not ours are counted and shown by their header.

    SOURCE may also be bridge: the chunks of bridged frames, without their bytes, with what is wrong with them
    and, at the last one of a frame, whether its checksum holds. A tap takes some 10,000 of them a second, and
    holds a faster bridge back. On the host that sends them a channel begins with aeron-spy: (mappings know).

    \b
    Examples:
      tpool tap control
      tpool tap qos --stream 10000 --format jsonl | jq .fields.current_seq
      tpool tap --type ShmPoolAnnounce --type ShmAttachRequest --count 10
      tpool tap descriptor --stream camera-1 --seconds 5
      tpool tap bridge --stream 10000 --count 100
      tpool tap bridge --channel 'aeron:udp?endpoint=10.0.0.2:20121|mtu=8192' --format jsonl
    """  # noqa: D301 - click's mark for text that stays as it is
    if output_format == "json" and count is None and seconds is None:
        raise click.UsageError(
            "a JSON document must have an end; add --count or --seconds, or take --format jsonl"
        )
    from tensor_pool.host.aeron import connect, open_media_driver  # noqa: PLC0415 - help needs none of it
    from tensor_pool.ops.tap import SOURCES, Filter, Tap, endpoints  # noqa: PLC0415

    names = tuple("metadata" if source == "meta" else source for source in sources) or SOURCES
    places = endpoints(config.streams, [name for name in names if name != "bridge"])
    if "bridge" in names:
        places |= _chunk_places(config, channel, aeron_stream_id)
    elif channel is not None or aeron_stream_id is not None:
        raise click.UsageError("--channel and --stream-id are for the source bridge: tpool tap bridge ...")
    wanted_types = _checked_types(types)
    external = msgspec.structs.replace(config.aeron, media_driver="external")
    open_media_driver(external).close()  # says at once when there is none, instead of waiting for one
    with connect(config.aeron, name="tpool tap") as client:
        only = Filter(_ids(client, config, streams), wanted_types)
        with Tap(client, places, only=only) as tapping:
            try:
                _print(_messages(tapping, count, seconds), output_format)
            finally:
                _print_summary(tapping)


def _ids(client: Client, config: Config, streams: Sequence[int | str]) -> frozenset[int]:
    """The ids of streams; a tap by id needs no SHM driver, and makes no traffic of its own."""
    if all(isinstance(stream, int) for stream in streams):
        return frozenset(stream for stream in streams if isinstance(stream, int))
    from tensor_pool.host.aeron import aeron_dir  # noqa: PLC0415 - see above
    from tensor_pool.ops.cli.asking import stream_ids  # noqa: PLC0415
    from tensor_pool.pool.admin import AdminClient  # noqa: PLC0415

    with AdminClient(client, config.streams) as admin:
        return frozenset(stream_ids(admin, streams, where=aeron_dir(config.aeron)))


def _chunk_places(
    config: Config, channel: str | None, aeron_stream_id: int | None
) -> dict[tuple[str, int], str]:
    from tensor_pool.bridging.config import BridgeSection  # noqa: PLC0415 - see above
    from tensor_pool.ops.chunk_tap import BRIDGE, chunk_channel, chunk_places  # noqa: PLC0415

    section = config[BridgeSection]
    if channel is not None:
        stream_id = section.payload_stream_id if aeron_stream_id is None else aeron_stream_id
        return {(chunk_channel(channel), stream_id): BRIDGE}
    if aeron_stream_id is not None:
        raise click.UsageError("--stream-id needs --channel")
    if not section.mappings:
        raise click.UsageError("the configuration has no [[bridge.mappings]]; say where with --channel")
    return chunk_places(section)


def _messages(tapping: Tap, count: int | None, seconds: float | None) -> Iterator[Tapped]:
    """What comes, with pauses that grow while nothing does."""
    deadline = None if seconds is None else time.monotonic() + seconds
    shown, pause_s = 0, _SHORTEST_PAUSE_S
    while deadline is None or time.monotonic() < deadline:
        found = tapping.poll()
        for tapped in found:
            yield tapped
            shown += 1
            if shown == count:
                tapping.counts.shown = shown  # and not what came along with the last one
                return
        pause_s = _SHORTEST_PAUSE_S if found else min(2 * pause_s, _LONGEST_PAUSE_S)
        if not found:
            time.sleep(pause_s)


def _print(messages: Iterator[Tapped], output_format: OutputFormat) -> None:
    document: list[dict[str, Any]] = []
    with until_stopped():  # it has seen enough
        for tapped in messages:
            if output_format == "json":
                document.append(_row(tapped))
            elif output_format == "jsonl":
                print_record(_row(tapped), "jsonl")
            else:
                click.echo(_line(tapped))
            sys.stdout.flush()
    if output_format == "json":
        print_json(document)


def _row(tapped: Tapped) -> dict[str, Any]:
    return {"at": _time(tapped), **msgspec.structs.asdict(tapped)}


def _line(tapped: Tapped) -> str:
    """One line for people; a long one is cut on a terminal."""
    if tapped.fields is None:
        header = tapped.header or {}
        what = f"schema {header.get('schema_id', '?')} template {header.get('template_id', '?')}"
        told = f"{what}, {tapped.bytes} bytes: {tapped.error}"
    elif "chunk_index" in tapped.fields:
        told = _chunk(tapped.fields, tapped.error)
    else:
        told = f"{tapped.message}  " + " ".join(f"{name}={_short(v)}" for name, v in tapped.fields.items())
    line = f"{_time(tapped)[11:23]}  {tapped.source:<10}  {told}"
    if len(line) <= _LONGEST_LINE or not sys.stdout.isatty():
        return line
    return f"{line[: _LONGEST_LINE - 4]} ..."


def _chunk(fields: dict[str, Any], error: str | None) -> str:
    """A chunk for people, who look for frames in thousands of lines."""
    crc = {None: "-", True: "ok", False: "WRONG"}[fields["crc_ok"]]
    told = (
        f"stream {fields['stream_id']}  epoch {fields['epoch']}  seq {fields['seq']}  "
        f"chunk {fields['chunk_index']}/{fields['chunk_count']}  "
        f"bytes {fields['chunk_offset']}+{fields['chunk_length']} of {fields['payload_length']}  "
        f"{fields['dialect']}  crc {crc}  trace {_short(fields['trace_id'])}"
    )
    return told if error is None else f"{told}  MALFORMED: {error}"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return "{" + " ".join(f"{name}={_short(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + " ".join(map(_short, value)) + "]"
    # A text of a peer stays on its line, whatever is in it.
    return ascii(value) if isinstance(value, str) and not value.isprintable() else str(value)


def _time(tapped: Tapped) -> str:
    return datetime.fromtimestamp(tapped.realtime_ns / 1e9, tz=UTC).isoformat(timespec="microseconds")


def _checked_types(types: tuple[str, ...]) -> frozenset[str]:
    from tensor_pool import wire  # noqa: PLC0415 - see above
    from tensor_pool.ops.stream_lookup import near_names  # noqa: PLC0415
    from tensor_pool.ops.tap import known_types  # noqa: PLC0415

    known = {layout.name for kind in wire.message_types() for layout in wire.message_layouts(kind)}
    try:
        return known_types(types, known)
    except KeyError as e:
        near = near_names(e.args[0], sorted(known))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"there is no message {e.args[0]!r}{hint}") from None


def _print_summary(tapping: Tap) -> None:
    counts = tapping.counts
    click.echo(
        f"{counted(counts.messages, 'message')}, {counts.shown} shown, {counts.unknown} not ours, "
        f"{counts.malformed} malformed, {counted(counts.lost_images, 'publication')} gone or too fast",
        err=True,
    )
