"""Programs, drivers and their ends, as real processes."""

from __future__ import annotations

import numpy as np
import pytest

from pool_hosts import quick_host
from tensor_pool.testing import Cluster, wait_until


@pytest.fixture
def cluster():
    with quick_host() as cluster:
        yield cluster


def follow(cluster: Cluster, name: str = "camera-1"):
    """A program that prints the value of each frame it sees."""
    return cluster.run_python(
        f"""
        inp = pool.consumer({name!r})
        print("ready")
        for frame in inp:
            with frame as values:
                value = int(values[0])
            print(value, frame.info.seq, frame.info.epoch)
        """
    )


def test_frames_reach_another_process(cluster):
    with cluster.connect() as pool, pool.producer("camera-1", dtype="uint32", shape=(1000,)) as out:
        reader = follow(cluster)
        reader.read_line()
        for value in range(50):
            out.publish(np.full(1000, value, "uint32"))
            assert reader.read_line() == f"{value} {value} {out.epoch}"


def test_a_consumer_that_was_there_first_sees_the_first_frame(cluster):
    reader = follow(cluster)
    assert reader.read_line() == "ready"
    with cluster.connect() as pool, pool.producer("camera-1", dtype="uint32", shape=(4,)) as out:
        for value in range(5):
            out.publish(np.full(4, value, "uint32"))
        assert [reader.read_line().split()[0] for _ in range(5)] == list("01234")


def test_the_newest_frame_is_readable_at_once(cluster):
    with cluster.connect() as pool, pool.producer("camera-1", dtype="uint32", shape=(4,)) as out:
        for value in range(5):
            out.publish(np.full(4, value, "uint32"))
        for start, expected in [("latest", 4), ("oldest", 0), (2, 2)]:
            with pool.consumer("camera-1", start=start) as inp:
                assert inp.poll(timeout=5.0).copy()[0] == expected


def test_a_killed_producer_makes_room_for_the_next_and_consumers_follow(cluster):
    producer = cluster.run_python(
        """
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        out.publish(np.full(4, 1, "uint32"))
        print(out.epoch)
        time.sleep(60)
        """
    )
    epoch = int(producer.read_line())
    with cluster.connect() as pool, pool.consumer("camera-1") as inp:
        assert inp.poll(timeout=5.0).copy()[0] == 1
        producer.kill()
        wait_until(lambda: inp.stats.epoch not in (None, epoch), 10.0, what="the dead epoch is left")
        with pool.producer("camera-1", dtype="uint32", shape=(4,)) as out:
            assert out.epoch > epoch
            out.publish(np.full(4, 2, "uint32"))
            frame = inp.poll(timeout=5.0)
            assert (frame.copy()[0], frame.info.epoch) == (2, out.epoch)


@pytest.mark.req("DRV-10-2", "DRV-10-3", "DRV-10-4", "DRV-4.12-9", "DRV-4.12-7")
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_everybody_goes_on_after_the_driver_was_restarted(cluster, how):
    with cluster.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1")
        out.publish(np.full(4, 1, "uint32"))
        assert inp.poll(timeout=5.0).copy()[0] == 1
        before = out.epoch
        getattr(cluster.driver, how)()
        wait_until(lambda: not inp.mapped and out.epoch is None, 10.0, what="the loss is noticed")
        assert inp.poll() is None
        cluster.start_driver()
        out.publish(np.full(4, 2, "uint32"))  # waits for the new lease
        assert out.epoch > before
        frame = inp.poll(timeout=5.0)
        assert (frame.copy()[0], frame.info.seq, frame.info.epoch) == (2, 0, out.epoch)
        assert out.stats.lease_losses == 1
        assert inp.stats.reconnects == 1
