"""The format ``tensorpool`` of Spark.

Spark starts several processes to plan a query, each of which imports this: readers and writers load when they
are asked for.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.spark.options import parse_options
from tensor_pool.pipeline.spark.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from tensor_pool.pipeline.spark.options import SourceOptions

__all__ = ["FORMAT", "TensorPoolSource", "register"]

FORMAT: Final = "tensorpool"
_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class TensorPoolSource(DataSource):
    """Recordings and live streams as tables; see `schema` for the columns, `options` for the options."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format(...)``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns, which depend on the option ``payload``."""
        return spark_schema(self._parsed.payload)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - always ours
        """Reads a recording, or what is in the ring of a live stream at the moment."""
        options = self._parsed
        if options.mode == "live":
            from tensor_pool.pipeline.spark.live_stream import LiveReader

            return LiveReader(options)
        from tensor_pool.pipeline.spark.recording_reader import FilteringReader, RecordingReader

        filters = options.filterPushdown and _asks_for_filters()
        return FilteringReader(options) if filters else RecordingReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Follows a recording, or a live stream."""
        options = self._parsed
        if options.frames:
            raise ConfigError("a streaming query names frames", hint="name them in spark.read")
        if options.mode == "live":
            from tensor_pool.pipeline.spark.live_stream import LiveStreamReader

            return LiveStreamReader(options)
        from tensor_pool.pipeline.spark.recording_stream import RecordingStreamReader

        return RecordingStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's
        """Publishes a table into a pool."""
        from tensor_pool.pipeline.spark.sink import PoolWriter, parse_sink_options

        return PoolWriter(parse_sink_options(self.options, schema))

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - frames of a stream are never replaced
    ) -> DataSourceStreamWriter:
        """Publishes the batches of a query into a pool."""
        from tensor_pool.pipeline.spark.sink import PoolStreamWriter, parse_sink_options

        return PoolStreamWriter(parse_sink_options(self.options, schema))

    @property
    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)


def _asks_for_filters() -> bool:
    """Whether Spark asks in this process for a reader that filters; it refuses one everywhere else."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _FILTER_WORKER in sys.modules or getattr(main, "name", "") == _FILTER_WORKER


def register(spark: SparkSession) -> None:
    """Makes the format known to a session that `session` did not make, where Spark does not find it itself.

    Example:
        >>> register(spark)  # doctest: +SKIP
    """
    spark.dataSource.register(TensorPoolSource)
