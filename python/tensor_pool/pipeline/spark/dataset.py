"""Training sets from Spark: workers write the files straight from references, the driver commits them.

No tensor passes through the JVM: what comes back from a task are names, numbers and hashes of its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tensor_pool.errors import ConfigError, FrameError
from tensor_pool.pipeline.dataset.files import SplitFiles, stream_of
from tensor_pool.pipeline.dataset.location import public_uri
from tensor_pool.pipeline.dataset.log import DatasetLog, load_manifest
from tensor_pool.pipeline.dataset.manifest import Commit, Manifest
from tensor_pool.pipeline.dataset.options import DatasetOptions
from tensor_pool.pipeline.dataset.report import Report, merge_reports
from tensor_pool.pipeline.dataset.schema import COLUMNS, VALUES, dataset_schema
from tensor_pool.pipeline.dataset.splits import fractions_to_ask, hash_splits, is_by_fractions, time_splits
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.spark.functions import rows_of, takes_two
from tensor_pool.pipeline.spark.resolve import TensorUnavailableError, load_tensor
from tensor_pool.runtime.faults import fault_point

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tensor_pool.pipeline.dataset.splits import By, Splits

__all__ = ["dataset_sink", "read_dataset", "write_dataset"]

_NEEDED: Final = tuple(
    name for name in COLUMNS if name not in {VALUES, "split", "crc32c", "strides", "nbytes"}
)
_QUERY_ID: Final = "sql.streaming.queryId"
"""What Spark calls the id of a query, which its checkpoint keeps."""


def write_dataset(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    splits: Mapping[str, Any] | None = None,
    by: By = "hash",
    seed: int = 0,
    where: str | None = None,
    transform: Callable[..., Any] | None = None,
    columns: Sequence[str] = (),
    mode: Literal["error", "append"] = "error",
    check: bool = True,
    storage_options: Mapping[str, str] | None = None,
    **layout: Any,
) -> Manifest:
    """Writes the frames of a table as a training set, in one commit.

    Args:
        df: Rows of the format ``tensorpool``, joined with labels or not.
        path: Where: a directory that every worker finds, or a URI that pyarrow and `deltalake` know.
        splits: Fractions by name, 1 together: ``{"train": 0.8, "val": 0.1, "test": 0.1}``. By time also the
            moments up to which each lasts: ``{"train": "2026-11-15T12:00:00Z", "val": None}``.
        by: ``hash``: of stream, epoch and number, the same for a frame forever. ``time``: earlier frames into
            earlier splits, by ``event_time``, or ``recorded_time`` where no clock is known.
        seed: Of the hash.
        where: A condition of SQL that frames (and gaps) have to meet.
        transform: Gets a read-only array, and the row as a dictionary if it takes two arguments; returns the
            array to write, or None to leave the frame out.
        columns: More columns of the table to keep, such as labels.
        mode: ``append`` to a training set with the same options, or an error if there is one.
        check: Compare tensors with their checksums.
        storage_options: Of `deltalake`, beyond what the URI says.
        layout: ``row_group_bytes``, ``file_bytes`` and ``compression`` of `DatasetOptions`.

    Returns:
        What was written. Gaps and damaged frames are no rows, and are counted by stream and status.

    Raises:
        ConfigError: Something is wrong with what was asked for, or there is a training set already.
        RegionError: It can't be written.

    Example:
        >>> manifest = write_dataset(df, "dataset", splits={"train": 0.9, "val": 0.1})  # doctest: +SKIP
        >>> manifest.frames  # doctest: +SKIP
        {'train': 913, 'val': 87}
    """
    if df.isStreaming:
        raise ConfigError(
            "this table is a stream", hint="df.writeStream.foreachBatch(tps.dataset_sink(path)) writes it"
        )
    place = Place(path)
    log = DatasetLog(place, storage_options)
    if mode not in {"error", "append"}:
        raise ConfigError(f"mode={mode!r}", hint="error or append")
    if mode == "error" and log.manifest() is not None:
        raise ConfigError(f"there is a training set in {place}", hint='another path, or mode="append"')
    chosen = df if where is None else df.filter(where)
    _check_columns(chosen, columns)
    options = DatasetOptions(
        splits=_splits(chosen, splits, by, seed),
        transform=_name_of(transform),
        where=where,
        columns=tuple(columns),
        **layout,
    )
    schema = dataset_schema(_fields(chosen, columns))
    report = _write_files(chosen, _Task(place.uri, schema, options, transform, check=check))
    manifest = log.commit(Commit(options=options, report=report), schema)
    assert manifest is not None  # without a batch, a commit can't have been made before
    return manifest


def dataset_sink(
    path: str | os.PathLike[str],
    *,
    splits: Mapping[str, Any] | None = None,
    by: By = "hash",
    seed: int = 0,
    where: str | None = None,
    transform: Callable[..., Any] | None = None,
    columns: Sequence[str] = (),
    check: bool = True,
    query: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    **layout: Any,
) -> Callable[[DataFrame, int], None]:
    """Writes batches of a streaming query into a training set, each of them once.

    A batch is one commit, which also names the query and the batch. One that is repeated after a crash is
    skipped if it was committed, and written anew if it was not; files that it left are no part of anything,
    and `vacuum_dataset` removes them.

    Args:
        path: As with `write_dataset`, and so are the others. Splits by time have to be moments.
        splits: Fractions, or moments.
        by: ``hash`` or ``time``.
        seed: Of the hash.
        where: Which frames.
        transform: What to make of a tensor.
        columns: More columns to keep.
        check: Compare tensors with their checksums.
        query: What the query is called in the log; by default Spark's id of it, which its checkpoint keeps. A
            name is needed where Spark does not tell the id, and must never serve a second checkpoint.
        storage_options: Of `deltalake`, beyond what the URI says.
        layout: ``row_group_bytes``, ``file_bytes`` and ``compression``.

    Raises:
        ConfigError: Something is wrong with what was asked for.

    Example:
        >>> stream = spark.readStream.format("tensorpool").load("recordings/")  # doctest: +SKIP
        >>> writer = stream.writeStream.foreachBatch(dataset_sink("dataset"))  # doctest: +SKIP
        >>> writer.option("checkpointLocation", "checkpoint").start()  # doctest: +SKIP
    """
    place = Place(path)
    options = DatasetOptions(
        splits=_splits(None, splits, by, seed),
        transform=_name_of(transform),
        where=where,
        columns=tuple(columns),
        **layout,
    )

    def write(df: DataFrame, batch: int) -> None:
        name = query or _query_id(df)
        log = DatasetLog(place, storage_options)
        last = log.last_batch(name)
        if last is not None and last >= batch:
            return
        fault_point("dataset.before_files")
        chosen = df if where is None else df.filter(where)
        _check_columns(chosen, columns)
        schema = dataset_schema(_fields(chosen, columns))
        report = _write_files(chosen, _Task(place.uri, schema, options, transform, check=check))
        if not report.is_empty:
            log.commit(Commit(options=options, report=report, query=name, batch=batch), schema)

    return write


def read_dataset(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A training set as a table with ``values``, for `map_tensors` and plain SQL.

    Only files that the log names are read. Those of this machine, or of a shared disk or HDFS, are read by
    Spark itself, which leaves out columns and row groups that a query does not need; those in object stores
    are read by the workers with pyarrow, whole.

    Args:
        spark: The session.
        path: The training set.
        split: One of its splits; by default all.
        version: Of the Delta table; by default the newest.
        storage_options: Of `deltalake`, beyond what the URI says.

    Raises:
        RegionError: There is no training set.
        ConfigError: It has no such split.

    Example:
        >>> val = read_dataset(spark, "dataset", split="val")  # doctest: +SKIP
        >>> map_tensors(val, lambda t: float(t.mean()), "mean double").show()  # doctest: +SKIP
    """
    manifest = load_manifest(path, version=version, storage_options=storage_options)
    if split is not None and split not in manifest.frames:
        raise ConfigError(f"there is no split {split!r}", hint=f"there are {', '.join(manifest.frames)}")
    place = Place(path)
    files = [place.child(file.path) for file in manifest.files if split in (None, file.split)]
    if not files:
        schema = from_arrow_schema(dataset_schema())
        return spark.createDataFrame([], schema)
    if place.local is not None or place.uri.startswith(("hdfs:", "viewfs:")):
        return spark.read.parquet(*(file.uri for file in files))
    schema = from_arrow_schema(pq.read_schema(files[0].path, filesystem=files[0].filesystem))
    return _read_by_workers(spark, [file.uri for file in files], schema)


