"""What tests of the bridge share: ids, and addresses that nobody uses."""

from __future__ import annotations

import socket
from pathlib import Path

from tensor_pool.host.bridge import BridgeService
from tensor_pool.pool.producer import Producer
from tensor_pool.testing import Cluster
from tensor_pool.transport.counters import read_counters
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES, Slot, decode_slot

__all__ = [
    "DEST",
    "SOURCE",
    "end_of_bridge",
    "free_endpoints",
    "follows",
    "is_ready",
    "publications",
    "ring_file",
    "slot_in",
]

SOURCE = 10_000
DEST = 50_000
_PUBLISHER_POSITION = 12
"""The media driver's counter of each publication; its label ends with stream id and channel."""


def free_endpoints(count: int) -> list[str]:
    """UDP addresses on loopback that nobody uses."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def is_ready(bridge: BridgeService) -> bool:
    """Whether frames that are sent now would be put into a ring."""
    received = bridge.stats[-1].received
    return received is not None and received.epoch is not None and has_receivers(bridge)


def has_receivers(bridge: BridgeService, *, mappings: int | None = None) -> bool:
    """Whether somebody listens to its first mappings; what is sent before that is for nobody."""
    running = bridge._bridge
    senders = [] if running is None else running._senders[:mappings]
    return all(sender._publication.connected for sender in senders)


def follows(bridge: BridgeService, out: Producer) -> bool:
    """Whether frames of this producer would be put into a ring; the one before it may still be announced."""
    return is_ready(bridge) and bridge.stats[-1].received.source_epoch == out.epoch


def publications(aeron_dir: str) -> set[tuple[str, int]]:
    """The channels, without their parameters behind the first, and ids of everything that is published."""
    found = (reading.label.split() for reading in read_counters(aeron_dir, type_id=_PUBLISHER_POSITION))
    return {(words[-1].partition("|")[0], int(words[-2])) for words in found}


def ring_file(host: Cluster, stream_id: int, epoch: int | None) -> Path:
    """The header ring of one epoch of a stream."""
    base = Path(str(host.settings["shm.shm_base_dir"]))
    (found,) = base.glob(f"tensorpool-*/*/{stream_id}/{epoch}/header.ring")
    return found


def slot_in(ring: Path, index: int) -> Slot:
    """A slot of a ring, as it is now."""
    with ring.open("rb") as file:
        file.seek(SUPERBLOCK_BYTES + index * SLOT_BYTES)
        return decode_slot(file.read(SLOT_BYTES))


def end_of_bridge(role: str, payload: str, control: str, metadata: str) -> str:
    """The file of a bridge with one mapping, for one of its ends.

    Args:
        role: ``sender`` or ``receiver``.
        payload: Endpoint of the channel, and more parameters if need be.
        control: The same.
        metadata: The same.
    """
    return f"""
        [bridge]
        instance_id = "{role}"
        role = "{role}"
        payload_channel = "aeron:udp?endpoint={payload}|mtu=8192"
        control_channel = "aeron:udp?endpoint={control}"
        metadata_channel = "aeron:udp?endpoint={metadata}"

        [[bridge.mappings]]
        source_stream_id = {SOURCE}
        dest_stream_id = {DEST}
    """
