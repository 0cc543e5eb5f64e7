"""What frames of a stream look like, found without reading one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tensor_pool.pool.metadata import CLOCK_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tensor_pool.pipeline.record.selection import Selection

__all__ = ["Contents", "Layout", "look_through"]


class Layout(NamedTuple):
    """Element type and shape of a frame.

    Example:
        >>> Layout("uint16", (480, 640)).label
        'uint16-480x640'
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def label(self) -> str:
        """As part of a file's name."""
        return f"{self.dtype}-{'x'.join(map(str, self.shape))}"


class Contents(msgspec.Struct, kw_only=True):
    """What is in a stream of a selection."""

    layouts: dict[Layout, int] = {}
    """How many frames there are of each; some of them may turn out to be damaged."""
    orders: set[str] = set()
    """Their memory orders."""
    max_bytes: int = 0
    """The largest frame."""
    metadata: Mapping[str, Any] = {}
    """That of the first frame, as far as it was ever heard."""
    clock_domain: str = "monotonic"
    """Which clock made the time stamps."""

    @property
    def frames(self) -> int:
        """How many there are."""
        return sum(self.layouts.values())

    @property
    def layout(self) -> Layout | None:
        """That of all frames, if they have the same."""
        return next(iter(self.layouts)) if len(self.layouts) == 1 else None


def look_through(selection: Selection, name: str) -> Contents:
    """What is in a stream; reads its tables of rows and no tensor.

    Damage is passed over: who reads the frames is told of it.
    """
    found = Contents()
    first: tuple[int, int] | None = None
    for frame in selection.frames(name, lambda _: None):
        if frame.row.kind == "frame":
            version = (frame.row.epoch, frame.row.meta_version)
            first = version if first is None else first
            if version == first and not found.metadata:
                found.metadata = frame.metadata  # often heard a little later than the first frame
                found.clock_domain = str(frame.metadata.get(CLOCK_DOMAIN, found.clock_domain))
            layout = Layout(frame.row.dtype, frame.row.shape)
            found.layouts[layout] = found.layouts.get(layout, 0) + 1
            found.orders.add(frame.row.order)
            found.max_bytes = max(found.max_bytes, frame.nbytes)
    return found
