"""Bridges over bad links: frames arrive whole or not at all, and nothing stale after a partition."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, free_endpoints, is_ready
from pool_hosts import QUICK, quick_host
from tensor_pool.closing import Closing
from tensor_pool.config import load_config
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, LinkConditions, Relay, wait_until

WORDS = 5_000
"""Numbers of 64 bits in a frame: 40,000 bytes, some thirty datagrams."""
GROUP = "224.0.1.79"
SHORT_PARTITION_S, LONG_PARTITION_S = 3.0, 30.0
STALE_S = 1.0
"""A frame that is older than this when it comes was kept somewhere through the partition."""


def end_of_link(host: Cluster, role: str, payload: str, control: str) -> BridgeService:
    """One end of a bridge with one mapping."""
    settings = {
        "bridge.instance_id": role,
        "bridge.role": role,
        "bridge.payload_channel": f"aeron:udp?endpoint={payload}",
        "bridge.control_channel": f"aeron:udp?endpoint={control}",
        "bridge.forward_metadata": False,
        "bridge.mappings": [{"source_stream_id": SOURCE, "dest_stream_id": DEST}],
    }
    return BridgeService(load_config(overrides={**host.settings, **settings}, environ={}, search=False))


class Link(Closing):
    """Both ends of a bridge on two hosts, with a relay between them for each channel."""

    def __init__(self, left: Cluster, right: Cluster) -> None:
        targets = free_endpoints(2)
        self.relays = [Relay(target) for target in targets]
        self.receiver = end_of_link(right, "receiver", *targets)
        self.sender = end_of_link(left, "sender", *(relay.address for relay in self.relays))

    def set_conditions(self, conditions: LinkConditions) -> None:
        for relay in self.relays:
            relay.conditions = conditions

    def partition(self) -> None:
        for relay in self.relays:
            relay.partition()

    def heal(self) -> None:
        for relay in self.relays:
            relay.heal()

    def close(self) -> None:
        for each in (self.sender, self.receiver, *self.relays):
            each.close()


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Cluster, Cluster]]:
    with quick_host() as left, quick_host() as right:
        yield left, right


@pytest.fixture
def link(hosts: tuple[Cluster, Cluster]) -> Iterator[Link]:
    with Link(*hosts) as made:
        yield made


@pytest.fixture
def ends(hosts: tuple[Cluster, Cluster], link: Link) -> Iterator[tuple[tp.Producer, tp.Consumer]]:
    """A camera on one host, and who looks at it on the other."""
    left, right = hosts
    with (
        left.connect() as here,
        right.connect() as there,
        here.producer(SOURCE, dtype="uint64", shape=(WORDS,), slots=64) as out,
        there.consumer(DEST) as inp,
    ):
        wait_until(lambda: is_ready(link.receiver), timeout_s=20)
        wait_until(lambda: publish(out) >= 0 and take(inp, 0.2) is not None, timeout_s=20)
        while take(inp, 0.3) is not None:
            pass
        yield out, inp


def publish(out: tp.Producer) -> int:
    """A frame that says on each of its words when it was taken, and where it lies."""
    words = np.arange(WORDS, dtype=np.uint64)
    return out.publish(words + np.uint64(time.monotonic_ns()))


def take(inp: tp.Consumer, timeout_s: float) -> tuple[int, int] | None:
    """The number of the next frame, which is whole, and when it was taken."""
    frame = inp.poll(timeout=timeout_s)
    if frame is None:
        return None
    values = frame.copy()
    assert (values == values[0] + np.arange(WORDS, dtype=np.uint64)).all(), f"frame {frame.seq} is not whole"
    return frame.seq, int(values[0])


BAD_LINKS = {
    "reordered": LinkConditions(delay_ms=20, jitter_ms=30),
    "duplicated": LinkConditions(delay_ms=50, duplicates=0.3),
    "everything": LinkConditions(delay_ms=20, jitter_ms=30, duplicates=0.2, loss=0.01),
}


@pytest.mark.parametrize("conditions", BAD_LINKS.values(), ids=BAD_LINKS)
def test_frames_arrive_whole_over_a_bad_link(
    link: Link, ends: tuple[tp.Producer, tp.Consumer], conditions: LinkConditions
) -> None:
    out, inp = ends
    link.set_conditions(conditions)
    sent, came = [], []
    for _ in range(30):
        sent.append(publish(out))
        while (one := take(inp, 0.05)) is not None:
            came.append(one[0])
    wait_until(lambda: (one := take(inp, 0.5)) is None or came.append(one[0]))
    assert came == sorted(set(came)), "each frame once, in order"
    assert set(came) <= set(sent)
    assert len(came) >= 27, f"Aeron repairs: {link.sender.stats} {link.receiver.stats[0].received}"
    counts = link.relays[0].counts
    assert counts.overtaken > 0 or not conditions.jitter_ms
    assert counts.duplicated > 0 or not conditions.duplicates
    lost = link.receiver.stats[0].received.frames_lost
    assert set(lost) <= {"timed_out", "incomplete"}


@pytest.mark.parametrize(
    ("partition_s", "pause_s"),
    [
        pytest.param(SHORT_PARTITION_S, 0.02, id="fast"),
        pytest.param(SHORT_PARTITION_S, 0.5, id="slow"),
        pytest.param(LONG_PARTITION_S, 0.1, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(180)]),
    ],
)
def test_nothing_stale_comes_after_a_partition(
    link: Link, ends: tuple[tp.Producer, tp.Consumer], partition_s: float, pause_s: float
) -> None:
    out, inp = ends
    link.partition()
    deadline = time.monotonic() + partition_s
    while time.monotonic() < deadline:
        publish(out)
        assert take(inp, pause_s) is None, "a frame through a partition"
    link.heal()

    def comes_again() -> bool:
        publish(out)
        one = take(inp, 0.05)
        assert one is None or time.monotonic_ns() - one[1] < STALE_S * 1e9, "a frame from before"
        return one is not None

    wait_until(comes_again, timeout_s=60)
    came = [seq for seq in (publish(out) for _ in range(20)) if take(inp, 1.0) is not None]
    assert len(came) >= 18
    wait_until(lambda: link.receiver.stats[0].received.in_flight == 0)
    assert link.receiver.stats[0].received.error is None
    assert (link.sender.restarts, link.receiver.restarts) == (0, 0)


def reaches_itself(group: str) -> bool:
    """Whether what this host sends to a group over loopback comes back; some containers have none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(1.0)
        here = socket.inet_aton("127.0.0.1")
        try:
            one.bind(("", 0))
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + here)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            one.sendto(b"hello", (group, one.getsockname()[1]))
            return one.recv(100) == b"hello"
        except OSError:
            return False


