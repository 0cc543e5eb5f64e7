"""Large metadata: whole or not at all, also for those who join late."""

from __future__ import annotations

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import Cluster, wait_until


@pytest.mark.req("WIRE-10.3.3-1", "WIRE-10.3.3-2", "WIRE-10.3.3-3")
def test_blobs_reach_consumers_that_are_there_and_those_who_come_later():
    table = np.random.default_rng(3).integers(0, 255, 1_000_000, dtype="uint8").tobytes()
    with Cluster({"client.hello_interval_ms": 100}) as cluster, cluster.connect() as pool:
        out = pool.producer("calibrated", dtype="uint8", shape=(4,), slots=8)
        early = pool.consumer("calibrated")
        out.send_blob(1, table)
        out.send_blob(2, b"mask")
        wait_until(lambda: set(early.blobs) == {1, 2})
        assert (early.blobs[1].data == table, early.blobs[2].data) == (True, b"mask")
        late = cluster.run_python(
            """
            inp = pool.consumer("calibrated", wait_s=10)
            while set(inp.blobs) != {1, 2}:
                time.sleep(0.01)
            print(len(inp.blobs[1].data), inp.blobs[2].data.decode())
            """
        )
        assert late.read_line() == "1000000 mask"
        out.send_blob(2, b"another mask")
        wait_until(lambda: early.blobs[2].data == b"another mask")
        assert early.blobs[1].data == table


def test_too_much_is_refused_and_what_was_there_stays():
    with (
        tp.connect(embedded=True) as pool,
        pool.producer("calibrated", dtype="uint8", shape=(4,), slots=8) as out,
    ):
        inp = pool.consumer("calibrated")
        out.send_blob(1, b"small")
        wait_until(lambda: 1 in inp.blobs)
        with pytest.raises(tp.MalformedMessageError, match="in all"):
            out.send_blob(2, bytes(64 << 20))
        with pytest.raises(tp.ConfigError, match="blob_type=4294967296"):
            out.send_blob(2**32, b"")
        assert inp.blobs[1].data == b"small"
