"""Messages that are said again and again."""

import msgspec
import pytest

from tensor_pool.wire import Router, decode, encode
from tensor_pool.wire import messages as m
from tensor_pool.wire.bind import Message
from tensor_pool.wire.repeats import Repeats, with_time

ANNOUNCE = m.ShmPoolAnnounce(
    stream_id=10000, producer_id=7, epoch=5, announce_timestamp_ns=1,
    announce_clock_domain=m.ClockDomain.MONOTONIC, layout_version=1, header_nslots=8, header_slot_bytes=256,
    payload_pools=(m.PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),),
    header_region_uri="shm:file?path=/dev/shm/header.ring",
)  # fmt: skip
SOURCE = m.DataSourceAnnounce(stream_id=10000, producer_id=7, epoch=5, meta_version=1, name="camera")
META = m.DataSourceMeta(10000, 1, 3, (m.MetaAttribute("tags", "text/plain", b"lab"),))


def later(message: Message) -> bytes:
    """The same, said at another time if it has one."""
    data = encode(message)
    return data if message is SOURCE else with_time(data, type(message), 2**63 + 12345)


@pytest.fixture
def repeats() -> Repeats:
    kept = Repeats(m.ShmPoolAnnounce, m.DataSourceAnnounce, m.DataSourceMeta, most=3)
    for message in (ANNOUNCE, SOURCE, META):
        kept.keep(encode(message), message)
    return kept


@pytest.mark.parametrize("message", [ANNOUNCE, SOURCE, META])
def test_only_the_time_may_differ(repeats: Repeats, message: Message) -> None:
    said = later(message)
    assert repeats.recall(said) is message
    changed = [said[:n] + bytes([said[n] ^ 1]) + said[n + 1 :] for n in range(len(said))]
    unnoticed = [n for n, other in enumerate(changed) if repeats.recall(other) is not None]
    assert len(unnoticed) == (0 if message is SOURCE else 8), "the bytes of the time"
    assert repeats.recall(said[:-1]) is None
    assert repeats.recall(said + b"\0") is None


@pytest.mark.parametrize("data", [b"", b"\0", encode(ANNOUNCE)[:11]])
def test_what_is_too_short_is_not_known(repeats: Repeats, data: bytes) -> None:
    assert repeats.recall(data) is None
    repeats.keep(data[:4], ANNOUNCE)
    assert repeats.recall(data[:4]) is None


def test_what_was_said_last_counts(repeats: Repeats) -> None:
    moved = msgspec.structs.replace(ANNOUNCE, epoch=6)
    repeats.keep(encode(moved), moved)
    assert repeats.recall(encode(ANNOUNCE)) is None
    assert repeats.recall(later(moved)) is moved


def test_memory_is_bounded(repeats: Repeats) -> None:
    other = msgspec.structs.replace(SOURCE, stream_id=10001)
    repeats.keep(encode(other), other)
    assert repeats.recall(encode(ANNOUNCE)) is None, "the oldest gave way"
    assert repeats.recall(encode(other)) is other
    large = msgspec.structs.replace(SOURCE, name="x" * 3_000)
    repeats.keep(encode(large), large)
    assert repeats.recall(encode(large)) is None
    descriptor = m.FrameDescriptor(stream_id=1, epoch=1, seq=1)
    repeats.keep(encode(descriptor), descriptor)
    assert repeats.recall(encode(descriptor)) is None, "not one that repeats"


def test_a_router_hands_over_the_same_object_again() -> None:
    router, taken = Router(repeats=Repeats(m.ShmPoolAnnounce, most=10)), []
    router.on(m.ShmPoolAnnounce, taken.append)
    for data in (encode(ANNOUNCE), later(ANNOUNCE), encode(msgspec.structs.replace(ANNOUNCE, epoch=6))):
        router.dispatch(data)
    assert [message.epoch for message in taken] == [5, 5, 6]
    assert taken[0] is taken[1]
    assert router.counts.handled == 3
    router.dispatch(encode(ANNOUNCE)[:20])
    assert router.counts.malformed == 1


def test_another_time_is_all_that_changes() -> None:
    assert decode(later(ANNOUNCE)) == msgspec.structs.replace(ANNOUNCE, announce_timestamp_ns=2**63 + 12345)