class _Task:
    """What a worker does with its part of the table."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        options: DatasetOptions,
        transform: Callable[..., Any] | None,
        *,
        check: bool,
    ) -> None:
        self._uri = uri
        self._schema = schema
        self._options = options
        self._transform = transform
        self._takes_row = transform is not None and takes_two(transform)
        self._check = check

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sources: set[str] = set()
        with SplitFiles(Place(self._uri), self._schema, self._options) as files:
            for batch in batches:
                for row in rows_of(batch):
                    self._write(files, row, sources)
            report = files.finish()
        report.sources = sorted(sources)
        if not report.is_empty:
            yield pa.RecordBatch.from_pydict({"report": [msgspec.json.encode(report).decode()]})

    def _write(self, files: SplitFiles, row: dict[str, Any], sources: set[str]) -> None:
        counts = files.report.counts(stream_of(row))
        try:
            array = load_tensor(row, check=self._check)
        except TensorUnavailableError as e:
            counts.missing[e.status] = counts.missing.get(e.status, 0) + row["count"]
            return
        ref = row.get("ref")
        if ref is not None:
            sources.add(public_uri(ref["uri"]).rpartition("/")[0])
        crc32c = ref["crc32c"] if ref is not None and self._check and self._transform is None else None
        if self._transform is not None:
            array = self._transformed(array, row)
            if array is None:
                counts.left_out += 1
                return
        files.add(row, array, crc32c=crc32c)

    def _transformed(self, array: Any, row: dict[str, Any]) -> Any:
        assert self._transform is not None
        try:
            found = self._transform(array, row) if self._takes_row else self._transform(array)
        except Exception as e:
            raise FrameError(f"the transform failed for frame {row['seq']} of {stream_of(row)}: {e!r}") from e
        if found is not None and not hasattr(found, "dtype"):
            raise FrameError(
                f"the transform returned {type(found).__name__} for frame {row['seq']} of {stream_of(row)}",
                hint="an array, or None to leave the frame out",
            )
        return found


def _write_files(df: DataFrame, task: _Task) -> Report:
    rows = df.mapInArrow(task.__call__, "report string").collect()
    return merge_reports(msgspec.json.decode(row.report, type=Report) for row in rows)


def _read_by_workers(spark: SparkSession, uris: list[str], schema: StructType) -> DataFrame:
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for uri in batch["uri"].to_pylist():
                place = Place(uri)
                with pq.ParquetFile(place.path, filesystem=place.filesystem) as file:
                    for number in range(file.num_row_groups):
                        table = file.read_row_group(number, use_threads=False)
                        yield from table.cast(arrow).combine_chunks().to_batches()

    table = spark.createDataFrame([(uri,) for uri in uris], "uri string").repartition(len(uris), "uri")
    return table.mapInArrow(read, schema)


def _splits(df: DataFrame | None, splits: Mapping[str, Any] | None, by: str, seed: int) -> Splits:
    wanted = {"train": 1.0} if splits is None else dict(splits)
    if by == "hash":
        return hash_splits(wanted, seed=seed)
    if by != "time":
        raise ConfigError(f"by={by!r}", hint="hash or time")
    if df is None or not is_by_fractions(wanted):
        return time_splits(wanted)
    edges = fractions_to_ask(wanted)
    frames = df.filter("status = 'ok'").select(_microseconds().alias("us"))
    if frames.filter("us is null").limit(1).count():
        raise ConfigError(
            "some frames have no time", hint='by="hash" needs none; where="..." leaves them out'
        )
    quantiles = frames.approxQuantile("us", edges, 0.0) if edges else []
    # No frames at all: any bound will do.
    return time_splits(wanted, [int(each) for each in quantiles] or [0] * len(edges))


def _microseconds() -> Column:
    return f.unix_micros(f.coalesce("event_time", "recorded_time"))


def _check_columns(df: DataFrame, columns: Sequence[str]) -> None:
    missing = [name for name in (*_NEEDED, *columns) if name not in df.columns]
    if missing or not {"ref", VALUES} & set(df.columns):
        raise ConfigError(
            f"the table lacks {', '.join(missing) or 'ref and values'}",
            hint='it has to have all columns of spark.read.format("tensorpool"); filters and joins are fine',
        )


def _fields(df: DataFrame, columns: Sequence[str]) -> list[pa.Field]:
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}", hint="a list of names")
    return list(to_arrow_schema(StructType([df.schema[name] for name in columns]), timezone="UTC"))


def _name_of(transform: Callable[..., Any] | None) -> str | None:
    if transform is None:
        return None
    if not callable(transform):
        raise ConfigError(f"transform={transform!r}", hint="a function of an array, or of an array and a row")
    module, name = getattr(transform, "__module__", ""), getattr(transform, "__qualname__", "")
    return f"{module}.{name}" if name else type(transform).__qualname__


def _query_id(df: DataFrame) -> str:
    try:
        found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has none, and says so in several ways
        found = None
    if not found:
        raise ConfigError(
            "Spark does not say which query this is",
            hint='dataset_sink(path, query="name") names it; take another name for another checkpoint',
        )
    return str(found)
