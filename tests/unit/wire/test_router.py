"""A router hands over what was registered, counts the rest, and never raises for what it is fed."""

from __future__ import annotations

import msgspec
import pytest

from tensor_pool.wire import Outcome, Router, decode, encode, message_types, peek
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    FrameDescriptor,
    GetDriverStatus,
    NewerShmAttachRequest,
    QosProducer,
    Role,
    ShmAttachRequest,
    ShmLeaseKeepalive,
)
from wire_vectors import foreign_index, read_foreign, read_reference, reference_entries

DESCRIPTOR = FrameDescriptor(stream_id=1, epoch=2, seq=3)
ATTACH = ShmAttachRequest(1, 2, 3, Role.CONSUMER)
NEWER_ATTACH = NewerShmAttachRequest(1, 2, 3, Role.CONSUMER)


def with_header(data: bytes, **changes: int) -> bytes:
    return msgspec.structs.replace(peek(data), **changes).to_bytes() + data[8:]


def one_of_every_schema() -> list[bytes]:
    """All recorded messages, and one of each schema that the recordings lack."""
    recorded = [read_reference(entry) for entry in reference_entries() if entry["kind"] == "message"]
    recorded += [read_foreign(entry["file"]) for entry in foreign_index()["messages"]]
    return [*recorded, encode(GetDriverStatus(1, 2))]


def test_a_registered_message_reaches_its_handler():
    router, seen = Router(), []
    router.on(FrameDescriptor, seen.append)
    assert router.dispatch(encode(DESCRIPTOR)) is Outcome.HANDLED
    assert router.dispatch(memoryview(encode(DESCRIPTOR))) is Outcome.HANDLED
    assert seen == [DESCRIPTOR, DESCRIPTOR]
    assert router.counts.handled == 2


@pytest.mark.req("DSC-4.2-3", "BRG-10-20", "SVC-5-2")
@pytest.mark.parametrize("struct_type", message_types(), ids=lambda struct_type: struct_type.__name__)
def test_each_handler_gets_its_own_messages_only(struct_type):
    """Pitfall 8: feed each handler one message of every schema; it ignores, never raises."""
    router, seen = Router(), []
    router.on(struct_type, seen.append)
    stream = one_of_every_schema()
    for data in stream:
        router.dispatch(data)
    assert all(type(message) is struct_type for message in seen)
    assert seen == [message for message in map(decode, stream) if type(message) is struct_type]
    counts = router.counts
    assert counts.handled + counts.unhandled == len(stream)
    assert (counts.unknown, counts.unsupported_version, counts.malformed) == (0, 0, 0)


def test_unknown_messages_are_counted():
    router = Router()
    router.on(FrameDescriptor, lambda _: pytest.fail("not a descriptor"))
    assert router.dispatch(with_header(encode(DESCRIPTOR), schema_id=899)) is Outcome.UNKNOWN
    assert router.dispatch(with_header(encode(DESCRIPTOR), template_id=99)) is Outcome.UNKNOWN
    assert router.counts.unknown == 2


def test_messages_without_a_handler_are_not_even_decoded():
    router = Router()
    router.on(FrameDescriptor, lambda _: None)
    assert router.dispatch(encode(QosProducer(1, 2, 3, 4))) is Outcome.UNHANDLED
    assert router.dispatch(encode(QosProducer(1, 2, 3, 4))[:9]) is Outcome.UNHANDLED
    assert router.counts.unhandled == 2
    assert router.counts.malformed == 0


@pytest.mark.req("WIRE-7.1-8")
def test_other_versions_are_counted_and_reported():
    reported = []
    router = Router(on_unsupported_version=lambda header, data: reported.append((header, data)))
    router.on(ShmAttachRequest, lambda _: pytest.fail("wrong version"))
    data = with_header(encode(ATTACH), version=2)
    assert router.dispatch(bytearray(data)) is Outcome.UNSUPPORTED_VERSION
    assert reported == [(peek(data), data)]  # a driver can still read the correlation id and say UNSUPPORTED
    assert Router().dispatch(data) is Outcome.UNHANDLED
    assert router.counts.unsupported_version == 1


def test_other_versions_without_a_listener():
    router = Router()
    router.on(ShmLeaseKeepalive, lambda _: pytest.fail("wrong version"))
    data = with_header(encode(ShmLeaseKeepalive(1, 2, 3, Role.CONSUMER, 4)), version=0)
    assert router.dispatch(data) is Outcome.UNSUPPORTED_VERSION


@pytest.mark.parametrize("data", [b"", b"1234567", encode(DESCRIPTOR)[:-1], encode(DESCRIPTOR) + b"\0"])
def test_malformed_messages_are_counted_apart(data):
    errors = []
    router = Router(on_malformed=errors.append)
    router.on(FrameDescriptor, lambda _: pytest.fail("malformed"))
    assert router.dispatch(data) is Outcome.MALFORMED
    assert router.counts.malformed == len(errors) == 1
    silent = Router()
    silent.on(FrameDescriptor, lambda _: pytest.fail("malformed"))
    assert silent.dispatch(data) is Outcome.MALFORMED


def test_block_lengths_of_no_dialect_are_malformed():
    router = Router()
    router.on(BridgeFrameChunk, lambda _: pytest.fail("malformed"))
    data = encode(BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False))
    assert router.dispatch(with_header(data, block_length=47)) is Outcome.MALFORMED


def test_each_dialect_has_its_own_handler():
    router, seen = Router(), []
    router.on(ShmAttachRequest, seen.append)
    assert router.dispatch(encode(ATTACH)) is Outcome.HANDLED
    assert router.dispatch(encode(NEWER_ATTACH)) is Outcome.UNHANDLED
    router.on(NewerShmAttachRequest, seen.append)
    assert router.dispatch(encode(NEWER_ATTACH)) is Outcome.HANDLED
    assert seen == [ATTACH, NEWER_ATTACH]


def test_one_handler_a_message():
    router = Router()
    router.on(FrameDescriptor, lambda _: None)
    with pytest.raises(ValueError, match="FrameDescriptor has a handler already"):
        router.on(FrameDescriptor, lambda _: None)
    with pytest.raises(TypeError, match="int is not a message"):
        router.on(int, lambda _: None)


def test_what_a_handler_raises_comes_out():
    router = Router()

    def fail(_: FrameDescriptor) -> None:
        raise RuntimeError("the handler's own problem")

    router.on(FrameDescriptor, fail)
    with pytest.raises(RuntimeError, match="own problem"):
        router.dispatch(encode(DESCRIPTOR))
    assert router.counts.handled == 1


def test_counts_show_themselves():
    router = Router()
    router.dispatch(b"")
    assert repr(router.counts) == (
        "RouterCounts(handled=0, unhandled=0, unknown=0, unsupported_version=0, malformed=1)"
    )
