"""A recorder that others can switch on and off: the service ``recorder``."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Property, reading
from tensor_pool.errors import TensorPoolError
from tensor_pool.host.connection import configured
from tensor_pool.host.control import Service
from tensor_pool.pipeline.record.options import RecorderOptions, StreamProgress
from tensor_pool.pipeline.record.recorder import Recorder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from tensor_pool.config import Config
    from tensor_pool.pool.pool import Pool

__all__ = ["CommandedRecorder"]

_LOG: Final = logging.getLogger(__name__)
_SUMMED: Final = ("frames", "nbytes", "lost", "dropped")


class CommandedRecorder(Closing):
    """Records as `Recorder` does, while its property ``record.enable`` is true.

    A command is accepted at once; sealing what was recorded may take longer, and ``record.active`` tells when
    it is done. Each time that it is switched on it continues the same recording.

    Args:
        pool: The connection.
        streams: Names or ids.
        out: The directory of the recording.
        options: How.
        config: Where commands come from; the section ``control`` may say that nobody commands.
        instance: Which recorder this is, where there are several.
        enabled: Whether it records from the start.

    Raises:
        ConfigError: No stream, or the same one twice.
        RegionError: The directory can't be written to.

    Example:
        >>> import tempfile, tensor_pool as tp
        >>> from tensor_pool.testing import wait_until
        >>> with (
        ...     tempfile.TemporaryDirectory() as directory,
        ...     tp.connect(embedded=True) as pool,
        ...     CommandedRecorder(pool, ["camera"], directory, enabled=False) as recorder,
        ...     tp.ControlClient(aeron_dir=pool.aeron_dir) as control,
        ... ):
        ...     _ = control.send("recorder", "record.enable", True)
        ...     wait_until(lambda: recorder.is_active)
        True
    """

    def __init__(
        self,
        pool: Pool,
        streams: Sequence[str | int],
        out: str | os.PathLike[str],
        options: RecorderOptions | None = None,
        *,
        config: Config | None = None,
        instance: str = "",
        enabled: bool = True,
    ) -> None:
        config = configured(None, pool.aeron_dir, None) if config is None else config
        self._pool = pool
        self._streams = list(streams)
        self._out = out
        self._options = options or RecorderOptions()
        self._before = {stream: StreamProgress() for stream in streams}
        self._recorder: Recorder | None = self._open() if enabled else None
        self._wanted = enabled
        self._error = ""
        self._ended = False
        self._changed = threading.Event()
        try:
            self._service = self._serve(config, instance) if config[ControlSection].enabled else None
        except BaseException:
            self._close_recorder()
            raise
        self._thread = threading.Thread(target=self._run, name="recorder switch", daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether frames are recorded now."""
        recorder = self._recorder
        return recorder is not None and recorder.is_running

    @property
    def is_running(self) -> bool:
        """Whether it records, or may be told to; False when a recording ended by itself."""
        recorder = self._recorder
        if recorder is None or not self._wanted:  # one that is being closed has not ended by itself
            return self._service is not None
        return recorder.is_running

    @property
    def progress(self) -> dict[str | int, StreamProgress]:
        """What became of each stream so far, all times together."""
        recorder = self._recorder
        if recorder is None:
            return dict(self._before)
        return {stream: _sum(self._before[stream], now) for stream, now in recorder.progress.items()}

    def let_go_through(self, directory: Path, number: int) -> None:
        """See `Recorder.let_go_through`."""
        recorder = self._recorder
        if recorder is not None:
            recorder.let_go_through(directory, number)

    def close(self) -> None:
        """Writes what was read, seals all segments and ends. May be called again."""
        if self._ended:
            return
        self._ended = True
        self._changed.set()
        self._thread.join()
        self._close_recorder()
        if self._service is not None:
            self._service.close()

    def _serve(self, config: Config, instance: str) -> Service:
        return Service(
            "recorder",
            instance=instance,
            doc="Records streams into a directory.",
            properties={
                "record.enable": Property(
                    bool, default=self._wanted, on_change=self._switch, doc="Whether to record."
                ),
                "record.active": reading(bool, "Whether frames are recorded now."),
                "record.streams": reading(str, "What is recorded.", ", ".join(map(str, self._streams))),
                "record.directory": reading(str, "Where to.", str(self._out)),
                "record.frames": reading(int, "Frames so far."),
                "record.bytes": reading(int, "Bytes so far."),
                "record.lost": reading(int, "Frames that were never seen."),
                "record.dropped": reading(int, "Frames that were seen and not written."),
                "record.error": reading(str, "Why nothing can be written."),
            },
            refresh=self._refresh,
            config=config,
        )

    def _switch(self, on: bool) -> None:
        self._wanted = on
        self._changed.set()

    def _run(self) -> None:
        while not self._ended:
            self._changed.clear()  # before the look: what comes later is seen in the next turn
            if self._wanted is not (self._recorder is not None):
                self._apply()
            self._changed.wait()

    def _apply(self) -> None:
        if not self._wanted:
            self._close_recorder()
            return
        try:
            self._recorder = self._open()
            self._error = ""
        except (TensorPoolError, OSError) as e:
            self._wanted = False  # once more when told once more, not four times a second
            self._error = str(e)
            _LOG.error("the recording can't begin: %s", e)
            if self._service is not None:
                self._service["record.enable"] = False

    def _open(self) -> Recorder:
        return Recorder(self._pool, self._streams, self._out, self._options)

    def _close_recorder(self) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder.close()
            self._before, self._recorder = self.progress, None

    def _refresh(self, service: Service) -> None:
        progress = list(self.progress.values())
        service["record.active"] = self.is_active
        for key, name in (("frames",) * 2, ("bytes", "nbytes"), ("lost",) * 2, ("dropped",) * 2):
            service[f"record.{key}"] = sum(getattr(done, name) for done in progress)
        errors = [self._error, *(done.error or "" for done in progress)]
        service["record.error"] = "; ".join(dict.fromkeys(filter(None, errors)))[:1_000]


def _sum(before: StreamProgress, now: StreamProgress) -> StreamProgress:
    sums = {name: getattr(before, name) + getattr(now, name) for name in _SUMMED}
    return msgspec.structs.replace(now, **sums)
