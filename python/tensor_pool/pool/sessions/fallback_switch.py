"""Whether a consumer reads a stream from chunks, from which, and what its program is told if it can't."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.channels import Channel
from tensor_pool.errors import ChannelError, NoStreamError, RegionError
from tensor_pool.pool.fallback_uri import parse_fallback_uri
from tensor_pool.pool.mapping import Ignore, IgnoreReason, MappingPhase
from tensor_pool.pool.sessions.fallback import Fallback
from tensor_pool.pool.sessions.session import is_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool import _native
    from tensor_pool.errors import TensorPoolError
    from tensor_pool.pool.fallback_uri import ChunkPlace
    from tensor_pool.pool.mapping import MappingAction, MappingState
    from tensor_pool.pool.sessions.fallback import ChunkFeed
    from tensor_pool.pool.sessions.lease import StreamWish
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.wire.messages import ConsumerConfig, ShmPoolAnnounce

__all__ = ["FallbackSwitch"]

_LOG: Final = logging.getLogger(__name__)
_NO_WAY: Final = "ask who runs the stream for a fallback, or read it on its own host"
_NOT_FOLLOWED: Final = "client.allow_fallback = true allows it, and so does the same client.fallback_uri"


class FallbackSwitch:
    """Opens the fallback of a consumer where it does not read shared memory. For the agent's thread.

    Args:
        context: The connection.
        wish: Which stream; for what is told to programs.
        own_uri: Where to read when nobody tells.
    """

    def __init__(self, context: SessionContext, wish: StreamWish, own_uri: str) -> None:
        announces = context.agent.streams.announce_channel
        self.hears_other_hosts: Final = Channel.parse(announces).media == "udp"
        """Whether announces may be stamped by another host's clock."""
        self.current: Fallback | None = None
        """What is read from now."""
        self._context = context
        self._wish = wish
        self._own_uri = own_uri
        self._was_answered = False
        self._announced: ShmPoolAnnounce | None = None
        self._missed: tuple[int, int] | None = None
        self._feeds: list[ChunkFeed] = []

    def on_config(self, config: ConsumerConfig) -> str:
        """Where to read if need be, now that the stream's authority has spoken; empty for nowhere."""
        self._was_answered = True
        return config.payload_fallback_uri or self._own_uri

    def note(self, announce: ShmPoolAnnounce, action: MappingAction) -> None:
        """Keeps an announce that may be followed, also before a fallback is known."""
        if not isinstance(action, Ignore) or action.reason is IgnoreReason.SHM_NOT_ALLOWED:
            self._announced = announce

    def is_other_now(self, mapping: MappingState) -> bool:
        """Whether what is read from is not what should be read from any more: then `take` it and close it."""
        return self.current is not None and self.current.place != self._choose(mapping)[0]

    def take(self) -> Fallback | None:
        """Hands over what is read from; nothing is from now on."""
        fallback, self.current = self.current, None
        return fallback

    def follow(
        self,
        mapping: MappingState,
        open_reader: Callable[[_native.RingAddress, Sequence[str]], _native.RingReader],
    ) -> tuple[_native.RingReader | None, TensorPoolError | None]:
        """A ring to read from now on, if there is another one; and why there will be no frames, if so.

        Args:
            mapping: What became of shared memory.
            open_reader: Maps a ring.
        """
        place, refusal = self._choose(mapping)
        if place is None:
            return None, refusal
        if self.current is None:
            self.current = Fallback(self._context, place, mapping.stream_id, open_reader)
            self._feeds = [*(feed for feed in self._feeds if feed.is_running), self.current.feed]
            _LOG.info("reads stream %s from the chunks on %s", self._wish.label, place.channel)
        try:
            return None if self._announced is None else self.current.follow(self._announced), None
        except RegionError as e:
            return None, e

    def join(self) -> None:
        """Waits until no thread takes chunks any more; for user threads, after all was closed."""
        for feed in self._feeds:
            feed.join()

    def _choose(self, mapping: MappingState) -> tuple[ChunkPlace | None, TensorPoolError | None]:
        if mapping.state is not MappingPhase.FALLBACK or self._waits_for_files(mapping):
            return None, None
        uri = mapping.fallback_uri
        if not uri:
            return None, self._refusal("and no other way is offered", _NO_WAY) if self._was_answered else None
        if uri != self._own_uri and not self._context.section.allow_fallback:
            return None, self._refusal(f"only from {uri:.80}, which is not followed", _NOT_FOLLOWED)
        try:
            return parse_fallback_uri(uri, default_stream_id=self._context.chunk_stream_id), None
        except ChannelError as e:
            return None, self._refusal(f"and what is offered instead can't be used: {e.message}", e.hint)

    def _waits_for_files(self, mapping: MappingState) -> bool:
        """Files that are gone mostly belonged to an epoch that is over: they have to be missed twice."""
        if self.current is not None or not mapping.shm_allowed:
            return False
        if mapping.failure is None or not is_gone(mapping.failure):
            return False
        epoch = -1 if self._announced is None else self._announced.epoch
        times = mapping.ignored.get(IgnoreReason.REFUSED_REGION, 0)
        if self._missed is None or self._missed[0] != epoch:
            self._missed = (epoch, times)
        return times <= self._missed[1]

    def _refusal(self, what: str, hint: str | None) -> NoStreamError:
        """Why a consumer that may not use shared memory gets nothing [WIRE-10.1.3-3, WIRE-15.22-18]."""
        return NoStreamError(
            f"stream {self._wish.label} may not be read through shared memory, {what}", hint=hint
        )
