"""Bytes made by the reference SBE tool decode to their fields and encode back to themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from tensor_pool.wire import decode, encode
from tensor_pool.wire.json_form import from_json_form, guess_kind, to_json_form
from wire_vectors import VECTORS, read_reference, reference_entries

ENTRIES = reference_entries()

# The rows that ask for the decoding of a foreign encoding, by schema and template.
REQUIREMENTS = {
    "ShmPoolAnnounce": pytest.mark.req("WIRE-16-17"),
    "ConsumerHello": pytest.mark.req("WIRE-16-18"),
    "ConsumerConfig": pytest.mark.req("WIRE-16-19"),
    "FrameDescriptor": pytest.mark.req("WIRE-16-20"),
    "QosConsumer": pytest.mark.req("WIRE-16-21"),
    "QosProducer": pytest.mark.req("WIRE-16-22"),
    "DataSourceAnnounce": pytest.mark.req("WIRE-16-23"),
    "DataSourceMeta": pytest.mark.req("WIRE-16-24"),
    "ControlResponse": pytest.mark.req("WIRE-16-25"),
    "FrameProgress": pytest.mark.req("WIRE-16-26"),
    "superblock": pytest.mark.req("WIRE-16-27"),
    "slot256": pytest.mark.req("WIRE-16-28"),
    "ShmAttachRequest": pytest.mark.req("DRV-A-10"),
    "ShmAttachResponse": pytest.mark.req("DRV-A-11"),
    "ShmDetachRequest": pytest.mark.req("DRV-A-12"),
    "ShmDetachResponse": pytest.mark.req("DRV-A-13"),
    "ShmLeaseKeepalive": pytest.mark.req("DRV-A-14"),
    "ShmDriverShutdown": pytest.mark.req("DRV-A-15"),
    "ShmLeaseRevoked": pytest.mark.req("DRV-A-16"),
    "BridgeFrameChunk": pytest.mark.req("BRG-11-5"),
    "DiscoveryRequest": pytest.mark.req("DSC-15-4"),
    "DiscoveryResponse": pytest.mark.req("DSC-15-5"),
    "EventMessage": pytest.mark.req("SVC-5.1-3"),
}


def cases(requirements: Mapping[str, pytest.MarkDecorator]) -> list[Any]:
    return [
        pytest.param(
            entry,
            id=entry["file"],
            marks=requirements[entry.get("message") or entry["kind"]],
        )
        for entry in ENTRIES
    ]


def test_every_file_is_listed():
    assert {entry["file"] for entry in ENTRIES} == {path.name for path in VECTORS.glob("*.bin")}
    assert {entry.get("message") or entry["kind"] for entry in ENTRIES} == set(REQUIREMENTS)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
def test_the_copy_is_intact(entry):
    data = read_reference(entry)
    assert len(data) == entry["size"]
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("entry", cases(REQUIREMENTS))
def test_decodes_to_its_fields(entry):
    data = read_reference(entry)
    form = to_json_form(data)
    assert form["kind"] == entry["kind"] == guess_kind(data)
    assert form["fields"] == entry["fields"]
    assert form.get("message") == entry.get("message")
    assert form.get("header") == entry.get("header")


@pytest.mark.req("WIRE-15.16-4")
@pytest.mark.parametrize("entry", cases(REQUIREMENTS))
def test_encodes_back_to_its_bytes(entry):
    assert from_json_form(entry) == read_reference(entry)


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry["kind"] == "message"], ids=lambda entry: entry["file"]
)
def test_structs_round_trip_in_their_dialect(entry):
    data = read_reference(entry)
    assert encode(decode(data)) == data
    assert decode(memoryview(data)) == decode(bytearray(data)) == decode(data)
