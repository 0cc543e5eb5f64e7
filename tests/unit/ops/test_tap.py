"""The tap's logic on a bus in memory: decoding, filters, what is not ours."""

import struct
from collections.abc import Iterator

import msgspec
import pytest

from bridge_configs import GROUP, bridge
from tensor_pool import wire
from tensor_pool._native import crc32c
from tensor_pool.bridging.udp import for_chunks_in
from tensor_pool.config import StreamsSection
from tensor_pool.ops.chunk_tap import ChunkReader, chunk_places
from tensor_pool.ops.cli.tap import _line, _print, _short
from tensor_pool.ops.tap import SOURCES, Filter, Tap, Tapped, endpoints, known_types
from tensor_pool.runtime import FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    FrameDescriptor,
    ListStreams,
    NewerBridgeFrameChunk,
    QosProducer,
    StreamsListed,
)

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


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_ctrl_c_ends_a_tap_with_what_it_has_seen(
    output_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def messages() -> Iterator[Tapped]:
        yield from Place().send(QOS)
        raise KeyboardInterrupt

    _print(messages(), output_format)
    out = capsys.readouterr().out
    assert "QosProducer" in out
    if output_format == "json":
        assert len(msgspec.json.decode(out)) == 1


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
    with pytest.raises(KeyError, match="Nothing"):
        known_types(["Nothing"], ["QosProducer"])


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


SLOT = bytes(256)
PAYLOAD = b"0123456789"


def chunk(index: int = 0, **more: object) -> NewerBridgeFrameChunk:
    """One of the two halves of a frame with a checksum."""
    half = PAYLOAD[5 * index : 5 * index + 5]
    fields = {
        "stream_id": 10_000, "epoch": 3, "seq": 9, "trace_id": 77, "chunk_index": index, "chunk_count": 2,
        "chunk_offset": 5 * index, "chunk_length": 5, "payload_length": 10, "header_included": index == 0,
        "payload_crc32c": crc32c(PAYLOAD), "header_bytes": SLOT if index == 0 else b"", "payload_bytes": half,
    }  # fmt: skip
    return NewerBridgeFrameChunk(**{**fields, **more})


def older(newer: NewerBridgeFrameChunk) -> BridgeFrameChunk:
    fields = msgspec.structs.asdict(newer)
    return BridgeFrameChunk(**{name: fields[name] for name in BridgeFrameChunk.__struct_fields__})


class TestChunks:
    def test_a_chunk_is_told_without_its_bytes(self) -> None:
        (tapped,) = Place().send(older(chunk()))

        assert (tapped.message, tapped.error) == ("BridgeFrameChunk", None)
        assert tapped.fields == {
            "stream_id": 10_000, "epoch": 3, "seq": 9, "chunk_index": 0, "chunk_count": 2, "chunk_offset": 0,
            "chunk_length": 5, "payload_length": 10, "header_included": True, "dialect": "ours",
            "crc_ok": None, "trace_id": None,
        }  # fmt: skip
        assert _line(tapped).endswith(
            "stream 10000  epoch 3  seq 9  chunk 0/2  bytes 0+5 of 10  ours  crc -  trace -"
        )

    def test_a_checksum_is_known_at_the_last_chunk(self) -> None:
        first, last = Place().send(chunk(0), chunk(1))

        assert (first.fields["dialect"], first.fields["trace_id"]) == ("newer", 77)
        assert [tapped.fields["crc_ok"] for tapped in (first, last)] == [None, True]
        assert _line(last).endswith("newer  crc ok  trace 77")

    def test_a_wrong_checksum_is_told(self) -> None:
        place = Place()
        _, last = place.send(chunk(0), chunk(1, payload_bytes=b"56 89"))

        assert last.fields["crc_ok"] is False
        assert "crc WRONG" in _line(last)
        assert "MALFORMED: the payload does not match its checksum" in _line(last)
        assert place.tap.counts.malformed == 1

    def test_without_the_first_chunk_nothing_is_known_of_the_checksum(self) -> None:
        place = Place()
        assert [tapped.fields["crc_ok"] for tapped in place.send(chunk(1))] == [None]
        assert [tapped.fields["crc_ok"] for tapped in place.send(chunk(0), chunk(0), chunk(1))] == [
            None, None, True,
        ]  # fmt: skip

    def test_frames_that_never_end_take_no_memory(self) -> None:
        reader = ChunkReader()
        for seq in range(10_000):
            reader.read(chunk(0, seq=seq), session_id=1)
        assert len(reader._sums) <= 64
        assert reader.read(chunk(1, seq=9_999), session_id=2)[0]["crc_ok"] is None, "of another sender"
        assert reader.read(chunk(1, seq=9_999), session_id=1)[0]["crc_ok"] is True

    @pytest.mark.parametrize(
        ("lie", "told"),
        [
            (chunk(0, chunk_index=2), "chunk 2 of 2"),
            (chunk(1, chunk_length=4), "it carries 5 bytes and says 4"),
            (chunk(1, chunk_offset=6), "it ends at 11, behind the payload of 10 bytes"),
            (chunk(0, header_included=False), "chunk 0 says that it has no header"),
            (chunk(1, header_included=True), "chunk 1 says that it has a header"),
            (chunk(0, header_bytes=b"12"), "chunk 0 has a header of 2 bytes instead of 256 bytes"),
            (chunk(1, header_bytes=SLOT), "chunk 1 has a header of 256 bytes instead of none"),
            (chunk(0, chunk_offset=5), "the first chunk begins at 5"),
        ],
    )
    def test_chunks_that_no_receiver_would_take(self, lie: NewerBridgeFrameChunk, told: str) -> None:
        place = Place()
        (tapped,) = place.send(lie)

        assert tapped.error == told
        assert f"MALFORMED: {told}" in _line(tapped)
        assert place.tap.counts.malformed == 1

    def test_bytes_that_are_no_chunk_are_shown_by_their_header(self) -> None:
        place = Place()
        short, unknown = place.send(wire.encode(chunk(0))[:60], struct.pack("<HHHH", 4, 9, 902, 1) + b"abcd")

        assert short.fields is unknown.fields is None
        assert "schema 902 template 1" in _line(short)
        assert (place.tap.counts.malformed, place.tap.counts.unknown) == (1, 1)

    def test_a_host_that_sends_spies_and_one_that_receives_listens_as_its_bridge_does(self) -> None:
        sender, receiver = (chunk_places(bridge(role=role)) for role in ("sender", "receiver"))
        ((spied, spied_id),) = sender
        ((listened, listened_id),) = receiver

        assert spied_id == listened_id == 3000
        assert spied == f"aeron-spy:{GROUP}|mtu=1408"
        assert listened == for_chunks_in(f"{GROUP}|mtu=1408")
