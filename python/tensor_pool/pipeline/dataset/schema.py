"""The rows of a training set: one for each frame, with its values.

The columns are those of the format ``tensorpool`` with ``payload=bytes``, and after them:

===========  =========  ==================================================================================
column       type       meaning
===========  =========  ==================================================================================
``split``    string     ``train``, ``val``, or whatever the splits are called
``crc32c``   long       checksum of ``values``
===========  =========  ==================================================================================

Every row is a frame that is there: ``status`` is always ``ok`` and ``count`` always 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.frame_columns import FRAME_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COLUMNS", "FORMAT_VERSION", "VALUES", "dataset_schema"]

FORMAT_VERSION: Final = 1
VALUES: Final = "values"
"""The column of tensors."""

_FIELDS: Final = [
    *FRAME_COLUMNS,
    pa.field(VALUES, pa.binary(), nullable=False),
    pa.field("split", pa.string(), nullable=False),
    pa.field("crc32c", pa.int64(), nullable=False),
]

COLUMNS: Final = tuple(field.name for field in _FIELDS)
"""What every training set has."""


def dataset_schema(extra: Iterable[pa.Field] = ()) -> pa.Schema:
    """The columns of a training set, as Arrow has them.

    Args:
        extra: Columns of its own, such as labels.

    Raises:
        ConfigError: One of them is called like another.

    Example:
        >>> dataset_schema([pa.field("label", pa.string())]).names[-2:]
        ['crc32c', 'label']
    """
    fields = [*_FIELDS, *extra]
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two columns are called {', '.join(twice)}", hint="rename yours before the export")
    return pa.schema(fields, metadata={"tensorpool.dataset": str(FORMAT_VERSION)})
