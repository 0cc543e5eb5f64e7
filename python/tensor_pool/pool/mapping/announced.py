"""What an announce must say before anything is done about it.

An announce comes from another process and is not trusted: its age and what it says about the layout are
checked here, before any file is looked at. That its files are what it says is checked by whoever opens them,
`RingReader` and `RingWriter`.
"""

from __future__ import annotations

from tensor_pool import _native
from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping.actions import IgnoreReason
from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce
from tensor_pool.wire.shm import LAYOUT_VERSION, SLOT_BYTES

__all__ = ["announce_ring", "payload_pools", "ring_address", "untimely"]


def payload_pools(address: _native.RingAddress) -> tuple[PayloadPool, ...]:
    """The pools of a ring as announces and attach responses carry them [DRV-8-2]."""
    return tuple(PayloadPool(number, address.nslots, stride, uri) for number, stride, uri in address.pools)


def announce_ring(
    address: _native.RingAddress,
    *,
    producer_id: int,
    timestamp_ns: int,
    clock_domain: ClockDomain = ClockDomain.MONOTONIC,
) -> ShmPoolAnnounce:
    """What everybody may know of a ring; `ring_address` goes back.

    Example:
        >>> address = _native.RingAddress(
        ...     stream_id=10000, epoch=5, nslots=8, header_uri="shm:file?path=/dev/shm/header.ring",
        ...     pools=[(1, 4096, "shm:file?path=/dev/shm/1.pool")])
        >>> ring_address(announce_ring(address, producer_id=7, timestamp_ns=1)) == address
        True
    """
    return ShmPoolAnnounce(
        stream_id=address.stream_id,
        producer_id=producer_id,
        epoch=address.epoch,
        announce_timestamp_ns=timestamp_ns,
        announce_clock_domain=clock_domain,
        layout_version=LAYOUT_VERSION,
        header_nslots=address.nslots,
        header_slot_bytes=SLOT_BYTES,
        payload_pools=payload_pools(address),
        header_region_uri=address.header_uri,
    )


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


def untimely(
    announce: ShmPoolAnnounce,
    *,
    received_ns: int,
    join_time_ns: int,
    realtime_ns: int,
    freshness_ns: int,
) -> IgnoreReason | None:
    """Why the time stamp of an announce speaks against it, or None.

    Each domain is compared with its own clock, never with the other (pitfall 32).

    Args:
        announce: An announce that did not cross a bridge.
        received_ns: Monotonic time at which it was received.
        join_time_ns: Monotonic time at which its image became available [WIRE-10.1.1-11].
        realtime_ns: Real time at which it was received.
        freshness_ns: How old it may be.

    Example:
        >>> from tensor_pool.wire.messages import ClockDomain, ShmPoolAnnounce
        >>> announce = ShmPoolAnnounce(
        ...     stream_id=1, producer_id=7, epoch=5, announce_timestamp_ns=1_000,
        ...     announce_clock_domain=ClockDomain.MONOTONIC, layout_version=1, header_nslots=8,
        ...     header_slot_bytes=256, header_region_uri="", payload_pools=())
        >>> untimely(announce, received_ns=5_000, join_time_ns=0, realtime_ns=0, freshness_ns=3_000).value
        'stale'
    """
    monotonic = announce.announce_clock_domain == ClockDomain.MONOTONIC
    age_ns = (received_ns if monotonic else realtime_ns) - announce.announce_timestamp_ns
    if age_ns > freshness_ns:
        return IgnoreReason.STALE
    # A stamp slightly ahead comes from a cached clock, or from the error budget of a synchronised one.
    if age_ns < -freshness_ns:
        return IgnoreReason.FUTURE
    # A join time is monotonic, so it says nothing about other clocks [WIRE-10.1.1-12].
    if monotonic and announce.announce_timestamp_ns < join_time_ns:
        return IgnoreReason.BEFORE_JOIN
    return None
