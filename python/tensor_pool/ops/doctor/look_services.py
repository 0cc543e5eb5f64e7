"""Looks at the services of a machine: media drivers, what they left behind, the SHM driver."""

from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.channels import Channel
from tensor_pool.errors import ChannelError, NoDriverError, TensorPoolError
from tensor_pool.host.aeron import aeron_dir, connect
from tensor_pool.ops.doctor.machine import Aeron, Driver
from tensor_pool.pool.admin import AdminClient
from tensor_pool.transport import media_driver_status, read_counters
from tensor_pool.transport.aeron_dir import is_somebody_elses
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.config import Config, StreamsSection
    from tensor_pool.ops.doctor.machine import Machine
    from tensor_pool.transport import CounterReading, MediaDriverStatus

__all__ = ["add_services", "find_leftovers", "find_tethered", "measure_timer_ms"]

_CNC_FILE: Final = "cnc.dat"
_SOFTWARE_VERSION: Final = re.compile(r"version=(\d+\.\d+\.\d+\S*)")
_PUB_POS, _SUB_POS, _SYSTEM = 12, 4, 0
"""Aeron's type ids of the counters whose labels name channels, and of the driver's own."""
_TIMER_PATIENCE_S: Final = 1.3  # Aeron's default timer ticks once a second
_TIMER_TICKS: Final = 6
_ANSWER_TIMEOUT_S: Final = 2.0
_MOST_DIRECTORIES: Final = 1_000
_MOST_FILES: Final = 10_000


def add_services(machine: Machine, config: Config) -> Machine:
    """The machine with what runs on it, as far as the configuration leads there."""
    directory = aeron_dir(config.aeron)
    status = media_driver_status(directory)
    section = config.aeron
    aeron = Aeron(
        directory=directory,
        found=status is not None,
        is_somebody_elses=is_somebody_elses(directory),
        shortest_timeout_ms=min(
            section.untethered_window_limit_timeout_ms,
            section.untethered_linger_timeout_ms,
            section.untethered_resting_timeout_ms,
        ),
        leftovers=tuple(_all_leftovers(config, besides=directory)),
    )
    driver = Driver()
    if status is not None:
        aeron = _with_status(aeron, status)
    if status is not None and status.alive:
        readings = read_counters(directory)
        aeron = msgspec.structs.replace(
            aeron,
            version=_version(readings),
            timer_interval_ms=measure_timer_ms(directory),
            tethered=tuple(find_tethered(readings, _stream_ids(config.streams))),
        )
        driver = _ask_driver(config)
    return msgspec.structs.replace(machine, aeron=aeron, driver=driver)


def _with_status(aeron: Aeron, status: MediaDriverStatus) -> Aeron:
    return msgspec.structs.replace(
        aeron,
        alive=status.alive,
        pid=status.pid,
        process_exists=Path(f"/proc/{status.pid}").exists(),
        heartbeat_age_s=status.heartbeat_age_s,
    )


def _version(readings: Iterable[CounterReading]) -> str | None:
    for reading in readings:
        if reading.type_id == _SYSTEM and (found := _SOFTWARE_VERSION.search(reading.label)):
            return found[1]
    return None


def measure_timer_ms(directory: str) -> float | None:
    """How often a media driver looks at its timers: it shows life each time, and that can be watched.

    Returns:
        The median distance of its signs of life; None when fewer than two came.
    """
    beats: list[int] = []
    deadline = time.monotonic() + _TIMER_PATIENCE_S
    while len(beats) < _TIMER_TICKS and time.monotonic() < deadline:
        status = media_driver_status(directory)
        if status is not None and (not beats or beats[-1] != status.heartbeat_ms):
            beats.append(status.heartbeat_ms)
        time.sleep(0.001)
    distances = sorted(later - earlier for earlier, later in itertools.pairwise(beats))
    if distances:
        return float(distances[len(distances) // 2])
    return _TIMER_PATIENCE_S * 1e3 if beats else None


def find_tethered(readings: Iterable[CounterReading], stream_ids: set[int]) -> list[str]:
    """The ends of our streams on this host that may hold back others, as people would look for them.

    Example:
        >>> from tensor_pool.transport import CounterReading
        >>> label = "sub-pos: 3 -1412481874 1000 aeron:ipc?term-length=4m @0"
        >>> find_tethered([CounterReading(49, 4, 0, 1, 7, b"", label)], {1000})
        ['subscription of client 7 to stream 1000']
    """
    found: dict[str, None] = {}
    ids = {str(stream_id) for stream_id in stream_ids}
    for reading in readings:
        fields = reading.label.split()
        channel = next((field for field in fields if field.startswith("aeron:")), "")
        place = fields.index(channel) - 1 if channel else 0
        if place < 1 or fields[place] not in ids:
            continue
        try:
            parsed = Channel.parse(channel)
        except ChannelError:
            continue  # of a maker with parameters of its own
        if parsed.media != "ipc":
            continue
        stream = f"stream {fields[place]}"
        if reading.type_id == _SUB_POS and parsed.params.get("tether") != "false":
            found[f"subscription of client {reading.owner_id} to {stream}"] = None
        if reading.type_id == _PUB_POS and "untethered-window-limit-timeout" not in parsed.params:
            found[f"publication of client {reading.owner_id} on {stream}"] = None
    return list(found)


def _stream_ids(streams: StreamsSection) -> set[int]:
    names = [name for name in streams.__struct_fields__ if name.endswith("_stream_id")]
    return {getattr(streams, name) for name in names}


def _all_leftovers(config: Config, *, besides: str) -> list[tuple[str, int]]:
    """Where files lie, and where embedded media drivers have their directories, wherever that is."""
    places = {os.path.realpath(config.shm.shm_base_dir), str(Path(temporary_aeron_dir()).parent)}
    return [left for place in sorted(places) for left in find_leftovers(Path(place), besides=besides)]


def find_leftovers(base: Path, *, besides: str) -> list[tuple[str, int]]:
    """Directories of dead media drivers below a base directory, with the bytes that they take."""
    found = []
    try:
        entries = sorted(base.iterdir())[:_MOST_DIRECTORIES]
    except OSError:
        return []
    for entry in entries:
        # Not `Path.is_file`, which raises where somebody keeps a directory to themselves.
        if str(entry) == besides or entry.is_symlink() or not os.path.isfile(entry / _CNC_FILE):  # noqa: PTH113
            continue
        status = media_driver_status(entry)
        if status is not None and not status.alive and not Path(f"/proc/{status.pid}").exists():
            found.append((str(entry), _bytes_below(entry)))
    return found


def _bytes_below(directory: Path) -> int:
    total = files = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += Path(place, name).lstat().st_blocks * 512
            except OSError:
                continue  # somebody removes it at this moment
            files += 1
            if files >= _MOST_FILES:
                return total
    return total


def _ask_driver(config: Config) -> Driver:
    started = time.monotonic()
    try:
        with (
            connect(config.aeron, name="tpool doctor") as client,
            AdminClient(client, config.streams, timeout_s=_ANSWER_TIMEOUT_S) as admin,
        ):
            started = time.monotonic()
            status = admin.status()
    except NoDriverError:
        return Driver(asked=True)
    except TensorPoolError as e:
        return Driver(asked=True, refusal=e.message)
    return Driver(
        asked=True,
        answer_ms=(time.monotonic() - started) * 1e3,
        pid=status.pid,
        state=status.state.name,
        version=status.software_version or None,
        streams=status.stream_count,
        free_bytes=status.free_bytes,
    )
