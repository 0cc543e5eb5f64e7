"""Each message with distinct values, and its bytes, packed by hand from the byte tables."""

from __future__ import annotations

import struct

import pytest

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.wire.messages import (
    BridgeFrameChunk,
    ClockDomain,
    ConsumerConfig,
    ConsumerHello,
    ControlResponse,
    DataSourceAnnounce,
    DataSourceMeta,
    DiscoveryRequest,
    DiscoveryResponse,
    DiscoveryResult,
    DiscoveryStatus,
    DiscoveryTag,
    DriverAnnounce,
    DriverState,
    DriverStatus,
    EventMessage,
    Format,
    FrameDescriptor,
    FrameProgress,
    FrameProgressState,
    GetDriverStatus,
    HugepagesPolicy,
    LeaseEntry,
    LeaseRevokeReason,
    LeaseRevokeResult,
    LeasesListed,
    ListLeases,
    ListStreams,
    MetaAttribute,
    MetaBlobAnnounce,
    MetaBlobChunk,
    MetaBlobComplete,
    Mode,
    NewerBridgeFrameChunk,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PayloadPool,
    PublishMode,
    QosConsumer,
    QosProducer,
    ResolveStream,
    ResponseCode,
    RevokeLease,
    Role,
    SequenceMergeMapAnnounce,
    SequenceMergeMapRequest,
    SequenceMergeRule,
    SequenceRule,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmDetachResponse,
    ShmDriverShutdown,
    ShmDriverShutdownRequest,
    ShmLeaseKeepalive,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    ShutdownReason,
    StreamEntry,
    StreamPool,
    StreamResolved,
    StreamsListed,
    TimestampMergeMapAnnounce,
    TimestampMergeMapRequest,
    TimestampMergeRule,
    TimestampRule,
    TimestampSource,
    TraceLinkSet,
    TraceParent,
)

# Values whose bytes all differ, so that swapped fields or bytes show.
A8, B8, C8, D8, E8 = (
    0x0102030405060708,
    0x1112131415161718,
    0x2122232425262728,
    0x3132333435363738,
    0x4142434445464748,
)
A4, B4, C4, D4, E4, F4 = 0x51525354, 0x55565758, 0x595A5B5C, 0x61626364, 0x65666768, 0x696A6B6C
A2 = 0x7172
DIMS = (1, 2, 3, 4, 5, 6, 7, -8)
NULL4, NULL8 = b"\xff" * 4, b"\xff" * 8


def u1(*values: int) -> bytes:
    return bytes(values)


