"""Bytes made by the reference SBE tool decode to their fields and encode back to themselves."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tensor_pool.wire import decode, encode
from tensor_pool.wire.json_form import from_json_form, guess_kind, to_json_form
from wire_vectors import VECTORS, read_reference, reference_entries

ENTRIES = reference_entries()

# The rows that ask for the decoding of a foreign encoding, by schema and template.
REQUIREMENTS = {
    "ShmPoolAnnounce": "WIRE-16-17",
    "ConsumerHello": "WIRE-16-18",
    "ConsumerConfig": "WIRE-16-19",
    "FrameDescriptor": "WIRE-16-20",
    "QosConsumer": "WIRE-16-21",
    "QosProducer": "WIRE-16-22",
    "DataSourceAnnounce": "WIRE-16-23",
    "DataSourceMeta": "WIRE-16-24",
    "ControlResponse": "WIRE-16-25",
    "FrameProgress": "WIRE-16-26",
    "superblock": "WIRE-16-27",
    "slot256": "WIRE-16-28",
    "ShmAttachRequest": "DRV-A-10",
    "ShmAttachResponse": "DRV-A-11",
    "ShmDetachRequest": "DRV-A-12",
    "ShmDetachResponse": "DRV-A-13",
    "ShmLeaseKeepalive": "DRV-A-14",
    "ShmDriverShutdown": "DRV-A-15",
    "ShmLeaseRevoked": "DRV-A-16",
    "BridgeFrameChunk": "BRG-11-5",
    "DiscoveryRequest": "DSC-15-4",
    "DiscoveryResponse": "DSC-15-5",
    "EventMessage": "SVC-5.1-3",
}


def cases() -> list[Any]:
    return [
        pytest.param(
            entry,
            id=entry["file"],
            marks=pytest.mark.req(REQUIREMENTS[entry.get("message") or entry["kind"]], "WIRE-15.16-4"),
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


@pytest.mark.parametrize("entry", cases())
def test_decodes_to_its_fields(entry):
    data = read_reference(entry)
    form = to_json_form(data)
    assert form["kind"] == entry["kind"] == guess_kind(data)
    assert form["fields"] == entry["fields"]
    assert form.get("message") == entry.get("message")
    assert form.get("header") == entry.get("header")


@pytest.mark.parametrize("entry", cases())
def test_encodes_back_to_its_bytes(entry):
    assert from_json_form(entry) == read_reference(entry)


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry["kind"] == "message"], ids=lambda entry: entry["file"]
)
def test_structs_round_trip_in_their_dialect(entry):
    data = read_reference(entry)
    assert encode(decode(data)) == data
    assert decode(memoryview(data)) == decode(bytearray(data)) == decode(data)
