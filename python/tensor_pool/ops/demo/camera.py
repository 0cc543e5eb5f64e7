"""The demo's camera: a program that publishes pictures, as any camera would.

Started by the viewer as ``python -m tensor_pool.ops.demo.camera``; it ends when its standard input does.
"""

from __future__ import annotations

import json
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.config import load_config
from tensor_pool.errors import TensorPoolError
from tensor_pool.host.connection import connect
from tensor_pool.ops.demo.picture import HEIGHT, WIDTH, draw

if TYPE_CHECKING:
    from tensor_pool.pool.producer import Producer

__all__ = ["STREAM", "CameraFailure", "CameraOptions", "main"]

STREAM: Final = "demo-camera"
_NS: Final = 1_000_000_000


class CameraOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the viewer tells the camera, as JSON on its command line."""

    settings: dict[str, Any]
    """The configuration, by key."""
    rate_hz: float
    frames: int
    slots: int = 32
    dead_from: int | None = None
    """From this picture on a band of the sensor is dead."""


class CameraFailure(msgspec.Struct, frozen=True):
    """Why the camera can't go on, as it tells the viewer in a line of JSON: people read what that says."""

    message: str
    hint: str | None = None


def run(options: CameraOptions) -> None:
    """Publishes pictures at an even rate until all are taken, or nobody is left to look at them."""
    config = load_config(overrides=options.settings, environ={}, search=False)
    with (
        connect(config=config, name="demo-camera") as pool,
        pool.producer(STREAM, dtype="uint8", shape=(HEIGHT, WIDTH), slots=options.slots) as out,
    ):
        out.metadata["rate_hz"] = options.rate_hz
        if not take_pictures(out, options):
            # The stream ends with its producer: it stays until the viewer has seen the last picture.
            viewer_left(within_s=None)


def take_pictures(out: Producer, options: CameraOptions) -> bool:
    """One picture a period; true when the viewer left before the last."""
    period_ns = round(_NS / options.rate_hz)
    start_ns = time.monotonic_ns()
    for n in range(options.frames):
        early_ns = start_ns + n * period_ns - time.monotonic_ns()
        if viewer_left(within_s=max(early_ns, 0) / _NS):
            return True
        # The picture is drawn where its readers will find it: no copy at all.
        with out.claim((HEIGHT, WIDTH), "uint8") as slot:
            draw(slot.seq, slot.array, dead_from=options.dead_from)
    return False


def viewer_left(within_s: float | None) -> bool:
    """Sleeps; true at once when the viewer ends, however it ends: the standard input comes from it."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


def main() -> None:
    """Entry point of the process."""
    # Ctrl-C reaches the whole terminal; the viewer ends, and the camera with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(msgspec.json.decode(sys.argv[1], type=CameraOptions))
    except TensorPoolError as e:
        sys.stdout.write(f"{msgspec.json.encode(CameraFailure(e.message, e.hint)).decode()}\n")
        sys.exit(1)


def command(options: CameraOptions) -> list[str]:
    """The command line that starts a camera."""
    return [sys.executable, "-m", "tensor_pool.ops.demo.camera", json.dumps(msgspec.to_builtins(options))]


if __name__ == "__main__":
    main()
