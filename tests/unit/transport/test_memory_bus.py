"""What the in-memory transport has beyond the contract: switches for what is hard to provoke."""

from __future__ import annotations

import pytest

from tensor_pool.errors import ClosedError, NoMediaDriverError
from tensor_pool.transport import OfferResult, retry_for
from tensor_pool.transport.memory import MemoryBus

IPC = "aeron:ipc"


def test_held_back_streams_meet_back_pressure_and_others_do_not() -> None:
    bus = MemoryBus()
    client = bus.client()
    held, free = client.add_publication(IPC, 1), client.add_publication(IPC, 2)
    for stream_id in (1, 2):
        client.add_subscription(IPC, stream_id)
    bus.hold_back(IPC, 1)
    assert held.offer(b"x") is OfferResult.BACK_PRESSURED
    assert free.offer(b"x")
    bus.hold_back(IPC, 1, on=False)
    assert held.offer(b"x")
    assert (held.counts.back_pressured, held.counts.dropped, held.counts.sent) == (1, 1, 1)


def test_a_disconnected_stream_loses_its_images_and_gets_new_ones() -> None:
    bus = MemoryBus()
    client = bus.client()
    publication, subscription = client.add_publication(IPC, 1), client.add_subscription(IPC, 1)
    first = subscription.images()
    bus.disconnect(IPC, 1)
    bus.disconnect(IPC, 1)
    assert not publication.connected
    assert not subscription.connected
    assert publication.offer(b"lost") is OfferResult.NOT_CONNECTED
    late = client.add_subscription(IPC, 1)
    assert late.images() == []
    bus.disconnect(IPC, 1, on=False)
    assert publication.offer(b"heard")
    assert subscription.receive() == late.receive() == [b"heard"]
    second = subscription.images()
    assert [image.session_id for image in first] == [image.session_id for image in second]
    assert second[0].join_time_ns >= first[0].join_time_ns
    assert [event.available for event in subscription.take_image_events()] == [True, False, True]


def test_a_window_bounds_what_is_unread() -> None:
    bus = MemoryBus(window_bytes=1000)
    client = bus.client()
    subscription, publication = client.add_subscription(IPC, 1), client.add_publication(IPC, 1)
    sent = sum(bool(publication.offer(bytes(100))) for _ in range(50))
    assert 1000 // 132 <= sent <= 1000 // 132 + 1
    assert len(subscription.receive(100)) == sent
    assert publication.offer(b"room again")


def test_streams_meet_by_medium_address_and_id_only() -> None:
    client = MemoryBus().client()
    subscription = client.add_subscription("aeron:udp?endpoint=127.0.0.1:1|term-length=64k", 1)
    near = client.add_publication("aeron:udp?endpoint=127.0.0.1:1", 1)
    for other in ("aeron:udp?endpoint=127.0.0.1:2", IPC):
        assert not client.add_publication(other, 1).connected
    assert not client.add_publication("aeron:udp?endpoint=127.0.0.1:1", 2).connected
    assert near.connected
    assert len(subscription.images()) == 1


def test_death_is_an_error_everywhere() -> None:
    bus = MemoryBus()
    client = bus.client()
    publication, subscription = client.add_publication(IPC, 1), client.add_subscription(IPC, 1)
    bus.kill()
    for call in (
        bus.client,
        client.check,
        subscription.receive,
        subscription.images,
        lambda: publication.offer(b"x"),
        lambda: publication.connected,
        lambda: client.add_publication(IPC, 1),
    ):
        with pytest.raises(NoMediaDriverError):
            call()
    assert client.closed
    client.close()
    with pytest.raises(ClosedError):
        client.check()


def test_a_policy_retries_until_the_bus_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus()
    client = bus.client()
    client.add_subscription(IPC, 1)
    publication = client.add_publication(IPC, 1, policy=retry_for(60_000))
    bus.hold_back(IPC, 1)
    monkeypatch.setattr("time.sleep", lambda _seconds: bus.hold_back(IPC, 1, on=False))
    assert publication.offer(b"x")
    assert publication.counts.back_pressured == 1
