"""The demo's viewer: finds the camera's ring by its announce, looks at every picture where it lies."""

from __future__ import annotations

import signal
import subprocess
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from tensor_pool import _native
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.host.aeron import connect, open_media_driver
from tensor_pool.ops.demo import camera, picture
from tensor_pool.pool.mapping import ring_address
from tensor_pool.runtime import Histogram, Periodic
from tensor_pool.runtime.stop_signals import exit_on_sigterm
from tensor_pool.transport.media import temporary_aeron_dir
from tensor_pool.wire import Router
from tensor_pool.wire.messages import ShmPoolAnnounce

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensor_pool.config import AeronSection, StreamsSection
    from tensor_pool.transport import Subscription

__all__ = ["Outcome", "Viewer", "run"]

_NS: Final = 1_000_000_000
_SHM: Final = "/dev/shm"  # noqa: S108 - shared memory is the point
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
    """Follows one stream.

    Args:
        announces: Where rings are announced.
        descriptors: Where frames are announced.
        base_dir: Below which the ring's files must lie.
    """

    def __init__(self, announces: Subscription, descriptors: Subscription, base_dir: str) -> None:
        self.outcome = Outcome()
        self.latency = Histogram()
        self.last_picture: NDArray[Any] | None = None
        self._announces = announces
        self._descriptors = descriptors
        self._base_dir = base_dir
        self._reader: _native.RingReader | None = None
        self._router = Router()
        self._router.on(ShmPoolAnnounce, self._map)

    def _map(self, announce: ShmPoolAnnounce) -> None:
        if self._reader is not None or announce.stream_id != camera.POOL_STREAM:
            return
        self._reader = _native.RingReader(ring_address(announce), base_dirs=[self._base_dir])

    def work(self) -> bool:
        """Looks at what is there, or sleeps until something comes; true when a picture was looked at."""
        for message in self._announces.receive():
            self._router.dispatch(message)
        if self._reader is None:
            time.sleep(0.005)
            return False
        for message in self._descriptors.receive():
            self.outcome.descriptors += _native.FrameDescriptor.decode(message) is not None
        frame = self._reader.poll()
        if frame is None:
            self._reader.wait(0.1)
            return False
        self._look_at(frame)
        self.outcome.gaps, self.outcome.late = self._reader.gaps, self._reader.late
        return True

    def _look_at(self, frame: _native.Frame) -> None:
        seen_ns = time.monotonic_ns()
        try:
            with frame as image:
                right = picture.is_right(frame.seq, image)
                kept = np.array(image) if frame.seq % 30 == 0 else self.last_picture
        except FrameOverwrittenError:
            return  # counted as late by the reader; what was seen of it says nothing
        self.latency.record(seen_ns - frame.timestamp_ns)
        self.outcome.frames += 1
        self.outcome.wrong += not right
        self.outcome.last_seq = frame.seq
        self.last_picture = kept

    def close(self) -> None:
        """Lets go of the ring."""
        if self._reader is not None:
            self._reader.close()


def run(
    aeron: AeronSection,
    streams: StreamsSection,
    *,
    seconds: float,
    rate_hz: float,
    on_start: Callable[[int, str], None],
    on_second: Callable[[Viewer], None],
) -> Viewer:
    """Starts a media driver here and a camera in another process, and looks at its pictures until it ends.

    Args:
        aeron: How the media driver and its channels are set; without a `dir` of its own the media driver gets
            a temporary one. It is always started here: nobody else's streams get mixed up with the demo's.
        streams: Channels and stream ids.
        seconds: How long the camera takes pictures.
        rate_hz: How many a second.
        on_start: Called with the camera's process id and the directory of its ring.
        on_second: Called every second.
    """
    aeron = msgspec.structs.replace(aeron, dir=aeron.dir or temporary_aeron_dir(), media_driver="embedded")
    with (
        exit_on_sigterm(),
        TemporaryDirectory(dir=_SHM, prefix="tensor-pool-demo-") as base_dir,
        open_media_driver(aeron),
        connect(aeron, name="demo viewer") as client,
        client.add_subscription(streams.announce_channel, streams.announce_stream_id) as announces,
        client.add_subscription(streams.descriptor_channel, streams.descriptor_stream_id) as descriptors,
    ):
        options = camera.CameraOptions(
            aeron=aeron,
            base_dir=base_dir,
            announce_channel=streams.announce_channel,
            announce_stream_id=streams.announce_stream_id,
            descriptor_channel=streams.descriptor_channel,
            descriptor_stream_id=streams.descriptor_stream_id,
            rate_hz=rate_hz,
            frames=max(1, round(seconds * rate_hz)),
        )
        viewer = Viewer(announces, descriptors, base_dir)
        # The camera ends when its standard input does, should this process be killed.
        process = subprocess.Popen(camera.command(options), stdin=subprocess.PIPE)  # noqa: S603 - our own module
        with process:
            try:
                on_start(process.pid, base_dir)
                watch(viewer, process, on_second)
            finally:
                process.kill()
                viewer.close()
        return viewer


def watch(viewer: Viewer, process: subprocess.Popen[bytes], on_second: Callable[[Viewer], None]) -> None:
    """Works until the camera has ended and everything it left in the ring has been seen."""
    every_second = Periodic(period_ns=_NS, start_ns=time.monotonic_ns() + _NS)
    first_frame = last_frame = time.monotonic()
    while True:
        # Asked before looking: what it committed before it ended is found after this.
        ended = process.poll() is not None
        if viewer.work():
            last_frame = time.monotonic()
            first_frame = last_frame if viewer.outcome.frames == 1 else first_frame
        elif ended or time.monotonic() - last_frame > PATIENCE_S:
            break
        if every_second.due(time.monotonic_ns()):
            on_second(viewer)
    viewer.outcome.seconds = last_frame - first_frame
    viewer.outcome.camera_pid = process.pid
    viewer.outcome.camera_exit = process.poll()
