"""Values as events carry them: every format there and back, and bytes that lie."""

from __future__ import annotations

import math
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.control.events import Event, EventForm, event_message
from tensor_pool.control.tags import check_key, service_tag
from tensor_pool.control.values import FrameRef, decode_value, encode_value
from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import encode
from tensor_pool.wire.messages import EventMessage, Format, GetDriverStatus

TAG = "service:camera"
REF = FrameRef(10_000, 3, 42)


def event(kind: Format, value: bytes = b"", **ref: int) -> EventMessage:
    return EventMessage(1, 2, kind, tag=TAG, key="key", value=value, **ref)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.builds(FrameRef, st.integers(0, 2**32 - 2), st.integers(0, 2**64 - 2), st.integers(0, 2**64 - 2))
)


@given(VALUES)
def test_every_value_comes_back(value):
    form = EventForm()
    received = Event.of(form.decode(form.encode(event_message(TAG, "key", value, correlation_id=7))))
    assert (received.value, type(received.value)) == (value, type(value))
    assert (received.tag, received.key, received.correlation_id) == (TAG, "key", 7)


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (Format.UINT8, 255, b"\xff"),
        (Format.INT8, -1, b"\xff"),
        (Format.UINT16, 258, b"\x02\x01"),
        (Format.INT16, -2, b"\xfe\xff"),
        (Format.UINT32, 1, b"\x01\0\0\0"),
        (Format.INT32, -1, b"\xff" * 4),
        (Format.UINT64, 2**64 - 1, b"\xff" * 8),
        (Format.INT64, -1, b"\xff" * 8),
        (Format.FLOAT32, 0.5, struct.pack("<f", 0.5)),
        (Format.FLOAT64, 0.1, struct.pack("<d", 0.1)),
        (Format.BOOLEAN, True, b"\x01"),
        (Format.BIT, False, b"\x00"),
        (Format.STRING, "µm", b"\xc2\xb5m"),
        (Format.BYTES, b"\0\1", b"\0\1"),
        (Format.NOTHING, None, b""),
    ],
)
def test_every_format_has_its_bytes(kind, value, data):
    assert encode_value(value, kind) == (kind, data)
    decoded = decode_value(event(kind, data))
    assert (decoded, type(decoded)) == (value, type(value))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (256, Format.UINT8),
        (-1, Format.UINT64),
        (1.5, Format.INT32),
        (True, Format.UINT8),
        ("7", Format.INT32),
        (2**64, None),
        (-(2**63) - 1, None),
        (1e300, Format.FLOAT32),
        ([1], None),
        (1, Format.REF),
    ],
)
def test_what_does_not_fit_is_said(value, kind):
    with pytest.raises(ValueError, match=r".+"):
        encode_value(value, kind)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Format.UINT8, b""),
        (Format.UINT8, b"\0\0"),
        (Format.FLOAT64, b"\0" * 7),
        (Format.BOOLEAN, b"\2"),
        (Format.BOOLEAN, b""),
        (Format.BIT, b"\0\0"),
        (Format.STRING, b"\xff"),
        (Format.NOTHING, b"x"),
    ],
)
def test_bytes_that_are_not_their_format_are_malformed(kind, data):
    with pytest.raises(MalformedMessageError):
        decode_value(event(kind, data))


@pytest.mark.req("SVC-5.2-1", "SVC-5.2-2")
def test_a_reference_fills_its_fields_and_leaves_the_value_alone():
    message = event_message(TAG, "keep", REF)
    assert message.format is Format.REF
    assert (message.ref_stream_id, message.ref_epoch, message.ref_seq) == REF
    assert message.value == b""
    assert decode_value(message) == REF
    assert decode_value(msgspec.structs.replace(message, value=b"a note")) == REF


@pytest.mark.req("SVC-5.2-3", "SVC-5.2-4")
def test_an_empty_value_is_a_reference_only_with_all_its_fields():
    whole = {"ref_stream_id": 10_000, "ref_epoch": 3, "ref_seq": 42}
    assert decode_value(event(Format.NOTHING, **whole)) == REF
    assert decode_value(event(Format.STRING, **whole)) == REF
    assert decode_value(event(Format.STRING, b"text", **whole)) == "text"
    for name in whole:
        part = {key: number for key, number in whole.items() if key != name}
        assert decode_value(event(Format.NOTHING, **part)) is None
        with pytest.raises(MalformedMessageError):
            decode_value(event(Format.REF, **part))


@pytest.mark.parametrize("schema_id", [905, 4_711])
def test_the_schema_id_may_be_anothers(schema_id):
    form, message = EventForm(schema_id), event_message(TAG, "gain", 2.0)
    data = form.encode(message)
    assert struct.unpack_from("<HHHH", data) == (40, 1, schema_id, 1)
    assert form.decode(data) == message
    assert EventForm(schema_id + 1).decode(data) is None
    assert form.decode(encode(GetDriverStatus(correlation_id=1, client_id=7))) is None
    with pytest.raises(MalformedMessageError):
        form.decode(data[:-1])


@pytest.mark.req("SVC-7-2")
def test_tags_name_a_service_and_maybe_an_instance():
    assert [service_tag("recorder", each) for each in "12"] == ["service:recorder:1", "service:recorder:2"]
    assert service_tag("recorder") == service_tag("service:recorder") == "service:recorder"
    for wrong in ("", "a b", "a:b:c", "ä", ":1", "service:", "x" * 65, "a\n"):
        with pytest.raises(ValueError, match="names no service"):
            service_tag(wrong)
    for wrong in ("", "a b", "é", "x" * 129, ".a"):
        with pytest.raises(ValueError, match="is no key"):
            check_key(wrong)


def test_references_are_read_from_text():
    assert FrameRef.parse(str(REF)) == REF
    for wrong in ("", "1/2", "1/2/3/4", "a/2/3", "-1/2/3", f"{2**32 - 1}/1/1", f"1/{2**64 - 1}/1", "1/2/³"):
        with pytest.raises(ValueError, match="is no frame"):
            FrameRef.parse(wrong)


def test_infinity_travels():
    assert math.isinf(decode_value(event(Format.FLOAT32, struct.pack("<f", math.inf))))
