"""`Pool.streams`: what is there, and on request what was."""

from __future__ import annotations

import numpy as np
import pytest

from tensor_pool.testing import Cluster, wait_until


@pytest.fixture(scope="module")
def cluster():
    with Cluster({"driver.idle_stream_timeout_ms": 200, "driver.announce_interval_ms": 100}) as cluster:
        yield cluster


def test_a_stream_from_its_name_to_its_end(cluster):
    with cluster.connect() as pool:

        def states() -> dict[str, str]:
            return {stream.name: stream.state for stream in pool.streams(ended=True)}

        inp = pool.consumer("camera")
        assert (states(), pool.streams()) == ({"camera": "named"}, [])
        out = pool.producer("camera", dtype="uint8", shape=(4,), slots=8)
        out.publish(np.zeros(4, "uint8"))
        assert inp.poll(timeout=5.0) is not None
        assert states() == {"camera": "live"}
        (stream,) = wait_until(lambda: [s for s in pool.streams() if s.activity_timestamp_ns is not None])
        assert stream.stream_id == out.stream_id
        out.close()
        wait_until(lambda: states() == {"camera": "waiting"}, what="a consumer without producer")
        assert [stream.name for stream in pool.streams()] == ["camera"]
        inp.close()
        wait_until(lambda: states() == {"camera": "ended"}, what="a name that keeps its id")
        assert pool.streams() == []
        (stream,) = pool.streams(ended=True)
        assert (stream.stream_id, stream.epoch, stream.region_bytes) == (out.stream_id, None, 0)
