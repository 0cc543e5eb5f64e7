"""What tests of discovery share: announces, drivers, requests."""

from __future__ import annotations

import msgspec

from tensor_pool.discovery.authority import Authority
from tensor_pool.wire.messages import (
    ClockDomain,
    DataSourceAnnounce,
    DataSourceMeta,
    DiscoveryRequest,
    DiscoveryTag,
    MetaAttribute,
    PayloadPool,
    ShmPoolAnnounce,
)

__all__ = ["LAB", "OTHER", "SECOND", "announce", "described", "meta", "request"]

SECOND = 1_000_000_000
LAB = Authority("lab", "aeron:ipc?term-length=4m", 1000)
OTHER = Authority("other", "aeron:udp?endpoint=10.0.0.2:4000", 1000, "host-2")

_ANNOUNCE = ShmPoolAnnounce(
    stream_id=10_000,
    producer_id=7,
    epoch=5,
    announce_timestamp_ns=1,
    announce_clock_domain=ClockDomain.MONOTONIC,
    layout_version=1,
    header_nslots=8,
    header_slot_bytes=256,
    header_region_uri="shm:file?path=/dev/shm/header.ring",
    payload_pools=(PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),),
)


def announce(**changes: object) -> ShmPoolAnnounce:
    """A sound announce of stream 10000 in epoch 5."""
    return msgspec.structs.replace(_ANNOUNCE, **changes)


def described(
    name: str = "camera", *, stream_id: int = 10_000, epoch: int = 5, version: int = 1
) -> DataSourceAnnounce:
    """The name of a stream."""
    return DataSourceAnnounce(
        stream_id=stream_id, producer_id=7, epoch=epoch, meta_version=version, name=name
    )


def meta(*, stream_id: int = 10_000, version: int = 1, **attributes: str) -> DataSourceMeta:
    """Attributes of a stream, as plain text."""
    entries = tuple(MetaAttribute(key, "text/plain", value.encode()) for key, value in attributes.items())
    return DataSourceMeta(stream_id, version, 0, entries)


def request(*tags: str, **changes: object) -> DiscoveryRequest:
    """A query whose answer goes to stream 7004."""
    asked = DiscoveryRequest(
        request_id=0x1122334455667788,
        client_id=7,
        response_stream_id=7004,
        response_channel="aeron:ipc?term-length=4m",
        tags=tuple(DiscoveryTag(tag) for tag in tags),
    )
    return msgspec.structs.replace(asked, **changes)
