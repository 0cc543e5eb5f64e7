"""A recording tells what the consumers of its streams lost while it was made."""

from __future__ import annotations

import numpy as np
import pytest

from pool_hosts import quick_host
from tensor_pool.pipeline.record import Recorder, Recording
from tensor_pool.pipeline.record import consumers as module
from tensor_pool.pipeline.record.catalogue import stream_directory
from tensor_pool.pipeline.record.consumers import load_consumers
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.uploader import Uploader
from tensor_pool.testing import wait_until

SLOTS = 16


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


def test_losses_of_a_slow_consumer_are_noted_and_follow_to_another_place(host, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SAVE_LOSSES_NS", 0)
    monkeypatch.setattr(module, "_SAVE_NS", 0)
    here, there = tmp_path / "here", tmp_path / "there"
    directory = stream_directory(here, "camera")

    def known():
        return {each.consumer_id: each for each in load_consumers(directory)}

    with (
        host.connect() as pool,
        host.connect() as other,
        pool.producer("camera", dtype="uint8", shape=(4,), slots=SLOTS) as out,
        Uploader(here, Place(there)) as uploader,
    ):
        slow, good = other.consumer("camera"), other.consumer("camera")
        with Recorder(pool, ["camera"], here) as recorder:
            wait_until(lambda: out.stats.consumers == 3)

            def publish(seq):
                out.publish(np.full(4, seq % 256, "uint8"))
                wait_until(lambda: recorder.progress["camera"].last_seq == seq)
                assert good.poll(timeout=5.0).seq == seq

            publish(0)
            assert slow.poll(timeout=5.0).seq == 0
            wait_until(
                lambda: len(known()) == 3 and all(each.last_seq_seen == 0 for each in known().values())
            )
            for seq in range(1, 101):
                publish(seq)
            while slow.poll() is not None:
                pass
            lost = slow.stats.drops_gap + slow.stats.drops_late
            assert lost >= 100 - SLOTS
            wait_until(lambda: all(each.last_seq_seen == 100 for each in known().values()))
        assert uploader.finish(timeout_s=30)
    found = Recording(there)["camera"].consumers()
    assert found == Recording(here)["camera"].consumers()
    by_id = {each.consumer_id: each for each in found}
    loser = by_id.pop(slow.session.consumer_id)
    assert (loser.drops_gap, loser.drops_late) == (slow.stats.drops_gap, slow.stats.drops_late)
    assert (loser.passed, loser.drops_before, loser.is_recorder) == (100, 0, False)
    assert loser.lost_share == lost / 100
    assert not by_id.pop(good.session.consumer_id).is_recorder
    (itself,) = by_id.values()
    assert itself.is_recorder
    assert {each.lost_share for each in found if each is not loser} == {0.0}
    assert all(each.first_seen_ns < each.last_seen_ns for each in found)


def test_a_recorder_that_is_killed_leaves_what_it_knew(host, tmp_path):
    with host.connect() as pool, pool.producer("killed", dtype="uint8", shape=(4,), slots=SLOTS) as out:
        recorder = host.run_python(
            "from tensor_pool.pipeline.record import Recorder\n"
            f"with Recorder(pool, ['killed'], {str(tmp_path)!r}):\n"
            "    print('ready')\n"
            "    time.sleep(600)"
        )
        recorder.read_line()
        wait_until(lambda: out.stats.consumers)
        out.publish(np.zeros(4, "uint8"))
        directory = stream_directory(tmp_path, "killed")
        (killed,) = wait_until(lambda: load_consumers(directory))
        assert killed.is_recorder
        recorder.kill()
        with Recorder(pool, ["killed"], tmp_path):
            wait_until(lambda: len(load_consumers(directory)) == 2)
        kept, following = load_consumers(directory)
        assert (kept.consumer_id, kept.first_seen_ns) == (killed.consumer_id, killed.first_seen_ns)
        assert following.is_recorder
        assert following.first_seen_ns > kept.last_seen_ns
