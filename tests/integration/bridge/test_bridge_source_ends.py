"""A source that ends: its copy ends too, everybody is told, and it comes back when the source does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tensor_pool as tp
from bridges import DEST, SOURCE, follows
from false_sender import EPOCH, FalseSender, pieces
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until

Start = Callable[..., BridgeService]


def state_of(pool: tp.Pool, stream_id: int) -> str | None:
    """What the driver's list says of a stream."""
    return {each.stream_id: each.state for each in pool.streams(ended=True)}.get(stream_id)


def carries(out: tp.Producer, inp: tp.Consumer) -> bool:
    """Publishes a frame; whether the next one that comes is that one."""
    seq = out.publish(np.full(100, out.stats.frames % 251, np.uint8))
    frame = inp.poll(timeout=0.2)
    return frame is not None and frame.seq == seq


def errors(bridge: BridgeService) -> list[str | None]:
    return [mapping.error for mapping in bridge.stats]


def test_a_copy_ends_with_its_producer_and_returns_with_the_next(pool: tp.Pool, bridge: Start) -> None:
    running, inp = bridge(), pool.consumer(DEST)
    with pool.producer(SOURCE, dtype="uint8", shape=(100,)) as out:
        wait_until(lambda: follows(running, out))
        assert errors(running) == [None, None]
        wait_until(lambda: carries(out, inp))
        first = inp.stats.epoch
        assert state_of(pool, DEST) == "live"
    wait_until(lambda: state_of(pool, DEST) != "live")
    wait_until(lambda: all(errors(running)))
    assert errors(running) == [
        f"stream {SOURCE} has no producer any more",
        f"stream {SOURCE} has no producer at its source any more",
    ]
    with pool.producer(SOURCE, dtype="uint8", shape=(100,)) as out:
        wait_until(lambda: follows(running, out))
        wait_until(lambda: carries(out, inp))
        assert inp.stats.epoch > first
        wait_until(lambda: errors(running) == [None, None])
        assert state_of(pool, DEST) == "live"


def test_a_producer_that_is_replaced_at_once_does_not_end_the_copy(pool: tp.Pool, bridge: Start) -> None:
    running, inp = bridge(), pool.consumer(DEST)
    for _ in range(3):
        with pool.producer(SOURCE, dtype="uint8", shape=(100,)) as out:
            wait_until(lambda out=out: follows(running, out))
            wait_until(lambda out=out: carries(out, inp))
            assert errors(running) == [None, None]


def test_a_copy_ends_when_nothing_is_heard_any_more(
    host: Cluster, pool: tp.Pool, bridge: Start, settings: dict[str, Any]
) -> None:
    settings["bridge.role"] = "receiver"
    running, inp = bridge(), pool.consumer(DEST)
    with FalseSender(host.aeron_dir, settings) as sender:

        def came() -> int | None:
            sender.announce()
            sender.send(pieces(sender.take_seq()))
            frame = inp.poll(timeout=0.2)
            return None if frame is None else frame.seq + 1

        last = wait_until(came)
        first = inp.stats.epoch
        wait_until(lambda: "the source is silent" in (errors(running)[0] or ""))
        wait_until(lambda: state_of(pool, DEST) != "live")
        assert (running.stats[0].received.epoch, running.stats[0].received.stream_id) == (None, None)
        assert wait_until(came) > last, "the same epoch of the source goes on"
        assert sender.epoch == EPOCH
        assert inp.stats.epoch > first
        assert errors(running) == [None]


def test_frames_that_come_are_enough_to_be_heard(
    host: Cluster, pool: tp.Pool, bridge: Start, settings: dict[str, Any]
) -> None:
    settings["bridge.role"] = "receiver"
    running = bridge()
    with FalseSender(host.aeron_dir, settings) as sender:
        sender.announce()
        epoch = wait_until(lambda: running.stats[0].received.epoch)
        (lane,) = running._bridge._receivers
        announced_s = lane._life._alive_s

        def are_taken_as_life() -> bool:
            sender.send(pieces(sender.take_seq()))
            return (
                lane._life._alive_s > announced_s + 3 * host.settings["client.announce_freshness_ms"] / 1000
            )

        wait_until(are_taken_as_life)
        assert (running.stats[0].received.epoch, errors(running)) == (epoch, [None])


def test_a_sender_says_what_it_lacks(pool: tp.Pool, bridge: Start) -> None:
    running = bridge(role="sender")
    wait_until(lambda: f"there is no stream {SOURCE} here" in (errors(running)[0] or ""))
    with pool.producer(SOURCE, dtype="uint8", shape=(100,)):
        wait_until(
            lambda: (errors(running)[0] or "").startswith("not connected: nobody receives at aeron:udp")
        )
        bridge(role="receiver")
        wait_until(lambda: errors(running) == [None])
