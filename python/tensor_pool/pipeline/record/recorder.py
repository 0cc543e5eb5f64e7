"""Records streams of a pool into a directory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.machine import boot_id, host_name
from tensor_pool.pipeline.record.catalogue import Catalogue, stream_directory
from tensor_pool.pipeline.record.memory import backlog_bytes
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.store import StreamStore
from tensor_pool.pipeline.record.stream import StreamRecorder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tensor_pool.pipeline.record.options import StreamProgress
    from tensor_pool.pool.pool import Pool

__all__ = ["Recorder"]


class Recorder(Closing):
    """Records streams until it is closed; waits for those that are not there yet, and follows restarts.

    Args:
        pool: The connection.
        streams: Names or ids.
        out: The recording: a directory, made when it is not there; a stream that is in it is continued.
        options: How; keyword arguments are those of `RecorderOptions`.

    Raises:
        ConfigError: No stream, or the same one twice.
        RegionError: The directory can't be written to.

    Example:
        >>> import numpy as np, tempfile, tensor_pool as tp
        >>> from tensor_pool.testing import wait_until
        >>> with tempfile.TemporaryDirectory() as directory, tp.connect(embedded=True) as pool:
        ...     out = pool.producer("camera-1", dtype="uint8", shape=(4,))
        ...     with Recorder(pool, ["camera-1"], directory) as recorder:
        ...         _ = wait_until(lambda: out.stats.consumers), out.publish(np.arange(4, dtype="uint8"))
        ...         _ = wait_until(lambda: recorder.progress["camera-1"].frames)
        ...     recorder.progress["camera-1"].durable_seq
        0
    """

    def __init__(
        self,
        pool: Pool,
        streams: Sequence[str | int],
        out: str | os.PathLike[str],
        options: RecorderOptions | None = None,
        **changes: Any,
    ) -> None:
        if isinstance(streams, str) or not streams or len(set(streams)) != len(streams):
            raise ConfigError(f"streams={streams!r}", hint="a list of names or ids, each of them once")
        options = options or RecorderOptions(**changes)
        self._backlog_bytes = options.max_backlog_bytes or backlog_bytes(len(streams))
        self._resources = contextlib.ExitStack()
        self._out = Path(out)
        self._streams: dict[str | int, StreamRecorder] = {}
        try:
            for stream in streams:
                self._streams[stream] = self._record(pool, stream, self._out, options)
        except BaseException:
            self.close()
            raise

    def _record(self, pool: Pool, stream: str | int, out: Path, options: RecorderOptions) -> StreamRecorder:
        about = Catalogue(
            stream_name=stream if isinstance(stream, str) else "",
            stream_id=stream if isinstance(stream, int) else 0,
            host=host_name(),
            boot_id=boot_id(),
        )
        store = StreamStore(stream_directory(out, stream), options, about=about)
        # Nothing is skipped to catch up: what is lost is lost because the ring was too short, and told of.
        consumer = pool.consumer(stream, start=options.start, copy_mode=True, max_outstanding_seq_gap=0)
        return self._resources.enter_context(
            StreamRecorder(consumer, store, backlog_bytes=self._backlog_bytes)
        )

    @property
    def progress(self) -> dict[str | int, StreamProgress]:
        """What became of each stream so far."""
        return {stream: recorder.progress for stream, recorder in self._streams.items()}

    def let_go_through(self, directory: Path, number: int) -> None:
        """Segments of a stream up to this number are safe elsewhere, and need not be kept here.

        Args:
            directory: Of the stream.
            number: Of the newest one.
        """
        for stream, recorder in self._streams.items():
            if stream_directory(self._out, stream) == directory:
                recorder.let_go_through(number)

    @property
    def is_running(self) -> bool:
        """Whether any stream is still recorded."""
        return any(recorder.is_running for recorder in self._streams.values())

    def close(self) -> None:
        """Writes what was read, seals all segments and ends. May be called again."""
        self._resources.close()