@pytest.mark.skipif(not reaches_itself(GROUP), reason="no multicast over loopback")
@pytest.mark.req("BRG-3-2", "BRG-3-3")
def test_receivers_of_a_group_lose_for_themselves(hosts: tuple[Cluster, Cluster]) -> None:
    ports = [place.rpartition(":")[2] for place in free_endpoints(2)]
    group = [f"{GROUP}:{port}|interface=127.0.0.1" for port in ports]
    unrepaired = [f"{group[0]}|reliable=false", group[1]]
    left, good = hosts
    with (
        Cluster(QUICK, loss=0.02) as bad,
        end_of_link(good, "receiver", *group) as whole,
        end_of_link(bad, "receiver", *unrepaired) as holed,
        end_of_link(left, "sender", *group),
        left.connect() as here,
        good.connect() as there,
        bad.connect() as elsewhere,
        here.producer(SOURCE, dtype="uint64", shape=(WORDS,), slots=64) as out,
    ):
        consumers = there.consumer(DEST), elsewhere.consumer(DEST)
        wait_until(lambda: is_ready(whole) and is_ready(holed), timeout_s=20)
        wait_until(
            lambda: publish(out) >= 0 and None not in [take(inp, 0.1) for inp in consumers], timeout_s=20
        )
        sent: list[int] = []
        came: tuple[list[int], list[int]] = ([], [])

        def some_are_lost() -> bool:
            sent.append(publish(out))
            for inp, numbers in zip(consumers, came, strict=True):
                while (one := take(inp, 0.02)) is not None:
                    numbers.append(one[0])
            return len(sent) >= 50 and sum(holed.stats[0].received.frames_lost.values()) >= 5

        wait_until(some_are_lost, timeout_s=30)
        while (one := take(consumers[0], 0.5)) is not None:
            came[0].append(one[0])
        assert came[0][-len(sent) :] == sent, "all of them"
        assert came[1] == sorted(set(came[1]))
        assert set(sent) - set(came[1]), "some did not come there"
        assert set(sent) & set(came[1]), "others did"
        assert whole.stats[0].received.frames_lost == {}
