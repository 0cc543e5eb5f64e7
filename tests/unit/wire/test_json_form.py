"""The JSON form of bytes, and bytes of the JSON form."""

from __future__ import annotations

import json

import msgspec
import pytest

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import encode, peek, shm
from tensor_pool.wire.json_form import KINDS, from_json_form, guess_kind, to_json_form
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    DataSourceMeta,
    EventMessage,
    Format,
    FrameDescriptor,
    MetaAttribute,
    NewerShmAttachRequest,
    Role,
    ShmAttachRequest,
)
from wire_vectors import read_reference, reference_entries

DESCRIPTOR = {
    "kind": "message",
    "message": "FrameDescriptor",
    "header": {"block_length": 40, "schema_id": 900, "template_id": 4, "version": 1},
    "fields": {
        "stream_id": 1,
        "epoch": 2**64 - 1,
        "seq": 3,
        "timestamp_ns": None,
        "meta_version": None,
        "trace_id": None,
    },
}
SLOT = next(entry for entry in reference_entries() if entry["kind"] == "slot256")
SUPERBLOCK = next(entry for entry in reference_entries() if entry["kind"] == "superblock")


def with_fields(form: dict, **changes: object) -> dict:
    return {**form, "fields": {**form["fields"], **changes}}


def without(form: dict, name: str) -> dict:
    return {**form, "fields": {key: value for key, value in form["fields"].items() if key != name}}


def test_a_message():
    assert to_json_form(encode(FrameDescriptor(1, 2**64 - 1, 3))) == DESCRIPTOR


def test_the_form_survives_json():
    """Integers above 2^53 stay exact."""
    data = from_json_form(json.loads(json.dumps(DESCRIPTOR)))
    assert data == encode(FrameDescriptor(1, 2**64 - 1, 3))


def test_enums_booleans_groups_and_bytes():
    meta = to_json_form(encode(DataSourceMeta(1, 2, 3, (MetaAttribute("k", "f", b"\x00\xff"),))))
    assert meta["fields"]["attributes"] == [{"key": "k", "format": "f", "value": "00ff"}]
    request = to_json_form(encode(ShmAttachRequest(1, 2, 3, Role.CONSUMER, require_hugepages=False)))
    assert request["fields"]["role"] == "CONSUMER"
    assert request["fields"]["require_hugepages"] is False
    assert request["fields"]["publish_mode"] is None


def test_the_block_length_chooses_the_dialect():
    newer = NewerShmAttachRequest(1, 2, 3, Role.CONSUMER)
    form = to_json_form(encode(newer))
    assert form["message"] == "ShmAttachRequest"
    assert form["header"]["block_length"] == 27
    assert form["fields"]["require_hugepages"] == "UNSPECIFIED"
    assert from_json_form(form) == encode(newer)
    packed = encode(EventMessage(1, 2, Format.BIT), block_length=38)
    assert to_json_form(packed)["message"] == "EventMessage"
    assert from_json_form(to_json_form(packed)) == packed


def test_without_a_header_it_is_our_dialect():
    fields = {"correlation_id": 1, "stream_id": 2, "client_id": 3, "role": "CONSUMER"}
    data = from_json_form({"message": "ShmAttachRequest", "fields": fields})
    assert peek(data).block_length == 24


def test_kind_and_extra_keys_may_be_missing_or_more():
    form = {"file": "x", "size": 48, "sha256": "...", **DESCRIPTOR}
    del form["kind"]
    assert from_json_form(form) == from_json_form(DESCRIPTOR)
    for entry in (SLOT, SUPERBLOCK):
        kindless = {"fields": entry["fields"]}
        assert from_json_form(kindless) == read_reference(entry)


def test_slots():
    data = read_reference(SLOT)
    form = to_json_form(data)
    assert form["fields"]["tensor_message_header"] == {
        "block_length": 184,
        "schema_id": 900,
        "template_id": 52,
        "version": 1,
    }
    assert form["fields"]["header_bytes_length"] == 192
    assert from_json_form(form) == data


def test_a_slot_that_was_never_written():
    form = to_json_form(bytes(256))
    assert form["kind"] == "slot256"
    assert form["fields"]["tensor_header"] is None
    assert form["fields"]["tensor_message_header"] is None
    assert from_json_form(form) == bytes(256)


def test_superblocks_show_their_region_type_as_a_number():
    form = to_json_form(read_reference(SUPERBLOCK))
    assert form["fields"]["region_type"] == 1
    assert from_json_form(form) == read_reference(SUPERBLOCK)
    by_name = with_fields(form, region_type="HEADER_RING")
    assert from_json_form(by_name) == read_reference(SUPERBLOCK)


