"""From what a person types to an epoch in shared memory: its directory, or the id of its stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import ConfigError, RegionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.config import Config
    from tensor_pool.ops.shm.regions import EpochFolder

__all__ = ["find_place"]

_MOST_DIGITS: Final = 10
_MOST_PATHS: Final = 10
"""Paths that one message names."""


def find_place(config: Config, place: str) -> EpochFolder:
    """The epoch in a directory, or the newest of a stream.

    Args:
        config: Says where to look, and which namespace is preferred.
        place: A directory, or a stream id.

    Raises:
        ConfigError: It is neither, or several drivers but the configured one have that stream.
        RegionError: There is none, or the directory is none of an epoch.
    """
    from tensor_pool.ops.shm.regions import find_epochs, read_epoch  # noqa: PLC0415 - help needs none of it

    if not _is_id(place):
        if os.sep not in place and not Path(place).exists():
            raise ConfigError(
                f"{place!r} is neither a stream id nor the directory of an epoch",
                hint="`tpool streams` lists the ids of names, `tpool shm ls --format json` the directories",
            )
        return read_epoch(Path(place))
    found = [folder for folder in find_epochs(config.shm.base_dirs) if folder.stream_id == int(place)]
    if not found:
        raise RegionError(
            f"stream {place} has no epoch below {', '.join(config.shm.base_dirs)}",
            hint="`tpool shm ls` lists what there is",
        )
    return _newest(found, _namespace_directory(config))


def _is_id(place: str) -> bool:
    return place.isascii() and place.isdecimal() and len(place) <= _MOST_DIGITS


def _namespace_directory(config: Config) -> str:
    from tensor_pool.driver.config import DriverSection  # noqa: PLC0415 - help needs none of it
    from tensor_pool.driver.files import namespace_directory  # noqa: PLC0415

    return str(namespace_directory(config.shm, config[DriverSection].instance_id))


def _newest(found: Sequence[EpochFolder], ours: str) -> EpochFolder:
    """The newest epoch of one stream: of the configured driver's, and else of whose it can only be.

    Every driver counts its streams from the same number, so that the same id elsewhere is another stream.

    Raises:
        ConfigError: Several other drivers have a stream of that id.
    """
    by_place: dict[str, list[EpochFolder]] = {}
    for folder in found:
        by_place.setdefault(str(Path(folder.path).parents[1]), []).append(folder)
    newest = {place: max(folders, key=lambda folder: folder.epoch) for place, folders in by_place.items()}
    if ours in newest:
        return newest[ours]
    if len(newest) > 1:
        paths = [folder.path for folder in newest.values()]
        raise ConfigError(
            f"stream {found[0].stream_id} is not in {ours}, and {len(paths)} other places have one: "
            + _few(paths),
            hint="give the path of the one that is meant",
        )
    return next(iter(newest.values()))


def _few(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_PATHS
    return ", ".join(paths[:_MOST_PATHS]) + (f" and {more} more" if more > 0 else "")
