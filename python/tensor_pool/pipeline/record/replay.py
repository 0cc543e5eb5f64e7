"""Publishes a recording back into a pool, with the spacing that it was recorded with."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import (
    ConfigError,
    FrameTooLargeError,
    MalformedMessageError,
    RegionError,
    TensorLayoutError,
)
from tensor_pool.pipeline.record.contents import look_through
from tensor_pool.pipeline.record.read_ahead import ReadAhead
from tensor_pool.pipeline.record.replay_options import ReplayedStream, ReplayOptions, ReplayStats
from tensor_pool.pipeline.record.republished import RepublishedStream
from tensor_pool.pipeline.record.selection import Damage, Selection
from tensor_pool.pipeline.record.tempo import Tempo

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from tensor_pool.pipeline.record.place import Place
    from tensor_pool.pipeline.record.recording import RecordedFrame, Recording
    from tensor_pool.pipeline.record.rows import Row
    from tensor_pool.pool.pool import Pool

__all__ = ["Replay"]

_LOG: Final = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
_LOOK_S: Final = 0.02


class _Due(NamedTuple):
    """A frame, read and checked, and when it is due."""

    at_ns: int
    """From the first frame of the first round on, before speed."""
    position_ns: int
    round: int
    name: str
    row: Row
    array: NDArray[Any]
    metadata: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


class Replay(Closing):
    """Publishes streams of a recording as they came. Made with producers of its own, which `close` ends.

    Frames are due at moments that are counted from the first one, so that delays don't add up. Damaged frames
    are left out and counted. Memory stays bounded, however long the recording is.

    Args:
        pool: The connection.
        recording: The recording, its directory, or a URI that pyarrow understands.
        options: How; keyword arguments are those of `ReplayOptions`.
        on_damage: Told of what can't be read, by a thread of the replay.

    Raises:
        RegionError: There is no recording, no such stream, or no frame in that time.
        AttachRefusedError: Somebody else publishes a stream of that name; `rename` or `prefix` help.
        ConfigError: Options that make no sense.

    Example:
        >>> import numpy as np, tempfile, tensor_pool as tp
        >>> from tensor_pool.pipeline.record import Recorder, Replay
        >>> from tensor_pool.testing import wait_until
        >>> with tempfile.TemporaryDirectory() as directory, tp.connect(embedded=True) as pool:
        ...     with pool.producer("camera-1", dtype="uint8", shape=(4,)) as out:
        ...         with Recorder(pool, ["camera-1"], directory) as recorder:
        ...             _ = wait_until(lambda: out.stats.consumers), out.publish(np.arange(4, dtype="uint8"))
        ...             _ = wait_until(lambda: recorder.progress["camera-1"].frames)
        ...     inp = pool.consumer("again/camera-1")
        ...     with Replay(pool, directory, prefix="again/", wait_consumers=1) as replay:
        ...         replay.run().frames, inp.poll(timeout=5).copy().tolist()
        (1, [0, 1, 2, 3])
    """

    def __init__(
        self,
        pool: Pool,
        recording: Recording | str | os.PathLike[str] | Place,
        options: ReplayOptions | None = None,
        *,
        on_damage: Callable[[Damage], object] | None = None,
        **changes: Any,
    ) -> None:
        options = options or ReplayOptions(**changes)
        self.options: Final = options
        self._selection = Selection(
            recording, options.streams, start=options.start, end=options.end, time_of=options.time_of
        )
        self._on_damage = on_damage or (lambda _: None)
        self._stats = ReplayStats(length_s=self._selection.seconds)
        self._started_ns: int | None = None
        self._stop = threading.Event()
        self.tempo: Final = Tempo(options.speed)
        """How fast it goes; may be changed by any thread."""
        self._streams: dict[str, RepublishedStream] = {}
        self._resources = contextlib.ExitStack()
        try:
            self._make_producers(pool)
        except BaseException:
            self.close()
            raise

    def _make_producers(self, pool: Pool) -> None:
        options, names = self.options, list(self._selection.streams)
        unknown = set(options.rename) - set(names)
        if unknown:
            raise ConfigError(
                f"{', '.join(sorted(unknown))} can't be renamed", hint=f"there are {', '.join(names)}"
            )
        targets = {name: options.published_as(name) for name in names}
        if len(set(targets.values())) < len(names):
            raise ConfigError("two streams would have the same name", hint="choose other names")
        for name, target in targets.items():
            contents = look_through(self._selection, name)
            if contents.frames:
                is_unnamed = target == name and not self._selection.streams[name].catalogue.stream_name
                stream = RepublishedStream(
                    pool,
                    int(target) if is_unnamed else target,
                    contents,
                    keep_timestamps=options.keep_timestamps,
                    slots=options.slots,
                )
                self._streams[name] = self._resources.enter_context(stream)
            self._stats.streams[name] = ReplayedStream(published_as=str(target))
        if not self._streams:
            raise RegionError(
                f"there is no frame to replay in {self._selection.recording.place}",
                hint="`tpool recordings ls` lists what there is, `tpool verify` what is damaged",
            )

    def run(self) -> ReplayStats:
        """Publishes everything, in this thread; returns at the end, or after `stop`.

        The streams stay until `close`, so that consumers can read the last frames.

        Raises:
            LeaseLostError: The driver is gone, and did not come back in time.
            ClosedError: The pool was closed.
        """
        self._wait_for_consumers()
        self._started_ns = time.monotonic_ns()
        try:
            with ReadAhead(self._rounds(), max_bytes=self.options.read_ahead_bytes) as ahead:
                has_begun = False
                for due in ahead:
                    if not has_begun:
                        # Counted from when the first one is there: nobody waits for the disk before that.
                        self.tempo.begin()
                        has_begun = True
                    if not self._wait_for(due):
                        break
                    self._publish(due)
                else:
                    self._stats.rounds += not self._stop.is_set()
        finally:
            self._stats.seconds = (time.monotonic_ns() - self._started_ns) / _NS
            self._started_ns = None
        return self.stats

    def stop(self) -> None:
        """Ends `run` soon; for other threads."""
        self._stop.set()
        self.tempo.stop()

    @property
    def stats(self) -> ReplayStats:
        """What became of it so far; may be asked by any thread."""
        stats, started_ns = self._stats, self._started_ns
        return msgspec.structs.replace(
            stats,
            streams={name: msgspec.structs.replace(stream) for name, stream in stats.streams.items()},
            seconds=stats.seconds if started_ns is None else (time.monotonic_ns() - started_ns) / _NS,
        )

    def close(self) -> None:
        """Ends the streams. May be called again."""
        self.stop()
        self._resources.close()

    # --- reading, in a thread of its own ----------------------------------------------------------------

    def _rounds(self) -> Iterator[_Due]:
        begin_ns, played = 0, 0
        while True:
            first_ns, last_ns, counts = None, 0, dict.fromkeys(self._streams, 0)
            for time_ns, name, frame in self._selection.merged(self._note if not played else _ignore):
                array = self._load(name, frame, tell=not played)
                if array is None:
                    continue
                first_ns = time_ns if first_ns is None else first_ns
                last_ns = time_ns
                counts[name] += 1
                at_ns, position_ns = begin_ns + time_ns - first_ns, time_ns - self._selection.first_ns
                yield _Due(at_ns, position_ns, played, name, frame.row, array, frame.metadata)
            played += 1
            if not self.options.loop or first_ns is None:
                return
            # The next round begins as long after this one as the frames of its fastest stream are apart.
            length_ns = last_ns - first_ns
            begin_ns += length_ns + length_ns // max(1, max(counts.values()) - 1)

    def _load(self, name: str, frame: RecordedFrame, *, tell: bool) -> NDArray[Any] | None:
        if frame.row.kind != "frame":
            if tell:
                self._stats.streams[name].missing += frame.row.count
            return None
        try:
            return frame.array()
        except (MalformedMessageError, OSError) as e:
            if tell:
                self._note(Damage(name, 1, getattr(e, "message", str(e))))
            return None

    def _note(self, damage: Damage) -> None:
        self._stats.streams[damage.stream].damaged += damage.frames
        _LOG.debug("%s: %s", damage.stream, damage.what)
        self._on_damage(damage)

    # --- publishing ---------------------------------------------------------------------------------------

    def _wait_for_consumers(self) -> None:
        wanted = self.options.wait_consumers
        self._stats.is_waiting = wanted > 0
        while any(stream.consumers < wanted for stream in self._streams.values()):
            if self._stop.wait(_LOOK_S):
                break
        self._stats.is_waiting = False

    def _wait_for(self, due: _Due) -> bool:
        """Waits until a frame is due; False when it is to end."""
        late_ns = self.tempo.wait_for(due.at_ns)
        if late_ns is None:
            return False
        stream = self._stats.streams[due.name]
        stream.late += late_ns / _NS > self.options.late_s
        stream.worst_late_s = max(stream.worst_late_s, late_ns / _NS)
        return True

    def _publish(self, due: _Due) -> None:
        stats = self._stats.streams[due.name]
        try:
            self._streams[due.name].publish(due.row, due.array, due.metadata)
        except (TensorLayoutError, FrameTooLargeError) as e:
            stats.skipped += 1
            _LOG.warning("frame %d of %s is left out: %s", due.row.seq, due.name, e.message)
            return
        stats.frames += 1
        stats.nbytes += due.nbytes
        self._stats.rounds = due.round
        self._stats.position_s = due.position_ns / _NS


def _ignore(_damage: Damage) -> None:
    """Damage is told of in the first round only."""
