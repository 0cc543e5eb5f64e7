"""Damaged messages: MalformedMessageError or a valid message, in bounded time and memory, nothing else."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import (
    Message,
    Outcome,
    Router,
    decode,
    encode,
    message_layouts,
    message_types,
    peek,
    shm,
)
from tensor_pool.wire.json_form import guess_kind, to_json_form
from tensor_pool.wire.messages import (
    DataSourceMeta,
    DiscoveryRequest,
    DiscoveryResponse,
    DiscoveryStatus,
    MetaBlobChunk,
    SequenceMergeMapAnnounce,
    TraceLinkSet,
)
from wire_strategies import messages, messages_of
from wire_vectors import foreign_index, read_foreign, read_reference, reference_entries

often = settings(max_examples=300, deadline=None, print_blob=True)

RECORDED = [read_reference(entry) for entry in reference_entries() if entry["kind"] == "message"]
RECORDED += [read_foreign(entry["file"]) for entry in foreign_index()["messages"][::7]]
SLOTS = [read_reference(entry) for entry in reference_entries() if entry["kind"] == "slot256"]


def outcome_of(data: bytes) -> Message | None:
    """The message that bytes hold, or None; any other exception fails the test."""
    try:
        message = decode(data)
    except MalformedMessageError:
        return None
    assert decode(encode(message, block_length=None)) == message
    return message


def may_end_there(message: Message, missing: int) -> bool:
    """Decision K9: a DiscoveryRequest may end before the length of its name, and then has none."""
    return isinstance(message, DiscoveryRequest) and missing == 4 + len(message.data_source_name)


@pytest.mark.parametrize("struct_type", message_types(), ids=lambda struct_type: struct_type.__name__)
@settings(max_examples=10, deadline=None, print_blob=True)
@given(st.data())
def test_every_truncation_is_refused(struct_type, data):
    message = data.draw(messages_of(struct_type))
    for layout in message_layouts(struct_type):
        encoded = encode(message, block_length=layout.block_length)
        for size in range(len(encoded)):
            accepted = outcome_of(encoded[:size]) is not None
            assert accepted == may_end_there(message, len(encoded) - size)


@pytest.mark.parametrize(
    "data", RECORDED, ids=lambda data: f"{peek(data).schema_id}.{peek(data).template_id}"
)
def test_every_truncation_of_recorded_messages_is_refused(data):
    message = decode(data)
    for size in range(len(data)):
        accepted = outcome_of(data[:size]) is not None
        assert accepted == may_end_there(message, len(encode(message)) - size)


@often
@given(messages(), st.data())
def test_any_flipped_byte(drawn, data):
    message, layout = drawn
    encoded = bytearray(encode(message, block_length=layout.block_length))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    outcome_of(bytes(encoded))


@pytest.mark.parametrize(
    "data", RECORDED, ids=lambda data: f"{peek(data).schema_id}.{peek(data).template_id}"
)
def test_each_byte_of_recorded_messages_flipped(data):
    refused = 0
    for position in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= mask
            refused += outcome_of(bytes(damaged)) is None
    assert refused > 0


@often
@given(messages(), st.integers(0, 65535), st.integers(0, 65535), st.binary(max_size=64))
def test_lying_headers(drawn, block_length, version, extra):
    message, layout = drawn
    encoded = encode(message, block_length=layout.block_length)
    header = struct.pack("<HHHH", block_length, layout.template_id, layout.schema_id, version)
    outcome_of(header + encoded[8:] + extra)


@often
@given(st.binary(max_size=400))
def test_garbage(data):
    outcome_of(data)


@often
@given(st.sampled_from(message_types()), st.binary(max_size=300))
def test_garbage_behind_a_good_header(struct_type, body):
    layout = message_layouts(struct_type)[0]
    header = struct.pack("<HHHH", layout.block_length, layout.template_id, layout.schema_id, 1)
    outcome_of(header + body)


@often
@given(st.binary(max_size=300), st.lists(st.sampled_from(message_types()), unique=True, max_size=5))
def test_a_router_takes_anything(data, registered):
    router = Router()
    for struct_type in registered:
        router.on(struct_type, lambda message: None)
    outcome = router.dispatch(data)
    assert isinstance(outcome, Outcome)
    counts = router.counts
    assert (
        counts.handled + counts.unhandled + counts.unknown + counts.unsupported_version + counts.malformed
        == 1
    )


@often
@given(st.sampled_from(SLOTS), st.integers(0, 255), st.integers(1, 255))
def test_slots_with_a_flipped_byte(data, position, mask):
    damaged = bytearray(data)
    damaged[position] ^= mask
    try:
        slot = shm.decode_slot(damaged)
    except MalformedMessageError:
        return
    assert len(shm.encode_slot(slot.header)) == 256


@often
@given(
    st.binary(max_size=300) | st.binary(min_size=256, max_size=256),
    st.sampled_from([None, "slot256", "superblock"]),
)
def test_the_json_form_of_anything(data, kind):
    try:
        form = to_json_form(data, kind)
    except MalformedMessageError:
        return
    assert form["kind"] == (kind or guess_kind(data))


def peak_of_refusal(data: bytes) -> tuple[int, float]:
    """Memory and time that refusing a message takes."""
    with pytest.raises(MalformedMessageError):
        decode(data)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(MalformedMessageError):
            decode(data)
        return tracemalloc.get_traced_memory()[1], time.perf_counter() - started
    finally:
        tracemalloc.stop()


SMALL = 64 * 1024


@pytest.mark.req("BRG-5.2-27")
@pytest.mark.parametrize("length", [100, 1 << 20, 1 << 30, 0xFFFFFFFE, 0xFFFFFFFF])
def test_announced_lengths_allocate_nothing(length):
    data = bytearray(encode(MetaBlobChunk(1, 2, 3, b"abc")))
    data[8 + 16 : 8 + 20] = struct.pack("<I", length)
    memory, seconds = peak_of_refusal(bytes(data))
    assert memory < SMALL
    assert seconds < 1


@pytest.mark.parametrize(
    ("message", "offset"),
    [
        (DataSourceMeta(1, 2, 3), 16),
        (TraceLinkSet(1, 2, 3, 4), 28),
        (SequenceMergeMapAnnounce(1, 2), 20),
        (DiscoveryRequest(1, 2, 3), 32),
        (DiscoveryResponse(1, DiscoveryStatus.OK), 9),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("entry_length", [None, 0, 1, 65535])
@pytest.mark.parametrize("count", [10, 255, 65535])
def test_announced_counts_build_nothing(message, offset, entry_length, count):
    """65535 entries in a buffer that has room for none; also with entries of no length at all."""
    data = bytearray(encode(message))
    group = 8 + offset
    if entry_length is not None:
        data[group : group + 2] = struct.pack("<H", entry_length)
    data[group + 2 : group + 4] = struct.pack("<H", count)
    memory, seconds = peak_of_refusal(bytes(data))
    assert memory < SMALL
    assert seconds < 1


def test_counts_are_checked_against_what_is_left_not_what_was_there():
    """A long message whose second group lies: the entries before it were all right."""
    meta = bytearray(encode(DataSourceMeta(1, 2, 3)))
    meta[8 + 18 : 8 + 20] = struct.pack("<H", 65535)
    memory, seconds = peak_of_refusal(bytes(meta) + bytes(12 * 1000))
    assert memory < SMALL
    assert seconds < 1
