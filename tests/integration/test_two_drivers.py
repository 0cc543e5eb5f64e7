"""Two drivers on one media driver: consumers find streams of both, and attach where the answer says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

import tensor_pool as tp
from bridges import free_endpoints
from pool_hosts import quick_host
from tensor_pool.config import Config
from tensor_pool.errors import NoStreamError, TensorPoolError
from tensor_pool.testing import Cluster, wait_until

SECOND = {
    "driver.instance_id": "second",
    "streams.control_stream_id": 1010,
    "driver.stream_id_range": "40000-49999",
}
"""What the second driver has for itself; all other streams are shared."""


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host() as cluster:
        second = cluster.start("driver", "run", *(f"--set={key}={value}" for key, value in SECOND.items()))
        second.read_line()
        yield cluster


@pytest.fixture
def there(host: Cluster) -> Iterator[tp.Pool]:
    """A client of the second driver."""
    with tp.connect(config=host.config.replace(SECOND)) as pool:
        yield pool


@pytest.fixture
def asking(host: Cluster) -> Config:
    """The first driver's configuration, with the second to ask besides."""
    provider = {"channel": host.config.streams.control_channel, "stream_id": 1010}
    return host.config.replace({"discovery.providers": [provider]})


@pytest.fixture
def here(asking: Config) -> Iterator[tp.Pool]:
    """A client of the first driver that asks both."""
    with tp.connect(config=asking) as pool:
        yield pool


def newest(inp: tp.Consumer, seq: int) -> tp.Frame | None:
    frame = inp.latest()
    return frame if frame is not None and frame.seq == seq else None


@pytest.mark.req("DSC-3-4", "DSC-5.2-8", "DSC-7-1", "DSC-7-2", "DSC-7-3", "DSC-5.2-9")
def test_a_consumer_attaches_at_the_driver_that_has_the_stream(
    here: tp.Pool, there: tp.Pool, asking: Config
) -> None:
    with there.producer("far", dtype="uint8", shape=(4,)) as out:
        (found,) = wait_until(lambda: tp.discover(name="far", config=asking))
        assert (found.driver_instance_id, found.driver_control_stream_id) == ("second", 1010)
        stale = msgspec.structs.replace(found, epoch=found.epoch + 1)
        for stream in ("far", found, stale):
            with here.consumer(stream, wait_s=10) as inp:
                seq = out.publish(np.arange(4, dtype="uint8"))
                frame = wait_until(lambda inp=inp, seq=seq: newest(inp, seq))
                assert frame.info.epoch == found.epoch
    assert all(stream.name != "far" or stream.epoch is None for stream in here.streams(ended=True))


@pytest.mark.req("DSC-3-2", "DSC-3-3", "DSC-7-7", "DSC-12-1")
def test_what_is_found_is_no_permission(here: tp.Pool, there: tp.Pool, asking: Config) -> None:
    with there.producer("gone", dtype="uint8", shape=(4,)):
        (found,) = wait_until(lambda: tp.discover(name="gone", config=asking))
    with pytest.raises(NoStreamError):
        here.consumer(found, wait_s=0.3)
    nowhere = msgspec.structs.replace(found, stream_id=50_000)
    with pytest.raises(TensorPoolError):
        here.consumer(nowhere, wait_s=0.3)


def test_a_stream_of_the_own_driver_comes_first(here: tp.Pool, there: tp.Pool) -> None:
    with (
        here.producer("twice", dtype="uint8", shape=(4,)) as own,
        there.producer("twice", dtype="uint8", shape=(4,)),
        here.consumer("twice", wait_s=10) as inp,
    ):
        seq = own.publish(np.arange(4, dtype="uint8"))
        assert wait_until(lambda: newest(inp, seq)).info.epoch == own.stats.epoch


def test_a_dead_registry_does_not_delay_who_wants_a_stream_of_the_own_driver(host: Cluster) -> None:
    dead = [{"channel": f"aeron:udp?endpoint={endpoint}"} for endpoint in free_endpoints(1)]
    with (
        tp.connect(config=host.config.replace({"discovery.providers": dead})) as pool,
        pool.producer("local", dtype="uint8", shape=(4,)),
    ):
        wait_until(lambda: tp.discover(name="local", config=host.config))
        took_s = []
        for _ in range(3):
            began = time.monotonic()
            pool.consumer("local").close()
            took_s.append(time.monotonic() - began)
        assert min(took_s) < 0.8, "the wait for a registry is a second"


def test_streams_are_found_in_one_order(here: tp.Pool, there: tp.Pool, asking: Config) -> None:
    with contextlib.ExitStack() as producers:
        for number in range(3):
            for pool in (there, here):
                producers.enter_context(pool.producer(f"in-order-{number}", dtype="uint8", shape=(4,)))

        def found() -> list[tuple[str, str, int]]:
            streams = [each for each in tp.discover(config=asking) if each.name.startswith("in-order")]
            return [(each.host, each.driver_instance_id, each.stream_id) for each in streams]

        order = wait_until(lambda: each if len(each := found()) == 6 else None)
        assert order == sorted(order)


@pytest.mark.req("DSC-9-2")
def test_a_stream_of_another_host_needs_a_bridge(here: tp.Pool, asking: Config) -> None:
    with here.producer("near", dtype="uint8", shape=(4,)):
        (found,) = wait_until(lambda: tp.discover(name="near", config=asking))
        elsewhere = msgspec.structs.replace(found, tags=("host:lab-9",))
        with pytest.raises(NoStreamError, match="lab-9") as raised:
            here.consumer(elsewhere)
        assert "bridge" in str(raised.value)
