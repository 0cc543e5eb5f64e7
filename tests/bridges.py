"""What tests of the bridge share: ids, and addresses that nobody uses."""

from __future__ import annotations

import socket

__all__ = ["DEST", "SOURCE", "free_endpoints", "end_of_bridge"]

SOURCE = 10_000
DEST = 50_000


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
