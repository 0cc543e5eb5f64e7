"""What tests of the bridge share: ids, and addresses that nobody uses."""

from __future__ import annotations

import socket

__all__ = ["DEST", "SOURCE", "free_endpoints"]

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
