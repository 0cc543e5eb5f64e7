"""The demo's viewer: starts everything, and looks at every picture where it lies."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from tensor_pool.driver.files import namespace_directory
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.host.connection import connect
from tensor_pool.host.instances import new_instance_id, remove_instance
from tensor_pool.ops.demo import camera, picture
from tensor_pool.runtime import Histogram, Periodic
from tensor_pool.stop_signals import StopSignals
from tensor_pool.transport.media import temporary_aeron_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tensor_pool.config import Config
    from tensor_pool.pipeline.record import Recorder
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool

__all__ = ["Outcome", "Viewer", "run"]

_NS: Final = 1_000_000_000
_LOOK_S: Final = 0.1
_ASKED_FOR: Final = {"command line", "argument"}
"""Where a directory comes from that somebody names for the demo, and not for the host."""
PATIENCE_S: Final = 15.0
"""How long the viewer waits for the next picture."""


class Outcome(msgspec.Struct):
    """What the viewer saw."""

    frames: int = 0
    wrong: int = 0
    gaps: int = 0
    late: int = 0
    descriptors: int = 0
    seconds: float = 0.0
    camera_pid: int = 0
    camera_exit: int | None = None
    camera_failure: camera.CameraFailure | None = None
    last_seq: int | None = None

    @property
    def killed_by(self) -> str | None:
        """The signal that ended the camera, if one did."""
        if self.camera_exit is None or self.camera_exit >= 0:
            return None
        return signal.Signals(-self.camera_exit).name

    @property
    def silent(self) -> bool:
        """Did the camera live, but take no more pictures?"""
        return self.camera_exit is None

    @property
    def good(self) -> bool:
        """Did all pictures arrive, every pixel right?"""
        return self.camera_exit == 0 and self.frames > 0 and self.wrong == self.gaps == self.late == 0


class Viewer:
    """Looks at the pictures of one stream.

    Args:
        consumer: Where they come from.
        dead_from: From which picture on a band of the sensor is dead.
    """

    def __init__(self, consumer: Consumer, *, dead_from: int | None = None) -> None:
        self.outcome = Outcome()
        self.latency = Histogram()
        self.last_picture: NDArray[Any] | None = None
        self._consumer = consumer
        self._dead_from = dead_from

    def work(self) -> bool:
        """Looks at the next picture; false when none came for a while."""
        frame = self._consumer.poll(timeout=_LOOK_S)
        if frame is None:
            return False
        self._look_at(frame)
        self.count()
        return True

    def count(self) -> None:
        """Takes over what the consumer counted."""
        stats = self._consumer.stats
        self.outcome.gaps, self.outcome.late = stats.drops_gap, stats.drops_late
        self.outcome.descriptors = stats.descriptors_received

    def _look_at(self, frame: Frame) -> None:
        seen_ns = time.monotonic_ns()
        try:
            with frame as image:
                right = picture.is_right(frame.seq, image, dead_from=self._dead_from)
                kept = np.array(image) if frame.seq % 30 == 0 else self.last_picture
        except FrameOverwrittenError:
            return  # counted as late; what was seen of it says nothing
        self.latency.record(seen_ns - frame.info.timestamp_ns)
        self.outcome.frames += 1
        self.outcome.wrong += not right
        self.outcome.last_seq = frame.seq
        self.last_picture = kept


def run(
    config: Config,
    *,
    seconds: float,
    rate_hz: float,
    on_start: Callable[[int, str], None],
    on_second: Callable[[Viewer], None],
    record_to: Path | None = None,
    dead_from: int | None = None,
) -> Viewer:
    """Starts both drivers here and a camera in another process, and looks at its pictures until it ends.

    Args:
        config: How everything is set. Drivers are always started here, in a temporary directory unless the
            command line names one: that of a host is for its own drivers, and nobody else's streams get
            mixed up with the demo's.
        seconds: How long the camera takes pictures.
        rate_hz: How many a second.
        on_start: Called with the camera's process id and the directory of its ring.
        on_second: Called every second.
        record_to: Record everything into this directory meanwhile.
        dead_from: From which picture on a band of the camera's sensor is dead.
    """
    # Named here, so that the camera can be told.
    named = config.aeron.dir if config.origin("aeron.dir").kind in _ASKED_FOR else ""
    chosen = {"aeron.dir": named or temporary_aeron_dir(), "driver.instance_id": new_instance_id()}
    config = config.replace(chosen)
    directory = namespace_directory(config.shm, chosen["driver.instance_id"])
    frames = max(1, round(seconds * rate_hz))
    settings = {entry.key.path: entry.value for entry in config.entries() if config.is_set(entry.key.path)}
    options = camera.CameraOptions(settings=settings, rate_hz=rate_hz, frames=frames, dead_from=dead_from)
    with contextlib.ExitStack() as resources:
        # Noted, not raised: an exception out of nowhere may leave a lock of the standard library locked.
        stop = resources.enter_context(StopSignals())
        resources.callback(remove_instance, directory)
        pool = resources.enter_context(connect(config=config, embedded=True, name="demo viewer"))
        viewer = Viewer(pool.consumer(camera.STREAM), dead_from=dead_from)
        recorder = None if record_to is None else resources.enter_context(_recorder(pool, record_to))
        # The camera ends when its standard input does, should this process be killed.
        process = resources.enter_context(
            subprocess.Popen(  # noqa: S603 - our own module
                camera.command(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        resources.callback(process.kill)
        on_start(process.pid, str(directory))
        watch(viewer, process, frames, on_second, stop, recorder=recorder)
        return viewer


def _recorder(pool: Pool, directory: Path) -> Recorder:
    from tensor_pool.pipeline.record import Recorder  # noqa: PLC0415 - needs the extra `record`

    # The stream ends with the camera, which waits for the viewer only: frames must not wait for the disk.
    return Recorder(pool, [camera.STREAM], directory, sync="seal")


def _await_recorded(recorder: Recorder | None, frames: int) -> None:
    """What was not read before the camera leaves is lost."""
    deadline = time.monotonic() + PATIENCE_S
    while recorder is not None and time.monotonic() < deadline:
        done = recorder.progress[camera.STREAM]
        if done.frames + done.lost + done.dropped >= frames:
            return
        time.sleep(_LOOK_S)


def watch(
    viewer: Viewer,
    process: subprocess.Popen[bytes],
    frames: int,
    on_second: Callable[[Viewer], None],
    stop: StopSignals,
    *,
    recorder: Recorder | None = None,
) -> None:
    """Works until the last picture was seen, or the camera is gone or silent.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        SystemExit: SIGTERM.
    """
    every_second = Periodic(period_ns=_NS, start_ns=time.monotonic_ns() + _NS)
    first_frame = last_frame = time.monotonic()
    while (viewer.outcome.last_seq or 0) < frames - 1:
        stopped_by = stop.received()
        if stopped_by is not None:
            raise KeyboardInterrupt if stopped_by == signal.SIGINT else SystemExit(128 + stopped_by)
        # Asked before looking: what it committed before it ended is found after this.
        ended = process.poll() is not None
        if viewer.work():
            last_frame = time.monotonic()
            first_frame = last_frame if viewer.outcome.frames == 1 else first_frame
        elif ended or time.monotonic() - last_frame > PATIENCE_S:
            break
        if every_second.due(time.monotonic_ns()):
            on_second(viewer)
    else:
        assert process.stdin is not None
        _await_recorded(recorder, frames)
        process.stdin.close()  # the camera may go
        process.wait(timeout=PATIENCE_S)
        viewer.count()  # a picture may be seen in the ring before its descriptor is heard
    viewer.outcome.seconds = last_frame - first_frame
    viewer.outcome.camera_pid = process.pid
    viewer.outcome.camera_exit = process.poll()
    if viewer.outcome.camera_exit and process.stdout is not None and (told := process.stdout.read()):
        viewer.outcome.camera_failure = msgspec.json.decode(told, type=camera.CameraFailure)
