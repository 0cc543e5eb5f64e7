"""What user code returned as columns of a table: as it is, or an error that names the column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["returned_column"]

_HINT: Final = "name a type that holds it, such as double, or return another value"


def returned_column(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column; Arrow alone would cut off what is behind the point without a word.

    Args:
        name: What the column is called.
        values: One for each row.
        kind: Its type.

    Raises:
        ConfigError: A value does not fit into the column.

    Example:
        >>> returned_column("m", [2.0, None], pa.int32()).to_pylist()
        [2, None]
        >>> returned_column("m", [1.5], pa.int32())
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: the function returned 1.5 for the column m, which is int32
          try: name a type that holds it, such as double, or return another value
    """
    column = f"the column {name}, which is {kind}"
    try:
        if _has_whole(kind):
            for value in values:
                _check_whole(value, kind)
        return pa.array(values, kind)
    except _NotWholeError as e:
        raise ConfigError(f"the function returned {e} for {column}", hint=_HINT) from None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise ConfigError(f"the function returned something for {column}: {e}", hint=_HINT) from None


class _NotWholeError(ValueError):
    """A number with something behind the point."""


def _has_whole(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_whole(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_integer(kind))


def _check_whole(value: Any, kind: pa.DataType) -> None:
    """Refuses a number with something behind the point where whole ones belong, however deep."""
    if pa.types.is_integer(kind):
        if isinstance(value, float | np.floating) and not value.is_integer():
            raise _NotWholeError(f"{value!r}")
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            if _has_whole(field.type):
                _check_whole(value.get(field.name), field.type)
    elif pa.types.is_map(kind) and value is not None:
        for key, each in value.items() if isinstance(value, dict) else value:
            _check_whole(key, kind.key_type)
            _check_whole(each, kind.item_type)
    elif pa.types.is_list(kind) and value is not None:
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
            return
        for each in value:
            _check_whole(each, kind.value_type)
