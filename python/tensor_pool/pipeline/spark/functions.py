"""Computing with tensors in Spark: user code gets NumPy arrays, tables carry only what it returns."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.spark.resolve import TensorUnavailableError, open_tensor
from tensor_pool.pipeline.spark.returned import returned_column
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame

__all__ = ["KEPT", "map_tensors", "rows_of", "takes_two", "tensor", "tensor_udf"]

KEPT: Final = ("stream_name", "epoch", "seq", "event_time", "status", "count")
"""The columns that `map_tensors` keeps unless told otherwise."""
_NEEDED: Final = ("status", "stream_id", "epoch", "seq", "dtype", "shape", "order")


def map_tensors(
    df: DataFrame,
    fn: Callable[..., Any],
    schema: StructType | str,
    *,
    keep: Sequence[str] = KEPT,
    check: bool | None = None,
) -> DataFrame:
    """Calls a function for each tensor, where it lies; a row for each, and one for each gap.

    Args:
        df: Rows of the format ``tensorpool``.
        fn: Gets a read-only array, and the row as a dictionary if it takes two arguments; returns the value
            of the only column, or a tuple or dictionary with all of them.
        schema: The columns that it returns.
        keep: Columns that stay. Rows whose tensor is missing, damaged or overwritten have nulls in the
            others, and say why in ``status``.
        check: Compare bytes with their checksums; see `open_tensor`.

    Example:
        >>> means = map_tensors(df, lambda t: float(t.mean()), "mean double")  # doctest: +SKIP
    """
    columns = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    if not isinstance(columns, StructType):
        raise ConfigError(f"schema={schema!r}", hint='columns, such as "mean double, max long"')
    missing = [name for name in (*_NEEDED, *keep) if name not in df.columns]
    if missing or not {"ref", "values"} & set(df.columns):
        raise ConfigError(
            f"the table lacks {', '.join(missing) or 'ref and values'}",
            hint='call map_tensors before you select columns of spark.read.format("tensorpool")',
        )
    names = columns.fieldNames()
    taken = set(names) & set(keep)
    if taken:
        raise ConfigError(f"columns {sorted(taken)} are kept and returned", hint="keep=(...) names others")
    result = StructType([*(df.schema[name] for name in keep), *(_nullable(field) for field in columns)])
    arrow, call = to_arrow_schema(result, timezone="UTC"), _Caller(fn, names, check=check)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            statuses = batch["status"].to_pylist()
            returned: dict[str, list[Any]] = {name: [] for name in names}
            for place, row in enumerate(rows_of(batch)):
                status, values = call(row)
                for name, value in zip(names, values, strict=True):
                    returned[name].append(value)
                statuses[place] = status
            kept = [
                pa.array(statuses if name == "status" else batch[name].to_pylist(), arrow.field(name).type)
                for name in keep
            ]
            others = [returned_column(name, returned[name], arrow.field(name).type) for name in names]
            yield pa.RecordBatch.from_arrays([*kept, *others], schema=arrow)

    return df.mapInArrow(work, result)


class _Caller:
    """Calls a user's function for rows."""

    def __init__(self, fn: Callable[..., Any], names: Sequence[str], *, check: bool | None) -> None:
        self._fn = fn
        self._names = names
        self._check = check
        self._takes_row = takes_two(fn)
        self._nothing = (None,) * len(names)

    def __call__(self, row: dict[str, Any]) -> tuple[str, Sequence[Any]]:
        try:
            with open_tensor(row, check=self._check) as array:
                found = self._fn(array, row) if self._takes_row else self._fn(array)
        except TensorUnavailableError as e:
            return e.status, self._nothing
        return OK, self._in_order(found)

    def _in_order(self, found: Any) -> Sequence[Any]:
        names = self._names
        if isinstance(found, dict):
            return [_plain(found[name]) for name in names]
        if len(names) == 1 and not (isinstance(found, tuple) and len(found) == 1):
            return [_plain(found)]
        if not isinstance(found, tuple | list) or len(found) != len(names):
            raise TypeError(
                f"the function returned {found!r}, not {len(names)} values for {', '.join(names)}"
            )
        return [_plain(value) for value in found]


def tensor(df: DataFrame) -> Column:
    """What a function made with `tensor_udf` needs of a row, as one column.

    Example:
        >>> df.select("seq", brightness(tensor(df)))  # doctest: +SKIP
    """
    return f.struct(*_NEEDED, "ref" if "ref" in df.columns else "values").alias("tensor")


def tensor_udf(
    returns: str, *, check: bool | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Column]]:
    """Makes a function of an array a function of a column; null where the tensor is missing.

    Args:
        returns: The type of what it returns.
        check: Compare bytes with their checksums; see `open_tensor`.

    Example:
        >>> @tensor_udf("double")  # doctest: +SKIP
        ... def brightness(array):
        ...     return float(array.mean())
        >>> df.select("seq", brightness(tensor(df)))  # doctest: +SKIP
    """
    kind = _parse_datatype_string(returns)
    arrow = to_arrow_schema(StructType().add("value", kind), timezone="UTC").field(0).type

    def decorate(fn: Callable[..., Any]) -> Callable[..., Column]:
        call = _Caller(fn, ("value",), check=check)

        def work(column: pa.Array) -> pa.Array:
            return returned_column(fn.__name__, [call(row)[1][0] for row in column.to_pylist()], arrow)

        work.__name__ = fn.__name__
        # Spark reads types of arguments as they are written.
        work.__annotations__ = {"column": pa.Array, "return": pa.Array}
        column_of: Callable[..., Column] = f.arrow_udf(work, kind)  # type: ignore[attr-defined]
        # Without a name Spark 4.3 fails to name the column of a struct that it makes for the call.
        return functools.wraps(fn)(lambda tensors: column_of(tensors).alias(fn.__name__))

    return decorate


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """As dictionaries; bytes of tensors stay where they are."""
    if "values" not in batch.schema.names:
        return list(batch.to_pylist())
    values = batch.column("values")
    rows: list[dict[str, Any]] = batch.drop_columns("values").to_pylist()
    for place, row in enumerate(rows):
        row["values"] = values[place].as_buffer() if values[place].is_valid else None
    return rows


def takes_two(fn: Callable[..., Any]) -> bool:
    """Whether a function of an array also takes its row."""
    try:
        inspect.signature(fn).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _nullable(field: Any) -> Any:
    return type(field)(field.name, field.dataType, nullable=True, metadata=field.metadata)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
