"""A frame, as it is typed."""

from __future__ import annotations

from typing import Any

import click

from tensor_pool.control.values import FrameRef

__all__ = ["NamedFrame"]


class NamedFrame(click.ParamType[FrameRef]):
    """The number of a stream, an epoch and the number of a frame; ``ref:`` in front is what events show.

    Example:
        >>> NamedFrame().convert("ref:10000/3/42", None, None)
        FrameRef(stream_id=10000, epoch=3, seq=42)
    """

    name = "frame"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FrameRef:
        """See `click.ParamType.convert`."""
        if isinstance(value, FrameRef):
            return value
        try:
            return FrameRef.parse(str(value).removeprefix("ref:"))
        except ValueError as e:
            self.fail(f"{e}.", param, ctx)
