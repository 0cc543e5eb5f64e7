"""A camera of its own process, for benchmarks: frames at an even rate, whoever listens."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

import tensor_pool as tp
from tensor_pool.config import load_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.synchronize import Event

STREAM: Final = "bench"
_NS: Final = 1_000_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the camera does."""

    settings: dict[str, Any]
    """Where the pool is."""
    rate_hz: float
    size: int
    """Bytes of a frame."""
    slots: int


def take_pictures(plan: Plan, go: Event, stop: Event) -> None:
    """Publishes from `go` until `stop`; a frame that is late is taken at once, none is left out."""
    config = load_config(overrides=plan.settings, environ={}, search=False)
    picture = np.random.default_rng(1).integers(0, 256, plan.size, np.uint8)
    with (
        tp.connect(config=config) as pool,
        pool.producer(STREAM, dtype="uint8", shape=(plan.size,), slots=plan.slots) as out,
    ):
        go.wait()
        start_ns, n = time.monotonic_ns(), 0
        while not stop.wait(max(0, start_ns + n * _NS / plan.rate_hz - time.monotonic_ns()) / _NS):
            out.publish(picture)
            n += 1


@contextlib.contextmanager
def steady_camera(plan: Plan) -> Iterator[Event]:
    """Runs a camera; it takes pictures once the event is set."""
    context = multiprocessing.get_context("spawn")
    go, stop = context.Event(), context.Event()
    process = context.Process(target=take_pictures, args=(plan, go, stop))
    process.start()
    try:
        yield go
    finally:
        go.set()
        stop.set()
        process.join()
