"""Two kinds of stream id that must not be mixed up: both are integers, and both are called "stream id".

A *pool stream* is what people mean (a camera, an instrument): its id travels inside messages. An *Aeron
stream* is a lane of a channel on which such messages travel, and many pool streams share one.

Example:
    >>> PoolStreamId(10_000), AeronStreamId(1_100)
    (10000, 1100)
"""

from __future__ import annotations

from typing import NewType

__all__ = ["AeronStreamId", "PoolStreamId"]

PoolStreamId = NewType("PoolStreamId", int)
"""The id of a tensor stream, as it stands in ``stream_id`` of messages."""

AeronStreamId = NewType("AeronStreamId", int)
"""The id of a lane of an Aeron channel."""
