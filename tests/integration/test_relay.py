"""Aeron over a bad link: everything arrives once and in order, and a partition stops it until it heals."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tensor_pool.testing import LinkConditions, Relay, free_udp_endpoint, wait_until
from tensor_pool.transport import AeronClient, AeronPublication, AeronSubscription, EmbeddedMediaDriver

STREAM = 7
MESSAGES = 2_000


class Link:
    """A publication and a subscription with a relay between them."""

    def __init__(self, client: AeronClient, relay: Relay) -> None:
        self.relay = relay
        self.subscription: AeronSubscription = client.add_subscription(
            f"aeron:udp?endpoint={relay.target}", STREAM
        )
        self.publication: AeronPublication = client.add_publication(
            f"aeron:udp?endpoint={relay.address}|term-length=256k", STREAM
        )
        assert self.publication.wait_connected(10_000)

    def send(self, messages: list[bytes], *, expected: int | None = None) -> list[bytes]:
        """Sends messages as fast as they are taken; what arrived, once there are as many as expected."""
        goal = len(messages) if expected is None else expected
        received: list[bytes] = []
        waiting = list(reversed(messages))

        def all_there() -> bool:
            while waiting and self.publication.offer(waiting[-1]):
                waiting.pop()
            received.extend(self.subscription.receive(200))
            return len(received) >= goal

        wait_until(all_there, 20, what="all messages")
        return received


@pytest.fixture
def client() -> Iterator[AeronClient]:
    with (
        EmbeddedMediaDriver.temporary() as driver,
        AeronClient.connect(driver.aeron_dir) as connected,
    ):
        yield connected


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay(free_udp_endpoint()) as made:
        yield made


@pytest.fixture
def link(client: AeronClient, relay: Relay) -> Link:
    return Link(client, relay)


def numbered(count: int = MESSAGES) -> list[bytes]:
    return [number.to_bytes(4, "little") * 256 for number in range(count)]


def test_a_good_link_passes_everything(link: Link) -> None:
    assert link.send(numbered()) == numbered()
    counts = link.relay.counts
    assert (counts.lost, counts.duplicated, counts.overtaken, counts.partitioned) == (0, 0, 0, 0)
    assert counts.forwarded > MESSAGES / 2  # more than one fits into a datagram


def test_what_is_lost_is_sent_again(link: Link) -> None:
    link.relay.conditions = LinkConditions(loss=0.05)

    assert link.send(numbered()) == numbered()
    counts = link.relay.counts
    assert 0.02 < counts.lost / counts.received < 0.1


def test_duplicates_and_another_order_do_no_harm(link: Link) -> None:
    link.relay.conditions = LinkConditions(jitter_ms=2, duplicates=0.2)

    assert link.send(numbered()) == numbered()
    assert link.relay.counts.duplicated > MESSAGES / 20
    assert link.relay.counts.overtaken > MESSAGES / 20
    # Nothing is left over that could arrive a second time.
    wait_until(lambda: link.relay.held == 0, what="the last datagram")
    assert link.send([b"the next"]) == [b"the next"]


def test_a_delay_is_kept(link: Link) -> None:
    link.relay.conditions = LinkConditions(delay_ms=80)
    started = time.monotonic()

    assert link.send([b"hello"]) == [b"hello"]
    assert time.monotonic() - started >= 0.08


def test_a_partition_stops_everything_until_it_heals(link: Link) -> None:
    assert link.send([b"before"]) == [b"before"]

    link.relay.partition()
    before = link.relay.counts
    assert link.publication.offer(b"meanwhile")
    wait_until(lambda: link.relay.counts.partitioned > before.partitioned + 5, what="dropped datagrams")
    assert link.relay.counts.forwarded == before.forwarded
    assert link.subscription.receive() == []

    link.relay.heal()
    assert link.send([b"after"], expected=2) == [b"meanwhile", b"after"]


def test_without_answers_a_publication_is_held_up_and_then_goes_on(link: Link) -> None:
    """Only the direction home is cut: what was sent before the window closed arrives, the rest later."""
    link.relay.partition(there=False)
    messages = numbered()
    waiting = list(reversed(messages))
    received: list[bytes] = []

    def held_up() -> bool:
        while waiting and link.publication.offer(waiting[-1]):
            waiting.pop()
        received.extend(link.subscription.receive(200))
        return link.publication.counts.back_pressured > 100

    wait_until(held_up, what="back-pressure")
    assert waiting

    link.relay.heal()
    received += link.send(list(reversed(waiting)), expected=MESSAGES - len(received))
    assert received == messages
