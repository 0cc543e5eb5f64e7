"""One stream to several hosts, each over channels of its own; and no more frames than a mapping may send."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, free_endpoints, has_receivers, is_ready
from tensor_pool.bridging.counting import read_bridges
from tensor_pool.testing import wait_until


@pytest.fixture
def elsewhere() -> dict[str, str]:
    """The channels of a second host."""
    names = ("payload_channel", "control_channel", "metadata_channel")
    found = zip(names, free_endpoints(3), strict=True)
    return {name: f"aeron:udp?endpoint={endpoint}" for name, endpoint in found}


@pytest.fixture
def mappings(elsewhere: dict[str, str]) -> list[dict[str, Any]]:
    return [{"source_stream_id": SOURCE}, {"source_stream_id": SOURCE, **elsewhere}]


@pytest.mark.req("BRG-7.2-1")
def test_each_host_hears_of_the_stream_and_gets_its_frames(
    pool: tp.Pool, bridge: Callable, mappings: list[dict[str, Any]]
) -> None:
    here = bridge(role="sender", mappings=mappings)
    destinations = (DEST, DEST + 1)
    receivers = [
        bridge(role="receiver", mappings=[{**mapping, "dest_stream_id": dest}])
        for mapping, dest in zip(mappings, destinations, strict=True)
    ]
    with pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16, metadata={"gain": 7}) as out:
        wait_until(lambda: all(map(is_ready, receivers)) and has_receivers(here))
        consumers = [pool.consumer(dest) for dest in destinations]
        seq = out.publish(np.zeros(9, np.uint8))
        for inp in consumers:
            frame = inp.poll(timeout=5.0)
            assert frame is not None
            assert frame.seq == seq
            wait_until(lambda inp=inp: dict(inp.metadata).get("gain") == 7)


def test_the_numbers_of_each_mapping_are_shown_apart(
    pool: tp.Pool, bridge: Callable, mappings: list[dict[str, Any]]
) -> None:
    here = bridge(role="sender", mappings=mappings)
    there = bridge(role="receiver", mappings=[{"source_stream_id": SOURCE, "name": "there"}])
    wait_until(lambda: len(read_bridges(pool.aeron_dir)) == 3)
    with pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16) as out:
        wait_until(lambda: is_ready(there) and has_receivers(here, mappings=1))
        for _ in range(5):
            out.publish(np.zeros(9, np.uint8))

        def shown() -> list[tuple[str, int, int]]:
            return [(each.side, each.dest_stream_id, each.frames) for each in read_bridges(pool.aeron_dir)]

        dest = there.stats[0].dest_stream_id
        assert dest, "the driver gave it an id"
        expected = [("send", 0, 5), ("send", 0, 0), ("receive", dest, 5)]
        assert wait_until(lambda: shown() == expected or None), "nothing is left of the time without an id"


def test_a_rate_that_is_no_whole_number_is_kept(pool: tp.Pool, bridge: Callable) -> None:
    running = bridge(mappings=[{"source_stream_id": SOURCE, "dest_stream_id": DEST, "max_rate_hz": 0.4}])
    with pool.producer(SOURCE, dtype="uint8", shape=(9,), slots=16) as out:
        wait_until(lambda: is_ready(running))
        end = time.monotonic() + 1.6
        while time.monotonic() < end:
            out.publish(np.zeros(9, np.uint8))
            time.sleep(0.01)
        assert running.stats[0].sent.frames == 1


@pytest.mark.req("BRG-4-6")
def test_ids_of_a_range_go_by_the_order_of_mappings(pool: tp.Pool, bridge: Callable) -> None:
    running = bridge(
        mappings=[{"source_stream_id": SOURCE}, {"source_stream_id": SOURCE + 1}],
        dest_stream_id_range="50300-50309",
    )
    for source in (SOURCE + 1, SOURCE):  # the second is there first
        with pool.producer(source, dtype="uint8", shape=(9,), slots=16):
            wait_until(lambda: any(each.received and each.received.epoch for each in running.stats))
    found = {each.source_stream_id: each.dest_stream_id for each in running.stats if each.received}
    assert found == {SOURCE: 50_300, SOURCE + 1: 50_301}
