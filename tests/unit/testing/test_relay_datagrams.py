"""What a relay does with single datagrams; no Aeron."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.testing import LinkConditions, Relay, free_udp_endpoint, wait_until


class Peer:
    """A socket of a sender or a receiver."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(10)

    @property
    def endpoint(self) -> str:
        return "{}:{}".format(*self.socket.getsockname())

    def send(self, datagram: bytes, to: str) -> None:
        host, _, port = to.rpartition(":")
        self.socket.sendto(datagram, (host, int(port)))

    def take(self) -> tuple[bytes, str]:
        datagram, address = self.socket.recvfrom(65_535)
        return datagram, "{}:{}".format(*address)

    def take_all(self) -> list[bytes]:
        """What is there already."""
        taken = []
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                taken.append(self.take()[0])
        self.socket.settimeout(10)
        return taken


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.socket.close()


@pytest.fixture
def sender(peers: list[Peer]) -> Peer:
    peers.append(Peer())
    return peers[-1]


@pytest.fixture
def receiver(peers: list[Peer]) -> Peer:
    peers.append(Peer())
    return peers[-1]


def send_numbers(sender: Peer, relay: Relay, count: int) -> None:
    """Sends datagrams and waits until the relay has seen them."""
    seen = relay.counts.received
    for number in range(count):
        sender.send(number.to_bytes(2, "little"), relay.address)
        if number % 100 == 99:  # as many as surely fit into the socket
            wait_until(lambda until=seen + number: relay.counts.received >= until)
    wait_until(lambda: relay.counts.received == seen + count)


def test_datagrams_go_there_and_answers_come_back(sender: Peer, receiver: Peer) -> None:
    with Relay(receiver.endpoint) as relay:
        for datagram in (b"", b"question", bytes(65_000)):
            sender.send(datagram, relay.address)
            asked, back = receiver.take()
            receiver.send(asked[::-1], back)

            assert asked == datagram
            assert sender.take() == (datagram[::-1], relay.address)
        assert relay.counts.forwarded == 6


def test_each_sender_gets_its_own_answers(peers: list[Peer], receiver: Peer) -> None:
    senders = [Peer() for _ in range(70)]  # more than the relay remembers
    peers.extend(senders)
    with Relay(receiver.endpoint) as relay:
        backs = []
        for number, sender in enumerate(senders):
            sender.send(bytes([number]), relay.address)
            datagram, back = receiver.take()
            assert datagram == bytes([number])
            backs.append(back)
        assert len(set(backs)) == 70

        # The one who was silent longest was forgotten, and is welcome again.
        for number in (69, 6, 0):
            senders[number].send(b"again", relay.address)
            _, back = receiver.take()
            receiver.send(bytes([number]), back)
            assert senders[number].take() == (bytes([number]), relay.address)
            assert (back == backs[number]) == (number != 0)


def test_answers_of_strangers_are_refused(sender: Peer, receiver: Peer, peers: list[Peer]) -> None:
    peers.append(stranger := Peer())
    with Relay(receiver.endpoint) as relay:
        sender.send(b"question", relay.address)
        _, back = receiver.take()
        stranger.send(b"wrong", back)
        receiver.send(b"right", back)

        assert sender.take()[0] == b"right"
        assert relay.counts.refused == 1


def test_the_same_seed_loses_and_doubles_the_same(sender: Peer, receiver: Peer) -> None:
    bad = LinkConditions(loss=0.2, duplicates=0.2)

    def arrived(seed: int) -> list[bytes]:
        with Relay(receiver.endpoint, conditions=bad, seed=seed) as relay:
            send_numbers(sender, relay, 500)
            counts = relay.counts
            assert 50 < counts.lost < 150
            assert 50 < counts.duplicated < 150
            assert counts.forwarded == 500 - counts.lost + counts.duplicated
        return receiver.take_all()

    first = arrived(7)
    assert len(first) != len(set(first))
    assert arrived(7) == first
    assert arrived(8) != first


