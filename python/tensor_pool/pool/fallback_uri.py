"""Where a consumer without shared memory reads: the `payloadFallbackUri` of a `ConsumerConfig`."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from tensor_pool.channels import Channel
from tensor_pool.config.kinds import ALLOWED, CHECK
from tensor_pool.errors import ChannelError

__all__ = ["ChunkPlace", "FallbackUri", "check_fallback_uri", "parse_fallback_uri"]

_SCHEME: Final = "aeron:"
_STREAM_ID: Final = "stream-id"
_MOST_STREAM_ID: Final = 2**31 - 1


class ChunkPlace(NamedTuple):
    """The Aeron stream on which a bridge sends frames in chunks."""

    channel: str
    stream_id: int


def parse_fallback_uri(uri: str, *, default_stream_id: int) -> ChunkPlace:
    """The Aeron stream that a fallback means.

    It is a channel like that of a bridge's payload, and may name the stream id as a parameter of its own.

    Args:
        uri: What the stream's authority said.
        default_stream_id: That of chunks where the URI names none.

    Raises:
        ChannelError: Another scheme, which is unsupported [WIRE-10.1.3-3], or not a channel.

    Example:
        >>> parse_fallback_uri("aeron:udp?endpoint=10.0.0.2:20121|stream-id=3100", default_stream_id=3000)
        ChunkPlace(channel='aeron:udp?endpoint=10.0.0.2:20121', stream_id=3100)
    """
    if not uri.startswith(_SCHEME):
        raise ChannelError(
            f"{uri!r:.80} is not known here", hint="a fallback is aeron:udp?endpoint=HOST:PORT|stream-id=3000"
        )
    channel = Channel.parse(uri)
    params = dict(channel.params)
    text = params.pop(_STREAM_ID, str(default_stream_id))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_STREAM_ID:
        raise ChannelError(f"{_STREAM_ID}={text:.20} in {uri:.80}", hint=f"a number up to {_MOST_STREAM_ID}")
    return ChunkPlace(str(Channel(channel.media, params)), int(text))


def check_fallback_uri(uri: str) -> None:
    """Refuses what no consumer of ours could read from; empty is fine.

    Raises:
        ChannelError: Not an Aeron channel.

    Example:
        >>> check_fallback_uri("")
    """
    if uri:
        parse_fallback_uri(uri, default_stream_id=1)


FallbackUri = Annotated[
    str,
    Meta(
        extra={
            CHECK: check_fallback_uri,
            ALLOWED: "an Aeron channel such as aeron:udp?endpoint=HOST:PORT|stream-id=3000, or empty",
        }
    ),
]
