"""How long a request may be, seen before it is read.

To send a long one costs next to nothing; to read it takes so long that everybody else who asks waits.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tensor_pool.channels import MAX_CHANNEL_LENGTH
from tensor_pool.discovery.metadata import MAX_NAME_BYTES, MAX_TAG_BYTES, MAX_TAGS
from tensor_pool.wire import HEADER_BYTES, message_layouts
from tensor_pool.wire.messages import DiscoveryRequest

if TYPE_CHECKING:
    from tensor_pool.discovery.index import Refused

__all__ = ["MAX_REQUEST_BYTES", "MAX_REQUEST_TAGS", "has_too_many_tags", "refuse_unread"]

MAX_REQUEST_TAGS: Final = MAX_TAGS + 1
"""Those of a producer and that of the host: no stream has more, so none can match more."""
_MAX_READ_TAGS: Final = 4 * MAX_REQUEST_TAGS
"""So many are read: tags may be named twice, and who asks for a few too many is told so. Beyond that reading
costs too much."""
_LAYOUT: Final = message_layouts(DiscoveryRequest)[0]
_IDS: Final = (_LAYOUT.template_id, _LAYOUT.schema_id)
_HEADER: Final = struct.Struct("<HHH")
_GROUP_HEADER: Final = struct.Struct("<HH")
_LENGTH_BYTES: Final = 4
"""In front of each text."""
MAX_REQUEST_BYTES: Final = (
    HEADER_BYTES
    + _LAYOUT.block_length
    + _GROUP_HEADER.size
    + MAX_REQUEST_TAGS * (_LENGTH_BYTES + MAX_TAG_BYTES)
    + _LENGTH_BYTES
    + MAX_CHANNEL_LENGTH
    + _LENGTH_BYTES
    + MAX_NAME_BYTES
)
"""A request with the longest channel and name and as many of the longest tags as there may be."""


def refuse_unread(data: bytes) -> Refused | None:
    """Why a message is a request that is not worth reading; None for all others, whatever they are.

    Example:
        >>> from tensor_pool.wire import encode
        >>> from tensor_pool.wire.messages import DiscoveryTag
        >>> def asked(count: int, tag: str) -> bytes:
        ...     return encode(DiscoveryRequest(1, 7, 7004, tags=(DiscoveryTag(tag),) * count))
        >>> refuse_unread(asked(65, "x" * 256))
        >>> refuse_unread(asked(4_000, ""))
        'too_many_tags'
        >>> refuse_unread(asked(65_000, ""))
        'too_long'
    """
    if len(data) < HEADER_BYTES:
        return None
    block_length, *ids = _HEADER.unpack_from(data)
    if tuple(ids) != _IDS:
        return None
    if len(data) > MAX_REQUEST_BYTES:
        return "too_long"
    tags_at = HEADER_BYTES + block_length
    if len(data) < tags_at + _GROUP_HEADER.size:
        return None  # cut short, as reading it will show
    _, count = _GROUP_HEADER.unpack_from(data, tags_at)
    return "too_many_tags" if count > _MAX_READ_TAGS else None


def has_too_many_tags(request: DiscoveryRequest) -> bool:
    """Whether no stream could have all the tags of a request; one that is named twice counts once.

    Example:
        >>> from tensor_pool.wire.messages import DiscoveryTag
        >>> has_too_many_tags(DiscoveryRequest(1, 7, 7004, tags=(DiscoveryTag("lab"),) * 100))
        False
    """
    tags = request.tags
    return len(tags) > MAX_REQUEST_TAGS and len({entry.tag for entry in tags}) > MAX_REQUEST_TAGS
