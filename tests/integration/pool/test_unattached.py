"""Deployments without a driver: consumers that follow announces have their turns too (decision D16)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import quick_host
from tensor_pool.host import driverless
from tensor_pool.testing import wait_until
from tensor_pool.transport import EmbeddedMediaDriver

SETTINGS = {"client.announce_freshness_ms": 1_500, "client.hello_interval_ms": 100}


@pytest.fixture
def pool(tmp_path):
    settings = {**SETTINGS, "shm.shm_base_dir": str(tmp_path)}
    with (
        EmbeddedMediaDriver.temporary() as media,
        tp.connect(media.aeron_dir, driver=False, settings=settings) as pool,
    ):
        yield pool


def produce(pool):
    out = pool.producer(10_000, dtype="uint8", shape=(4,), name="camera-1", attach=False)
    out.publish(np.arange(4, dtype="uint8"))
    return out


@pytest.mark.parametrize("stream", [10_000, "camera-1"])
def test_frames_are_read_by_id_and_by_name(pool, stream):
    produce(pool)
    inp = pool.consumer(stream, attach=False, wait_s=10.0)
    assert inp.poll(timeout=5.0).copy().tolist() == [0, 1, 2, 3]
    assert inp.stream_id == 10_000


def test_the_producer_hears_of_its_consumers(pool):
    out = produce(pool)
    pool.consumer(10_000, attach=False, wait_s=10.0)
    assert wait_until(lambda: out.stats.consumers) == 1


def test_a_second_producer_is_told_who_has_the_stream(pool):
    produce(pool)
    said = f"another producer of stream 10000 without a driver, process {os.getpid()}, serves"
    with pytest.raises(tp.RegionError, match=said) as caught:
        produce(pool)
    assert "one producer" in caught.value.hint
    assert "driver.instance_id" not in caught.value.hint


def test_nothing_is_left_of_a_stream_that_was_closed(tmp_path):
    settings = {**SETTINGS, "shm.shm_base_dir": str(tmp_path)}
    with (
        EmbeddedMediaDriver.temporary() as media,
        tp.connect(media.aeron_dir, driver=False, settings=settings) as pool,
    ):
        for _ in range(3):
            out = produce(pool)
            assert len(list(tmp_path.glob("tensorpool-*/*/10000/*/header.ring"))) == 1
            out.close()
            assert list(tmp_path.glob("tensorpool-*/*/*")) == []


def test_a_directory_that_goes_while_it_is_taken_is_made_again(pool, monkeypatch):
    """Who had the stream before removes it, between the two steps of who comes next."""
    real, tries = driverless.BaseDirLock, []

    def lock(directory, **words):
        tries.append(directory)
        if len(tries) == 1:
            directory.rmdir()
        return real(directory, **words)

    monkeypatch.setattr(driverless, "BaseDirLock", lock)
    assert produce(pool).epoch is not None
    assert len(tries) == 2


def test_memory_that_nobody_announces_is_let_go(pool, caplog):
    out = produce(pool)
    inp = pool.consumer(10_000, attach=False, wait_s=10.0)
    frame = inp.poll(timeout=5.0)
    out.close()
    wait_until(lambda: not inp.mapped, 10.0)
    assert not frame.still_valid()
    assert "is closed" not in caplog.text, "what was let go of is not asked how far it is"


@pytest.mark.parametrize("recreate", [True, False])
def test_a_driver_of_the_same_directory_leaves_the_stream_alone(recreate):
    settings = {"driver__recreate_on_start": recreate, "driver__cleanup_on_exit": True}
    with quick_host(driver=False, **settings) as host, host.connect(driver=False) as pool:
        out = produce(pool)

        def files():
            return sorted(Path(host.directory, "shm").glob("tensorpool-*/*/10000/**/*"))

        before = files()
        assert len(before) > 2
        driver = host.start_driver()
        with host.connect() as other:
            refused = "a producer without a driver publishes stream 10000"
            with pytest.raises(tp.AttachRefusedError, match=refused):
                other.producer(10_000, dtype="uint8", shape=(4,))
            assert other.producer(10_001, dtype="uint8", shape=(4,)).epoch is not None
        assert files() == before
        assert driver.terminate() == 0
        assert files() == before, "nor when it ends"
        with pytest.raises(tp.RegionError, match="another producer of stream 10000 without a driver"):
            produce(pool)
        inp = pool.consumer(10_000, attach=False, wait_s=10.0)
        assert out.publish(np.ones(4, "uint8")) == 1
        assert wait_until(lambda: inp.poll(timeout=1.0)).stream_id == 10_000


def test_who_has_said_that_there_is_no_driver_is_not_kept_waiting_for_one():
    with EmbeddedMediaDriver.temporary() as media, tp.connect(media.aeron_dir, driver=False) as pool:
        for ask in (
            lambda: pool.producer(10_000, max_bytes=64),
            lambda: pool.consumer(10_000),
            lambda: pool.consumer("camera-1"),
            pool.streams,
        ):
            begun = time.monotonic()
            with pytest.raises(tp.NoDriverError, match="driver=False") as caught:
                ask()
            assert "attach=False" in caught.value.hint
            assert time.monotonic() - begun < 3, "not the five seconds of client.attach_timeout_ms"


def test_a_driver_that_came_meanwhile_is_asked_all_the_same():
    with tp.connect(embedded=True) as host, tp.connect(host.aeron_dir, driver=False) as pool:
        assert pool.streams() == []
        assert pool.producer("late", max_bytes=64, slots=8).publish(b"1") == 0
