"""Recordings as arguments: a directory of this machine, or a URI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tensor_pool.pipeline.record.place import Place

__all__ = ["RECORDING", "STORE"]


class _RecordingType(click.ParamType["Place"]):
    """Where a recording lies."""

    name = "recording"

    def __init__(self, *, must_exist: bool) -> None:
        self._must_exist = must_exist

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """A directory has to exist, if that is asked for; what is elsewhere is asked when it is needed."""
        from tensor_pool.pipeline.record.place import Place  # noqa: PLC0415 - help needs none of it

        place = value if isinstance(value, Place) else Place(value)
        if self._must_exist and place.local is not None and not place.local.is_dir():
            self.fail(f"Directory {str(Path(value))!r} does not exist.", param, ctx)
        return place


RECORDING = _RecordingType(must_exist=True)
"""One that is there: a directory, or a URI such as ``s3://bucket/run``."""
STORE = _RecordingType(must_exist=False)
"""A place that may have to be made."""
