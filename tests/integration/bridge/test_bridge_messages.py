"""What a bridge tells beside frames: reports, progress, and nothing that would lead consumers astray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, follows
from pool_hosts import Ear
from tensor_pool import wire
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient, AeronPublication
from tensor_pool.wire.messages import FrameProgress, FrameProgressState, QosProducer, ShmPoolAnnounce

CONTROL_AT_SOURCE, CONTROL_AT_DEST = 1510, 1511


@pytest.fixture
def control(pool: tp.Pool, settings: dict[str, Any]) -> Iterator[AeronPublication]:
    """The control stream of the source: what is said here is forwarded."""
    settings["bridge.mappings"][0] |= {
        "source_control_stream_id": CONTROL_AT_SOURCE,
        "dest_control_stream_id": CONTROL_AT_DEST,
    }
    with AeronClient.connect(pool.aeron_dir) as client:
        yield client.add_publication("aeron:ipc", CONTROL_AT_SOURCE)


@pytest.fixture
def heard(pool: tp.Pool) -> Iterator[Callable[[], list[wire.Message]]]:
    """What was told on the control stream of the destination so far."""
    messages: list[wire.Message] = []
    with AeronClient.connect(pool.aeron_dir) as client:
        subscription = client.add_subscription("aeron:ipc", CONTROL_AT_DEST)

        def take() -> list[wire.Message]:
            messages.extend(wire.decode(data) for data in subscription.receive())
            return messages

        yield take


@pytest.mark.req("BRG-9-1", "BRG-9-2")
def test_reports_are_told_under_the_local_stream_and_epoch(pool, bridge, control, heard) -> None:
    with pool.producer(SOURCE, dtype="uint8", shape=(4,), slots=16) as out:
        running = bridge(forward_qos=True)
        wait_until(lambda: follows(running, out))
        report = QosProducer(stream_id=SOURCE, producer_id=7, epoch=out.epoch, current_seq=41, watermark=None)
        local = msgspec.structs.replace(report, stream_id=DEST, epoch=running.stats[-1].received.epoch)
        wait_until(lambda: control.offer(wire.encode(report)) and local in heard())
        # The producer's own is told elsewhere, at streams.qos_stream_id.
        wait_until(lambda: any(isinstance(each, QosProducer) and each.producer_id != 7 for each in heard()))
        told = [each for each in heard() if isinstance(each, QosProducer)]
        assert {(each.stream_id, each.epoch) for each in told} == {(DEST, local.epoch)}


def test_reports_stay_at_home_without_being_asked_for(pool, bridge, control, heard) -> None:
    with pool.producer(SOURCE, dtype="uint8", shape=(4,), slots=16) as out:
        running = bridge(forward_progress=True)
        wait_until(lambda: follows(running, out))
        report = QosProducer(stream_id=SOURCE, producer_id=7, epoch=out.epoch, current_seq=41, watermark=None)
        for _ in range(20):
            control.offer(wire.encode(report))
        inp = pool.consumer(DEST)
        out.publish(np.zeros(4, np.uint8))
        assert inp.poll(timeout=5.0) is not None
        assert heard() == []


@pytest.mark.req("BRG-9-11")
def test_progress_of_a_frame_that_is_not_being_put_together_is_dropped(pool, bridge, control, heard) -> None:
    with pool.producer(SOURCE, dtype="uint8", shape=(4,), slots=16) as out:
        running = bridge(forward_progress=True)
        wait_until(lambda: follows(running, out))
        progress = FrameProgress(
            stream_id=SOURCE,
            epoch=out.epoch,
            seq=99,
            payload_bytes_filled=3,
            state=FrameProgressState.PROGRESS,
        )
        for _ in range(20):
            control.offer(wire.encode(progress))
        inp = pool.consumer(DEST)
        out.publish(np.zeros(4, np.uint8))
        assert inp.poll(timeout=5.0) is not None
        assert heard() == []


@pytest.mark.req("BRG-7.2-3")
def test_announces_of_the_source_are_not_told_again(pool, host: Cluster, bridge) -> None:
    with pool.producer(SOURCE, dtype="uint8", shape=(4,), slots=16) as out, Ear(host) as ear:
        running = bridge()
        wait_until(lambda: follows(running, out))
        ear.await_one(ShmPoolAnnounce, stream_id=DEST, epoch=running.stats[-1].received.epoch)
        of_source = ear.await_one(ShmPoolAnnounce, stream_id=SOURCE, epoch=out.epoch)
        told_here = ear.all_of(ShmPoolAnnounce, stream_id=DEST)
        assert of_source.producer_id not in {each.producer_id for each in told_here}
        assert out.epoch not in {each.epoch for each in told_here}


def test_garbage_on_the_control_channel_is_passed_over(pool, bridge, settings) -> None:
    with pool.producer(SOURCE, dtype="uint8", shape=(4,), slots=16) as out:
        running = bridge()
        wait_until(lambda: follows(running, out))
        with AeronClient.connect(pool.aeron_dir) as client:
            publication = client.add_publication(settings["bridge.control_channel"], 3001)
            assert publication.wait_connected(5_000)
            for length in range(1, 200):
                publication.offer(bytes(range(256))[:length])
        inp = pool.consumer(DEST)
        out.publish(np.zeros(4, np.uint8))
        assert inp.poll(timeout=5.0) is not None
