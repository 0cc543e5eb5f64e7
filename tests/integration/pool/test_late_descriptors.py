"""A frame can be read before its descriptor has come: what only that tells is waited for, a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from foreign_driver import ForeignDriver
from pool_hosts import quick_host
from tensor_pool import _native
from tensor_pool.pool.consumer import Consumer
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import FrameDescriptor

TRIES = 5
"""The moment is short: a machine that is busy elsewhere may miss it, but not each time."""


@pytest.fixture
def host() -> Iterator[Cluster]:
    with quick_host(driver=False) as cluster:
        yield cluster


@pytest.fixture
def driver(host: Cluster) -> Iterator[ForeignDriver]:
    with ForeignDriver(host) as foreign:
        yield foreign


@pytest.fixture
def pool(host: Cluster, driver: ForeignDriver) -> Iterator[Pool]:
    with host.connect(driver=False) as connected:
        yield connected


def publish(driver: ForeignDriver, count: int) -> None:
    """Writes frames into the present ring, and sends no descriptors."""
    with _native.RingWriter(driver.address, base_dirs=[driver.base]) as writer:
        for value in range(count):
            writer.publish(np.full(4, value, "uint32"))


def next_epoch(driver: ForeignDriver, inp: Consumer) -> int:
    """Goes on in other files; their frames are the consumer's from the first one on."""
    epoch = driver.address.epoch + 1
    driver.new_epoch(epoch)
    wait_until(lambda: inp.stats.epoch == epoch, what="it is mapped")
    return epoch


def seconds_of_info(inp: Consumer) -> float:
    """How long a frame of which nothing was said takes to say so."""
    frame = inp.poll(timeout=5)
    asked = time.monotonic()
    assert frame.info.trace_id is None
    return time.monotonic() - asked


def test_one_that_comes_after_its_frame_was_read(driver: ForeignDriver, pool: Pool) -> None:
    inp, found = pool.consumer(driver.stream_id, wait_s=5), []
    for _ in range(TRIES):
        epoch = next_epoch(driver, inp)
        publish(driver, 1)
        frame = inp.poll(timeout=5)
        late = FrameDescriptor(stream_id=driver.stream_id, epoch=epoch, seq=0, trace_id=77)
        sender = threading.Timer(0.005, driver.ear.say, (late, "descriptor"))
        sender.start()
        found.append(frame.info.trace_id)
        sender.join()
    assert 77 in found, "each time it was asked for before it was sent"


def test_one_that_never_comes_is_waited_for_once(driver: ForeignDriver, pool: Pool) -> None:
    """Other producers may send none: their frames are as fast as any."""
    inp, further = pool.consumer(driver.stream_id, wait_s=5), []
    for _ in range(TRIES):
        next_epoch(driver, inp)
        publish(driver, 2)
        assert seconds_of_info(inp) > 0.05, "the first one might have come"
        further.append(seconds_of_info(inp))
    assert min(further) < 0.005


def test_one_from_before_anybody_listened_is_not_waited_for(driver: ForeignDriver, pool: Pool) -> None:
    took = []
    for _ in range(TRIES):
        driver.new_epoch(driver.address.epoch + 1)
        publish(driver, 1)
        with pool.consumer(driver.stream_id, wait_s=5) as inp:
            took.append(seconds_of_info(inp))
    assert min(took) < 0.005
