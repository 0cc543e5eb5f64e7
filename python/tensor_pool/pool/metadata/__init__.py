"""The metadata of a stream as a dictionary, on both sides.

A producer writes into `MetadataSource`, whose messages carry every version to the consumers; a consumer reads
from `MetadataView`. Frames name the version that they belong to, so a version is never changed: what is
written next goes into the next one.
"""

from __future__ import annotations

from tensor_pool.pool.metadata.attributes import MetadataValue, read_attribute, to_attribute
from tensor_pool.pool.metadata.source import CLOCK_DOMAIN, CLOCK_OFFSET, MetadataLimits, MetadataSource
from tensor_pool.pool.metadata.view import MetadataVersion, MetadataView

__all__ = [
    "CLOCK_DOMAIN",
    "CLOCK_OFFSET",
    "MetadataLimits",
    "MetadataSource",
    "MetadataValue",
    "MetadataVersion",
    "MetadataView",
    "read_attribute",
    "to_attribute",
]
