"""A host without any shared memory driver: its consumers read what a bridge sends to it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from bridges import SOURCE, end_of_bridge
from pool_hosts import QUICK
from tensor_pool.testing import TwoHosts, wait_until
from tensor_pool.testing.network import Host

SIZE = 300_001
PORTS = (24_141, 24_142, 24_143)

pytestmark = pytest.mark.skipif(TwoHosts.why_not() is not None, reason=str(TwoHosts.why_not()))


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    with TwoHosts(QUICK, driver=False) as (left, right):
        left.start_driver()
        yield left, right


@pytest.fixture
def endpoints(hosts: tuple[Host, Host]) -> list[str]:
    return [f"{hosts[1].address}:{port}" for port in PORTS]


@pytest.fixture
def far_pool(hosts: tuple[Host, Host], endpoints: list[str]) -> Iterator[tp.Pool]:
    """On the right host: announces and metadata are heard where the bridge forwards them to."""
    payload, control, metadata = (f"aeron:udp?endpoint={endpoint}" for endpoint in endpoints)
    heard = {
        "client.fallback_uri": f"{payload}|mtu=8192",
        "streams.announce_channel": control,
        "streams.announce_stream_id": 3001,
        "streams.metadata_channel": metadata,
        "streams.metadata_stream_id": 3002,
    }
    with tp.connect(config=hosts[1].config.replace(heard), driver=False) as pool:
        yield pool


def carries(out: tp.Producer, inp: tp.Consumer) -> bool:
    """Publishes a frame; whether it came, whole."""
    seq = out.publish(np.full(SIZE, out.stats.frames % 251, np.uint8))
    while (frame := inp.poll(timeout=0.1)) is not None:
        assert (frame.copy() == frame.seq % 251).all()
        if frame.seq == seq:
            assert frame.epoch == out.epoch
            return True
    return False


@pytest.mark.req("WIRE-15.12-3", "WIRE-10.1.3-5")
def test_a_stream_is_read_on_a_host_without_driver_through_restarts(
    hosts: tuple[Host, Host], far_pool: tp.Pool, endpoints: list[str], tmp_path: Path
) -> None:
    left, _ = hosts
    file = tmp_path / "sender.toml"
    file.write_text(textwrap.dedent(end_of_bridge("sender", *endpoints)))
    start_sender = partial(left.start, "bridge", "run", "--config", str(file))
    produce = partial(tp.Pool.producer, stream=SOURCE, name="camera", dtype="uint8", shape=(SIZE,), slots=16)
    with left.connect() as pool:
        sender = start_sender()
        by_id = far_pool.consumer(SOURCE, shm=False, attach=False)
        by_name = far_pool.consumer("camera", shm=False, attach=False)
        with produce(pool, metadata={"gain": 7}) as out:
            for inp in (by_id, by_name):
                wait_until(partial(carries, out, inp), 20)
                wait_until(lambda inp=inp: dict(inp.metadata).get("gain") == 7)
                assert inp.stats.state == "fallback"
            sender.kill()
            sender = start_sender()
            wait_until(partial(carries, out, by_id), 20, what="frames of the next sender")
            first = by_id.stats.epoch
        with produce(pool) as out:
            wait_until(partial(carries, out, by_id), 20, what="frames of the next epoch")
            assert by_id.stats.epoch == out.epoch > first
        sender.close()
