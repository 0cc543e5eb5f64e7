"""One stream that a provider knows, ready to be told of."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from tensor_pool.pool.discovering import HOST_TAG
from tensor_pool.wire import HEADER_BYTES, encode, message_layouts
from tensor_pool.wire.messages import DiscoveryResponse, DiscoveryResult, DiscoveryStatus, DiscoveryTag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.discovery.authority import Authority
    from tensor_pool.discovery.metadata import Description
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["KnownStream", "encode_found"]

_MAX_DIMS: Final = 8
_GROUP_HEADER_BYTES: Final = 4
_HEAD_BYTES: Final = HEADER_BYTES + message_layouts(DiscoveryResponse)[0].block_length + _GROUP_HEADER_BYTES
_NO_TEXT_BYTES: Final = 4
"""The length of an empty error message."""


class KnownStream:
    """A stream as its driver announces it and its producer describes it; never changes but for `heard_ns`.

    Args:
        authority: The driver.
        announce: Layout and epoch.
        said: What the producer said in this epoch.
        heard_ns: When the announce came last.
    """

    def __init__(
        self, authority: Authority, announce: ShmPoolAnnounce, said: Description | None, *, heard_ns: int
    ) -> None:
        self.authority = authority
        self.announce = announce
        self.heard_ns = heard_ns
        self._said = None if said is None else (said.name, said.tags, said.data_source_id)
        self.name = "" if said is None else said.name
        self.data_source_id = None if said is None else said.data_source_id
        # Whoever asks from elsewhere must see that the stream is not there [DSC-9-2].
        where = [f"{HOST_TAG}{authority.host}"] if authority.host else []
        self.tags = frozenset(() if said is None else said.tags).union(where)

    def described(self, said: Description | None) -> KnownStream:
        """The stream as it is described now: itself, unless that has changed."""
        if self._said == (None if said is None else (said.name, said.tags, said.data_source_id)):
            return self
        return KnownStream(self.authority, self.announce, said, heard_ns=self.heard_ns)

    @cached_property
    def result(self) -> DiscoveryResult:
        """The stream as messages describe it."""
        announce, authority = self.announce, self.authority
        return DiscoveryResult(
            stream_id=announce.stream_id,
            producer_id=announce.producer_id,
            epoch=announce.epoch,
            layout_version=announce.layout_version,
            header_nslots=announce.header_nslots,
            header_slot_bytes=announce.header_slot_bytes,
            max_dims=_MAX_DIMS,
            data_source_id=self.data_source_id,
            driver_control_stream_id=authority.control_stream_id,
            payload_pools=announce.payload_pools,
            tags=tuple(DiscoveryTag(tag) for tag in sorted(self.tags)),
            header_region_uri=announce.header_region_uri,
            data_source_name=self.name,
            driver_instance_id=authority.instance_id,
            driver_control_channel=authority.control_channel,
        )

    @cached_property
    def encoded(self) -> bytes:
        """The same as bytes, so that the thousandth answer costs no more than a copy."""
        alone = encode(DiscoveryResponse(0, DiscoveryStatus.OK, (self.result,)))
        return alone[_HEAD_BYTES:-_NO_TEXT_BYTES]


def encode_found(request_id: int, found: Sequence[KnownStream]) -> bytes:
    """An answer with these streams: byte for byte what `encode` makes of their results.

    Example:
        >>> encode_found(7, []) == encode(DiscoveryResponse(7, DiscoveryStatus.OK))
        True
    """
    empty = encode(DiscoveryResponse(request_id, DiscoveryStatus.OK))
    if not found:
        return empty
    entry_bytes = message_layouts(DiscoveryResponse)[0].groups[0].entry.block_length
    head = empty[: _HEAD_BYTES - _GROUP_HEADER_BYTES]
    group = entry_bytes.to_bytes(2, "little") + len(found).to_bytes(2, "little")
    return b"".join([head, group, *(stream.encoded for stream in found), bytes(_NO_TEXT_BYTES)])
