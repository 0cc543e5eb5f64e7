"""The demo's camera: a process that owns a ring, announces it and publishes pictures.

There is no driver in this deployment, so the producer creates its own files and announces them itself
(decision D16). Started by the viewer as ``python -m tensor_pool.ops.demo.camera``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool import _native, wire
from tensor_pool.config import AeronSection  # noqa: TC001 - msgspec reads annotations at run time
from tensor_pool.datatypes import Dtype
from tensor_pool.host.aeron import connect
from tensor_pool.ops.demo.picture import HEIGHT, WIDTH, draw
from tensor_pool.runtime import Periodic
from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce
from tensor_pool.wire.shm import LAYOUT_VERSION, SLOT_BYTES

if TYPE_CHECKING:
    from tensor_pool.transport import Publication

__all__ = ["CameraOptions", "main"]

POOL_STREAM: Final = 10_000
_NS: Final = 1_000_000_000


class CameraOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the viewer tells the camera, as JSON on its command line."""

    aeron: AeronSection
    base_dir: str
    announce_channel: str
    announce_stream_id: int
    descriptor_channel: str
    descriptor_stream_id: int
    rate_hz: float
    frames: int
    slots: int = 32


def announcement(address: _native.RingAddress) -> ShmPoolAnnounce:
    """What the whole host may know of the ring."""
    pools = tuple(PayloadPool(pool_id, address.nslots, stride, uri) for pool_id, stride, uri in address.pools)
    return ShmPoolAnnounce(
        stream_id=address.stream_id,
        producer_id=os.getpid(),
        epoch=address.epoch,
        announce_timestamp_ns=time.monotonic_ns(),
        announce_clock_domain=ClockDomain.MONOTONIC,
        layout_version=LAYOUT_VERSION,
        header_nslots=address.nslots,
        header_slot_bytes=SLOT_BYTES,
        payload_pools=pools,
        header_region_uri=address.header_uri,
    )


def make_ring(options: CameraOptions) -> _native.RingAddress:
    """A new ring for pictures, in a directory of its own."""
    epoch = time.time_ns() // 1000
    directory = Path(options.base_dir) / str(POOL_STREAM) / str(epoch)
    directory.mkdir(parents=True, mode=0o700)
    stride_bytes = 1 << (HEIGHT * WIDTH - 1).bit_length()
    pools = [(1, stride_bytes)]
    return _native.create_ring(
        directory, stream_id=POOL_STREAM, epoch=epoch, nslots=options.slots, pools=pools
    )


def run(options: CameraOptions) -> None:
    """Publishes pictures at an even rate until all are taken, or nobody is left to look at them."""
    address = make_ring(options)
    with (
        connect(options.aeron, name="demo camera") as client,
        client.add_publication(options.announce_channel, options.announce_stream_id) as announces,
        client.add_publication(options.descriptor_channel, options.descriptor_stream_id) as descriptors,
        _native.RingWriter(address, base_dirs=[options.base_dir], descriptors=descriptors) as writer,
    ):
        writer.prefault()
        # Whoever joins late misses nothing that is still in the ring; the demo wants to show all of it.
        descriptors.wait_connected(5_000)
        take_pictures(writer, announces, options)


def take_pictures(writer: _native.RingWriter, announces: Publication, options: CameraOptions) -> None:
    """One picture a period, an announce every second."""
    period_ns = round(_NS / options.rate_hz)
    start_ns = time.monotonic_ns()
    announce_timer = Periodic(period_ns=_NS, start_ns=start_ns)
    for n in range(options.frames):
        now_ns = time.monotonic_ns()
        if announce_timer.due(now_ns):
            announces.offer(wire.encode(announcement(writer.address)))
        early_ns = start_ns + n * period_ns - now_ns
        if viewer_left(within_s=max(early_ns, 0) / _NS):
            return
        # The picture is drawn where its readers will find it: no copy at all.
        with writer.claim((HEIGHT, WIDTH), Dtype.UINT8) as slot:
            draw(slot.seq, slot.array)


def viewer_left(within_s: float) -> bool:
    """Sleeps; true at once when the viewer ends, however it ends: the standard input comes from it."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


def main() -> None:
    """Entry point of the process."""
    # Ctrl-C reaches the whole terminal; the viewer ends, and the camera with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(msgspec.json.decode(sys.argv[1], type=CameraOptions))


def command(options: CameraOptions) -> list[str]:
    """The command line that starts a camera."""
    return [sys.executable, "-m", "tensor_pool.ops.demo.camera", json.dumps(msgspec.to_builtins(options))]


if __name__ == "__main__":
    main()