def u2(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


def u4(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u8(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def i2(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}h", *values)


def i4(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def i8(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def var(content: bytes) -> bytes:
    return u4(len(content)) + content


def header(block_length: int, template_id: int, schema_id: int) -> bytes:
    return u2(block_length, template_id, schema_id, 1)


def group(block_length: int, *entries: bytes) -> bytes:
    return u2(block_length, len(entries)) + b"".join(entries)


POOL = PayloadPool(pool_id=A2, pool_nslots=A4, stride_bytes=B4, region_uri="uri")
POOL_BYTES = u2(A2) + u4(A4, B4) + var(b"uri")


def golden(message, mark, *parts):
    """A message, the mark of the requirement about it (None: an extension), and its bytes in pieces."""
    marks = [mark] if mark else []
    return pytest.param(message, b"".join(parts), id=type(message).__name__, marks=marks)


GOLDEN = [
    # 900
    golden(
        ShmPoolAnnounce(A4, B4, A8, B8, ClockDomain.REALTIME_SYNCED, C4, D4, A2, (POOL, POOL), "ring"),
        pytest.mark.req("WIRE-16-17"),
        header(35, 1, 900),
        u4(A4, B4) + u8(A8, B8) + u1(2) + u4(C4, D4) + u2(A2),
        group(10, POOL_BYTES, POOL_BYTES),
        var(b"ring"),
    ),
    golden(
        ConsumerHello(A4, B4, True, False, Mode.RATE_LIMITED, C4, D4, E4, F4, 7, 8, 9, "dc", "c"),
        pytest.mark.req("WIRE-16-18"),
        header(39, 2, 900),
        u4(A4, B4) + u1(1, 0, 2) + u4(C4, D4, E4, F4, 7, 8, 9),
        var(b"dc") + var(b"c"),
    ),
    golden(
        ConsumerConfig(A4, B4, False, Mode.STREAM, C4, D4, "fallback", "dc", "c"),
        pytest.mark.req("WIRE-16-19"),
        header(18, 3, 900),
        u4(A4, B4) + u1(0, 1) + u4(C4, D4),
        var(b"fallback") + var(b"dc") + var(b"c"),
    ),
    golden(
        FrameDescriptor(A4, A8, B8, C8, B4, D8),
        pytest.mark.req("WIRE-16-20"),
        header(40, 4, 900),
        u4(A4) + u8(A8, B8, C8) + u4(B4) + u8(D8),
    ),
    golden(
        QosConsumer(A4, B4, A8, B8, C8, D8, Mode.STREAM),
        pytest.mark.req("WIRE-16-21"),
        header(41, 5, 900),
        u4(A4, B4) + u8(A8, B8, C8, D8) + u1(1),
    ),
    golden(
        QosProducer(A4, B4, A8, B8, C4),
        pytest.mark.req("WIRE-16-22"),
        header(28, 6, 900),
        u4(A4, B4) + u8(A8, B8) + u4(C4),
    ),
    golden(
        DataSourceAnnounce(A4, B4, A8, C4, "name", "summary"),
        pytest.mark.req("WIRE-16-23"),
        header(20, 7, 900),
        u4(A4, B4) + u8(A8) + u4(C4),
        var(b"name") + var(b"summary"),
    ),
    golden(
        DataSourceMeta(A4, B4, A8, (MetaAttribute("k", "f", b"\x00\xff"), MetaAttribute("", "", b""))),
        pytest.mark.req("WIRE-16-24"),
        header(16, 8, 900),
        u4(A4, B4) + u8(A8),
        group(0, var(b"k") + var(b"f") + var(b"\x00\xff"), bytes(12)),
    ),
    golden(
        ControlResponse(-A8, ResponseCode.REJECTED, "no"),
        pytest.mark.req("WIRE-16-25"),
        header(12, 9, 900),
        i8(-A8) + i4(3) + var(b"no"),
    ),
    golden(
        MetaBlobAnnounce(A4, B4, C4, A8, B8),
        pytest.mark.req("WIRE-10.3.3-6"),
        header(28, 10, 900),
        u4(A4, B4, C4) + u8(A8, B8),
    ),
    golden(
        FrameProgress(A4, A8, B8, C8, FrameProgressState.COMPLETE),
        pytest.mark.req("WIRE-16-26"),
        header(29, 11, 900),
        u4(A4) + u8(A8, B8, C8) + u1(3),
    ),
    golden(
        MetaBlobChunk(A4, B4, A8, b"\x00\x80\xff"),
        pytest.mark.req("WIRE-10.3.3-6"),
        header(16, 12, 900),
        u4(A4, B4) + u8(A8) + var(b"\x00\x80\xff"),
    ),
    golden(
        MetaBlobComplete(A4, B4, A8),
        pytest.mark.req("WIRE-10.3.3-6"),
        header(16, 13, 900),
        u4(A4, B4) + u8(A8),
    ),
    # 901
    golden(
        ShmAttachRequest(A8, A4, B4, Role.CONSUMER, C4, 8, PublishMode.EXISTING_OR_CREATE, True),
        pytest.mark.req("DRV-A-10"),
        header(24, 1, 901),
        i8(A8) + u4(A4, B4) + u1(2) + u4(C4) + u1(8, 2, 1),
    ),
    golden(
        NewerShmAttachRequest(
            A8, A4, B4, Role.PRODUCER, C4, PublishMode.REQUIRE_EXISTING, HugepagesPolicy.HUGEPAGES, D4
        ),
        None,
        header(27, 1, 901),
        i8(A8) + u4(A4, B4) + u1(1) + u4(C4) + u1(1, 2) + u4(D4),
    ),
    golden(
        ShmAttachResponse(
            A8, ResponseCode.OK, B8, C8, A4, D8, B4, C4, A2, 8, (POOL,), "ring", "text"
        ),
        pytest.mark.req("DRV-A-11"),
        header(51, 2, 901),
        i8(A8) + i4(0) + u8(B8, C8) + u4(A4) + u8(D8) + u4(B4, C4) + u2(A2) + u1(8),
        group(10, POOL_BYTES),
        var(b"ring") + var(b"text"),
    ),
    golden(
        NewerShmAttachResponse(
            A8, ResponseCode.INTERNAL_ERROR, B8, C8, A4, D8, B4, C4, A2, D4, (POOL, POOL), "ring", "text"
        ),
        None,
        header(54, 2, 901),
        i8(A8) + i4(4) + u8(B8, C8) + u4(A4) + u8(D8) + u4(B4, C4) + u2(A2) + u4(D4),
        group(10, POOL_BYTES, POOL_BYTES),
        var(b"ring") + var(b"text"),
    ),
    golden(
        ShmDetachRequest(A8, B8, A4, B4, Role.PRODUCER),
        pytest.mark.req("DRV-A-12"),
        header(25, 3, 901),
        i8(A8) + u8(B8) + u4(A4, B4) + u1(1),
    ),
    golden(
        ShmDetachResponse(A8, ResponseCode.INVALID_PARAMS, "text"),
        pytest.mark.req("DRV-A-13"),
        header(12, 4, 901),
        i8(A8) + i4(2) + var(b"text"),
    ),
    golden(
        ShmLeaseKeepalive(A8, A4, B4, Role.CONSUMER, B8),
        pytest.mark.req("DRV-A-14"),
        header(25, 5, 901),
        u8(A8) + u4(A4, B4) + u1(2) + u8(B8),
    ),
    golden(
        ShmDriverShutdown(A8, ShutdownReason.ERROR, "text"),
        pytest.mark.req("DRV-A-15"),
        header(9, 6, 901),
        u8(A8) + u1(2) + var(b"text"),
    ),
    golden(
        ShmLeaseRevoked(A8, B8, A4, B4, Role.CONSUMER, LeaseRevokeReason.REVOKED, "text"),
        pytest.mark.req("DRV-A-16"),
        header(26, 7, 901),
        u8(A8, B8) + u4(A4, B4) + u1(2, 3) + var(b"text"),
    ),
    golden(
        ShmDriverShutdownRequest(A8, ShutdownReason.ADMIN, "token", "text"),
        None,
        header(9, 8, 901),
        i8(A8) + u1(1) + var(b"token") + var(b"text"),
    ),
    # 902
    golden(
        BridgeFrameChunk(A4, A8, B8, 1, 65535, B4, 4, 1 << 30, True, b"\x01" * 256, b"\x02" * 4),
        pytest.mark.req("BRG-11-5"),
        header(41, 1, 902),
        u4(A4) + u8(A8, B8) + u4(1, 65535, B4, 4, 1 << 30) + u1(1),
        var(b"\x01" * 256) + var(b"\x02" * 4),
    ),
    golden(
        NewerBridgeFrameChunk(A4, A8, B8, C8, 1, 2, B4, 4, 5, C4, False, b"", b"\x02" * 4),
        None,
        header(53, 1, 902),
        u4(A4) + u8(A8, B8, C8) + u4(1, 2, B4, 4, 5, C4) + u1(0),
        var(b"") + var(b"\x02" * 4),
    ),
    # 903
    golden(
        SequenceMergeMapAnnounce(
            A4,
            A8,
            B8,
            (
                SequenceMergeRule(B4, SequenceRule.OFFSET, -5, None),
                SequenceMergeRule(C4, SequenceRule.WINDOW, None, D4),
            ),
        ),
        None,
        header(20, 1, 903),
        u4(A4) + u8(A8, B8),
        group(
            13,
            u4(B4) + u1(0) + i4(-5) + NULL4,
            u4(C4) + u1(1) + i4(-(2**31)) + u4(D4),
        ),
    ),
    golden(SequenceMergeMapRequest(A4, A8), None, header(12, 2, 903), u4(A4) + u8(A8)),
    golden(
        TimestampMergeMapAnnounce(
            A4,
            A8,
            None,
            ClockDomain.MONOTONIC,
            B8,
            (
                TimestampMergeRule(B4, TimestampRule.OFFSET_NS, TimestampSource.SLOT, -C8, None),
                TimestampMergeRule(C4, TimestampRule.WINDOW_NS, TimestampSource.DESCRIPTOR, None, D8),
            ),
        ),
        None,
        header(29, 3, 903),
        u4(A4) + u8(A8) + NULL8 + u1(1) + u8(B8),
        group(
            22,
            u4(B4) + u1(0, 2) + i8(-C8) + NULL8,
            u4(C4) + u1(1, 1) + i8(-(2**63)) + u8(D8),
        ),
    ),
    golden(TimestampMergeMapRequest(A4, A8), None, header(12, 4, 903), u4(A4) + u8(A8)),
    # 904
    golden(
        TraceLinkSet(A4, A8, B8, C8, (TraceParent(D8), TraceParent(E8))),
        None,
        header(28, 1, 904),
        u4(A4) + u8(A8, B8, C8) + group(8, u8(D8), u8(E8)),
    ),
    # 905
    golden(
        EventMessage(-A8, B8, Format.REF, A4, C8, D8, "tag", "key", b"\xfe"),
        pytest.mark.req("SVC-5.1-3"),
        header(40, 1, 905),
        i8(-A8, B8) + u1(15, 0, 0, 0) + u4(A4) + u8(C8, D8),
        var(b"tag") + var(b"key") + var(b"\xfe"),
    ),
    # 906
    golden(
        ResolveStream(
            A8, A4, B4, B8, C4, D4, E4, DIMS, Dtype.FLOAT64, MajorOrder.COLUMN, Role.PRODUCER, 8,
            (StreamPool(64), StreamPool(F4)), "camera",
        ),
        None,
        header(74, 1, 906),
        i8(A8) + u4(A4, B4) + u8(B8) + u4(C4, D4, E4) + i4(*DIMS) + i2(10, 2) + u1(1, 8),
        group(4, u4(64), u4(F4)),
        var(b"camera"),
    ),
    golden(
        StreamResolved(A8, A4, ResponseCode.OK, B8, B4, True, False, "camera", "text"),
        None,
        header(30, 2, 906),
        i8(A8) + u4(A4) + i4(0) + u8(B8) + u4(B4) + u1(1, 0) + var(b"camera") + var(b"text"),
    ),
    golden(ListStreams(A8, A4, B4, C4), None, header(20, 3, 906), i8(A8) + u4(A4, B4, C4)),
    golden(
        StreamsListed(
            A8, A4, ResponseCode.OK, B4, C4,
            (StreamEntry(B8, C8, D8, E8, 5, D4, E4, 2, F4, 9, DIMS, Dtype.BIT, MajorOrder.ROW, 3, "n"),),
            "text",
        ),
        None,
        header(24, 4, 906),
        i8(A8) + u4(A4) + i4(0) + u4(B4, C4),
        group(
            97,
            u8(B8, C8, D8, E8, 5) + u4(D4, E4, 2, F4, 9) + i4(*DIMS) + i2(14, 1) + u1(3) + var(b"n"),
        ),
        var(b"text"),
    ),
    golden(ListLeases(A8, A4, None, B4, C4), None, header(24, 5, 906), i8(A8) + u4(A4) + NULL4 + u4(B4, C4)),
    golden(
        LeasesListed(
            A8, A4, ResponseCode.OK, B4, C4, (LeaseEntry(B8, C8, None, D8, E8, D4, E4, Role.CONSUMER),), ""
        ),
        None,
        header(24, 6, 906),
        i8(A8) + u4(A4) + i4(0) + u4(B4, C4),
        group(49, u8(B8, C8) + NULL8 + u8(D8, E8) + u4(D4, E4) + u1(2)),
        var(b""),
    ),
    golden(
        RevokeLease(A8, A4, B4, B8, "token", "why"),
        None,
        header(24, 7, 906),
        i8(A8) + u4(A4, B4) + u8(B8) + var(b"token") + var(b"why"),
    ),
    golden(
        LeaseRevokeResult(A8, A4, ResponseCode.REJECTED, B8, "text"),
        None,
        header(24, 8, 906),
        i8(A8) + u4(A4) + i4(3) + u8(B8) + var(b"text"),
    ),
    golden(GetDriverStatus(A8, A4), None, header(12, 9, 906), i8(A8) + u4(A4)),
    golden(
        DriverStatus(
            A8, A4, ResponseCode.OK, B8, C8, D8, E8, None, B4, C4, D4, E4, F4, 1, 2, 3,
            DriverState.DRAINING, "id", "1.0", "text",
        ),
        None,
        header(89, 10, 906),
        i8(A8) + u4(A4) + i4(0) + u8(B8, C8, D8, E8) + NULL8,
        u4(B4, C4, D4, E4, F4, 1, 2, 3) + u1(3) + var(b"id") + var(b"1.0") + var(b"text"),
    ),
    golden(
        DriverAnnounce(A8, A4, B4, "id", "ch", "host"),
        None,
        header(16, 11, 906),
        u8(A8) + u4(A4, B4) + var(b"id") + var(b"ch") + var(b"host"),
    ),
    # 910
    golden(
        DiscoveryRequest(A8, A4, B4, C4, D4, B8, (DiscoveryTag("a"), DiscoveryTag("bc")), "ch", "name"),
        pytest.mark.req("DSC-15-4"),
        header(32, 1, 910),
        u8(A8) + u4(A4, B4, C4, D4) + u8(B8),
        group(0, var(b"a"), var(b"bc")),
        var(b"ch") + var(b"name"),
    ),
    golden(
        DiscoveryResponse(
            A8,
            DiscoveryStatus.OK,
            (
                DiscoveryResult(
                    A4, B4, B8, C4, D4, A2, 8, C8, E4, (POOL,), (DiscoveryTag("t"),), "h", "n", "i", "c"
                ),
                DiscoveryResult(A4, B4, B8, C4, D4, A2, 8, None, E4),
            ),
            "text",
        ),
        pytest.mark.req("DSC-15-5"),
        header(9, 2, 910),
        u8(A8) + u1(1),
        group(
            39,
            u4(A4, B4) + u8(B8) + u4(C4, D4) + u2(A2) + u1(8) + u8(C8) + u4(E4)
            + group(10, POOL_BYTES) + group(0, var(b"t"))
            + var(b"h") + var(b"n") + var(b"i") + var(b"c"),
            u4(A4, B4) + u8(B8) + u4(C4, D4) + u2(A2) + u1(8) + NULL8 + u4(E4)
            + group(10) + group(0) + var(b"") * 4,
        ),
        var(b"text"),
    ),
]  # fmt: skip