def test_jitter_changes_the_order_and_a_delay_alone_does_not(sender: Peer, receiver: Peer) -> None:
    with Relay(receiver.endpoint, conditions=LinkConditions(delay_ms=5)) as relay:
        for conditions, overtaken in ((relay.conditions, False), (LinkConditions(jitter_ms=20), True)):
            relay.conditions = conditions
            send_numbers(sender, relay, 100)
            arrived = [receiver.take()[0] for _ in range(100)]
            assert len(set(arrived)) == 100
            assert (arrived != sorted(arrived, key=lambda text: int.from_bytes(text, "little"))) == overtaken
            assert (relay.counts.overtaken > 0) == overtaken
        assert relay.held == 0


def test_nothing_comes_before_its_time(sender: Peer, receiver: Peer) -> None:
    with Relay(receiver.endpoint, conditions=LinkConditions(delay_ms=50)) as relay:
        started = time.monotonic()
        sender.send(b"hello", relay.address)
        receiver.take()
        assert time.monotonic() - started >= 0.05


def test_what_is_on_its_way_is_bounded(sender: Peer, receiver: Peer) -> None:
    slow = LinkConditions(delay_ms=60_000)
    with Relay(receiver.endpoint, conditions=slow, max_held=50) as relay:
        send_numbers(sender, relay, 80)
        assert relay.held == 50
        assert relay.counts.overflowed == 30


@pytest.mark.parametrize(("there", "home"), [(True, True), (True, False), (False, True)])
def test_a_partition_cuts_the_directions_that_it_should(
    sender: Peer, receiver: Peer, there: bool, home: bool
) -> None:
    with Relay(receiver.endpoint) as relay:
        sender.send(b"hello", relay.address)
        _, back = receiver.take()
        relay.partition(there=there, home=home)
        sender.send(b"lost", relay.address)
        receiver.send(b"lost too", back)
        wait_until(lambda: relay.counts.received == 3)
        assert relay.counts.partitioned == there + home
        assert receiver.take_all() == ([] if there else [b"lost"])
        assert sender.take_all() == ([] if home else [b"lost too"])

        relay.heal()
        sender.send(b"again", relay.address)
        assert receiver.take() == (b"again", back)


def test_a_partition_loses_what_is_on_its_way(sender: Peer, receiver: Peer) -> None:
    with Relay(receiver.endpoint, conditions=LinkConditions(delay_ms=200)) as relay:
        send_numbers(sender, relay, 3)
        relay.partition()
        relay.heal()
        assert relay.counts.partitioned == 3
        assert relay.held == 0

        relay.conditions = LinkConditions()
        sender.send(b"after", relay.address)
        assert receiver.take()[0] == b"after"


def test_it_ends_with_datagrams_on_their_way(sender: Peer, receiver: Peer) -> None:
    threads = threading.active_count()
    relay = Relay(receiver.endpoint, conditions=LinkConditions(delay_ms=60_000))
    send_numbers(sender, relay, 3)
    relay.close()
    relay.close()

    assert threading.active_count() == threads
    assert receiver.take_all() == []
    Relay(receiver.endpoint, listen=relay.address).close()  # its port is free again


def test_nobody_at_the_target_is_no_error(sender: Peer, receiver: Peer) -> None:
    with Relay(free_udp_endpoint()) as relay:
        send_numbers(sender, relay, 10)
        assert relay.counts.forwarded == 10


@pytest.mark.parametrize(
    "target", ["", "127.0.0.1", "somewhere:1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:0", "224.0.0.1:4"]
)
def test_a_target_that_is_none(target: str) -> None:
    with pytest.raises(ConfigError):
        Relay(target)


def test_a_bound_that_is_none() -> None:
    with pytest.raises(ConfigError, match="max_held=0"):
        Relay("127.0.0.1:40123", max_held=0)


def test_an_address_that_is_taken(receiver: Peer) -> None:
    with pytest.raises(ConfigError, match="Address already in use"):
        Relay("127.0.0.1:40123", listen=receiver.endpoint)


@pytest.mark.parametrize(
    "wrong", [{"loss": 1.1}, {"loss": -0.1}, {"duplicates": 2}, {"delay_ms": -1}, {"jitter_ms": float("nan")}]
)
def test_conditions_that_no_link_has(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LinkConditions(**wrong)
