"""Answers queries."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tensor_pool.channels import Channel
from tensor_pool.discovery.config import DEFAULT_MAX_RESULTS
from tensor_pool.discovery.known import encode_found
from tensor_pool.discovery.query import StreamQuery
from tensor_pool.discovery.request_limits import MAX_REQUEST_TAGS, has_too_many_tags
from tensor_pool.errors import ChannelError
from tensor_pool.wire import encode
from tensor_pool.wire.messages import DiscoveryResponse, DiscoveryStatus

if TYPE_CHECKING:
    from tensor_pool.discovery.access import Visibility
    from tensor_pool.discovery.index import Refused, StreamIndex
    from tensor_pool.wire.messages import DiscoveryRequest

__all__ = ["DiscoveryDesk", "check_request"]


def check_request(request: DiscoveryRequest) -> Refused | None:
    """Why a request can't be answered at all, because it names no place where an answer could go.

    Example:
        >>> from tensor_pool.wire.messages import DiscoveryRequest
        >>> check_request(DiscoveryRequest(1, 7, 7004))
        'no_response_channel'
        >>> check_request(DiscoveryRequest(1, 7, 0, response_channel="aeron:ipc"))
        'no_response_stream'
    """
    if not request.response_channel:
        return "no_response_channel"  # [DSC-5.1-5]
    if request.response_stream_id == 0:
        return "no_response_stream"  # decision K3
    try:
        channel = Channel.parse(request.response_channel)
    except ChannelError:
        return "bad_response_channel"
    return "bad_response_channel" if channel.spy else None


class DiscoveryDesk:
    """Finds what was asked for, within limits.

    Args:
        index: The streams.
        visibility: Who sees which.
        max_results: Results in one answer.
        denies: Whether a client that sees nothing of what it asked for is told so with an error, not with
            NOT_FOUND as for what does not exist [DSC-12-2].

    Example:
        >>> from tensor_pool.discovery.access import Visibility
        >>> from tensor_pool.discovery.index import StreamIndex
        >>> from tensor_pool.wire import decode
        >>> from tensor_pool.wire.messages import DiscoveryRequest
        >>> desk = DiscoveryDesk(StreamIndex(expiry_ns=1), Visibility(()))
        >>> asked = DiscoveryRequest(1, 7, 7004, response_channel="aeron:ipc")
        >>> decode(desk.answer(asked, now_ns=0, max_bytes=1_000)).status.name
        'OK'
    """

    def __init__(
        self,
        index: StreamIndex,
        visibility: Visibility,
        *,
        max_results: int = DEFAULT_MAX_RESULTS,
        denies: bool = False,
    ) -> None:
        self._index = index
        self._visibility = visibility
        self._max_results = max_results
        self._denies = denies

    def answer(self, request: DiscoveryRequest, *, now_ns: int, max_bytes: int) -> bytes:
        """What matches a query now, as a message; an error that names the limit where it is too much (K6)."""
        if has_too_many_tags(request):
            return _error(request, f"more than {MAX_REQUEST_TAGS} tags are asked for; no stream has so many")
        query, client_id = StreamQuery.of(request), request.client_id
        matching = (
            stream
            for stream in self._index.matching(query, now_ns=now_ns)
            if self._visibility.sees(client_id, stream)
        )
        found = list(itertools.islice(matching, self._max_results + 1))
        if len(found) > self._max_results:
            return _error(request, f"more than {self._max_results} streams match; ask for a name or a tag")
        if not found and self._visibility.is_limited:
            if self._denies:
                return _error(request, "nothing that this client may see matches")
            return encode(DiscoveryResponse(request.request_id, DiscoveryStatus.NOT_FOUND))  # decision K2
        data = encode_found(request.request_id, found)
        if len(data) > max_bytes:
            too_long = f"{len(found)} results take {len(data)} bytes, more than the {max_bytes} of an answer"
            return _error(request, f"{too_long}; a longer term-length or a filter helps")
        return data


def _error(request: DiscoveryRequest, text: str) -> bytes:
    return encode(DiscoveryResponse(request.request_id, DiscoveryStatus.ERROR, error_message=text))
