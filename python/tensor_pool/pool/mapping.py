"""From an announce to a ring that can be mapped.

An announce comes from another process and is not trusted: what it says about the layout is checked here,
before any file is looked at. That its files are what it says is checked by whoever opens them, `RingReader`
and `RingWriter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool import _native
from tensor_pool.errors import RegionError
from tensor_pool.wire.shm import LAYOUT_VERSION, SLOT_BYTES

if TYPE_CHECKING:
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["ring_address"]


def ring_address(announce: ShmPoolAnnounce) -> _native.RingAddress:
    """The address of an announced ring, if its layout is the one that is known here.

    Raises:
        RegionError: Another layout version, another size of header slots, a pool whose slots are not as many
            as the header ring's, or no pool at all.

    Example:
        >>> from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce
        >>> ring_address(ShmPoolAnnounce(
        ...     stream_id=10000, producer_id=7, epoch=5, announce_timestamp_ns=1,
        ...     announce_clock_domain=ClockDomain.MONOTONIC, layout_version=1, header_nslots=8,
        ...     header_slot_bytes=256, header_region_uri="shm:file?path=/dev/shm/header.ring",
        ...     payload_pools=(PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),)))
        RingAddress(stream 10000, epoch 5, 8 slots of 4096 bytes)
    """
    _check_layout(announce)
    return _native.RingAddress(
        stream_id=announce.stream_id,
        epoch=announce.epoch,
        nslots=announce.header_nslots,
        header_uri=announce.header_region_uri,
        pools=[(pool.pool_id, pool.stride_bytes, pool.region_uri) for pool in announce.payload_pools],
    )


def _check_layout(announce: ShmPoolAnnounce) -> None:
    where = f"the announce of stream {announce.stream_id}, epoch {announce.epoch}"
    if announce.layout_version != LAYOUT_VERSION:
        raise RegionError(
            f"layout version {announce.layout_version} is announced, {LAYOUT_VERSION} is known here",
            where=where,
            hint="use the same major version of the library on both sides",
        )
    # Another slot size is another layout, whatever its version says [WIRE-15.20-2].
    if announce.header_slot_bytes != SLOT_BYTES:
        raise RegionError(
            f"header slots of {announce.header_slot_bytes} bytes are announced, {SLOT_BYTES} are known here",
            where=where,
            hint="use the same major version of the library on both sides",
        )
    if not announce.payload_pools:
        raise RegionError(
            "no payload pool is announced", where=where, hint="its producer must have at least one"
        )
    for pool in announce.payload_pools:
        if pool.pool_nslots != announce.header_nslots:  # [WIRE-15.5-1]
            raise RegionError(
                f"pool {pool.pool_id} is announced with {pool.pool_nslots} slots, "
                f"the header ring with {announce.header_nslots}",
                where=where,
                hint="every pool must have as many slots as the header ring",
            )
