"""How a training set is written."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.dataset.splits import Splits  # noqa: TC001 - msgspec reads it

__all__ = ["Compression", "DatasetOptions"]

Compression = Literal["none", "zstd", "lz4", "snappy"]
_MIB: Final = 1 << 20
_LARGEST: Final = (1 << 31) - 1
"""What Parquet can count in one cell."""


class DatasetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How; the manifest keeps it.

    Example:
        >>> from tensor_pool.pipeline.dataset.splits import hash_splits
        >>> DatasetOptions(splits=hash_splits({"train": 1.0})).compression
        'none'
    """

    splits: Splits
    transform: str | None = None
    """The name of the function that changed tensors."""
    where: str | None = None
    """The condition that chose frames."""
    columns: tuple[str, ...] = ()
    """Columns that were kept beside those of the format."""
    row_group_bytes: int = 4 * _MIB
    """Tensors that are read together; also what a task holds in memory of each split."""
    file_bytes: int = 1024 * _MIB
    """A file that is this long is closed, and another one begun."""
    compression: Compression = "none"

    def __post_init__(self) -> None:
        for name in ("row_group_bytes", "file_bytes"):
            if not 0 < getattr(self, name) <= (_LARGEST if name == "row_group_bytes" else 1 << 62):
                raise ConfigError(f"{name}={getattr(self, name)!r}", hint="a number above 0, below 2 GiB")
        if self.compression not in Compression.__args__:  # type: ignore[attr-defined]
            raise ConfigError(f"compression={self.compression!r}", hint="one of none, zstd, lz4 and snappy")

    def clashes_with(self, earlier: DatasetOptions) -> str | None:
        """What differs from those of an earlier commit so that both can't be in one training set."""
        for name in ("splits", "transform", "where", "columns"):
            if getattr(self, name) != getattr(earlier, name):
                return f"{name} was {getattr(earlier, name)!r}, and now is {getattr(self, name)!r}"
        return None
