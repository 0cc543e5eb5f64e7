"""Every value of every enum has its byte; every other number is refused in both directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire import decode, encode, shm
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ClockDomain,
    ConsumerHello,
    ControlResponse,
    DiscoveryResponse,
    DiscoveryStatus,
    EventMessage,
    Format,
    FrameProgress,
    FrameProgressState,
    LeaseRevokeReason,
    Mode,
    PayloadPool,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmDetachResponse,
    ShmDriverShutdown,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    ShutdownReason,
)

HEADER = 8


class Place(NamedTuple):
    """A field that carries an enum: a struct with any value there, and where its bytes lie."""

    mark: pytest.MarkDecorator
    struct: Any
    field: str
    offset: int
    size: int
    values: dict[str, int]
    null: int | None = None


HELLO = ConsumerHello(1, 2, True, True, Mode.STREAM)
ATTACH = ShmAttachRequest(1, 2, 3, Role.PRODUCER)
REVOKED = ShmLeaseRevoked(1, 2, 3, 4, Role.PRODUCER, LeaseRevokeReason.DETACHED)
ANNOUNCE = ShmPoolAnnounce(
    1, 2, 3, 4, ClockDomain.MONOTONIC, 1, 8, 256, (PayloadPool(1, 8, 64, "uri"),), "uri"
)
SUPERBLOCK = shm.ShmRegionSuperblock(shm.MAGIC, 1, 2, 3, shm.RegionType.HEADER_RING, 0, 8, 256, 0, 1, 2, 3)
TENSOR = shm.TensorHeader(
    shm.Dtype.UINT8, shm.MajorOrder.ROW, 1, shm.ProgressUnit.NONE, 0, (1,) * 8, (0,) * 8
)

BOOL = {"False": 0, "True": 1}
CODES = {"OK": 0, "UNSUPPORTED": 1, "INVALID_PARAMS": 2, "REJECTED": 3, "INTERNAL_ERROR": 4}
DTYPES = {
    "UNKNOWN": 0,
    "UINT8": 1,
    "INT8": 2,
    "UINT16": 3,
    "INT16": 4,
    "UINT32": 5,
    "INT32": 6,
    "UINT64": 7,
    "INT64": 8,
    "FLOAT32": 9,
    "FLOAT64": 10,
    "BOOLEAN": 11,
    "BYTES": 13,
    "BIT": 14,
}
FORMATS = {
    "NOTHING": 0,
    "UINT8": 1,
    "INT8": 2,
    "UINT16": 3,
    "INT16": 4,
    "UINT32": 5,
    "INT32": 6,
    "UINT64": 7,
    "INT64": 8,
    "FLOAT32": 9,
    "FLOAT64": 10,
    "BOOLEAN": 11,
    "STRING": 12,
    "BYTES": 13,
    "BIT": 14,
    "REF": 15,
}

PLACES = [
    Place(pytest.mark.req("WIRE-16-8"), HELLO, "supports_shm", 8, 1, BOOL),
    Place(pytest.mark.req("WIRE-16-8"), HELLO, "supports_progress", 9, 1, BOOL),
    Place(pytest.mark.req("WIRE-16-9"), HELLO, "mode", 10, 1, {"STREAM": 1, "RATE_LIMITED": 2}),
    Place(
        pytest.mark.req("WIRE-16-10"),
        FrameProgress(1, 2, 3, 4, FrameProgressState.UNKNOWN),
        *("state", 28, 1, {"UNKNOWN": 0, "STARTED": 1, "PROGRESS": 2, "COMPLETE": 3}),
    ),
    Place(pytest.mark.req("WIRE-16-11"), TENSOR, "progress_unit", 6, 1, {"NONE": 0, "ROWS": 1, "COLUMNS": 2}),
    Place(pytest.mark.req("WIRE-16-12"), ControlResponse(1, ResponseCode.OK), "code", 8, 4, CODES),
    Place(
        pytest.mark.req("WIRE-16-13", "WIRE-10.1.1-3"),
        ANNOUNCE,
        "announce_clock_domain",
        24,
        1,
        {"MONOTONIC": 1, "REALTIME_SYNCED": 2},
    ),
    Place(
        pytest.mark.req("WIRE-16-14"), SUPERBLOCK, "region_type", 24, 2, {"HEADER_RING": 1, "PAYLOAD_POOL": 2}
    ),
    Place(pytest.mark.req("WIRE-16-15"), TENSOR, "dtype", 0, 2, DTYPES),
    Place(pytest.mark.req("WIRE-16-16"), TENSOR, "major_order", 2, 2, {"UNKNOWN": 0, "ROW": 1, "COLUMN": 2}),
    Place(pytest.mark.req("DRV-A-4"), ATTACH, "require_hugepages", 23, 1, BOOL, null=255),
    Place(pytest.mark.req("DRV-A-5"), ShmDetachResponse(1, ResponseCode.OK), "code", 8, 4, CODES),
    Place(pytest.mark.req("DRV-A-6"), ATTACH, "role", 16, 1, {"PRODUCER": 1, "CONSUMER": 2}),
    Place(
        pytest.mark.req("DRV-A-7"),
        ATTACH,
        "publish_mode",
        22,
        1,
        {"REQUIRE_EXISTING": 1, "EXISTING_OR_CREATE": 2},
        null=255,
    ),
    Place(pytest.mark.req("DRV-A-8"), REVOKED, "reason", 25, 1, {"DETACHED": 1, "EXPIRED": 2, "REVOKED": 3}),
    Place(
        pytest.mark.req("DRV-A-9"),
        ShmDriverShutdown(1, ShutdownReason.NORMAL),
        *("reason", 8, 1, {"NORMAL": 0, "ADMIN": 1, "ERROR": 2}),
    ),
    Place(
        pytest.mark.req("BRG-11-4"),
        BridgeFrameChunk(1, 2, 3, 0, 1, 0, 0, 0, False),
        "header_included",
        40,
        1,
        BOOL,
    ),
    Place(
        pytest.mark.req("DSC-15-3"),
        DiscoveryResponse(1, DiscoveryStatus.OK),
        *("status", 8, 1, {"OK": 1, "NOT_FOUND": 2, "ERROR": 3}),
    ),
    Place(pytest.mark.req("SVC-5.1-2"), EventMessage(1, 2, Format.NOTHING), "format", 16, 1, FORMATS),
]


def encode_any(struct: Any) -> bytes:
    if isinstance(struct, shm.ShmRegionSuperblock):
        return shm.encode_superblock(struct)
    if isinstance(struct, shm.TensorHeader):
        return shm.encode_tensor_header(struct)
    return encode(struct)


def decode_like(struct: Any, data: bytes) -> Any:
    if isinstance(struct, shm.ShmRegionSuperblock):
        return shm.decode_superblock(data)
    if isinstance(struct, shm.TensorHeader):
        return shm.decode_tensor_header(data)
    return decode(data)


def start_of(place: Place) -> int:
    return place.offset + (0 if isinstance(place.struct, shm.ShmRegionSuperblock) else HEADER)


places = pytest.mark.parametrize(
    "place",
    [
        pytest.param(
            place,
            id=f"{type(place.struct).__name__}.{place.field}",
            marks=place.mark,
        )
        for place in PLACES
    ],
)


@places
def test_each_value_has_its_number(place):
    kind = type(getattr(place.struct, place.field))
    if kind is not bool and kind is not type(None):
        assert {member.name: member.value for member in kind} == place.values
    for name, number in place.values.items():
        value = number == 1 if place.values is BOOL else number
        data = encode_any(msgspec.structs.replace(place.struct, **{place.field: value}))
        start = start_of(place)
        assert data[start : start + place.size] == number.to_bytes(place.size, "little"), name
        decoded = getattr(decode_like(place.struct, data), place.field)
        assert decoded == value
        assert type(decoded) in (kind, bool) or getattr(decoded, "name", None) == name


@places
def test_unlisted_numbers_are_refused_on_decode(place):
    data = bytearray(encode_any(place.struct))
    start = start_of(place)
    listed = {*place.values.values(), place.null}
    interesting = {*range(256), 256, (1 << (8 * place.size)) - 1, 1 << (8 * place.size - 1)}
    refused = 0
    for number in sorted(interesting - listed):
        if number < 1 << (8 * place.size):
            data[start : start + place.size] = number.to_bytes(place.size, "little")
            with pytest.raises(MalformedMessageError, match="is none of its values"):
                decode_like(place.struct, bytes(data))
            refused += 1
    assert refused > 200


@places
def test_unlisted_numbers_are_refused_on_encode(place):
    unlisted = max(place.values.values()) + 1
    wrong = msgspec.structs.replace(place.struct, **{place.field: unlisted})
    with pytest.raises(MalformedMessageError, match=f"{place.field}: {unlisted} is not a"):
        encode_any(wrong)


@pytest.mark.req("DRV-4.2-16", "DRV-A-4", "DRV-A-7")
def test_absent_optional_enums_are_255():
    data = encode(ATTACH)
    assert data[HEADER + 22 :] == b"\xff\xff"
    assert decode(data).publish_mode is None
    assert decode(data).require_hugepages is None


@pytest.mark.req("WIRE-15.8-1", "WIRE-15.8-2")
@pytest.mark.parametrize(("offset", "number"), [(0, 12), (0, 15), (0, -1), (2, 3)])
def test_unknown_element_types_and_orders_are_refused(offset, number):
    data = bytearray(shm.encode_tensor_header(TENSOR))
    data[HEADER + offset : HEADER + offset + 2] = number.to_bytes(2, "little", signed=True)
    with pytest.raises(MalformedMessageError):
        shm.decode_tensor_header(data)
