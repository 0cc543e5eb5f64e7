"""What jobs share: columns of the format ``tensorpool``, percentiles, tables that are used more than once."""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.spark.schema import OK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

__all__ = ["in_order", "is_frame", "iso", "kept", "percentiles", "require", "stream_name"]

_ACCURACY: Final = 100_000
"""Ranks of percentiles are right to one in so many: exact for that many rows, bounded memory beyond."""


def require(df: DataFrame, *names: str) -> None:
    """Refuses tables that are not of the format ``tensorpool``.

    Raises:
        ConfigError: A column is missing.
    """
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise ConfigError(
            f"the table lacks {', '.join(missing)}",
            hint='jobs take spark.read.format("tensorpool").load(...), filtered but with all its columns',
        )


def stream_name() -> Column:
    """The name of a row's stream; its number where it has none."""
    return (
        f.when(f.col("stream_name") == "", f.col("stream_id").cast("string"))
        .otherwise(f.col("stream_name"))
        .alias("stream")
    )


def is_frame() -> Column:
    """Whether a row is a frame, and no gap."""
    return f.col("status") == OK


def percentiles(column: Column, points: Sequence[float]) -> Column:
    """Values at these shares of all rows: the smallest one that so many rows don't exceed."""
    return f.percentile_approx(column, list(points), _ACCURACY)


def in_order(df: DataFrame) -> DataFrame:
    """Adds ``place`` (0, 1, 2 and so on) and ``total`` within each stream, by epoch and number.

    One task a stream sorts; rows are descriptors, and Spark spills them to disk where they are many.
    """
    order = Window.partitionBy("stream").orderBy("epoch", "seq")
    return df.withColumns(
        {
            "place": f.row_number().over(order) - 1,
            "total": f.count(f.lit(1)).over(Window.partitionBy("stream")),
        }
    )


@contextmanager
def kept(df: DataFrame) -> Iterator[DataFrame]:
    """A table that several queries use is computed once, and forgotten at the end."""
    kept_table = df.persist()
    try:
        yield kept_table
    finally:
        kept_table.unpersist()


def iso(moment: dt.datetime | None) -> str | None:
    """A time of Spark as text.

    Example:
        >>> iso(None) is None
        True
    """
    if moment is None:
        return None
    # Spark hands out local times without a zone.
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
