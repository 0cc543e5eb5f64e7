"""The tap's logic on a bus in memory: decoding, filters, what is not ours."""

import struct

import pytest

from tensor_pool import wire
from tensor_pool.config import StreamsSection
from tensor_pool.ops.cli.tap import _line, _short
from tensor_pool.ops.tap import SOURCES, Filter, Tap, Tapped, endpoints, known_types
from tensor_pool.runtime import FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import FrameDescriptor, ListStreams, QosProducer, StreamsListed

QOS = QosProducer(stream_id=10000, producer_id=2, epoch=3, current_seq=4)
DESCRIPTOR = FrameDescriptor(stream_id=20000, epoch=1, seq=9)


class Place:
    """A tap and somebody to listen to."""

    def __init__(self, only: Filter | None = None) -> None:
        self.bus = MemoryBus()
        self.tap = Tap(
            self.bus.client(),
            endpoints(StreamsSection(), SOURCES),
            only=only,
            clock=FakeClock(realtime_ns=1_700_000_000_123_456_789),
        )

    def send(self, *messages: wire.Message | bytes, stream_id: int = 1200) -> list[Tapped]:
        with self.bus.client() as client:
            publication = client.add_publication("aeron:ipc", stream_id)
            for message in messages:
                publication.offer(message if isinstance(message, bytes) else wire.encode(message))
            return self.tap.poll()


def test_each_stream_is_named_by_its_source() -> None:
    place = Place()

    assert [t.source for t in place.send(QOS)] == ["qos"]
    assert [t.source for t in place.send(DESCRIPTOR, stream_id=1100)] == ["descriptor"]
    assert place.send(DESCRIPTOR, stream_id=4711) == []


def test_a_message_is_decoded_as_the_wire_tools_do() -> None:
    (tapped,) = Place().send(QOS)

    assert tapped.message == "QosProducer"
    assert tapped.fields is not None
    assert tapped.fields["current_seq"] == 4
    assert tapped.header is not None
    assert (tapped.header["schema_id"], tapped.header["template_id"]) == (900, 6)
    assert tapped.bytes == len(wire.encode(QOS))
    assert tapped.realtime_ns == 1_700_000_000_123_456_789


def test_one_stream_for_everything_is_listened_to_once() -> None:
    shared = StreamsSection(announce_stream_id=1000, descriptor_stream_id=1000)
    places = endpoints(shared, ["control", "announce", "descriptor", "qos"])

    assert places == {("aeron:ipc", 1000): "control+announce+descriptor", ("aeron:ipc", 1200): "qos"}


def test_what_is_not_ours_is_counted_and_shown_by_its_header() -> None:
    place = Place()
    unknown, short, broken = place.send(
        struct.pack("<HHHH", 4, 1, 777, 1) + b"abcd", b"abc", wire.encode(QOS)[:-3]
    )

    assert (unknown.message, unknown.fields) == (None, None)
    assert unknown.header is not None
    assert unknown.header["schema_id"] == 777
    assert unknown.error == "schema 777 has no message 1"
    assert short.header is None
    assert short.error
    assert broken.error
    counts = place.tap.counts
    assert (counts.messages, counts.unknown, counts.malformed, counts.shown) == (3, 1, 2, 3)


@pytest.mark.parametrize(
    ("only", "shown"),
    [
        (Filter(), 4),
        (Filter(types=frozenset({"qosproducer"})), 1),
        (Filter(types=frozenset({"framedescriptor", "qosproducer"})), 2),
        (Filter(stream_ids=frozenset({20000})), 1),
        (Filter(frozenset({10000}), frozenset({"framedescriptor"})), 0),
        (Filter(stream_ids=frozenset({1})), 0),
    ],
)
def test_filters(only: Filter, shown: int) -> None:
    place = Place(only)
    request = ListStreams(correlation_id=1, client_id=2)
    found = place.send(QOS, DESCRIPTOR, request, b"not a message")

    assert len(found) == shown == place.tap.counts.shown
    assert place.tap.counts.messages == 4


def test_a_listing_is_about_the_streams_in_it() -> None:
    from tensor_pool.datatypes import Dtype, MajorOrder
    from tensor_pool.wire.messages import ResponseCode, StreamEntry

    entry = StreamEntry(
        epoch=1,
        current_seq=None,
        activity_timestamp_ns=None,
        max_frame_bytes=None,
        region_bytes=0,
        stream_id=10007,
        producer_id=None,
        consumer_count=0,
        nslots=None,
        rate_milli_hz=None,
        dims=(0,) * 8,
        dtype=Dtype.UNKNOWN,
        major_order=MajorOrder.UNKNOWN,
        ndims=0,
    )
    answer = StreamsListed(correlation_id=1, client_id=2, code=ResponseCode.OK, streams=(entry,))

    assert len(Place(Filter(frozenset({10007}))).send(answer, stream_id=1000)) == 1
    assert Place(Filter(frozenset({10008}))).send(answer, stream_id=1000) == []


def test_publications_that_go_are_counted() -> None:
    place = Place()
    place.send(QOS)
    place.tap.poll()

    assert place.tap.counts.lost_images == 1


def test_names_of_messages_whatever_their_case() -> None:
    assert known_types(["QOSproducer"], ["QosProducer"]) == {"qosproducer"}
    with pytest.raises(KeyError):
        known_types(["nothing"], ["QosProducer"])


class TestLines:
    def test_a_line_for_people(self) -> None:
        (tapped,) = Place().send(QOS)
        line = _line(tapped)

        assert line.startswith("22:13:20.123  qos         QosProducer  ")
        assert "current_seq=4" in line

    def test_a_text_of_a_peer_stays_on_its_line(self) -> None:
        assert _short("a\nb\x1b[2J") == "'a\\nb\\x1b[2J'"
        assert _short([{"a": None}, 1]) == "[{a=-} 1]"

    def test_what_could_not_be_decoded_says_why(self) -> None:
        (tapped,) = Place().send(struct.pack("<HHHH", 4, 1, 777, 1) + b"abcd")

        assert "schema 777 template 1, 12 bytes: schema 777 has no message 1" in _line(tapped)
