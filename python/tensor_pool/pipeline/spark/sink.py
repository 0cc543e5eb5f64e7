"""Publishing tables back into a pool: ``df.write`` and ``df.writeStream`` with the format ``tensorpool``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tensor_pool import _native
from tensor_pool.errors import ConfigError, TensorPoolError, TransportError
from tensor_pool.pipeline.spark.live_pool import Connection
from tensor_pool.pipeline.spark.option_values import LONGEST_S, Ranges, convert_options
from tensor_pool.pipeline.spark.publisher import (
    Answer,
    Begin,
    End,
    FrameToPublish,
    PublisherOptions,
    receive,
    send,
)
from tensor_pool.pipeline.spark.sink_rows import check_columns, frames_of
from tensor_pool.pool.sizing import MAX_SLOTS, MAX_STRIDE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["PoolStreamWriter", "PoolWriter", "Published", "SinkOptions", "parse_sink_options"]

# Not with -m: the package imports that module too, which Python warns of.
_PUBLISHER: Final = "from tensor_pool.pipeline.spark.publisher import main; main()"
_START_S: Final = 20.0


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to publish.

    ================  ========  ==============================================================================
    option            default   meaning
    ================  ========  ==============================================================================
    ``stream``                  the stream, by name or number; nobody else may produce it
    ``slots``         64        how many tensors its ring holds
    ``frameBytes``              how large tensors can be; else the first one tells, and larger ones begin
                                another epoch
    ``idleSeconds``   30        how long the stream stays after the last batch
    ``aeronDir``                as for reading
    ``config``                  as for reading
    ``settings``                as for reading
    ================  ========  ==============================================================================
    """

    stream: str = ""
    slots: int = 64
    frameBytes: int = 0  # noqa: N815 - options of Spark look like that
    idleSeconds: float = 30.0  # noqa: N815
    aeronDir: str = ""  # noqa: N815
    config: str = ""
    settings: str = ""

    @property
    def connection(self) -> Connection:
        """Which pool."""
        return Connection(aeron_dir=self.aeronDir, config=self.config, settings=self.settings)


_RANGES: Final[Ranges] = {
    "slots": (1, MAX_SLOTS),
    "frameBytes": (0, MAX_STRIDE),
    "idleSeconds": (0, LONGEST_S),
}
_NAMES: Final = {name.lower(): name for name in SinkOptions.__struct_fields__}
_OF_SPARK: Final = {"path", "checkpointlocation", "queryname"}


def parse_sink_options(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The options as given to Spark, checked together with the columns of the table.

    Raises:
        ConfigError: Something is missing, unknown or makes no sense.
    """
    unknown = [key for key in given if key.lower() not in _NAMES and key.lower() not in _OF_SPARK]
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}", hint=f"a sink has {', '.join(_NAMES.values())}")
    values = {_NAMES[key.lower()]: text for key, text in given.items() if key.lower() in _NAMES}
    options = convert_options(values, SinkOptions, _RANGES)
    if options.slots.bit_count() != 1:
        raise ConfigError(f"option slots={options.slots}", hint="a power of two, such as 64")
    if not options.stream:
        raise ConfigError("no stream to publish", hint='.option("stream", "result")')
    check_columns(schema)
    return options


class Published(WriterCommitMessage):
    """What one task did.

    Args:
        answer: What the publisher said.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class PoolWriter(DataSourceArrowWriter):
    """Publishes a table, once.

    Args:
        options: Where.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publishes the rows of one task."""
        return Published(_publish(self._options, iterator, batch=""))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Published is published: there is nothing to add."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Published is published: there is nothing to take back."""


class PoolStreamWriter(DataSourceStreamArrowWriter):
    """Publishes each batch of a streaming query, at least once; a batch that was finished is not repeated.

    Args:
        options: Where.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publishes the rows of one task."""
        context = TaskContext.get()
        assert context is not None
        query, batch = (
            context.getLocalProperty(key) for key in ("sql.streaming.queryId", "streaming.sql.batchId")
        )
        return Published(_publish(self._options, iterator, batch=f"{query}:{batch}"))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Published is published: there is nothing to add."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Published is published: there is nothing to take back."""


def _publish(options: SinkOptions, batches: Iterator[pa.RecordBatch], *, batch: str) -> Answer:
    """Sends rows to the publisher and waits until they are published.

    Raises:
        TensorPoolError: They are not.
    """
    with contextlib.closing(_Task(options, batch)) as task:
        for rows in batches:
            for frame in frames_of(rows):
                task.send(frame)
        answer = task.finish()
    if answer.error:
        raise TensorPoolError(f"can't publish {options.stream}: {answer.error}")
    return answer


class _Task:
    """One task's talk with the publisher; one without rows needs none.

    Args:
        options: Where to publish.
        batch: Names the batch.
    """

    def __init__(self, options: SinkOptions, batch: str) -> None:
        self._options = options
        self._batch = batch
        self._connection: socket.socket | None = None

    def send(self, frame: FrameToPublish) -> None:
        """Hands a frame over.

        Raises:
            TransportError: The publisher can't be started, or has ended.
        """
        if self._connection is None:
            self._connection = _connected(self._options)
            self._say(self._begin())
        self._say(frame)

    def finish(self) -> Answer:
        """What became of all of them.

        Raises:
            TransportError: The publisher has ended.
        """
        if self._connection is None:
            return Answer()
        self._say(End())
        with _told_of_end():
            answer = receive(self._connection)
        if not isinstance(answer, Answer):
            raise TransportError("the publisher of the sink has ended", hint="the query can be restarted")
        return answer

    def close(self) -> None:
        """Ends the talk; what was not finished counts as not published."""
        if self._connection is not None:
            self._connection.close()

    def _say(self, message: Begin | FrameToPublish | End) -> None:
        assert self._connection is not None
        with _told_of_end():
            send(self._connection, message)

    def _begin(self) -> Begin:
        context = TaskContext.get()
        return Begin(
            stream=self._options.stream,
            slots=self._options.slots,
            batch=self._batch,
            part=context.partitionId() if context is not None else 0,
            frame_bytes=self._options.frameBytes,
        )


@contextlib.contextmanager
def _told_of_end() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise TransportError(
            f"the publisher of the sink has ended: {e}", hint="the query can be restarted"
        ) from None


def _connected(options: SinkOptions) -> socket.socket:
    """A connection to the publisher of a pool, which is started if it is not there.

    Raises:
        TransportError: It can't be started; says why.
    """
    directory = Path(tempfile.gettempdir(), f"tensor-pool-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid() or directory.stat().st_mode & 0o077:
        raise TransportError(f"{directory} is open to others", hint="remove it, or set TMPDIR")
    path = directory / f"publisher-{_native.crc32c(msgspec.json.encode(options.connection)):08x}.sock"
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tasks start one of them
        connection = _try(path)
        return connection or _started(options, path)


def _try(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _started(options: SinkOptions, path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    told = PublisherOptions(socket=str(path), connection=options.connection, idle_s=options.idleSeconds)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-c", _PUBLISHER, msgspec.json.encode(told).decode()]
        process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # the task's process may end before it
        )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and process.poll() is None:
            connection = _try(path)
            if connection is not None:
                return connection
            time.sleep(0.02)
        process.kill()
        log.seek(0)
        raise TransportError(
            f"the publisher of the sink did not start: {log.read(2_000).decode(errors='replace').strip()}",
            hint="a driver must run on this host (`tpool up`); its address goes into aeronDir or settings",
        )