def test_kinds_are_guessed():
    for entry in reference_entries():
        assert guess_kind(read_reference(entry)) == entry["kind"]
    assert guess_kind(b"") == "message"
    assert guess_kind(shm.MAGIC.to_bytes(8, "little") + bytes(5000)) == "superblock"
    message_of_256 = encode(BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False, b"", bytes(199)))
    assert len(message_of_256) == 256
    assert guess_kind(message_of_256) == "message"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_be_forced(kind):
    assert kind in KINDS
    entry = {"message": reference_entries()[1], "slot256": SLOT, "superblock": SUPERBLOCK}[kind]
    assert to_json_form(read_reference(entry), kind)["kind"] == kind
    other = {"message": "slot256", "slot256": "superblock", "superblock": "message"}[kind]
    with pytest.raises(MalformedMessageError):
        to_json_form(read_reference(entry), other)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (None, "the form: an object is needed"),
        ([], "the form: an object is needed"),
        ({}, "fields: an object is needed"),
        ({"message": "FrameDescriptor"}, "fields: an object is needed"),
        ({"fields": {}}, "there is no message None"),
        ({"message": ["x"], "fields": {}}, "there is no message"),
        ({"message": "Nothing", "fields": {}}, "message: there is no message 'Nothing'"),
        ({"kind": "poem", "fields": {}}, "kind: 'poem' is none of message, slot256, superblock"),
        ({**DESCRIPTOR, "header": []}, None),
        ({**DESCRIPTOR, "header": 5}, "header: an object is needed"),
        ({**DESCRIPTOR, "header": {"block_length": 40}}, "header.template_id: missing"),
        (
            {**DESCRIPTOR, "header": {**DESCRIPTOR["header"], "block_length": 41}},
            "no message 'FrameDescriptor' with a block of 41 bytes",
        ),
        (
            {**DESCRIPTOR, "header": {**DESCRIPTOR["header"], "schema_id": 901}},
            "header: that of FrameDescriptor",
        ),
        ({**DESCRIPTOR, "header": {**DESCRIPTOR["header"], "version": 2}}, "header: that of FrameDescriptor"),
        (with_fields(DESCRIPTOR, colour="red"), "fields.colour: there is no such field"),
        (without(DESCRIPTOR, "seq"), "fields.seq: missing"),
        (with_fields(DESCRIPTOR, seq=None), "fields.seq: a whole number is needed"),
        (with_fields(DESCRIPTOR, seq="3"), "fields.seq: a whole number is needed"),
        (with_fields(DESCRIPTOR, seq=True), "fields.seq: a whole number is needed"),
        (with_fields(DESCRIPTOR, seq=3.5), "fields.seq: a whole number is needed"),
        (with_fields(DESCRIPTOR, seq=-1), "FrameDescriptor.seq: -1 is not a uint64"),
        (with_fields(DESCRIPTOR, seq=10**400), "FrameDescriptor.seq: .* is not a uint64"),
        (with_fields(SLOT, header_bytes_length=191), "fields.header_bytes_length: 191 must be 192"),
        (with_fields(SLOT, tensor_message_header={}), "fields.tensor_message_header: {} must be"),
        (with_fields(SLOT, tensor_header=None), "fields.header_bytes_length: 192 must be 0"),
        (with_fields(SLOT, tensor_header=7), "fields.tensor_header: an object is needed"),
        (
            with_fields(SLOT, tensor_header={**SLOT["fields"]["tensor_header"], "dtype": "UINT7"}),
            "fields.tensor_header.dtype: 'UINT7' is none of UNKNOWN, UINT8",
        ),
        (
            with_fields(SLOT, tensor_header={**SLOT["fields"]["tensor_header"], "dims": 3}),
            "fields.tensor_header.dims: a list is needed",
        ),
        (
            with_fields(SLOT, tensor_header={**SLOT["fields"]["tensor_header"], "dims": [1, "2"]}),
            r"fields.tensor_header.dims\[1\]: a whole number is needed",
        ),
        (
            with_fields(SLOT, tensor_header={**SLOT["fields"]["tensor_header"], "dims": [1, 2]}),
            r"TensorHeader.dims: \(1, 2\) is not a int32\[8\]",
        ),
        (with_fields(SUPERBLOCK, region_type=3), "fields.region_type: 3 is none of"),
        (with_fields(SUPERBLOCK, region_type=True), "fields.region_type: True is none of"),
        (without(SUPERBLOCK, "pid"), "fields.pid: missing"),
    ],
    ids=str,
)
def test_wrong_forms_are_refused(form, problem):
    if problem is None:  # an empty header is no header
        assert from_json_form(form) == from_json_form(DESCRIPTOR)
        return
    with pytest.raises(MalformedMessageError, match=problem):
        from_json_form(form)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({}, r"fields.attributes: a list is needed"),
        ([5], r"fields.attributes\[0\]: an object is needed"),
        ([{"key": "k", "format": "f", "value": "0"}], r"attributes\[0\].value: not hexadecimal text"),
        ([{"key": "k", "format": "f", "value": 5}], r"attributes\[0\].value: hexadecimal text is needed"),
        ([{"key": 1, "format": "f", "value": ""}], r"attributes\[0\].key: text is needed"),
        ([{"key": "k", "format": "f"}], r"attributes\[0\].value: missing"),
    ],
)
def test_wrong_groups_are_refused(attributes, problem):
    form = {
        "message": "DataSourceMeta",
        "fields": {"stream_id": 1, "meta_version": 2, "timestamp_ns": 3, "attributes": attributes},
    }
    with pytest.raises(MalformedMessageError, match=problem):
        from_json_form(form)


def test_a_longer_block_is_shown_as_it_came():
    """A newer FrameDescriptor: its header is printed as it was, which we can't write back."""
    data = encode(FrameDescriptor(1, 2, 3)) + b"12345678"
    grown = msgspec.structs.replace(peek(data), block_length=48, version=2).to_bytes() + data[8:]
    form = to_json_form(grown)
    assert form["header"] == {"block_length": 48, "schema_id": 900, "template_id": 4, "version": 2}
    assert form["fields"]["seq"] == 3
    with pytest.raises(MalformedMessageError, match="with a block of 48 bytes"):
        from_json_form(form)
