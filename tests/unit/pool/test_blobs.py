"""Large metadata arrives whole or not at all."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool import _native, wire
from tensor_pool.errors import MalformedMessageError
from tensor_pool.pool.blobs import CHUNK_MAX, Blob, BlobAssembly, BlobDiscard, BlobSender
from tensor_pool.wire import Message
from tensor_pool.wire.messages import MetaBlobAnnounce, MetaBlobChunk, MetaBlobComplete, QosProducer

STREAM = 10_000
SECOND = 1_000_000_000


def pattern(length: int) -> bytes:
    return bytes(itertools.islice(itertools.cycle(range(251)), length))


def messages_of(data: bytes, **options: Any) -> list[Message]:
    sender = BlobSender(STREAM, chunks_per_call=1_000, **options)
    sender.add(data, meta_version=3, blob_type=1)
    return sender.due()


def assemble(messages: list[Message], assembly: BlobAssembly | None = None) -> list[Blob]:
    assembly = assembly if assembly is not None else BlobAssembly()
    results = [assembly.on_message(wire.decode(wire.encode(message)), 0) for message in messages]
    return [blob for blob in results if blob is not None]


class TestSender:
    @pytest.mark.req("WIRE-10.3.3-1", "WIRE-10.3.3-2", "WIRE-10.3.3-3", "WIRE-15.9-1", "WIRE-15.9-2")
    @pytest.mark.parametrize("length", [0, 1, CHUNK_MAX - 1, CHUNK_MAX, CHUNK_MAX + 1, 200 << 10, 1 << 20])
    def test_chunks_cover_the_blob_once(self, length: int) -> None:
        announce, *chunks, complete = messages_of(pattern(length))

        assert isinstance(announce, MetaBlobAnnounce)
        assert isinstance(complete, MetaBlobComplete)
        assert announce.total_len == length
        end = 0
        for chunk in chunks:
            assert isinstance(chunk, MetaBlobChunk)
            assert chunk.chunk_offset == end
            assert 0 < len(chunk.bytes) <= 65_536
            end += len(chunk.bytes)
        assert end == length

    @pytest.mark.req("WIRE-15.9-3")
    def test_the_checksum_is_crc32c_of_the_whole_blob(self) -> None:
        data = pattern(200_000)
        announce, *_, complete = messages_of(data)
        without, *_ = messages_of(data, checksum=False)

        assert announce.checksum == complete.checksum == _native.crc32c(data) != 0
        assert without.checksum == 0

    def test_it_is_paced(self) -> None:
        sender = BlobSender(STREAM, chunks_per_call=4)
        sender.add(pattern(1 << 20), meta_version=1, blob_type=1)
        sizes = []
        while messages := sender.due():
            sizes.append(len(messages))
            sender.sent(len(messages))
        assert sizes == [4, 4, 4, 4, 2]

    def test_what_was_not_sent_comes_again(self) -> None:
        sender = BlobSender(STREAM, chunks_per_call=3)
        data = pattern(300_000)
        sender.add(data, meta_version=1, blob_type=1)
        sender.add(data, meta_version=2, blob_type=1)
        assembly, blobs, sent = BlobAssembly(), [], 0
        for accepted in itertools.cycle([1, 0, 2]):  # what the publication takes of each call
            messages = sender.due()
            if not messages:
                break
            taken = messages[:accepted]
            blobs += assemble(taken, assembly)
            sender.sent(len(taken))
            sent += len(taken)
        assert [(blob.meta_version, blob.data == data) for blob in blobs] == [(1, True), (2, True)]
        assert sent == 14
        assert sender.pending_bytes == 0

    def test_what_waits_is_bounded(self) -> None:
        sender = BlobSender(STREAM, max_bytes=1_000)
        sender.add(bytes(600), meta_version=1, blob_type=1)
        with pytest.raises(
            MalformedMessageError, match="a blob of 600 bytes, with 600 waiting; at most 1000"
        ):
            sender.add(bytes(600), meta_version=2, blob_type=1)
        sender.sent(len(sender.due()))
        sender.add(bytes(1_000), meta_version=2, blob_type=1)

    def test_the_data_is_copied(self) -> None:
        sender = BlobSender(STREAM)
        data = bytearray(b"flat")
        sender.add(data, meta_version=1, blob_type=1)
        data[:] = b"????"

        assert assemble(sender.due())[0].data == b"flat"


class TestAssembly:
    @pytest.mark.parametrize("length", [0, 1, CHUNK_MAX, 200_000])
    @pytest.mark.parametrize("checksum", [True, False])
    def test_a_blob_arrives(self, length: int, checksum: bool) -> None:
        data = pattern(length)

        assert assemble(messages_of(data, checksum=checksum)) == [Blob(STREAM, 3, 1, data)]

    @pytest.mark.req("WIRE-10.3.3-4")
    @pytest.mark.parametrize("missing", [1, 2, 3, 4])
    def test_a_gap_discards_it(self, missing: int) -> None:
        assembly = BlobAssembly()
        messages = messages_of(pattern(4 * CHUNK_MAX))
        del messages[missing]

        assert assemble(messages, assembly) == []
        assert assembly.discarded[BlobDiscard.INCOMPLETE if missing == 4 else BlobDiscard.GAP] == 1
        assert len(assembly) == 0

    @pytest.mark.req("WIRE-10.3.3-4")
    @pytest.mark.parametrize(
        ("shift", "reason"),
        [(1, BlobDiscard.GAP), (-1, BlobDiscard.OVERLAP), (-CHUNK_MAX, BlobDiscard.OVERLAP)],
    )
    def test_a_chunk_in_the_wrong_place_discards_it(self, shift: int, reason: BlobDiscard) -> None:
        assembly = BlobAssembly()
        messages = messages_of(pattern(3 * CHUNK_MAX))
        chunk = messages[2]
        assert isinstance(chunk, MetaBlobChunk)
        messages[2] = msgspec.structs.replace(chunk, chunk_offset=chunk.chunk_offset + shift)

        assert assemble(messages, assembly) == []
        assert assembly.discarded[reason] == 1

    @pytest.mark.req("WIRE-10.3.3-5")
    @pytest.mark.parametrize("said_in", ["announce", "complete", "both"])
    def test_a_wrong_byte_discards_it(self, said_in: str) -> None:
        assembly = BlobAssembly()
        announce, chunk, complete = messages_of(b"flat field")
        assert isinstance(chunk, MetaBlobChunk)
        if said_in == "announce":
            complete = msgspec.structs.replace(complete, checksum=0)
        elif said_in == "complete":
            announce = msgspec.structs.replace(announce, checksum=0)
        damaged = msgspec.structs.replace(chunk, bytes=b"flat FIELD")

        assert assemble([announce, damaged, complete], assembly) == []
        assert assembly.discarded == {BlobDiscard.CHECKSUM: 1}
        assert assemble([announce, chunk, complete], assembly) != []

    def test_checksums_that_differ_discard_it(self) -> None:
        announce, chunk, complete = messages_of(b"flat field")

        assert assemble([announce, chunk, msgspec.structs.replace(complete, checksum=1)]) == []

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", BlobDiscard.BAD_CHUNK),
            (bytes(CHUNK_MAX + 1), BlobDiscard.BAD_CHUNK),
            (bytes(11), BlobDiscard.BEYOND_END),
        ],
    )
    def test_chunks_that_can_not_be(self, data: bytes, reason: BlobDiscard) -> None:
        assembly = BlobAssembly()
        assembly.on_message(MetaBlobAnnounce(STREAM, 1, 1, total_len=10), 0)
        assembly.on_message(MetaBlobChunk(STREAM, 1, 0, data), 0)

        assert assembly.discarded == {reason: 1}
        assert len(assembly) == 0

    def test_chunks_and_ends_of_nothing(self) -> None:
        assembly = BlobAssembly()

        assert assemble([MetaBlobChunk(STREAM, 1, 0, b"x"), MetaBlobComplete(STREAM, 1)], assembly) == []
        assert assembly.discarded == {BlobDiscard.NOT_ANNOUNCED: 2}

    def test_an_announce_starts_again(self) -> None:
        assembly = BlobAssembly()
        messages = messages_of(b"flat field")

        assert len(assemble([messages[0], messages[1], *messages], assembly)) == 1
        assert assembly.discarded == {BlobDiscard.RESTARTED: 1}

    def test_streams_and_versions_don_t_mix(self) -> None:
        assembly = BlobAssembly()
        parts = []
        for stream_id, version in [(1, 1), (1, 2), (2, 1)]:
            sender = BlobSender(stream_id)
            sender.add(b"%d %d" % (stream_id, version), meta_version=version, blob_type=1)
            parts.append(sender.due())
        blobs = assemble([message for step in zip(*parts, strict=True) for message in step], assembly)

        assert [blob.data for blob in blobs] == [b"1 1", b"1 2", b"2 1"]

    def test_one_that_does_not_go_on_times_out(self) -> None:
        assembly = BlobAssembly(timeout_ns=10 * SECOND)
        announce, *chunks, complete = messages_of(pattern(2 * CHUNK_MAX))
        assembly.on_message(announce, 0)
        assembly.on_message(chunks[0], 9 * SECOND)
        assembly.expire(18 * SECOND)
        assert len(assembly) == 1
        assembly.expire(19 * SECOND)

        assert (len(assembly), assembly.discarded) == (0, {BlobDiscard.TIMED_OUT: 1})
        assert assembly.on_message(complete, 19 * SECOND) is None

    def test_other_messages_are_none_of_its_business(self) -> None:
        assert BlobAssembly().on_message(QosProducer(1, 1, 1, 1), 0) is None


class TestBounds:
    @pytest.mark.parametrize("total", [1_001, 2**63])
    def test_too_large(self, total: int) -> None:
        assembly = BlobAssembly(max_blob_bytes=1_000)
        assembly.on_message(MetaBlobAnnounce(STREAM, 1, 1, total), 0)

        assert (len(assembly), assembly.discarded) == (0, {BlobDiscard.TOO_LARGE: 1})

    def test_too_much_together(self) -> None:
        assembly = BlobAssembly(max_blob_bytes=1_000, max_total_bytes=1_500)
        for version in range(3):
            assembly.on_message(MetaBlobAnnounce(STREAM, version, 1, 700), 0)

        assert (len(assembly), assembly.discarded) == (2, {BlobDiscard.TOO_LARGE: 1})

    def test_too_many(self) -> None:
        assembly = BlobAssembly(max_blobs=4)
        for version in range(100_000):
            assembly.on_message(MetaBlobAnnounce(STREAM, version, 1, 1), 0)

        assert (len(assembly), assembly.discarded) == (4, {BlobDiscard.TOO_MANY: 99_996})

    def test_an_announce_alone_takes_no_memory(self) -> None:
        assembly = BlobAssembly()
        assembly.on_message(MetaBlobAnnounce(STREAM, 1, 1, 64 << 20), 0)

        (receiving,) = assembly._open.values()
        assert len(receiving.data) == 0


@given(st.data())
def test_whatever_happens_to_the_messages_no_wrong_blob_comes_out(data: st.DataObject) -> None:
    content = pattern(data.draw(st.integers(0, 3 * CHUNK_MAX)))
    messages = messages_of(content)
    for _ in range(data.draw(st.integers(0, 4))):
        index = data.draw(st.integers(0, len(messages) - 1))
        fate = data.draw(st.sampled_from(["lose", "repeat", "move"]))
        message = messages[index] if fate == "repeat" else messages.pop(index)
        if fate != "lose":
            messages.insert(data.draw(st.integers(0, len(messages))), message)
        if not messages:
            break
    assembly = BlobAssembly()

    assert all(blob.data == content for blob in assemble(messages, assembly))
    assembly.expire(10**18)
    assert len(assembly) == 0
