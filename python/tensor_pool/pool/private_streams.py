"""Aeron streams of one consumer alone: which channels may be asked for, and which stream id is given out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.channels import Channel
from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.ids import AeronStreamId

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PrivateStream", "PrivateStreams"]

_OURS_TO_CHOOSE: Final = frozenset(
    {
        "alias",
        "eos",
        "linger",
        "mtu",
        "sparse",
        "term-length",
        "tether",
        "untethered-linger-timeout",
        "untethered-resting-timeout",
        "untethered-window-limit-timeout",
    }
)
"""Parameters of a request that don't change where messages go. They are not taken over: a consumer must not
decide how much memory our publication takes."""


class PrivateStream(NamedTuple):
    """Where the messages for one consumer go."""

    channel: str
    stream_id: AeronStreamId


class PrivateStreams:
    """Gives out streams of one purpose (descriptors, or control) and takes them back.

    Args:
        stream_ids: The ids that may be given out; an empty range gives out none.
        allowed_channels: The channels that consumers may ask for. What is given out is the channel as it
            stands here, not as it was asked for.

    Raises:
        ConfigError: An allowed channel is none, or an id is 0, which means "no stream".

    Example:
        >>> streams = PrivateStreams(range(31_000, 31_002), allowed_channels=["aeron:ipc"])
        >>> streams.assign("aeron:ipc?term-length=1g", wish=31_001, seed=7)
        PrivateStream(channel='aeron:ipc', stream_id=31001)
        >>> streams.assign("aeron:udp?endpoint=10.0.0.1:40123", wish=31_000, seed=7) is None
        True
    """

    def __init__(
        self, stream_ids: range, *, allowed_channels: Sequence[str], most: int | None = None
    ) -> None:
        self._most = len(stream_ids) if most is None else most
        if stream_ids and not 0 < min(stream_ids) <= max(stream_ids) < 2**31:
            raise ConfigError(f"{stream_ids} holds ids that no Aeron stream can have", hint="1 to 2147483647")
        self._ids = stream_ids
        self._allowed = [(_destination(Channel.parse(text)), text) for text in allowed_channels]
        self._taken: set[int] = set()

    def __len__(self) -> int:
        """How many are given out."""
        return len(self._taken)

    def allowed(self, channel: str) -> str | None:
        """The allowed channel that leads to the same place as the one asked for."""
        try:
            wanted = _destination(Channel.parse(channel))
        except ChannelError:
            return None
        return next((text for destination, text in self._allowed if destination == wanted), None)

    def assign(self, channel: str, *, wish: int, seed: int) -> PrivateStream | None:
        """A stream on `channel`, or None: the channel is not allowed, or no id is left (decision D1).

        Args:
            channel: The channel that was asked for.
            wish: The id that was asked for; another one is given when it is taken or not in the range.
            seed: Where the search for another one starts. Producers of other streams give out ids of the same
                range; starting at different places keeps them apart.
        """
        allowed = self.allowed(channel)
        has_room = allowed is not None and len(self._taken) < self._most
        stream_id = self._free_id(wish, seed) if has_room else None
        if allowed is None or stream_id is None:
            return None
        self._taken.add(stream_id)
        return PrivateStream(allowed, AeronStreamId(stream_id))

    def release(self, stream: PrivateStream) -> None:
        """Takes a stream back."""
        self._taken.discard(stream.stream_id)

    def _free_id(self, wish: int, seed: int) -> int | None:
        if wish in self._ids and wish not in self._taken:
            return wish
        count = len(self._ids)
        candidates = (self._ids[(seed + step) % count] for step in range(count))
        return next((stream_id for stream_id in candidates if stream_id not in self._taken), None)


def _destination(channel: Channel) -> tuple[str, bool, frozenset[tuple[str, str]]]:
    """What of a channel says where messages go."""
    identifying = {name: value for name, value in channel.params.items() if name not in _OURS_TO_CHOOSE}
    return channel.media, channel.spy, frozenset(identifying.items())
